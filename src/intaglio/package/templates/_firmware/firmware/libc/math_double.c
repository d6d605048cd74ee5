/* Mathematics in double precision, within 4 units in the last place (pow: 1e-13 of the result; erfc: 5e-14; erf: 1e-15; sin, cos and tan:
 * for |x| below 1e5). Slow on cores without a unit for it, but the same everywhere. Linked function by function, where used. */
#include <stdint.h>

#include "math.h"

#define LN2 0.69314718055994531
#define LN2_HIGH 6.93147180369123816490e-01 /* the first 33 bits */
#define LN2_LOW 1.90821492927058770002e-10
#define HALF_PI 1.5707963267948966
#define HALF_PI_LOW 6.123233995736766e-17
#define COUNT(array) (int)(sizeof array / sizeof array[0])

static uint64_t bits_of(double x)
{
    uint64_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}

static double from_bits(uint64_t bits)
{
    double x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}

static double two_to(int32_t n) /* -1022 to 1023 */
{
    return from_bits((uint64_t)(n + 1023) << 52);
}

/* Coefficients from the highest power down. */
static double polynomial(const double *coefficients, int count, double x)
{
    double sum = coefficients[0];
    for (int i = 1; i < count; i++)
        sum = sum * x + coefficients[i];
    return sum;
}

/* Whole numbers ------------------------------------------------------------------------------------------------------------ */

double(trunc)(double x)
{
    const uint64_t bits = bits_of(x);
    const int32_t exponent = (int32_t)(bits >> 52 & 2047u) - 1023;
    if (exponent >= 52)
        return x;
    return from_bits(exponent < 0 ? bits & (UINT64_C(1) << 63) : bits & ~(UINT64_C(0x000fffffffffffff) >> exponent));
}

double(floor)(double x)
{
    const double whole = (trunc)(x);
    return whole > x ? whole - 1.0 : whole;
}

double(ceil)(double x)
{
    const double whole = (trunc)(x);
    return whole < x ? copysign(whole + 1.0, x) : whole;
}

double(round)(double x)
{
    const double whole = (trunc)(x);
    return copysign(fabs(x - whole) >= 0.5 ? fabs(whole) + 1.0 : fabs(whole), x);
}

/* Adding 2^52 rounds the fraction away, half to even. */
double(rint)(double x)
{
    volatile double sum = fabs(x) + 4503599627370496.0;
    return fabs(x) < 4503599627370496.0 ? copysign(sum - 4503599627370496.0, x) : x;
}

double(nearbyint)(double x)
{
    return (rint)(x);
}

double(fmax)(double x, double y)
{
    return x != x || x < y ? y : x;
}

double(fmin)(double x, double y)
{
    return x != x || y < x ? y : x;
}

/* By bits, exact: the remainder doubled, step by step. */
double fmod(double x, double y)
{
    const uint64_t one = UINT64_C(1) << 52, sign = bits_of(x) & (UINT64_C(1) << 63), infinity = UINT64_C(2047) << 52;
    uint64_t a = bits_of(x) ^ sign, b = bits_of(y) & ~(UINT64_C(1) << 63);
    int32_t ea = (int32_t)(a >> 52), eb = (int32_t)(b >> 52);

    if (b == 0u || b > infinity || a >= infinity)
        return (x * y) / (x * y);
    if (a < b)
        return x;
    if (ea == 0)
        ea = 1;
    else
        a = (a & (one - 1u)) | one;
    if (eb == 0)
        eb = 1;
    else
        b = (b & (one - 1u)) | one;
    for (; ea > eb; ea--) {
        if (a >= b)
            a -= b;
        a <<= 1;
    }
    if (a >= b)
        a -= b;
    if (a == 0u)
        return from_bits(sign);
    for (; a < one && eb > 1; eb--)
        a <<= 1;
    return from_bits(sign | (a < one ? a : (a & (one - 1u)) | (uint64_t)eb << 52));
}

