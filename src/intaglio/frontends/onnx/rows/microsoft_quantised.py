"""Quantised operators of com.microsoft: dequantise, compute, quantise, as ONNX Runtime does; `absorb` finds the integers."""

from __future__ import annotations

import numpy as np

from intaglio.frontends.building import cast, concat, matmul, reshape, transpose
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.pooling import pool_window
from intaglio.frontends.onnx.rows.quantised import check_scale, dequantised, product_sums, requantised_to, uniform, zero_of
from intaglio.frontends.onnx.rows.reduction import softmax_from
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import LeakyRelu, Sigmoid
from intaglio.ops.binary import Add, Div, Equal, Max, Min, Mul, Sub, Where
from intaglio.ops.convert import Dequantize, Quantize
from intaglio.ops.matmul import MatMul
from intaglio.ops.numeric import int_range
from intaglio.ops.pool import AveragePool
from intaglio.ops.reduce import Reduce, Softmax
from intaglio.ops.unary import Neg

MS = "com.microsoft"


def _real(call: OnnxCall, at: int) -> Value:
    x, scale, zero = call.value(at), call.value(at + 1), call.maybe(at + 2)
    check_scale(call, scale)
    if zero is None:
        zero = call.constant(np.zeros((), x.dtype.numpy), x.dtype)
    return call.emit(Dequantize(DType.F32), x, reshape(call, scale, ()), reshape(call, zero, ()))


def _stored(call: OnnxCall, real: Value, at: int, like: Value) -> Value:
    scale, zero = call.value(at), call.maybe(at + 1)
    check_scale(call, scale)
    if zero is None:
        zero = call.constant(np.zeros((), like.dtype.numpy), like.dtype)
    low, high = int_range(zero.dtype)
    op = Quantize(zero.dtype, low, high)
    return call.emit(op, real, reshape(call, scale, ()), reshape(call, zero, ()))


@importer("QLinearAdd", "QLinearMul", domain=MS)
def qlinear_binary(call: OnnxCall) -> Answer:
    op = Add() if call.op == "QLinearAdd" else Mul()
    return _stored(call, call.emit(op, _real(call, 0), _real(call, 3)), 6, call.value(0))


@importer("QLinearSigmoid", "QLinearLeakyRelu", domain=MS)
def qlinear_unary(call: OnnxCall) -> Answer:
    op = Sigmoid() if call.op == "QLinearSigmoid" else LeakyRelu(call.real("alpha", 0.01))
    return _stored(call, call.emit(op, _real(call, 0)), 3, call.value(0))


@importer("QLinearSoftmax", domain=MS)
def qlinear_softmax(call: OnnxCall) -> Answer:
    x = _real(call, 0)
    axis = call.axis(len(x.shape), -1)
    y = softmax_from(call, x, axis) if call.integer("opset") < 13 else call.emit(Softmax(axis), x)
    return _stored(call, y, 3, call.value(0))


@importer("QLinearReduceMean", domain=MS)
def qlinear_reduce_mean(call: OnnxCall) -> Answer:
    x = _real(call, 0)
    axes = call.checked_axes(call.ints("axes") or list(_all(x)), len(x.shape))
    y = call.emit(Reduce("mean", axes, bool(call.integer("keepdims", 1))), x)
    return _stored(call, y, 3, call.value(0))


@importer("MulInteger", domain=MS)
def mul_integer(call: OnnxCall) -> Answer:
    """Products of single numbers, less their zero points."""
    sides = [cast(call, call.value(at), DType.I32) for at in (0, 2)]
    for n, zero in enumerate((call.maybe(1), call.maybe(3))):
        if zero is not None:
            sides[n] = call.emit(Sub(), sides[n], cast(call, reshape(call, zero, ()), DType.I32))
    return call.emit(Mul(), *sides)


@importer("ReduceSumInteger", domain=MS)
def reduce_sum_integer(call: OnnxCall) -> Answer:
    x = cast(call, call.value(0), DType.I32)
    axes = call.checked_axes(call.ints("axes") or list(_all(x)), len(x.shape))
    return call.emit(Reduce("sum", axes, bool(call.integer("keepdims", 1))), x)


@importer("MatMulInteger16", domain=MS)
def matmul_integer16(call: OnnxCall) -> Answer:
    """Sums in 32 bits, which may overflow."""
    return matmul(call, cast(call, call.value(0), DType.I32), cast(call, call.value(1), DType.I32))


@importer("QLinearAveragePool", "QLinearGlobalAveragePool", domain=MS)
def qlinear_average_pool(call: OnnxCall) -> Answer:
    x = _real(call, 0)
    last = bool(call.integer("channels_last"))
    rank = len(x.shape)
    if last:
        x = transpose(call, x, (0, rank - 1, *range(1, rank - 1)))
    if call.op == "QLinearGlobalAveragePool":
        y = call.emit(Reduce("mean", tuple(range(2, rank)), True), x)
    else:
        kernel, strides, dilations, pads, declared = pool_window(call, x)
        include = bool(call.integer("count_include_pad"))
        op = AveragePool(
            tuple(kernel), tuple(strides), tuple(pads), tuple(dilations), count_include_pad=include,
            counted_pads=tuple(declared) if include and declared != pads else (),
        )  # fmt: skip
        y = call.emit(op, x)
    if last:
        y = transpose(call, y, (0, *range(2, rank), 1))
    return _stored(call, y, 3, call.value(0))


