"""Outputs of a quantised model are called what they were called in the float model, for the C API.

    y_3: i8[1,10] = qsoftmax(a)               y: i8[1,10] = qsoftmax(a)
    output y_3                        ->      output y
"""

from __future__ import annotations

from intaglio.ir.graph import Graph
from intaglio.passes.context import Context


def name_outputs(graph: Graph, context: Context) -> Graph:
    """Outputs of a quantised model get the names that they had before.

        output y_3            ->      output y

    Skipped where another value has that name."""
    used = {v.name for v in graph.values()}
    for value, name in zip(graph.outputs, context.output_names, strict=True):
        if name not in used:
            used.add(name)
            graph.names.add(name)
            value.name = name
    return graph