/* Bit by bit, rounded to nearest; cores with an instruction never come here. */
double(sqrt)(double x)
{
    const uint64_t one = UINT64_C(1) << 52;
    uint64_t mantissa = (bits_of(x) & (one - 1u)) | one, root = 0, rest = 0;
    int32_t exponent = (int32_t)(bits_of(x) >> 52) - 1023;

    if (x == 0.0 || x != x || bits_of(x) == UINT64_C(2047) << 52)
        return x;
    if (x < 0.0)
        return (double)NAN;
    if (exponent == -1023) {
        mantissa = bits_of(x) << 1;
        for (; mantissa < one; exponent--)
            mantissa <<= 1;
    }
    if (exponent & 1)
        mantissa <<= 1;
    mantissa <<= 10; /* two bits of the operand for each of the root, and one of the root to round with */
    for (int i = 0; i < 54; i++) {
        rest = rest << 2 | mantissa >> 62;
        mantissa <<= 2;
        root <<= 1;
        if (rest > 2u * root) {
            rest -= 2u * root + 1u;
            root++;
        }
    }
    root = (root + 1u) >> 1; /* never half way */
    exponent = (exponent - (exponent & 1)) / 2;
    return from_bits(((uint64_t)(exponent + 1022) << 52) + root); /* the first bit of the root is one more in the exponent */
}

/* Exponentials and logarithms ---------------------------------------------------------------------------------------------- */

static const double exp_series[] = {
    1.607714296690215e-10,  2.0915812494580002e-09, 2.5051988859897453e-08, 2.7557269394921567e-07,
    2.755731949232214e-06,  2.4801587331241346e-05, 0.00019841269841052987, 0.0013888888888880478,
    0.0083333333333333974,  0.041666666666666678,   0.16666666666666666,    0.5,
};

/* x = n ln 2 + r with |r| <= ln 2 / 2; returns e^r - 1. */
static double reduced(double x, int32_t *n)
{
    const double whole = (rint)(x * 1.4426950408889634);
    const double r = (x - whole * LN2_HIGH) - whole * LN2_LOW;
    *n = (int32_t)whole;
    return r + r * r * polynomial(exp_series, COUNT(exp_series), r);
}

double exp(double x)
{
    int32_t n;
    double y;

    if (x != x)
        return x;
    if (x > 709.782712893384)
        return (double)INFINITY;
    if (x < -745.2)
        return 0.0;
    y = 1.0 + reduced(x, &n);
    return n > 1023 ? y * two_to(n - 1) * 2.0 : n < -1021 ? y * two_to(n + 128) * two_to(-128) : y * two_to(n);
}

double expm1(double x)
{
    int32_t n;
    double y;

    if (x != x || x == 0.0)
        return x;
    if (x > 40.0)
        return exp(x) - 1.0;
    if (x < -40.0)
        return -1.0;
    y = reduced(x, &n);
    return n == 0 ? y : two_to(n) * y + (two_to(n) - 1.0);
}

static const double log_series[] = {
    0.13085922674693812, 0.13268838183706358, 0.15386237446763668, 0.18181795676096207,
    0.22222222391461932, 0.28571428570804069, 0.40000000000000879, 0.66666666666666663,
};

/* x = m 2^n with m between sqrt(1/2) and sqrt(2), through s = (m - 1) / (m + 1). */
static double logarithm(double x, int32_t n)
{
    const uint64_t bits = bits_of(x) - UINT64_C(0x3fe6a09e667f3bcd);
    const double f = from_bits((bits & UINT64_C(0x000fffffffffffff)) + UINT64_C(0x3fe6a09e667f3bcd)) - 1.0;
    const double k = (double)(n + (int32_t)((int64_t)bits >> 52));
    const double s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    return k * LN2_HIGH - ((half - (s * (half + z * polynomial(log_series, COUNT(log_series), z)) + k * LN2_LOW)) - f);
}

double log(double x)
{
    if (x == 0.0)
        return (double)-INFINITY;
    if (x < 0.0)
        return (double)NAN;
    if (!(x < (double)INFINITY))
        return x;
    return x < 2.2250738585072014e-308 ? logarithm(x * 18014398509481984.0, -54) : logarithm(x, 0);
}

/* What rounding 1 + x loses, is put back as a factor (W. Kahan). */
double log1p(double x)
{
    const double sum = 1.0 + x;
    if (sum == 1.0 || x == (double)INFINITY)
        return x;
    return sum <= 0.0 ? log(sum) : log(sum) * (x / (sum - 1.0));
}

/* What rounding the product a b loses, by halves of 26 bits (T. Dekker). */
static double product_error(double a, double b, double product)
{
    const double ah = from_bits(bits_of(a) & ~UINT64_C(0x07ffffff)), al = a - ah;
    const double bh = from_bits(bits_of(b) & ~UINT64_C(0x07ffffff)), bl = b - bh;
    return ((ah * bh - product) + ah * bl + al * bh) + al * bl;
}

