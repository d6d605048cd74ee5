"""Transposes sink towards the outputs until two of them cancel."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.types import Layout
from intaglio.ops.base import Elementwise, Op, normal_axes
from intaglio.ops.control import Copy
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Concat, Pad, Reshape, Slice, Tile, Transpose
from intaglio.ops.reduce import ArgReduce, Cumsum, LogSoftmax, Reduce, Softmax
from intaglio.ops.resize import Resize
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, constant, count_readers

Perm = tuple[int, ...]
NHWC_TO_NCHW, NCHW_TO_NHWC = (0, 3, 1, 2), (0, 2, 3, 1)


def inverse(perm: Perm) -> Perm:
    out = [0] * len(perm)
    for at, axis in enumerate(perm):
        out[axis] = at
    return tuple(out)


def move_transposes(graph: Graph, context: Context) -> Graph:
    """Push a transpose behind the operator that reads it; join two in a row.

        a = transpose(x, perm=p)                 b = relu(x)
        b = relu(a)                       ->     c = transpose(b, perm=p)     joined with the next
        c = transpose(b, perm=q)

    Through elementwise operators (constants are turned at compile time), concat, reduce, softmax, pad, slice, resize, gather by
    one axis. An operator with several operands moves only when all that are not constant come from the same transpose."""
    edit = Editor(graph)
    readers = count_readers(graph)
    for node in graph.nodes:
        edit.take(node)
        if isinstance(node.op, Transpose):
            _join(edit, node)
        elif not _sink(edit, node, readers):
            edit.keep(node)
    return edit.finish()


def _join(edit: Editor, node: Node) -> None:
    op, source = node.op, node.inputs[0]
    assert isinstance(op, Transpose) and source is not None
    before = edit.made.get(source)
    if before is not None and isinstance(before.op, Transpose) and before.when is node.when:
        node.op = Transpose(tuple(before.op.perm[p] for p in op.perm))
        node.inputs = [before.inputs[0]]
        edit.changed = True
    edit.keep(node)


def _perm_of(edit: Editor, value: Value | None, node: Node) -> Perm | None:
    producer = edit.made.get(value) if value is not None else None
    if producer is None or not isinstance(producer.op, Transpose) or producer.when is not node.when:
        return None
    return producer.op.perm


def _sink(edit: Editor, node: Node, readers: dict[Value, int]) -> bool:
    if len(node.outputs) != 1:
        return False
    perms = {p for v in node.inputs if (p := _perm_of(edit, v, node)) is not None}
    if len(perms) != 1:
        return False
    perm = perms.pop()
    moved = _moved(edit, node, perm)
    if moved is None:
        return False
    op, inputs, after = moved
    result = edit.emit(op, inputs, node)
    if after == NHWC_TO_NCHW:
        result.type = replace(result.type, layout=Layout.NHWC)
        result.origin = node.output.origin  # the same tensor of the model, in another order
    if after == tuple(range(len(after))):
        node.op, node.inputs = Reshape(node.output.shape), [result]
    else:
        node.op, node.inputs = Transpose(after), [result]
    edit.keep(node)
    return True


def _source(edit: Editor, value: Value | None) -> Value:
    assert value is not None
    source = edit.made[value].inputs[0]
    assert source is not None
    return source


def _moved(edit: Editor, node: Node, perm: Perm) -> tuple[Op, list[Value | None], Perm] | None:
    """The operator in front of the transpose, its operands, and the transpose that then follows."""
    op = node.op
    first = node.inputs[0]
    match op:
        case Elementwise():
            return _elementwise(edit, node, perm)
        case Concat():
            if any(_perm_of(edit, v, node) != perm for v in node.inputs):
                return None
            return replace(op, axis=perm[op.axis % len(perm)]), [_source(edit, v) for v in node.inputs], perm
        case Softmax() | LogSoftmax() | Cumsum():
            return replace(op, axis=perm[op.axis % len(perm)]), [_source(edit, first)], perm
        case Reduce():
            axes = normal_axes(op.axes, len(perm))
            there = tuple(sorted(perm[a] for a in axes))
            return replace(op, axes=there), [_source(edit, first)], _after_reduce(perm, axes, op.keepdims)
        case ArgReduce():
            axis = op.axis % len(perm)
            return replace(op, axis=perm[axis]), [_source(edit, first)], _after_reduce(perm, (axis,), op.keepdims)
        case Pad():
            back, rank = inverse(perm), len(perm)
            pads = tuple(op.pads[back[a]] for a in range(rank)) + tuple(op.pads[rank + back[a]] for a in range(rank))
            return replace(op, pads=pads), [_source(edit, first)], perm
        case Slice():
            back = inverse(perm)

            def turn(values: tuple[int, ...]) -> tuple[int, ...]:
                return tuple(values[back[a]] for a in range(len(perm)))

            return Slice(turn(op.starts), turn(op.steps), turn(op.shape)), [_source(edit, first)], perm
        case Tile():
            back = inverse(perm)
            return Tile(tuple(op.repeats[back[a]] for a in range(len(perm)))), [_source(edit, first)], perm
        case Resize() if not op.roi:
            back = inverse(perm)
            shape = tuple(op.shape[back[a]] for a in range(len(perm)))
            return (
                replace(op, shape=shape, scales=tuple(op.scales[back[a]] for a in range(len(perm)))),
                [_source(edit, first)],
                perm,
            )
        case Gather():
            indices = node.inputs[1]
            if indices is None or indices.type.rank != 1 or _perm_of(edit, indices, node) is not None:
                return None
            return replace(op, axis=perm[op.axis % len(perm)]), [_source(edit, first), indices], perm
        case Copy():
            return op, [_source(edit, first)], perm
    return None


def _after_reduce(perm: Perm, axes: Perm, keepdims: bool) -> Perm:
    if keepdims:
        return perm
    left = [p for n, p in enumerate(perm) if n not in axes]
    order = sorted(left)
    return tuple(order.index(p) for p in left)


def _elementwise(edit: Editor, node: Node, perm: Perm) -> tuple[Op, list[Value | None], Perm] | None:
    rank, back = len(perm), inverse(perm)
    inputs: list[Value | None] = []
    if node.output.type.rank != rank:
        return None
    for value in node.inputs:
        assert value is not None
        if _perm_of(edit, value, node) == perm:
            inputs.append(_source(edit, value))
        elif value.type.elements == 1:
            inputs.append(value)
        elif value.data is not None:
            full = value.data.reshape((1,) * (rank - value.type.rank) + value.shape)
            inputs.append(constant(edit.graph, value.name, np.ascontiguousarray(full.transpose(back)), value.dtype))
        else:
            return None
    return node.op, inputs, perm


def fold_into_matmul(graph: Graph, context: Context) -> Graph:
    """A transpose in front of a product is the product's own, or is done to its constant weights.

    a = transpose(x, perm=(0,1,3,2))             y = matmul(q, x, transpose_b=true)
    y = matmul(q, a)                      ->

    a = transpose(x[1,7,7,64], perm=(0,3,1,2))
    b = reshape(a, shape=(1,3136))        ->     b = reshape(x, shape=(1,3136))
    y = matmul(b, w)                             y = matmul(b, w with its rows in the order of x)
    """
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        if isinstance(node.op, MatMul):
            _own_transpose(edit, node)
            _turn_rows(edit, node)
        edit.keep(node)
    return edit.finish()


def _own_transpose(edit: Editor, node: Node) -> None:
    assert isinstance(node.op, MatMul)
    right = node.inputs[1]
    perm = _perm_of(edit, right, node)
    if perm is None:
        return
    last = len(perm) - 1
    if perm == (*range(last - 1), last, last - 1):
        node.op = replace(node.op, transpose_b=not node.op.transpose_b)
        node.inputs[1] = _source(edit, right)
        edit.changed = True


def _turn_rows(edit: Editor, node: Node) -> None:
    op, left, weights = node.op, node.inputs[0], node.inputs[1]
    assert isinstance(op, MatMul) and left is not None and weights is not None
    flat = edit.made.get(left)
    if flat is None or not isinstance(flat.op, Reshape) or weights.data is None or weights.type.rank != 2 or op.transpose_a:
        return
    perm = _perm_of(edit, flat.inputs[0], node)
    if perm is None or perm[0] != 0 or flat.when is not node.when:
        return
    image = _source(edit, flat.inputs[0])
    inner = image.type.elements // max(image.shape[0], 1)
    if left.type.rank != 2 or left.shape != (image.shape[0], inner):
        return
    matrix = weights.data if not op.transpose_b else weights.data.T
    seen = [image.shape[p] for p in perm[1:]]  # the order of the rows now
    back = inverse(perm)[1:]
    turned = matrix.reshape(*seen, matrix.shape[1]).transpose(*[b - 1 for b in back], len(seen)).reshape(matrix.shape)
    fresh = edit.emit(Reshape(left.shape), [image], node)
    node.op = replace(op, transpose_b=False)
    node.inputs[0] = fresh
    node.inputs[1] = constant(edit.graph, weights.name, np.ascontiguousarray(turned), weights.dtype)
