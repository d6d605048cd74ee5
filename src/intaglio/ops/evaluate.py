"""Running a graph by the references of its operators: slow, and the definition of right."""

from __future__ import annotations

from intaglio.ir.graph import Array, Graph, Value


def evaluate_graph(graph: Graph, inputs: dict[str, Array], *, keep: bool = False) -> dict[str, Array]:
    """The outputs by value name, from inputs by value name; with `keep`, every value that was computed.

    A node whose guard is false is skipped. What it would have given is absent, and `select` does not look at it."""
    values: dict[Value, Array] = {}
    for value in graph.inputs:
        values[value] = inputs[value.name].reshape(value.shape)
    last_use: dict[Value, int] = {}
    for position, node in enumerate(graph.nodes):
        for value in node.operands():
            last_use[value] = position
    wanted = set(graph.outputs) | {state.output for state in graph.states}
    for position, node in enumerate(graph.nodes):
        if node.when is None or bool(_array(values, node.when).ravel()[0]):
            arrays = [None if v is None else _array_or_none(values, v) for v in node.inputs]
            types = [None if v is None else v.type for v in node.inputs]
            results = node.op.evaluate(arrays, types)
            values.update(zip(node.outputs, results, strict=True))
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
