"""Firmware as an emulator needs it: bytes at addresses, and names for addresses."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import UserError

ALLOCATED = 2  # SHF_ALLOC


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes that are in memory before the first instruction runs."""

    address: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Function:
    address: int
    size_bytes: int
    name: str


@dataclass(frozen=True, slots=True)
class Image:
    """`symbols` are addresses without the Thumb bit; `ends` are where sections stop, those of the stack left out."""

    path: Path
    riscv: bool
    entry: int
    parts: tuple[Part, ...]
    functions: tuple[Function, ...]
    symbols: dict[str, int]
    ends: tuple[int, ...]

    def function(self, address: int) -> Function | None:
        at = bisect.bisect_right(self.functions, address, key=lambda f: f.address) - 1
        if at >= 0 and address < self.functions[at].address + max(self.functions[at].size_bytes, 2):
            return self.functions[at]
        return None

    def where(self, address: int) -> str:
        """`conv_3+0x1a`, or the bare address where no function is known."""
        found = self.function(address)
        if found is None:
            return f"{address:#010x}"
        return found.name + (f"+{address - found.address:#x}" if address != found.address else "")

    def address(self, symbol: str) -> int:
        if symbol not in self.symbols:
            hint = "compile the model again; an edited template must keep the functions and buffers of the application"
            raise UserError("not-built", f"the firmware has no `{symbol}`", where=str(self.path), hint=hint)
        return self.symbols[symbol]

    @property
    def code_bytes(self) -> int:
        return sum(f.size_bytes for f in self.functions)


def read_image(path: Path, more: tuple[Part, ...] = ()) -> Image:
    """`more`: bytes that are flashed on their own, such as weights at a given address."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    if not path.is_file():
        hint = "compile the model again, without `--stop-after`"
        raise UserError("not-built", f"the package has no firmware `{path.name}`", where=str(path), hint=hint)
    try:
        with open(path, "rb") as file:
            elf = ELFFile(file)
            table = elf.get_section_by_name(".symtab")
            if elf.elfclass != 32 or not isinstance(table, SymbolTableSection) or elf["e_machine"] not in ("EM_ARM", "EM_RISCV"):
                raise ELFError("no 32-bit firmware with symbols")
            riscv = elf["e_machine"] == "EM_RISCV"
            parts = tuple(
                Part(s["p_paddr"], s.data()) for s in elf.iter_segments() if s["p_type"] == "PT_LOAD" and s["p_filesz"]
            )
            clear = -1 if riscv else -2  # bit 0 of the address of a function says Thumb
            symbols, functions = {}, []
            for s in table.iter_symbols():
                kind = s["st_info"]["type"]
                value = s["st_value"] & clear if kind == "STT_FUNC" else s["st_value"]
                if s.name and not s.name.startswith("$") and s["st_shndx"] != "SHN_UNDEF":
                    symbols[s.name] = value
                    if kind == "STT_FUNC":
                        functions.append(Function(value, s["st_size"], s.name))
            ends = tuple(
                s["sh_addr"] + s["sh_size"]
                for s in elf.iter_sections()
                if s["sh_flags"] & ALLOCATED and s["sh_size"] and "stack" not in s.name
            )
            ordered = tuple(sorted(functions, key=lambda f: (f.address, f.name)))
            return Image(path, riscv, elf["e_entry"] & clear, (*parts, *more), ordered, symbols, ends)
    except (ELFError, OSError, ValueError, KeyError, TypeError) as error:
        raise UserError("not-built", f"`{path.name}` is not firmware: {error}", where=str(path), hint="compile again") from None
