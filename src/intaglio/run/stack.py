"""How deep the stack can get: frames from `-fstack-usage`, calls read from the linked program.

    kws_app_run   24
      kws_run      8
        kws_run_in 56
          kws_conv_3  120          -> 208 bytes

Functions that came without a frame size (the compiler's own helpers) have theirs counted from the instructions that move
the stack pointer. A call through a pointer, recursion, or a frame of varying size makes the answer None: unbounded.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

# What linkers put between code that is too far apart for a branch: `__Thumbv6MABSLongThunk_NAME` of lld, `__NAME_veneer` of GNU ld.
_LEAP = re.compile(r"__Thumb\w*?Thunk_(\w+)|__(\w+)_veneer")


@dataclass(slots=True)
class Function:
    """`frame` is None where it has no bound."""

    name: str
    address: int
    size: int
    frame: int | None = 0
    calls: set[int] = field(default_factory=set)
    indirect: bool = False


def read_frames(folder: Path) -> dict[str, int | None]:
    """Bytes by function from the compiler's .su files; the largest where several files have a function of that name."""
    frames: dict[str, int | None] = {}
    for path in sorted(folder.rglob("*.su")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            place, size, kind = line.rsplit("\t", 2)
            name = place.rsplit(":", 1)[1]
            known = frames.get(name, 0)
            bounded = kind == "static" or "bounded" in kind
            frames[name] = max(known, int(size)) if bounded and known is not None else None
    return frames


def stack_bytes(elf: Path, frames: dict[str, int | None], root: str) -> int | None:
    """The deepest chain of calls from `root`, in bytes, or None: it has no bound."""
    functions = _functions(elf, frames)
    starts = [f for f in functions.values() if f.name == root]
    return _depth(starts[0], functions, {}, set()) if starts else None


def _depth(function: Function, functions: dict[int, Function], known: dict[int, int | None], active: set[int]) -> int | None:
    if function.address in known:
        return known[function.address]
    if function.address in active or function.frame is None or function.indirect:
        return None
    active.add(function.address)
    below: list[int | None] = [_depth(functions[address], functions, known, active) for address in sorted(function.calls)]
    active.discard(function.address)
    bounded = [depth for depth in below if depth is not None]
    result = None if len(bounded) < len(below) else function.frame + max(bounded, default=0)
    known[function.address] = result
    return result


def _functions(path: Path, frames: dict[str, int | None]) -> dict[int, Function]:
    from elftools.elf.elffile import ELFFile
    from elftools.elf.sections import SymbolTableSection

    with open(path, "rb") as file:
        elf = ELFFile(file)
        thumb = elf["e_machine"] == "EM_ARM"
        symbols = [s for table in elf.iter_sections() if isinstance(table, SymbolTableSection) for s in table.iter_symbols()]
        found: dict[int, Function] = {}
        marks = sorted((s["st_value"], s.name[:2]) for s in symbols if s.name[:2] in ("$t", "$d", "$x", "$a"))
        for symbol in symbols:
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_size"]:
                address = symbol["st_value"] & ~1
                function = found.setdefault(address, Function(symbol.name, address, symbol["st_size"]))
                if symbol.name in frames:
                    function.name = symbol.name
        starts = sorted(found)
        code = {s["sh_addr"]: s.data() for s in elf.iter_sections() if s["sh_flags"] & 4 and s["sh_type"] == "SHT_PROGBITS"}
    named = {function.name: address for address, function in found.items()}
    for function in found.values():
        _read(function, code, marks, starts, found, thumb)
        if (leap := _LEAP.fullmatch(function.name)) and (to := named.get(leap[1] or leap[2])) is not None:
            function.calls, function.indirect = {to}, False
        if frames.get(function.name, 0) != 0:  # a compiler knows nothing of a function that is only assembly: 0
            function.frame = frames[function.name]
    return found


def _read(
    function: Function,
    code: dict[int, bytes],
    marks: list[tuple[int, str]],
    starts: list[int],
    functions: dict[int, Function],
    thumb: bool,
) -> None:
    section = next((a for a in code if a <= function.address < a + len(code[a])), None)
    if section is None:
        return
    data = code[section][function.address - section : function.address - section + function.size]
    steps = _thumb(data, function.address, marks) if thumb else _riscv(data, function.address)
    for step in steps:
        if function.frame is not None:
            function.frame = None if step.takes is None else function.frame + step.takes
        function.indirect |= step.indirect
        if step.to is None or (step.to == function.address and not step.comes_back):
            continue
        if function.address < step.to < function.address + function.size:  # Armv6-M jumps far by BL, within a function too
            continue
        index = bisect.bisect_right(starts, step.to) - 1
        if index >= 0 and step.to < starts[index] + functions[starts[index]].size:
            function.calls.add(starts[index])


class Step(NamedTuple):
    """What one instruction does: bytes taken of the stack, where it goes, coming back or not, through a pointer."""

    takes: int | None = 0
    to: int | None = None
    comes_back: bool = False
    indirect: bool = False


def _thumb(data: bytes, address: int, marks: list[tuple[int, str]]) -> Iterator[Step]:
    """Armv6-M to Armv8.1-M, as far as it moves the stack pointer or leaves a function."""
    offset = 0
    while offset + 2 <= len(data):
        at = address + offset
        mark = bisect.bisect_right(marks, (at, "~")) - 1
        if mark >= 0 and marks[mark][1] == "$d":  # a pool of constants between instructions
            offset += 2
            continue
        one = int.from_bytes(data[offset : offset + 2], "little")
        if one >> 11 in (0b11101, 0b11110, 0b11111) and offset + 4 <= len(data):
            two = int.from_bytes(data[offset + 2 : offset + 4], "little")
            yield _thumb_wide(one, two, at)
            offset += 4
        else:
            yield _thumb_narrow(one, at)
            offset += 2


def _thumb_narrow(one: int, at: int) -> Step:
    if one & 0xFE00 == 0xB400:  # push
        return Step(4 * (one & 0x1FF).bit_count())
    if one & 0xFF80 == 0xB080:  # sub sp, #
        return Step(4 * (one & 0x7F))
    if one & 0xFF87 == 0x4485:  # add sp, register
        return Step(None)
    if one & 0xFF87 == 0x4780 or (one & 0xFF87 == 0x4700 and one >> 3 & 15 != 14):  # blx, bx
        return Step(indirect=True)
    if one & 0xF800 == 0xE000:  # b
        return Step(to=at + 4 + _signed((one & 0x7FF) << 1, 12))
    return Step()


def _thumb_wide(one: int, two: int, at: int) -> Step:
    if one == 0xE92D:  # push
        return Step(4 * two.bit_count())
    if one == 0xF84D and two & 0x0F00 == 0x0D00:  # str r, [sp, #-n]!
        return Step(two & 0xFF)
    if one == 0xE96D:  # strd r, s, [sp, #-n]!
        return Step(4 * (two & 0xFF))
    if one & 0xFFBF == 0xED2D:  # vpush
        return Step(4 * (two & 0xFF))
    if one & 0xFBEF == 0xF1AD and two & 0x8F00 == 0x0D00:  # sub.w sp, sp, #
        return Step(_modified((one >> 10 & 1) << 11 | (two >> 12 & 7) << 8 | two & 0xFF))
    if one & 0xFBFF == 0xF2AD and two & 0x8F00 == 0x0D00:  # subw sp, sp, #
        return Step((one >> 10 & 1) << 11 | (two >> 12 & 7) << 8 | two & 0xFF)
    if one & 0xF800 == 0xF000 and two & 0x9000 == 0x9000:  # bl, b.w
        sign, j1, j2 = one >> 10 & 1, two >> 13 & 1, two >> 11 & 1
        high = sign << 24 | (1 - (j1 ^ sign)) << 23 | (1 - (j2 ^ sign)) << 22
        far = _signed(high | (one & 0x3FF) << 12 | (two & 0x7FF) << 1, 25)
        return Step(to=at + 4 + far, comes_back=bool(two & 0x4000))
    return Step()


def _modified(encoded: int) -> int:
    """A constant of Thumb-2: a byte repeated, or eight bits turned to their place."""
    low = encoded & 0xFF
    if encoded >> 10 == 0:
        return (low, low * 0x00010001, low * 0x01000100, low * 0x01010101)[encoded >> 8 & 3]
    turn = encoded >> 7
    value = 0x80 | encoded & 0x7F
    return (value >> turn | value << (32 - turn)) & 0xFFFFFFFF


def _riscv(data: bytes, address: int) -> Iterator[Step]:
    """RV32IC, as far as it moves the stack pointer or leaves a function."""
    offset, upper = 0, {}
    while offset + 2 <= len(data):
        at = address + offset
        half = int.from_bytes(data[offset : offset + 2], "little")
        if half & 3 != 3:
            offset += 2
            yield _riscv_narrow(half, at)
            continue
        word = int.from_bytes(data[offset : offset + 4], "little")
        offset += 4
        register, source = word >> 7 & 31, word >> 15 & 31
        if word & 0xFFFFF == 0x10113:  # addi sp, sp, #
            yield Step(max(0, -_signed(word >> 20, 12)))
        elif word & 0x7F == 0x6F:  # jal
            far = (word >> 31) << 20 | (word >> 12 & 0xFF) << 12 | (word >> 20 & 1) << 11 | (word >> 21 & 0x3FF) << 1
            yield Step(to=at + _signed(far, 21), comes_back=register != 0)
        elif word & 0x7F == 0x17:  # auipc
            upper[register] = at + (word & 0xFFFFF000)
        elif word & 0x7F == 0x67:  # jalr
            if source in upper:
                yield Step(to=(upper[source] + _signed(word >> 20, 12)) & 0xFFFFFFFF, comes_back=register != 0)
            elif register == 1:
                yield Step(indirect=True)


def _riscv_narrow(half: int, at: int) -> Step:
    if half & 0xEF83 == 0x6101:  # c.addi16sp
        bits = (half >> 12 & 1) << 9 | (half >> 3 & 3) << 7 | (half >> 5 & 1) << 6 | (half >> 2 & 1) << 5 | (half >> 6 & 1) << 4
        return Step(max(0, -_signed(bits, 10)))
    if half & 0xEF83 == 0x0101:  # c.addi sp
        return Step(max(0, -_signed((half >> 12 & 1) << 5 | half >> 2 & 31, 6)))
    if half & 0x6003 == 0x2001:  # c.jal, c.j
        bits = (
            (half >> 12 & 1) << 11 | (half >> 11 & 1) << 4 | (half >> 9 & 3) << 8 | (half >> 8 & 1) << 10
            | (half >> 7 & 1) << 6 | (half >> 6 & 1) << 7 | (half >> 3 & 7) << 1 | (half >> 2 & 1) << 5
        )  # fmt: skip
        return Step(to=at + _signed(bits, 12), comes_back=half >> 13 == 1)
    return Step(indirect=half & 0xF07F == 0x9002 and half != 0x9002)  # c.jalr


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> (bits - 1) & 1 else value
