"""What a loop needs before its kernels are chosen: its body in one piece, and nothing that is written while it is still read."""

from __future__ import annotations

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.loops import gather_nodes, has_loops
from intaglio.ops.control import Copy
from intaglio.ops.move import Concat, Reshape, Slice
from intaglio.passes.context import Context


def gather_loops(graph: Graph, context: Context) -> Graph:
    """Put the body of a loop, and nothing else, between its start and its end.

        c, h = loop_start(true, x)              a = relu(z)
        a = relu(z)                      ->     c, h = loop_start(true, x)
        b = add(h, a)                           b = add(h, a)
        c2, y = loop_end(c, h, d, b)            c2, y = loop_end(c, h, d, b)

    What becomes the next turn's value is copied first where it is in the memory of another one that the loop carries: two values
    that change places would overwrite each other."""
    if not has_loops(graph.nodes):
        return graph
    graph.nodes = gather_nodes(graph)
    made = graph.producers()
    for end in [node for node in graph.nodes if node.op.LOOP == "end"]:
        first = end.inputs[0]
        assert first is not None
        carried = set(made[first].outputs)
        n = len(carried)
        for k in range(n, 2 * n):
            value = end.inputs[k]
            if value is not None and not value.is_const and _sources(value, made) & carried:
                end.inputs[k] = _copied(graph, value, end)
    return graph


def _sources(value: Value, made: dict[Value, Node]) -> set[Value]:
    """The values in whose memory one may be."""
    node = made.get(value)
    if node is None or not isinstance(node.op, (Reshape, Slice, Concat)):
        return {value}
    return {source for v in node.inputs if v is not None for source in _sources(v, made)}


def _copied(graph: Graph, value: Value, end: Node) -> Value:
    out = graph.value(value.name, value.type)
    graph.nodes.insert(graph.nodes.index(end), Node(Copy(), [value], [out], end.source, when=end.when))
    return out