double pow(double x, double y)
{
    const double whole = (trunc)(y), a = fabs(x), infinity = (double)INFINITY;
    const int odd = whole == y && fabs(y) < 9007199254740992.0 && fabs(fmod(whole, 2.0)) == 1.0;
    double result, power, scaled;

    if (y == 0.0 || x == 1.0)
        return 1.0;
    if (x != x || y != y)
        return x + y;
    if (fabs(y) == infinity)
        return a == 1.0 ? 1.0 : (a > 1.0) == (y > 0.0) ? infinity : 0.0;
    if (x == 0.0 || a == infinity) {
        result = (x == 0.0) == (y > 0.0) ? 0.0 : infinity;
    } else if (x < 0.0 && whole != y) {
        return (double)NAN;
    } else {
        power = log(a);
        scaled = y * power;
        result = exp(scaled);
        if (result > 0.0 && result < infinity)
            result += result * product_error(y, power, scaled);
    }
    return odd ? copysign(result, x) : result;
}

/* Circular functions ------------------------------------------------------------------------------------------------------- */

static const double sine_series[] = {
    -7.5844077595955838e-13, 1.6058485382689907e-10,  -2.5052105887135172e-08, 2.7557319218169783e-06,
    -0.00019841269841263309, 0.0083333333333333297, -0.16666666666666666,
};
static const double cosine_series[] = {
    -1.138253869441658e-11, 2.0876144949819293e-09, -2.7557317265264867e-07, 2.480158729875278e-05, -0.0013888888888887389,
    0.041666666666666664,
};

/* x = n pi / 2 + r with |r| <= pi / 4; returns r. Pi / 2 in three parts of 33 bits, whose multiples are exact up to 2^20. */
static double quadrant(double x, uint32_t *n)
{
    const double whole = (rint)(x * 0.63661977236758134);
    *n = (uint32_t)(int32_t)fmod(whole, 4.0);
    return ((x - whole * 1.57079632673412561417e+00) - whole * 6.07710050630396597660e-11) - whole * 2.02226624879595063154e-21;
}

static double sine(double r)
{
    const double z = r * r;
    return r + r * z * polynomial(sine_series, COUNT(sine_series), z);
}

static double cosine(double r)
{
    const double z = r * r;
    return 1.0 - (0.5 * z - z * z * polynomial(cosine_series, COUNT(cosine_series), z));
}

double sin(double x)
{
    uint32_t n;
    double r;

    if (x == 0.0 || !(fabs(x) < (double)INFINITY))
        return x == 0.0 ? x : (double)NAN;
    r = quadrant(x, &n);
    r = n & 1u ? cosine(r) : sine(r);
    return n & 2u ? -r : r;
}

double cos(double x)
{
    uint32_t n;
    double r;

    if (!(fabs(x) < (double)INFINITY))
        return (double)NAN;
    r = quadrant(x, &n);
    r = n & 1u ? sine(r) : cosine(r);
    return (n + 1u) & 2u ? -r : r;
}

double tan(double x)
{
    uint32_t n;
    double r;

    if (x == 0.0 || !(fabs(x) < (double)INFINITY))
        return x == 0.0 ? x : (double)NAN;
    r = quadrant(x, &n);
    return n & 1u ? -cosine(r) / sine(r) : sine(r) / cosine(r);
}

static const double arcsine_series[] = {
    0.028169197729148603, -0.010749024331769736, 0.016035499812453554, 0.007802954165489184,
    0.011875493412269872, 0.013929653037714863,  0.017355259942841997, 0.022372047632581625,
    0.030381947367063646, 0.044642857103424485,  0.075000000000207637, 0.16666666666666649,
};

static double arcsine(double x) /* |x| <= 1/2 */
{
    const double z = x * x;
    return x + x * z * polynomial(arcsine_series, COUNT(arcsine_series), z);
}

double asin(double x)
{
    const double a = fabs(x);
    if (a <= 0.5)
        return arcsine(x);
    return a <= 1.0 ? copysign(HALF_PI - (2.0 * arcsine(sqrt(0.5 * (1.0 - a))) - HALF_PI_LOW), x) : (double)NAN;
}

