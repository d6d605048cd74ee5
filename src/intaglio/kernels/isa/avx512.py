"""AVX-512 of x86-64-v4 (F, BW, CD, DQ, VL); and with the dot products of AVX512-VNNI.

Sixteen lanes; comparisons give masks of one bit per lane; parts of vectors are loaded and stored under such a mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from intaglio.ir.types import DType
from intaglio.kernels.isa.record import Dot, Integers, Isa

_PRELUDE = """\
#include <immintrin.h>

/* Numbers of 32 bits have a type of their own: gcc keeps sums in registers then, which it does not with __m512i. */
typedef int32_t ig_v16i __attribute__((vector_size(64)));
typedef uint32_t ig_v16u __attribute__((vector_size(64)));

IG_INLINE __m512 ig_load_part(const float *p, int n)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
}

IG_INLINE void ig_store_part(float *p, __m512 v, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), v);
}

/* Without optimisation this intrinsic is a macro, in which gcc gives a mask to a signed parameter. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-conversion"
IG_INLINE __m512 ig_round(__m512 v)
{
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#pragma GCC diagnostic pop

IG_INLINE float ig_hsum(__m512 v)
{
    return _mm512_reduce_add_ps(v);
}

IG_INLINE float ig_hmax(__m512 v)
{
    return _mm512_reduce_max_ps(v);
}

IG_INLINE float ig_hmin(__m512 v)
{
    return _mm512_reduce_min_ps(v);
}

IG_INLINE float ig_hprod(__m512 v)
{
    return _mm512_reduce_mul_ps(v);
}
"""

_NARROW: Mapping[str, str] = {
    "i8": """\
IG_INLINE __m512 ig_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
""",
    "f16": """\
IG_INLINE __m512 ig_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
""",
}

AVX512 = Isa(
    name="avx512",
    lanes=16,
    float_type="__m512",
    int_type="ig_v16i",
    mask_type="__mmask16",
    load="_mm512_loadu_ps(&{0})",
    store="_mm512_storeu_ps(&{0}, {1})",
    prelude=_PRELUDE,
    narrow=_NARROW,
    table={
        "vsplat": "_mm512_set1_ps({0})",
        "vadd": "_mm512_add_ps({0}, {1})",
        "vsub": "_mm512_sub_ps({0}, {1})",
        "vmul": "_mm512_mul_ps({0}, {1})",
        "vdiv": "_mm512_div_ps({0}, {1})",
        "vfma": "_mm512_fmadd_ps({0}, {1}, {2})",
        "vmin": "_mm512_min_ps({0}, {1})",
        "vmax": "_mm512_max_ps({0}, {1})",
        "vsqrt": "_mm512_sqrt_ps({0})",
        "vneg": "_mm512_xor_ps({0}, _mm512_set1_ps(-0.0f))",
        "vabs": "_mm512_andnot_ps(_mm512_set1_ps(-0.0f), {0})",
        "vfloor": "_mm512_floor_ps({0})",
        "vceil": "_mm512_ceil_ps({0})",
        "vround": "ig_round({0})",
        "vlt": "_mm512_cmp_ps_mask({0}, {1}, _CMP_LT_OQ)",
        "vle": "_mm512_cmp_ps_mask({0}, {1}, _CMP_LE_OQ)",
        "vgt": "_mm512_cmp_ps_mask({0}, {1}, _CMP_GT_OQ)",
        "vge": "_mm512_cmp_ps_mask({0}, {1}, _CMP_GE_OQ)",
        "veq": "_mm512_cmp_ps_mask({0}, {1}, _CMP_EQ_OQ)",
        "vne": "_mm512_cmp_ps_mask({0}, {1}, _CMP_NEQ_UQ)",
        "vblend": "_mm512_mask_blend_ps({0}, {2}, {1})",
        "vtoint": "(ig_v16i)_mm512_cvtps_epi32({0})",
        "vtofloat": "_mm512_cvtepi32_ps((__m512i){0})",
        "visplat": "(ig_v16i)_mm512_set1_epi32({0})",
        "viadd": "(ig_v16i)((ig_v16u){0} + (ig_v16u){1})",
        "visub": "(ig_v16i)((ig_v16u){0} - (ig_v16u){1})",
        "viand": "({0} & {1})",
        "vior": "({0} | {1})",
        "vishl23": "(ig_v16i)((ig_v16u){0} << 23)",
        "vishr23": "(ig_v16i)((ig_v16u){0} >> 23)",
        "vasfloat": "(__m512){0}",
        "vasint": "(ig_v16i){0}",
        "hsum": "ig_hsum({0})",
        "hmax": "ig_hmax({0})",
        "hmin": "ig_hmin({0})",
        "hprod": "ig_hprod({0})",
    },
)

_INTEGER_PRELUDE = """\
/* The empty statement keeps gcc from changing loops around it. Where a tile reads the same bytes in several rounds, as in first
 * layers of three channels, gcc would hold them in registers from one round to the next (-fpredictive-commoning) and spill sums. */
