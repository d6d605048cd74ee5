"""What every channel of every tensor can be, for any input: intervals, worked out layer by layer.

The last axis is the channel. Integers have the range that weights, bias and clamping leave; floats are only known where they are
constant, because rounding must not be guessed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.sizes import Size, least, most
from intaglio.ir.types import DType, Layout
from intaglio.ops.activation import Clip, Relu
from intaglio.ops.conv import Conv
from intaglio.ops.move import Pad, Reshape
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised import Lookup, QAdd, QConv, QMatMul, QMul, Requantize, rescale, wide_scaling
from intaglio.ops.quantised_real import QRealMean
from intaglio.ops.quantised_rows import QAveragePool, QMean

_INTS = (DType.I8, DType.U8, DType.I16)
_MONOTONE = (MaxPool, QAveragePool, QMean, QRealMean, Requantize, Relu, Clip)
_MOST_CHANNELS = 65536


@dataclass(frozen=True, slots=True)
class Span:
    """The lowest and the highest number of each channel."""

    low: Array
    high: Array

    @property
    def constant(self) -> Array:
        return np.asarray(self.low == self.high)


def spans(graph: Graph) -> dict[Value, Span]:
    found: dict[Value, Span] = {}
    for value in graph.inputs:
        if (known := anything(value)) is not None:
            found[value] = known
    for node in graph.nodes:
        if node.when is not None or len(node.outputs) != 1 or node.output.type.rank == 0:
            continue
        known = _span(node, found) or anything(node.output)
        if known is not None:
            found[node.output] = known
    return found


def anything(value: Value) -> Span | None:
    """All that the type can hold."""
    if value.type.rank == 0 or isinstance(value.shape[-1], Size) or not 0 < value.shape[-1] <= _MOST_CHANNELS:
        return None
    count = value.shape[-1]
    if value.dtype in _INTS:
        info = np.iinfo(value.dtype.numpy)
        return Span(np.full(count, info.min, np.int64), np.full(count, info.max, np.int64))
    if value.dtype is DType.F32:
        return Span(np.full(count, -np.inf), np.full(count, np.inf))
    return None


def _span(node: Node, found: dict[Value, Span]) -> Span | None:
    op = node.op
    first = found.get(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
    if first is None or any(value is not None and not least(value.type.elements) for value in (*node.inputs, *node.outputs)):
        return None  # of nothing there is no least number
    match op:
        case QConv():
            return _convolution(node, op, first)
        case QMatMul():
            return _product(node, op, first)
        case Conv():
            return _float_convolution(node, op)
        case QAdd() | QMul():
            return _sum(node, op, found)
        case Lookup():
            return _table(node, first)
        case Reshape():
            return _reshaped(node, first)
        case Pad():
            return _padded(node, op, first)
    if isinstance(op, _MONOTONE) and keeps_channels(node):
        return _monotone(node, first)
    return None


def keeps_channels(node: Node) -> bool:
    """Channel by channel: what happens in one does not depend on another."""
    source, out = node.inputs[0], node.output
    if source is None or source.type.rank == 0 or out.type.rank == 0 or source.shape[-1] != out.shape[-1]:
        return False
    op = node.op
    if isinstance(op, MaxPool):
        return op.layout is Layout.NHWC and source.type.rank == 4
    if isinstance(op, QMean):
        return source.type.rank - 1 not in [a % source.type.rank for a in op.axes]
    if isinstance(op, Pad):
        rank = source.type.rank
        return op.pads[rank - 1] == 0 == op.pads[2 * rank - 1]
    if isinstance(op, (QAdd, QMul)):
        return all(v is not None and v.data is None and v.shape == out.shape for v in node.inputs)
    if isinstance(op, Lookup):
        return True
    return isinstance(op, (QAveragePool, QRealMean)) or (
        isinstance(op, (Requantize, Relu, Clip)) and len(node.inputs) == 1 and source.shape == out.shape
    )


def _scaled(op: QConv | QMatMul, node: Node, low: Array, high: Array) -> Span | None:
    """Sums are scaled, moved and clamped; all of that keeps their order."""
    bias, multiplier, shift = (v.data if v is not None else None for v in node.inputs[2:5])
    missing = any(v is not None and v.data is None for v in node.inputs[2:5])
    if missing or multiplier is None or np.any(multiplier < 0) or np.abs([low, high]).max() >= 2**30:
        return None
    source = node.inputs[0]
    assert source is not None
    how = wide_scaling(op.scaling, np.zeros(0, source.dtype.numpy), bias)
    ends = [np.clip(rescale(total, bias, multiplier, shift, how) + op.y_zero, op.low, op.high) for total in (low, high)]
    return Span(ends[0], ends[1])


def _convolution(node: Node, op: QConv, x: Span) -> Span | None:
    weights = node.inputs[1]
    if weights is None or weights.data is None:
        return None
    low, high = x.low - op.x_zero, x.high - op.x_zero
    if any(op.pads):  # outside of the image is the zero point
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    w = weights.data.astype(np.int64) - op.w_zero
    positive, negative = np.maximum(w, 0).sum(axis=(2, 3)), np.minimum(w, 0).sum(axis=(2, 3))  # [O, I/group]
    outs, depth = positive.shape
    group = np.arange(outs) // (outs // op.group)
    at = group[:, None] * depth + np.arange(depth)[None, :]
    return _scaled(
        op, node, (positive * low[at] + negative * high[at]).sum(axis=1), (positive * high[at] + negative * low[at]).sum(axis=1)
    )


def _product(node: Node, op: QMatMul, a: Span) -> Span | None:
    b = node.inputs[1]
    if b is None or b.data is None or b.type.rank != 2:
        return None
    w = (b.data if op.transpose_b else b.data.T).astype(np.int64) - op.b_zero  # [N, K]
    low, high = a.low - op.a_zero, a.high - op.a_zero
    positive, negative = np.maximum(w, 0), np.minimum(w, 0)
    return _scaled(op, node, positive @ low + negative @ high, positive @ high + negative @ low)


def _float_convolution(node: Node, op: Conv) -> Span | None:
    """A channel whose weights are all zero is its bias."""
    weights, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
    if op.layout is not Layout.NHWC or op.epilogue or weights is None or weights.data is None or weights.dtype is not DType.F32:
        return None
    if bias is not None and bias.data is None:
        return None
    dead = ~np.any(weights.data.reshape(weights.shape[0], -1), axis=1)
    numbers = np.zeros(weights.shape[0]) if bias is None or bias.data is None else bias.data.astype(np.float64)
    return Span(np.where(dead, numbers, -np.inf), np.where(dead, numbers, np.inf))


def _sum(node: Node, op: QAdd | QMul, found: dict[Value, Span]) -> Span | None:
    if not keeps_channels(node):
        return None
    a, b = (found.get(v) if v is not None else None for v in node.inputs)
    if a is None or b is None:
        return None
    ends = np.stack([op.compute(x, y).astype(np.int64) for x in (a.low, a.high) for y in (b.low, b.high)])
    return Span(ends.min(axis=0), ends.max(axis=0))


def _table(node: Node, x: Span) -> Span | None:
    table, source = node.inputs[1], node.inputs[0]
    if table is None or table.data is None or source is None:
        return None
    start = int(np.iinfo(source.dtype.numpy).min)
    parts = [table.data[low - start : high - start + 1] for low, high in zip(x.low, x.high, strict=True)]
    return Span(np.array([p.min() for p in parts], np.int64), np.array([p.max() for p in parts], np.int64))


def _reshaped(node: Node, x: Span) -> Span | None:
    """Channels stay the last axis, or are repeated for every pixel."""
    times = repeats(node)
    return None if times is None else Span(np.tile(x.low, times), np.tile(x.high, times))


def repeats(node: Node) -> int | None:
    """How often the channels come in a row of the reshaped tensor."""
    source, out = node.inputs[0], node.output
    if source is None or not source.type.rank or not out.type.rank or not source.shape[-1] or out.shape[-1] % source.shape[-1]:
        return None
    times = out.shape[-1] // source.shape[-1]
    return times if out.shape[-1] <= _MOST_CHANNELS and math.prod(out.shape) == math.prod(source.shape) else None


def _padded(node: Node, op: Pad, x: Span) -> Span | None:
    if not keeps_channels(node):
        return None
    if op.mode != "constant":
        return x
    return Span(np.minimum(x.low, x.low.dtype.type(op.value)), np.maximum(x.high, x.high.dtype.type(op.value)))


def _monotone(node: Node, x: Span) -> Span | None:
    """Ask the operator itself, for an image of the lowest numbers and one of the highest."""
    source = node.inputs[0]
    assert source is not None
    if most(source.type.elements) > 1 << 22 or (source.dtype is DType.F32 and not isinstance(node.op, (Relu, Clip))):
        return None
    ends, type_ = [], source.type
    if type_.moves:  # one pixel stands for all of them, where each is for itself
        if not isinstance(node.op, (Relu, Clip, Requantize)):
            return None
        type_ = replace(type_, shape=(1,) * (type_.rank - 1) + source.shape[-1:])
    for numbers in (x.low, x.high):
        image = np.broadcast_to(numbers.astype(source.dtype.numpy), type_.shape)
        made = node.op.evaluate([image], [type_])[0]
        ends.append(made.reshape(-1, made.shape[-1]).astype(np.float64 if source.dtype is DType.F32 else np.int64))
    return Span(ends[0].min(axis=0), ends[1].max(axis=0))
