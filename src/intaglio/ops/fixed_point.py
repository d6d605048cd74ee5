"""Fixed-point arithmetic as TFLite's reference kernels do it, bit for bit: the one place for multipliers, rounding and saturation.

A real factor is `multiplier * 2^(shift - 31)` with a 31-bit multiplier. Scaling a 32-bit accumulator rounds twice (a rounding
high multiply, then a rounding shift), a 64-bit one rounds once with the multiplier cut to 15 bits.
"""

from __future__ import annotations

import math

import numpy as np

from intaglio.ir.graph import Array

INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1


def quantize_multiplier(real: float) -> tuple[int, int]:
    """(multiplier, shift) of a factor that is not negative."""
    if real == 0.0:
        return 0, 0
    fraction, shift = math.frexp(real)
    multiplier = math.floor(fraction * 2**31 + 0.5)  # the fraction is positive: round half up
    if multiplier == 2**31:
        multiplier, shift = multiplier // 2, shift + 1
    if shift < -31:
        return 0, 0
    if shift > 30:
        return INT32_MAX, 30
    return multiplier, shift


def quantize_multipliers(reals: Array) -> tuple[Array, Array]:
    pairs = [quantize_multiplier(float(r)) for r in np.asarray(reals, np.float64).reshape(-1)]
    return np.asarray([p[0] for p in pairs], np.int32), np.asarray([p[1] for p in pairs], np.int32)


def doubling_high_multiply(a: Array, b: Array) -> Array:
    """round(a * b / 2^31), saturating; a and b are 32-bit values in int64."""
    product = np.multiply(a, b, dtype=np.int64)
    nudged = product + np.where(product >= 0, np.int64(1 << 30), np.int64(1 - (1 << 30)))
    high = np.sign(nudged) * (np.abs(nudged) >> 31)  # C's division truncates
    return np.where((a == INT32_MIN) & (b == INT32_MIN), np.int64(INT32_MAX), high)


def rounding_shift(x: Array, exponent: Array) -> Array:
    """x / 2^exponent, rounded half away from zero."""
    mask = (np.int64(1) << np.asarray(exponent, np.int64)) - 1
    threshold = (mask >> 1) + (x < 0)
    return np.asarray((x >> exponent) + ((x & mask) > threshold))


def wrap32(x: Array) -> Array:
    """What is left of a number in an int32."""
    return np.asarray(x, np.int64).astype(np.int32).astype(np.int64)


def scale32(acc: Array, multiplier: Array, shift: Array) -> Array:
    """A 32-bit accumulator times a factor: TFLite's MultiplyByQuantizedMultiplier."""
    wide = np.asarray(acc, np.int64)
    shift = np.asarray(shift, np.int64)
    left, right = np.maximum(shift, 0), np.maximum(-shift, 0)
    return rounding_shift(doubling_high_multiply(wrap32(wide << left), np.asarray(multiplier, np.int64)), right)


def scale_once(acc: Array, multiplier: Array, shift: Array) -> Array:
    """A 32-bit accumulator times a factor with one rounding (half away from zero): TFLite's fully connected layers."""
    total = 31 - np.asarray(shift, np.int64)
    wide = np.asarray(acc, np.int64)
    return np.asarray((wide * np.asarray(multiplier, np.int64) + (np.int64(1) << (total - 1)) - (wide < 0)) >> total)


def scale64(acc: Array, multiplier: Array, shift: Array) -> Array:
    """A 64-bit accumulator times a factor, for 16-bit activations."""
    multiplier, shift = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    reduced = np.where(multiplier < 0x7FFF0000, (multiplier + (1 << 15)) >> 16, np.int64(0x7FFF))
    total = 15 - shift
    return np.asarray((np.asarray(acc, np.int64) * reduced + (np.int64(1) << (total - 1))) >> total)


FLOAT_LIMIT = 4194303.0  # far outside of any 16-bit result, and small enough for rounding by a float's last place


def scale_float(acc: Array, multiplier: Array, bias: Array | None = None) -> Array:
    """A 32-bit accumulator times a float, rounded half to even: ONNX Runtime's quantised operators."""
    real = np.multiply(np.asarray(acc).astype(np.float32), np.asarray(multiplier, np.float32), dtype=np.float32)
    if bias is not None:
        real = np.add(real, np.asarray(bias, np.float32), dtype=np.float32)
    return nearest(real)


def nearest(real: Array) -> Array:
    """The nearest whole number, half to even, of floats that are not beyond 22 bits; NaN is the lowest."""
    inside = np.clip(np.nan_to_num(real, nan=-FLOAT_LIMIT), -FLOAT_LIMIT, FLOAT_LIMIT)
    rounded: Array = np.rint(inside).astype(np.int64)
    return rounded


def clamp(x: Array, low: int, high: int, dtype: np.dtype[np.generic]) -> Array:
    return np.asarray(np.minimum(np.maximum(x, low), high)).astype(dtype)


def order(x: Array) -> Array:
    """A whole number that is ordered as the f32 is: above all where it is NaN, and -0 just below 0."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.int64)
    size = bits & 0x7FFFFFFF
    return np.where(size > 0x7F800000, 2**31 - 1, np.where(bits == size, size, -1 - size)).astype(np.int32)


def short_order(x: Array, least: Array | int) -> Array:
    """A whole number of 31 bits that is ordered as the f32 is. Where that is NaN, the lowest one of 32 bits: below all others if
    signs count, above all if not. Magnitudes count from the bits `least` on: those below are as one, and so are the largest."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.int64)
    size = bits & 0x7FFFFFFF
    above = np.clip(size - int(least), 0, 2**30 - 1)
    whole = np.where(bits == size, 2**30 + above, 2**30 - 1 - above)
    return np.where(size > 0x7F800000, -(2**31), whole).astype(np.int32)
