"""What the checker knows of loops: their bodies are walked twice, so that what one turn overwrites is missed by the next."""

from __future__ import annotations

from collections.abc import Iterator

from intaglio.errors import OurFault
from intaglio.ir.graph import Node, Value
from intaglio.ir.program import K, Program
from intaglio.memory.check_views import Span, Views


def turns(program: Program[K], owner: dict[Value, Span], views: Views) -> Iterator[int]:
    """The layers as they are run: those of a loop once more. What was carried is then what the turn before left there."""
    nodes = [layer.node for layer in program.layers]
    starts = {node.outputs[0]: n for n, node in enumerate(nodes) if node.op.LOOP == "start"}
    again: set[int] = set()
    index = 0
    while index < len(nodes):
        yield index
        node = nodes[index]
        first = node.inputs[0] if node.op.LOOP == "end" else None
        if first is None:
            index += 1
            continue
        start = starts[first]
        if index in again:
            index += 1
            continue
        again = {n for n in again if not start < n < index} | {index}  # loops inside are walked twice in each turn
        _carry(program, node, owner)
        order = program.graph.nodes
        views.again(set(order[order.index(nodes[start]) : order.index(node)]))
        index = start + 1


def _carry(program: Program[K], end: Node, owner: dict[Value, Span]) -> None:
    """The names of the next turn: what `loop_end` left is what `loop_start`, or the room of a collection, gave."""
    made = {out: node for node in program.graph.nodes for out in node.outputs}
    for out in end.outputs:
        value, found = out, own_memory(end, out)
        while found:
            value = found[0]
            found = own_memory(made[value], value) if value in made else []
        if out in owner:
            owner[value] = owner[out]


def own_memory(node: Node, out: Value) -> list[Value]:
    """The operand in whose memory a result is, by what the operator says."""
    number = node.outputs.index(out)
    found = (node.inputs[operand] for result, operand in node.op.shares(len(node.inputs)) if result == number)
    return [value for value in found if value is not None]


def check_loops(program: Program[K]) -> None:
    """Results that are in the memory of an operand are where that one is."""
    for layer in program.layers:
        for out, operand in layer.node.op.shares(len(layer.node.inputs)):
            value = layer.node.inputs[operand]
            here = program.placement.of(layer.node.outputs[out])
            if value is not None and value.type.bytes and here != program.placement.of(value):
                raise OurFault("bad-plan", f"`{layer.node.outputs[out].name}` is not where `{value.name}` is")
