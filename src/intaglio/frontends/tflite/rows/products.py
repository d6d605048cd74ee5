"""Fully connected layers and matrix products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.container import Tensor
from intaglio.frontends.tflite.rows.activation import activate, bounds
from intaglio.frontends.tflite.rows.convolution import bias_of, channel_multipliers, product_multiplier, zero_of
from intaglio.frontends.tflite.walk import TFLiteCall, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.convert import Cast
from intaglio.ops.hybrid import HybridMatMul
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Concat, Reshape, Slice, Transpose
from intaglio.ops.quantised import QMatMul
from intaglio.ops.quantised_norms import QDense

_QUANTISED = (DType.I8, DType.U8, DType.I16)


@importer("FULLY_CONNECTED")
def fully_connected(call: TFLiteCall) -> None:
    o = call.options
    x, weights = call.value(0), call.value(1)
    if getattr(o, "WeightsFormat", int)() != 0:
        raise Fault("unsupported-operator", "weights in a shuffled order are not supported", "convert without shuffled weights")
    if weights.type.rank != 2 or x.type.elements % max(weights.shape[1], 1) or 0 in weights.shape:
        raise Fault("shape-mismatch", f"cannot multiply {list(x.shape)} by weights of {list(weights.shape)}")
    outs, depth = weights.shape
    rows = x.type.elements // depth
    flat = call.emit(Reshape((rows, depth)), x) if x.shape != (rows, depth) else x
    act = o.FusedActivationFunction()
    shape = (*x.shape[:-1], outs) if o.KeepNumDims() else (rows, outs)
    if x.dtype in _QUANTISED:
        y = _quantised_dense(call, flat, weights, act)
    elif weights.dtype in (DType.I8, DType.U8):
        y = activate(call, _hybrid_dense(call, o, flat, weights), act)
    else:
        y = activate(call, call.emit(MatMul(transpose_b=True), flat, weights, bias_of(call, 2)), act)
    call.give(call.emit(Reshape(shape), y) if y.shape != shape else y)


def _quantised_dense(call: TFLiteCall, flat: Value, weights: Value, act: int) -> Value:
    """LiteRT scales the sum by a double. One rounding of a 31-bit factor is the same for 8-bit results, not for 16-bit ones."""
    x, w, out = call.tensor(0), call.tensor(1), call.out()
    low, high = bounds(call, act, out)
    if flat.dtype is DType.I16 and zero_of(w) == 0:
        scales = np.broadcast_to(w.quant.scale if w.quant is not None else np.ones(1), (weights.shape[0],))
        real = call.quant(x)[0] * scales / call.quant(out)[0]
        return call.emit(QDense(low, high), flat, weights, bias_of(call, 2), constant(real.astype(np.float64)))
    multiplier, shift = channel_multipliers(call, x, w, out, weights.shape[0])
    scaling = "twice" if out.dtype is DType.I16 else "once"
    op = QMatMul(True, call.quant(x)[1], zero_of(w), call.quant(out)[1], low, high, out.dtype or DType.I8, scaling)
    return call.emit(op, flat, weights, bias_of(call, 2), multiplier, shift)


def _hybrid_dense(call: TFLiteCall, o: Any, flat: Value, weights: Value) -> Value:
    quant = call.tensor(1).quant
    if quant is None:
        raise Fault("bad-quantisation", "the weights have no quantisation parameters")
    if weights.dtype is DType.U8 and weights.data is not None:  # LiteRT reads the bytes as signed ones
        weights = constant(weights.data.view(np.int8), DType.I8, weights.origin)
    scale = constant(np.broadcast_to(quant.scale, (weights.shape[0],)).astype(np.float32))
    asymmetric = bool(getattr(o, "AsymmetricQuantizeInputs", lambda: False)())
    return call.emit(HybridMatMul(asymmetric), flat, weights, scale, bias_of(call, 2))


@importer("BATCH_MATMUL")
def batch_matmul(call: TFLiteCall) -> None:
    o = call.options
    a, b, turned = call.value(0), call.value(1), bool(o.AdjY())
    if a.type.rank < 2 or b.type.rank < 2:
        raise Fault("shape-mismatch", f"cannot multiply {list(a.shape)} by {list(b.shape)}")
    if a.dtype is DType.F32 and b.dtype is DType.F32:
        call.give(call.emit(MatMul(bool(o.AdjX()), turned), a, b))
        return
    if o.AdjX():
        a = call.emit(Transpose((*range(a.type.rank - 2), a.type.rank - 1, a.type.rank - 2)), a)
    call.give(_hybrid_matmul(call, o, a, b, turned) if a.dtype is DType.F32 else _quantised_matmul(call, a, b, turned))


def _quantised_matmul(call: TFLiteCall, a: Value, b: Value, turned: bool) -> Value:
    left, right, out = call.tensor(0), call.tensor(1), call.out()
    if a.dtype is DType.I16 and b.dtype is DType.I8:
        b = call.emit(Cast(DType.I16), b)
    if a.dtype is b.dtype is DType.I8 and out.dtype is DType.I32:  # products of the stored numbers, whatever their zeros
        info = np.iinfo(np.int32)
        return call.emit(QMatMul(turned, 0, 0, 0, int(info.min), int(info.max), DType.I32, "none"), a, b, None, None, None)
    if a.dtype is not b.dtype or a.dtype not in _QUANTISED or out.dtype is not a.dtype:
        kinds = f"{a.dtype.value} and {b.dtype.value}"
        raise Fault("unsupported-operator", f"a product of {kinds} is not supported", "quantise both sides alike")
    columns, single = b.shape[-2 if turned else -1], right.quant is None or right.quant.scale.size == 1
    if right.quant is not None and not single and right.quant.axis != b.type.rank - (2 if turned else 1):
        raise Fault("bad-quantisation", f"the right side has scales along axis {right.quant.axis}, which is added up or counted")
    multiplier, shift = (product_multiplier if single else channel_multipliers)(call, left, right, out, columns)
    info = np.iinfo(a.dtype.numpy)
    op = QMatMul(turned, call.quant(left)[1], zero_of(right), call.quant(out)[1], int(info.min), int(info.max), a.dtype)
    return call.emit(op, a, b, None, multiplier, shift)


def _hybrid_matmul(call: TFLiteCall, o: Any, a: Value, b: Value, turned: bool) -> Value:
    """Rows of floats, quantised each for itself, times 8-bit matrices: one product per matrix."""
    if b.dtype is not DType.I8:
        raise Fault("unsupported-operator", f"a product of f32 and {b.dtype.value} is not supported")
    if not turned:
        b = call.emit(Transpose((*range(b.type.rank - 2), b.type.rank - 1, b.type.rank - 2)), b)
    scale = _column_scales(call.tensor(1), b.shape[-2])
    op = HybridMatMul(bool(getattr(o, "AsymmetricQuantizeInputs", lambda: False)()))
    matrices, (columns, depth) = math.prod(b.shape[:-2]), b.shape[-2:]
    if a.shape[-1] != depth or (matrices > 1 and a.shape[:-2] != b.shape[:-2]):
        raise Fault("shape-mismatch", f"cannot multiply {list(a.shape)} by the transpose of {list(b.shape)}")
    rows = a.type.elements // max(depth * matrices, 1)
    left, right = call.emit(Reshape((matrices, rows, depth)), a), call.emit(Reshape((matrices, columns, depth)), b)
    parts = []
    for n in range(matrices):
        row = call.emit(Reshape((rows, depth)), call.emit(Slice((n, 0, 0), (1, 1, 1), (1, rows, depth)), left))
        matrix = call.emit(Reshape((columns, depth)), call.emit(Slice((n, 0, 0), (1, 1, 1), (1, columns, depth)), right))
        parts.append(call.emit(op, row, matrix, scale, None))
    joined = call.emit(Concat(0), *parts) if len(parts) > 1 else parts[0]
    return call.emit(Reshape((*a.shape[:-1], columns)), joined)


def _column_scales(tensor: Tensor, columns: int) -> Value:
    if tensor.quant is None or tensor.quant.scale.size not in (1, columns):
        raise Fault("bad-quantisation", "the right side has no quantisation parameters")
    return constant(np.broadcast_to(tensor.quant.scale, (columns,)).astype(np.float32))