double acos(double x)
{
    if (fabs(x) <= 0.5)
        return HALF_PI - (arcsine(x) - HALF_PI_LOW);
    if (x > 0.0)
        return x <= 1.0 ? 2.0 * arcsine(sqrt(0.5 * (1.0 - x))) : (double)NAN;
    return x >= -1.0 ? 2.0 * (HALF_PI - (arcsine(sqrt(0.5 * (1.0 + x))) - HALF_PI_LOW)) : (double)NAN;
}

static const double arctangent_series[] = {
    0.016290438716510518,  -0.034574900393303867, 0.045517676617626034,  -0.052304942338283721,
    0.058789347581715605,  -0.066664254300823622, 0.076922964090782309,  -0.090909087548857223,
    0.11111111105190109,   -0.14285714285660292,  0.19999999999999807,   -0.33333333333333331,
};

double atan(double x)
{
    const double a = fabs(x);
    double start = 0.0, low = 0.0, t = a, z;

    if (a > 2.4142135623730951) {
        start = HALF_PI;
        low = HALF_PI_LOW;
        t = -1.0 / a;
    } else if (a > 0.41421356237309503) {
        start = 0.5 * HALF_PI;
        low = 0.5 * HALF_PI_LOW;
        t = (a - 1.0) / (a + 1.0);
    }
    z = t * t;
    return copysign(start + (t + (t * z * polynomial(arctangent_series, COUNT(arctangent_series), z) + low)), x);
}

/* Hyperbolic functions and the error function ------------------------------------------------------------------------------ */

double sinh(double x)
{
    const double a = fabs(x);
    double t;

    if (a > 709.0) {
        t = exp(0.5 * a);
        return copysign(0.5 * t * t, x);
    }
    t = expm1(a);
    return copysign(0.5 * (t + t / (t + 1.0)), x);
}

double cosh(double x)
{
    const double a = fabs(x), t = exp(a > 709.0 ? 0.5 * a : a);
    return a > 709.0 ? 0.5 * t * t : 0.5 * t + 0.5 / t;
}

double tanh(double x)
{
    const double a = fabs(x);
    double t;

    if (a > 20.0)
        return copysign(1.0, x);
    t = expm1(2.0 * a);
    return copysign(t / (t + 2.0), x);
}

double asinh(double x)
{
    const double a = fabs(x), z = a * a;
    if (a > 1e9)
        return copysign(log(a) + LN2, x);
    return copysign(log1p(a + z / (1.0 + sqrt(z + 1.0))), x);
}

double acosh(double x)
{
    const double t = x - 1.0;
    if (x > 1e9)
        return log(x) + LN2;
    return log1p(t + sqrt(2.0 * t + t * t));
}

double atanh(double x)
{
    const double a = fabs(x);
    return copysign(0.5 * log1p(2.0 * a / (1.0 - a)), x);
}

/* 2 / sqrt(pi) e^(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ...), whose terms are all positive; far out, the continued fraction of 1 - erf. */
double erf(double x)
{
    const double a = fabs(x), z = x * x;
    double term = a, sum = a;

    if (a > 6.0 || x != x)
        return x != x ? x : copysign(1.0, x);
    if (a < 2.5) {
        for (int n = 1; term > sum * 1e-17; n++) {
            term *= 2.0 * z / (2 * n + 1);
            sum += term;
        }
        return copysign(1.1283791670955126 * sum * exp(-z), x);
    }
    sum = 0.0;
    for (int k = 60; k > 0; k--)
        sum = 0.5 * k / (a + sum);
    return copysign(1.0 - 0.56418958354775629 * exp(-z) / (a + sum), x);
}

/* Near zero 1 - erf; far out the continued fraction. x^2 is split, so that its rounding is not multiplied by itself. */
double erfc(double x)
{
    const double a = fabs(x), high = (double)(float)a;
    double sum = 0.0;

    if (a < 1.5)
        return 1.0 - erf(x);
    if (a > 27.5 || x != x)
        return x != x ? x : x < 0.0 ? 2.0 : 0.0;
    for (int k = 120; k > 0; k--)
        sum = 0.5 * k / (a + sum);
    sum = 0.56418958354775629 / (a + sum) * exp((high - a) * (high + a)) * exp(-high * high);
    return x < 0.0 ? 2.0 - sum : sum;
}
