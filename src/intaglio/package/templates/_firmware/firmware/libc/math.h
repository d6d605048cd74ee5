/* What the layers use of <math.h>, for a core without a C library. Instructions where the core has them, calls elsewhere. */
#ifndef INTAGLIO_MATH_H
#define INTAGLIO_MATH_H

#define NAN __builtin_nanf("")
#define INFINITY __builtin_inff()
#define isnan(x) __builtin_isnan(x)
#define isinf(x) __builtin_isinf(x)
#define fabsf(x) __builtin_fabsf(x)
#define fabs(x) __builtin_fabs(x)
#define copysignf(x, y) __builtin_copysignf(x, y)
#define copysign(x, y) __builtin_copysign(x, y)

float sqrtf(float x), floorf(float x), ceilf(float x), truncf(float x), rintf(float x), roundf(float x);
float nearbyintf(float x), fmaf(float x, float y, float z), fmaxf(float x, float y), fminf(float x, float y);
float expf(float x), expm1f(float x), logf(float x), log1pf(float x), powf(float x, float y), fmodf(float x, float y);
float sinf(float x), cosf(float x), tanf(float x), asinf(float x), acosf(float x), atanf(float x);
float sinhf(float x), coshf(float x), tanhf(float x), asinhf(float x), acoshf(float x), atanhf(float x);
float erff(float x), erfcf(float x);

double sqrt(double x), floor(double x), ceil(double x), trunc(double x), rint(double x), round(double x);
double nearbyint(double x), fmax(double x, double y), fmin(double x, double y);
double exp(double x), expm1(double x), log(double x), log1p(double x), pow(double x, double y), fmod(double x, double y);
double sin(double x), cos(double x), tan(double x), asin(double x), acos(double x), atan(double x);
double sinh(double x), cosh(double x), tanh(double x), asinh(double x), acosh(double x), atanh(double x), erf(double x), erfc(double x);

#define sqrtf(x) __builtin_sqrtf(x)
#define floorf(x) __builtin_floorf(x)
#define ceilf(x) __builtin_ceilf(x)
#define truncf(x) __builtin_truncf(x)
#define rintf(x) __builtin_rintf(x)
#define roundf(x) __builtin_roundf(x)
#define nearbyintf(x) __builtin_nearbyintf(x)
#define fmaf(x, y, z) __builtin_fmaf(x, y, z)
#define fmaxf(x, y) __builtin_fmaxf(x, y)
#define fminf(x, y) __builtin_fminf(x, y)
#define sqrt(x) __builtin_sqrt(x)
#define floor(x) __builtin_floor(x)
#define ceil(x) __builtin_ceil(x)
#define trunc(x) __builtin_trunc(x)
#define rint(x) __builtin_rint(x)
#define round(x) __builtin_round(x)
#define nearbyint(x) __builtin_nearbyint(x)
#define fmax(x, y) __builtin_fmax(x, y)
#define fmin(x, y) __builtin_fmin(x, y)

#endif
