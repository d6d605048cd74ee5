"""Files to hand out, made of a package: `make = ["arduino", "wheel"]` in a project file.

The folder of a package is a library for several build systems at once. Where one of them takes a file, this is the folder as an
archive; a wheel and a CMSIS-Pack have a form of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.package.archive import archive_to
from intaglio.package.cmsis_pack import write_cmsis_pack
from intaglio.package.folder import writing
from intaglio.package.manifest import Manifest
from intaglio.package.wheel import write_wheel


@dataclass(frozen=True, slots=True)
class Kind:
    """An archive of the folder. `has`: what makes it a library of this build system; `hint`: targets that have it."""

    format: str
    has: str = ""
    hint: str = ""


CORES = "compile it for a microcontroller, with `target` or `board`"
ARCHIVES = {
    "tar.gz": Kind("tar.gz"),
    "zip": Kind("zip"),
    "arduino": Kind("zip", "library.properties", CORES),
    "platformio": Kind("tar.gz", "library.json", CORES),
    "zephyr": Kind("zip", "zephyr/module.yml", CORES),
    "esp-idf": Kind("zip", "idf_component.yml", 'use `target = "rv32imc"`, or `"generic"` for Xtensa'),
    "micropython": Kind("zip", "micropython_module", CORES),
    "rust": Kind("zip", "Cargo.toml", "compile it for a host or a microcontroller"),
}
KINDS = (*ARCHIVES, "wheel", "cmsis-pack")


@dataclass(frozen=True, slots=True)
class Wish:
    """What to make of a package, and where. `version` and `vendor` are those of the files."""

    kinds: tuple[str, ...] = ()
    output: Path = Path("dist")
    version: str = "0.1.0"
    vendor: str = "Intaglio"


NO_WISH = Wish()


def check_kinds(kinds: Sequence[object], where: str) -> tuple[str, ...]:
    for kind in kinds:
        if kind not in KINDS:
            raise UserError("bad-project", f"`{where}` makes {quoted(str(kind))}", hint=f"one of {', '.join(KINDS)}")
    return tuple(dict.fromkeys(str(kind) for kind in kinds))


def make_products(folder: Path, manifest: Manifest, wish: Wish) -> tuple[Path, ...]:
    with writing(wish.output):
        wish.output.mkdir(parents=True, exist_ok=True)
    return tuple(_made(kind, folder, manifest, wish) for kind in wish.kinds)


def _made(kind: str, folder: Path, manifest: Manifest, wish: Wish) -> Path:
    if kind == "wheel":
        return write_wheel(folder, manifest, wish.output, wish.version)
    if kind == "cmsis-pack":
        return write_cmsis_pack(folder, manifest, wish.output, wish.vendor, wish.version)
    form = ARCHIVES[kind]
    if form.has and not (folder / form.has).exists():
        what = f"{quoted(folder.name)} is not a library for {kind}: it has no `{form.has}`"
        raise UserError("no-such-kind", what, hint=form.hint)
    told = "" if kind in ("zip", "tar.gz") else f"-{kind}"
    return archive_to(folder, form.format, wish.output / f"{folder.name}{told}-{wish.version}.{form.format}", manifest.name)


__all__ = ["KINDS", "NO_WISH", "Wish", "check_kinds", "make_products"]
