"""AVX2 with FMA; and with the dot products of AVX-VNNI."""

from __future__ import annotations

from collections.abc import Mapping

from intaglio.ir.types import DType
from intaglio.kernels.isa.record import Dot, Integers, Isa

_PRELUDE = """\
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

_NARROW: Mapping[str, str] = {
    "i8": """\
IG_INLINE __m256 ig_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
""",
    "f16": """\
IG_INLINE __m256 ig_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
""",
}

AVX2 = Isa(
    name="avx2",
    lanes=8,
    float_type="__m256",
    int_type="ig_v8i",
    mask_type="__m256",
    load="_mm256_loadu_ps(&{0})",
    store="_mm256_storeu_ps(&{0}, {1})",
    prelude=_PRELUDE,
    narrow=_NARROW,
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

/* 16 numbers of 32 bits in 16, saturating */
IG_INLINE __m256i ig_narrow(ig_v8i a, ig_v8i b)
{
    return _mm256_permute4x64_epi64(_mm256_packs_epi32((__m256i)a, (__m256i)b), 0xd8);
}

IG_INLINE __m128i ig_bytes_i8(__m256i v)
{
    return _mm_packs_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

IG_INLINE __m128i ig_bytes_u8(__m256i v)
{
    return _mm_packus_epi16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
}

/* of every four bytes: 0 2 1 3 */
IG_INLINE __m256i ig_swap_middle(__m256i v)
{
    return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(_mm_set_epi32(0x0f0d0e0c, 0x0b090a08, 0x07050604, 0x03010200)));
}

/* of every four bytes: 0 3 1 2 */
IG_INLINE __m256i ig_swap_last(__m256i v)
{
    return _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(_mm_set_epi32(0x0e0d0f0c, 0x0a090b08, 0x06050704, 0x02010300)));
}

IG_INLINE void ig_store_bytes(void *p, __m128i v, size_t n)
{
    unsigned char bytes[16];
    _mm_storeu_si128((__m128i *)(void *)bytes, v);
    memcpy(p, bytes, n);
}

/* (a * b + 2^30) >> 31: products of the even and of the odd lanes */
IG_INLINE ig_v8i ig_high(ig_v8i x, ig_v8i y)
{
    const __m256i a = (__m256i)x, b = (__m256i)y, half = _mm256_set1_epi64x(1 << 30);
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(a, b), half);
    const __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(b, 32)), half);
    return (ig_v8i)_mm256_blend_epi32(_mm256_srli_epi64(even, 31), _mm256_slli_epi64(odd, 1), 0xaa);
}

/* x / 2^n, rounded half away from zero, where x + half does not overflow and n is not 0 */
IG_INLINE ig_v8i ig_shift_away_quick(ig_v8i x, ig_v8i n, ig_v8i half)
{
    return (ig_v8i)_mm256_srav_epi32((__m256i)(x + (half + (x >> 31))), (__m256i)n);
}

/* the same for any n */
IG_INLINE ig_v8i ig_shift_away(ig_v8i v, ig_v8i n)
{
    const __m256i x = (__m256i)v, one = _mm256_set1_epi32(1);
    const __m256i mask = _mm256_sub_epi32(_mm256_sllv_epi32(one, (__m256i)n), one);
    const __m256i threshold = _mm256_sub_epi32(_mm256_srli_epi32(mask, 1), _mm256_srai_epi32(x, 31));
    const __m256i up = _mm256_cmpgt_epi32(_mm256_and_si256(x, mask), threshold);
    return (ig_v8i)_mm256_sub_epi32(_mm256_srav_epi32(x, (__m256i)n), up);
}

/* (a * m + 2^(t-1)) >> t: 2^62 keeps the sum positive, so that a logical shift will do */
IG_INLINE ig_v8i ig_scale_once(ig_v8i x, ig_v8i y, ig_v8i total)
{
    const __m256i a = (__m256i)x, m = (__m256i)y, t = (__m256i)total;
    const __m256i base = _mm256_set1_epi64x(INT64_C(1) << 62);
    const __m256i one = _mm256_set1_epi64x(1);
    const __m256i t0 = _mm256_and_si256(t, _mm256_set1_epi64x(0xffff));
    const __m256i t1 = _mm256_srli_epi64(t, 32);
    const __m256i half0 = _mm256_add_epi64(base, _mm256_sllv_epi64(one, _mm256_sub_epi64(t0, one)));
    const __m256i half1 = _mm256_add_epi64(base, _mm256_sllv_epi64(one, _mm256_sub_epi64(t1, one)));
    const __m256i even = _mm256_add_epi64(_mm256_mul_epi32(a, m), half0);
    const __m256i odd = _mm256_add_epi64(_mm256_mul_epi32(_mm256_srli_epi64(a, 32), _mm256_srli_epi64(m, 32)), half1);
    const __m256i low = _mm256_sub_epi64(_mm256_srlv_epi64(even, t0), _mm256_srlv_epi64(base, t0));
    const __m256i high = _mm256_sub_epi64(_mm256_srlv_epi64(odd, t1), _mm256_srlv_epi64(base, t1));
    return (ig_v8i)_mm256_blend_epi32(low, _mm256_slli_epi64(high, 32), 0xaa);
}
"""

