/* Functions of fixed point, as kernels use them. Each stands alone; `fixed_point_functions.py` has its meaning and what it needs.
 * Those that end in 16 work on a raw number r with m integer bits, which means r * 2^(m - 15). */
#include <stdint.h>
#include <string.h>

#ifndef IG_INLINE
#define IG_INLINE static inline
#endif

/* round(a * b / 2^31), saturating */
IG_INLINE int32_t ig_doubling_high_multiply_i32(int32_t a, int32_t b)
{
    const int64_t product = (int64_t)a * b;
    const int64_t nudge = product >= 0 ? (INT64_C(1) << 30) : 1 - (INT64_C(1) << 30);
    if (a == INT32_MIN && b == INT32_MIN) {
        return INT32_MAX;
    }
    return (int32_t)((product + nudge) / (INT64_C(1) << 31));
}

/* x / 2^n, rounded half away from zero */
IG_INLINE int32_t ig_rounding_shift_i32(int32_t x, int32_t n)
{
    const int32_t mask = (int32_t)((INT64_C(1) << n) - 1);
    const int32_t rest = x & mask;
    const int32_t threshold = (mask >> 1) + (x < 0 ? 1 : 0);
    return (x >> n) + (rest > threshold ? 1 : 0);
}

/* acc * multiplier * 2^(shift - 31), rounded twice */
IG_INLINE int32_t ig_scale32_i32(int32_t acc, int32_t multiplier, int32_t shift)
{
    const int32_t left = shift > 0 ? shift : 0;
    const int32_t lifted = (int32_t)((uint32_t)acc << left);
    return ig_rounding_shift_i32(ig_doubling_high_multiply_i32(lifted, multiplier), left - shift);
}

/* acc * multiplier * 2^(shift - 31), rounded once, half away from zero */
IG_INLINE int32_t ig_scale_once_i32(int32_t acc, int32_t multiplier, int32_t shift)
{
    const int32_t total = 31 - shift;
    return (int32_t)(((int64_t)acc * multiplier + (INT64_C(1) << (total - 1)) - (acc < 0 ? 1 : 0)) >> total);
}

/* acc * multiplier * 2^(shift - 31) with the multiplier cut to 15 bits, rounded once */
IG_INLINE int32_t ig_scale64_i64(int64_t acc, int32_t multiplier, int32_t shift)
{
    const int64_t reduced = multiplier < 0x7fff0000 ? (multiplier + (1 << 15)) >> 16 : 0x7fff;
    const int32_t total = 15 - shift;
    return (int32_t)((acc * reduced + (INT64_C(1) << (total - 1))) >> total);
}

/* The nearest whole number, half to even: adding 1.5 * 2^23 leaves it in the low bits. Not a number is very low. */
IG_INLINE int32_t ig_nearest_f32(float real)
{
    const float above = real > -4194303.0f ? real : -4194303.0f;
    const float inside = above < 4194303.0f ? above : 4194303.0f;
    const float shifted = inside + 12582912.0f;
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return bits - 0x4b400000;
}

IG_INLINE int32_t ig_scale_float_i32(int32_t acc, float factor)
{
    return ig_nearest_f32((float)acc * factor);
}

IG_INLINE int32_t ig_leading_zeros_i32(int32_t x)
{
    int32_t zeros = 0;
    for (uint32_t bits = (uint32_t)x; zeros < 32 && (bits & 0x80000000u) == 0u; bits <<= 1) {
        zeros++;
    }
    return zeros;
}

/* 1 / (sum * 2^(zeros - 31)) in 0.31 fixed point: three steps of Newton and Raphson in 2.29 */
IG_INLINE int32_t ig_softmax_reciprocal_i32(int32_t sum, int32_t zeros)
{
    const int32_t a = (int32_t)(((uint32_t)sum << zeros) - 0x80000000u);
    const int32_t half = (int32_t)(((int64_t)a + INT32_MAX + 1) / 2);
    int32_t x = 1515870810 + ig_doubling_high_multiply_i32(half, -1010580540);
    for (int step = 0; step < 3; step++) {
        const int32_t rest = (1 << 29) - ig_doubling_high_multiply_i32(half, x);
        const int64_t more = (int64_t)ig_doubling_high_multiply_i32(x, rest) * 4;
        x = (int32_t)(x + (more > INT32_MAX ? INT32_MAX : more < INT32_MIN ? INT32_MIN : more));
    }
    return x > INT32_MAX / 2 ? INT32_MAX : x * 2;
}

