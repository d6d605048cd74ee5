"""In which order the layers of a stripe make their rows, and how many rows each window between them has to keep.

The last layer is asked for its next rows; each layer asks those before it for the rows that it needs and that are not there yet.
So every row is made once, and as late as possible. Going `up` the same happens with the rows counted from the bottom: `progress`
counts them in the order in which they are made.

Where the caller says how many rows there are (`T=1..512`), the order of the largest size holds for every other one up to a
point, from which on its last rows are in sight: an `End` is what comes instead from there on. It goes down only.

    T=5    order of T=512, the first 7 steps, then 2 of its own
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from intaglio.ir.graph import Node, Value
from intaglio.ir.sizes import Size, least, most, names_of, pinned
from intaglio.ops.rows import Access, Need, NoRows, access_of, need, row_bytes

TAKE = -1  # "layer" that takes a row of a fed input
MOST_FIRINGS = 60_000
MOST_ENDS = 4_096
LOOKED_AT = 24  # of the ends: the shortest, and the longest; the checker looks at all


@dataclass(frozen=True, slots=True)
class Fired:
    """A layer makes rows first..first+count of its result; `needs` are the rows of its operands."""

    node: int
    first: int
    count: int
    needs: tuple[Need | None, ...] = ()


@dataclass(frozen=True, slots=True)
class End:
    """How it goes for one number of rows: the first `upto` steps of the largest size, then these. `done`: the rows that each layer
    has made by then."""

    upto: int
    done: tuple[int, ...]
    fired: tuple[Fired, ...]


@dataclass(slots=True)
class Schedule:
    nodes: list[Node]
    axis: int
    up: bool
    fired: list[Fired] = field(default_factory=list)
    windows: dict[Value, int] = field(default_factory=dict)  # rows
    alive: dict[Value, tuple[int, int]] = field(default_factory=dict)  # while which nodes a window matters
    ins: list[Value] = field(default_factory=list)  # whole, from outside
    outs: list[Value] = field(default_factory=list)  # whole, needed outside
    apart: dict[tuple[Value, Value], int] = field(default_factory=dict)  # (lower, upper): least distance in bytes
    size: str = ""  # that says how many rows there are, where the caller does
    ends: dict[int, End] = field(default_factory=dict)  # for each value of it

    def rows_of(self, value: Value) -> int:
        """The largest number of rows."""
        return most(value.shape[self.axis])


Needs = tuple[Need | None, ...]


class Geometry:
    """What each layer needs for its n-th rows: the same in every stripe, so it is found once. `sizes`: of those of the caller that
    rows depend on; the largest where nothing is said."""

    def __init__(self, axis: int, sizes: Mapping[str, int] | None = None) -> None:
        self.axis, self.sizes = axis, sizes or {}
        self._accesses: dict[Node, tuple[Access | None, ...]] = {}
        self._needs: dict[tuple[Node, int, bool, int], Needs] = {}

    def at(self, sizes: Mapping[str, int]) -> Geometry:
        found = Geometry(self.axis, sizes)
        found._accesses = self._accesses
        return found

    def rows(self, value: Value) -> int:
        return most(pinned(value.shape[self.axis], self.sizes))

    def accesses(self, node: Node) -> tuple[Access | None, ...]:
        if node not in self._accesses:
            self._accesses[node] = access_of(node, self.axis)
        return self._accesses[node]

    def needs(self, node: Node, rows: int, up: bool, step: int) -> Needs:
        """For the first `rows` rows (step 0), the next ones, and so on, in rows as they are, whichever way it goes."""
        key = (node, rows, up, step)
        if key not in self._needs:
            total, first = self.rows(node.output), step * rows
            count = min(rows, total - first)
            actual = total - first - count if up else first
            pairs = zip(node.inputs, self.accesses(node), strict=True)
            here = [None if a is None or v is None else need(a, actual, count, self.rows(v)) for v, a in pairs]
            self._needs[key] = tuple(here)
        return self._needs[key]


def schedule(
    nodes: list[Node], kept: set[Value], rows: int, *, axis: int = 1, up: bool = False, fed: Value | None = None,
    geometry: Geometry | None = None, ends: bool = True,
) -> Schedule:  # fmt: skip
    """`kept`: values that somebody else reads later. `fed`: the input whose rows come one by one. Without `ends`, only the largest
    size is looked at. Raises NoRows."""
    geometry = geometry or Geometry(axis)
    plan = _Plan(nodes, kept, rows, up, fed, geometry)
    size = rows_by(nodes, plan.accesses, axis)
    if size is not None and (up or fed is not None):
        raise NoRows(f"the caller says how many rows there are (`{size}`), so that they can only go down")
    found = plan.made()
    if size is not None and ends:
        _add_ends(found, plan, geometry, size, kept)
    return found


def rows_by(nodes: list[Node], accesses: list[tuple[Access | None, ...]], axis: int) -> Size | None:
    """The size of the caller that says how many rows there are; None if that is known. Raises NoRows if there are several."""
    values = [node.output for node in nodes]
    for node, found in zip(nodes, accesses, strict=True):
        values += [v for v, a in zip(node.inputs, found, strict=True) if v is not None and a is not None]
    moving = [v.shape[axis] for v in values if isinstance(v.shape[axis], Size)]
    names = {name for n in moving for name in names_of(n)}
    if len(names) > 1:
        raise NoRows(f"the number of rows depends on several sizes: {', '.join(sorted(names))}")
    if not moving:
        return None
    size = moving[0].bounds.size(next(iter(names)))  # type: ignore[attr-defined]
    assert isinstance(size, Size)
    if most(size) - least(size) >= MOST_ENDS:
        raise NoRows(f"`{size}` has more than {MOST_ENDS:,} values")
    return size


def _add_ends(found: Schedule, plan: _Plan, geometry: Geometry, size: Size, kept: set[Value]) -> None:
    """How it goes for smaller numbers of rows: windows and distances are for all of them."""
    found.size = str(size)
    numbers = range(least(size), most(size) + 1)
    looked = {*numbers[:LOOKED_AT], *numbers[-LOOKED_AT:]}
    known = 0  # what is right for a number of rows is right for larger ones
    for number in numbers:
        shorter = _Plan(found.nodes, kept, plan.rows, False, None, geometry.at({found.size: number}), plan.totals)
        known, end = shorter.after(plan, known)
        found.ends[number] = end
        for value, rows in shorter.cap.items():
            found.windows[value] = max(found.windows[value], rows)
        if number not in looked:
            continue
        shorter.out.fired = [*found.fired[: end.upto], *end.fired]
        shorter.finish()
        for value, (low, high) in shorter.out.alive.items():
            found.alive[value] = (min(low, found.alive[value][0]), max(high, found.alive[value][1]))
        for pair, distance in shorter.out.apart.items():
            found.apart[pair] = max(distance, found.apart[pair])


class _Plan:
    def __init__(
        self, nodes: list[Node], kept: set[Value], rows: int, up: bool, fed: Value | None, geometry: Geometry,
        shares: list[int] | None = None,
    ) -> None:  # fmt: skip
        self.rows, self.axis, self.fed, self.geometry = rows, geometry.axis, fed, geometry
        self.out = Schedule(nodes, self.axis, up)
        self.accesses = [geometry.accesses(node) for node in nodes]
        self.totals = [geometry.rows(node.output) for node in nodes]
        self.shares = shares or self.totals  # of all rows, by which several results take turns
        self.states: list[tuple[int, tuple[int, ...]]] = []  # steps, and rows that were made by then
        self.maker = {node.output: n for n, node in enumerate(nodes)}
        self.out.outs = [node.output for node in nodes if node.output in kept]
        self.readers: dict[Value, list[tuple[int, int]]] = {}
        for n, (node, accesses) in enumerate(zip(nodes, self.accesses, strict=True)):
            for i, (value, access) in enumerate(zip(node.inputs, accesses, strict=True)):
                if value is not None and access is not None:
                    self.readers.setdefault(value, []).append((n, i))
                    if value not in self.maker and value is not fed and value not in self.out.ins:
                        self.out.ins.append(value)
                elif value in self.maker or (value is not None and value is fed):
                    raise NoRows(f"`{node.output.name}` needs all of `{value.name}` at once")
        unread = [node.output for node in nodes if node.output not in kept and node.output not in self.readers]
        if unread:
            raise NoRows(f"no layer reads `{unread[0].name}`")
        self.done = dict.fromkeys(range(len(nodes)), 0)
        self.taken = 0
        rolling = [v for v in self.maker if v not in kept]
        self.rolling = [*rolling, fed] if fed is not None else rolling
        self.cap = dict.fromkeys(self.rolling, 0)

    # The order ------------------------------------------------------------------------------------------------------------

    def made(self) -> Schedule:
        self._go()
        self.finish()
        return self.out

    def _go(self) -> None:
        sinks = [n for n, node in enumerate(self.out.nodes) if node.output in self.out.outs]
        while pending := [n for n in sinks if self.done[n] < self.totals[n]]:
            self.states.append((len(self.out.fired), tuple(self.done.values())))
            self._fire(min(pending, key=lambda n: (self.done[n] / max(1, self.shares[n]), -n)))
        if self.fed is not None:
            while self.taken < self.geometry.rows(self.fed):  # rows that nobody needs are taken and dropped
                self._take()

    def finish(self) -> None:
        self.out.windows = self.cap
        self._find_alive()
        self._find_overlaps()

    def after(self, larger: _Plan, known: int) -> tuple[int, End]:
        """The steps of the largest size as long as no layer is at the end of its rows, then its own. `known`: of the states of the
        largest, one that is reached for sure; the one that was reached is the other result."""
        while known + 1 < len(larger.states):
            steps, state = larger.states[known + 1]
            if any(n > total for n, total in zip(state, self.totals, strict=True)):
                break
            if any(not self._same(fired) for fired in larger.out.fired[larger.states[known][0] : steps]):
                break
            known += 1
        upto, done = larger.states[known] if larger.states else (0, (0,) * len(self.out.nodes))
        self.done = dict(enumerate(done))
        self._go()
        return known, End(upto, done, tuple(self.out.fired))

    def _same(self, fired: Fired) -> bool:
        """Does this step of a larger size need the same here?"""
        node = self.out.nodes[fired.node]
        if fired.first + fired.count > self.totals[fired.node] or fired.count < self.rows:
            return False
        pairs = zip(node.inputs, fired.needs, strict=True)
        return all(w is None or v is None or (w.bottom == 0 and w.high <= self.geometry.rows(v)) for v, w in pairs)

    def _produced(self, value: Value) -> int:
        return self.taken if value is self.fed else self.done[self.maker[value]]

    def _fire(self, n: int) -> None:
        node, total = self.out.nodes[n], self.totals[n]
        first = self.done[n]
        count = min(self.rows, total - first)
        needs = self.geometry.needs(node, self.rows, self.out.up, first // self.rows)
        for value, wanted in zip(node.inputs, needs, strict=True):
            if value is None or wanted is None or (value not in self.maker and value is not self.fed):
                continue
            upto = self.geometry.rows(value) - wanted.low if self.out.up else wanted.high
            while self._produced(value) < upto:
                self._take() if value is self.fed else self._fire(self.maker[value])
        self.done[n] = first + count
        self._append(Fired(n, total - first - count if self.out.up else first, count, needs))
        if node.output in self.cap:
            self._keep(node.output, count)

    def _take(self) -> None:
        assert self.fed is not None
        total = self.geometry.rows(self.fed)
        self.taken += 1
        self._append(Fired(TAKE, total - self.taken if self.out.up else self.taken - 1, 1))
        self._keep(self.fed, 1)

    def _append(self, fired: Fired) -> None:
        if len(self.out.fired) >= MOST_FIRINGS:
            raise NoRows("it takes too many steps")
        self.out.fired.append(fired)

    def _keep(self, value: Value, new: int) -> None:
        """After `new` rows came: how many rows, counted from the newest, are still needed?"""
        produced = self._produced(value)
        oldest = produced - new
        for n, i in self.readers.get(value, []):
            oldest = min(oldest, self._oldest(value, n, i, produced))
        self.cap[value] = max(self.cap[value], produced - oldest)

    def _oldest(self, value: Value, n: int, operand: int, produced: int) -> int:
        """The progress of the first row that reader `n` needs from now on."""
        first = self.done[n]
        if first >= self.totals[n]:
            return produced
        wanted = self.geometry.needs(self.out.nodes[n], self.rows, self.out.up, first // self.rows)[operand]
        assert wanted is not None
        return self.geometry.rows(value) - wanted.high if self.out.up else wanted.low

    # Who is alive when ----------------------------------------------------------------------------------------------------

    def _find_alive(self) -> None:
        """A window matters from the time a row comes until the row is read for the last time."""
        fired, nodes = self.out.fired, self.out.nodes
        last: dict[Value, dict[int, int]] = {v: {} for v in self.rolling}  # the last time that each row is read
        for time in range(len(fired) - 1, -1, -1):
            if fired[time].node != TAKE:
                for value, wanted in zip(nodes[fired[time].node].inputs, fired[time].needs, strict=True):
                    if wanted is not None and value in last:
                        known = last[value]
                        for row in range(wanted.low, wanted.high):
                            known.setdefault(row, time)
        makers = {(TAKE if v is self.fed else self.maker[v]): v for v in self.rolling}
        end = dict.fromkeys(self.rolling, -1)
        spans = {v: [max(maker, 0), max(maker, 0)] for maker, v in makers.items()}
        live: set[Value] = set()
        for time, each in enumerate(fired):
            made = makers.get(each.node)
            if made is not None:
                known = last[made]
                newest = max(known.get(row, time) for row in range(each.first, each.first + each.count))
                end[made] = max(end[made], newest)
                live.add(made)
            if each.node != TAKE:
                for value in live:
                    span = spans[value]
                    if each.node < span[0]:
                        span[0] = each.node
                    elif each.node > span[1]:
                        span[1] = each.node
            live = {v for v in live if end[v] > time}
        for value, (low, high) in spans.items():
            self.out.alive[value] = (0 if value is self.fed else low, high)

    def _find_overlaps(self) -> None:
        """How far below a whole operand a whole result may lie (going up: above), so that no row is overwritten that is needed."""
        for source in self.out.ins:
            for result in self.out.outs:
                least = self._distance(source, result)
                self.out.apart[(source, result) if self.out.up else (result, source)] = least

    def _distance(self, source: Value, result: Value) -> int:
        size, made = row_bytes(source, self.axis), row_bytes(result, self.axis)
        maker = self.maker[result]
        edge: int | None = None  # of what is still needed: the lowest row; going up, the one behind the highest
        pairs: dict[tuple[int, int], None] = {}  # rows of the result that must not reach so many rows of the source
        for fired in reversed(self.out.fired):
            if fired.node == TAKE:
                continue
            for value, wanted in zip(self.out.nodes[fired.node].inputs, fired.needs, strict=True):
                if value is source and wanted is not None:
                    edge = (wanted.high if edge is None else max(edge, wanted.high)) if self.out.up else (
                        wanted.low if edge is None else min(edge, wanted.low)
                    )  # fmt: skip
            if fired.node == maker and edge is not None:
                pairs[(-fired.first, -edge) if self.out.up else (fired.first + fired.count, edge)] = None
        found = most(-self.geometry.rows(source) * size - self.geometry.rows(result) * made)
        return max([found, *(most(rows * made - edge * size) for rows, edge in _farthest(pairs))])


def _farthest(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Of pairs (a, b), those that can be the largest `a * x - b * y` for some x and y that are not negative."""
    best: dict[int, int] = {}
    for a, b in pairs:
        best[b] = max(a, best.get(b, a))
    found: list[tuple[int, int]] = []
    for b in sorted(best):
        if not found or best[b] > found[-1][0]:
            found.append((best[b], b))
    return found


__all__ = ["TAKE", "Access", "End", "Fired", "Schedule", "schedule"]
