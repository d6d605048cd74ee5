"""Reshapes sink towards the outputs, so that they meet the next one and cancel."""

from __future__ import annotations

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.types import Shape
from intaglio.ops.base import Elementwise
from intaglio.ops.move import Reshape
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, constant


def move_reshapes(graph: Graph, context: Context) -> Graph:
    """Push a reshape behind the elementwise operator that reads it.

        a = reshape(x[1,8,1,119], shape=(1,8,119))          b = relu(x)
        b = relu(a)                                  ->     a = reshape(b, shape=(1,8,119))

    Other operands are single numbers, reshapes of the same shape, or constants when only axes of size 1 come or go."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        moved = _moved(edit, node) if isinstance(node.op, Elementwise) else None
        if moved is not None:
            result = edit.emit(node.op, moved, node)
            node.op, node.inputs = Reshape(node.output.shape), [result]
        edit.keep(node)
    return edit.finish()


def _source(edit: Editor, value: Value | None, node: Node) -> Value | None:
    producer = edit.made.get(value) if value is not None else None
    if producer is None or not isinstance(producer.op, Reshape) or producer.when is not node.when:
        return None
    return producer.inputs[0]


def _moved(edit: Editor, node: Node) -> list[Value | None] | None:
    """The operands in front of the reshape, or None."""
    sources = [_source(edit, v, node) for v in node.inputs]
    before = next((s for s in sources if s is not None), None)
    if before is None or before.is_const:
        return None
    shape = node.output.shape
    operands: list[Value | None] = []
    for value, source in zip(node.inputs, sources, strict=True):
        assert value is not None
        if source is not None and source.shape == before.shape and value.shape == shape:
            operands.append(source)
        elif value.type.elements == 1:
            single = value if value.type.rank <= before.type.rank else None
            if single is None:
                if value.data is None:
                    return None
                single = constant(edit.graph, value.name, value.data.reshape(()), value.dtype)
            operands.append(single)
        elif value.data is not None:
            turned = _fitted(value.shape, shape, before.shape)
            if turned is None:
                return None
            operands.append(constant(edit.graph, value.name, value.data.reshape(turned), value.dtype))
        else:
            return None
    return operands


def _fitted(operand: Shape, after: Shape, before: Shape) -> Shape | None:
    """The shape of a constant that broadcasts to `before` as `operand` does to `after`: axes of size 1 come or go."""
    if tuple(d for d in after if d != 1) != tuple(d for d in before if d != 1) or len(operand) > len(after):
        return None
    full = (1,) * (len(after) - len(operand)) + operand
    kept = iter([o for o, d in zip(full, after, strict=True) if d != 1])
    return tuple(1 if d == 1 else next(kept) for d in before)
