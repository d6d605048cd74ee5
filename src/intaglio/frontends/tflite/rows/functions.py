"""Functions of one quantised number. 8-bit ones are tables of 256; 16-bit ones are tables with interpolation, or arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.rows.activation import bounds, round_away
from intaglio.frontends.tflite.rows.tables import TABLES, gelu, gelu_tanh
from intaglio.frontends.tflite.walk import TFLiteCall, constant
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Clip
from intaglio.ops.binary import Div
from intaglio.ops.convert import Cast, Dequantize
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.quantised import Lookup, Requantize
from intaglio.ops.quantised_functions import table16
from intaglio.ops.quantised_tables import Lookup16, Squash16
from intaglio.ops.unary import Abs, Neg, Sqrt

_RELUS = {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3, "RELU_0_TO_1": 6}


def quantised_function(call: TFLiteCall, x: Value, name: str) -> None:
    if name in _RELUS:
        _relu(call, x, _RELUS[name])
    elif name == "NEG":  # of what is stored, whatever its zero point
        call.give(call.emit(Neg(), x))
    elif x.dtype is DType.I16:
        _function16(call, x, name)
    elif name not in TABLES:
        raise Fault("unsupported-operator", "this function of integers is not supported", "keep this operator in float")
    else:
        table = TABLES[name](x.dtype, call.quant(call.tensor(0)), call.quant(call.out()))
        call.give(call.emit(Lookup(), x, constant(table)))


def _relu(call: TFLiteCall, x: Value, kind: int) -> None:
    """Rescaled to the result's quantisation, then clamped."""
    x_scale, x_zero = call.quant(call.tensor(0))
    y_scale, y_zero = call.quant(call.out())
    multiplier, shift = quantize_multiplier(float(np.float32(x_scale) / np.float32(y_scale)))
    if kind == 6:
        one = y_zero + round_away(float(np.float32(1.0) / np.float32(y_scale)))
        low, high = y_zero, min(int(np.iinfo(x.dtype.numpy).max), one)
    else:
        low, high = bounds(call, kind, call.out())
    call.give(call.emit(Requantize(x_zero, multiplier, shift, y_zero, low, high, x.dtype), x))


def _function16(call: TFLiteCall, x: Value, name: str) -> None:
    x_quant, y_quant = call.quant(call.tensor(0)), call.quant(call.out())
    tables: dict[str, Callable[[float], float]] = {
        "EXP": math.exp,
        "GELU": gelu,
        "GELU_TANH": gelu_tanh,
        "LOG": lambda v: math.log(v) if v > 0 else float(np.float32(-32768 - y_quant[1]) * np.float32(y_quant[0])),
        "RSQRT": lambda v: 1.0 / math.sqrt(v) if v > 0 else float(np.float32(32767) * np.float32(y_quant[0])),
    }
    if name in ("LOGISTIC", "TANH"):
        call.give(call.emit(Squash16(name.lower(), *_finer(x_quant[0], 1 if name == "TANH" else 0)), x))
    elif name in tables:
        call.give(call.emit(Lookup16(), x, constant(table16(tables[name], x_quant, y_quant))))
    elif name == "ABS":
        size = call.emit(Abs(), call.emit(Cast(DType.I32), x))
        same = x_quant[0] == y_quant[0]
        factor = (1 << 30, 1) if same else quantize_multiplier(float(np.float32(x_quant[0]) / np.float32(y_quant[0])))
        call.give(call.emit(Requantize(0, *factor, 0, -32768, 32767, DType.I16), size))
    elif name == "SQRT":
        scale, zero = constant(np.asarray(x_quant[0], np.float32)), constant(np.asarray(x_quant[1], np.int32))
        root = call.emit(Sqrt(), call.emit(Dequantize(), x, scale, zero))
        steps = call.emit(Div(), root, constant(np.asarray(y_quant[0], np.float32)))
        call.give(call.emit(Cast(DType.I16), call.emit(Clip(-32768.0, 32767.0), steps)))
    else:
        raise Fault("unsupported-operator", "this function of 16-bit integers is not supported", "keep this operator in float")


def _finer(scale: float, most: int) -> tuple[int, int]:
    """(multiplier, shift) to the step 1 / (3 * 4096). Powers of two that are close to 1 / 4096 need no shift."""
    power = math.log2(scale)
    lift = 12 + round(power)
    if abs(power - round(power)) < 1e-3 and 0 <= lift <= most:
        return 3 << lift, 0
    multiplier, shift = scale * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and shift <= 30:
        multiplier, shift = multiplier * 2.0, shift + 1
    return int(multiplier), shift