IG_INLINE int32_t ig_four_bytes(const void *p)
{
    int32_t bits;
    __asm__ volatile("");
    memcpy(&bits, p, sizeof bits);
    return bits;
}

/* 32 numbers of 32 bits in 16, saturating */
IG_INLINE __m512i ig_narrow(ig_v16i a, ig_v16i b)
{
    const __m256i low = _mm512_cvtsepi32_epi16((__m512i)a), high = _mm512_cvtsepi32_epi16((__m512i)b);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* numbers below 0 are 0: the conversion to unsigned bytes saturates unsigned numbers */
IG_INLINE __m256i ig_bytes_u8(__m512i v)
{
    return _mm512_cvtusepi16_epi8(_mm512_max_epi16(v, _mm512_setzero_si512()));
}

IG_INLINE void ig_store_bytes(void *p, __m256i v, size_t n)
{
    unsigned char bytes[32];
    _mm256_storeu_si256((__m256i *)(void *)bytes, v);
    memcpy(p, bytes, n);
}

/* (a * b + 2^30) >> 31: products of the even and of the odd lanes */
IG_INLINE ig_v16i ig_high(ig_v16i x, ig_v16i y)
{
    const __m512i a = (__m512i)x, b = (__m512i)y, half = _mm512_set1_epi64(1 << 30);
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(a, b), half);
    const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(b, 32)), half);
    return (ig_v16i)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 31), _mm512_slli_epi64(odd, 1));
}

/* x / 2^n, rounded half away from zero, where x + half does not overflow and n is not 0 */
IG_INLINE ig_v16i ig_shift_away_quick(ig_v16i x, ig_v16i n, ig_v16i half)
{
    return (ig_v16i)_mm512_srav_epi32((__m512i)(x + (half + (x >> 31))), (__m512i)n);
}

/* the same for any n */
IG_INLINE ig_v16i ig_shift_away(ig_v16i v, ig_v16i n)
{
    const __m512i x = (__m512i)v, one = _mm512_set1_epi32(1);
    const __m512i mask = _mm512_sub_epi32(_mm512_sllv_epi32(one, (__m512i)n), one);
    const __m512i threshold = _mm512_sub_epi32(_mm512_srli_epi32(mask, 1), _mm512_srai_epi32(x, 31));
    const __mmask16 up = _mm512_cmpgt_epi32_mask(_mm512_and_si512(x, mask), threshold);
    const __m512i shifted = _mm512_srav_epi32(x, (__m512i)n);
    return (ig_v16i)_mm512_mask_add_epi32(shifted, up, shifted, one);
}

