"""Which values share memory because one is a reshape of the other (`using view`)."""

from __future__ import annotations

from intaglio.ir.graph import Graph, Value


def storage_roots(graph: Graph) -> dict[Value, Value]:
    """Every view -> the value whose memory it is."""
    roots: dict[Value, Value] = {}
    for node in graph.nodes:
        if node.using == "view":
            source = node.inputs[0]
            assert source is not None
            roots[node.output] = roots.get(source, source)
    return roots
