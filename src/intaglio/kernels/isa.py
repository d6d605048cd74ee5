"""Instructions as records: the C text and what it means in numpy.

An `Isa` is a value: lanes, type names, a table of C texts, and the few inline functions these need. Kernels are built from
the instruction names, so a new instruction set is a new table. `MEANING` is the definition the interpreter runs, for
hardware that is not here too.

`avx2` uses intrinsics; `vec4` is written in GCC's vector extensions (any processor with 128-bit vectors, gcc and clang), and
`neon` and `sse2` replace rows of it by what their compilers do not find by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.isa_integer import (
    AVX2_INTEGERS,
    AVX2_VNNI_INTEGERS,
    INTEGER_MEANING,
    NEON_DOT_INTEGERS,
    NEON_INTEGERS,
    NO_INTEGERS,
    Integers,
)
from intaglio.kernels.isa_narrow import AVX2_NARROW, NEON_NARROW, SSE2_NARROW, VEC4_NARROW

F = np.float32


def _round_to_int(x: Array) -> Array:
    result: Array = np.rint(np.clip(x, -2147483648.0, 2147483520.0)).astype(np.int32)
    return result


def _pick(cond: Array, a: Array, b: Array) -> Array:
    return np.asarray(np.where(cond, a, b))


MEANING: Mapping[str, Callable[..., Array]] = {
    "vsplat": lambda x: x,  # the interpreter broadcasts
    "vadd": lambda a, b: (a + b).astype(F),
    "vsub": lambda a, b: (a - b).astype(F),
    "vmul": lambda a, b: (a * b).astype(F),
    "vdiv": lambda a, b: (a / b).astype(F),
    "vfma": lambda a, b, c: (a.astype(np.float64) * b + c).astype(F),
    "vmin": lambda a, b: _pick(a < b, a, b),  # x86's rule: the second operand when one is NaN
    "vmax": lambda a, b: _pick(a > b, a, b),
    "vsqrt": lambda a: np.sqrt(a),
    "vneg": lambda a: -a,
    "vabs": lambda a: np.abs(a),
    "vfloor": lambda a: np.floor(a),
    "vceil": lambda a: np.ceil(a),
    "vround": lambda a: np.rint(a),
    "vlt": lambda a, b: a < b,
    "vle": lambda a, b: a <= b,
    "vgt": lambda a, b: a > b,
    "vge": lambda a, b: a >= b,
    "veq": lambda a, b: a == b,
    "vne": lambda a, b: a != b,
    "vblend": lambda m, a, b: _pick(m, a, b),
    "vtoint": _round_to_int,
    "vtofloat": lambda a: a.astype(F),
    "visplat": lambda x: x,
    "viadd": lambda a, b: a + b,
    "visub": lambda a, b: a - b,
    "viand": lambda a, b: a & b,
    "vior": lambda a, b: a | b,
    "vishl23": lambda a: (a.astype(np.int64) << 23).astype(np.int32),
    "vishr23": lambda a: (a.view(np.uint32) >> 23).view(np.int32),
    "vasfloat": lambda a: a.astype(np.int32).view(F),
    "vasint": lambda a: a.astype(F).view(np.int32),
    "hsum": lambda a: np.asarray(np.sum(a, dtype=F)),
    "hmax": lambda a: np.asarray(np.max(a)),
    "hmin": lambda a: np.asarray(np.min(a)),
    "hprod": lambda a: np.asarray(np.prod(a, dtype=F)),
    **INTEGER_MEANING,
}


@dataclass(frozen=True, slots=True)
class Isa:
    name: str
    lanes: int
    float_type: str
    int_type: str
    mask_type: str
    load: str
    store: str
    table: Mapping[str, str]
    prelude: str
    integers: Integers = NO_INTEGERS
    narrow: Mapping[str, str] = field(default_factory=dict)  # functions that load i8 and f16 as f32
    dsp: bool = False  # pairs of 16-bit numbers in general registers: `kernels/dsp`
    fused: bool = False  # one lane: a * b + c is one instruction

    def with_integers(self, integers: Integers, name: str = "") -> Isa:
        return replace(self, name=name or self.name, integers=integers, table={**self.table, **(integers.table or {})})


_AVX2_PRELUDE = """\
#include <immintrin.h>

