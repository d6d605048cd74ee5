"""A package as an object that runs. Comparing it and timing it take such an object: `run/package.py` puts them together."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np

from intaglio.errors import OurFault, UserError, quoted
from intaglio.ir.graph import Array
from intaglio.ir.strings import decoded
from intaglio.package.at_sizes import at_sizes, ends_at_sizes, sizes_of
from intaglio.package.entries import entry_folder
from intaglio.package.manifest import Manifest, read_manifest, target_of
from intaglio.run.build import Progress
from intaglio.run.host import Library, Runner, ordered_inputs
from intaglio.run.map_entries import NamedInputs
from intaglio.run.opencl.library import DEFAULT, DeviceOptions, OpenclLibrary
from intaglio.run.serial.device import SerialDevice
from intaglio.run.serial.line import SerialOptions
from intaglio.run.tables import columns_of, is_table
from intaglio.run.variants import chosen_variant
from intaglio.targets.target import lacking


class LoadedPackage:
    """Holds its temporary folder, if it has one.

    Firmware runs on an emulated core: `emulator` is `unicorn` (the default, except for the Cortex-M55) or `qemu`. Or it runs on a
    board: `serial` is the port that it answers on, such as `/dev/ttyACM0`.
    Packages for OpenCL run on the `device`: `gpu`, `cpu`, numbers such as `0.0`, or a part of its name.
    Packages with variants run the best that this machine can run, or the `variant` that is named; its layers are in `manifest`."""

    def __init__(
        self,
        folder: str | Path,
        temporary: tempfile.TemporaryDirectory[str] | None = None,
        emulator: str | None = None,
        device: DeviceOptions = DEFAULT,
        variant: str | None = None,
        serial: SerialOptions | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.serial = serial
        self.emulator = emulator
        self.device = device
        self.manifest: Manifest = read_manifest(self.folder)
        self.variant = chosen_variant(self.manifest, variant)
        self.variant_asked = variant is not None
        if self.variant is not None:
            self.manifest = replace(self.manifest, layers=self.variant.layers)
        self.bounded = self.manifest  # as it was read; `manifest` may be for some of the sizes that it has
        self.sizes: Mapping[str, int] = {}
        self._temporary = temporary
        self._library: Runner | None = None

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        emulator: str | None = None,
        device: str | DeviceOptions | None = None,
        variant: str | None = None,
        serial: str | SerialOptions | None = None,
        entry: str | None = None,
    ) -> Self:
        """`entry`: of a package with several entry points."""
        folder = Path(folder) if entry is None else entry_folder(Path(folder), entry)
        on = device if isinstance(device, DeviceOptions) else DeviceOptions(device)
        line = SerialOptions(serial) if isinstance(serial, str) else serial
        package = cls(Path(folder), emulator=emulator, device=on, variant=variant, serial=line)
        package.check_serial()
        if package.manifest.opencl is None and on != DEFAULT:
            what = f"`{package.name}` was compiled for `{package.manifest.target}`, which has no OpenCL device and no program cache"
            raise UserError("bad-option", what, hint="compile it with `--target opencl`, or omit these options")
        return package

    def at(self, sizes: Mapping[str, int]) -> Self:
        """The package for these sizes of the caller, as if it was compiled for them; what is not named is as large as it gets."""
        bounds = {size.name: size for size in self.bounded.given}
        for name, n in sizes.items():
            if name not in bounds or n not in bounds[name].span.numbers:
                known = ", ".join(s.told() for s in bounds.values()) or "none"
                what = f"`{self.name}` has no size {quoted(name)}" if name not in bounds else ""
                what = what or f"`{name}={n}`: {n} is not within {bounds[name].span}"
                raise UserError("wrong-input", what, hint=f"sizes of `{self.name}`: {known}")
        chosen = {name: sizes.get(name, size.high) for name, size in bounds.items()}
        if not chosen:
            return self
        twin = copy(self)
        left = tuple(size for size in self.bounded.sizes if size.found)
        twin.manifest, twin.sizes = replace(at_sizes(self.bounded, chosen), sizes=left), chosen
        return twin

    def check_serial(self) -> None:
        """A board is one place to run, and it runs firmware."""
        if self.serial is None:
            return
        if not self.bare:
            what = f"`--serial` needs firmware; `{self.name}` was compiled for `{self.manifest.target}`"
            raise UserError("bad-option", what, hint="compile it with `--board`, or omit `--serial`")
        if self.emulator is not None:
            hint = "omit one of them; `intaglio emulate` is an emulated core on a serial line"
            raise UserError("bad-option", "`--serial` runs on a board, `--emulator` does not", hint=hint)

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def bare(self) -> bool:
        """Firmware, not a library of this machine."""
        return target_of(self.manifest).bare

    @property
    def library(self) -> Runner:
        if self._library is None:
            if self.serial is not None:
                self._library = self.serial_device
            elif self.bare:
                from intaglio.run.emulator.device import EmulatedDevice, EmulatorOptions

                self._library = EmulatedDevice(self.folder, self.bounded, EmulatorOptions(self.emulator))
            elif self.manifest.opencl is not None:
                self._library = self.opencl_library
            elif target_of(self.manifest).wasm:
                from intaglio.run.wasm import WasmLibrary

                self._library = WasmLibrary(self.folder / "lib" / f"{self.name}.wasm", self.bounded)
            else:
                self._library = self.library_at(self.folder / "lib" / f"lib{self.name}.so")
        return self._library

    def library_at(self, path: Path) -> Library:
        """The library of the package, or a build of it elsewhere, with the variant of this object."""
        if self.variant is None and (missing := lacking(target_of(self.manifest))):
            what = f"this machine cannot run `{self.name}`, which is for `{self.manifest.target}`: it lacks {', '.join(missing)}"
            raise UserError("cannot-run", what, hint="run it on such a machine, or compile it for this one")
        variant = "" if self.variant is None else self.variant.target
        return Library(path, self.bounded, self.folder, variant, alone=self.variant_asked)

    @property
    def serial_device(self) -> SerialDevice:
        """The board behind the line, which can say more."""
        if not isinstance(self._library, SerialDevice):
            if self.serial is None:  # an AttributeError, as for anything that an object does not have: `inspect` goes on
                raise AttributeError(f"`{self.name}` was loaded without a serial line")
            self._library = SerialDevice(self.manifest, self.serial)
        return self._library

    @property
    def opencl_library(self) -> OpenclLibrary:
        """The library of a package for OpenCL, which can say more."""
        if not isinstance(self._library, OpenclLibrary):
            if self.manifest.opencl is None:
                raise AttributeError(f"`{self.name}` was compiled for `{self.manifest.target}`, which has no OpenCL device")
            self._library = OpenclLibrary(self.folder / "lib" / f"lib{self.name}.so", self.manifest, options=self.device)
        return self._library

    def run(self, inputs: NamedInputs | Array) -> dict[str, Array]:
        """One inference: arrays by input name (or `in0`, ...) in, arrays by output name out. The array of a single input needs no
        name. A map may be given as it is. States carry on."""
        return self._decoded(self.run_stored(inputs))

    def run_stored(self, inputs: NamedInputs | Array) -> dict[str, Array]:
        """As `run`, with strings as the bytes that they are."""
        return self._named(self.library.run(ordered_inputs(self.manifest, self._by_name(inputs))))

    def _decoded(self, outputs: dict[str, Array]) -> dict[str, Array]:
        text = {info.name for info in self.manifest.outputs if info.text}
        return {name: decoded(array) if name in text else array for name, array in outputs.items()}

    def run_steps(self, inputs: Mapping[str, Array] | Array, progress: Progress | None = None) -> dict[str, Array]:
        """Every array with a leading axis of steps, run in order from a fresh state; outputs stacked likewise."""
        arrays = ordered_inputs(self.manifest, self._by_name(inputs), steps=True)
        count = len(arrays[0]) if arrays else 1
        self.reset()
        manifest = ends_at_sizes(self.manifest, sizes_of(self.manifest, [a.shape[1:] for a in arrays]))
        if manifest.found:
            return self._decoded(self._named(self._run_each(arrays, count, progress)))
        stacked: list[Array] = [np.empty((count, *info.shape), info.type.dtype.numpy) for info in manifest.outputs]
        for step in range(count):
            self.library.run_into([a[step, ...] for a in arrays], [s[step, ...] for s in stacked])
            if progress is not None:
                progress("running", step + 1, count)
        return self._decoded(self._named(stacked))

    def _run_each(self, arrays: list[Array], count: int, progress: Progress | None) -> list[Array]:
        """Step by step, where the number of results depends on data: it must be the same in every step."""
        steps = []
        for step in range(count):
            steps.append(self.library.run([a[step, ...] for a in arrays]))
            if progress is not None:
                progress("running", step + 1, count)
        stacked = []
        for info, parts in zip(self.manifest.outputs, zip(*steps, strict=True), strict=True):
            if len({part.shape for part in parts}) > 1:
                what = f"the output `{info.name}` has different sizes in different steps, which cannot be stacked"
                raise UserError("wrong-input", what, hint="run the steps one by one")
            stacked.append(np.stack(parts))
        return stacked

    def reset(self) -> None:
        """Start a new sequence: states are zero again."""
        self.library.reset()

    def _by_name(self, inputs: NamedInputs | Array) -> NamedInputs:
        if isinstance(inputs, Mapping):
            return inputs
        if isinstance(inputs, np.ndarray) and len(self.manifest.inputs) == 1:
            return {self.manifest.inputs[0].name: inputs}
        if is_table(inputs):
            return columns_of(inputs, self.manifest)
        names = ", ".join(f'"{info.name}": ...' for info in self.manifest.inputs)
        what = f"`{self.name}` takes arrays by name, not a `{type(inputs).__name__}`"
        raise UserError("wrong-input", what, hint=f"use `{{{names}}}`")

    def _named(self, outputs: list[Array]) -> dict[str, Array]:
        names = [info.name for info in self.manifest.outputs]
        if len(set(names)) != len(names):
            raise OurFault("duplicate-output", f"`{self.name}` has two outputs of one name")
        return dict(zip(names, outputs, strict=True))

    def __repr__(self) -> str:
        return f"<Package {self.name} for {self.manifest.target} in {self.folder}>"
