"""`intaglio firmware` and `intaglio emulate`: firmware that answers on a serial line, as a file and on an emulated core."""

from __future__ import annotations

from pathlib import Path

from intaglio.cli.terminal import bytes_text, note, print_json
from intaglio.errors import UserError
from intaglio.package.folder import writing
from intaglio.package.manifest import target_of
from intaglio.run.emulator.measure import firmware_toolchain
from intaglio.run.emulator.serving import ServingFirmware
from intaglio.run.firmware import build_serial, sizes_of
from intaglio.run.package import Package


def write_firmware(folder: Path, output: Path, cc: str | None, json: bool) -> None:
    package = Package.load(folder)
    manifest, target = package.manifest, target_of(package.manifest)
    if not package.bare:
        what = f"`{package.name}` is for `{manifest.target}`, not firmware"
        raise UserError("bad-option", what, hint="compile it with `--board`; `intaglio boards` lists them")
    with writing(output):
        if output.is_dir():
            raise UserError("output-exists", f"`{output}` is a folder", hint="give `-o` the name of an ELF file")
        output.parent.mkdir(parents=True, exist_ok=True)
    build_serial(folder, output, manifest, target, firmware_toolchain(manifest, target, cc), fits=True)
    sizes = sizes_of(output)
    flash = sizes.code + sizes.weights + sizes.selftest + sizes.data
    if json:
        print_json({"elf": str(output), "build": manifest.build, "flash_bytes": flash, "static_bytes": sizes.data + sizes.bss})
        return
    note(f"wrote {output}: flash {bytes_text(flash)}, variables {bytes_text(sizes.data + sizes.bss)}")


def emulate_board(folder: Path, cc: str | None) -> None:
    package = Package.load(folder)
    firmware = ServingFirmware(package, cc)
    try:
        print(firmware.path, flush=True)
        note(f"`{package.name}` answers there: `intaglio validate {folder} --serial {firmware.path}`; Ctrl-C ends it")
        firmware.serve()
    finally:
        firmware.close()
