"""Which branches of machine code may go another way for other data? The others go as often in every run as in one.

What is loaded from memory is data, except from flash (weights and tables are the same in every run), and where the same layer has
written what is not data (words of the stack, tables of addresses). Which memory an instruction touches, and who wrote there last,
is seen in runs: addresses that do not depend on data are the same in every run, and an instruction that was not seen reads data.
What is computed from data is data; so is what is written in code that runs only if data says so. A branch on data makes all blocks
that depend on it (those that only some of its ways reach) dirty: they run as often as data says. Code behind a branch that does not
depend on data and that no run entered never runs.

Registers are followed along the flow, words of the stack by their place in the frame of a function, through all functions that are
called: arguments go in, results come out. A function of assembly also takes what it reads of other registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from intaglio.run.emulator.traced import Traced
from intaglio.run.flow import Flow, decoder
from intaglio.run.seen import Seen

RESULTS = frozenset(["r0", "r1", "r2", "r3", "r12", "lr", *(f"s{n}" for n in range(16))])
ARGUMENTS = frozenset(["r0", "r1", "r2", "r3", *(f"s{n}" for n in range(16))])
FLAGS = "flags"
# Instructions that add to what they write:
ADDS_TO = ("smlal", "umlal", "umaal", "smlsl", "movt", "bfi", "bfc", "vmla", "vmls", "vnml", "vfma", "vfms", "vfnm")
COMPARES = ("cmp", "cmn", "tst", "teq", "vcmp", "cbz", "cbnz")
TWO_RESULTS = ("smull", "umull")
READ_FLAGS = ("adc", "sbc", "rrx", "sel", "mrs", "vmrs", "fmstat")
GREATER = ("sadd", "ssub", "sasx", "ssax", "uadd", "usub", "uasx", "usax")  # set the flags that `sel` reads
State = frozenset[str]


@dataclass(slots=True)
class _Function:
    flow: Flow
    code: dict[int, list[Any]]  # instructions by block
    depends: dict[int, set[int]]  # by block: the branches that decide whether it runs
    traced: Traced
    seen: Seen
    layer: int
    entry: set[str] = field(default_factory=set)
    exit: set[str] = field(default_factory=set)
    slots: set[int] = field(default_factory=set)  # words of its frame that are written if data says so
    anywhere: bool = False  # any of them may be
    pushed: bool = False  # data may be in a register that it pushed
    stored: set[int] = field(default_factory=set)  # instructions that write data
    scattered: bool = False  # data decides where in RAM it writes, or whether it does
    callers: list[_Function] = field(default_factory=list)
    called_by_data: bool = False
    tainted: set[int] = field(default_factory=set)  # blocks whose branch depends on data
    dirty: set[int] = field(default_factory=set)
    addresses: frozenset[int] = frozenset()  # of its instructions
    takes: frozenset[str] = ARGUMENTS  # registers that come in


@dataclass(frozen=True, slots=True)
class Clean:
    """Blocks that run as often whatever the data, and those of them whose branch does not look at data either."""

    blocks: frozenset[int]
    branches: frozenset[int]


def clean_code(flows: Mapping[int, Flow], read: Any, traced: Traced, seen: Seen, layer: int) -> Clean:
    """`layer`: the address of the function that all of them run in."""
    functions = {start: _function(flow, read, traced, seen, layer) for start, flow in flows.items()}
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


def _function(flow: Flow, read: Any, traced: Traced, seen: Seen, layer: int) -> _Function:
    found = decoder()
    code = {at: list(found.disasm(read(at, block.size), at)) for at, block in flow.blocks.items()}  # in a row: `it` counts
    addresses = frozenset(one.address for row in code.values() for one in row)
    takes = ARGUMENTS | _own_arguments(one for row in code.values() for one in row)
    return _Function(flow, code, _dependences(flow), traced, seen, layer, addresses=addresses, takes=takes)


def _own_arguments(code: Iterable[Any]) -> frozenset[str]:
    """Assembly may have a convention of its own: what it reads, not only pushes, and never writes comes from the caller."""
    read, written = set[str](), set[str]()
    for found in code:
        name = str(found.insn_name())
        read |= set() if name.startswith(("push", "vpush")) else {*reads_of(found, name)}
        written |= {*_names(found, 1)}
    return frozenset(read - written - {"sp", "pc", "lr", FLAGS})


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
        (
            len(f.entry),
            len(f.exit),
            len(f.slots),
            f.anywhere,
            f.pushed,
            len(f.stored),
            f.scattered,
            f.called_by_data,
            len(f.tainted),
            len(f.dirty),
        )
        for f in functions.values()
    ]


def _through(one: _Function, at: int, state: State, functions: Mapping[int, _Function]) -> State:
    data = set(state)
    dirty = at in one.dirty or one.called_by_data
    calls = iter(enumerate(one.flow.blocks[at].calls))
    for found in one.code[at]:
        name = str(found.insn_name())
        if name == "bl" or (name == "b" and found.address == one.flow.blocks[at].last and one.flow.blocks[at].taken is None):
            n, to = next(calls, (0, None))
            if to is not None:
                before = set(data) if n in one.flow.blocks[at].may_call else set[str]()
                _call(functions.get(to), data, dirty or (FLAGS in before))
                data |= before
            continue
        _one(one, found, name, data, dirty, functions)
    last = one.code[at][-1]
    looks = {*_names(last, 0)} if str(last.insn_name()) in ("cbz", "cbnz") else {FLAGS}
    block = one.flow.blocks[at]
    if (len(block.edges()) > 1 or block.may_leave) and looks & data:
        one.tainted.add(at)
    return frozenset(data)


def _call(to: _Function | None, data: set[str], dirty: bool) -> None:
    if to is None:  # not known: all that it may leave is data
        data |= RESULTS | {FLAGS}
        return
    to.entry |= data & to.takes
    to.called_by_data |= dirty
    data -= RESULTS
    data |= to.exit if not dirty else RESULTS
    data.add(FLAGS)


def _one(one: _Function, found: Any, name: str, data: set[str], dirty: bool, functions: Mapping[int, _Function]) -> None:
    from capstone import arm

    conditional = found.cc not in (arm.ARM_CC_AL, arm.ARM_CC_INVALID) and name not in ("b", "it")
    reads, writes = reads_of(found, name), _names(found, 1)
    memory = next((o.mem for o in found.operands if o.type == arm.ARM_OP_MEM), None)
    base = found.reg_name(memory.base) if memory is not None and memory.base else ""
    unclean = dirty or (conditional and FLAGS in data)
    if name.startswith(("push", "vpush")):
        if {*reads} & data:
            one.pushed = True
            one.stored.add(found.address)
        return
    if name.startswith(("str", "vstr", "stm", "vstm")):
        if unclean or ({*reads} - {"sp"}) & data:
            parts = [memory.base, memory.index] if memory is not None else [found.operands[0].reg]
            where = one.traced.writes.get(found.address)
            one.stored.add(found.address)
            if unclean or {str(found.reg_name(number)) for number in parts if number} & data:
                _store(one, where)
                one.scattered |= where is None or "ram" in where
        return
    if name.startswith(("pop", "vpop")):
        value = one.pushed
    elif name.startswith(("ldr", "vldr", "ldm", "vldm")):
        value = base != "pc" and _memory_is_data(one, found.address, functions)
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
    if name.startswith(GREATER) and value:
        data.add(FLAGS)
    if found.update_flags or name.startswith(COMPARES):
        (data.add if value or (conditional and FLAGS in data) else data.discard)(FLAGS)


def _store(one: _Function, where: set[str | int] | None) -> None:
    """Data decides whether or where something is written on the stack: in its own frame, or in one above it."""
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


def _memory_is_data(one: _Function, reader: int, functions: Mapping[int, _Function]) -> bool:
    """Flash is not, nor is what was written before in the same layer without being data. The rest is, but for arguments on the
    stack."""
    where = one.traced.reads.get(reader, {"ram"})
    writers = one.traced.writers.get((one.layer, reader), {None} if "ram" in where else set())
    if "ram" in where and (None in writers or any(f.scattered for f in functions.values())):
        return True
    if any(_holds_data(one, word) for word in where if isinstance(word, int)):
        return True
    outside = [at for at in writers if at is not None and not any(at in f.addresses for f in functions.values())]
    return bool(outside) or any(writers & f.stored for f in functions.values())


def _holds_data(one: _Function, word: int) -> bool:
    frame = one.traced.frames.get(one.flow.function.address, 0)
    if word < frame:
        return one.anywhere or word in one.slots
    return any(_holds_data(caller, word - frame) for caller in one.callers)


def reads_of(found: Any, name: str) -> list[str]:
    """What capstone says, and what it leaves out: registers that are shifted or saturated, and sums that are added to."""
    from capstone import arm

    known = _names(found, 0)
    registers = [str(found.reg_name(o.reg)) for o in found.operands if o.type == arm.ARM_OP_REG]
    if name.startswith((*ADDS_TO, *COMPARES)):
        return known + _halves(registers)
    results = 2 if name.startswith(TWO_RESULTS) or (name == "vmov" and len(registers) == 4) else 1
    moves = name.startswith(("ldr", "vldr", "ldm", "vldm", "pop", "vpop", "str", "vstr", "stm", "vstm", "push", "vpush"))
    return known + ([] if moves else _halves(registers[results:])) + ([FLAGS] if name in READ_FLAGS else [])


def _names(found: Any, kind: int) -> list[str]:
    """Registers that it reads (0) or writes (1)."""
    return _halves(str(found.reg_name(number)) for number in found.regs_access()[kind])


def _halves(registers: Iterable[str]) -> list[str]:
    """Doubles and vectors by their halves; no flags."""
    names = []
    for name in registers:
        if name[0] in "dq" and name[1:].isdigit():
            width = 2 if name[0] == "d" else 4
            names += [f"s{int(name[1:]) * width + n}" for n in range(width)]
        elif name not in ("cpsr", "fpscr", "apsr", "fpscr_nzcv", "itstate", "apsr_nzcv"):
            names.append(name)
    return names
