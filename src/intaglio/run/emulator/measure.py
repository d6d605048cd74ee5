"""Instructions and cycles of firmware, in all and per layer.

The total is counted on the firmware of the package. Layers are separated by a second build, with the hook that is called
after each of them: what runs between two calls belongs to the layer, but for the hook itself. Its call is part of that, some
five instructions a layer; what comes before the first call and after the last (states that are copied) is in the total alone.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from intaglio.errors import IntaglioError, OurFault, UserError
from intaglio.ir.graph import Array
from intaglio.package.alive import alive_bytes
from intaglio.package.manifest import FirmwareInfo, LayerInfo, Manifest, board_of, target_of
from intaglio.run.board_cycles import NO_WAITS, BoardCycles, Sum, cycles_of, survey_of
from intaglio.run.costs import Coster
from intaglio.run.emulator.counting import Counts
from intaglio.run.emulator.device import EmulatedDevice, EmulatorOptions, chosen_emulator
from intaglio.run.firmware import build_hooked
from intaglio.run.firmware_tools import find_firmware_toolchain
from intaglio.run.host import Sink
from intaglio.run.loaded import LoadedPackage
from intaglio.run.timing import Emulation, LayerTime, Profile, Total, layers_at_sizes, stored_inputs
from intaglio.run.toolchains import Toolchain
from intaglio.targets.board import Board
from intaglio.targets.target import Target


def measure(package: LoadedPackage, inputs: list[Array], cc: str | None, wait_states: int | None = None) -> Profile:
    manifest, target = replace(package.manifest, layers=layers_at_sizes(package)), target_of(package.manifest)
    firmware = need_firmware(package)
    run = run_once(package, inputs, wait_states)
    whole, board, timing = run.sum, run.board, run.timing
    per_layer: list[Sum | None] = [None] * len(manifest.layers)
    if whole is not None:
        with hooked(package, cc, EmulatorOptions(package.emulator, watch=bool(timing.watched))) as probe:
            coster = Coster(target.core, probe.core.read, riscv=probe.core.image.riscv, timing=timing)
            per_layer = [coster.add(counts) for counts in layer_counts(probe, inputs, len(manifest.layers))]
    clock = board.clock_mhz or None
    return Profile(
        manifest.target,
        bare_total(manifest, firmware, whole, clock, run.stack_used_bytes),
        tuple(bare_layer(manifest, layer, found, clock) for layer, found in zip(manifest.layers, per_layer, strict=True)),
        Emulation(
            run.emulator, target.core, board.name, clock, timing.wait_states, basis=timing.basis, described=timing.described,
            cores=1 if run.alone is None else board.cores, one_core_cycles=None if run.alone is None else run.alone.cycles,
        ),
    )


@dataclass(frozen=True, slots=True)
class Run:
    """One inference of the package's own firmware: the total of `profile`, and of whoever else shows one."""

    sum: Sum | None  # None: the emulator does not count
    stack_used_bytes: int
    emulator: str
    board: Board
    timing: BoardCycles = NO_WAITS
    on_boards: Mapping[str, Sum] = field(default_factory=dict)  # of those that were asked for
    alone: Sum | None = None  # one core that computes what two did

    @property
    def time_ms(self) -> float | None:
        return _ms(self.sum, self.board.clock_mhz or None)


def run_once(
    package: LoadedPackage, inputs: list[Array], wait_states: int | None = None, boards: tuple[Board, ...] = ()
) -> Run:
    """`wait_states` as in `board_cycles.cycles_of`. `boards`: others that firmware for a core alone is estimated for."""
    target = target_of(package.manifest)
    timing = cycles_of(board_of(package.manifest, target), wait_states)
    if wait_states is None and chosen_emulator(target, package.emulator) == "qemu":
        timing, boards = NO_WAITS, ()  # QEMU does not tell of accesses to memories
    options = EmulatorOptions(package.emulator, watch=bool(timing.watched), boards=boards)
    device = EmulatedDevice(package.folder, package.bounded, options)
    try:
        coster = Coster(target.core, device.core.read, riscv=device.core.image.riscv, timing=timing)
        before, begun = device.counts(), _of_both(device)
        device.run(inputs)
        after, done = device.counts(), _of_both(device)
        if before is None or after is None:
            return Run(None, device.stack_used_bytes, device.core.about, device.core.board, timing)
        counts, survey = after.since(before), survey_of(device.core.board.main("flash"), boards)
        others = {b.name: coster.add(survey.counts(b, counts), cycles_of(b, None)) for b in boards}
        alone = None if begun is None or done is None else coster.add(done.since(begun))
        return Run(coster.add(counts), device.stack_used_bytes, device.core.about, device.core.board, timing, others, alone)
    finally:
        device.close()


def _of_both(device: EmulatedDevice) -> Counts | None:
    """What two cores ran; None: there is one."""
    from intaglio.run.emulator.two_cores import TwoCores

    return device.core.both() if isinstance(device.core, TwoCores) else None


def run_if_possible(package: LoadedPackage, wait_states: int | None = None, boards: tuple[Board, ...] = ()) -> Run | None:
    """On the inputs of `profile`; None where there is no emulator for this core and board, or none that counts."""
    try:
        run = run_once(package, stored_inputs(package), wait_states, boards)
    except IntaglioError as error:
        if error.slug != "no-emulator":
            raise
        return None
    return None if run.sum is None else run