/* (a * m + 2^(t-1)) >> t, by the products of the even and of the odd lanes */
IG_INLINE ig_v16i ig_scale_once(ig_v16i x, ig_v16i y, ig_v16i total)
{
    const __m512i a = (__m512i)x, m = (__m512i)y, t = (__m512i)total, one = _mm512_set1_epi64(1);
    const __m512i t0 = _mm512_and_si512(t, _mm512_set1_epi64(0xffff));
    const __m512i t1 = _mm512_srli_epi64(t, 32);
    const __m512i half0 = _mm512_sllv_epi64(one, _mm512_sub_epi64(t0, one));
    const __m512i half1 = _mm512_sllv_epi64(one, _mm512_sub_epi64(t1, one));
    const __m512i even = _mm512_add_epi64(_mm512_mul_epi32(a, m), half0);
    const __m512i odd = _mm512_add_epi64(_mm512_mul_epi32(_mm512_srli_epi64(a, 32), _mm512_srli_epi64(m, 32)), half1);
    const __m512i high = _mm512_slli_epi64(_mm512_srav_epi64(odd, t1), 32);
    return (ig_v16i)_mm512_mask_blend_epi32(0xaaaa, _mm512_srav_epi64(even, t0), high);
}
"""

_LOAD, _STORE = "_mm512_loadu_si512((const void *)&{0})", "_mm512_storeu_si512((void *)&{0}, {1})"
_LOAD_HALF = "_mm256_loadu_si256((const __m256i *)(const void *)&{0})"
_STORE_HALF = "_mm256_storeu_si256((__m256i *)(void *)&{0}, {1})"
_WHOLE, _HALF = ("i16x32", "i8x64", "u8x64"), ("i8x32", "u8x32")
_FOUR = ("i16x2", "u8x4", "i8x4")
_DOT2 = Dot("vdot2", 2, DType.I16, DType.I16, narrow_weights=True)

INTEGERS = Integers(
    dots=(Dot("vdot4_pairs", 4, DType.U8, DType.I8, pairs=True), _DOT2),
    taps=2,
    types={
        "i32x16": "ig_v16i",
        **dict.fromkeys(_WHOLE, "__m512i"),
        **dict.fromkeys(_HALF, "__m256i"),
        **dict.fromkeys(_FOUR, "int32_t"),
    },
    loads={
        "i32x16": f"(ig_v16i){_LOAD}",
        **dict.fromkeys(_WHOLE, _LOAD),
        **dict.fromkeys(_HALF, _LOAD_HALF),
        **dict.fromkeys(_FOUR, "ig_four_bytes(&{0})"),
    },
    stores={"i32x16": _STORE.replace("{1}", "(__m512i){1}"), **dict.fromkeys(_WHOLE, _STORE), **dict.fromkeys(_HALF, _STORE_HALF)},
    prelude=_INTEGER_PRELUDE,
    table={
        "vrepeat": "_mm512_set1_epi32({0})",
        "vrepeat_bytes": "_mm512_set1_epi32({0})",
        "vsplat_i16": "_mm512_set1_epi16({0})",
        "vsplat_i8": "_mm256_set1_epi8({0})",
        "vsplat_u8": "_mm256_set1_epi8((char){0})",
        "vdot2": "(ig_v16i)((ig_v16u){0} + (ig_v16u)_mm512_madd_epi16({1}, {2}))",
        "vdot4_pairs": "(ig_v16i)((ig_v16u){0} + (ig_v16u)_mm512_madd_epi16(_mm512_maddubs_epi16({1}, {2}), _mm512_set1_epi16(1)))",
        "vswap_middle": "_mm512_shuffle_epi8({0}, _mm512_set4_epi32(0x0f0d0e0c, 0x0b090a08, 0x07050604, 0x03010200))",
        "vswap_last": "_mm512_shuffle_epi8({0}, _mm512_set4_epi32(0x0e0d0f0c, 0x0a090b08, 0x06050704, 0x02010300))",
        "vzip_low": "_mm512_unpacklo_epi16({0}, {1})",
        "vzip_high": "_mm512_unpackhi_epi16({0}, {1})",
        "vwiden_i8": "_mm512_cvtepi8_epi16({0})",
        "vwiden_u8": "_mm512_cvtepu8_epi16({0})",
        "vwiden_low": "(ig_v16i)_mm512_cvtepi16_epi32(_mm512_castsi512_si256({0}))",
        "vwiden_high": "(ig_v16i)_mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64({0}, 1))",
        "vflip_i8": "_mm256_xor_si256({0}, _mm256_set1_epi8(-128))",
        "vflip_u8": "_mm256_xor_si256({0}, _mm256_set1_epi8(-128))",
        "vnarrow": "ig_narrow({0}, {1})",
        "vnarrow_zipped": "_mm512_packs_epi32((__m512i){0}, (__m512i){1})",
        "vadds_i16": "_mm512_adds_epi16({0}, {1})",
        "vadd_i16": "_mm512_add_epi16({0}, {1})",
        "vsub_i16": "_mm512_sub_epi16({0}, {1})",
        "vmul_i16": "_mm512_mullo_epi16({0}, {1})",
        "vmin_i16": "_mm512_min_epi16({0}, {1})",
        "vmax_i16": "_mm512_max_epi16({0}, {1})",
        "vmax_i8": "_mm256_max_epi8({0}, {1})",
        "vmax_u8": "_mm256_max_epu8({0}, {1})",
        "vbytes_i8": "_mm512_cvtsepi16_epi8({0})",
        "vbytes_u8": "ig_bytes_u8({0})",
        "vimul": "(ig_v16i)((ig_v16u){0} * (ig_v16u){1})",
        "vishift_left": "(ig_v16i)_mm512_sllv_epi32((__m512i){0}, (__m512i){1})",
        "vishift_right": "(ig_v16i)_mm512_srav_epi32((__m512i){0}, (__m512i){1})",
        "vhigh": "ig_high({0}, {1})",
        "vshift_away": "ig_shift_away({0}, {1})",
        "vshift_away_quick": "ig_shift_away_quick({0}, {1}, {2})",
        "vscale_once": "ig_scale_once({0}, {1}, {2})",
        "vtrunc": "(ig_v16i)_mm512_cvttps_epi32({0})",
    },
)

VNNI_INTEGERS = replace(
    INTEGERS,
    dots=(Dot("vdot4_u8", 4, DType.U8, DType.I8), _DOT2),
    table={
        **(INTEGERS.table or {}),
        "vdot2": "(ig_v16i)_mm512_dpwssd_epi32((__m512i){0}, {1}, {2})",
        "vdot4_u8": "(ig_v16i)_mm512_dpbusd_epi32((__m512i){0}, {1}, {2})",
    },
)

ISAS = (AVX512.with_integers(INTEGERS), AVX512.with_integers(VNNI_INTEGERS, "avx512_vnni"))
