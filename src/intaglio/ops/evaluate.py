"""Running a graph by the references of its operators: slow, and the definition of right."""

from __future__ import annotations

from collections.abc import Mapping

from intaglio.ir.graph import Array, Graph, Value
from intaglio.ir.sizes import pinned


def evaluate_graph(
    graph: Graph, inputs: dict[str, Array], *, keep: bool = False, sizes: Mapping[str, int] | None = None
) -> dict[str, Array]:
    """The outputs by value name, from inputs by value name; with `keep`, every value that was computed. `sizes` are those of the
    caller; those that follow from data are found on the way.

    A node whose guard is false is skipped. What it would have given is absent, and `select` does not look at it."""
    values: dict[Value, Array] = {}
    known = dict(sizes or {})
    counts = {value: name for name, value in graph.counts.items()}
    for value in graph.inputs:
        values[value] = inputs[value.name].reshape(pinned(value.shape, known))
    last_use: dict[Value, int] = {}
    for position, node in enumerate(graph.nodes):
        for value in node.operands():
            last_use[value] = position
    wanted = set(graph.outputs) | {state.output for state in graph.states}
    for position, node in enumerate(graph.nodes):
        if node.when is None or bool(_array(values, node.when).ravel()[0]):
            arrays = [None if v is None else _array_or_none(values, v) for v in node.inputs]
            types = [None if v is None else pinned(v.type, known) if known else v.type for v in node.inputs]
            results = (pinned(node.op, known) if known else node.op).evaluate(arrays, types)
            values.update(zip(node.outputs, results, strict=True))
            known |= {counts[v]: int(values[v]) for v in node.outputs if v in counts}
        if not keep:
            for value in node.operands():
                if last_use[value] == position and value not in wanted:
                    values.pop(value, None)
    chosen = values if keep else {v: _array(values, v) for v in graph.outputs}
    return {value.name: array for value, array in chosen.items()}


def _array(values: dict[Value, Array], value: Value) -> Array:
    return value.data if value.data is not None else values[value]


def _array_or_none(values: dict[Value, Array], value: Value) -> Array | None:
    return value.data if value.data is not None else values.get(value)
