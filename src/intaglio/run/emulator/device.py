"""A package's firmware on an emulated core, called like `host.Library`: arrays in, arrays out, states in its memory.

The application of the firmware has a buffer per input and output and a function that runs the model on them:

    write the inputs   ->   call NAME_app_run   ->   read the outputs
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intaglio.errors import OurFault, UserError, quoted
from intaglio.ir.graph import Array
from intaglio.package.at_sizes import ends_at_sizes, sizes_of
from intaglio.package.manifest import Manifest, TensorInfo, board_of
from intaglio.package.weights import is_sound
from intaglio.run.emulator.core import Core, Stack
from intaglio.run.emulator.counting import Counts
from intaglio.run.emulator.image import Image, Part, read_image
from intaglio.run.emulator.peripherals import attach_accelerators
from intaglio.run.host import cut, firmware_stopped
from intaglio.targets.board import Board
from intaglio.targets.target import Target, find_target

EMULATORS = ("unicorn", "qemu")
LEAST_LIMIT = 1 << 32  # bytes of code in one run, before it is taken for a runaway
LIMIT_PER_WORK = 4000  # and for each MAC and each byte that a layer writes: exp() without a FPU needs a thousand instructions
LayerSink = Callable[[int, int, int], None]  # layer, address, bytes; layer -1 at the start of a run


@dataclass(frozen=True, slots=True)
class EmulatorOptions:
    name: str | None = None  # unicorn or qemu
    watch: bool = False  # count accesses to memories that the core waits for: slower
    boards: tuple[Board, ...] = ()  # whose caches are simulated, of firmware for their core alone


def chosen_emulator(target: Target, asked: str | None) -> str:
    """Unicorn, except for the core that it does not have. `INTAGLIO_EMULATOR` says otherwise."""
    name = asked or os.environ.get("INTAGLIO_EMULATOR") or ("qemu" if target.core == "cortex-m55" else "unicorn")
    if name not in EMULATORS:
        raise UserError("bad-option", f"unknown emulator {quoted(name)}", hint="use `unicorn` or `qemu`")
    return name


DEFAULT = EmulatorOptions()


class EmulatedDevice:
    """One core that has booted; one sequence of inferences."""

    def __init__(self, folder: Path, manifest: Manifest, options: EmulatorOptions = DEFAULT, elf: Path | None = None) -> None:
        """`elf`: another one than the package's, such as one with the hook."""
        self.manifest = manifest
        target = find_target(manifest.target)
        image = read_image(elf or folder / "bin" / f"{manifest.name}.elf", _flashed_apart(folder, manifest))
        self.core = start(image, board_of(manifest, target), target, options)
        attach_accelerators(self.core, manifest, target.core)
        self._stack = Stack(self.core)
        self._bounded = elf is None  # the bound is that of the package's own firmware
        work = sum(layer.macs + sum(o.bytes for o in layer.outputs) for layer in manifest.layers)
        self._limit_bytes = LEAST_LIMIT + LIMIT_PER_WORK * work
        self._arenas: dict[str, int] = {}
        if any(info.arena_offset is not None for info in (*manifest.inputs, *manifest.outputs)):
            self._arenas = self._find_arenas()
        self.reset()

    def _find_arenas(self) -> dict[str, int]:
        """Where they start, by region: the application tells, of one itself or of several by a struct."""
        regions = list(self.manifest.memory.arena_sizes())
        at = self.core.call(f"{self.manifest.name}_app_arena", LEAST_LIMIT) & 0xFFFFFFFF
        if len(regions) == 1:
            return {regions[0]: at}
        starts = np.frombuffer(self.core.read(at, 4 * len(regions)), "<u4")
        return {region: int(start) for region, start in zip(regions, starts, strict=True)}

    def reset(self) -> None:
        """Start a new sequence."""
        if self.manifest.states:
            self.core.call(f"{self.manifest.name}_app_reset", LEAST_LIMIT)

    def run(self, inputs: list[Array]) -> list[Array]:
        manifest = ends_at_sizes(self.manifest, sizes_of(self.manifest, [a.shape for a in inputs]))
        outputs: list[Array] = [np.empty(info.shape, info.type.dtype.numpy) for info in manifest.outputs]
        self.run_into(inputs, outputs)
        return [self._found(info, array) if info.dims else array for info, array in zip(manifest.outputs, outputs, strict=True)]

    def _found(self, info: TensorInfo, array: Array) -> Array:
        """As many as the run found, of an array with room for the most."""
        at = self.core.image.address(f"{self.manifest.name}_app_shape_of_{info.field}")
        words = np.frombuffer(self.core.read(at, 4 * len(info.dims)), "<u4")
        return cut(array, tuple(int(n) for n in words))

    def run_into(self, inputs: list[Array], outputs: list[Array], sink: LayerSink | None = None) -> None:
        """`sink` hears of every layer, if the firmware was built with the hook."""
        name, core = self.manifest.name, self.core
        stops: dict[int, Callable[[], None]] = {}
        if rows := self.manifest.memory.fed_rows:
            picture = inputs[0].reshape(rows, -1)
            stops[core.image.address(f"{name}_app_row")] = lambda: self._row(picture)
        else:
            for info, array in zip(self.manifest.inputs, inputs, strict=True):
                core.write(self._place(info, "input"), array.tobytes())
            for size, n in sizes_of(self.manifest, [a.shape for a in inputs]).items():
                core.write(core.image.address(f"{name}_app_size_{size}"), n.to_bytes(4, "little"))
        if sink is not None:
            stops[core.image.address(f"{name}_hook")] = lambda: sink(*(core.argument(i) for i in range(3)))
        code = core.call(f"{name}_app_run", self._limit_bytes, stops)
        self._check_stack()
        if code != 0:
            raise firmware_stopped(name, code)
        for info, array in zip(self.manifest.outputs, outputs, strict=True):
            data = core.read(self._place(info, "output"), array.nbytes)
            array[...] = np.frombuffer(data, array.dtype).reshape(array.shape)

    def _row(self, picture: Array) -> None:
        """The application asks for a row: its number, and where it goes."""
        self.core.write(self.core.argument(1) & 0xFFFFFFFF, picture[self.core.argument(0)].tobytes())

    def _place(self, info: TensorInfo, kind: str) -> int:
        """A buffer of the application, or the room that the arena has for this tensor."""
        name = self.manifest.name
        if info.arena_offset is None:
            return self.core.image.address(f"{name}_{kind}_{info.field}")
        return self._arenas[info.arena_region] + info.arena_offset

    def _check_stack(self) -> None:
        bound = None if self.manifest.firmware is None else self.manifest.firmware.stack_bytes
        if self._bounded and bound is not None and (used := self.stack_used_bytes) > bound:
            what = f"`{self.manifest.name}` used {used:,} bytes of stack; the computed bound is {bound:,}"
            raise OurFault("stack-bound", what, hint="this is a bug in Intaglio: please send the package")

    @property
    def stack_used_bytes(self) -> int:
        """The most that any call used so far."""
        return self._stack.used_bytes()

    def counts(self) -> Counts | None:
        return self.core.counts()

    def close(self) -> None:
        self.core.close()


