"""Quantised operators, by exact integer arithmetic: the accumulator is i32, requantisation one multiplication."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.frontends.building import cast, matmul, reshape, transpose
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.onnx.rows.convolution import conv, conv_window
from intaglio.frontends.onnx.rows.elementwise import widened
from intaglio.frontends.onnx.tensors import PACKED, SMALL, dtype_of
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.base import widen
from intaglio.ops.binary import BitwiseAnd, Div, Equal, Mul, Sub
from intaglio.ops.control import AssertTrue
from intaglio.ops.convert import Dequantize, Quantize
from intaglio.ops.index import Gather
from intaglio.ops.numeric import int_range
from intaglio.ops.quantised import QConv, QMatMul
from intaglio.ops.reduce import Reduce
from intaglio.ops.small import NarrowFloat


def check_scale(call: OnnxCall, scale: Value) -> None:
    if scale.data is None:
        return
    values = widen(scale.data, scale.dtype).astype(np.float64)
    if not np.isfinite(values).all() or not np.greater(values, 0).all():
        raise Fault("bad-quantisation", f"a scale of `{call.op}` is zero, negative or not finite",
                    "calibrate and quantise the model again")  # fmt: skip


def spread(call: OnnxCall, x: Value, parameter: Value, axis: int, block: int) -> Value:
    """A scale or zero point in a shape that broadcasts against x: per tensor, per axis, or per block."""
    if parameter.type.elements == 1 and not block:
        return reshape(call, parameter, ())
    rank = len(x.shape)
    axis = call.checked_axis(axis, rank)
    if block:
        expected = tuple(-(-n // block) if i == axis else n for i, n in enumerate(x.shape))
        if block < 0 or parameter.shape != expected:
            raise Fault(
                "bad-quantisation",
                f"blocks of {block} along axis {axis} of {list(x.shape)} need parameters of {list(expected)}, "
                f"got {list(parameter.shape)}",
            )
        places = call.constant(np.arange(x.shape[axis], dtype=np.int64) // block)
        return call.emit(Gather(axis), parameter, places)
    if parameter.shape != (x.shape[axis],):
        raise Fault("bad-quantisation", f"{list(parameter.shape)} parameters do not fit {x.shape[axis]} channels")
    return reshape(call, parameter, tuple(x.shape[axis] if i == axis else 1 for i in range(rank)))


@importer("QuantizeLinear")
def quantize_linear(call: OnnxCall) -> Answer:
    x, scale, zero = call.value(0), call.value(1), call.maybe(2)
    check_scale(call, scale)
    code = call.integer("output_dtype")
    if zero is not None and zero in call.walk.packed:
        code = call.walk.packed[zero]
    if code in SMALL:
        return _codes(call, x, scale, zero, code)
    if code in PACKED:
        to, bits = PACKED[code]
        low, high = (0, 2**bits - 1) if to is DType.U8 else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    else:
        to = zero.dtype if zero is not None else dtype_of(code or 2, "the result of `QuantizeLinear`")
        if not to.is_int:
            raise Fault("unsupported-type", f"`QuantizeLinear` to {to.value} is not supported")
        low, high = int_range(to)
    axis, block = call.integer("axis", 1), call.integer("block_size")
    if zero is None:
        zero = call.constant(np.zeros(scale.shape, to.numpy), to)
    zero = spread(call, x, zero, axis, block)
    made = call.emit(Quantize(to, low, high), x, spread(call, x, scale, axis, block), zero)
    if code in PACKED:
        call.walk.packed[made] = code
    return made


def need_no_zero_point(call: OnnxCall, zero: Value | None) -> None:
    """Codes of 0 and -0; what is computed is checked when it runs."""
    if zero is None:
        return
    if zero.data is None:
        code = call.emit(BitwiseAnd(), zero, call.like(0x7F, zero))
        none = call.emit(Equal(), code, call.like(0, zero))
        every = call.emit(Reduce("all", tuple(range(len(zero.shape))), False), none) if zero.shape else none
        call.emit(AssertTrue("the zero point of small floats is not 0"), reshape(call, every, (1,)))
    elif np.any(zero.data & 0x7F):
        raise Fault("bad-quantisation", f"`{call.op}` of small floats has a zero point that is not 0")


def _codes(call: OnnxCall, x: Value, scale: Value, zero: Value | None, code: int) -> Value:
    """Floats of 8 and 4 bits have no zero point but 0."""
    need_no_zero_point(call, zero)
    axis, block = call.integer("axis", 1), call.integer("block_size")
    wide, factor = (cast(call, v, DType.F32) for v in (x, spread(call, x, scale, axis, block)))
    made = call.emit(NarrowFloat(SMALL[code], bool(call.integer("saturate", 1))), call.emit(Div(), wide, factor))
    call.walk.packed[made] = code
    return made


@importer("DequantizeLinear")
def dequantize_linear(call: OnnxCall) -> Answer:
    x, scale, zero = call.value(0), call.value(1), call.maybe(2)
    if call.walk.packed.get(x) in SMALL:
        need_no_zero_point(call, zero)
        factor = spread(call, x, scale, call.integer("axis", 1), call.integer("block_size"))
        made = call.emit(Mul(), widened(call, x), cast(call, factor, DType.F32))
        kind = call.integer("output_dtype")
        return cast(call, made, dtype_of(kind, "the result of `DequantizeLinear`") if kind else scale.dtype)
    if not x.dtype.is_int:
        raise Fault("bad-quantisation", f"`DequantizeLinear` of {x.dtype.value}, which is not quantised")
    check_scale(call, scale)
    code = call.integer("output_dtype")
    to = dtype_of(code, "the result of `DequantizeLinear`") if code else scale.dtype
    axis, block = call.integer("axis", 1), call.integer("block_size")
    if zero is None:
        zero = call.constant(np.zeros(scale.shape, x.dtype.numpy), x.dtype)
    if zero.dtype is not x.dtype:
        raise Fault("bad-quantisation", f"a zero point of {zero.dtype.value} for {x.dtype.value} is not valid")
    zero = spread(call, x, zero, axis, block)
    return call.emit(Dequantize(to), x, spread(call, x, scale, axis, block), zero)


def centred(call: OnnxCall, x: Value, zero: Value | None, axis: int) -> Value:
    """x - zero_point in i32."""
    wide = cast(call, x, DType.I32)
    if zero is None:
        return wide
    zero = cast(call, zero, DType.I32)
    if zero.type.elements == 1:
        zero = reshape(call, zero, ())
    elif len(zero.shape) == 1:
        zero = reshape(call, zero, tuple(zero.shape[0] if i == axis else 1 for i in range(len(x.shape))))
    return call.emit(Sub(), wide, zero)


def uniform(*zeros: Value | None) -> bool:
    """Constant zero points, the same everywhere."""
    return all(z is None or (z.data is not None and z.data.size > 0 and bool(np.all(z.data == z.data.flat[0]))) for z in zeros)


def zero_of(zero: Value | None) -> int:
    return 0 if zero is None or zero.data is None else int(zero.data.flat[0])


@importer("ConvInteger")
def conv_integer(call: OnnxCall) -> Answer:
    x, w = call.value(0), call.value(1)
    if w.data is not None and uniform(call.maybe(3)) and len(x.shape) in (3, 4):
        return _sums(call, x, w)
    return conv(call, centred(call, x, call.maybe(2), 0), centred(call, w, call.maybe(3), 0), None)


def _sums(call: OnnxCall, x: Value, w: Value) -> Value:
    """The sums of a convolution of integers; weights stay bytes. A zero point that is data is taken off before."""
    x, window = conv_window(call, x, w)
    x_zero, zero = call.maybe(2), 0
    if uniform(x_zero):
        zero = zero_of(x_zero)
    else:
        assert x_zero is not None
        x = call.emit(Sub(), cast(call, x, DType.I16), reshape(call, cast(call, x_zero, DType.I16), ()))
    flat = len(x.shape) == 3
    if flat:
        x, w = reshape(call, x, (*x.shape[:2], 1, x.shape[2])), reshape(call, w, (*w.shape[:2], 1, w.shape[2]))
        window = replace(
            window, strides=(1, *window.strides), pads=(0, window.pads[0], 0, window.pads[1]), dilations=(1, *window.dilations)
        )
    info = np.iinfo(np.int32)
    op = QConv(
        window.strides, window.pads, window.dilations, window.group, zero, zero_of(call.maybe(3)), 0,
        int(info.min), int(info.max), DType.I32, "none",
    )  # fmt: skip
    y = call.emit(op, transpose(call, x, (0, 2, 3, 1)), w, None, None, None)
    y = transpose(call, y, (0, 3, 1, 2))
    return reshape(call, y, (y.shape[0], y.shape[1], y.shape[3])) if flat else y


def product_sums(call: OnnxCall, a: Value, b: Value, a_zero: Value | None, right_zero: Value | None) -> Value:
    """The sums of a matrix product of integers. A zero point that is data: sum((a - z) * b) = sum(a * b) - z * sum(b)."""
    b_zero, zero = zero_of(right_zero), 0
    if uniform(a_zero):
        zero = zero_of(a_zero)
    info = np.iinfo(np.int32)
    op = QMatMul(False, zero, b_zero, 0, int(info.min), int(info.max), DType.I32, "none")
    y = call.emit(op, a, b, None, None, None)
    if uniform(a_zero):
        return y
    assert a_zero is not None and b.data is not None
    columns = np.sum(b.data.astype(np.int64) - b_zero, axis=-2, keepdims=True).astype(np.int32)
    shift = call.emit(Mul(), cast(call, reshape(call, a_zero, ()), DType.I32), call.constant(columns))
    return call.emit(Sub(), y, shift)


@importer("MatMulInteger")
def matmul_integer(call: OnnxCall) -> Answer:
    a, b = call.value(0), call.value(1)
    one = call.maybe(2)
    simple = uniform(one) or (one is not None and one.type.elements == 1 and b.data is not None)
    if simple and uniform(call.maybe(3)) and len(a.shape) >= 2 and len(b.shape) >= 2:
        return product_sums(call, a, b, call.maybe(2), call.maybe(3))
    rows, columns = max(len(a.shape) - 2, 0), len(b.shape) - 1
    return matmul(call, centred(call, a, call.maybe(2), rows), centred(call, b, call.maybe(3), columns))


def requantised(call: OnnxCall, total: Value, factor: Value, zero: Value) -> Value:
    """round(total * factor) + zero_point, saturated."""
    real = call.emit(Mul(), cast(call, total, DType.F32), factor)
    low, high = int_range(zero.dtype)
    one = call.constant(np.asarray(1.0, np.float32))
    op = Quantize(zero.dtype, low, high)
    return call.emit(op, real, one, reshape(call, zero, ()) if zero.type.elements == 1 else zero)


def dequantised(call: OnnxCall, x: Value, scale: Value, zero: int, axis: int) -> Value:
    """The floats that quantised numbers stand for: `absorb` makes integer operators of what stands between them."""
    if scale.type.elements == 1:
        scale = reshape(call, scale, ())
    else:
        scale = reshape(call, scale, tuple(n if i == axis else 1 for i, n in enumerate(x.shape)))
    return call.emit(Dequantize(DType.F32), x, scale, call.constant(np.asarray(zero, x.dtype.numpy), x.dtype))


def requantised_to(call: OnnxCall, real: Value, scale: Value, zero: Value) -> Value:
    low, high = int_range(zero.dtype)
    return call.emit(Quantize(zero.dtype, low, high), real, reshape(call, scale, ()), reshape(call, zero, ()))


@importer("QLinearConv")
def qlinear_conv(call: OnnxCall) -> Answer:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (call.value(i) for i in range(8))
    for scale in (x_scale, w_scale, y_scale):
        check_scale(call, scale)
    bias = call.maybe(8)
    known = all(v.data is not None for v in (w, x_scale, w_scale, y_scale, x_zero, y_zero))
    if known and uniform(w_zero) and len(x.shape) in (3, 4) and max(x_scale.type.elements, y_scale.type.elements) == 1:
        weights = dequantised(call, w, w_scale, zero_of(w_zero), 0)
        if bias is not None:
            steps = call.emit(Mul(), reshape(call, x_scale, ()), w_scale)
            bias = dequantised(call, bias, steps, 0, 0)
        return requantised_to(call, conv(call, dequantised(call, x, x_scale, zero_of(x_zero), 1), weights, bias), y_scale, y_zero)
    total = conv(call, centred(call, x, x_zero, 1), centred(call, w, w_zero, 0), bias)
    product = call.emit(Mul(), reshape(call, x_scale, ()), w_scale)
    factor = call.emit(Div(), product, reshape(call, y_scale, ()))
    if factor.type.elements == 1:
        factor = reshape(call, factor, ())
    else:
        factor = reshape(call, factor, (w.shape[0], *[1] * (len(x.shape) - 2)))
    return requantised(call, total, factor, y_zero)


@importer("QLinearMatMul")
def qlinear_matmul(call: OnnxCall) -> Answer:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (call.value(i) for i in range(8))
    for scale in (a_scale, b_scale, y_scale):
        check_scale(call, scale)
    rows, columns = max(len(a.shape) - 2, 0), len(b.shape) - 1
    known = all(v.data is not None for v in (a_scale, b_scale, y_scale, a_zero, b_zero, y_zero))
    per_tensor = max(a_scale.type.elements, y_scale.type.elements) == 1 and all(
        s.dtype is DType.F32 for s in (a_scale, b_scale, y_scale)
    )
    if known and per_tensor and uniform(b_zero) and len(b_scale.shape) <= 1 and min(len(a.shape), len(b.shape)) >= 2:
        left, right = dequantised(call, a, a_scale, zero_of(a_zero), 0), dequantised(call, b, b_scale, zero_of(b_zero), columns)
        return requantised_to(call, matmul(call, left, right), y_scale, y_zero)
    total = matmul(call, centred(call, a, a_zero, rows), centred(call, b, b_zero, columns))
    if a_scale.type.elements > 1:
        a_scale = reshape(call, a_scale, (*a_scale.shape, 1) if len(a_scale.shape) == 1 else a_scale.shape)
    else:
        a_scale = reshape(call, a_scale, ())
    b_scale = b_scale if b_scale.type.elements > 1 else reshape(call, b_scale, ())
    factor = call.emit(Div(), call.emit(Mul(), a_scale, b_scale), y_scale)
    factor = cast(call, factor, DType.F32)
    return requantised(call, total, factor if factor.type.elements > 1 else reshape(call, factor, ()), y_zero)