/* round(a * b / 2^15), saturating */
IG_INLINE int32_t ig_high16_i32(int32_t a, int32_t b)
{
    const int32_t product = a * b;
    const int32_t high = (product + (product >= 0 ? 1 << 14 : 1 - (1 << 14))) / (1 << 15);
    return high > INT16_MAX ? INT16_MAX : high;
}

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
}

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
}

/* 1 / (1 + exp(-a)) in 0.15, of a number with `bits` integer bits */
IG_INLINE int32_t ig_logistic16_i32(int32_t a, int32_t bits)
{
    const int32_t twice = ig_newton16_i32(ig_exp16_i32(a > 0 ? -a : a, bits)) * 2;
    const int32_t value = twice > INT16_MAX ? INT16_MAX : twice;
    return a == 0 ? 1 << 14 : a > 0 ? value : INT16_MAX - value;
}

/* tanh(a) in 0.15, of a number with `bits` integer bits */
IG_INLINE int32_t ig_tanh16_i32(int32_t a, int32_t bits)
{
    const int32_t size = (ig_newton16_i32(ig_exp16_i32(a > 0 ? -a : a, bits + 1)) - (1 << 13)) * 4;
    const int32_t value = size > INT16_MAX ? INT16_MAX : size;
    return a == 0 ? 0 : a > 0 ? value : -value;
}

/* a / b * multiplier * 2^(shift - 31): the reciprocal of b has 31 bits, a is lifted as far as it goes */
IG_INLINE int32_t ig_quotient_i32(int32_t a, int32_t b, int32_t multiplier, int32_t shift)
{
    const int32_t above = b < 0 ? -a : a;
    const int32_t size = b < 0 ? -b : b > 0 ? b : 1;
    const int32_t zeros = ig_leading_zeros_i32(size);
    const int32_t inverse = ig_softmax_reciprocal_i32(size, zeros);
    const int32_t lift = above >= 0 ? ig_leading_zeros_i32(above) - 1 : ig_leading_zeros_i32(-2 * above - 1);
    const int32_t unscaled = ig_doubling_high_multiply_i32((int32_t)((uint32_t)above << lift), inverse);
    const int32_t right = 31 - zeros + lift - shift;
    return ig_rounding_shift_i32(ig_doubling_high_multiply_i32(unscaled, multiplier), right < 0 ? 0 : right > 31 ? 31 : right);
}

/* The shift that belongs to ig_inv_sqrt */
IG_INLINE int32_t ig_inv_sqrt_shift_i32(int32_t x)
{
    int32_t right = 11;
    if (x <= 1) {
        return 0;
    }
    for (; x >= 1 << 29; x /= 4) {
        right++;
    }
    right -= (ig_leading_zeros_i32(x) - 1) / 2 - 1;
    return right < 0 ? 0 : -right;
}

/* The multiplier of 1 / sqrt(x): five steps of Newton and Raphson from 1, with 3 integer bits */
IG_INLINE int32_t ig_inv_sqrt_i32(int32_t x)
{
    int32_t right = 11;
    if (x <= 1) {
        return INT32_MAX;
    }
    for (; x >= 1 << 29; x /= 4) {
        right++;
    }
    const int32_t pairs = (ig_leading_zeros_i32(x) - 1) / 2 - 1;
    const int32_t half = ig_rounding_shift_i32((x << (2 * pairs)) >> 1, 1);
    int32_t y = 1 << 28;
    right -= pairs;
    for (int step = 0; step < 5; step++) {
        const int64_t cube = (int64_t)ig_doubling_high_multiply_i32(ig_doubling_high_multiply_i32(y, y), y) * 64;
        const int32_t y3 = (int32_t)(cube > INT32_MAX ? INT32_MAX : cube < INT32_MIN ? INT32_MIN : cube);
        const int32_t line = ig_doubling_high_multiply_i32((1 << 28) + (1 << 27), y);
        const int64_t next = ((int64_t)line - ig_doubling_high_multiply_i32(half, y3)) * 8;
        y = (int32_t)(next > INT32_MAX ? INT32_MAX : next < INT32_MIN ? INT32_MIN : next);
    }
    y = ig_doubling_high_multiply_i32(y, 1518500250);
    return right < 0 ? (int32_t)((uint32_t)y << -right) : y;
}

