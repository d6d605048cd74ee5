"""Reductions along axes, arg-reductions."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import TFLiteCall, axis_of, importer
from intaglio.ir.types import DType
from intaglio.ops.convert import Cast
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.quantised_rows import QMean, mean_factor
from intaglio.ops.reduce import ArgReduce, Reduce

_KINDS = {
    "SUM": "sum", "MEAN": "mean", "REDUCE_MAX": "max", "REDUCE_MIN": "min", "REDUCE_PROD": "prod",
    "REDUCE_ANY": "any", "REDUCE_ALL": "all",
}  # fmt: skip
_QUANTISED = (DType.I8, DType.U8, DType.I16)


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
        call.give(call.emit(QMean(axes, keep, x_zero, multiplier, shift, y_zero, int(info.min), int(info.max)), x))
        return
    if x.dtype in _QUANTISED and kind == "prod":
        raise Fault("unsupported-operator", "products of quantised integers are not supported yet")
    call.give(call.emit(Reduce(kind, axes, keep), x))


@importer("ARG_MAX", "ARG_MIN")
def arg(call: TFLiteCall) -> None:
    x = call.value(0)
    axis = axis_of(int(call.known(1, "axis").reshape(-1)[0]), x.type.rank)
    kind = "max" if call.operator.op == "ARG_MAX" else "min"
    found = call.emit(ArgReduce(kind, axis, False), x)
    call.give(call.emit(Cast(call.out().dtype or DType.I64), found))
