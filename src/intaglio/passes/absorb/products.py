"""Convolutions, matrix products, sums and products of quantised tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array, Node, Value
from intaglio.ir.sizes import is_size
from intaglio.ir.types import DType, Layout
from intaglio.ops.activation import Clip, Relu
from intaglio.ops.binary import Add, Mul, Sub
from intaglio.ops.conv import Conv
from intaglio.ops.fixed_point import quantize_multiplier, quantize_multipliers
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Reshape, Transpose
from intaglio.ops.quantised import QAdd, QConv, QMatMul, QMul, sum_factors
from intaglio.passes.absorb.real import Absorber, Grid, Real

_BYTES = (DType.I8, DType.U8)
_BIAS_SLACK = 1e-3  # of one step of the sum: a bias that is nearer to a whole number than this is one


@dataclass(frozen=True, slots=True)
class Body:
    """What a Quantize rounds: an operator, a bias added to it, and the range that an activation leaves."""

    core: Node
    low: int
    high: int
    bias: Value | None = None


def body_of(work: Absorber, node: Node, grid: Grid, *, with_bias: bool = False) -> Body | None:
    """Quantize is monotonic, so what clips before it clips the integers after it."""
    value, low, high = node.inputs[0], grid.low, grid.high
    bias: Value | None = None
    while True:
        core = work.producer(value, node)
        if core is None or core.output.name in work.floats:
            return None
        if bias is None and isinstance(core.op, Relu):
            low = max(low, grid.place(0.0))
            value = core.inputs[0]
        elif bias is None and isinstance(core.op, Clip):
            low, high = max(low, grid.place(core.op.low)), min(high, grid.place(core.op.high))
            value = core.inputs[0]
        elif with_bias and bias is None and isinstance(core.op, Add) and (split := _constant_side(work, core)) is not None:
            value, bias = split
        else:
            return Body(core, low, max(low, high), bias)


def _constant_side(work: Absorber, node: Node) -> tuple[Value, Value] | None:
    """A sum of a matrix product and a constant along its columns."""
    a, b = node.inputs
    assert a is not None and b is not None
    for value, other in ((a, b), (b, a)):
        made = work.edit.made.get(value)
        if made is not None and isinstance(made.op, MatMul) and len(made.inputs) == 2 and _fixed_data(work, other) is not None:
            columns = value.shape[-1]
            if value.shape == node.output.shape and other.shape[-1:] == (columns,) and math.prod(other.shape) == columns:
                return value, other
    return None


def _fixed_data(work: Absorber, value: Value | None) -> Array | None:
    """The floats of a constant, dequantised if it must be."""
    if value is None:
        return None
    if value.data is not None:
        return value.data
    real = work.real(value)
    if real is None or real.stored.data is None:
        return None
    return ((real.stored.data.astype(np.int64) - real.zero).astype(np.float32) * real.scale).astype(np.float32)


def product(work: Absorber, node: Node, grid: Grid) -> Value | None:
    if grid.to not in (DType.I8, DType.U8, DType.I16, DType.U16) or (work.fixed and grid.to is DType.U16):
        return None
    body = body_of(work, node, grid, with_bias=True)
    if body is None:
        return None
    if isinstance(body.core.op, Conv) and body.bias is None:
        return _convolution(work, node, grid, body)
    if isinstance(body.core.op, MatMul):
        return _matrix_product(work, node, grid, body)
    return None


@dataclass(frozen=True, slots=True)
class Sides:
    """The two sides of a product: their zero points, and the step of the sum per column."""

    left: Real
    right: Real
    w_zero: int
    step: Array  # float64, per column


def _sides(work: Absorber, left: Value | None, right: Value | None, axis: int, columns: int) -> Sides | None:
    a, b = work.real(left), work.real(right)
    if a is None or b is None or not a.single or np.any(b.zero != b.zero.reshape(-1)[0]):
        return None
    narrow = a.stored.dtype in (*_BYTES, DType.I16) or (not work.fixed and a.stored.dtype is DType.U16)
    wide = not work.fixed and a.stored.dtype in (DType.I16, DType.U16) and b.stored.dtype is DType.I16
    if not narrow or not (b.stored.dtype in _BYTES or wide) or (a.stored.data is not None and b.stored.data is None):
        return None
    scales = _along(b, axis, columns)
    if scales is None:
        return None
    step = np.float32(a.step) * scales.astype(np.float32)
    return Sides(a, b, int(b.zero.reshape(-1)[0]), step.astype(np.float64))


def _along(real: Real, axis: int, columns: int) -> Array | None:
    """Scales per column, where they differ along that axis at most; one where the caller says how many columns there are."""
    if real.scale.size == 1 and is_size(columns):
        return real.scale.reshape(1)
    if real.scale.size == 1:
        return np.broadcast_to(real.scale.reshape(1), (columns,))
    rank = real.stored.type.rank
    shape = (1,) * (rank - real.scale.ndim) + real.scale.shape
    if any(n != 1 for i, n in enumerate(shape) if i != axis % rank) or real.scale.size != columns:
        return None
    return real.scale.reshape(-1)


def _bias(work: Absorber, value: Value | None, sides: Sides, grid: Grid) -> tuple[bool, Value | None]:
    """(can it be had, the bias): whole steps of the sum, or floats in steps of the result where it is not whole."""
    if value is None:
        return True, None
    data = _fixed_data(work, value)
    if data is None:
        return False, None
    data = data.reshape(-1)
    wide = work.fixed and sides.left.stored.dtype is DType.I16
    real = work.real(value)
    of_sums = real is not None and real.stored.dtype is DType.I32 and not real.zero.any() and not wide
    if real is not None and real.stored.data is not None and of_sums and np.allclose(real.scale.reshape(-1), sides.step, 1e-5, 0.0):
        return True, work.constant(real.stored.data.reshape(-1), "bias")
    with np.errstate(all="ignore"):
        exact = data.astype(np.float64) / sides.step
        whole = np.rint(exact)
    fits = np.isfinite(exact).all() and np.abs(whole).max(initial=0) < 2.0 ** (39 if wide else 31)
    near = fits and bool(np.all(np.abs(exact - whole) <= np.maximum(_BIAS_SLACK, np.abs(exact) * 2.0**-22)))
    if near or (fits and work.fixed):
        return True, work.constant(whole.astype(np.int64 if wide else np.int32), "bias")
    if work.fixed:
        return False, None
    return True, work.constant((data / grid.step).astype(np.float32), "bias")


def _factors(work: Absorber, sides: Sides, grid: Grid) -> list[Value | None]:
    """Multipliers and shifts of the sums, or floats."""
    if not work.fixed:
        return [work.constant((sides.step.astype(np.float32) / grid.step).astype(np.float32), "multiplier"), None]
    multiplier, shift = quantize_multipliers(sides.step / float(grid.step))
    return [work.constant(multiplier, "multiplier"), work.constant(shift, "shift")]


def _convolution(work: Absorber, node: Node, grid: Grid, body: Body) -> Value | None:
    core = body.core
    op = core.op
    assert isinstance(op, Conv)
    weights = core.inputs[1]
    if weights is None or op.epilogue or weights.type.rank not in (3, 4):
        return None
    sides = _sides(work, core.inputs[0], weights, 0, weights.shape[0])
    if sides is None or sides.right.stored.data is None:
        return None
    ok, bias = _bias(work, core.inputs[2] if len(core.inputs) > 2 else None, sides, grid)
    if not ok:
        return None
    x, w = sides.left.stored, sides.right.stored
    strides, pads, dilations = op.strides, op.pads, op.dilations
    flat = weights.type.rank == 3
    if flat:  # one axis: an image one pixel high
        if op.layout is Layout.NHWC:
            return None
        n, c, length = x.shape
        x = work.emit(Reshape((n, c, 1, length)), [x], node)
        assert w.data is not None
        w = work.constant(w.data[:, :, None, :], "w")
        strides, pads, dilations = (1, *strides), (0, pads[0], 0, pads[1]), (1, *dilations)
    if op.layout is not Layout.NHWC:
        x = work.emit(Transpose((0, 2, 3, 1)), [x], node)
    zeros = sides.left.origin, sides.w_zero, grid.origin
    scaling = "once" if work.fixed else "float"
    whole = QConv(strides, pads, dilations, op.group, *zeros, body.low, body.high, grid.to, scaling)
    y = work.emit(whole, [x, w, bias, *_factors(work, sides, grid)], node)
    if op.layout is not Layout.NHWC:
        y = work.emit(Transpose((0, 3, 1, 2)), [y], node)
    if flat:
        y = work.emit(Reshape(node.output.shape), [y], node)
    return y


def _matrix_product(work: Absorber, node: Node, grid: Grid, body: Body) -> Value | None:
    core = body.core
    op = core.op
    assert isinstance(op, MatMul)
    b = core.inputs[1]
    own = core.inputs[2] if len(core.inputs) > 2 else None
    if b is None or op.epilogue or op.transpose_a or (own is not None and body.bias is not None):
        return None
    columns = node.output.shape[-1]
    bias = own if own is not None else body.bias
    if bias is not None and (bias.shape[-1:] != (columns,) or math.prod(bias.shape) != columns):
        return None
    sides = _sides(work, core.inputs[0], b, -2 if op.transpose_b else -1, columns)
    if sides is None:
        return None
    ok, added = _bias(work, bias, sides, grid)
    if not ok:
        return None
    if sides.left.stored.dtype is DType.I16 and sides.right.stored.data is None:
        return None
    zeros = sides.left.origin, sides.w_zero, grid.origin
    scaling = "once" if work.fixed else "float"
    whole = QMatMul(op.transpose_b, *zeros, body.low, body.high, grid.to, scaling)
    return work.emit(whole, [sides.left.stored, sides.right.stored, added, *_factors(work, sides, grid)], node)


def elementwise(work: Absorber, node: Node, grid: Grid) -> Value | None:
    """Sums, differences and products in fixed point; by floats they stay one loop of dequantize, operator, quantize."""
    if not work.fixed:
        return None
    body = body_of(work, node, grid)
    if body is None or not isinstance(body.core.op, (Add, Sub, Mul)):
        return None
    a, b = (work.real(v) or _constant_real(work, v, grid.to) for v in body.core.inputs)
    if a is None or b is None or not a.single or not b.single or a.stored.dtype is not b.stored.dtype:
        return None
    if a.stored.dtype is not grid.to or (a.stored.data is not None and b.stored.data is not None):
        return None
    y_step = float(grid.step)
    bounds = grid.origin, body.low, body.high
    if isinstance(body.core.op, Mul):
        factor = quantize_multiplier(float(a.step) * float(b.step) / y_step)
        return work.emit(QMul(a.origin, b.origin, *factor, *bounds, grid.to), [a.stored, b.stored], node)
    left, right, lift, whole = sum_factors(float(a.step), float(b.step), y_step, grid.to)
    op = QAdd(a.origin, *left, b.origin, *right, lift, isinstance(body.core.op, Sub), *whole, *bounds, grid.to)
    return work.emit(op, [a.stored, b.stored], node)


def _constant_real(work: Absorber, value: Value | None, to: DType) -> Real | None:
    """A constant of floats, quantised over its own range."""
    if value is None or value.data is None or value.dtype is not DType.F32 or not np.isfinite(value.data).all():
        return None
    most = float(np.abs(value.data).max(initial=0.0))
    if most == 0.0:
        return None
    info = np.iinfo(to.numpy)
    zero = 128 if to is DType.U8 else 0
    step = np.float32(most / (info.max - zero))
    stored = np.clip(np.rint(value.data / step) + zero, info.min, info.max).astype(to.numpy)
    return Real(work.constant(stored, value.name), np.asarray(step), np.asarray(zero, np.int64))
