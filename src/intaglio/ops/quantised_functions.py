"""Functions of integers that TFLite's reference kernels compute in fixed point: the quotient, 1 / sqrt(x), log(x), and tables of
16-bit functions. The numpy meaning is here; the inline C functions of the same names are in `kernels/fixed_point_functions.py`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ops.fixed_point import doubling_high_multiply, rounding_shift, wrap32
from intaglio.ops.gemmlowp import half_sum, one_over_one_plus, saturate


def leading_zeros(x: Array) -> Array:
    """Of a 32-bit number that is not negative."""
    flat = [32 - int(v).bit_length() for v in np.asarray(x).reshape(-1)]
    return np.asarray(flat, np.int64).reshape(np.shape(x))


def quotient(a: Array, b: Array, multiplier: Array, shift: Array) -> Array:
    """a / b times a factor. The reciprocal of b has 31 bits, a is lifted as far as it goes. By 0: as by 1."""
    a, b = np.asarray(a, np.int64), np.asarray(b, np.int64)
    a, b = np.where(b < 0, -a, a), np.maximum(np.abs(b), 1)
    zeros = leading_zeros(b)
    inverse = one_over_one_plus((b << zeros) - (1 << 31))
    lift = np.where(a >= 0, leading_zeros(np.maximum(a, 0)) - 1, leading_zeros(np.maximum(-2 * a - 1, 0)))
    unscaled = doubling_high_multiply(wrap32(a << lift), inverse)
    right = np.clip((31 - zeros) + lift - shift, 0, 31)
    return rounding_shift(doubling_high_multiply(unscaled, np.asarray(multiplier, np.int64)), right)


def inv_sqrt(x: Array) -> tuple[Array, Array]:
    """(multiplier, shift) of 1 / sqrt(x), by five steps of Newton and Raphson from 1, with 3 integer bits."""
    pairs = [_inv_sqrt(int(v)) for v in np.asarray(x).reshape(-1)]
    shape = np.shape(x)
    return np.asarray([m for m, _ in pairs], np.int64).reshape(shape), np.asarray([s for _, s in pairs], np.int64).reshape(shape)


def _inv_sqrt(x: int) -> tuple[int, int]:
    if x <= 1:
        return (1 << 31) - 1, 0
    right = 11
    while x >= 1 << 29:
        x, right = x // 4, right + 1
    pairs = (31 - x.bit_length()) // 2 - 1
    right -= pairs
    whole = np.asarray((x << (2 * pairs)) >> 1, np.int64)
    half = rounding_shift(whole, np.asarray(1))
    y = np.asarray(1 << 28, np.int64)
    for _ in range(5):
        cube = saturate(doubling_high_multiply(doubling_high_multiply(y, y), y) << 6)
        y = saturate((doubling_high_multiply(np.asarray((1 << 28) + (1 << 27)), y) - doubling_high_multiply(half, cube)) << 3)
    result = int(doubling_high_multiply(y, np.asarray(1518500250, np.int64)))
    return (result, -right) if right >= 0 else (result << -right, 0)


def log_of_sum(x: Array) -> Array:
    """log of a number >= 1 with 12 integer bits, with 5: by powers of two and a rational function around them."""
    x = np.asarray(x, np.int64)
    sqrt_half, sqrt_sqrt_half, quarter = 1518500250, 1805811301, 1 << 23
    zeros = leading_zeros(x)
    r_a = saturate(doubling_high_multiply(saturate(x << (zeros - 1)), np.asarray(sqrt_half)) << 1)
    a = ((12 - zeros) << 25) + quarter
    headroom = leading_zeros(doubling_high_multiply(x, np.asarray(sqrt_half))) - 1
    r_b = saturate(x << headroom)
    b = ((12 - headroom) << 25) - quarter
    r, power = np.minimum(r_a, r_b), np.maximum(a, b)
    p = half_sum(r, np.full_like(r, sqrt_sqrt_half))
    q = (r - sqrt_sqrt_half) * 2
    square = doubling_high_multiply(q, q)
    above = doubling_high_multiply(q, r) + doubling_high_multiply(doubling_high_multiply(q, square), np.asarray(117049297))
    inner = 1057819769 + q + doubling_high_multiply(np.asarray(127690142), square)
    below = doubling_high_multiply(p, inner) + doubling_high_multiply(np.asarray(638450708), q)
    rest = doubling_high_multiply(rounding_shift(above, np.asarray(6)), one_over_one_plus(below))
    return saturate((doubling_high_multiply(power, np.asarray(1488522236)) + rest) << 1)


def _away(x: Array) -> Array:
    return np.asarray(np.sign(x) * np.floor(np.abs(x) + x.dtype.type(0.5)), x.dtype)


def table16(
    function: Callable[[float], float], x: tuple[float, int], y: tuple[float, int], real: type[np.floating] = np.float32
) -> Array:
    """513 numbers at equal distances over all 16-bit inputs, each moved by half of the error that interpolation would have."""
    low, high = (real(x[0]) * real(end - x[1]) for end in (-32768, 32767))
    out_low, out_high = (real(y[0]) * real(end - y[1]) for end in (-32768, 32767))
    step = (high - low) / real(512)
    inverse = real(65536) / (out_high - out_low)
    ends = low + np.arange(512, dtype=real) * step

    def at(places: Array) -> Array:
        return np.asarray([function(float(v)) for v in places], np.float64).astype(real)

    here, middle = at(ends), at(ends + step / real(2))
    after = at(low + np.arange(1, 513, dtype=real) * step)
    sample = _away(here * inverse)
    between = _away((after * inverse + sample) / real(2))
    bias = _away((between - _away(middle * inverse)) / real(2))
    last = _away(at(np.asarray([high], real)) * inverse)
    return np.asarray(np.clip(np.concatenate([sample - bias, last]), -32768, 32767), np.int16)


def interpolate(x: Array, table: Array) -> Array:
    """The 9 high bits choose a pair of the table, the 7 low ones a place between them."""
    wide, entries = np.asarray(x, np.int64), np.asarray(table, np.int64)
    at = 256 + (wide >> 7)
    slope = (entries[at + 1] - entries[at]).astype(np.int16).astype(np.int64)
    return np.asarray(entries[at] + ((slope * (wide & 127) + 64) >> 7)).astype(np.int16).astype(np.int64)


def sigmoid_table() -> Array:
    """sigmoid(n / 24) in 1/65536, for n = 0, 1, ... 255, moved by half of the error of interpolation; the last one is all bits."""
    here, middle, after = (65536.0 / (1.0 + np.exp(-(np.arange(256) + part) / 24.0)) for part in (0.0, 0.5, 1.0))
    table: Array = np.floor(here + (middle - (here + after) / 2.0) / 2.0 + 0.5).astype(np.int64)
    table[255] = 65535
    return table