@importer("QLinearConcat", domain=MS)
def qlinear_concat(call: OnnxCall) -> Answer:
    parts = [_real(call, at) for at in range(2, len(call.inputs), 3)]
    axis = call.axis(len(parts[0].shape), 0)
    return _stored(call, concat(call, parts, axis), 0, call.value(2))


@importer("QLinearWhere", domain=MS)
def qlinear_where(call: OnnxCall) -> Answer:
    return _stored(call, call.emit(Where(), call.value(0), _real(call, 1), _real(call, 4)), 7, call.value(1))


@importer("QGemm", domain=MS)
def qgemm(call: OnnxCall) -> Answer:
    """alpha * A * B + C on integers; the result is floats where no scale is given for it."""
    a, a_scale, a_zero, b, b_scale, b_zero = (call.value(i) for i in range(6))
    bias, y_scale, y_zero = call.maybe(6), call.maybe(7), call.maybe(8)
    for scale in (a_scale, b_scale):
        check_scale(call, scale)
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise Fault("shape-mismatch", f"`QGemm` of {list(a.shape)} and {list(b.shape)} is not valid")
    if a_scale.type.elements != 1 or not uniform(a_zero, b_zero) or b_scale.data is None:
        raise unsupported("`QGemm` with scales or zero points that are computed, or different ones for the rows")
    turned = bool(call.integer("transB"))
    alpha = call.real("alpha", 1.0)
    left, steps = a, b_scale if alpha == 1.0 else call.emit(Mul(), b_scale, call.like(alpha, b_scale))
    if call.integer("transA"):
        left = transpose(call, a, (1, 0))
    real = dequantised(call, left, a_scale, zero_of(a_zero), 0)
    weights = dequantised(call, b, steps, zero_of(b_zero), 0 if turned else 1)
    if bias is not None:
        sums = call.emit(Mul(), reshape(call, a_scale, ()), steps)
        bias = dequantised(call, reshape(call, bias, (bias.type.elements,)), sums, 0, 0)
    y = call.emit(MatMul(False, turned), real, weights, bias)
    if y_scale is None or y_zero is None:
        return y
    check_scale(call, y_scale)
    return requantised_to(call, y, y_scale, y_zero)


@importer("MatMulIntegerToFloat", domain=MS)
def matmul_integer_to_float(call: OnnxCall) -> Answer:
    a, b, a_scale, b_scale = (call.value(i) for i in range(4))
    return float_product(call, a, b, a_scale, b_scale, call.maybe(4), call.maybe(5), call.maybe(6))


@importer("DynamicQuantizeMatMul", domain=MS)
def dynamic_quantize_matmul(call: OnnxCall) -> Answer:
    """The left side is quantised as it comes."""
    return dynamic_product(call, call.value(0), call.value(1), call.value(2), call.maybe(3), call.maybe(4))


def dynamic_product(
    call: OnnxCall, x: Value, b: Value, b_scale: Value, b_zero: Value | None, bias: Value | None = None
) -> Value:
    """x @ b, with x as bytes between its least and its largest number, zero included."""
    low = call.emit(Min(), call.emit(Reduce("min", _all(x), False), x), call.constant(np.asarray(0, np.float32)))
    high = call.emit(Max(), call.emit(Reduce("max", _all(x), False), x), call.constant(np.asarray(0, np.float32)))
    scale = call.emit(Div(), call.emit(Sub(), high, low), call.constant(np.asarray(255, np.float32)))
    flat = call.emit(Equal(), scale, call.constant(np.asarray(0, np.float32)))
    scale = call.emit(Where(), flat, call.constant(np.asarray(1, np.float32)), scale)
    negative = call.emit(Div(), call.emit(Neg(), low), scale)
    zero = call.emit(
        Quantize(DType.U8, 0, 255), negative, call.constant(np.asarray(1, np.float32)), call.constant(np.asarray(0, np.uint8))
    )
    a = call.emit(Quantize(DType.U8, 0, 255), x, scale, zero)
    return float_product(call, a, b, scale, b_scale, zero, b_zero, bias)


def _all(x: Value) -> tuple[int, ...]:
    return tuple(range(len(x.shape)))


def float_product(
    call: OnnxCall, a: Value, b: Value, a_scale: Value, b_scale: Value, a_zero: Value | None, b_zero: Value | None,
    bias: Value | None,
) -> Value:  # fmt: skip
    check_scale(call, b_scale)
    if not uniform(b_zero) or (not uniform(a_zero) and b.data is None) or a_scale.type.elements != 1:
        raise unsupported(f"`{call.op}` with zero points that differ along an axis or are computed")
    total = product_sums(call, a, b, a_zero, b_zero)
    if b_scale.type.elements == 1:
        b_scale = reshape(call, b_scale, ())
    factor = call.emit(Mul(), reshape(call, a_scale, ()), b_scale)
    y = call.emit(Mul(), cast(call, total, DType.F32), factor)
    return y if bias is None else call.emit(Add(), y, bias)
