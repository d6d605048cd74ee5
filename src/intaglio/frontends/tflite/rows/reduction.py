"""Reductions along axes, arg-reductions."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import TFLiteCall, axis_of, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Clip
from intaglio.ops.binary import Add, Mul, ShiftRight, Sub
from intaglio.ops.convert import Cast
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.move import Reshape, Slice, Transpose
from intaglio.ops.quantised_rows import QMean, mean_factor
from intaglio.ops.reduce import ArgReduce, Reduce

_KINDS = {
    "SUM": "sum", "MEAN": "mean", "REDUCE_MAX": "max", "REDUCE_MIN": "min", "REDUCE_PROD": "prod",
    "REDUCE_ANY": "any", "REDUCE_ALL": "all",
}  # fmt: skip
_QUANTISED = (DType.I8, DType.U8, DType.I16)
MOST_FACTORS = 1024  # each is written out


@importer(*_KINDS)
def reduction(call: TFLiteCall) -> None:
    x, keep = call.value(0), bool(call.options.KeepDims())
    axes = tuple(sorted({axis_of(int(a), x.type.rank) for a in call.known(1, "axes").reshape(-1)}))
    kind = _KINDS[call.operator.op]
    if x.dtype in _QUANTISED and kind in ("sum", "mean") and call.tensor(0).quant is not None:
        x_scale, x_zero = call.quant(call.tensor(0))
        y_scale, y_zero = call.quant(call.out())
        count = math.prod(x.shape[a] for a in axes)
        info = np.iinfo(x.dtype.numpy)
        real = x_scale / y_scale
        multiplier, shift = quantize_multiplier(real) if kind == "sum" or count == 0 else mean_factor(real, count)
        # Sums of i8 and i16: the reference kernel leaves them unset; the others of LiteRT, and TFLite Micro, round the real number.
        scaling = "once" if kind == "sum" and x.dtype is not DType.U8 and shift < 31 else "twice"
        call.give(call.emit(QMean(axes, keep, x_zero, multiplier, shift, y_zero, int(info.min), int(info.max), scaling), x))
        return
    if x.dtype in _QUANTISED and kind == "prod" and call.tensor(0).quant is not None:
        _quantised_product(call, x, axes, keep)
        return
    call.give(call.emit(Reduce(kind, axes, keep), x))


def _quantised_product(call: TFLiteCall, x: Value, axes: tuple[int, ...], keep: bool) -> None:
    """Scaled after every number by the same factor, which has 16 bits between them: products are 64 bits wide, what is kept 32."""
    out, kept = call.out(), tuple(a for a in range(x.type.rank) if a not in axes)
    (x_scale, x_zero), (y_scale, y_zero) = call.quant(call.tensor(0)), call.quant(out)
    count = math.prod(x.shape[a] for a in axes)
    if not 1 <= count <= MOST_FACTORS or x.dtype is DType.U8:
        raise Fault("unsupported-operator", f"a product of {count} numbers of {x.dtype.value} is not supported", "use floats")
    multiplier, shift = quantize_multiplier(x_scale / math.pow(y_scale, 1.0 / count))
    factor = (multiplier + (1 << 15)) >> 16 if multiplier < 0x7FFF0000 else 0x7FFF
    rows = math.prod(x.shape[a] for a in kept)
    turned = call.emit(Transpose((*kept, *axes)), call.emit(Cast(DType.I64), x))
    numbers = call.emit(Sub(), call.emit(Reshape((rows, count)), turned), _whole(x_zero))

    def scaled(product: Value) -> Value:
        raised = call.emit(Add(), call.emit(Mul(), product, _whole(factor)), _whole(1 << (14 - shift)))
        return call.emit(Cast(DType.I32), call.emit(ShiftRight(), raised, _whole(15 - shift)))

    total = call.emit(Slice((0, 0), (1, 1), (rows, 1)), numbers)
    for n in range(1, count):
        product = call.emit(Mul(), total, call.emit(Slice((0, n), (1, 1), (rows, 1)), numbers))
        total = call.emit(Cast(DType.I64), scaled(product))
    moved = call.emit(Add(), scaled(total), constant(np.asarray(y_zero, np.int32)))
    info = np.iinfo(x.dtype.numpy)
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape)) if keep else tuple(x.shape[a] for a in kept)
    bounded = call.emit(Cast(x.dtype), call.emit(Clip(float(info.min), float(info.max)), moved))
    call.give(call.emit(Reshape(shape), bounded))


def _whole(number: int) -> Value:
    return constant(np.asarray(number, np.int64))


@importer("ARG_MAX", "ARG_MIN")
def arg(call: TFLiteCall) -> None:
    x = call.value(0)
    axis = axis_of(int(call.known(1, "axis").reshape(-1)[0]), x.type.rank)
    kind = "max" if call.operator.op == "ARG_MAX" else "min"
    found = call.emit(ArgReduce(kind, axis, False), x)
    call.give(call.emit(Cast(call.out().dtype or DType.I64), found))
