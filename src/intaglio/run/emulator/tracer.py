"""Follows a run instruction by instruction: which memory each of them reads and writes.

Addresses are computed from the instruction and the registers in front of it. Unicorn can tell of accesses itself, but then a
conditional return (`it eq` and `pop {pc}`) goes to a wrong address.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from intaglio.run.emulator.core import Core, memory_of
from intaglio.run.emulator.traced import Traced

SIZES = {"b": 1, "sb": 1, "h": 2, "sh": 2, "d": 8}
LISTS = ("ldm", "stm", "push", "pop", "vldm", "vstm", "vpush", "vpop")
PC_AHEAD = 4  # of Thumb: what an instruction reads as pc


@dataclass(frozen=True, slots=True)
class Access:
    writes: bool
    base: str
    index: str  # "": none
    shift: int
    offset: int
    size: int
    conditional: bool  # it may not happen


class Tracer:
    """`register` reads one by its name. `layers`: addresses of their functions."""

    def __init__(self, traced: Traced, core: Core, register: Callable[[str], int], layers: frozenset[int]) -> None:
        from intaglio.run.flow import decoder  # which knows images

        self._traced, self._core, self._register, self._layers = traced, core, register, layers
        self._decoder = decoder()
        self._top = register("sp")
        self._functions: dict[int, int] = {f.address: f.address for f in core.image.functions}
        self._entered: dict[int, int] = {}
        self._accesses: dict[int, Access | None] = {}
        self._conditional: set[int] = set()
        self._layer = 0
        self._last: dict[int, frozenset[int]] = {}  # by byte of RAM: instructions that may have written it last

    def step(self, pc: int, size: int) -> None:
        if self._functions.get(pc) == pc:
            self._entered[pc] = self._register("sp")
        if pc in self._layers:
            self._layer = pc
            self._last.clear()
        if pc not in self._accesses:
            self._accesses[pc] = self._decode(pc, self._core.read(pc, size))
        access = self._accesses[pc]
        if access is not None:
            address = (pc + PC_AHEAD) & ~3 if access.base == "pc" else self._register(access.base)
            address += access.offset + ((self._register(access.index) << access.shift) if access.index else 0)
            self._note(pc, access, address & 0xFFFFFFFF)

    def _note(self, pc: int, access: Access, address: int) -> None:
        found, sp, traced = memory_of(self._core.board, address), self._register("sp"), self._traced
        where: set[str | int] = {"flash" if found is not None and found.kind == "flash" else "ram"}
        low = min(sp, address) if access.base == "sp" else sp  # a push moves it
        if low <= address < self._top and "ram" in where:
            where = {(address - low + n) & ~3 for n in range(0, access.size, 4)}
            owner = self._owner(pc)
            traced.frames[owner] = max(traced.frames.get(owner, 0), self._entered.get(owner, low) - low)
        if "flash" not in where and access.writes:
            for at in range(address, address + access.size):
                self._last[at] = frozenset([pc]) | (self._last.get(at, frozenset()) if access.conditional else frozenset())
        elif "flash" not in where:
            writers = traced.writers.setdefault((self._layer, pc), set())
            for at in range(address, address + access.size):
                writers.update(self._last.get(at, (None,)))
        (traced.writes if access.writes else traced.reads).setdefault(pc, set()).update(where)

    def _owner(self, pc: int) -> int:
        if pc not in self._functions:
            found = self._core.image.function(pc)
            self._functions[pc] = found.address if found is not None else 0
        return self._functions[pc]

    def _decode(self, pc: int, code: bytes) -> Access | None:
        from capstone import arm

        found = next(self._decoder.disasm(code, pc, 1), None)
        if found is None:
            return None
        name = str(found.insn_name())
        conditional = pc in self._conditional or found.cc not in (arm.ARM_CC_AL, arm.ARM_CC_INVALID)
        if name == "it":
            self._conditional |= {pc + 2 * n for n in range(1, 2 * len(found.mnemonic))}  # all that may be in its reach
        if name.startswith(LISTS):
            return _list(found, name, conditional)
        memory = next((o for o in found.operands if o.type == arm.ARM_OP_MEM), None)
        if memory is None or not name.startswith(("ldr", "str", "vldr", "vstr")):
            return None
        size = (8 if found.op_str.startswith("d") else 4) if name[0] == "v" else SIZES.get(name[3:], 4)
        index = str(found.reg_name(memory.mem.index)) if memory.mem.index and not found.post_index else ""
        offset = 0 if found.post_index else memory.mem.disp
        writes = name.startswith(("str", "vstr"))
        return Access(writes, str(found.reg_name(memory.mem.base)), index, memory.shift.value, offset, size, conditional)


def _list(found: Any, name: str, conditional: bool) -> Access:
    stack = name.endswith(("push", "pop"))
    listed = found.operands if stack else found.operands[1:]
    size = sum(8 if str(found.reg_name(o.reg)).startswith("d") else 4 for o in listed)
    down = name.endswith(("push", "db"))
    base = "sp" if stack else str(found.reg_name(found.operands[0].reg))
    writes = name.startswith(("stm", "push", "vstm", "vpush"))
    return Access(writes, base, "", 0, -size if down else 0, size, conditional)
