"""In which order the layers of a stripe make their rows, and how many rows each window between them has to keep.

The last layer is asked for its next rows; each layer asks those before it for the rows that it needs and that are not there yet.
So every row is made once, and as late as possible. Going `up` the same happens with the rows counted from the bottom: `progress`
counts them in the order in which they are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from intaglio.ir.graph import Node, Value
from intaglio.ops.rows import Access, Need, NoRows, access_of, need, row_bytes, rows_of

TAKE = -1  # "layer" that takes a row of a fed input
MOST_FIRINGS = 60_000


@dataclass(frozen=True, slots=True)
class Fired:
    """A layer makes rows first..first+count of its result; `needs` are the rows of its operands."""

    node: int
    first: int
    count: int
    needs: tuple[Need | None, ...] = ()


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

    @property
    def window_bytes(self) -> int:
        return sum(rows * row_bytes(v, self.axis) for v, rows in self.windows.items())


Needs = tuple[Need | None, ...]


class Geometry:
    """What each layer needs for its n-th rows: the same in every stripe, so it is found once."""

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self._accesses: dict[Node, tuple[Access | None, ...]] = {}
        self._needs: dict[tuple[Node, int, bool], list[Needs]] = {}

    def accesses(self, node: Node) -> tuple[Access | None, ...]:
        if node not in self._accesses:
            self._accesses[node] = access_of(node, self.axis)
        return self._accesses[node]

    def needs(self, node: Node, rows: int, up: bool) -> list[Needs]:
        """For the first `rows` rows, the next ones, and so on, in rows as they are, whichever way it goes."""
        key = (node, rows, up)
        if key not in self._needs:
            if any(v is not None and v.type.moves for v in (*node.inputs, node.output)):
                raise NoRows(f"the caller says how large {node.output.name} is")
            total = rows_of(node.output, self.axis)
            found = []
            for first in range(0, total, rows):
                count = min(rows, total - first)
                actual = total - first - count if up else first
                pairs = zip(node.inputs, self.accesses(node), strict=True)
                here = [None if a is None or v is None else need(a, actual, count, rows_of(v, self.axis)) for v, a in pairs]
                found.append(tuple(here))
            self._needs[key] = found
        return self._needs[key]


def schedule(
    nodes: list[Node], kept: set[Value], rows: int, *, axis: int = 1, up: bool = False, fed: Value | None = None,
    geometry: Geometry | None = None,
) -> Schedule:  # fmt: skip
    """`kept`: values that somebody else reads later. `fed`: the input whose rows come one by one. Raises NoRows."""
    return _Plan(nodes, kept, rows, up, fed, geometry or Geometry(axis)).made()


class _Plan:
    def __init__(self, nodes: list[Node], kept: set[Value], rows: int, up: bool, fed: Value | None, geometry: Geometry) -> None:
        self.rows, self.axis, self.fed = rows, geometry.axis, fed
        self.out = Schedule(nodes, self.axis, up)
        self.accesses = [geometry.accesses(node) for node in nodes]
        self.needs = [geometry.needs(node, rows, up) for node in nodes]
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
        total = [rows_of(node.output, self.axis) for node in self.out.nodes]
        sinks = [n for n, node in enumerate(self.out.nodes) if node.output in self.out.outs]
        while pending := [n for n in sinks if self.done[n] < total[n]]:
            self._fire(min(pending, key=lambda n: (self.done[n] / total[n], -n)))
        if self.fed is not None:
            while self.taken < rows_of(self.fed, self.axis):  # rows that nobody needs are taken and dropped
                self._take()
        self.out.windows = self.cap
        self._find_alive()
        self._find_overlaps()
        return self.out

    def _produced(self, value: Value) -> int:
        return self.taken if value is self.fed else self.done[self.maker[value]]

    def _fire(self, n: int) -> None:
        node = self.out.nodes[n]
        total = rows_of(node.output, self.axis)
        first = self.done[n]
        count = min(self.rows, total - first)
        needs = self.needs[n][first // self.rows]
        for value, wanted in zip(node.inputs, needs, strict=True):
            if value is None or wanted is None or (value not in self.maker and value is not self.fed):
                continue
            upto = rows_of(value, self.axis) - wanted.low if self.out.up else wanted.high
            while self._produced(value) < upto:
                self._take() if value is self.fed else self._fire(self.maker[value])
        self.done[n] = first + count
        self._append(Fired(n, total - first - count if self.out.up else first, count, needs))
        if node.output in self.cap:
            self._keep(node.output, count)

    def _take(self) -> None:
        assert self.fed is not None
        total = rows_of(self.fed, self.axis)
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
        total = rows_of(self.out.nodes[n].output, self.axis)
        first = self.done[n]
        if first >= total:
            return produced
        wanted = self.needs[n][first // self.rows][operand]
        assert wanted is not None
        return rows_of(value, self.axis) - wanted.high if self.out.up else wanted.low

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
        found = -rows_of(source, self.axis) * size - rows_of(result, self.axis) * made
        for fired in reversed(self.out.fired):
            if fired.node == TAKE:
                continue
            for value, wanted in zip(self.out.nodes[fired.node].inputs, fired.needs, strict=True):
                if value is source and wanted is not None:
                    edge = (wanted.high if edge is None else max(edge, wanted.high)) if self.out.up else (
                        wanted.low if edge is None else min(edge, wanted.low)
                    )  # fmt: skip
            if fired.node != maker or edge is None:
                continue
            if self.out.up:
                found = max(found, edge * size - fired.first * made)
            else:
                found = max(found, (fired.first + fired.count) * made - edge * size)
        return found


__all__ = ["TAKE", "Access", "Fired", "Schedule", "schedule"]
