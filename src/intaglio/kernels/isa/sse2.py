"""SSE2, which every 64-bit x86 has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from intaglio.kernels.isa.vec4 import VEC4, VEC4_NARROW

_NARROW: Mapping[str, str] = {
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

SSE2 = replace(
    VEC4,
    name="sse2",
    prelude="#include <emmintrin.h>\n\n" + VEC4.prelude,
    narrow=_NARROW,
    table={
        **VEC4.table,
        "vmin": "(ig_v4f)_mm_min_ps((__m128){0}, (__m128){1})",
        "vmax": "(ig_v4f)_mm_max_ps((__m128){0}, (__m128){1})",
        "vsqrt": "(ig_v4f)_mm_sqrt_ps((__m128){0})",
        "vtoint": "(ig_v4i)_mm_cvtps_epi32((__m128){0})",
    },
)

ISAS = (SSE2,)
