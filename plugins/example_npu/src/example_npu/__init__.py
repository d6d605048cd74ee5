"""An int8 MAC array with its own scratchpad and DMA, as an accelerator of Intaglio.

    16 x 16 multipliers: 16 inputs of 16 outputs in a cycle (depthwise: 4 taps of 16 channels)
    a scratchpad of 32 KB in banks of 1 KB, a DMA of 8 bytes a cycle, both at work at the same time
    a list of commands, made when the model is compiled, says what to do: the core starts it and waits

`example_npu` is the hardware on the bus of a microcontroller, in the emulator too; elsewhere its behaviour in C takes its place.
`example_npu_model` is that behaviour everywhere, linked into the firmware.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from example_npu import model
from example_npu.hardware import SCRATCHPAD_BYTES, encode
from example_npu.layers import added, layer_of, product_of, refusal
from example_npu.tiling import Job, best_job
from intaglio.accelerator import Accelerator, Array, Bus, Code, Cost, Device, Facts, Is, Layout, Node, Pad, Pattern, Region, Target
from intaglio.ops.quantised import QAdd, QConv, QMatMul

MOST_JOBS = 4096  # that are remembered, since cost and code of a region are asked for one after the other
LAUNCH_CYCLES = 60  # of the core: seven registers to write, one to read, calls around them


class ExampleNpu(Accelerator):
    name = "example_npu"
    facts = Facts(
        "an int8 MAC array of 16x16 with 32 KB of scratchpad, on the bus of the core",
        alignment=4,
        layouts=(Layout.NONE, Layout.NHWC),
        memories=(Pad("scratchpad", SCRATCHPAD_BYTES),),
        overlaps=True,
    )
    patterns = (
        Pattern("conv", Is(QConv), refusal),
        Pattern("dense", Is(QMatMul), refusal),
        Pattern("conv+add", Is(QAdd, (Is(QConv), None)), refusal),
        Pattern("add+conv", Is(QAdd, (None, Is(QConv))), refusal),
    )

    def __init__(self) -> None:
        self._jobs: dict[tuple[Node, ...], Job] = {}

    def cost(self, region: Region, target: Target) -> Cost:
        job = self._job(region)
        return Cost(job.array_cycles, LAUNCH_CYCLES, job.moved_bytes, job.cycles - job.array_cycles)

    def compile(self, region: Region, target: Target) -> Code:
        job = self._job(region)
        names = ["NULL" if n is None else f"in{n}" for n in _operands(region)]
        return Code(
            f"example_npu_start(program, constants, {', '.join(names)}, out0);",
            {"program": encode(job.commands), "constants": job.constants},
            wait="if (example_npu_wait() != 0)\n    return 1;",
            includes=("example_npu.h",),
            fallible=True,
            over=_operands(region)[1],  # a tile of what is added is read before that tile of the sum is written
            about=f"example_npu: {', '.join(n.op.NAME for n in region.nodes)} in tiles of {job.tile}, "
            f"{len(job.commands)} commands, {job.cycles:,} cycles",
        )

    def emulate(self, region: Region, inputs: Sequence[Array]) -> list[Array]:
        job = self._job(region)
        out = np.zeros(region.outputs[0].shape, np.int8)
        model.run(encode(job.commands), job.constants, [inputs[n] for n in _operands(region) if n is not None], out)
        return [out]

    def files(self, target: Target) -> Mapping[str, str]:
        names = ["example_npu.h"]
        names += ["example_npu_registers.c"] if self.on_bus(target) else _SOFTWARE
        return {name: model.source(name) for name in names}

    def device(self, bus: Bus) -> Device | None:
        return model.Registers(bus)

    def on_bus(self, target: Target) -> bool:
        """A host has no such bus: there the model is linked."""
        return target.bare

    def _job(self, region: Region) -> Job:
        if region.nodes not in self._jobs:
            if len(self._jobs) >= MOST_JOBS:
                self._jobs.clear()
            self._jobs[region.nodes] = best_job(layer_of(region))
        return self._jobs[region.nodes]


def _operands(region: Region) -> tuple[int, int | None]:
    """Which inputs of the region the image and what is added to the result are."""
    image, other = product_of(region).inputs[0], added(region)
    assert image is not None
    return region.inputs.index(image), None if other is None else region.inputs.index(other)


_SOFTWARE = ["example_npu_software.c", "example_npu_model.c", "example_npu_model.h"]


class ExampleNpuModel(ExampleNpu):
    """The same in software, everywhere."""

    name = "example_npu_model"
    facts = replace(ExampleNpu.facts, about="the same in software: its model is linked into the firmware, for chips without an NPU")

    def on_bus(self, target: Target) -> bool:
        return False

    def device(self, bus: Bus) -> Device | None:
        return None
