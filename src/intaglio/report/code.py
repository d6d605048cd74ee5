"""The C and the instructions of each layer's function, as they are in the package."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from intaglio.errors import install_hint
from intaglio.package.manifest import Manifest
from intaglio.run.loaded import LoadedPackage

if TYPE_CHECKING:
    from capstone import Cs

MOST_LINES = 1500  # of one function, of C or of assembly
_DEFINITION = re.compile(r"^(?!return\b)(?:\w+ )+\*?(\w+)\(", re.M)
_CALL = re.compile(r"\b(\w+)\(")


@dataclass(frozen=True, slots=True)
class Code:
    """`assembly` is empty where there is no binary, or nothing that reads it."""

    c: str
    file: str
    assembly: str = ""
    bytes: int = 0


def code_of(package: LoadedPackage) -> tuple[dict[str, Code], str]:
    """By function; and why there is no assembly, where there is none."""
    wanted = {layer.function for layer in package.manifest.layers if layer.function}
    every = dict(_functions(package.folder))
    texts = {name: every[name] for name in sorted(wanted & every.keys())}
    binary = _binary(package.folder, package.manifest)
    if binary is None:
        return {name: _whole(name, every, {}) for name in texts}, "the package has no binary that can be read here"
    try:
        found, reason = dict(_disassembled(binary, every.keys())), ""
    except ImportError:
        found, reason = {}, f"{install_hint('emulator')} installs what reads machine code"
    except ValueError as error:
        found, reason = {}, str(error)
    return {name: _whole(name, every, found) for name in texts}, reason


def _whole(name: str, every: dict[str, Code], found: dict[str, tuple[str, int]]) -> Code:
    """A function, then those that it calls, each once."""
    order = [name]
    for one in order:  # which grows
        order += [called for called in dict.fromkeys(_CALL.findall(every[one].c)) if called in every and called not in order]
    c = "\n\n".join(every[one].c for one in order)
    parts = [f"{one}:\n{found[one][0]}" for one in order if one in found]
    return Code(_cut(c.splitlines()), every[name].file, _cut("\n\n".join(parts).splitlines()), found.get(name, ("", 0))[1])


def _functions(folder: Path) -> Iterable[tuple[str, Code]]:
    for path in sorted([*(folder / "src").rglob("*.c"), *(folder / "src").rglob("*.h")]):
        if "weights" in path.name or "vectors" in path.name:
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        for match in _DEFINITION.finditer(text):
            end = text.find("\n}\n", match.start())
            if end >= 0 and ";" not in text[match.end() : text.find("\n{", match.end())]:
                yield match[1], Code(text[_comment_before(text, match.start()) : end + 2], path.relative_to(folder).as_posix())


def _comment_before(text: str, start: int) -> int:
    """Where the comment over a function begins; the function itself, where it has none."""
    before = text[:start].rstrip()
    return before.rfind("/*") if before.endswith("*/") else start


def _cut(lines: list[str]) -> str:
    if len(lines) <= MOST_LINES:
        return "\n".join(lines)
    return "\n".join([*lines[:MOST_LINES], f"... and {len(lines) - MOST_LINES} lines more"])


def _binary(folder: Path, manifest: Manifest) -> Path | None:
    places = [manifest.firmware.elf] if manifest.firmware is not None else []
    places.append(f"lib/lib{manifest.name}.so")
    return next((folder / place for place in places if (folder / place).is_file()), None)


def _disassembled(path: Path, wanted: Collection[str]) -> Iterable[tuple[str, tuple[str, int]]]:
    """Text and size of the functions that are in the table of symbols."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    with open(path, "rb") as file:
        try:
            elf = ELFFile(file)
        except ELFError:
            raise ValueError(f"`{path.name}` is not an ELF file") from None
        engine = _engine(str(elf["e_machine"]))
        symbols = [s for t in elf.iter_sections() if isinstance(t, SymbolTableSection) for s in t.iter_symbols()]
        code = [(s["sh_addr"], s.data()) for s in elf.iter_sections() if s["sh_flags"] & 4 and s["sh_type"] == "SHT_PROGBITS"]
        for symbol in symbols:
            if symbol.name not in wanted or symbol["st_info"]["type"] != "STT_FUNC" or not symbol["st_size"]:
                continue
            address, size = symbol["st_value"] & ~1, symbol["st_size"]
            base, data = next(((a, d) for a, d in code if a <= address < a + len(d)), (0, b""))
            rows = engine.disasm_lite(data[address - base : address - base + size], address)
            lines = [f"{at:8x}  {name:<10} {rest}".rstrip() for at, _, name, rest in rows]
            yield symbol.name, ("\n".join(lines), size)


def _engine(machine: str) -> Cs:
    import capstone as cs

    kinds = {
        "EM_X86_64": (cs.CS_ARCH_X86, cs.CS_MODE_64),
        "EM_AARCH64": (getattr(cs, "CS_ARCH_AARCH64", getattr(cs, "CS_ARCH_ARM64", 0)), cs.CS_MODE_LITTLE_ENDIAN),  # by version
        "EM_ARM": (cs.CS_ARCH_ARM, cs.CS_MODE_THUMB | cs.CS_MODE_MCLASS),
        "EM_RISCV": (cs.CS_ARCH_RISCV, cs.CS_MODE_RISCV32 | cs.CS_MODE_RISCVC),
    }
    if machine not in kinds:
        raise ValueError(f"nothing here reads the instructions of {machine}")
    engine = cs.Cs(*kinds[machine])
    engine.skipdata = True  # pools of constants between instructions
    return engine


__all__ = ["Code", "code_of"]
