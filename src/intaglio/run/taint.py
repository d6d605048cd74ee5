"""Which branches of machine code may go another way for other data? The others go as often in every run as in one.

What is loaded from memory is data, except from flash (weights and tables are the same in every run) and from words of the stack
that hold none. Which memory an instruction touches is seen in runs: addresses that do not depend on data are the same in every run,
and an instruction that was not seen reads data. What is computed from data is data; so is what is written in code that runs only if
data says so. A branch on data makes all blocks that depend on it (those that only some of its ways reach) dirty: they run as
often as data says. Code behind a branch that does not depend on data and that no run entered never runs.

Registers are followed along the flow, words of the stack by their place in the frame of a function, through all functions that are
called: arguments go in, results come out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from intaglio.run.emulator.traced import Traced
from intaglio.run.flow import Flow, decoder
from intaglio.run.seen import Seen

RESULTS = frozenset(["r0", "r1", "r2", "r3", "r12", "lr", *(f"s{n}" for n in range(16))])
ARGUMENTS = frozenset(["r0", "r1", "r2", "r3", *(f"s{n}" for n in range(16))])
FLAGS = "flags"
State = frozenset[str]


@dataclass(slots=True)
class _Function:
    flow: Flow
    code: dict[int, list[Any]]  # instructions by block
    depends: dict[int, set[int]]  # by block: the branches that decide whether it runs
    traced: Traced
    seen: Seen
    entry: set[str] = field(default_factory=set)
    exit: set[str] = field(default_factory=set)
    slots: set[int] = field(default_factory=set)  # words of its frame that hold data
    anywhere: bool = False  # data may be in any of them
    callers: list[_Function] = field(default_factory=list)
    called_by_data: bool = False
    tainted: set[int] = field(default_factory=set)  # blocks whose branch depends on data
    dirty: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Clean:
    """Blocks that run as often whatever the data, and those of them whose branch does not look at data either."""

    blocks: frozenset[int]
    branches: frozenset[int]


def clean_code(flows: Mapping[int, Flow], read: Any, traced: Traced, seen: Seen) -> Clean:
    functions = {start: _function(flow, read, traced, seen) for start, flow in flows.items()}
    for one in functions.values():
        for to in {to for block in one.flow.blocks.values() for to in block.calls}:
            if to in functions:
                functions[to].callers.append(one)
    changed = True
    while changed:
        rounds = [_pass(one, functions) for one in functions.values()]  # of all, whatever the first says
        changed = any(rounds)
    blocks = {at for one in functions.values() if not one.called_by_data for at in one.flow.blocks if at not in one.dirty}
    branches = {at for one in functions.values() for at in one.flow.blocks if at in blocks and at not in one.tainted}
    return Clean(frozenset(blocks), frozenset(branches))


def _function(flow: Flow, read: Any, traced: Traced, seen: Seen) -> _Function:
    found = decoder()
    code = {at: list(found.disasm(read(at, block.size), at)) for at, block in flow.blocks.items()}  # in a row: `it` counts
    return _Function(flow, code, _dependences(flow), traced, seen)


def _dependences(flow: Flow) -> dict[int, set[int]]:
    """By block: branches with a way that surely leads to it, and one that may not."""
    end = -1
    after = {at: block.edges() + ([end] if block.may_leave or not block.edges() else []) for at, block in flow.blocks.items()}
    everything = {*flow.blocks, end}
    behind: dict[int, set[int]] = {at: set(everything) for at in flow.blocks} | {end: {end}}
    changed = True
    while changed:
        changed = False
        for at in sorted(flow.blocks, reverse=True):
            now = set.intersection(*(behind[to] for to in after[at])) | {at}
            if now != behind[at]:
                behind[at], changed = now, True
    found: dict[int, set[int]] = {at: set() for at in flow.blocks}
    for at, following in after.items():
        if len(following) < 2:
            continue
        for to in following:
            for other in behind[to] - (behind[at] - {at}) - {end}:
                found[other].add(at)
    return found


def _pass(one: _Function, functions: Mapping[int, _Function]) -> bool:
    """One round over a function. True: something was learnt."""
    before = _known(functions)
    states: dict[int, State] = {one.flow.function.address: frozenset(one.entry)}
    todo = [one.flow.function.address]
    while todo:
        at = todo.pop()
        out = _through(one, at, states[at], functions)
        for to in _ways(one, at):
            joined = states[to] | out if to in states else out
            if to not in states or joined != states[to]:
                states[to] = joined
                todo.append(to)
        if not one.flow.blocks[at].edges() or one.flow.blocks[at].may_leave:
            one.exit |= out & RESULTS
    growing = True
    while growing:
        more = {at for at, on in one.depends.items() if at not in one.dirty and on & (one.tainted | one.dirty)}
        one.dirty |= more
        growing = bool(more)
    return before != _known(functions)


def _ways(one: _Function, at: int) -> list[int]:
    """Where data can make it go, and where it went: code behind a way that no data opens never runs."""
    ways = one.flow.blocks[at].edges()
    if one.called_by_data or at in one.dirty or at in one.tainted:
        return ways
    return [to for to in ways if one.seen.edge(one.flow, at, to)]


def _known(functions: Mapping[int, _Function]) -> list[tuple[int, ...]]:
    return [
        (len(f.entry), len(f.exit), len(f.slots), f.anywhere, f.called_by_data, len(f.tainted), len(f.dirty))
        for f in functions.values()
    ]


def _through(one: _Function, at: int, state: State, functions: Mapping[int, _Function]) -> State:
    data = set(state)
    dirty = at in one.dirty or one.called_by_data
    calls = iter(one.flow.blocks[at].calls)
    for found in one.code[at]:
        name = str(found.insn_name())
        if name == "bl" or (name == "b" and found.address == one.flow.blocks[at].last and one.flow.blocks[at].taken is None):
            if (to := next(calls, None)) is not None:
                _call(one, functions.get(to), data, dirty)
            continue
        _one(one, found, name, data, dirty)
    last = one.code[at][-1]
    looks = {*_names(last, 0)} if str(last.insn_name()) in ("cbz", "cbnz") else {FLAGS}
    block = one.flow.blocks[at]
    if (len(block.edges()) > 1 or block.may_leave) and looks & data:
        one.tainted.add(at)
    return frozenset(data)


def _call(one: _Function, to: _Function | None, data: set[str], dirty: bool) -> None:
    if to is None:  # not known: all that it may leave is data
        data |= RESULTS | {FLAGS}
        return
    to.entry |= data & ARGUMENTS
    to.called_by_data |= dirty
    data -= RESULTS
    data |= to.exit if not dirty else RESULTS
    data.add(FLAGS)


def _one(one: _Function, found: Any, name: str, data: set[str], dirty: bool) -> None:
    from capstone import arm

    conditional = found.cc not in (arm.ARM_CC_AL, arm.ARM_CC_INVALID) and name not in ("b", "it")
    reads, writes = _names(found, 0), _names(found, 1)
    memory = next((o.mem for o in found.operands if o.type == arm.ARM_OP_MEM), None)
    base = found.reg_name(memory.base) if memory is not None and memory.base else ""
    unclean = dirty or (conditional and FLAGS in data)
    loads = name.startswith(("ldr", "vldr", "ldm", "pop", "vpop", "vldm"))
    if name.startswith(("str", "vstr", "stm", "vstm")):
        if unclean or ({*reads} - {"sp"}) & data:
            _store(one, one.traced.writes.get(found.address))
        return
    if loads:
        where = {"flash"} if base == "pc" or name.startswith(("pop", "vpop")) else one.traced.reads.get(found.address, {"ram"})
        value = "ram" in where or any(_holds_data(one, word) for word in where if isinstance(word, int))
        value |= bool(({*reads} - {"sp", "pc"}) & data)
    else:
        value = bool({*reads} & data)
    value = bool(value) or unclean
    kept = {base} if memory is not None and base in writes else set[str]()  # an address that moves on stays what it was
    for register in set(writes) - kept - {"sp", "pc"}:
        if value or (conditional and register in data):
            data.add(register)
        else:
            data.discard(register)
    if found.update_flags or name in ("cmp", "cmn", "tst", "teq") or name.startswith("vcmp"):
        (data.add if value else data.discard)(FLAGS)


def _store(one: _Function, where: set[str | int] | None) -> None:
    """Data goes to the stack: to its own frame, or to one above it."""
    if where is None:  # not seen: anywhere
        one.anywhere = True
        for caller in one.callers:
            caller.anywhere = True
        return
    frame = one.traced.frames.get(one.flow.function.address, 0)
    one.slots |= {word for word in where if isinstance(word, int) and word < frame}
    above: set[str | int] = {word - frame for word in where if isinstance(word, int) and word >= frame}
    for caller in one.callers if above else []:
        _store(caller, above)


def _holds_data(one: _Function, word: int) -> bool:
    frame = one.traced.frames.get(one.flow.function.address, 0)
    if word < frame:
        return one.anywhere or word in one.slots
    return any(_holds_data(caller, word - frame) for caller in one.callers)


def _names(found: Any, kind: int) -> list[str]:
    """Registers that it reads (0) or writes (1); doubles and vectors by their halves."""
    names = []
    for number in found.regs_access()[kind]:
        name = str(found.reg_name(number))
        if name[0] in "dq" and name[1:].isdigit():
            width = 2 if name[0] == "d" else 4
            names += [f"s{int(name[1:]) * width + n}" for n in range(width)]
        elif name not in ("cpsr", "fpscr", "apsr", "fpscr_nzcv", "itstate", "apsr_nzcv"):
            names.append(name)
    return names
