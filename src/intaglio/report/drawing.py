"""The graph of a package, placed for drawing."""

from __future__ import annotations

from intaglio.ir.text import Network
from intaglio.package.manifest import Manifest
from intaglio.report.facts import GraphNode
from intaglio.report.layout import layered


def drawn(network: Network, manifest: Manifest, labels: list[str]) -> tuple[tuple[GraphNode, ...], tuple[tuple[int, int], ...]]:
    """Inputs, nodes and outputs; edges by number."""
    graph = network.graph
    number = {layer.name: layer.index for layer in manifest.layers}
    made: dict[str, int] = {}
    rows: list[tuple[str, str, int]] = []
    edges: list[tuple[int, int]] = []
    for value, info in zip(graph.inputs, manifest.inputs, strict=False):
        made[value.name] = len(rows)
        rows.append((info.name or info.field, "input", -1))
    for node in graph.nodes:
        layer = number.get(node.output.name, -1)
        here = len(rows)
        rows.append((labels[layer] if layer >= 0 else node.output.name, node.op.NAME, layer))
        sources = {made[v.name] for v in (*node.inputs, node.when) if v is not None and v.name in made}
        edges += [(source, here) for source in sorted(sources)]
        made |= {value.name: here for value in node.outputs}
    for value, info in zip(graph.outputs, manifest.outputs, strict=False):
        if value.name in made:
            edges.append((made[value.name], len(rows)))
            rows.append((info.name or info.field, "output", -1))
    places = layered(len(rows), edges)
    nodes = tuple(GraphNode(*row, x, y) for row, x, y in zip(rows, places.columns, places.rows, strict=True))
    return nodes, tuple(edges)


__all__ = ["drawn"]
