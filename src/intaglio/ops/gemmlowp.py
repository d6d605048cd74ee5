"""exp, logistic and tanh in fixed point, after gemmlowp's published algorithm, on 32-bit numbers held in int64.

Qm.n below: a raw number r means r * 2^(m - 31), m integer bits. `logistic16` and `tanh16` are the same on 16-bit numbers: what is
rounded differs at every step, so they are written apart.
"""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ops.fixed_point import INT32_MAX, INT32_MIN, doubling_high_multiply, rounding_shift


def saturate(x: Array) -> Array:
    return np.clip(x, INT32_MIN, INT32_MAX)


def shift_saturating(x: Array, exponent: int) -> Array:
    """x * 2^exponent: saturating to the left, rounding to the right."""
    if exponent >= 0:
        return saturate(np.asarray(x, np.int64) << exponent)
    return rounding_shift(x, np.asarray(-exponent))


def half_sum(a: Array, b: Array) -> Array:
    """(a + b) / 2, rounded away from zero."""
    total = np.asarray(a, np.int64) + b
    lifted = np.asarray(total + np.where(total >= 0, 1, -1))
    return np.asarray(np.sign(lifted) * (np.abs(lifted) // 2))


def exp_on_small_interval(a: Array) -> Array:
    """exp of a Q0 number in [-1/4, 0), in Q0: a Taylor polynomial around -1/8."""
    constant_term, one_third = 1895147668, 715827883
    x = a + (1 << 28)
    x2 = doubling_high_multiply(x, x)
    x3 = doubling_high_multiply(x2, x)
    x4 = doubling_high_multiply(x2, x2)
    x4_over_4 = rounding_shift(x4, np.asarray(2))
    inner = rounding_shift(doubling_high_multiply(x4_over_4 + x3, np.full_like(x, one_third)) + x2, np.asarray(1))
    return saturate(constant_term + doubling_high_multiply(np.full_like(x, constant_term), x + inner))


def exp_on_negative_values(a: Array, integer_bits: int) -> Array:
    """exp of a Qm number <= 0, in Q0: by quarters, then by the powers of two in what is left."""
    fractional = 31 - integer_bits
    quarter = 1 << (fractional - 2)
    a = np.asarray(a, np.int64)
    a_mod = (a & (quarter - 1)) - quarter
    result = exp_on_small_interval(shift_saturating(a_mod, integer_bits))
    remainder = a_mod - a
    for exponent, multiplier in (
        (-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242),
    ):  # fmt: skip
        if integer_bits > exponent:
            bit = 1 << (fractional + exponent)
            result = np.where(remainder & bit, doubling_high_multiply(result, np.full_like(result, multiplier)), result)
    if integer_bits > 5:
        lowest = -(1 << (fractional + 5))
        result = np.where(a < lowest, 0, result)
    return np.where(a == 0, INT32_MAX, result)


def one_over_one_plus(a: Array) -> Array:
    """1 / (1 + x) for a Q0 number in [0, 1], in Q0: three steps of Newton and Raphson in Q2."""
    half = half_sum(a, np.full_like(np.asarray(a, np.int64), INT32_MAX))
    x = 1515870810 + doubling_high_multiply(half, np.full_like(half, -1010580540))  # 48/17 - 32/17 * half
    for _ in range(3):
        product = doubling_high_multiply(half, x)
        rest = (1 << 29) - product
        x = saturate(x + shift_saturating(doubling_high_multiply(x, rest), 2))
    return shift_saturating(x, 1)


# 16-bit numbers: r means r * 2^(m - 15) ---------------------------------------------------------------------------------

INT16_MIN, INT16_MAX = -(2**15), 2**15 - 1


def wrap16(x: Array) -> Array:
    """What is left of a number in an int16."""
    return np.asarray(x, np.int64).astype(np.int16).astype(np.int64)


def high16(a: Array, b: Array | int) -> Array:
    """round(a * b / 2^15), saturating."""
    product = np.asarray(a, np.int64) * b
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.asarray(np.minimum(np.sign(nudged) * (np.abs(nudged) >> 15), INT16_MAX))


def _saturate16(x: Array) -> Array:
    return np.clip(x, INT16_MIN, INT16_MAX)


def _rescaled16(constant: int) -> int:
    """A constant of the 32-bit algorithm in 16 bits."""
    return int(rounding_shift(np.asarray(constant, np.int64), np.asarray(16)))


def exp_on_negative_values16(a: Array, integer_bits: int) -> Array:
    """exp of a Qm number <= 0, in Q0."""
    a = np.asarray(a, np.int64)
    fractional = 15 - integer_bits
    quarter = 1 << (fractional - 2)
    a_mod = (a & (quarter - 1)) - quarter
    x = wrap16(_saturate16(a_mod << integer_bits) + (1 << 12))
    constant_term, one_third = _rescaled16(1895147668), _rescaled16(715827883)
    x2 = high16(x, x)
    x3, x4 = high16(x2, x), high16(x2, x2)
    cubes = wrap16(rounding_shift(x4, np.asarray(2)) + x3)
    inner = rounding_shift(wrap16(high16(cubes, one_third) + x2), np.asarray(1))
    result = wrap16(constant_term + high16(wrap16(x + inner), constant_term))
    remainder = wrap16(a_mod - a)
    for exponent, multiplier in (
        (-2, 1672461947), (-1, 1302514674), (0, 790015084), (1, 290630308), (2, 39332535), (3, 720401), (4, 242),
    ):  # fmt: skip
        if integer_bits > exponent:
            bit = 1 << (fractional + exponent)
            result = np.where(remainder & bit, high16(result, _rescaled16(multiplier)), result)
    if integer_bits > 5:
        result = np.where(a < -(1 << (fractional + 5)), 0, result)
    return np.where(a == 0, INT16_MAX, result)


def _newton16(a: Array) -> Array:
    """1 / ((1 + x) / 2) of a Q0 number in [0, 1], in Q2."""
    total = np.asarray(a, np.int64) + INT16_MAX
    half = (total + 1) >> 1  # not negative
    x = wrap16(_rescaled16(1515870810) + high16(half, _rescaled16(-1010580540)))
    for _ in range(3):
        rest = wrap16((1 << 13) - high16(half, x))
        x = wrap16(x + _saturate16(high16(x, rest) << 2))
    return x


def logistic16(a: Array, integer_bits: int = 3) -> Array:
    """1 / (1 + exp(-a)) of a Qm number, in Q0."""
    a = np.asarray(a, np.int64)
    positive = _saturate16(_newton16(exp_on_negative_values16(wrap16(np.where(a > 0, -a, a)), integer_bits)) << 1)
    value = np.where(a > 0, positive, INT16_MAX - positive)
    return np.where(a == 0, 1 << 14, value)


def tanh16(a: Array, integer_bits: int = 3) -> Array:
    a = np.asarray(a, np.int64)
    x = _newton16(exp_on_negative_values16(wrap16(np.where(a > 0, -a, a)), integer_bits + 1))
    size = _saturate16(wrap16(x - (1 << 13)) << 2)
    return np.where(a == 0, 0, np.where(a > 0, size, wrap16(-size)))
