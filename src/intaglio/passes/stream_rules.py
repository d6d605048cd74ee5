"""How operators behave along the axis of a stream: which rows before the newest they need, and where the axis goes."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass, replace

from intaglio.ir.graph import Node, Value
from intaglio.ir.operator import Op
from intaglio.ir.types import Layout
from intaglio.ops.base import Elementwise, normal_axes, normal_axis
from intaglio.ops.control import Copy
from intaglio.ops.conv import Conv
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Concat, Pad, Reshape, Slice, Transpose
from intaglio.ops.norm import LayerNorm
from intaglio.ops.pool import AveragePool, LpPool, MaxPool, Pool
from intaglio.ops.quantised import Lookup, QConv, QMatMul
from intaglio.ops.quantised_recurrent import QLstm
from intaglio.ops.quantised_rows import QAveragePool, QMean, QSoftmax
from intaglio.ops.quantised_tables import Lookup16, QSoftmax16, Squash16
from intaglio.ops.recurrent import Recurrent
from intaglio.ops.reduce import LogSoftmax, Reduce, Softmax


class NotAlong(Exception):
    """The operator cannot go along the axis. The text says why."""


@dataclass(frozen=True, slots=True)
class Along:
    """A row of the result needs `extent` rows; the next one `stride` rows further. The newest `behind` rows are not used yet.
    `axes`: where the axis is in each result, None where it is gone. `goes_on`: it remembers more than the window."""

    axes: tuple[int | None, ...]
    extent: int = 1
    stride: int = 1
    behind: int = 0
    fill: float = 0.0  # what is before the first frame
    goes_on: bool = False
    spatial: int = -1  # which of the spatial axes

    def op_for(self, node: Node, rows: int) -> Op:
        """The operator for the rows of a step."""
        op = node.op
        if self.spatial >= 0 and isinstance(op, (Conv, QConv, Pool, QAveragePool)):
            half = len(op.pads) // 2
            pads = tuple(0 if n % half == self.spatial else p for n, p in enumerate(op.pads))
            strides = tuple(self.stride if n == self.spatial else s for n, s in enumerate(op.strides))
            op = replace(op, pads=pads, strides=strides)
            return replace(op, counted_pads=()) if isinstance(op, AveragePool) else op
        if isinstance(op, (Reshape, Slice)):
            axis = self.axes[0]
            assert axis is not None
            shape = (*node.output.shape[:axis], rows, *node.output.shape[axis + 1 :])
            if isinstance(op, Reshape):
                return replace(op, shape=shape)
            return replace(op, starts=(*op.starts[:axis], 0, *op.starts[axis + 1 :]), shape=shape)
        return op


def along(node: Node, axes: dict[Value, int], carried: Container[Value] = ()) -> Along:
    """Raises NotAlong. `carried`: what starts from a state of the model, and leaves it where it was."""
    op, out = node.op, node.output
    if node.when is not None:
        raise NotAlong("it is guarded")
    streamed = [v for v in node.inputs if v is not None and v in axes]
    if not isinstance(op, (Elementwise, Concat, Conv, QConv)) and (node.inputs[0] not in axes or len(streamed) != 1):
        raise NotAlong("frames enter at an unusual operand")
    first = node.inputs[0]
    axis = axes[first] if first is not None and first in axes else -1
    match op:
        case Conv() | QConv():
            return _convolution(op, node, axes)
        case MaxPool() | AveragePool() | LpPool() | QAveragePool():
            return _pooling(op, node, axis)
        case Elementwise():
            return Along((_broadcast(node, axes),))
        case Copy() | Lookup() | Lookup16() | Squash16():
            return Along((axis,))
        case Concat():
            return _joined(op, node, axes)
        case Transpose():
            return Along((op.perm.index(axis),))
        case Reshape():
            return Along((_kept_axis(first.shape if first else (), out.shape, axis),))
        case Softmax() | LogSoftmax() | QSoftmax() | QSoftmax16():
            if normal_axis(getattr(op, "axis", -1), out.type.rank) == axis:
                raise NotAlong("it works over all frames")
            return Along((axis,))
        case LayerNorm():
            if normal_axis(op.axis, out.type.rank) <= axis or len(node.outputs) != 1:
                raise NotAlong("it works over all frames")
            return Along((axis,))
        case Reduce() | QMean():
            return _reduced(op, node, axis)
        case Pad():
            return _padded(op, node, axis)
        case Slice():
            return _sliced(op, node, axis)
        case MatMul() | QMatMul():
            return _product(op, node, axis)
        case Recurrent():
            return _recurrent(op, node, axis, carried)
        case QLstm():
            if axis != (0 if op.time_major else 1) or not all(start in carried for start in node.inputs[5:7]):
                raise NotAlong("its time is another axis, or it has no state of its own")
            return Along((axis, None, None), goes_on=True)
    raise NotAlong("it cannot take frames one by one")


def _window(
    size: int, stride: int, dilation: int, before: int, after: int, rows: int, fill: float, axis: int, spatial: int
) -> Along:
    extent = (size - 1) * dilation + 1
    if not before and not after and rows - extent < stride:  # one row for the window: no stride is seen
        return Along((axis,), extent, 1, rows - extent, spatial=spatial)
    if not before and not after:
        return Along((axis,), extent, stride, (rows - extent) % stride, spatial=spatial)
    if before == extent - 1 and not after and stride == 1:  # causal: as many frames as results
        return Along((axis,), extent, stride, 0, fill, goes_on=True, spatial=spatial)
    raise NotAlong(f"it pads the axis with {before} frames before and {after} after the window")


def _spatial(layout: Layout, rank: int, axis: int) -> int:
    """Which spatial axis it is."""
    place = axis - 1 if layout is Layout.NHWC else axis - 2
    if not 0 <= place < rank - 2:
        raise NotAlong("the axis is the batch or the channels")
    return place


def _convolution(op: Conv | QConv, node: Node, axes: dict[Value, int]) -> Along:
    x, w = node.inputs[0], node.inputs[1]
    if x is None or w is None or x not in axes or not w.is_const:
        raise NotAlong("its weights are computed")
    layout = op.layout if isinstance(op, Conv) else Layout.NHWC
    axis = axes[x]
    at = _spatial(layout, x.type.rank, axis)
    half = len(op.pads) // 2
    fill = float(op.x_zero) if isinstance(op, QConv) else 0.0
    for extra in node.inputs[5 if isinstance(op, QConv) else 3 :]:
        if extra is not None and not (extra in axes and axes[extra] == axis) and not _flat(extra, node.output, axis):
            raise NotAlong("the tensor that is added has its own frames")
    return _window(
        w.shape[2 + at], op.strides[at], op.dilations[at], op.pads[at], op.pads[half + at], x.shape[axis], fill, axis, at
    )


def _flat(value: Value, out: Value, axis: int) -> bool:
    """Is it the same for each row?"""
    lead = out.type.rank - value.type.rank
    return axis < lead or value.shape[axis - lead] == 1


def _pooling(op: Pool | QAveragePool, node: Node, axis: int) -> Along:
    x = node.inputs[0]
    assert x is not None
    at = _spatial(op.layout if isinstance(op, Pool) else Layout.NHWC, x.type.rank, axis)
    half = len(op.pads) // 2
    if op.pads[at] or op.pads[half + at]:
        raise NotAlong("it pads the axis")
    dilation = op.dilations[at] if isinstance(op, Pool) else 1
    return _window(op.kernel[at], op.strides[at], dilation, 0, 0, x.shape[axis], 0.0, axis, at)


def _broadcast(node: Node, axes: dict[Value, int]) -> int:
    out = node.output
    places = {axes[v] + out.type.rank - v.type.rank for v in node.inputs if v is not None and v in axes}
    if len(places) != 1:
        raise NotAlong("its operands have their frames along different axes")
    place = places.pop()
    for value in node.inputs:
        if value is not None and value not in axes and not _flat(value, out, place):
            raise NotAlong("an operand has its own frames")
        if value is not None and value in axes and value.shape[axes[value]] != out.shape[place]:
            raise NotAlong("an operand has one frame for all")
    return place


def _joined(op: Concat, node: Node, axes: dict[Value, int]) -> Along:
    places = {axes.get(v, -1) for v in node.inputs if v is not None}
    if len(places) != 1 or -1 in places:
        raise NotAlong("its operands have their frames along different axes, or none")
    place = places.pop()
    if normal_axis(op.axis, node.output.type.rank) == place:
        raise NotAlong("it joins frames")
    return Along((place,))


def _kept_axis(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> int:
    lead, size = math.prod(before[:axis]), before[axis]
    for n, other in sorted(enumerate(after), key=lambda at: at[0] != axis):  # where it was, if that is possible
        if other == size and math.prod(after[:n]) == lead:
            return n
    raise NotAlong("it mixes frames with another axis")


def _reduced(op: Reduce | QMean, node: Node, axis: int) -> Along:
    x = node.inputs[0]
    assert x is not None
    gone = normal_axes(op.axes, x.type.rank)
    if axis in gone:
        raise NotAlong("it works over all frames")
    return Along((axis if op.keepdims else axis - sum(a < axis for a in gone),))


def _padded(op: Pad, node: Node, axis: int) -> Along:
    rank = node.output.type.rank
    if op.pads[axis] or op.pads[rank + axis]:
        raise NotAlong(f"it pads the axis with {op.pads[axis]} frames before and {op.pads[rank + axis]} after the window")
    return Along((axis,))


def _sliced(op: Slice, node: Node, axis: int) -> Along:
    x = node.inputs[0]
    assert x is not None
    if op.steps[axis] != 1:
        raise NotAlong("it selects some of the frames")
    behind = x.shape[axis] - op.starts[axis] - op.shape[axis]
    return Along((axis,), behind=behind)


def _product(op: MatMul | QMatMul, node: Node, axis: int) -> Along:
    a, b = node.inputs[0], node.inputs[1]
    assert a is not None
    if b is None or not b.is_const or b.type.rank != 2 or axis >= a.type.rank - 1 or getattr(op, "transpose_a", False):
        raise NotAlong("it multiplies all frames")
    return Along((axis,))


def _recurrent(op: Recurrent, node: Node, axis: int, carried: Container[Value]) -> Along:
    if op.direction != "forward":
        raise NotAlong(f"it is {op.direction}: it needs the last frame first")
    if axis != (1 if op.layout_batch_first else 0) or (len(node.inputs) > 4 and node.inputs[4] is not None):
        raise NotAlong("its time is another axis, or has its own length")
    for start in node.inputs[5 : 5 + op.STATES]:
        if start is not None and start in carried:
            continue
        if start is not None and (start.data is None or start.data.size == 0 or (start.data != start.data.reshape(-1)[0]).any()):
            raise NotAlong("it starts from a state that is computed or not uniform")
    return Along((axis, *[None] * op.STATES), goes_on=True)