def need_firmware(package: LoadedPackage) -> FirmwareInfo:
    firmware = package.manifest.firmware
    if firmware is None:
        raise UserError("not-built", f"`{package.name}` has no firmware", hint="compile the model again, without `--stop-after`")
    return firmware


def watch(package: LoadedPackage, inputs: list[Array], sink: Sink, cc: str | None) -> None:
    """One run; `sink` gets what each layer wrote."""
    with hooked(package, cc, EmulatorOptions(package.emulator)) as device:

        def hear(layer: int, address: int, size_bytes: int) -> None:
            if layer >= 0:
                sink(layer, device.core.read(address & 0xFFFFFFFF, size_bytes))

        device.run_into(inputs, _outputs(package.manifest), hear)


@contextmanager
def hooked(package: LoadedPackage, cc: str | None, options: EmulatorOptions) -> Iterator[EmulatedDevice]:
    """A second build of the firmware, in a temporary folder: the package itself is not touched."""
    manifest, target = package.manifest, target_of(package.manifest)
    with tempfile.TemporaryDirectory(prefix="intaglio-probe-") as folder:
        elf = Path(folder) / f"{package.name}.elf"
        build_hooked(package.folder, elf, manifest, target, firmware_toolchain(manifest, target, cc))
        device = EmulatedDevice(package.folder, package.bounded, options, elf)
        try:
            yield device
        finally:
            device.close()


def firmware_toolchain(manifest: Manifest, target: Target, cc: str | None) -> Toolchain:
    """The compiler that made the package, where it is still there: layers should add up to the total."""
    made = manifest.tools.get("compiler", "")
    name = made.split(" ")[0]
    if cc is None and name != "zig" and shutil.which(name):
        found = find_firmware_toolchain(name, target)
        if found.version == made:
            return found
    return find_firmware_toolchain(cc, target)


def layer_counts(device: EmulatedDevice, inputs: list[Array], layers: int) -> list[Counts]:
    found = [Counts() for _ in range(layers)]
    last = Counts()

    def hear(layer: int, address: int, size_bytes: int) -> None:
        nonlocal last
        now = device.counts()
        if now is None:
            raise OurFault("emulator-failed", "the emulator stopped counting")
        if layer >= 0:
            found[layer] = found[layer].plus(now.since(last))
        last = now

    device.run_into(inputs, _outputs(device.manifest), hear)
    return [_without_hook(device, counts) for counts in found]


def _without_hook(device: EmulatedDevice, counts: Counts) -> Counts:
    own = (f"{device.manifest.name}_hook", f"{device.manifest.name}_cycles")
    inside = {block for block in counts.blocks if (f := device.core.image.function(block.address)) and f.name in own}
    return Counts({b: t for b, t in counts.blocks.items() if b not in inside}, counts.traffic, counts.stalls)


def _outputs(manifest: Manifest) -> list[Array]:
    return [np.empty(info.shape, info.type.dtype.numpy) for info in manifest.outputs]


def bare_layer(manifest: Manifest, layer: LayerInfo, found: Sum | None, clock_mhz: float | None) -> LayerTime:
    places = [place for other in manifest.layers for place in other.memory]
    return LayerTime(
        layer.name,
        layer.op,
        layer.macs,
        None if found is None else found.instructions,
        None if found is None else found.cycles,
        _ms(found, clock_mhz),
        layer.kernel,
        layer.source,
        None if found is None or not layer.macs else found.instructions / layer.macs,
        weight_bytes=layer.weight_bytes,
        ram_bytes=alive_bytes(places, layer.index),
        accelerator=layer.accelerator,
        cycles_low=None if found is None else found.cycles_low,
        cycles_high=None if found is None else found.cycles_high,
        stalls=() if found is None else found.stalls,
        vector_instructions=None if found is None else found.vectors or None,
    )


def bare_total(manifest: Manifest, firmware: FirmwareInfo, whole: Sum | None, clock: float | None, stack_used: int | None) -> Total:
    macs = sum(layer.macs for layer in manifest.layers)
    return Total(
        macs=macs,
        instructions=None if whole is None else whole.instructions,
        cycles=None if whole is None else whole.cycles,
        time_ms=_ms(whole, clock),
        ram_bytes=firmware.ram_bytes,
        arena_bytes=manifest.memory.arena_bytes,
        stack_bytes=firmware.stack_bytes,
        flash_bytes=firmware.flash_bytes,
        code_bytes=firmware.code_bytes,
        weight_bytes=firmware.weight_bytes,
        instructions_per_mac=None if whole is None or not macs else whole.instructions / macs,
        io_bytes=firmware.io_bytes,
        static_bytes=firmware.static_bytes,
        stack_used_bytes=stack_used,
        weights_ram_bytes=manifest.memory.weights_ram or None,
        code_ram_bytes=firmware.code_ram_bytes or None,
        cycles_low=None if whole is None else whole.cycles_low,
        cycles_high=None if whole is None else whole.cycles_high,
        stalls=() if whole is None else whole.stalls,
        vector_instructions=None if whole is None else whole.vectors or None,
    )


def _ms(found: Sum | None, clock_mhz: float | None) -> float | None:
    return None if found is None or clock_mhz is None else found.cycles / clock_mhz / 1000