/* Numbers of 32 bits have a type of their own: gcc keeps sums in registers then, which it does not with __m256i. */
typedef int32_t ig_v8i __attribute__((vector_size(32)));
typedef uint32_t ig_v8u __attribute__((vector_size(32)));

IG_INLINE __m256i ig_first_lanes(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

IG_INLINE __m256 ig_load_part(const float *p, int n)
{
    return _mm256_maskload_ps(p, ig_first_lanes(n));
}

IG_INLINE void ig_store_part(float *p, __m256 v, int n)
{
    _mm256_maskstore_ps(p, ig_first_lanes(n), v);
}

IG_INLINE float ig_hsum(__m256 v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

IG_INLINE float ig_hmax(__m256 v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
}

IG_INLINE float ig_hmin(__m256 v)
{
    __m128 s = _mm_min_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_min_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_min_ss(s, _mm_shuffle_ps(s, s, 1)));
}

IG_INLINE float ig_hprod(__m256 v)
{
    __m128 s = _mm_mul_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_mul_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_mul_ss(s, _mm_shuffle_ps(s, s, 1)));
}
"""

AVX2 = Isa(
    name="avx2",
    lanes=8,
    float_type="__m256",
    int_type="ig_v8i",
    mask_type="__m256",
    load="_mm256_loadu_ps(&{0})",
    store="_mm256_storeu_ps(&{0}, {1})",
    prelude=_AVX2_PRELUDE,
    narrow=AVX2_NARROW,
    table={
        "vsplat": "_mm256_set1_ps({0})",
        "vadd": "_mm256_add_ps({0}, {1})",
        "vsub": "_mm256_sub_ps({0}, {1})",
        "vmul": "_mm256_mul_ps({0}, {1})",
        "vdiv": "_mm256_div_ps({0}, {1})",
        "vfma": "_mm256_fmadd_ps({0}, {1}, {2})",
        "vmin": "_mm256_min_ps({0}, {1})",
        "vmax": "_mm256_max_ps({0}, {1})",
        "vsqrt": "_mm256_sqrt_ps({0})",
        "vneg": "_mm256_xor_ps({0}, _mm256_set1_ps(-0.0f))",
        "vabs": "_mm256_andnot_ps(_mm256_set1_ps(-0.0f), {0})",
        "vfloor": "_mm256_floor_ps({0})",
        "vceil": "_mm256_ceil_ps({0})",
        "vround": "_mm256_round_ps({0}, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)",
        "vlt": "_mm256_cmp_ps({0}, {1}, _CMP_LT_OQ)",
        "vle": "_mm256_cmp_ps({0}, {1}, _CMP_LE_OQ)",
        "vgt": "_mm256_cmp_ps({0}, {1}, _CMP_GT_OQ)",
        "vge": "_mm256_cmp_ps({0}, {1}, _CMP_GE_OQ)",
        "veq": "_mm256_cmp_ps({0}, {1}, _CMP_EQ_OQ)",
        "vne": "_mm256_cmp_ps({0}, {1}, _CMP_NEQ_UQ)",
        "vblend": "_mm256_blendv_ps({2}, {1}, {0})",
        "vtoint": "(ig_v8i)_mm256_cvtps_epi32({0})",
        "vtofloat": "_mm256_cvtepi32_ps((__m256i){0})",
        "visplat": "(ig_v8i)_mm256_set1_epi32({0})",
        "viadd": "(ig_v8i)((ig_v8u){0} + (ig_v8u){1})",
        "visub": "(ig_v8i)((ig_v8u){0} - (ig_v8u){1})",
        "viand": "({0} & {1})",
        "vior": "({0} | {1})",
        "vishl23": "(ig_v8i)((ig_v8u){0} << 23)",
        "vishr23": "(ig_v8i)((ig_v8u){0} >> 23)",
        "vasfloat": "(__m256){0}",
        "vasint": "(ig_v8i){0}",
        "hsum": "ig_hsum({0})",
        "hmax": "ig_hmax({0})",
        "hmin": "ig_hmin({0})",
        "hprod": "ig_hprod({0})",
    },
)

_VEC4_PRELUDE = """\
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
"""

VEC4 = Isa(
    name="vec4",
    lanes=4,
    float_type="ig_v4f",
    int_type="ig_v4i",
    mask_type="ig_v4i",
    load="(ig_v4f)*(const ig_v4f_unaligned *)&{0}",
    store="*(ig_v4f_unaligned *)&{0} = (ig_v4f_unaligned){1}",
    prelude=_VEC4_PRELUDE,
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

_VEC4_HORIZONTAL = """
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
VEC4 = replace(VEC4, prelude=VEC4.prelude + _VEC4_HORIZONTAL)

