"""A second build of a package, with the hook: it times every layer and shows what each one wrote."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from intaglio.errors import UserError
from intaglio.ir.graph import Array
from intaglio.package.manifest import target_of
from intaglio.run.build import BuildOptions, build_project, check_whole, library_file
from intaglio.run.host import Library, Sink
from intaglio.run.loaded import LoadedPackage
from intaglio.run.opencl.library import OpenclLibrary
from intaglio.run.toolchains import find_toolchain
from intaglio.run.variants import variant_targets
from intaglio.run.wasm import WasmLibrary


def watch_layers(package: LoadedPackage, inputs: list[Array], sink: Sink, cc: str | None = None) -> None:
    """One run from a fresh state; `sink` gets what each layer wrote."""
    if package.serial is not None:
        hint = "omit `--serial`: the emulated core has the same values"
        raise UserError("bad-option", "a board does not tell what its layers write: `--layers` needs an emulated core", hint=hint)
    if package.bare:
        from intaglio.run.emulator.measure import watch

        watch(package, inputs, sink, cc)
        return
    probe = Probe(package, cc)
    try:
        probe.library.start_probe(sink)
        probe.library.run(inputs)
    finally:
        probe.close()


class Probe:
    """Built in a temporary folder, which goes with this object; the package itself is not touched."""

    def __init__(self, package: LoadedPackage, cc: str | None = None) -> None:
        check_whole(package.folder, "include", "src", "src/app")
        self._folder = tempfile.TemporaryDirectory(prefix="intaglio-probe-")
        root = Path(self._folder.name)
        name = package.name
        for part in ("include", "src"):
            shutil.copytree(package.folder / part, root / part, symlinks=True)
        if package.manifest.shared:
            shared = package.folder / package.manifest.shared
            check_whole(shared.parent, shared.name)
            for path in sorted(shared.iterdir()):
                shutil.copyfile(path, root / "src" / path.name)
        target = target_of(package.manifest)
        for file in () if target.wasm else ("probe.c", "probe.h"):  # a module calls the hook of who runs it
            shutil.copyfile(package.folder / "src" / "app" / file, root / "src" / file)
        options = BuildOptions(cflags=(f"-D{name.upper()}_HOOK",), library_only=True, variants=variant_targets(package.manifest))
        build_project(root, name, target, find_toolchain(cc, target.arch if target.wasm else ""), options)
        path = root / "lib" / library_file(name, target)
        self.library: Library | OpenclLibrary | WasmLibrary
        if target.wasm:
            self.library = WasmLibrary(path, package.bounded)
        elif package.manifest.opencl is None:
            self.library = package.library_at(path)
        else:
            self.library = OpenclLibrary(path, package.manifest, package.folder, package.device)

    def close(self) -> None:
        self._folder.cleanup()
