"""The flow of control of Thumb code: basic blocks, the edges between them, calls, and loops. Read from the linked program.

Blocks end at branches and in front of what is jumped to. A call does not end a block. A branch through a register that is not a
return, or a table of jumps, makes a function unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from intaglio.run.emulator.image import Function, Image

RETURNS = ("bx", "pop", "ldm")


@dataclass(slots=True)
class Block:
    """`taken`: where its branch goes, `next`: what follows where it does not. None: it leaves the function."""

    address: int
    size: int = 0
    taken: int | None = None
    next: int | None = None
    last: int = 0  # the address of its last instruction
    may_leave: bool = False  # it returns, or goes on with `next`
    calls: list[int] = field(default_factory=list)
    may_call: set[int] = field(default_factory=set)  # places in `calls` of those that have a condition
    returns: list[int] = field(default_factory=list)  # addresses behind calls, where the called function comes back

    def pieces(self) -> list[tuple[int, int]]:
        """Addresses and sizes of what runs in a row. All but the last end in a call; the last may be empty."""
        cuts = [self.address, *self.returns, self.address + self.size]
        return [(at, to - at) for at, to in pairwise(cuts)]

    def edges(self) -> list[int]:
        return [to for to in dict.fromkeys((self.taken, self.next)) if to is not None]


@dataclass(slots=True)
class Flow:
    """Of one function. `unknown` says why it has no bound."""

    function: Function
    blocks: dict[int, Block] = field(default_factory=dict)
    unknown: str = ""

    def back_edges(self) -> list[tuple[int, int]]:
        """Edges that close a loop: to a block that every way to their start goes through."""
        dominators = self._dominators()
        return [(at, to) for at, block in self.blocks.items() for to in block.edges() if to in dominators.get(at, ())]

    def retreating(self) -> list[tuple[int, int]]:
        """Edges without which no circle is left, also where a loop is entered in two places."""
        found, state = list[tuple[int, int]](), {self.function.address: 1}
        stack = [(self.function.address, iter(self.blocks[self.function.address].edges()))]
        while stack:
            at, following = stack[-1]
            to = next(following, None)
            if to is None:
                state[at] = 2
                stack.pop()
            elif state.get(to) == 1:
                found.append((at, to))
            elif to not in state:
                state[to] = 1
                stack.append((to, iter(self.blocks[to].edges())))
        return found

    def irreducible(self) -> bool:
        """A loop that is entered in two places has no header."""
        return not {*self.retreating()} <= {*self.back_edges()}

    def _dominators(self) -> dict[int, set[int]]:
        start = self.function.address
        before: dict[int, list[int]] = {}
        for at, block in self.blocks.items():
            for to in block.edges():
                before.setdefault(to, []).append(at)
        everything = set(self.blocks)
        found = {at: {at} if at == start else set(everything) for at in self.blocks}
        changed = True
        while changed:
            changed = False
            for at in sorted(self.blocks):
                if at == start:
                    continue
                ways = [found[p] for p in before.get(at, ())]
                now = (set.intersection(*ways) if ways else set()) | {at}
                if now != found[at]:
                    found[at], changed = now, True
        return found


def flow_of(function: Function, image: Image, read: Callable[[int, int], bytes]) -> Flow:
    """Reads what can be reached from its first instruction: pools of constants between instructions are not."""
    flow = Flow(function)
    end = function.address + function.size_bytes
    reading, code = decoder(), read(function.address, function.size_bytes)
    instructions: dict[int, Any] = {}
    ahead: dict[int, Any] = {}
    starts, todo = {function.address}, [function.address]
    while todo:
        at = todo.pop()
        while function.address <= at < end and at not in instructions:
            found = ahead.get(at) or next(reading.disasm(code[at - function.address :], at, 1), None)
            if found is None:
                flow.unknown = f"an instruction at {at:#x} that is not known"
                return flow
            instructions[at] = found
            if str(found.insn_name()) == "it":  # those behind it have its condition, which a decoder only knows in a row
                ahead |= {one.address: one for one in reading.disasm(code[at - function.address :], at, len(found.mnemonic))}
            kind, to = _kind(found, function)
            if kind == "unknown":
                flow.unknown = f"a jump that is computed at {at:#x}"
                return flow
            following = [to] if to is not None and kind in ("jump", "branch") else []
            for start in following + ([at + found.size] if kind in ("branch", "may leave") else []):
                starts.add(start)
                todo.append(start)
            if kind in ("jump", "leave", "tail"):
                break
            at += found.size
    _cut(flow, instructions, starts, function)
    return flow


def _cut(flow: Flow, instructions: dict[int, Any], starts: set[int], function: Function) -> None:
    for start in sorted(starts & instructions.keys()):
        block = flow.blocks[start] = Block(start)
        at = start
        while True:
            found = instructions[at]
            kind, to = _kind(found, function)
            block.last, at = at, at + found.size
            block.size = at - start
            if kind == "call" and to is not None:
                if _conditional(found):
                    block.may_call.add(len(block.calls))
                block.calls.append(to)
                block.returns.append(at)
            if kind == "tail" and to is not None:
                block.calls.append(to)
                break
            if kind in ("jump", "branch"):
                block.taken = to
            if kind in ("branch", "may leave"):
                block.next = at
            block.may_leave = kind == "may leave"
            if kind in ("jump", "branch", "leave", "may leave"):
                break
            if at in starts or at not in instructions:
                block.next = at if at in instructions else None
                break


def _kind(found: Any, function: Function) -> tuple[str, int | None]:
    """What an instruction does to the flow, and where it goes."""
    from capstone import arm

    name = str(found.insn_name())
    conditional = _conditional(found)
    operands = found.operands
    inside = range(function.address, function.address + function.size_bytes)
    if name in ("b", "cbz", "cbnz"):
        to = operands[-1].imm & ~1
        if to not in inside:
            return ("tail", to) if not conditional and name == "b" else ("unknown", None)
        return ("branch" if conditional or name != "b" else "jump"), to
    if name == "bl":
        to = operands[-1].imm & ~1
        if to in inside and to != function.address:
            return ("unknown", None) if conditional else ("jump", to)
        return "call", to
    if name in ("tbb", "tbh", "blx"):
        return "unknown", None
    if name == "bx":
        return ("unknown" if found.op_str != "lr" else "may leave" if conditional else "leave"), None
    if name.startswith(("pop", "ldm")) and "pc" in found.op_str:
        return ("may leave" if conditional else "leave"), None
    if (
        name in ("mov", "ldr", "add")
        and operands
        and operands[0].type == arm.ARM_OP_REG
        and found.reg_name(operands[0].reg) == "pc"
    ):
        return ("leave", None) if name == "ldr" and "[sp]" in found.op_str else ("unknown", None)
    if name in ("udf", "bkpt"):
        return "leave", None
    return "", None


def _conditional(found: Any) -> bool:
    from capstone import arm

    return bool(found.cc not in (arm.ARM_CC_AL, arm.ARM_CC_INVALID))


def decoder() -> Any:
    import capstone

    found = capstone.Cs(capstone.CS_ARCH_ARM, capstone.CS_MODE_THUMB | capstone.CS_MODE_MCLASS | capstone.CS_MODE_V8)
    found.detail = True
    return found