def start(image: Image, board: Board, target: Target, options: EmulatorOptions) -> Core:
    """A booted core."""
    if chosen_emulator(target, options.name) == "qemu":
        if options.watch:
            hint = "omit `--wait-states`" + ("" if target.core == "cortex-m55" else ", or use `--emulator unicorn`")
            raise UserError("bad-option", "QEMU does not count loads from flash, which have wait states", hint=hint)
        from intaglio.run.emulator.qemu_core import QemuCore

        return QemuCore(image, board, target.core)
    from intaglio.run.emulator.unicorn_core import UnicornCore

    return UnicornCore(image, board, target.core, watch=options.watch, boards=options.boards)


def _flashed_apart(folder: Path, manifest: Manifest) -> tuple[Part, ...]:
    firmware = manifest.firmware
    if firmware is None or not firmware.weights_file or firmware.weights_address is None:
        return ()
    path = folder / firmware.weights_file
    if not path.is_file():
        raise UserError("not-built", f"the package has no `{firmware.weights_file}`", where=str(path), hint="compile again")
    data = path.read_bytes()
    if not is_sound(data):
        what = f"`{firmware.weights_file}` does not match its checksum: it is damaged"
        raise UserError("weights-damaged", what, where=str(path), hint="compile again")
    return (Part(firmware.weights_address, data),)
