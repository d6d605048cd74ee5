"""Which instructions a Cortex-M7 issues together, and how long a basic block takes so.

    0  ldr   r2, [r0], #4   || ldr   r12, [r1], #4     two loads, of an even and an odd word
    1                                                   products cannot use a load of the cycle before
    2  smlad r8, r2, r12, r8 || sxtb16 r3, r2
    3  smlad r4, r3, r12, r4 || ldr   r12, [r1], #4     one product a cycle, beside anything but a product or a store

The core issues in order, two instructions a cycle at most. Arm publishes no timings; the rules here are those that others
measured on an STM32H743 and published (github.com/jnk0le/random, "pipeline cycle test"; quinapalus.com/cm7cycles.html). Values
are ready at different times for different readers: an address or a shifted operand is read a cycle earlier than other operands,
the number that a product is added to a cycle later. A block starts with everything ready, so what one turn of a loop leaves for
the next is not seen. `docs/reference/cycle-estimate.md` compares the result with measurements. `run/costs.py` counts the cycles
of firmware by these rules, `kernels/paired.py` puts the instructions of assembly in an order that suits them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

NONE: frozenset[str] = frozenset()


class Unit(StrEnum):
    PLAIN = "plain"  # arithmetic, comparisons, moves
    PRODUCT = "product"
    BITS = "bits"  # extensions, saturation, bit fields
    LOAD = "load"
    STORE = "store"
    BRANCH = "branch"
    ALONE = "alone"  # pairs and lists of registers, divisions
    FLOAT = "float"
    FUSED = "fused"  # a product and a sum of floats
    MOVED = "moved"  # between registers of the core and of the FPU, and loads of floats


@dataclass(frozen=True, slots=True)
class Slot:
    """An instruction as the pipeline sees it. Registers that it reads, by when: `late`, `early` (addresses, shifted operands),
    `factors` of a product, `added` to a product."""

    unit: Unit
    late: frozenset[str] = NONE
    early: frozenset[str] = NONE
    factors: frozenset[str] = NONE
    added: frozenset[str] = NONE
    computes: frozenset[str] = NONE
    loads: frozenset[str] = NONE
    cycles: int = 1
    shifts: bool = False  # an operand, before it adds or compares
    quick: bool = False  # a sum or a move, whose result the instruction beside it can use
    narrow: bool = False  # a load of a byte or half word: a cycle later
    sets_flags: bool = False
    reads_flags: bool = False
    word: tuple[str, int] | None = None  # base and offset of a load

    @property
    def writes(self) -> frozenset[str]:
        return self.computes | self.loads


@dataclass(frozen=True, slots=True)
class Ready:
    """The first cycles in which an instruction that reads a value in one of the four ways can be issued."""

    late: int = 0
    early: int = 0
    factor: int = 0
    added: int = 0


READY = Ready()
APART = frozenset((
    (Unit.PRODUCT, Unit.PRODUCT), (Unit.PRODUCT, Unit.STORE), (Unit.STORE, Unit.PRODUCT), (Unit.STORE, Unit.STORE),
    (Unit.BITS, Unit.BITS), (Unit.BRANCH, Unit.BRANCH), (Unit.FLOAT, Unit.FLOAT), (Unit.FLOAT, Unit.FUSED),
    (Unit.FUSED, Unit.FLOAT), (Unit.FUSED, Unit.FUSED), (Unit.FUSED, Unit.MOVED), (Unit.MOVED, Unit.FUSED),
))  # fmt: skip
FLOAT_CYCLES, FUSED_CYCLES, CHAINED_CYCLES, INTO_FPU_CYCLES = 3, 5, 3, 4


def issue_cycles(slots: Sequence[Slot], *, again: bool = False) -> int:
    """Of a basic block; `again`: of one more turn of a loop that it is the whole of."""
    ready: dict[str, Ready] = {}
    first = _issue(slots, 0, ready)
    return _issue(slots, first, ready) - first if again else first


def _issue(slots: Sequence[Slot], cycle: int, ready: dict[str, Ready]) -> int:
    """The cycle after the last; nothing is issued beside what comes after a branch."""
    at = 0
    while at < len(slots):
        older = slots[at]
        now = max(cycle, earliest(older, ready))
        finish(older, now, ready)
        cycle, at = now + older.cycles, at + 1
        if at < len(slots) and together(older, slots[at]) and earliest(slots[at], ready, beside=older) <= now:
            finish(slots[at], now, ready)
            at += 1
    return cycle


def earliest(slot: Slot, ready: dict[str, Ready], beside: Slot | None = None) -> int:
    """`beside`: what is issued in the same cycle, whose results count as ready where `together` says so."""
    done = beside.writes if beside is not None else NONE
    late = slot.late - done
    times = [ready.get(name, READY).late - (slot.unit is Unit.STORE) for name in late]
    times += [ready.get(name, READY).early for name in slot.early]
    times += [ready.get(name, READY).factor for name in slot.factors]
    times += [ready.get(name, READY).added for name in slot.added - done]
    return max(times, default=0)


def finish(slot: Slot, now: int, ready: dict[str, Ready]) -> None:
    end = now + slot.cycles
    for name in slot.loads:
        wait = slot.narrow or slot.unit is Unit.MOVED
        ready[name] = Ready(end + wait, end + wait + 1, end + wait + 1, end)
    for name in slot.computes:
        ready[name] = _computed(slot, now, end)


def _computed(slot: Slot, now: int, end: int) -> Ready:
    match slot.unit:
        case Unit.PRODUCT:
            return Ready(now + 2, now + 3, now + 2, now + 1)
        case Unit.MOVED if slot.late:  # from the core
            return Ready(*(now + INTO_FPU_CYCLES,) * 4)
        case Unit.MOVED:
            return Ready(now + 2, now + 3, now + 2, now + 1)
        case Unit.FUSED:
            return Ready(*(now + FUSED_CYCLES,) * 3, now + CHAINED_CYCLES)
        case Unit.FLOAT:
            return Ready(*(end - 1 + FLOAT_CYCLES,) * 4)
        case Unit.LOAD | Unit.STORE:  # the address that it moves on
            return Ready(*(now + 1,) * 4)
        case _:
            return Ready(end, end if slot.quick or slot.unit is Unit.ALONE else end + 1, end, end)


def together(older: Slot, younger: Slot) -> bool:
    """Can they be issued in one cycle, if both are ready?"""
    units = (older.unit, younger.unit)
    if Unit.ALONE in units or units in APART or (older.shifts and younger.shifts):
        return False
    if older.word and younger.word and older.word[0] == younger.word[0] and (older.word[1] ^ younger.word[1]) & 4 == 0:
        return False  # both words are in the same bank
    if older.sets_flags and younger.reads_flags and younger.unit is not Unit.BRANCH:
        return False
    made = older.writes
    if made & (younger.early | younger.factors | younger.writes):
        return False
    if made & younger.late and younger.unit is not Unit.STORE and not older.quick:
        return False
    return not (made & younger.added and older.unit in (Unit.PRODUCT, Unit.LOAD))


LISTS = ("ldm", "stm", "push", "pop", "vldm", "vstm", "vpush", "vpop")
PRODUCTS = ("mul", "mla", "mls", "smla", "smul", "smml", "smmul", "umull", "umlal", "umaal", "smuad", "smusd", "smls")
BITS = (
    "sxt", "uxt", "sbfx", "ubfx", "bfi", "bfc", "rbit", "rev", "pkh", "ssat", "usat", "qadd", "qsub", "uadd", "sadd", "ssub",
    "usub", "shadd", "uhadd", "clz", "sel", "usad", "qdadd", "uqadd", "sasx",
)  # fmt: skip
EARLY_BITS = ("sbfx", "ubfx", "rbit", "rev", "pkh", "bfi", "sxta", "uxta")
FUSED = ("vmla", "vmls", "vnmla", "vnmls", "vfma", "vfms", "vfnma", "vfnms")
LONG_PRODUCTS = ("umlal", "smlal", "umaal")
QUICK = {"add", "sub", "adr", "mov", "lsl", "lsr", "asr", "ror", "movw", "movt"}
SHIFTS = {"lsl", "lsr", "asr", "ror", "mov"}
DIVISION_CYCLES, FLOAT_DIVISION_CYCLES = 6, 15


def slot_of(
    name: str, text: str, registers: list[str], read: frozenset[str], written: frozenset[str], address: frozenset[str],
    shifted: frozenset[str],
) -> Slot:  # fmt: skip
    """Of an instruction: its name without condition and width, the text of its operands, the registers among them in order, those
    that it reads, writes, makes an address of, and shifts first."""
    if name.startswith(LISTS) or name in ("ldrd", "strd"):
        return _list(name, text, registers, read, written, address)
    if name.startswith(("ldr", "vldr")):
        unit = Unit.MOVED if name[0] == "v" else Unit.LOAD
        narrow = name[3:].startswith(("b", "h", "sb", "sh"))
        return Slot(unit, early=address, computes=written & address, loads=written - address, narrow=narrow)
    if name.startswith(("str", "vstr")):
        return Slot(Unit.STORE, late=read - address, early=address, computes=written)
    if name.startswith("v"):
        return _float(name, registers, read, written)
    if name.startswith(PRODUCTS):
        return _product(name, registers, read, written)
    if name in ("sdiv", "udiv"):
        return Slot(Unit.ALONE, late=read, computes=written, cycles=DIVISION_CYCLES)
    if name.startswith(BITS):
        early = read if name.startswith(EARLY_BITS) else NONE
        return Slot(Unit.BITS, late=read - early, early=early, computes=written)
    if name in ("b", "bl", "bx", "blx", "cbz", "cbnz", "tbb", "tbh") or "pc" in written:
        return Slot(Unit.BRANCH, late=read)
    shifts = bool(shifted) and name not in SHIFTS
    early = shifted if shifts else NONE
    return Slot(Unit.PLAIN, late=read - early, early=early, computes=written, shifts=shifts, quick=name in QUICK and not shifts)


def _list(
    name: str, text: str, registers: list[str], read: frozenset[str], written: frozenset[str], address: frozenset[str]
) -> Slot:
    """Two registers a cycle, and nothing beside them."""
    stack = name.endswith(("push", "pop"))
    base = address or frozenset({"sp" if stack else registers[0]})
    words = 2 if name in ("ldrd", "strd") else len(registers) - (not stack)
    words *= 2 if "{d" in text else 1
    cycles = max(1, -(-words // 2))
    if name.startswith(("ldm", "ldrd", "pop", "vldm", "vpop")):
        return Slot(Unit.ALONE, early=base, computes=written & base, loads=written - base, cycles=cycles)
    return Slot(Unit.ALONE, late=read - base, early=base, computes=written, cycles=cycles)


def _float(name: str, registers: list[str], read: frozenset[str], written: frozenset[str]) -> Slot:
    if name in ("vmrs", "vmsr") or (name == "vmov" and len(registers) < 3):
        inward = frozenset(r for r in read if r[0] not in "sd" or r in ("sp", "sb", "sl"))
        return Slot(Unit.MOVED, late=inward, factors=read - inward, computes=written)
    if name == "vmov":
        return Slot(Unit.ALONE, late=read, computes=written)
    if name.startswith(FUSED):
        return Slot(Unit.FUSED, factors=frozenset(registers[1:]), added=frozenset(registers[:1]), computes=written)
    cycles = FLOAT_DIVISION_CYCLES if name.startswith(("vdiv", "vsqrt")) else 1
    return Slot(Unit.FLOAT, late=read, computes=written, cycles=cycles)


def _product(name: str, registers: list[str], read: frozenset[str], written: frozenset[str]) -> Slot:
    if name.startswith(LONG_PRODUCTS):
        return Slot(Unit.PRODUCT, factors=frozenset(registers[2:4]), added=frozenset(registers[:2]), computes=written)
    if name in ("umull", "smull") or len(registers) < 4:
        return Slot(Unit.PRODUCT, factors=read, computes=written)
    return Slot(Unit.PRODUCT, factors=frozenset(registers[1:3]), added=frozenset(registers[3:]), computes=written)
