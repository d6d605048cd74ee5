"""Forests in Thumb-2 assembly: for cores with an FPU, where `tree_functions.py` has the same in C.

    ig_forest_3f2a91c0_7:                      trees_assembly: a function for each tree. The features that are asked most often
        ldrd r1, r2, 3f; cmp r4, r1; bhi 1f    stay in r4 to r11 for all trees, others are loaded: ldr r0, [r3, #4]
        cmp r9, r2; bls 2f                     the second threshold came with the first
        movs r0, #12; bx lr                    the number of a leaf

A step is three instructions, two where the threshold of the larger subtree was loaded together with that of its parent. The larger
subtree follows: it is entered more often, and a branch that is not taken costs a cycle. A leaf that a tree has several times is
written where no branch is far from it; the most frequent leaves have the smallest numbers, which are 16 bits of code. Of a forest
of 100 trees of depth 10 with 30 features (35,284 nodes) on a Cortex-M4F, 0.71 of the instructions of functions in C and 0.93 of
their bytes.

Keys of features are unsigned here: a float as a whole number of the same order (`order` of `ops/fixed_point.py`), plus `BIAS`, so
that -infinity is 0. NaN of either sign is above infinity, without a comparison. Features that are whole numbers stay as they are;
those that are not in a register are loaded from the row itself, and many thresholds are part of the comparison. Where missing
values go left at some nodes, keys have 31 bits, and a missing value has the highest bit: these nodes compare with signs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.tree_tables import Tables, subtree_sizes

BIAS = 0x7F800001
NEVER = -(2**31)  # the threshold that nothing is below
BYTE = 256  # numbers below are 16 bits of code
REGISTERS = 8  # r4 to r11
MOST_WORDS = 1024  # what an offset of 12 bits reaches
REACH, NEAR = 1000, 230  # bytes: a constant behind its load, a label at both sides of a conditional branch of 16 bits
LARGEST_STEP, LEAF_BYTES = 14, 6
MOST_CHARACTERS = 4000  # of a string in C99: 4095
PARAMETERS = ("const float *x", "int32_t *k", "const float *weights", "float *y")  # r0 to r3
C_TYPES = {
    DType.F32: "float", DType.I32: "int32_t", DType.I8: "int8_t", DType.U8: "uint8_t", DType.I16: "int16_t", DType.U16: "uint16_t",
}  # fmt: skip
LOADS = {DType.I8: ("ldrsb", 1), DType.U8: ("ldrb", 1), DType.I16: ("ldrsh", 2), DType.U16: ("ldrh", 2)}
_REFERENCE = re.compile(r"@(\d+)@")


def overlapping(tables: Tables, width: int) -> tuple[Array, list[int]]:
    """Weights of all leaves, and where those of each begin. The leaves that are named most often come first; of the others, one
    begins with the last numbers of another where it can: (0, 1, 2, 0) and (2, 0, 0, 3) are six numbers."""
    named = Counter(tables.children[tables.children < 0].tolist()) + Counter(tables.roots[tables.roots < 0].tolist())
    rows = [row.tobytes() for row in tables.weights.reshape(-1, width)]
    order = sorted(range(len(rows)), key=lambda leaf: (-named[-1 - leaf], leaf))
    first = BYTE // width
    chosen, starts = order[:first], [0] * len(rows)
    overlap = _overlaps(order[first:], rows, width)
    followed = {after for after, _ in overlap.values()}
    held = bytearray()
    for leaf in chosen + [leaf for leaf in order[first:] if leaf not in followed]:
        shared = 0
        while True:
            starts[leaf] = len(held) // 4 - shared
            held += rows[leaf][4 * shared :]
            if leaf not in overlap:
                break
            leaf, shared = overlap[leaf]
    held += bytes(-len(held) % (4 * width))
    return np.frombuffer(bytes(held), np.float32), starts


def _overlaps(leaves: list[int], rows: list[bytes], width: int) -> dict[int, tuple[int, int]]:
    """For a leaf the one that goes on with its last numbers, and how many these are; most numbers first, without a circle."""
    found: dict[int, tuple[int, int]] = {}
    taken: set[int] = set()
    end = {leaf: leaf for leaf in leaves}  # of the row that a leaf begins
    begin = dict(end)
    for shared in range(width - 1, 0, -1):
        starting: dict[bytes, list[int]] = {}
        for leaf in reversed(leaves):
            if leaf not in taken:
                starting.setdefault(rows[leaf][: 4 * shared], []).append(leaf)
        for leaf in leaves:
            waiting = starting.get(rows[leaf][-4 * shared :], []) if leaf not in found else []
            after = next((other for other in reversed(waiting[-2:]) if end[other] != leaf), None)
            if after is not None:
                waiting.remove(after)
                taken.add(after)
                found[leaf] = (after, shared)
                begin[end[after]], end[begin[leaf]] = begin[leaf], end[after]
    return found


def slots_of(tables: Tables) -> tuple[int, ...]:
    """The features that are asked, most often first: a node of depth d counts 2**-d."""
    weight: dict[int, float] = {}
    for root in tables.roots.tolist():
        waiting = [(root, 1.0)]
        while waiting:
            node, share = waiting.pop()
            if node >= 0:
                feature = int(tables.features[node])
                weight[feature] = weight.get(feature, 0.0) + share
                waiting += [(int(child), share / 2) for child in tables.children[node]]
    return tuple(feature for feature, _ in sorted(weight.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True)
class Row:
    """Where features are: `slots` in the order of how often they are asked, of `count`, of a type. Floats have become keys."""

    slots: tuple[int, ...]
    count: int
    dtype: DType
    least: int | None  # of `short_order`

    @property
    def bias(self) -> int:
        return BIAS if self.dtype.is_float and self.least is None else 0

    def load(self, register: str, slot: int) -> str:
        """One that is in no register of its own."""
        if self.dtype.is_float:
            return f"ldr {register}, [r3, #{4 * (slot - REGISTERS)}]"
        instruction, size = LOADS[self.dtype]
        return f"{instruction} {register}, [r3, #{size * self.slots[slot]}]"

    @property
    def parameters(self) -> tuple[str, ...]:
        """In C: in r0 and up."""
        return PARAMETERS if self.dtype.is_float else (f"const {C_TYPES[self.dtype]} *x", *PARAMETERS[2:])


def is_immediate(number: int) -> bool:
    """Does a comparison of Thumb-2 have room for it? 8 bits, shifted, or once or twice in each half of a word."""
    low, high = number & 0xFF, number & 0xFF00
    if number in (low | low << 16, high | high << 16, low * 0x01010101):
        return True
    return number < 1 << 32 and number.bit_length() - (number & -number).bit_length() < 8


@dataclass(slots=True)
class _Waiting:
    """Branches to a leaf that is not written yet."""

    label: int
    since: int
    count: int = 1


@dataclass(slots=True)
class _Writer:
    """One tree. `at` is an upper bound of the bytes so far, `likely` has short branches; a line may name labels as `@3@`."""

    row: Row
    features: list[int]  # slots
    limits: list[int]
    signed: list[bool]  # comparisons
    children: list[list[int]]
    sizes: dict[int, int]
    numbers: list[int]  # of leaves: where their weights are
    at: int = 0
    likely: int = 0
    lines: list[tuple[list[int], str]] = field(default_factory=list)
    labels: int = 0
    leaves: dict[int, tuple[int, int]] = field(default_factory=dict)  # label and likely place of the last one written
    waiting: dict[int, _Waiting] = field(default_factory=dict)
    same: dict[int, int] = field(default_factory=dict)
    pool: list[tuple[int, int]] = field(default_factory=list)  # label and word
    held: dict[tuple[int, ...], int] = field(default_factory=dict)
    loaded: int = 0  # where the first constant of the pool is loaded

    def text(self, root: int) -> list[str]:
        self._node(self._resolved(root))
        self._between(last=True)
        where = {label: n for n, (labels, _) in enumerate(self.lines) for label in labels}
        return [self._told(n, where) for n in range(len(self.lines))]

    def _told(self, n: int, where: dict[int, int]) -> str:
        def name(found: re.Match[str]) -> str:
            label = self.same.get(int(found[1]), int(found[1]))
            return f"{label}{'b' if where[label] <= n else 'f'}"

        labels, line = self.lines[n]
        return "".join(f"{label}: " for label in labels) + _REFERENCE.sub(name, line)

    def _label(self) -> int:
        self.labels += 1
        return self.labels

    def _put(self, size: int, line: str, *labels: int, most: int = 0) -> None:
        self.lines.append(([*labels], line))
        self.likely += size
        self.at += most or size

    def _resolved(self, place: int) -> int:
        """Where a walk goes on from nodes that every row leaves to the right."""
        while place >= 0 and self.limits[place] == NEVER:
            place = self.children[place][1]
        return place

    def _node(self, place: int, *labels: int, paired: bool = False, held: int = -1) -> None:
        """`paired`: its threshold is in r2; `held`: the feature that is in r0."""
        if place < 0:
            self._leaf(-1 - place, *labels)
            return
        below = [self._resolved(child) for child in self.children[place]]
        right = self._follows(*below)
        next_one, other = below[right], below[1 - right]
        steps, threshold, size, pairs = [], "r1", 4, False
        if paired:
            threshold = "r2"
        elif self._immediate(place):
            threshold, size = f"#{self.limits[place]}", 6
        elif pairs := next_one >= 0 and not self._immediate(next_one):
            steps.append(f"ldrd r1, r2, @{self._constant(self._key(place), self._key(next_one))}@")
        else:
            steps.append(f"ldr.n r1, @{self._constant(self._key(place))}@")
        branches = ("bgt", "ble") if self.signed[place] else ("bhi", "bls")  # above the threshold, and not above
        slot = self.features[place]
        loads = slot >= REGISTERS and slot != held
        if loads:
            steps.append(self.row.load("r0", slot))
            held = slot
        to = self._label() if other >= 0 else self._branch(-1 - other)
        steps += [f"cmp {f'r{4 + slot}' if slot < REGISTERS else 'r0'}, {threshold}", f"{branches[right]} @{to}@"]
        size += (4 if pairs else 2 if threshold == "r1" else 0) + (2 if loads else 0)
        self._put(size, "; ".join(steps), *labels, most=LARGEST_STEP)
        self._node(next_one, paired=pairs, held=held)
        if other >= 0:
            self._between(self._way(other))
            self._node(other, to, held=held)

    def _key(self, place: int) -> int:
        return (self.limits[place] + self.row.bias) & 0xFFFFFFFF

    def _immediate(self, place: int) -> bool:
        """Is the threshold part of the comparison?"""
        return not self.row.bias and is_immediate(abs(self.limits[place]))

    def _follows(self, low: int, high: int) -> int:
        """Which child is written behind its parent: the larger one; of two leaves, one that is not near."""
        if low >= 0 or high >= 0:
            return int(self.sizes.get(high, 0) > self.sizes.get(low, 0))
        return int(self._near(-1 - low) and not self._near(-1 - high))

    def _near(self, leaf: int) -> bool:
        return leaf in self.leaves and self.likely - self.leaves[leaf][1] < NEAR

    def _way(self, place: int) -> int:
        """At most so many bytes are written until the next place that nothing runs into."""
        count = 0
        while place >= 0:
            low, high = (self._resolved(child) for child in self.children[place])
            place = high if self.sizes.get(high, 0) > self.sizes.get(low, 0) else low
            count += 1
        return count * LARGEST_STEP + LEAF_BYTES

    def _leaf(self, leaf: int, *labels: int) -> None:
        held = self.waiting.pop(leaf, None)
        label = held.label if held is not None else self._label()
        self.leaves[leaf] = (label, self.likely)
        number = self.numbers[leaf]
        if number < 1 << 16:
            load = f"movs r0, #{number}" if number < BYTE else f"movw r0, #{number}"
        else:
            load = f"ldr.n r0, @{self._constant(number)}@"
        self._put(4 if number < BYTE else 6, f"{load}; bx lr", label, *labels, most=LEAF_BYTES)

    def _branch(self, leaf: int) -> int:
        if self._near(leaf):
            return self.leaves[leaf][0]
        if (held := self.waiting.get(leaf)) is not None:
            held.count += 1
            return held.label
        self.waiting[leaf] = _Waiting(self._label(), self.likely)
        return self.waiting[leaf].label

    def _between(self, ahead: int = 0, last: bool = False) -> None:
        """Nothing runs into this place: leaves that branches wait for, and constants."""
        if self.at + LEAF_BYTES * len(self.waiting) + ahead - self.loaded > REACH:
            self._constants()
        for leaf, held in list(self.waiting.items()):
            if not last and self.likely + ahead // 2 - held.since < NEAR:
                continue
            if leaf in self.leaves and (last or held.count <= 2):  # longer branches are less than another copy
                self.same[held.label] = self.leaves[leaf][0]
                del self.waiting[leaf]
            else:
                self._leaf(leaf)
        if last:
            self._constants()

    def _constants(self) -> None:
        if self.pool:
            self._put(2, ".balign 4")
        for label, word in self.pool:
            self._put(4, f".word {word:#x}", label)
        self.pool, self.held = [], {}

    def _constant(self, *words: int) -> int:
        """The label of these words, one behind the other. Loads are at least as far apart as their words: the first is the
        farthest from them."""
        if words not in self.held:
            self.loaded = self.loaded if self.pool else self.at
            labels = [self._label() for _ in words]
            self.pool += zip(labels, words, strict=True)
            self.held |= {(word,): label for word, label in zip(words, labels, strict=True)}
            self.held[words] = labels[0]
        return self.held[words]


def forest_text(name: str, tables: Tables, limits: Array, row: Row, numbers: list[int], targets: int) -> str:
    """The forest in C: functions of nothing but assembly. `limits` are the thresholds as whole numbers, `numbers` the places of the
    weights of leaves."""
    place = {feature: n for n, feature in enumerate(row.slots)}
    features = [place[feature] for feature in tables.features.tolist()]
    whole, pairs, sizes = limits.tolist(), tables.children.tolist(), subtree_sizes(tables)
    signed = [not row.dtype.is_float] * len(whole) if row.least is None else tables.missing.tolist()
    parts = [
        _function(f"{name}_{t}(void)", _statements(_Writer(row, features, whole, signed, pairs, sizes, numbers).text(root)))
        for t, root in enumerate(tables.roots.tolist())
    ]
    parameters = ", ".join(f"{parameter} __attribute__((unused))" for parameter in row.parameters)
    start, saved = (_keys(row), "r3-r11") if row.dtype.is_float else (_first_features(row), "r2, r4-r11")
    entry = _function(f"{name}({parameters})", [
        *_statements([f"push {{{saved}, lr}}", *start, "movs r0, #0", *(f"vmov s{n}, r0" for n in range(targets))]),
        *(_added(f"{name}_{t}", targets) for t in range(len(parts))),
        *_statements([f"ldr r3, [sp]; vstmia r3, {_floats(0, targets)}", f"pop {{{saved}, pc}}"]),
    ])  # fmt: skip
    return "\n\n".join([*parts, entry])


def _function(head: str, body: Iterable[str]) -> str:
    return "\n".join([f"static __attribute__((naked, noinline, unused)) void {head}", "{", *body, "}"])


def _keys(row: Row) -> Iterator[str]:
    """Keys of the features, four at a time: the most frequent ones stay in r4 to r11, others are stored behind r3."""
    constant = BIAS if row.least is None else row.least
    yield f"mov r12, r2; mov r3, r1; movw r2, #{constant & 0xFFFF}; movt r2, #{constant >> 16}"
    stored = range(REGISTERS, len(row.slots))
    groups = [stored[n : n + 4] for n in range(0, len(stored), 4)]
    for group in [*groups, range(min(REGISTERS, len(row.slots)))]:
        held = [(f"r{4 + n}", *divmod(row.slots[slot], row.count)) for n, slot in enumerate(group)]
        yield from (f"ldr {key}, [r0, #{4 * feature}]" for key, _, feature in held)
        for key, negated, _ in held:
            yield _key(key, bool(negated)) if row.least is None else _short_key(key)
        if group.start >= REGISTERS:
            yield from (f"str {key}, [r3, #{4 * (slot - REGISTERS)}]" for (key, _, _), slot in zip(held, group, strict=True))


def _key(key: str, negated: bool) -> str:
    opposite = f"mvn {key}, {key}; " if negated else ""
    return f"asrs r1, {key}, #31; eor {key}, {key}, r1, lsr #1; {opposite}add {key}, {key}, r2"


def _short_key(key: str) -> str:
    """`short_order`: the comparison sets flags, which only the last instruction reads."""
    above = f"bic r1, {key}, #0x80000000; cmp r1, #0x7f800000; sub.w r1, r1, r2; usat r1, #30, r1"
    return f"{above}; eor {key}, r1, {key}, asr #31; add {key}, {key}, #0x40000000; it hi; movhi {key}, #0x80000000"


def _first_features(row: Row) -> Iterator[str]:
    """Of a row of whole numbers: the most frequent features in r4 to r11, the row behind r3."""
    yield "mov r12, r1; mov r3, r0"
    yield from (row.load(f"r{4 + slot}", slot) for slot in range(min(REGISTERS, len(row.slots))))


def _added(tree: str, targets: int) -> str:
    """The name is an operand: compilers see that the function is called."""
    sums = "; ".join(f"vadd.f32 s{n}, s{n}, s{8 + n}" for n in range(targets))
    weights = f"add r0, r12, r0, lsl #2; vldmia r0, {_floats(8, targets)}"
    return f'    __asm__ volatile("bl %c0; {weights}; {sums}" : : "i"({tree}));'


def _floats(first: int, count: int) -> str:
    """A list of registers. GNU's assembler takes no range of one."""
    return f"{{s{first}-s{first + count - 1}}}" if count > 1 else f"{{s{first}}}"


def _statements(lines: Iterable[str]) -> Iterator[str]:
    """Strings of C99 have a limit."""
    held: list[str] = []
    for line in lines:
        if sum(map(len, held)) + len(held) + len(line) > MOST_CHARACTERS:
            yield _statement(held)
            held = []
        held.append(line)
    yield _statement(held)


def _statement(lines: list[str]) -> str:
    return "    __asm__ volatile(\n" + "\n".join(f'        "{line}\\n"' for line in lines) + ");"
