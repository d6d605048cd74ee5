"""Files to hand out, made of a package: `make = ["arduino", "wheel"]` in a project file.

The folder of a package is a library for several build systems at once. Where one of them takes a file, this is the folder as an
archive; a wheel and a CMSIS-Pack have a form of their own."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.package.archive import archive_to
from intaglio.package.cmsis_pack import write_cmsis_pack
from intaglio.package.folder import writing
from intaglio.package.manifest import Manifest
from intaglio.package.ownership import MANIFEST, SIGNATURE, file_digest
from intaglio.package.wheel import write_wheel
from intaglio.targets.target import Target


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
VERSIONS = {
    "library.properties": re.compile(r"^(version=).*()$", re.M),
    "library.json": re.compile(r'^(  "version": ")[^"]*(")', re.M),
    "idf_component.yml": re.compile(r'^(version: ")[^"]*(")', re.M),
    "Cargo.toml": re.compile(r'^(version = ")[^"]*(")', re.M),
}


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


def check_target(kinds: Sequence[str], target: Target) -> None:
    """Before anything is compiled: which kinds a package for this target cannot be."""
    core, riscv, plain = target.bare, target.arch.startswith("riscv32"), target.name == "generic"
    can = dict.fromkeys(("arduino", "platformio", "zephyr", "micropython"), core)
    can |= {"esp-idf": riscv or plain, "rust": not (target.wasm or target.device), "cmsis-pack": core and not riscv}
    can |= {"wheel": not (core or target.wasm)}
    hints = {"wheel": "compile it for a host", "cmsis-pack": "compile it for a Cortex-M core or board"}
    for kind in kinds:
        if not can.get(kind, True):
            hint = hints[kind] if kind in hints else ARCHIVES[kind].hint
            raise UserError("no-such-kind", f"a package for `{target.name}` cannot be a {kind} one", hint=hint)


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
    path = wish.output / f"{folder.name}{told}-{wish.version}.{form.format}"
    with tempfile.TemporaryDirectory() as place:
        return archive_to(folder, form.format, path, manifest.name, _versioned(folder, wish.version, Path(place)))


def _versioned(folder: Path, version: str, place: Path) -> dict[str, Path]:
    """Files that tell build systems the version, with this one, and a manifest with their digests. A signature is over the files as
    they are: signed packages stay so."""
    manifest = (folder / MANIFEST).read_text(encoding="utf-8")
    changed: dict[str, Path] = {}
    for name, pattern in VERSIONS.items():
        if not (folder / name).is_file() or (folder / SIGNATURE).is_file():
            continue
        text = (folder / name).read_text(encoding="utf-8")
        changed[name] = place / name
        changed[name].write_text(pattern.sub(lambda found: f"{found[1]}{version}{found[2]}", text, count=1), encoding="utf-8")
        manifest = manifest.replace(file_digest(folder / name), file_digest(changed[name]))
    if changed:
        changed[MANIFEST] = place / MANIFEST
        changed[MANIFEST].write_text(manifest, encoding="utf-8")
    return changed


__all__ = ["KINDS", "NO_WISH", "Wish", "check_kinds", "check_target", "make_products"]
