"""Running a graph by the references of its operators: slow, and the definition of right."""

from __future__ import annotations

import time
from collections.abc import Mapping

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.loops import Loop, loops_of
from intaglio.ir.operator import BadOperator
from intaglio.ir.sizes import names_of, pinned


class LongLoop(Exception):
    """A loop that has not ended in the time that it was given."""


def evaluate_graph(
    graph: Graph,
    inputs: dict[str, Array],
    *,
    keep: bool = False,
    sizes: Mapping[str, int] | None = None,
    seconds: float | None = None,
) -> dict[str, Array]:
    """The outputs by value name, from inputs by value name; with `keep`, every value that was computed. `sizes` are those of the
    caller; those that follow from data are found on the way.

    A node whose guard is false is skipped. What it would have given is absent, and `select` does not look at it. Of a loop, values
    are those of its last turn. A turn of a loop that ends after `seconds` is the last: `LongLoop`."""
    run = _Run(graph, dict(sizes or {}), seconds)
    for value in graph.inputs:
        run.values[value] = inputs[value.name].reshape(pinned(value.shape, run.known))
    last_use = _last_uses(graph, run.loops)
    wanted = set(graph.outputs) | {state.output for state in graph.states}
    position = 0
    while position < len(graph.nodes):
        node = graph.nodes[position]
        if node.when is None or bool(_array(run.values, node.when).ravel()[0]):
            following = run.step(node, position)
        else:
            following = run.ends.get(position, position) + 1
        if not keep:
            for value in node.operands():
                if last_use[value] <= position < following and value not in wanted:
                    run.values.pop(value, None)
        position = following
    chosen = run.values if keep else {v: _array(run.values, v) for v in graph.outputs}
    return {value.name: array for value, array in chosen.items()}


class _Run:
    """What is known so far."""

    def __init__(self, graph: Graph, known: dict[str, int], seconds: float | None) -> None:
        self.graph, self.known = graph, known
        self.seconds, self.until = seconds, None if seconds is None else time.monotonic() + seconds
        self.values: dict[Value, Array] = {}
        self.counts = {value: name for name, value in graph.counts.items()}
        self.loops = loops_of(graph.nodes)
        self.starts = {loop.end: loop.start for loop in self.loops}
        self.ends = {loop.start: loop.end for loop in self.loops}

    def step(self, node: Node, position: int) -> int:
        """One node; which one is next."""
        if node.op.LOOP == "end":
            return self._turn(node, position)
        self._compute(node)
        if node.op.LOOP != "start" or bool(self.values[node.output].ravel()[0]):
            return position + 1
        end = self.graph.nodes[self.ends[position]]  # no turn at all
        self._finish(end, [None if v is None else self._before(v) for v in end.inputs[: len(node.outputs)]])
        return self.ends[position] + 1

    def _turn(self, end: Node, position: int) -> int:
        start = self.graph.nodes[self.starts[position]]
        carried = len(start.outputs)
        following = [_array(self.values, v) for v in end.inputs[carried : 2 * carried] if v is not None]
        if not bool(following[0].ravel()[0]):
            self._finish(end, [*following])
            return position + 1
        if self.until is not None and time.monotonic() > self.until:
            raise LongLoop(f"a loop has not ended after {self.seconds:g} s")
        self.values.update(zip(start.outputs, following, strict=True))
        for value in end.inputs[2 * carried :]:
            assert value is not None
            self.values[self._room(value)] = self.values[value]
        return self.starts[position] + 1

    def _room(self, value: Value) -> Value:
        """Where rows are collected."""
        made = {out: node for node in self.graph.nodes for out in node.outputs}
        while shared := made[value].op.shares(len(made[value].inputs)):
            operand = made[value].inputs[shared[0][1]]
            assert operand is not None
            value = operand
        return value

    def _before(self, value: Value) -> Array:
        return _array(self.values, value)

    def _finish(self, end: Node, carried: list[Array | None]) -> None:
        """What comes out of a loop: the number of its turns may be the size of what it collected."""
        n = len(carried)
        for value, array in zip(end.outputs, carried, strict=False):
            assert array is not None
            self.values[value] = array
            self._count(value, array)
        rows = [self.values[v] if v in self.values else self.values[self._room(v)] for v in end.inputs[2 * n :] if v is not None]
        op = pinned(end.op, self.known) if self.known else end.op
        results = op.reference(*carried, *carried, *rows)
        self.values.update(zip(end.outputs[n:], results[n:], strict=True))

    def _compute(self, node: Node) -> None:
        if lacks_a_size(node, self.graph.counts, self.known):
            return
        for value in node.outputs:  # in a loop, it was another in the turn before
            self.known.pop(self.counts.get(value, ""), None)
        arrays = [None if v is None else _array_or_none(self.values, v) for v in node.inputs]
        types = [None if v is None else pinned(v.type, self.known) if self.known else v.type for v in node.inputs]
        results = (pinned(node.op, self.known) if self.known else node.op).evaluate(arrays, types)
        self.values.update(zip(node.outputs, results, strict=True))
        for value in node.outputs:
            self._count(value, self.values[value])

    def _count(self, value: Value, array: Array) -> None:
        """A size that data gives, if it is within its bounds."""
        name = self.counts.get(value)
        if name is None:
            return
        assert self.graph.bounds is not None
        span = self.graph.bounds.ranges[name]
        if int(array) not in span.numbers:
            raise BadOperator(f"`{name}` is {int(array)}, which is not within {span}")
        self.known[name] = int(array)


def lacks_a_size(node: Node, counts: Mapping[str, Value], known: Mapping[str, int]) -> bool:
    """Does it compute with the size of a branch that was not taken? A `select` does not look at the result."""
    own = {name for name, value in counts.items() if value in node.outputs}
    return bool(counts) and bool((names_of(node.op) & counts.keys()) - known.keys() - own)


def _last_uses(graph: Graph, loops: list[Loop]) -> dict[Value, int]:
    """Where each value is read for the last time. A loop reads what its body reads until it ends."""
    last: dict[Value, int] = {}
    for position, node in enumerate(graph.nodes):
        until = max([position, *(loop.end for loop in loops if loop.start <= position <= loop.end)])
        for value in node.operands():
            last[value] = max(until, last.get(value, 0))
    return last


def _array(values: dict[Value, Array], value: Value) -> Array:
    return value.data if value.data is not None else values[value]


def _array_or_none(values: dict[Value, Array], value: Value) -> Array | None:
    return value.data if value.data is not None else values.get(value)
