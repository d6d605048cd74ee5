"""Tables of 256 entries for functions of 8-bit integers, by the arithmetic of TFLite's reference kernels.

Most go through float, one entry at a time (`LUTPopulate`). That is so for logistic and tanh too since they have tables there: fixed
point (gemmlowp) differs by one where a result is nearly half-way between two integers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from intaglio.frontends.tflite.rows.activation import round_away
from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.fixed_point import quantize_multiplier, rounding_shift, scale32
from intaglio.ops.quantised_functions import inv_sqrt

Params = tuple[float, int]
Maker = Callable[[DType, Params, Params], Array]


def _range(dtype: DType) -> Array:
    info = np.iinfo(dtype.numpy)
    return np.arange(int(info.min), int(info.max) + 1, dtype=np.int64)


def _through_float(function: Callable[[float], float]) -> Maker:
    def make(dtype: DType, x: Params, y: Params) -> Array:
        info = np.iinfo(dtype.numpy)
        inverse = np.float32(1.0) / np.float32(y[0])
        out = []
        for stored in _range(dtype):
            real = np.float32(x[0]) * np.float32(int(stored) - x[1])
            value = np.float32(function(float(real)))
            scaled = float(value * inverse)
            if math.isinf(scaled):
                out.append(int(info.max) if scaled > 0 else int(info.min))
            else:
                out.append(min(max(round_away(scaled) + y[1], int(info.min)), int(info.max)))
        return np.asarray(out, dtype.numpy)

    return make


def leaky_table(dtype: DType, x: Params, y: Params, alpha: float) -> Array:
    info = np.iinfo(dtype.numpy)
    identity = quantize_multiplier(float(np.float32(x[0]) / np.float32(y[0])))
    slope = quantize_multiplier(float(np.float32(x[0]) * np.float32(alpha) / np.float32(y[0])))
    centred = _range(dtype) - x[1]
    straight = scale32(centred, np.asarray(identity[0]), np.asarray(identity[1]))
    bent = scale32(centred, np.asarray(slope[0]), np.asarray(slope[1]))
    values = y[1] + np.where(centred >= 0, straight, bent)
    return np.asarray(np.clip(values, int(info.min), int(info.max))).astype(dtype.numpy)


def _hard_swish(dtype: DType, x: Params, y: Params) -> Array:
    """In 16-bit fixed point: x * 128 on a finer scale, times a clipped line, as the reference does it."""
    info = np.iinfo(dtype.numpy)
    hires = np.float32(1.0 / 128.0) * np.float32(x[0])
    out_multiplier, out_exponent = _short(float(hires / np.float32(y[0])))
    line_multiplier, line_exponent = _short(float(hires / np.float32(3.0 / 32768.0)))
    value = np.clip((_range(dtype) - x[1]) * 128, -32768, 32767)
    preshift = _high16(value, out_multiplier)
    line = value
    if line_exponent > 0:
        line = np.clip(line << (line_exponent - 1), -32768, 32767)
    line = _high16(line, line_multiplier)
    if line_exponent > 0:
        line = np.clip(line << 1, -32768, 32767)
    if line_exponent < 0:
        line = rounding_shift(line, np.asarray(-line_exponent))
    line = (line + (1 << 15)) >> 1
    product = line * preshift
    halved = np.sign(product) * (np.abs(product) >> 15)  # C's division truncates
    result = rounding_shift(halved, np.asarray(-out_exponent)) + y[1]
    return np.asarray(np.clip(result, int(info.min), int(info.max))).astype(dtype.numpy)


def _short(real: float) -> tuple[int, int]:
    """A factor with a multiplier of 16 bits."""
    multiplier, exponent = quantize_multiplier(real)
    return min((multiplier + (1 << 15)) >> 16, 32767), exponent


def _high16(a: Array, b: int) -> Array:
    product = a * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.asarray(np.sign(nudged) * (np.abs(nudged) >> 15))


def _logistic(x: float) -> float:
    """In f32, as the reference: the sum and the quotient are rounded."""
    with np.errstate(over="ignore"):
        return float(np.float32(1.0) / (np.float32(1.0) + np.exp(np.float64(-x)).astype(np.float32)))


def gelu(x: float) -> float:
    return 0.5 * x * (1.0 + math.erf(x / math.sqrt(2.0)))


def gelu_tanh(x: float) -> float:
    return 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _elu(x: float) -> float:
    return x if x >= 0 else math.expm1(x)


def _sqrt(dtype: DType, x: Params, y: Params) -> Array:
    """Through float, cut off instead of rounded."""
    info = np.iinfo(dtype.numpy)
    real = np.float32(x[0]) * (_range(dtype) - x[1]).astype(np.float32)
    steps = np.trunc(np.sqrt(np.maximum(real, 0)) / np.float32(y[0])).astype(np.int64)
    return np.asarray(np.clip(steps + y[1], int(info.min), int(info.max))).astype(dtype.numpy)


def _abs(dtype: DType, x: Params, y: Params) -> Array:
    info = np.iinfo(dtype.numpy)
    value = np.abs(_range(dtype) - x[1])
    if x[0] != y[0]:
        factor = quantize_multiplier(float(np.float32(x[0]) / np.float32(y[0])))
        value = scale32(value, np.asarray(factor[0]), np.asarray(factor[1]))
    return np.asarray(np.clip(value + y[1], int(info.min), int(info.max))).astype(dtype.numpy)


def _rsqrt(dtype: DType, x: Params, y: Params) -> Array:
    """1 / sqrt in fixed point with 20 more bits; of 0 and below: the largest number."""
    info = np.iinfo(dtype.numpy)
    value = _range(dtype) - x[1]
    multiplier, shift = inv_sqrt(np.maximum(value, 1))
    root = scale32(np.ones_like(value), multiplier, shift + 20)
    factor = quantize_multiplier(1.0 / float(np.sqrt(np.float32(x[0])) * np.float32(y[0])))
    stored = scale32(root, np.asarray(factor[0]), np.asarray(factor[1] - 20)) + y[1]
    return np.where(value <= 0, int(info.max), np.clip(stored, int(info.min), int(info.max))).astype(dtype.numpy)


TABLES: dict[str, Maker] = {
    "LOGISTIC": _through_float(_logistic),
    "TANH": _through_float(math.tanh),
    "EXP": _through_float(math.exp),
    "LOG": _through_float(lambda x: math.log(x) if x > 0 else -math.inf),
    "ELU": _through_float(_elu),
    "ABS": _abs,
    "HARD_SWISH": _hard_swish,
    "GELU": _through_float(gelu),
    "GELU_TANH": _through_float(gelu_tanh),
    "RSQRT": _rsqrt,
    "SQRT": _sqrt,
}
