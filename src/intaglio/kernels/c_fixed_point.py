"""Inline C functions of 16-bit fixed point: a raw number r with m integer bits means r * 2^(m - 15). Values travel as int32_t."""

from __future__ import annotations

FIXED_POINT_16 = {
    "high16": """\
/* round(a * b / 2^15), saturating */
IG_INLINE int32_t ig_high16_i32(int32_t a, int32_t b)
{
    const int32_t product = a * b;
    const int32_t high = (product + (product >= 0 ? 1 << 14 : 1 - (1 << 14))) / (1 << 15);
    return high > INT16_MAX ? INT16_MAX : high;
}""",
    "exp16": """\
/* exp of a number <= 0 with `bits` integer bits: a polynomial on a quarter, then the powers of two in what is left */
IG_INLINE int32_t ig_exp16_i32(int32_t a, int32_t bits)
{
    static const int16_t factors[7] = {25520, 19875, 12055, 4435, 600, 11, 0};
    const int32_t fraction = 15 - bits;
    const int32_t quarter = 1 << (fraction - 2);
    const int32_t rest = (a & (quarter - 1)) - quarter;
    const int32_t x = rest * (1 << bits) + (1 << 12);
    const int32_t x2 = ig_high16_i32(x, x);
    const int32_t x3 = ig_high16_i32(x2, x);
    const int32_t x4 = ig_rounding_shift_i32(ig_high16_i32(x2, x2), 2);
    const int32_t inner = ig_rounding_shift_i32(ig_high16_i32(x4 + x3, 10923) + x2, 1);
    int32_t result = 28918 + ig_high16_i32(x + inner, 28918);
    if (a == 0) {
        return INT16_MAX;
    }
    if (bits > 5 && a < -(1 << (fraction + 5))) {
        return 0;
    }
    for (int32_t n = 0; n < 7 && n < bits + 2; n++) {
        if (((rest - a) >> (fraction + n - 2)) & 1) {
            result = ig_high16_i32(result, factors[n]);
        }
    }
    return result;
}""",
    "newton16": """\
/* 2 / (1 + a) with 2 integer bits, of a number in [0, 1] with none: three steps of Newton and Raphson */
IG_INLINE int32_t ig_newton16_i32(int32_t a)
{
    const int32_t half = (a + INT16_MAX + 1) / 2;
    int32_t x = 23130 + ig_high16_i32(half, -15420);
    for (int step = 0; step < 3; step++) {
        const int32_t more = ig_high16_i32(x, (1 << 13) - ig_high16_i32(half, x)) * 4;
        x += more > INT16_MAX ? INT16_MAX : more < INT16_MIN ? INT16_MIN : more;
    }
    return x;
}""",
    "logistic16": """\
/* 1 / (1 + exp(-a)) in 0.15, of a number with `bits` integer bits */
IG_INLINE int32_t ig_logistic16_i32(int32_t a, int32_t bits)
{
    const int32_t twice = ig_newton16_i32(ig_exp16_i32(a > 0 ? -a : a, bits)) * 2;
    const int32_t value = twice > INT16_MAX ? INT16_MAX : twice;
    return a == 0 ? 1 << 14 : a > 0 ? value : INT16_MAX - value;
}""",
    "tanh16": """\
/* tanh(a) in 0.15, of a number with `bits` integer bits */
IG_INLINE int32_t ig_tanh16_i32(int32_t a, int32_t bits)
{
    const int32_t size = (ig_newton16_i32(ig_exp16_i32(a > 0 ? -a : a, bits + 1)) - (1 << 13)) * 4;
    const int32_t value = size > INT16_MAX ? INT16_MAX : size;
    return a == 0 ? 0 : a > 0 ? value : -value;
}""",
}