/* x * 2^n, saturating, of a number that is not negative */
IG_INLINE int32_t ig_lifted_i32(int32_t x, int32_t n)
{
    const int64_t wide = (int64_t)x << n;
    return wide > INT32_MAX ? INT32_MAX : (int32_t)wide;
}

/* log of a number >= 1 with 12 integer bits, with 5: by powers of two and a rational function around them */
IG_INLINE int32_t ig_log_of_sum_i32(int32_t x)
{
    const int32_t sqrt_half = 1518500250, sqrt_sqrt_half = 1805811301, quarter = 1 << 23;
    const int32_t zeros = ig_leading_zeros_i32(x);
    const int32_t headroom = ig_leading_zeros_i32(ig_doubling_high_multiply_i32(x, sqrt_half)) - 1;
    const int32_t r_a = ig_lifted_i32(ig_doubling_high_multiply_i32(ig_lifted_i32(x, zeros - 1), sqrt_half), 1);
    const int32_t r_b = ig_lifted_i32(x, headroom);
    const int32_t a = (12 - zeros) * (1 << 25) + quarter;
    const int32_t b = (12 - headroom) * (1 << 25) - quarter;
    const int32_t r = r_a < r_b ? r_a : r_b;
    const int32_t p = (int32_t)(((int64_t)r + sqrt_sqrt_half + 1) / 2);
    const int32_t q = (r - sqrt_sqrt_half) * 2;
    const int32_t square = ig_doubling_high_multiply_i32(q, q);
    const int32_t cube = ig_doubling_high_multiply_i32(ig_doubling_high_multiply_i32(q, square), 117049297);
    const int32_t above = ig_doubling_high_multiply_i32(q, r) + cube;
    const int32_t inner = 1057819769 + q + ig_doubling_high_multiply_i32(127690142, square);
    const int32_t below = ig_doubling_high_multiply_i32(p, inner) + ig_doubling_high_multiply_i32(638450708, q);
    const int32_t inverse = ig_softmax_reciprocal_i32((int32_t)((uint32_t)below + 0x80000000u), 0);
    const int32_t rest = ig_doubling_high_multiply_i32(ig_rounding_shift_i32(above, 6), inverse);
    const int64_t total = ((int64_t)ig_doubling_high_multiply_i32(a > b ? a : b, 1488522236) + rest) * 2;
    return (int32_t)(total > INT32_MAX ? INT32_MAX : total);
}

/* A number that is ordered as the float is; above all where it is NaN, and -0 just below 0 */
IG_INLINE int32_t ig_order_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return INT32_MAX;
    }
    return bits == size ? (int32_t)size : -1 - (int32_t)size;
}

/* A number of 31 bits that is ordered as the float is; where that is NaN, a negative one. Magnitudes below `least` are as one */
IG_INLINE int32_t ig_short_order_f32(float x, int32_t least)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) {
        return INT32_MIN;
    }
    int32_t above = (int32_t)size - least;
    if (above < 0) {
        above = 0;
    }
    if (above > 0x3fffffff) {
        above = 0x3fffffff;
    }
    return bits == size ? 0x40000000 + above : 0x3fffffff - above;
}

/* x / 2^places, where that is a normal float: without a multiplication of floats */
IG_INLINE float ig_divide_power_i32(int32_t x, int32_t places)
{
    float y = (float)x;
    if (x != 0) {
        uint32_t bits;
        memcpy(&bits, &y, sizeof bits);
        bits -= (uint32_t)places << 23;
        memcpy(&y, &bits, sizeof y);
    }
    return y;
}
