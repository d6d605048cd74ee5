"""Instructions on integer vectors: the C text per instruction set, and what each means in numpy.

With L lanes of 32 bits (8 with AVX2, 4 with NEON), sums are `i32xL`; activations and taps wait as vectors of 2L numbers of 16 bits;
results leave as 2L bytes. A `Dot` multiplies groups of neighbouring numbers and adds each group into one sum:

    vdot2(acc, a, w)    acc[i] + a[2i] * w[2i] + a[2i+1] * w[2i+1]                         16 bits, exact
    vdot4_pairs         the same of four, u8 times i8, where a pair must fit 16 bits       a check of the weights at compile time
    vdot4_u8, vdot4_i8  four, exact: VNNI, NEON's dot product
    vdot1               one, 16 bits: NEON without

Scaling follows `ops/fixed_point.py` bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.fixed_point import rounding_shift, scale_once


@dataclass(frozen=True, slots=True)
class Dot:
    """A dot product: `group` numbers of type `x` (plus those of `w`) end in one sum. `pairs`: two products must fit 16 bits."""

    name: str
    group: int
    x: DType
    w: DType
    pairs: bool = False
    narrow_weights: bool = False  # 16-bit weights that fit 8 bits are stored in 8 and widened when loaded

    def takes(self, weights: Array) -> bool:
        """Are the products of these weights, laid out [..., groups, group], exact?"""
        info = np.iinfo(self.w.numpy)
        if weights.size == 0 or int(weights.min()) < info.min or int(weights.max()) > info.max:
            return False
        if not self.pairs:
            return True
        pairs = weights.reshape(-1, 2).astype(np.int64)
        high = np.maximum(pairs, 0).sum(axis=1).max() * 255
        low = np.minimum(pairs, 0).sum(axis=1).min() * 255
        return bool(high <= 32767 and low >= -32768)


@dataclass(frozen=True, slots=True)
class Integers:
    """What an instruction set has for integers. `taps` is how many taps a depthwise step takes: 2 zipped, or 1."""

    dots: tuple[Dot, ...] = ()
    taps: int = 0
    types: Mapping[str, str] | None = None
    loads: Mapping[str, str] | None = None
    stores: Mapping[str, str] | None = None
    table: Mapping[str, str] | None = None
    prelude: str = ""


NO_INTEGERS = Integers()

# Meaning ----------------------------------------------------------------------------------------------------------------


def _wrap(x: Array) -> Array:
    return np.asarray(x, np.int64).astype(np.int32)


def _clip(x: Array, dtype: type) -> Array:
    info = np.iinfo(dtype)
    return np.asarray(np.clip(x, info.min, info.max)).astype(dtype)


def _dot(acc: Array, a: Array, w: Array) -> Array:
    products = a.astype(np.int64) * w.astype(np.int64)
    return _wrap(acc.astype(np.int64) + products.reshape(acc.size, -1).sum(axis=1))


def _dot_pairs(acc: Array, a: Array, w: Array) -> Array:
    pairs = _clip((a.astype(np.int64) * w.astype(np.int64)).reshape(-1, 2).sum(axis=1), np.int16)
    return _wrap(acc.astype(np.int64) + pairs.astype(np.int64).reshape(acc.size, -1).sum(axis=1))


def _zip(a: Array, b: Array, part: int) -> Array:
    """As AVX2 does it: inside of each half of the vector, the lower or the upper quarter of both, interleaved."""
    quarter = a.size // 4
    parts = [np.stack([v[h * 2 * quarter + part * quarter :][:quarter] for v in (a, b)], axis=1).reshape(-1) for h in (0, 1)]
    return np.concatenate(parts)


def _pack_halves(a: Array, b: Array) -> Array:
    half = a.size // 2
    return np.concatenate([_clip(part, np.int16) for part in (a[:half], b[:half], a[half:], b[half:])])


def _half(x: Array, upper: bool) -> Array:
    return x[x.size // 2 :] if upper else x[: x.size // 2]


def _wide(x: Array) -> Array:
    return x.astype(np.int64)


INTEGER_MEANING: Mapping[str, Callable[..., Array]] = {
    "vdot1": _dot,
    "vdot2": _dot,
    "vdot4_pairs": _dot_pairs,
    "vdot4_u8": _dot,
    "vdot4_i8": _dot,
    "vzip_low": lambda a, b: _zip(a, b, 0),
    "vzip_high": lambda a, b: _zip(a, b, 1),
    "vtap_low": lambda acc, a, w: _dot(acc, _half(a, False), _half(w, False)),
    "vtap_high": lambda acc, a, w: _dot(acc, _half(a, True), _half(w, True)),
    "vwiden_i8": lambda a: a.astype(np.int16),
    "vwiden_u8": lambda a: a.astype(np.int16),
    "vwiden_low": lambda a: _half(a, False).astype(np.int32),
    "vwiden_high": lambda a: _half(a, True).astype(np.int32),
    "vflip_i8": lambda a: a.view(np.uint8) ^ np.uint8(0x80),
    "vflip_u8": lambda a: (a ^ np.uint8(0x80)).view(np.int8),
    "vnarrow": lambda a, b: _clip(np.concatenate([a, b]), np.int16),
    "vnarrow_zipped": _pack_halves,
    "vadds_i16": lambda a, b: _clip(a.astype(np.int32) + b, np.int16),
    "vadd_i16": lambda a, b: (a.astype(np.int32) + b).astype(np.int16),
    "vsub_i16": lambda a, b: (a.astype(np.int32) - b).astype(np.int16),
    "vmin_i16": np.minimum,
    "vmax_i16": np.maximum,
    "vmax_i8": np.maximum,
    "vmax_u8": np.maximum,
    "vbytes_i8": lambda a: _clip(a, np.int8),
    "vbytes_u8": lambda a: _clip(a, np.uint8),
    "vimul": lambda a, b: _wrap(_wide(a) * b),
    "vishift_left": lambda a, n: _wrap(_wide(a) << n),
    "vishift_right": lambda a, n: a >> n,
    "vhigh": lambda a, b: _wrap((_wide(a) * b + (1 << 30)) >> 31),
    "vshift_away": lambda a, n: _wrap(rounding_shift(_wide(a), _wide(n))),
    "vshift_away_quick": lambda a, n, half: (_wrap(_wide(a) + half + (a >> 31)) >> n).astype(np.int32),
    "vscale_once": lambda a, m, t: _wrap(scale_once(_wide(a), m, 31 - _wide(t))),
    "vtrunc": lambda a: np.trunc(a).astype(np.int32),
}
REPEATS = ("vrepeat", "vrepeat_bytes", "vsplat_i16")  # a short vector (or one number) over and over

# AVX2 -------------------------------------------------------------------------------------------------------------------

_AVX2_PRELUDE = """\
IG_INLINE int32_t ig_four_bytes(const void *p)
{
    int32_t bits;
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

AVX2_INTEGERS = Integers(
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
    prelude=_AVX2_PRELUDE,
    table={
        "vrepeat": "_mm256_set1_epi32({0})",
        "vrepeat_bytes": "_mm256_set1_epi32({0})",
        "vsplat_i16": "_mm256_set1_epi16({0})",
        "vdot2": "(ig_v8i)((ig_v8u){0} + (ig_v8u)_mm256_madd_epi16({1}, {2}))",
        "vdot4_pairs": "(ig_v8i)((ig_v8u){0} + (ig_v8u)_mm256_madd_epi16(_mm256_maddubs_epi16({1}, {2}), _mm256_set1_epi16(1)))",
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

AVX2_VNNI_INTEGERS = Integers(
    dots=(Dot("vdot4_u8", 4, DType.U8, DType.I8), _DOT2),
    taps=2,
    types=AVX2_INTEGERS.types,
    loads=AVX2_INTEGERS.loads,
    stores=AVX2_INTEGERS.stores,
    prelude=AVX2_INTEGERS.prelude,
    table={
        **(AVX2_INTEGERS.table or {}),
        "vdot2": "(ig_v8i)_mm256_dpwssd_avx_epi32((__m256i){0}, {1}, {2})",
        "vdot4_u8": "(ig_v8i)_mm256_dpbusd_avx_epi32((__m256i){0}, {1}, {2})",
    },
)

# NEON -------------------------------------------------------------------------------------------------------------------

_NEON_PRELUDE = """\
IG_INLINE int32_t ig_four_bytes(const void *p)
{
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits;
}

IG_INLINE void ig_store_bytes(void *p, uint8x8_t v, size_t n)
{
    uint8_t bytes[8];
    vst1_u8(bytes, v);
    memcpy(p, bytes, n);
}

IG_INLINE int16x8_t ig_narrow(ig_v4i a, ig_v4i b)
{
    return vcombine_s16(vqmovn_s32((int32x4_t)a), vqmovn_s32((int32x4_t)b));
}

/* x / 2^n, rounded half away from zero: NEON rounds half up, so negative numbers go down by one first */
IG_INLINE ig_v4i ig_shift_away(ig_v4i x, ig_v4i n)
{
    const int32x4_t right = vnegq_s32((int32x4_t)n);
    const int32x4_t fix = vshrq_n_s32(vandq_s32((int32x4_t)x, right), 31);
    return (ig_v4i)vrshlq_s32(vqaddq_s32((int32x4_t)x, fix), right);
}

IG_INLINE ig_v4i ig_scale_once(ig_v4i a, ig_v4i m, ig_v4i t)
{
    const int32x4_t x = (int32x4_t)a, y = (int32x4_t)m, right = vnegq_s32((int32x4_t)t);
    const int64x2_t low = vrshlq_s64(vmull_s32(vget_low_s32(x), vget_low_s32(y)), vmovl_s32(vget_low_s32(right)));
    const int64x2_t high = vrshlq_s64(vmull_s32(vget_high_s32(x), vget_high_s32(y)), vmovl_s32(vget_high_s32(right)));
    return (ig_v4i)vcombine_s32(vmovn_s64(low), vmovn_s64(high));
}
"""
_DOT1 = Dot("vdot1", 1, DType.I16, DType.I16)

NEON_INTEGERS = Integers(
    dots=(_DOT1,),
    taps=1,
    types={
        "i16x8": "int16x8_t",
        "i16x4": "int16x4_t",
        "i8x8": "uint8x8_t",
        "u8x8": "uint8x8_t",
        "i8x16": "int8x16_t",
        "i8x4": "int32_t",
    },
    loads={
        "i32x4": "(ig_v4i)vld1q_s32(&{0})",
        "i16x8": "vld1q_s16(&{0})",
        "i16x4": "vld1_s16(&{0})",
        "i8x8": "vreinterpret_u8_s8(vld1_s8(&{0}))",
        "u8x8": "vld1_u8(&{0})",
        "i8x16": "vld1q_s8(&{0})",
        "i8x4": "ig_four_bytes(&{0})",
    },
    stores={"i16x8": "vst1q_s16(&{0}, {1})", "i8x8": "vst1_s8(&{0}, vreinterpret_s8_u8({1}))", "u8x8": "vst1_u8(&{0}, {1})"},
    prelude=_NEON_PRELUDE,
    table={
        "vrepeat": "vdup_n_s16({0})",
        "vsplat_i16": "vdupq_n_s16({0})",
        "vdot1": "(ig_v4i)vmlal_s16((int32x4_t){0}, {1}, {2})",
        "vtap_low": "(ig_v4i)vmlal_s16((int32x4_t){0}, vget_low_s16({1}), vget_low_s16({2}))",
        "vtap_high": "(ig_v4i)vmlal_s16((int32x4_t){0}, vget_high_s16({1}), vget_high_s16({2}))",
        "vwiden_i8": "vmovl_s8(vreinterpret_s8_u8({0}))",
        "vwiden_u8": "vreinterpretq_s16_u16(vmovl_u8({0}))",
        "vwiden_low": "(ig_v4i)vmovl_s16(vget_low_s16({0}))",
        "vwiden_high": "(ig_v4i)vmovl_s16(vget_high_s16({0}))",
        "vflip_i8": "veor_u8({0}, vdup_n_u8(0x80))",
        "vflip_u8": "veor_u8({0}, vdup_n_u8(0x80))",
        "vnarrow": "ig_narrow({0}, {1})",
        "vadds_i16": "vqaddq_s16({0}, {1})",
        "vadd_i16": "vaddq_s16({0}, {1})",
        "vsub_i16": "vsubq_s16({0}, {1})",
        "vmin_i16": "vminq_s16({0}, {1})",
        "vmax_i16": "vmaxq_s16({0}, {1})",
        "vmax_i8": "vreinterpret_u8_s8(vmax_s8(vreinterpret_s8_u8({0}), vreinterpret_s8_u8({1})))",
        "vmax_u8": "vmax_u8({0}, {1})",
        "vbytes_i8": "vreinterpret_u8_s8(vqmovn_s16({0}))",
        "vbytes_u8": "vqmovun_s16({0})",
        "vimul": "({0} * {1})",
        "vishift_left": "(ig_v4i)vshlq_s32((int32x4_t){0}, (int32x4_t){1})",
        "vishift_right": "(ig_v4i)vshlq_s32((int32x4_t){0}, vnegq_s32((int32x4_t){1}))",
        "vhigh": "(ig_v4i)vqrdmulhq_s32((int32x4_t){0}, (int32x4_t){1})",
        "vshift_away": "ig_shift_away({0}, {1})",
        "vscale_once": "ig_scale_once({0}, {1}, {2})",
        "vtrunc": "(ig_v4i)vcvtq_s32_f32((float32x4_t){0})",
    },
)

NEON_DOT_INTEGERS = Integers(
    dots=(Dot("vdot4_i8", 4, DType.I8, DType.I8), _DOT1),
    taps=1,
    types=NEON_INTEGERS.types,
    loads=NEON_INTEGERS.loads,
    stores=NEON_INTEGERS.stores,
    prelude=NEON_INTEGERS.prelude,
    table={
        **(NEON_INTEGERS.table or {}),
        "vrepeat_bytes": "vreinterpretq_s8_s32(vdupq_n_s32({0}))",
        "vdot4_i8": "(ig_v4i)vdotq_s32((int32x4_t){0}, {1}, {2})",
    },
)
