/* Mathematics in single precision, with arithmetic in single precision alone (but for powf and fmaf): within 4 units in the
 * last place of the exact result (erfcf: 6). Each function is linked only where it is used. */
#include <stdint.h>

#include "math.h"

#define LN2 0.693147180559945f
#define LN2_HIGH 0.693145752f /* the first 16 bits */
#define LN2_LOW 1.42860677e-6f
#define HALF_PI 1.57079632679489662f

static uint32_t bits_of(float x)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float from_bits(uint32_t bits)
{
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

static float two_to(int32_t n) /* -126 to 127 */
{
    return from_bits((uint32_t)(n + 127) << 23);
}

/* Whole numbers ------------------------------------------------------------------------------------------------------------ */

float(truncf)(float x)
{
    const uint32_t bits = bits_of(x);
    const int32_t exponent = (int32_t)(bits >> 23 & 255u) - 127;
    if (exponent >= 23)
        return x;
    return from_bits(exponent < 0 ? bits & 0x80000000u : bits & ~(0x007fffffu >> exponent));
}

float(floorf)(float x)
{
    const float whole = (truncf)(x);
    return whole > x ? whole - 1.0f : whole;
}

float(ceilf)(float x)
{
    const float whole = (truncf)(x);
    return whole < x ? copysignf(whole + 1.0f, x) : whole;
}

float(roundf)(float x)
{
    const float whole = (truncf)(x);
    return copysignf(fabsf(x - whole) >= 0.5f ? fabsf(whole) + 1.0f : fabsf(whole), x);
}

/* Adding 2^23 rounds the fraction away, half to even. */
float(rintf)(float x)
{
    volatile float sum = fabsf(x) + 8388608.0f;
    return fabsf(x) < 8388608.0f ? copysignf(sum - 8388608.0f, x) : x;
}

float(nearbyintf)(float x)
{
    return (rintf)(x);
}

float(fmaxf)(float x, float y)
{
    return x != x || x < y ? y : x;
}

float(fminf)(float x, float y)
{
    return x != x || y < x ? y : x;
}

/* By bits, exact: the remainder doubled, step by step. */
float fmodf(float x, float y)
{
    const uint32_t sign = bits_of(x) & 0x80000000u;
    uint32_t a = bits_of(x) & 0x7fffffffu, b = bits_of(y) & 0x7fffffffu;
    int32_t ea = (int32_t)(a >> 23), eb = (int32_t)(b >> 23);

    if (b == 0u || b > 0x7f800000u || a >= 0x7f800000u)
        return (x * y) / (x * y);
    if (a < b)
        return x;
    if (ea == 0)
        ea = 1;
    else
        a = (a & 0x007fffffu) | 0x00800000u;
    if (eb == 0)
        eb = 1;
    else
        b = (b & 0x007fffffu) | 0x00800000u;
    for (; ea > eb; ea--) {
        if (a >= b)
            a -= b;
        a <<= 1;
    }
    if (a >= b)
        a -= b;
    if (a == 0u)
        return from_bits(sign);
    for (; a < 0x00800000u && eb > 1; eb--)
        a <<= 1;
    return from_bits(sign | (a < 0x00800000u ? a : (a & 0x007fffffu) | (uint32_t)eb << 23));
}

/* Bit by bit, rounded to nearest; cores with an instruction never come here. */
float(sqrtf)(float x)
{
    uint32_t bits = bits_of(x), root = 0, rest = 0, mantissa;
    int32_t exponent = (int32_t)(bits >> 23) - 127;

    if (x == 0.0f || x != x || bits == 0x7f800000u)
        return x;
    if (bits >> 31)
        return NAN;
    mantissa = (bits & 0x007fffffu) | 0x00800000u;
    if (exponent == -127) {
        mantissa = bits << 1;
        for (; mantissa < 0x00800000u; exponent--)
            mantissa <<= 1;
    }
    if (exponent & 1)
        mantissa <<= 1;
    mantissa <<= 7; /* two bits of the operand for each of the root, and one of the root to round with */
    for (int i = 0; i < 25; i++) {
        rest = rest << 2 | mantissa >> 30;
        mantissa <<= 2;
        root <<= 1;
        if (rest > 2u * root) {
            rest -= 2u * root + 1u;
            root++;
        }
    }
    root = (root + 1u) >> 1; /* never half way: a root of 24 bits and a half is no number of 24 bits */
    exponent = (exponent - (exponent & 1)) / 2;
    return from_bits(((uint32_t)(exponent + 126) << 23) + root); /* the first bit of the root is one more in the exponent */
}

/* The product is exact in double precision; the sum is made odd where it is not, so that the second rounding is the only one. */
float(fmaf)(float x, float y, float z)
{
    const double product = (double)x * (double)y, sum = product + (double)z;
    const double back = sum - product, error = (product - (sum - back)) + ((double)z - back);
    uint64_t bits;
    double odd;

    __builtin_memcpy(&bits, &sum, sizeof bits);
    if (error != 0.0 && error == error && (bits & 1u) == 0u)
        bits += (error > 0.0) == (sum > 0.0) ? 1u : (uint64_t)-1;
    __builtin_memcpy(&odd, &bits, sizeof odd);
    return (float)odd;
}

/* Exponentials and logarithms ---------------------------------------------------------------------------------------------- */

/* x = n ln 2 + r with |r| <= ln 2 / 2; returns e^r - 1. */
static float reduced(float x, int32_t *n)
{
    const float whole = (rintf)(x * 1.44269504f);
    const float r = (x - whole * LN2_HIGH) - whole * LN2_LOW;
    const float q = 0.5f + r * (0.166665763f + r * (0.0416665561f + r * (0.00836317893f + r * 0.0013926184f)));
    *n = (int32_t)whole;
    return r + r * r * q;
}

float expf(float x)
{
    int32_t n;
    float y;

    if (x != x)
        return x;
    if (x > 88.7228394f)
        return INFINITY;
    if (x < -104.0f)
        return 0.0f;
    y = 1.0f + reduced(x, &n);
    return n > 127 ? y * two_to(n - 1) * 2.0f : n < -125 ? y * two_to(n + 64) * two_to(-64) : y * two_to(n);
}

float expm1f(float x)
{
    int32_t n;
    float y;

    if (x != x || x == 0.0f)
        return x;
    if (x > 17.5f)
        return expf(x) - 1.0f;
    if (x < -17.5f)
        return -1.0f;
    y = reduced(x, &n);
    return n == 0 ? y : two_to(n) * y + (two_to(n) - 1.0f);
}

/* x = m 2^n with m between sqrt(1/2) and sqrt(2). */
static float logarithm(float x, int32_t n)
{
    const uint32_t bits = bits_of(x) - 0x3f3504f3u;
    const float f = from_bits((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    const float k = (float)(n + ((int32_t)bits >> 23));
    const float q =
        0.333333313f +
        f * (-0.25000307f +
             f * (0.200010449f +
                  f * (-0.166412815f + f * (0.142144963f + f * (-0.129981831f + f * (0.126223192f + f * -0.0790274367f))))));
    return k * LN2_HIGH + (f - (0.5f * f * f - (f * f * f * q + k * LN2_LOW)));
}

float logf(float x)
{
    if (x == 0.0f)
        return -INFINITY;
    if (x < 0.0f)
        return NAN;
    if (!(x < INFINITY))
        return x;
    return x < 1.17549435e-38f ? logarithm(x * 16777216.0f, -24) : logarithm(x, 0);
}

/* What rounding 1 + x loses, is put back as a factor (W. Kahan). */
float log1pf(float x)
{
    const float sum = 1.0f + x;
    if (sum == 1.0f || x == INFINITY)
        return x;
    return sum <= 0.0f ? logf(sum) : logf(sum) * (x / (sum - 1.0f));
}

/* In double precision: an error in the logarithm is multiplied by up to 128. */
static double power(double x, double y)
{
    uint64_t bits;
    double m, s, z, log2, whole, r;
    int32_t n;

    __builtin_memcpy(&bits, &x, sizeof bits);
    n = (int32_t)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    __builtin_memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        n++;
    }
    s = (m - 1.0) / (m + 1.0);
    z = s * s;
    log2 = n + s * 2.8853900817779268 *
                   (1.0 + z * (1.0 / 3 + z * (1.0 / 5 + z * (1.0 / 7 + z * (1.0 / 9 + z * (1.0 / 11 + z * (1.0 / 13)))))));
    y *= log2;
    if (y > 128.5)
        return (double)INFINITY;
    if (y < -151.0)
        return 0.0;
    n = (int32_t)(y < 0.0 ? y - 0.5 : y + 0.5);
    whole = n;
    r = (y - whole) * 0.69314718055994531;
    r = 1.0 + r * (1.0 + r * (1.0 / 2 + r * (1.0 / 6 + r * (1.0 / 24 + r * (1.0 / 120 + r * (1.0 / 720 + r * (1.0 / 5040)))))));
    bits = (uint64_t)(n + 1023) << 52;
    __builtin_memcpy(&whole, &bits, sizeof whole);
    return r * whole;
}

float powf(float x, float y)
{
    const float whole = (truncf)(y);
    const int odd = whole == y && fabsf(y) < 16777216.0f && ((int32_t)whole & 1);
    float result;

    if (y == 0.0f || x == 1.0f)
        return 1.0f;
    if (x != x || y != y)
        return x + y;
    if (fabsf(y) == INFINITY)
        return fabsf(x) == 1.0f ? 1.0f : (fabsf(x) > 1.0f) == (y > 0.0f) ? INFINITY : 0.0f;
    if (x == 0.0f || fabsf(x) == INFINITY)
        result = (x == 0.0f) == (y > 0.0f) ? 0.0f : INFINITY;
    else if (x < 0.0f && whole != y)
        return NAN;
    else
        result = (float)power((double)fabsf(x), (double)y);
    return odd ? copysignf(result, x) : result;
}

/* Circular functions ------------------------------------------------------------------------------------------------------- */

/* 2 / pi behind the binary point, 32 bits at a time, after 32 zeros. */
static const uint32_t two_over_pi[] = {
    0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu,
};

static uint32_t word_of_two_over_pi(uint32_t bit)
{
    const uint32_t word = bit >> 5, shift = bit & 31u;
    return shift ? two_over_pi[word] << shift | two_over_pi[word + 1u] >> (32u - shift) : two_over_pi[word];
}

/* x = n pi / 2 + r with |r| <= pi / 4; returns r. Far from zero, x is multiplied with 2 / pi in whole numbers: the bits of
 * 2 / pi that only give whole turns are left out, 62 bits behind the point are kept (M. Payne and R. Hanek). */
static float quadrant(float x, uint32_t *n)
{
    const uint32_t mantissa = (bits_of(x) & 0x007fffffu) | 0x00800000u;
    const uint32_t bit = (bits_of(x) >> 23 & 255u) - 120u;
    uint64_t turns;
    float r;

    if (fabsf(x) < 100.0f) {
        const float whole = (rintf)(x * 0.636619772f);
        *n = (uint32_t)(int32_t)whole;
        return ((x - whole * 1.5703125f) - whole * 4.837512969970703125e-4f) - whole * 7.54978995489188e-8f;
    }
    turns = (uint64_t)(word_of_two_over_pi(bit) * mantissa) << 32;
    turns += (uint64_t)word_of_two_over_pi(bit + 32u) * mantissa;
    turns += (uint64_t)word_of_two_over_pi(bit + 64u) * mantissa >> 32;
    *n = (uint32_t)((turns + (UINT64_C(1) << 61)) >> 62);
    r = (float)(int64_t)(turns - ((uint64_t)*n << 62)) * 3.40612158e-19f; /* pi / 2^63 */
    if (bits_of(x) >> 31) {
        *n = 0u - *n;
        r = -r;
    }
    return r;
}

static float sine(float r)
{
    const float z = r * r;
    return r + r * z * (-0.166666642f + z * (0.00833274703f + z * -0.00019587639f));
}

static float cosine(float r)
{
    const float z = r * r;
    return 1.0f - (0.5f * z - z * z * (0.0416666642f + z * (-0.00138883013f + z * 2.45476895e-05f)));
}

float sinf(float x)
{
    uint32_t n;
    float r;

    if (x == 0.0f || !(fabsf(x) < INFINITY))
        return x == 0.0f ? x : NAN;
    r = quadrant(x, &n);
    r = n & 1u ? cosine(r) : sine(r);
    return n & 2u ? -r : r;
}

float cosf(float x)
{
    uint32_t n;
    float r;

    if (!(fabsf(x) < INFINITY))
        return NAN;
    r = quadrant(x, &n);
    r = n & 1u ? sine(r) : cosine(r);
    return (n + 1u) & 2u ? -r : r;
}

float tanf(float x)
{
    uint32_t n;
    float r;

    if (x == 0.0f || !(fabsf(x) < INFINITY))
        return x == 0.0f ? x : NAN;
    r = quadrant(x, &n);
    return n & 1u ? -cosine(r) / sine(r) : sine(r) / cosine(r);
}

static float arcsine(float x) /* |x| <= 1/2 */
{
    const float z = x * x;
    return x + x * z * (0.166666731f + z * (0.0749885514f + z * (0.0450013801f + z * (0.0265545417f + z * 0.0380850248f))));
}

float asinf(float x)
{
    const float a = fabsf(x);
    if (a <= 0.5f)
        return arcsine(x);
    return a <= 1.0f ? copysignf(HALF_PI - 2.0f * arcsine(sqrtf(0.5f * (1.0f - a))), x) : NAN;
}

float acosf(float x)
{
    if (fabsf(x) <= 0.5f)
        return HALF_PI - (arcsine(x) - -4.37113883e-8f);
    if (x > 0.0f)
        return x <= 1.0f ? 2.0f * arcsine(sqrtf(0.5f * (1.0f - x))) : NAN;
    return x >= -1.0f ? 2.0f * (HALF_PI - arcsine(sqrtf(0.5f * (1.0f + x)))) : NAN;
}

float atanf(float x)
{
    const float a = fabsf(x);
    float start = 0.0f, t = a, z;

    if (a > 2.41421356f) {
        start = HALF_PI;
        t = -1.0f / a;
    } else if (a > 0.414213562f) {
        start = 0.5f * HALF_PI;
        t = (a - 1.0f) / (a + 1.0f);
    }
    z = t * t;
    t = t + t * z * (-0.333333313f + z * (0.199995399f + z * (-0.142639562f + z * (0.107437313f + z * -0.0645192787f))));
    return copysignf(start + t, x);
}

/* Hyperbolic functions and the error function ------------------------------------------------------------------------------ */

float sinhf(float x)
{
    const float a = fabsf(x);
    float t;

    if (a > 88.0f) {
        t = expf(0.5f * a);
        return copysignf(0.5f * t * t, x);
    }
    t = expm1f(a);
    return copysignf(0.5f * (t + t / (t + 1.0f)), x);
}

float coshf(float x)
{
    const float a = fabsf(x), t = expf(a > 88.0f ? 0.5f * a : a);
    return a > 88.0f ? 0.5f * t * t : 0.5f * t + 0.5f / t;
}

float tanhf(float x)
{
    const float a = fabsf(x);
    float t;

    if (a > 10.0f)
        return copysignf(1.0f, x);
    t = expm1f(2.0f * a);
    return copysignf(t / (t + 2.0f), x);
}

float asinhf(float x)
{
    const float a = fabsf(x), z = a * a;
    if (a > 1e9f)
        return copysignf(logf(a) + LN2, x);
    return copysignf(log1pf(a + z / (1.0f + sqrtf(z + 1.0f))), x);
}

float acoshf(float x)
{
    const float t = x - 1.0f;
    if (x > 1e9f)
        return logf(x) + LN2;
    return log1pf(t + sqrtf(2.0f * t + t * t));
}

float atanhf(float x)
{
    const float a = fabsf(x);
    return copysignf(0.5f * log1pf(2.0f * a / (1.0f - a)), x);
}

/* Coefficients from the highest power down. */
static const float erf_small[] = { 8.33471859e-05f, -0.000813470921f, 0.00520036882f, -0.0268591512f, 0.112836912f, -0.376126349f, 1.12837923f };
static const float log_erfc[] = {
    -4.85066778e-08f, 1.15366345e-06f, -1.0432138e-05f, 2.70101591e-05f, 0.000313544035f, -0.00402524788f,
    0.0251320619f, -0.108566888f, -0.632963419f, -1.12973869f, 0.000225502357f,
};

static float polynomial(const float *coefficients, int count, float x)
{
    float sum = coefficients[0];
    for (int i = 1; i < count; i++)
        sum = sum * x + coefficients[i];
    return sum;
}

float erff(float x)
{
    const float a = fabsf(x);
    if (a < 0.92f)
        return x * polynomial(erf_small, 7, x * x);
    if (a > 4.0f || x != x)
        return x != x ? x : copysignf(1.0f, x);
    return copysignf(1.0f - expf(polynomial(log_erfc, 11, a)), x);
}

/* erfc(x) = e^(-x^2) t Q(t), t = 1 / (1 + x / 2). x^2 is split, so that its rounding is not multiplied by itself. */
static const float scaled_erfc[] = {
    -0.0266183242f, 0.0516573824f, 0.0895368308f, -0.298006564f, 0.168101475f, 0.0123203462f, 0.194570437f, 0.243989468f,
    0.282341808f, 0.282085627f,
};

float erfcf(float x)
{
    const float a = fabsf(x);
    if (a < 0.5f)
        return 1.0f - erff(x);
    if (a > 10.5f || x != x)
        return x != x ? x : x < 0.0f ? 2.0f : 0.0f;
    const float t = 1.0f / (1.0f + 0.5f * a);
    const float high = (float)(int)(a * 256.0f) * 0.00390625f, rest = (high - a) * (high + a);
    const float around = 1.0f + rest * (1.0f + rest * (0.5f + rest * (0.166666667f + rest * 0.0416666667f)));
    const float tail = expf(-high * high) * (around * (t * polynomial(scaled_erfc, 10, t)));
    return x < 0.0f ? 2.0f - tail : tail;
}
