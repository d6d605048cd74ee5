"""Weights that are stored small: a vector of i8 or f16 loaded as f32, per instruction set.

The interpreter needs no row for them: a cast of a load means what numpy's `astype` means. All of them are exact."""

from __future__ import annotations

from collections.abc import Mapping

AVX2_NARROW: Mapping[str, str] = {
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

NEON_NARROW: Mapping[str, str] = {
    "i8": """\
IG_INLINE ig_v4f ig_load_i8(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return (ig_v4f)vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
}
""",
    "f16": """\
IG_INLINE ig_v4f ig_load_f16(const uint16_t *p)
{
    return (ig_v4f)vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
""",
}

SSE2_NARROW: Mapping[str, str] = {
    "i8": """\
IG_INLINE ig_v4f ig_load_i8(const int8_t *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    const __m128i bytes = _mm_cvtsi32_si128(four);
    const __m128i pairs = _mm_unpacklo_epi8(bytes, bytes);
    return (ig_v4f)_mm_cvtepi32_ps(_mm_srai_epi32(_mm_unpacklo_epi16(pairs, pairs), 24));
}
""",
    "f16": VEC4_NARROW["f16"],
}