_LOAD, _LOAD_HALF = (
    "_mm256_loadu_si256((const __m256i *)(const void *)&{0})",
    "_mm_loadu_si128((const __m128i *)(const void *)&{0})",
)
_STORE, _STORE_HALF = "_mm256_storeu_si256((__m256i *)(void *)&{0}, {1})", "_mm_storeu_si128((__m128i *)(void *)&{0}, {1})"
_WHOLE, _HALF = ("i16x16", "i8x32", "u8x32"), ("i8x16", "u8x16")
_FOUR = ("i16x2", "u8x4", "i8x4")
_DOT2 = Dot("vdot2", 2, DType.I16, DType.I16, narrow_weights=True)

INTEGERS = Integers(
    dots=(Dot("vdot4_pairs", 4, DType.U8, DType.I8, pairs=True), _DOT2),
    taps=2,
    types={
        "i32x8": "ig_v8i",
        **dict.fromkeys(_WHOLE, "__m256i"),
        **dict.fromkeys(_HALF, "__m128i"),
        **dict.fromkeys(_FOUR, "int32_t"),
    },
    loads={
        "i32x8": f"(ig_v8i){_LOAD}",
        **dict.fromkeys(_WHOLE, _LOAD),
        **dict.fromkeys(_HALF, _LOAD_HALF),
        **dict.fromkeys(_FOUR, "ig_four_bytes(&{0})"),
    },
    stores={"i32x8": _STORE.replace("{1}", "(__m256i){1}"), **dict.fromkeys(_WHOLE, _STORE), **dict.fromkeys(_HALF, _STORE_HALF)},
    prelude=_INTEGER_PRELUDE,
    table={
        "vrepeat": "_mm256_set1_epi32({0})",
        "vrepeat_bytes": "_mm256_set1_epi32({0})",
        "vsplat_i16": "_mm256_set1_epi16({0})",
        "vsplat_i8": "_mm_set1_epi8({0})",
        "vsplat_u8": "_mm_set1_epi8((char){0})",
        "vdot2": "(ig_v8i)((ig_v8u){0} + (ig_v8u)_mm256_madd_epi16({1}, {2}))",
        "vdot4_pairs": "(ig_v8i)((ig_v8u){0} + (ig_v8u)_mm256_madd_epi16(_mm256_maddubs_epi16({1}, {2}), _mm256_set1_epi16(1)))",
        "vswap_middle": "ig_swap_middle({0})",
        "vswap_last": "ig_swap_last({0})",
        "vzip_low": "_mm256_unpacklo_epi16({0}, {1})",
        "vzip_high": "_mm256_unpackhi_epi16({0}, {1})",
        "vwiden_i8": "_mm256_cvtepi8_epi16({0})",
        "vwiden_u8": "_mm256_cvtepu8_epi16({0})",
        "vwiden_low": "(ig_v8i)_mm256_cvtepi16_epi32(_mm256_castsi256_si128({0}))",
        "vwiden_high": "(ig_v8i)_mm256_cvtepi16_epi32(_mm256_extracti128_si256({0}, 1))",
        "vflip_i8": "_mm_xor_si128({0}, _mm_set1_epi8(-128))",
        "vflip_u8": "_mm_xor_si128({0}, _mm_set1_epi8(-128))",
        "vnarrow": "ig_narrow({0}, {1})",
        "vnarrow_zipped": "_mm256_packs_epi32((__m256i){0}, (__m256i){1})",
        "vadds_i16": "_mm256_adds_epi16({0}, {1})",
        "vadd_i16": "_mm256_add_epi16({0}, {1})",
        "vsub_i16": "_mm256_sub_epi16({0}, {1})",
        "vmul_i16": "_mm256_mullo_epi16({0}, {1})",
        "vmin_i16": "_mm256_min_epi16({0}, {1})",
        "vmax_i16": "_mm256_max_epi16({0}, {1})",
        "vmax_i8": "_mm_max_epi8({0}, {1})",
        "vmax_u8": "_mm_max_epu8({0}, {1})",
        "vbytes_i8": "ig_bytes_i8({0})",
        "vbytes_u8": "ig_bytes_u8({0})",
        "vimul": "(ig_v8i)((ig_v8u){0} * (ig_v8u){1})",
        "vishift_left": "(ig_v8i)_mm256_sllv_epi32((__m256i){0}, (__m256i){1})",
        "vishift_right": "(ig_v8i)_mm256_srav_epi32((__m256i){0}, (__m256i){1})",
        "vhigh": "ig_high({0}, {1})",
        "vshift_away": "ig_shift_away({0}, {1})",
        "vshift_away_quick": "ig_shift_away_quick({0}, {1}, {2})",
        "vscale_once": "ig_scale_once({0}, {1}, {2})",
        "vtrunc": "(ig_v8i)_mm256_cvttps_epi32({0})",
    },
)

VNNI_INTEGERS = Integers(
    dots=(Dot("vdot4_u8", 4, DType.U8, DType.I8), _DOT2),
    taps=2,
    types=INTEGERS.types,
    loads=INTEGERS.loads,
    stores=INTEGERS.stores,
    prelude=INTEGERS.prelude,
    table={
        **(INTEGERS.table or {}),
        "vdot2": "(ig_v8i)_mm256_dpwssd_avx_epi32((__m256i){0}, {1}, {2})",
        "vdot4_u8": "(ig_v8i)_mm256_dpbusd_avx_epi32((__m256i){0}, {1}, {2})",
    },
)

ISAS = (AVX2.with_integers(INTEGERS), AVX2.with_integers(VNNI_INTEGERS, "avx2_vnni"))
