"""Stripes that make a program fit: which layers are made a few rows at a time, and how many rows.

Every run of layers that can be a stripe has a peak (what is alive while it is at work) and a cost (calls and rows that move, in
instructions). Over the layers in order, the cheapest way whose peaks all stay within the budget is a shortest path:

    layer      0     1     2     3     4     5
    whole      ok    no    no    no    ok    ok           0 -> [1..3] in stripes -> 4 -> 5
    stripe     ----------------  fits, 3 % slower

The plan itself is made by the same stages as always: lowered, placed, checked. Where offsets leave gaps, the budget is lowered a
little and the path searched again; the direction of stripes and the number of rows are tried last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from intaglio.errors import OurFault, UserError
from intaglio.ir.graph import Node, Value
from intaglio.ir.sizes import Undecided, largest, most, moves
from intaglio.ir.stripes import StripeSpec
from intaglio.kernels.lower import Memo, lower
from intaglio.kernels.program import Program
from intaglio.kernels.stripes.build import AXIS, schedule_of
from intaglio.kernels.stripes.schedule import Geometry, Schedule
from intaglio.memory import placed
from intaglio.memory.lifetimes import Buffer, align, find_storage
from intaglio.memory.planner import shared_bytes
from intaglio.ops.conv import Conv
from intaglio.ops.quantised import QConv
from intaglio.ops.rows import NoRows, access_of, row_bytes
from intaglio.targets.target import Target

LONGEST = 40  # layers in one stripe
HEIGHTS = (2, 4)  # rows that are tried beside 1
CALL, MOVED_BYTE = 70, 0.75  # instructions on a Cortex-M4: a step with its call, and a byte that moves
COLUMNS, LEFT_OVER = 4, 0.3  # kernels make so many columns at once; instructions for a multiply-add of one that is not there
MOST_TRIES = 6
WORTH = 0.02  # of all instructions: what stripes may cost before more rows at a time are tried
MOST_STEPS = 600_000  # of all schedules that are looked at: some seconds
MOST_ROWS = 16_384  # of a tensor in a stripe: more than any image has


@dataclass(frozen=True, slots=True)
class Section:
    """Layers `first` to `last` as one stripe: what is alive at most, and the instructions it costs."""

    first: int
    last: int
    rows: int
    peak: int
    extra: float
    down: bool = False  # only: the caller says how many rows there are


Choice = tuple[tuple[StripeSpec, ...], float]  # stripes, and the instructions they cost


@dataclass(frozen=True, slots=True)
class Squeezed:
    """A program that is placed, with the stripes it has and the instructions they cost, about."""

    program: Program
    specs: tuple[StripeSpec, ...]
    extra: float

    @property
    def arena_bytes(self) -> int:
        return self.program.arena_bytes


@dataclass(slots=True)
class Squeeze:
    """Looks for stripes of one graph. `program` is the one without any, placed. `fed`: rows of the input come one by one."""

    program: Program
    target: Target
    slots: bool
    fed: bool = False
    work: float = 0.0  # instructions of a run, about
    _sections: dict[tuple[int, int], Section | None] = field(default_factory=dict)
    _looked: int = 0
    _memo: Memo = field(default_factory=Memo)
    _views: frozenset[Node] = frozenset()
    _loads: list[int] = field(default_factory=list)
    _buffers: list[Buffer] = field(default_factory=list)
    _ready: list[bool] = field(default_factory=list)
    _geometry: Geometry = field(default_factory=lambda: Geometry(AXIS))

    def __post_init__(self) -> None:
        program, alignment = self.program, self.target.alignment
        self._views = frozenset(program.choices.views(program.graph))
        storage = find_storage(program, alignment, slots=self.slots)
        self._loads = [
            storage.state_bytes + sum(align(b.bytes, alignment) for b in storage.buffers if b.first <= n <= b.last)
            for n in range(len(program.layers))
        ]
        self._buffers = find_storage(program, alignment, in_place=False, slots=self.slots).buffers
        self._ready = [_has_rows(layer.node) for layer in program.layers]

    # Answers ----------------------------------------------------------------------------------------------------------------

    def within(self, budget: int) -> Squeezed | None:
        """The cheapest program whose arena is at most `budget`; None if there is none."""
        goal = budget
        for _ in range(MOST_TRIES):
            path = self._path(goal)
            if path is None:
                break
            found = self._fitting(path, budget)
            if isinstance(found, Squeezed):
                return found
            goal -= found
        least = self.smallest()
        return least if least is not None and least.arena_bytes <= budget else None

    def _fitting(self, path: list[Section], budget: int) -> Squeezed | int:
        """The program of a path, or by how many bytes it is too large."""
        plain = self._choice(path)
        found = self.program_with(*plain)
        if found is not None and found.arena_bytes > budget and not found.program.optimal:
            found = self.program_with(*self._turned(plain, budget))
        if found is None or found.arena_bytes > budget:
            return max(64, found.arena_bytes - budget if found is not None else 64)
        if found.extra <= WORTH * self.work:
            return found
        better = self.program_with(*self._higher((found.specs, found.extra), path, budget))
        return better if better is not None and better.arena_bytes <= budget else found

    def smallest(self) -> Squeezed | None:
        """The least arena there is with stripes; None if no layer can be in one."""
        low, high = 0, max(self._loads, default=0)
        if self._path(high) is None:
            return None
        while high - low > max(64, high // 200):
            middle = (low + high) // 2
            if self._path(middle) is None:
                low = middle
            else:
                high = middle
        path = self._path(high)
        assert path is not None
        plain = self._choice(path)
        found = self.program_with(*plain)
        if found is None or found.program.optimal:
            return found
        return self.program_with(*self._turned(plain, 0)) or found

    def fed_alone(self) -> Squeezed | None:
        """Rows of the input fed to the stripe with which least is alive, everything else as a whole."""
        start = self._first_reader()
        best: tuple[int, int, Section] | None = None
        for section in self._from(start, 1 << 62, always=True):
            others = [load for n, load in enumerate(self._loads) if not section.first <= n <= section.last]
            peak = max([section.peak, *others])
            if best is None or (peak, section.last) < best[:2]:
                best = (peak, section.last, section)
        return None if best is None else self.program_with(*self._choice([best[2]]))

    def without(self) -> Program:
        """The program as it was: nothing in stripes."""
        plain = self.program_with((), 0.0)
        assert plain is not None
        return plain.program

    # The path ---------------------------------------------------------------------------------------------------------------

    def _path(self, budget: int) -> list[Section] | None:
        """Sections in order; layers between them are made as a whole."""
        count = len(self.program.layers)
        best: list[tuple[float, list[Section]] | None] = [None] * (count + 1)
        best[0] = (0.0, [])
        start = self._first_reader() if self.fed else -1
        for n in range(count):
            here = best[n]
            if here is None:
                continue
            if self._loads[n] <= budget and n != start:
                _improve(best, n + 1, here)
            if start >= 0 and n > start and not here[1]:
                continue
            for section in self._from(n, budget, always=n == start):
                _improve(best, section.last + 1, (here[0] + section.extra, [*here[1], section]))
        end = best[count]
        return None if end is None else end[1]

    def _first_reader(self) -> int:
        given = set(self.program.graph.inputs)
        return next((n for n, layer in enumerate(self.program.layers) if given & set(layer.node.operands())), 0)

    def _from(self, first: int, budget: int, *, always: bool) -> Iterator[Section]:
        """Stripes from this layer on that help: one of their layers is too large as a whole."""
        hot = always
        for last in range(first, min(first + LONGEST, len(self.program.layers))):
            if not self._ready[last]:
                return
            hot = hot or self._loads[last] > budget
            if not hot:
                continue
            section = self._section(first, last)
            if section is not None and section.peak <= budget:
                yield section

    def _section(self, first: int, last: int) -> Section | None:
        key = (first, last)
        if key not in self._sections:
            if self._looked > MOST_STEPS:
                return None
            self._sections[key] = self._measured(first, last, 1)
        return self._sections[key]

    def _measured(self, first: int, last: int, rows: int) -> Section | None:
        made = [value for layer in self.program.layers[first : last + 1] for value in layer.node.outputs]
        if any(most(value.shape[AXIS]) > MOST_ROWS for value in made if value.type.rank > AXIS):
            return None  # a schedule has an entry for each row
        try:
            found = schedule_of(self.program.graph, self._spec(first, last, rows), self._views, self._geometry, ends=False)
        except (NoRows, UserError):
            return None
        self._looked += len(found.fired)
        extra = CALL * len(found.fired) + MOVED_BYTE * _moved(found) + LEFT_OVER * _left_over(found)
        down = any(moves(value.shape[AXIS : AXIS + 1]) for value in made)
        return Section(first, last, rows, self._peak(first, last, found), extra, down)

    def _spec(self, first: int, last: int, rows: int, *, up: bool = False) -> StripeSpec:
        layers = self.program.layers
        fed = self.fed and first == self._first_reader()
        return StripeSpec(layers[first].node.output.name, layers[last].node.output.name, rows, up, fed)

    def _peak(self, first: int, last: int, found: Schedule) -> int:
        step = self.target.alignment
        homes = {v: b for b in self._buffers for v in b.values}
        slots = {b.slot: b for b in self._buffers if b.slot is not None}
        for n, value in enumerate(self.program.graph.inputs):
            if ("input", n) in slots:
                homes[value] = slots["input", n]
        fed = next((v for v in found.windows if v in self.program.graph.inputs), None)
        states = [s.input for s in self.program.graph.states]
        homes_of_states = [(v, at) for v in states if (at := self.program.placement.of(v)) is not None]
        whole = max((at.offset + v.type.bytes for v, at in homes_of_states), default=0)
        for buffer in self._buffers:
            begins = -1 if buffer.slot is not None and buffer.slot[0] == "input" else buffer.first
            if buffer.scratch_of >= 0 or (fed is not None and homes.get(fed) is buffer):
                continue
            if (begins < first <= buffer.last) or (first <= begins <= last < buffer.last):
                whole += align(buffer.bytes, step)
        shared: dict[Buffer, int] = {}  # of several results of one operand, only one lies over it
        for (below, above), distance in found.apart.items():
            low, high = homes.get(below), homes.get(above)
            source = low if found.up else high
            if low is not None and high is not None and source is not None and source.last <= last:
                shared[source] = max(shared.get(source, 0), shared_bytes(low, high, align(distance, step), step))
        whole -= sum(shared.values())
        peaks = []
        for n in range(last - first + 1):
            windows = [
                align(rows * most(row_bytes(v, AXIS)), step)
                for v, rows in found.windows.items()
                if found.alive[v][0] <= n <= found.alive[v][1]
            ]
            peaks.append(whole + sum(windows) + align(self.program.layers[first + n].scratch_bytes, step))
        return max(peaks)

    # Programs ---------------------------------------------------------------------------------------------------------------

    def _choice(self, path: list[Section]) -> Choice:
        """Stripes that follow on each other go down and up in turn: then each result can take the memory of its operand, and
        they do not creep away."""
        specs: list[StripeSpec] = []
        for n, section in enumerate(path):
            after = n > 0 and path[n - 1].last + 1 == section.first
            up = after and not specs[-1].up and not section.down
            specs.append(self._spec(section.first, section.last, section.rows, up=up))
        return tuple(specs), sum(s.extra for s in path)

    def program_with(self, specs: tuple[StripeSpec, ...], extra: float, *, search: bool = True) -> Squeezed | None:
        """The whole line again, with these stripes. Without `search`, offsets are a first guess."""
        asked = replace(self.program.choices.only_views(), stripes=specs)
        try:
            program = lower(self.program.graph, self.target, asked, memo=self._memo)
            program = placed(program, self.target, slots=self.slots, search=search)
        except (NoRows, UserError, OurFault, Undecided):  # a plan that its checker refuses is none
            return None
        return Squeezed(program, specs, extra)

    def _turned(self, plain: Choice, budget: int) -> Choice:
        """Some stripes from the bottom up, if that leaves smaller gaps: results may then lie above their operands."""
        best, least = plain, self._arena(plain)
        for n, spec in enumerate(plain[0]):
            if least <= budget or spec.fed:
                continue
            trial = tuple(replace(s, up=not s.up) if m == n else s for m, s in enumerate(best[0])), best[1]
            if (size := self._arena(trial)) < least:
                best, least = trial, size
        return best

    def _higher(self, plain: Choice, path: list[Section], budget: int) -> Choice:
        """More rows at a time, where there is room: fewer calls."""
        best, now = plain, list(path)
        for rows in HEIGHTS:
            for n, section in enumerate(path):
                more = self._measured(section.first, section.last, rows)
                if more is None or more.extra >= now[n].extra or more.peak > budget:
                    continue
                specs = tuple(replace(s, rows=rows) if m == n else s for m, s in enumerate(best[0]))
                trial = specs, best[1] - now[n].extra + more.extra
                if self._arena(trial) <= budget:
                    best, now[n] = trial, more
        return best

    def _arena(self, choice: Choice) -> float:
        """A first guess of what it needs."""
        found = self.program_with(*choice, search=False)
        return math.inf if found is None else found.arena_bytes


def _improve(best: list[tuple[float, list[Section]] | None], at: int, way: tuple[float, list[Section]]) -> None:
    known = best[at]
    if known is None or (way[0], len(way[1])) < (known[0], len(known[1])):
        best[at] = way


def _has_rows(node: Node) -> bool:
    try:
        access_of(node, AXIS)
    except (NoRows, Undecided):
        return False
    return True


def _left_over(found: Schedule) -> float:
    """Multiply-adds of columns that tiles have and few rows have not: 5 columns take the time of 8."""
    total, known = 0.0, {}
    for fired in found.fired:
        key = (fired.node, fired.count)
        if key not in known:
            known[key] = 0.0 if fired.node < 0 else _wasted(found.nodes[fired.node], fired.count)
        total += known[key]
    return total


def _wasted(node: Node, rows: int) -> float:
    op, out = node.op, node.output
    if not isinstance(op, (Conv, QConv)) or op.group != 1:
        return 0.0
    columns = math.prod(largest(out.shape[AXIS + 1 : -1])) * rows
    whole = math.prod(largest(out.shape[:-1]))
    macs = most(op.macs([None if v is None else v.type for v in node.inputs], out.type))
    return macs / max(1, whole) * (-columns % COLUMNS)


def _moved(found: Schedule) -> float:
    total = 0
    makers: dict[int, Value] = {n: node.output for n, node in enumerate(found.nodes)}
    for fired in found.fired:
        value = makers.get(fired.node)
        if value is not None and value in found.windows:
            total += max(0, found.windows[value] - fired.count) * most(row_bytes(value, AXIS))
    return total
