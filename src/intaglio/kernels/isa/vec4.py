"""Vectors of 128 bits in GCC's vector extensions: any processor that has them, gcc and clang. NEON, SSE2 and MVE replace rows."""

from __future__ import annotations

from collections.abc import Mapping

from intaglio.kernels.isa.record import Isa

_PRELUDE = """\
typedef float ig_v4f __attribute__((vector_size(16)));
typedef int32_t ig_v4i __attribute__((vector_size(16)));
typedef uint32_t ig_v4u __attribute__((vector_size(16)));
typedef float ig_v4f_unaligned __attribute__((vector_size(16), aligned(4), may_alias));

IG_INLINE ig_v4f ig_select(ig_v4i mask, ig_v4f a, ig_v4f b)
{
    return (ig_v4f)((mask & (ig_v4i)a) | (~mask & (ig_v4i)b));
}

IG_INLINE ig_v4f ig_sqrt4(ig_v4f v)
{
    return (ig_v4f){sqrtf(v[0]), sqrtf(v[1]), sqrtf(v[2]), sqrtf(v[3])};
}

/* Rounds to even by the unit of the last place at 2^23; larger values are whole already. */
IG_INLINE ig_v4f ig_round4(ig_v4f v)
{
    const ig_v4f magic = {8388608.0f, 8388608.0f, 8388608.0f, 8388608.0f};
    const ig_v4i sign_bit = {INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN};
    ig_v4i sign = (ig_v4i)v & sign_bit;
    ig_v4f size = (ig_v4f)((ig_v4i)v & ~sign_bit);
    volatile ig_v4f shifted = size + magic; /* volatile: the compiler must not cancel the two */
    ig_v4f whole = shifted - magic;
    return (ig_v4f)((ig_v4i)ig_select((ig_v4i)(size < magic), whole, size) | sign);
}

IG_INLINE ig_v4f ig_floor4(ig_v4f v)
{
    const ig_v4f one = {1.0f, 1.0f, 1.0f, 1.0f};
    ig_v4f whole = ig_round4(v);
    return ig_select((ig_v4i)(whole > v), whole - one, whole);
}

IG_INLINE ig_v4i ig_toint4(ig_v4f v)
{
    return __builtin_convertvector(ig_round4(v), ig_v4i);
}

IG_INLINE ig_v4f ig_load_part(const float *p, int n)
{
    return (ig_v4f){p[0], n > 1 ? p[1] : 0.0f, n > 2 ? p[2] : 0.0f, 0.0f};
}

IG_INLINE void ig_store_part(float *p, ig_v4f v, int n)
{
    for (int i = 0; i < n; i++) {
        p[i] = v[i];
    }
}

IG_INLINE float ig_hsum(ig_v4f v)
{
    return (v[0] + v[2]) + (v[1] + v[3]);
}

IG_INLINE float ig_hmax(ig_v4f v)
{
    float a = v[0] > v[1] ? v[0] : v[1];
    float b = v[2] > v[3] ? v[2] : v[3];
    return a > b ? a : b;
}

IG_INLINE float ig_hmin(ig_v4f v)
{
    float a = v[0] < v[1] ? v[0] : v[1];
    float b = v[2] < v[3] ? v[2] : v[3];
    return a < b ? a : b;
}

IG_INLINE float ig_hprod(ig_v4f v)
{
    return (v[0] * v[2]) * (v[1] * v[3]);
}
"""

VEC4_NARROW: Mapping[str, str] = {
    "i8": """\
IG_INLINE ig_v4f ig_load_i8(const int8_t *p)
{
    return (ig_v4f){(float)p[0], (float)p[1], (float)p[2], (float)p[3]};
}
""",
    "f16": """\
/* The exponent moves from a bias of 15 to one of 127; numbers below 2^-14 get their leading bit by a subtraction. */
IG_INLINE ig_v4f ig_load_f16(const uint16_t *p)
{
    const ig_v4u all = {0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu};
    const ig_v4u exponent = all & 0x0f800000u;
    const ig_v4f smallest = {6.103515625e-5f, 6.103515625e-5f, 6.103515625e-5f, 6.103515625e-5f};
    const ig_v4u half = {p[0], p[1], p[2], p[3]};
    const ig_v4u sign = (half & 0x8000u) << 16;
    const ig_v4u rest = (half & 0x7fffu) << 13;
    const ig_v4u infinite = (ig_v4u)((rest & exponent) == exponent);
    const ig_v4u whole = rest + 0x38000000u + (infinite & 0x38000000u);
    const ig_v4f small = (ig_v4f)(rest + 0x38800000u) - smallest;
    const ig_v4f size = ig_select((ig_v4i)((rest & exponent) == (all ^ all)), small, (ig_v4f)whole);
    return (ig_v4f)((ig_v4u)size | sign);
}
""",
}

VEC4 = Isa(
    name="vec4",
    lanes=4,
    float_type="ig_v4f",
    int_type="ig_v4i",
    mask_type="ig_v4i",
    load="(ig_v4f)*(const ig_v4f_unaligned *)&{0}",
    store="*(ig_v4f_unaligned *)&{0} = (ig_v4f_unaligned){1}",
    prelude=_PRELUDE,
    narrow=VEC4_NARROW,
    table={
        "vsplat": "(ig_v4f){{{0}, {0}, {0}, {0}}}",
        "vadd": "({0} + {1})",
        "vsub": "({0} - {1})",
        "vmul": "({0} * {1})",
        "vdiv": "({0} / {1})",
        "vfma": "({0} * {1} + {2})",
        "vmin": "ig_select((ig_v4i)({0} < {1}), {0}, {1})",
        "vmax": "ig_select((ig_v4i)({0} > {1}), {0}, {1})",
        "vsqrt": "ig_sqrt4({0})",
        "vneg": "(-{0})",
        "vabs": "(ig_v4f)((ig_v4i){0} & (ig_v4i){{INT32_MAX, INT32_MAX, INT32_MAX, INT32_MAX}})",
        "vfloor": "ig_floor4({0})",
        "vceil": "(-ig_floor4(-{0}))",
        "vround": "ig_round4({0})",
        "vlt": "(ig_v4i)({0} < {1})",
        "vle": "(ig_v4i)({0} <= {1})",
        "vgt": "(ig_v4i)({0} > {1})",
        "vge": "(ig_v4i)({0} >= {1})",
        "veq": "(ig_v4i)({0} == {1})",
        "vne": "(ig_v4i)({0} != {1})",
        "vblend": "ig_select({0}, {1}, {2})",
        "vtoint": "ig_toint4({0})",
        "vtofloat": "__builtin_convertvector({0}, ig_v4f)",
        "visplat": "(ig_v4i){{{0}, {0}, {0}, {0}}}",
        "viadd": "({0} + {1})",
        "visub": "({0} - {1})",
        "viand": "({0} & {1})",
        "vior": "({0} | {1})",
        "vishl23": "(ig_v4i)((ig_v4u){0} << 23)",
        "vishr23": "(ig_v4i)((ig_v4u){0} >> 23)",
        "vasfloat": "(ig_v4f){0}",
        "vasint": "(ig_v4i){0}",
        "hsum": "ig_hsum({0})",
        "hmax": "ig_hmax({0})",
        "hmin": "ig_hmin({0})",
        "hprod": "ig_hprod({0})",
    },
)

ISAS = (VEC4,)