NEON = replace(
    VEC4,
    name="neon",
    prelude="#include <arm_neon.h>\n\n" + VEC4.prelude,
    narrow=NEON_NARROW,
    table={
        **VEC4.table,
        "vfma": "(ig_v4f)vfmaq_f32((float32x4_t){2}, (float32x4_t){0}, (float32x4_t){1})",
        "vsqrt": "(ig_v4f)vsqrtq_f32((float32x4_t){0})",
        "vfloor": "(ig_v4f)vrndmq_f32((float32x4_t){0})",
        "vceil": "(ig_v4f)vrndpq_f32((float32x4_t){0})",
        "vround": "(ig_v4f)vrndnq_f32((float32x4_t){0})",
        "vtoint": "(ig_v4i)vcvtnq_s32_f32((float32x4_t){0})",
    },
)

MVE = replace(
    VEC4,
    name="mve",
    prelude="#include <arm_mve.h>\n\n" + VEC4.prelude,
    table={**VEC4.table, "vfma": "(ig_v4f)vfmaq_f32((float32x4_t){2}, (float32x4_t){0}, (float32x4_t){1})"},
)  # Cortex-M55 and M85: floats in vectors here, bytes in `kernels/mve`

SSE2 = replace(
    VEC4,
    name="sse2",
    prelude="#include <emmintrin.h>\n\n" + VEC4.prelude,
    narrow=SSE2_NARROW,
    table={
        **VEC4.table,
        "vmin": "(ig_v4f)_mm_min_ps((__m128){0}, (__m128){1})",
        "vmax": "(ig_v4f)_mm_max_ps((__m128){0}, (__m128){1})",
        "vsqrt": "(ig_v4f)_mm_sqrt_ps((__m128){0})",
        "vtoint": "(ig_v4i)_mm_cvtps_epi32((__m128){0})",
    },
)

SCALAR = Isa("scalar", 1, "float", "int32_t", "int", "", "", {}, "")

DSP = replace(SCALAR, name="dsp", dsp=True)  # Cortex-M4 and later

_ALL = (
    SCALAR,
    replace(SCALAR, name="scalar_fpu", fused=True),
    DSP,
    replace(DSP, name="dsp_fpu", fused=True),
    AVX2.with_integers(AVX2_INTEGERS),
    AVX2.with_integers(AVX2_VNNI_INTEGERS, "avx2_vnni"),
    VEC4,
    NEON.with_integers(NEON_INTEGERS),
    NEON.with_integers(NEON_DOT_INTEGERS, "neon_dot"),
    SSE2,
    MVE,
    replace(SCALAR, name="opencl", fused=True),  # one lane here; `kernels/opencl` has vectors
)
ISAS: Mapping[str, Isa] = {isa.name: isa for isa in _ALL}
