"""The tables of the experiment, for a terminal and for the page of the docs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gesture import BOARD, CLOCK_MHZ, CORE_MW, NPU_MW, PUBLISHED_MHZ, PUBLISHED_MS, PUBLISHED_RAM
from picture import picture

if TYPE_CHECKING:
    from gesture import Experiment, Machine

Rows = list[list[str]]


def accuracy(made: Experiment) -> Rows:
    def share(correct: int) -> str:
        return f"{correct} of {made.count}"

    rows = [["float, PyTorch on this machine", share(made.float_correct)], ["int8, C on this machine", share(made.host_correct)]]
    names = {"core": "int8, emulated Cortex-M4F", "npu": "int8, emulated Cortex-M4F with the NPU"}
    return rows + [[names[m.name], share(m.correct) + (", every result the same as in C" if m.same else "")] for m in made.machines]


def figures(made: Experiment) -> Rows:
    def row(name: str, of: list[str]) -> list[str]:
        return [name, *of]

    machines = made.machines
    firmware = [m.package.manifest.firmware for m in machines]
    ratio = (machines[0].profile.total.instructions or 0) / max(machines[1].profile.total.instructions or 1, 1)
    return [
        row("instructions of the core (exact)", [f"{m.profile.total.instructions:,}" for m in machines]),
        row("cycles (estimated)", [f"{m.profile.total.cycles:,}" for m in machines]),
        row(f"time at {CLOCK_MHZ:g} MHz (estimated)", [f"{m.time_ms:.3f} ms" for m in machines]),
        row("energy (estimated)", [f"{m.energy_uj:.1f} uJ" for m in machines]),
        row("RAM, stack included", [f"{f.ram_bytes:,} B" for f in firmware if f]),
        row("flash: code and weights", [f"{f.flash_bytes:,} B" for f in firmware if f]),
        row("instructions, core alone = 1", ["1", f"1/{ratio:.0f}"]),
    ]


def layers(machine: Machine) -> Rows:
    where = {layer.name: layer for layer in machine.package.manifest.layers}
    return [
        [
            where[row.name].source or row.name, row.op, where[row.name].accelerator or "core", f"{row.macs:,}",
            f"{row.instructions or 0:,}", f"{row.cycles or 0:,}",
        ]
        for row in machine.profile.layers
    ]  # fmt: skip


LAYER_HEADINGS = ["layer", "operator", "where", ">MACs", ">instructions", ">~cycles"]


def against_published(made: Experiment) -> str:
    core = made.machines[0]
    firmware = core.package.manifest.firmware
    assert firmware is not None
    slow_ms = (core.profile.total.cycles or 0) / PUBLISHED_MHZ / 1e3
    time, ram = slow_ms / PUBLISHED_MS, firmware.ram_bytes / PUBLISHED_RAM
    return (
        f"Published for the same data, int8 with TFLite Micro on a Cortex-M4F at {PUBLISHED_MHZ:g} MHz: {PUBLISHED_MS} ms and "
        f"{PUBLISHED_RAM / 1e3:g} KB.\n"
        f"This network, at that clock: {slow_ms:.2f} ms (estimated), {time:.0%} of the time, and "
        f"{firmware.ram_bytes / 1e3:.2f} KB, {ram:.0%} of the RAM. The two networks are not the same."
    )


def print_tables(made: Experiment) -> None:
    from intaglio.cli.terminal import print_table

    print_table([f"recognised ({made.data.about})", ""], accuracy(made))
    print()
    print_table([f"one gesture on {BOARD}", ">core alone", ">core and NPU"], figures(made))
    for machine, title in zip(made.machines, ("core alone", "core and NPU"), strict=True):
        print()
        print_table(LAYER_HEADINGS, layers(machine), title=title)
    print(f"\n{against_published(made)}")
    print(f"Energy: the core {CORE_MW:.0f} mW; the NPU, assumed, {NPU_MW:g} mW while it works.")
    print(f"{made.seconds:.0f} s in total.")


def _markdown(headings: list[str], rows: Rows) -> str:
    ruler = [" ---: " if h.startswith(">") else " --- " for h in headings]
    lines = [" | ".join(h.removeprefix(">") for h in headings), "|".join(ruler), *(" | ".join(row) for row in rows)]
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def write_page(made: Experiment, folder: Path) -> None:
    (folder / "gesture.svg").write_text(picture(made))
    core, npu = made.machines
    page = f"""# The gesture experiment

A hand-gesture network is trained in PyTorch, compiled ahead of time to C, and run on a Cortex-M4F, with some operators on an
accelerator. microTVM and UMA were demonstrated with the same experiment. `make example-gesture` does all of it in a minute or two
and prints these tables; it also wrote this page.

    make example-gesture          # train, export, int8, compile, run all test recordings in the emulator
    make example-gesture-live     # the same firmware, fed sample by sample: gestures are printed as they are recognised

1. **Data**: accelerometer and gyroscope data of a wand, 119 samples of six axes, five gestures
   ([Magic Wand Data](https://github.com/nanguoyu/Magic_Wand_Data), MIT): {made.data.about}.
2. **Network** (`examples/gesture/network.py`): three convolutions over time, a mean, a fully connected layer.
3. **int8**: `torch.export`, then `quantize="int8"`, calibrated on the training recordings. Inputs and outputs are integers too.
4. **Firmware** for {BOARD}: for the core alone, and with [`example_npu`](write-an-accelerator.md) on its bus.
5. **Evaluation** of every test recording on the emulated core, with the firmware that the live demonstration runs.

![Where the time of one gesture goes](gesture.svg)

{_markdown(["recognised", "of the test recordings"], accuracy(made))}

{_markdown([f"one gesture on {BOARD}", ">core alone", ">core and NPU"], figures(made))}

The emulator counts instructions, so they are exact. Cycles are [an estimate](../reference/cycle-estimate.md) without wait
states; those of the NPU come from its model. Energy assumes {CORE_MW:.0f} mW for the core
(110 uA/MHz at 3.3 V) and {NPU_MW:g} mW for the NPU while it works. The core waits at full power.

{against_published(made)}

Layer by layer, with the core alone:

{_markdown(LAYER_HEADINGS, layers(core))}

With the NPU:

{_markdown(LAYER_HEADINGS, layers(npu))}
"""
    (folder / "gesture.md").write_text(page)
