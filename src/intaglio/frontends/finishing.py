"""From the nodes of an import to a Graph: dead nodes out, outputs that are their own values, clean names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from intaglio.frontends.emitting import Emitter
from intaglio.frontends.onnx.names import Names, identifier
from intaglio.ir.graph import Graph, Node, State, Value, needed_counts
from intaglio.ops.control import Copy
from intaglio.ops.convert import Dequantize


def finish(
    emitter: Emitter, inputs: list[Value], outputs: list[tuple[str, Value]], name: str, states: Sequence[State] = ()
) -> Graph:
    """Values whose names are taken from their origins; outputs are named as told. The inputs of states are among `inputs`."""
    outputs = [(name, emitter.at_run_time(value)) for name, value in outputs]
    nexts = [(s.input.origin, s.output) for s in states]
    owned = _own_outputs(emitter, [*outputs, *nexts])
    results = owned[: len(outputs)]
    nodes = _with_dequantised(emitter, live(emitter.nodes, owned, emitter.counts))
    graph = Graph(identifier(name, "model"), inputs, results, nodes)
    graph.output_names = [origin for origin, _ in outputs]
    graph.bounds = emitter.bounds
    alive = {v for node in nodes for v in node.outputs}
    graph.counts = {name: value for name, value in emitter.counts.items() if value in alive}
    if graph.bounds is not None and (gone := emitter.counts.keys() - graph.counts.keys()):
        graph.bounds.forget(set(gone))  # else the caller would be asked for them
        graph.bounds = graph.bounds if graph.bounds.ranges else None
    graph.states = [State(s.input, after, s.fill) for s, after in zip(states, owned[len(outputs) :], strict=True)]
    names = Names()
    for position, value in enumerate(inputs):
        value.name = names.take(value.origin, f"in{position}")
    for value, (origin, _) in zip(results, outputs, strict=True):
        value.origin = origin
        value.name = names.take(origin, "out")
    for node in nodes:
        for operand in node.operands():
            if not operand.name:
                operand.name = names.take(operand.origin or "c", "c")
        for value in node.outputs:
            if not value.name:
                value.name = names.take(value.origin or node.op.NAME, node.op.NAME)
    graph.names = {v.name for v in graph.values()}
    return graph


def _own_outputs(emitter: Emitter, outputs: list[tuple[str, Value]]) -> list[Value]:
    """An output that is an input, a constant or another output too is copied, so each is a value of its own."""
    produced = {v for node in emitter.nodes for v in node.outputs}
    taken: set[Value] = set()
    results = []
    for name, value in outputs:
        if value in taken or value not in produced:
            copy = Value("", value.type, name)
            emitter.nodes.append(Node(Copy(), [value], [copy], name))
            value = copy
        taken.add(value)
        results.append(value)
    return results


def _with_dequantised(emitter: Emitter, nodes: list[Node]) -> list[Node]:
    """Constants that were dequantised are integers again, behind a Dequantize: `absorb` decides what becomes of them."""
    made: dict[Value, Value] = {}
    out: list[Node] = []
    for node in nodes:
        for n, value in enumerate(node.inputs):
            if value is not None and value in emitter.dequantised:
                if value not in made:
                    made[value] = Value("", value.type, value.origin)
                    out.append(Node(Dequantize(value.dtype), list(emitter.dequantised[value]), [made[value]], node.source))
                node.inputs[n] = made[value]
        out.append(node)
    return out


def live(nodes: list[Node], results: list[Value], counts: Mapping[str, Value]) -> list[Node]:
    """Those that a result needs; what finds a size is needed by what has that size."""
    needed = set(results)
    kept: list[Node] = []
    for node in reversed(nodes):
        if node.op.EFFECT or any(v in needed for v in node.outputs):
            kept.append(node)
            needed.update(node.operands())
            needed |= needed_counts(node, counts)
    return kept[::-1]
