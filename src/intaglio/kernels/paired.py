"""The order of instructions in assembly, for cores that issue two at a time (`targets/issue.py`).

    ldr    r12, [r1], #4                ldr    r12, [r1], #4
    ldr    r2, [r0], #4                 ldr    r2, [r0], #4
    sxtb16 r3, r2                       ldr    lr, [r1], #4
    smlad  r8, r2, r12, r8       ->     smlad  r8, r2, r12, r8   || sxtb16 r3, r2
    smlad  r4, r3, r12, r4              smlad  r4, r3, r12, r4   || ldr r12, [r1], #4
    ldr    lr, [r1], #4                 smlad  r9, r2, lr, r9

Routines are written in the order that suits a core that issues one instruction a cycle, where loads in a row are cheapest. Between
two labels or branches their order is free as far as registers, flags and memory allow. Here it is chosen by the rules of the core:
of what is ready, the instruction that most of the rest waits for, with a second one beside it where they go together. Loads of
several registers, beside which nothing is issued, are taken apart where that is faster. The order of the template stays where none
is found that takes fewer cycles, and where a block has an instruction that this file does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random

from intaglio.targets.issue import Ready, Slot, Unit, earliest, finish, issue_cycles, slot_of, together

MOST_CHARACTERS = 4095  # of a string in C99
TRIES = 12  # orders that are compared

_BLOCK = re.compile(r'(__asm__ volatile\(\n)((?:[ \t]*"[^\n]*\n)+)([ \t]*:.*?\);)', re.DOTALL)
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_COMMENT = re.compile(r"/\*.*?\*/")
_OPERAND = re.compile(r'\[(\w+)\] "([^"]+)"')
_REGISTER = re.compile(r"%\[(\w+)\]|\b(r\d+|s\d+|d\d+|lr|sp|pc)\b")
_RANGE = re.compile(r"\bs(\d+)-s(\d+)")
_SHIFTED = re.compile(r"(%\[\w+\]|\w+)\s*,\s*(?:lsl|lsr|asr|ror)\s+#\d+$")
_MEMORY = re.compile(r"\[(%\[\w+\]|\w+)\s*(?:,\s*#([^\]]*))?\](!?)\s*(?:,\s*#(-?\d+))?$")

FLAGS, LANES = "flags", "lanes"  # named as registers
COMPARED = {"cmp", "cmn", "tst", "teq", "vcmp"}
BRANCHES = re.compile(r"b(?:l|x)?(?:eq|ne|lt|le|gt|ge|hi|lo|hs|ls|mi|pl|cs|cc)?$")
ADDED_TO = ("vfma", "vfms", "vmla", "vmls", "bfi", "movt", "smlal", "umlal", "umaal")
TWO_RESULTS = ("smlal", "umlal", "umaal", "umull", "smull")
TWO_OPERANDS = {"add", "sub", "and", "orr", "eor", "bic", "mul", "lsl", "lsr", "asr", "ror"}
PLAIN = TWO_OPERANDS | {"mov", "mvn", "rsb", "movw", "movt", "neg", "vmov", "adr", "sel"}
KNOWN = (
    "smla", "smul", "smml", "smuad", "mla", "mls", "umull", "umlal", "smull", "smlal", "umaal", "sxt", "uxt", "pkh", "ssat", "usat",
    "sbfx", "ubfx", "bfi", "rev", "clz", "ssub", "usub", "sadd", "uadd", "vadd", "vsub", "vmul", "vfma", "vfms", "vmla", "vmls",
    "vneg", "vabs", "vmax", "vmin", "vcvt", "vdiv", "vsqrt",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Step:
    """An instruction, or several that stay together (`it` and what depends on it)."""

    texts: tuple[str, ...]
    slots: tuple[Slot, ...]
    reads: frozenset[str]
    writes: frozenset[str]
    stores: bool = False
    loads: bool = False


@dataclass(frozen=True, slots=True)
class _Line:
    text: str
    comment: str = ""

    @property
    def fixed(self) -> bool:
        """Nothing moves across it."""
        return self.text.endswith(":") or BRANCHES.match(self.text.split(" ")[0]) is not None


@cache
def paired(text: str) -> str:
    """The text of a routine, with the instructions of its assembly in another order."""
    return _BLOCK.sub(lambda found: found[1] + _arranged(found[2], found[3]) + found[3], text)


def _arranged(body: str, operands: str) -> str:
    lines = list(_lines(body))
    classes = dict(_OPERAND.findall(operands))
    if any("%" in line.text and re.search(r"%\d", line.text) for line in lines) or _may_be_shared(classes):
        return body
    out: list[_Line] = []
    run: list[_Line] = []
    for line in [*lines, None]:
        if line is not None and not line.fixed:
            run.append(line)
            continue
        out += _ordered(run, classes)
        run = []
        out += [] if line is None else [line]
    text = _printed(out, body[: len(body) - len(body.lstrip(" \t"))])
    return text if sum(len(line.text) + 2 for line in out) <= MOST_CHARACTERS else body


def _may_be_shared(classes: dict[str, str]) -> bool:
    """Could an input be in the same register as a result that is not written after it any more?"""
    inputs = [kind for kind in classes.values() if kind[0] not in "=+" and "r" in kind]
    return bool(inputs) and any(kind[0] in "=+" and "&" not in kind for kind in classes.values())


def _lines(body: str) -> Iterator[_Line]:
    for row in body.rstrip("\n").split("\n"):
        comment = "".join(_COMMENT.findall(row))
        text = "".join(_LITERAL.findall(_COMMENT.sub("", row))).replace("\\t", "")
        for part in filter(None, (piece.strip() for piece in text.split("\\n"))):
            yield _Line(part, comment)
            comment = ""


def _printed(lines: list[_Line], margin: str) -> str:
    rows = []
    for line, after in zip(lines, [*lines[1:], None], strict=True):
        end = "" if after is None else "\\n" if after.text.endswith(":") else "\\n\\t"
        rows.append(f'{margin}"{line.text}{end}"' + (f" {line.comment}" if line.comment else ""))
    return "\n".join(rows) + "\n"


def _ordered(run: list[_Line], classes: dict[str, str]) -> list[_Line]:
    whole = _steps([line.text for line in run], classes)
    if whole is None or len(run) < 2:
        return run
    apart = _steps([part for line in run for part in _taken_apart(line.text)], classes)
    found = min((order for steps in (whole, apart) if steps is not None for order in _orders(steps)), key=_cycles)
    return [_Line(text) for step in found for text in step.texts]


def _cycles(order: Sequence[_Step]) -> int:
    return issue_cycles([slot for step in order for slot in step.slots])


def _taken_apart(text: str) -> list[str]:
    """`ldrd` and `ldm` as loads of one register each; the one that moves the address on is the last."""
    name, _, rest = text.partition(" ")
    if name == "ldrd" and (found := _MEMORY.search(rest)):
        names = [part.strip() for part in rest.split(",")[:2]]
        return (not found[3] and _single(names, found[1], found[2] or "0", int(found[4] or 0))) or [text]
    if name in ("ldm", "ldmia") and (listed := re.fullmatch(r"(\S+?)(!?)\s*,\s*\{([^}]*)\}", rest.strip())):
        names = [part.strip() for part in listed[3].split(",")]
        return _single(names, listed[1], "0", 4 * len(names) if listed[2] else 0) or [text]
    return [text]


def _single(names: list[str], base: str, offset: str, moved: int) -> list[str]:
    """None where a load would overwrite the address of the others, or where the offset is an expression."""
    if base in names or not re.fullmatch(r"-?\d+", offset):
        return []
    at = [int(offset) + 4 * n for n in range(len(names))]
    order = [*range(1, len(names)), 0]
    loads = [f"ldr {names[n]}, [{base}, #{at[n]}]" if at[n] else f"ldr {names[n]}, [{base}]" for n in order]
    if moved:
        loads[-1] = f"ldr {names[0]}, [{base}], #{moved}"
    return loads


# What an instruction reads and writes --------------------------------------------------------------------------------------


def _steps(texts: list[str], classes: dict[str, str]) -> list[_Step] | None:
    steps: list[_Step] = []
    depends = 0  # instructions that the last `it` still holds
    for text in texts:
        if re.fullmatch(r"i[te]{1,4} \w+", text):
            steps.append(_Step((text,), (Slot(Unit.PLAIN, reads_flags=True),), frozenset({FLAGS}), frozenset()))
            depends = len(text.split(" ")[0]) - 1
            continue
        step = _step(text, classes, conditional=depends > 0)
        if step is None:
            return None
        if depends:
            depends -= 1
            kept = steps.pop()  # what a condition leaves alone stays what it was: it is read
            step = replace(
                step, texts=kept.texts + step.texts, slots=kept.slots + step.slots, reads=kept.reads | step.reads | step.writes,
                writes=kept.writes | step.writes, stores=kept.stores or step.stores, loads=kept.loads or step.loads,
            )  # fmt: skip
        steps.append(step)
    return steps


def _step(text: str, classes: dict[str, str], *, conditional: bool) -> _Step | None:
    mnemonic, _, rest = text.partition(" ")
    name = re.sub(r"\.\w+", "", mnemonic)
    name = name[:-2] if conditional and name[-2:] in ("lt", "gt", "eq", "ne", "le", "ge") else name
    sets_flags = name in COMPARED or (name.endswith("s") and name[:-1] in PLAIN)
    name = name[:-1] if sets_flags and name not in COMPARED else name
    moves = name.startswith(("ldr", "str", "vldr", "vstr", "ldm", "vldm", "stm", "vstm"))
    if not (moves or name in COMPARED or name in PLAIN or name.startswith(KNOWN)):
        return None
    registers = _registers(rest, classes)
    address = _address(rest, classes, registers, moves)
    read, written = _moved(name, rest, registers, address) if moves else _computed(name, registers)
    found = _SHIFTED.search(rest)
    shifted = frozenset(_registers(found[1], classes)) if found else frozenset()
    slot = slot_of(name, rest, registers, read, written, address, shifted)
    if slot.unit is Unit.LOAD and len(address) == 1 and (memory := _MEMORY.search(rest)):
        offset = memory[2] or "0"
        slot = replace(slot, word=(next(iter(address)), int(offset)) if re.fullmatch(r"-?\d+", offset) else None)
    slot = replace(slot, sets_flags=sets_flags, reads_flags=conditional)
    read |= {FLAGS} if conditional else {LANES} if name == "sel" else set()
    written |= {FLAGS} if sets_flags else {LANES} if name.startswith(("ssub", "usub", "sadd", "uadd")) else set()
    stores = name.startswith(("str", "vstr", "stm", "vstm"))
    return _Step((text,), (slot,), read, written, stores, moves and not stores)


def _registers(text: str, classes: dict[str, str]) -> list[str]:
    """In order, `d1` as `s2` and `s3`; operands of C by their class, constants not at all."""
    text = _RANGE.sub(lambda r: ", ".join(f"s{n}" for n in range(int(r[1]), int(r[2]) + 1)), text)
    found: list[str] = []
    for operand, name in _REGISTER.findall(text):
        if operand:
            kind = classes.get(operand, "r")
            found += [] if kind == "i" else [f"s%{operand}" if "t" in kind or "w" in kind else f"r%{operand}"]
        elif name[0] == "d":
            found += [f"s{2 * int(name[1:])}", f"s{2 * int(name[1:]) + 1}"]
        else:
            found.append(name)
    return found


def _address(rest: str, classes: dict[str, str], registers: list[str], moves: bool) -> frozenset[str]:
    if not moves:
        return frozenset()
    if "{" in rest:
        return frozenset(registers[:1])
    return frozenset(_registers(rest[rest.find("[", 0 if rest.startswith("[") else _after_operand(rest)) :], classes))


def _after_operand(rest: str) -> int:
    """Where the address begins: `%[x]` has brackets too."""
    return next((at for at, letter in enumerate(rest) if letter == "[" and rest[at - 1] != "%"), 0)


def _moved(name: str, rest: str, registers: list[str], address: frozenset[str]) -> tuple[frozenset[str], frozenset[str]]:
    moves_on = frozenset(address) if "!" in rest or re.search(r"\]\s*,", _without_operands(rest)) else frozenset[str]()
    if "{" in rest:
        values = frozenset(registers[1:])
    else:
        values = frozenset(registers[: 2 if name in ("ldrd", "strd") else 1])
    base = frozenset(list(address)[:1]) if len(address) == 1 else frozenset[str]()
    if name.startswith(("ldr", "vldr", "ldm", "vldm")):
        return address, values | (moves_on & base)
    return address | values, moves_on & base


def _without_operands(rest: str) -> str:
    return re.sub(r"%\[\w+\]", "r", rest)


def _computed(name: str, registers: list[str]) -> tuple[frozenset[str], frozenset[str]]:
    if name in COMPARED:
        return frozenset(registers), frozenset()
    results = 2 if name.startswith(TWO_RESULTS) or (name == "vmov" and len(registers) == 4) else 1
    if name == "vmov" and len(registers) == 3:
        results = 2 if registers[2][0] == "s" else 1
    written = frozenset(registers[:results])
    both = name.startswith(ADDED_TO) or (name in TWO_OPERANDS and len(registers) < 3)
    return frozenset(registers if both else registers[results:]), written


# Orders --------------------------------------------------------------------------------------------------------------------


def _orders(steps: list[_Step]) -> Iterator[list[_Step]]:
    """The one of the template first: of equals it is taken."""
    yield steps
    before = [[i for i in range(n) if _must_follow(steps[i], step)] for n, step in enumerate(steps)]
    rest = _waits(steps, before)
    for seed in range(TRIES):
        chance = Random(seed)
        yield _listed(steps, before, [time + (chance.random() * 3 if seed else 0.0) for time in rest])


def _must_follow(first: _Step, second: _Step) -> bool:
    touched = first.writes & (second.reads | second.writes) or first.reads & second.writes
    return bool(touched) or (first.stores and (second.stores or second.loads)) or (first.loads and second.stores)


def _waits(steps: list[_Step], before: list[list[int]]) -> list[float]:
    """Cycles from each step to the end, if nothing but results were waited for."""
    rest = [1.0] * len(steps)
    for n in reversed(range(len(steps))):
        for i in before[n]:
            cost = _latency(steps[i].slots[-1]) if steps[i].writes & steps[n].reads else 0.0
            rest[i] = max(rest[i], rest[n] + cost)
    return rest


def _latency(slot: Slot) -> float:
    match slot.unit:
        case Unit.PRODUCT | Unit.LOAD | Unit.MOVED:
            return 2.0
        case Unit.FLOAT | Unit.FUSED:
            return 3.0
        case _:
            return float(slot.cycles)


def _listed(steps: list[_Step], before: list[list[int]], priority: list[float]) -> list[_Step]:
    left = {n: set(behind) for n, behind in enumerate(before)}
    ready: dict[str, Ready] = {}
    out: list[_Step] = []
    cycle = 0

    def take(n: int, now: int) -> int:
        for slot in steps[n].slots:
            now = max(now, earliest(slot, ready))
            finish(slot, now, ready)
        out.append(steps[n])
        del left[n]
        for behind in left.values():
            behind.discard(n)
        return now

    while left:
        free = [n for n, behind in left.items() if not behind]
        times = {n: max(cycle, earliest(steps[n].slots[0], ready)) for n in free}
        first = min(free, key=lambda n: (times[n], -priority[n], n))
        older = steps[first].slots[-1]
        now = take(first, times[first])
        cycle = now + older.cycles
        beside = [
            n for n, behind in left.items()
            if not behind and together(older, steps[n].slots[0]) and earliest(steps[n].slots[0], ready, beside=older) <= now
        ]  # fmt: skip
        if beside:
            take(min(beside, key=lambda n: (-priority[n], n)), now)
    return out
