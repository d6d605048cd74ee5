"""Constant factors and shifts move into the weights of the operator before them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.sizes import Size, moves
from intaglio.ir.types import DType, Layout
from intaglio.ops.activation import Clip, Relu
from intaglio.ops.binary import Add, Mul, Sub
from intaglio.ops.conv import Conv, ConvTranspose
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Pad
from intaglio.ops.norm import BatchNorm
from intaglio.ops.numeric import int_range
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised import QConv
from intaglio.passes.context import Context
from intaglio.passes.rewriting import Editor, constant, count_readers


def split_batch_norm(graph: Graph, context: Context) -> Graph:
    """A batch norm with constant parameters is a multiplication and an addition per channel.

        y = batch_norm(x, scale, bias, mean, var)     ->     a = mul(x, s);  y = add(a, t)

    `fold_scale` then takes both into the convolution before it. Skipped when a parameter is computed."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        op = node.op
        params = [v.data if v is not None else None for v in node.inputs[1:]]
        if not isinstance(op, BatchNorm) or any(p is None for p in params) or node.output.dtype not in (DType.F32, DType.F64):
            edit.keep(node)
            continue
        scale, bias, mean, var = [p.astype(np.float64) for p in params if p is not None]
        factor = scale / np.sqrt(var + op.epsilon)
        shift = bias - mean * factor
        rank = node.output.type.rank
        shape = [1] * rank
        shape[op.axis % rank] = -1
        kind = node.output.dtype.numpy
        s = constant(graph, f"{node.output.name}_scale", factor.astype(kind).reshape(shape))
        t = constant(graph, f"{node.output.name}_shift", shift.astype(kind).reshape(shape))
        scaled = edit.emit(Mul(), [node.inputs[0], s], node)
        node.op, node.inputs = Add(), [scaled, t]
        edit.changed = True
        edit.keep(node)
    return edit.finish()


def _channel_axis(node: Node) -> int:
    op = node.op
    if isinstance(op, (Conv, ConvTranspose)) and op.layout is not Layout.NHWC:
        return 1
    return node.output.type.rank - 1


def _has_epilogue(node: Node) -> bool:
    return isinstance(node.op, (Conv, MatMul)) and bool(node.op.epilogue)


def _per_channel(value: Value, node: Node) -> Array | None:
    """The constant as one number per output channel, or None."""
    axis, out = _channel_axis(node), node.output
    if value.data is None or value.type.rank > out.type.rank:
        return None
    shape = (1,) * (out.type.rank - value.type.rank) + value.shape
    if any(d != 1 for n, d in enumerate(shape) if n != axis) or shape[axis] not in (1, out.shape[axis]):
        return None
    if isinstance(out.shape[axis], Size):
        return None
    return np.broadcast_to(value.data.reshape(-1), (out.shape[axis],)).astype(np.float64)


def fold_scale(graph: Graph, context: Context) -> Graph:
    """A constant factor or shift per channel goes into the weights and bias of the product before it.

        a = conv(x, w)
        b = mul(a, s)            y = conv(x, w * s, t)
        y = add(b, t)     ->

    Skipped when `a` has another reader, when the weights are computed, or when the operator has an epilogue already. Weights that
    are stored small (`narrow_weights`) take no factor."""
    edit = Editor(graph)
    readers = count_readers(graph)
    for node in graph.nodes:
        edit.take(node)
        if not _fold_into_producer(edit, node, readers):
            edit.keep(node)
    return edit.finish()


def _fold_into_producer(edit: Editor, node: Node, readers: dict[Value, int]) -> bool:
    if not isinstance(node.op, (Mul, Add, Sub)):
        return False
    for n in (0, 1):
        value, other = node.inputs[n], node.inputs[1 - n]
        if value is None or other is None or value not in edit.made or not other.is_const or (isinstance(node.op, Sub) and n == 1):
            continue
        producer = edit.made[value]
        if readers.get(value, 0) != 1 or producer.when is not node.when or value.shape != node.output.shape:
            continue
        if not isinstance(producer.op, (Conv, ConvTranspose, MatMul)) or _has_epilogue(producer):
            continue
        weights, bias = producer.inputs[1], producer.inputs[2] if len(producer.inputs) > 2 else None
        numbers = _per_channel(other, producer)
        if numbers is None or (bias is not None and (bias.data is None or _bias_numbers(bias, producer) is None)):
            continue
        if isinstance(node.op, Mul) and (weights is None or weights.data is None or weights.dtype is not value.dtype):
            continue
        if value.dtype not in (DType.F32, DType.F64):
            continue
        _apply(edit, producer, node, numbers)
        return True
    return False


