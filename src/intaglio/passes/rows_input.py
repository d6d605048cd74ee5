"""An input of planes becomes one of rows of pixels, where the network turns it first thing anyway.

    input x: f32[1,3,96,96]                                     input x: f32[1,96,96,3]
    t: f32[1,96,96,3] = transpose(x, perm=(0,2,3,1))    ->      y = conv(x, w)
    y = conv(t, w)

For `--feed-rows`: a row of planes is in several places, a row of pixels is one run of memory, and what cameras give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ops.move import Reshape, Transpose
from intaglio.passes.context import Context


@dataclass(frozen=True, slots=True)
class Turned:
    """An input that has rows of pixels, where the model has planes."""

    input: str


def rows_of_pixels(graph: Graph, context: Context) -> Graph:
    """An input of planes becomes one of rows of pixels, where all its readers turn it anyway.

        input x: f32[1,3,96,96]
        t = transpose(x, perm=(0,2,3,1))      ->      input x: f32[1,96,96,3]

    Skipped when the model has several inputs, or a reader that takes the planes."""
    states = {s.input for s in graph.states}
    given = [v for v in graph.inputs if v not in states]
    if len(given) != 1 or given[0].type.rank != 4 or given[0] in graph.outputs:
        return graph
    source = given[0]
    readers = [node for node in graph.nodes if source in node.operands()]
    if not readers or not all(_turns(node, source) for node in readers):
        return graph
    first = readers[0].output
    turned = Value(source.name, replace(first.type, quant=source.type.quant), source.origin)
    graph.inputs[graph.inputs.index(source)] = turned
    for node in readers:
        graph.replace_uses(node.output, turned)
    graph.remove(readers)
    context.report("rows of the input are rows of pixels: [columns, channels]")
    context.report(Turned(turned.name))
    return graph


def _turns(node: Node, source: Value) -> bool:
    n, c, h, w = source.shape
    if isinstance(node.op, Transpose):
        return node.op.perm == (0, 2, 3, 1)
    return isinstance(node.op, Reshape) and node.output.shape == (n, h, w, c) and c == 1