def _bias_numbers(bias: Value, producer: Node) -> Array | None:
    if isinstance(producer.op, MatMul):
        return _per_channel(bias, producer)
    assert bias.data is not None
    return bias.data.astype(np.float64)


def _apply(edit: Editor, producer: Node, node: Node, numbers: Array) -> None:
    graph, out = edit.graph, node.output
    weights, bias = producer.inputs[1], producer.inputs[2] if len(producer.inputs) > 2 else None
    old = _bias_numbers(bias, producer) if bias is not None else np.zeros_like(numbers)
    assert old is not None and weights is not None
    kind = out.dtype.numpy
    if isinstance(node.op, Mul):
        assert weights.data is not None
        scaled = _scaled(producer, weights.data, numbers)
        weights = constant(graph, weights.name, scaled.astype(kind))
        new: Array | None = old * numbers if bias is not None else None
    else:
        new = old - numbers if isinstance(node.op, Sub) else old + numbers
    made = constant(graph, f"{out.name}_bias", new.astype(kind)) if new is not None else None
    producer.inputs = [producer.inputs[0], weights, made, *producer.inputs[3:]]
    old_value = producer.output
    producer.outputs = [out]
    edit.made.pop(old_value, None)
    edit.made[out] = producer
    producer.source = producer.source or node.source
    edit.changed = True


def _scaled(producer: Node, weights: Array, numbers: Array) -> Array:
    wide = weights.astype(np.float64)
    match producer.op:
        case Conv():
            return wide * numbers.reshape((-1,) + (1,) * (wide.ndim - 1))
        case ConvTranspose():
            group = producer.op.group
            parts = wide.reshape((group, wide.shape[0] // group, *wide.shape[1:]))
            shaped = numbers.reshape((group, 1, -1) + (1,) * (wide.ndim - 2))
            return (parts * shaped).reshape(wide.shape)
        case MatMul():
            return wide * (numbers.reshape(-1, 1) if producer.op.transpose_b else numbers)
    raise AssertionError(producer.op)


def fold_pad(graph: Graph, context: Context) -> Graph:
    """Zeros around the image are the convolution's own padding, and what no maximum is made of is that of a max pool.

        a = pad(x, pads=(0,0,1,1,0,0,1,1))
        y = conv(a, w)                        ->     y = conv(x, w, pads=(1,1,1,1))

    Skipped when batch or channels are padded too, or with another value than 0 (of integers: than the zero point). A max pool may
    have been given anything that is nowhere more than the image: the lowest number there is, or 0 behind a relu."""
    edit = Editor(graph)
    for node in graph.nodes:
        edit.take(node)
        op = node.op
        source = node.inputs[0] if node.inputs else None
        before = edit.made.get(source) if source is not None else None
        if (
            isinstance(op, Conv | QConv | MaxPool)
            and before is not None
            and isinstance(before.op, Pad)
            and before.when is node.when
            and not moves(before.op.pads)
        ):
            pad, rank = before.op, node.output.type.rank
            first = 2 if not isinstance(op, QConv) and op.layout is not Layout.NHWC else 1
            spatial = range(first, first + rank - 2)
            others = [a for a in range(rank) if a not in spatial]
            clear = all(pad.pads[a] == 0 == pad.pads[a + rank] for a in others)
            if pad.mode == "constant" and clear and _adds_nothing(edit, op, before, spatial):
                begin = tuple(pad.pads[a] + op.pads[n] for n, a in enumerate(spatial))
                end = tuple(pad.pads[a + rank] + op.pads[n + rank - 2] for n, a in enumerate(spatial))
                node.op = replace(op, pads=begin + end)
                node.inputs[0] = before.inputs[0]
                edit.changed = True
        edit.keep(node)
    return edit.finish()


def _adds_nothing(edit: Editor, op: Conv | QConv | MaxPool, before: Node, spatial: range) -> bool:
    """Is the value of a padding what the operator takes for its own?"""
    pad, source = before.op, before.inputs[0]
    assert isinstance(pad, Pad) and source is not None
    if not isinstance(op, MaxPool):
        return pad.value == (op.x_zero if isinstance(op, QConv) else 0)
    rank = len(spatial) + 2
    sides = [(pad.pads[a] + op.pads[n], pad.pads[a + rank] + op.pads[n + rank - 2]) for n, a in enumerate(spatial)]
    if any(max(side) >= size for side, size in zip(sides, op.kernel, strict=True)) or max(op.dilations) > 1:
        return False  # a window of padding alone
    made = edit.made.get(source)
    least = 0.0 if made and isinstance(made.op, Relu) else made.op.low if made and isinstance(made.op, Clip) else -math.inf
    if not source.dtype.is_float:
        least = int_range(source.dtype)[0]
    return pad.value <= least
