"""NEON of 64-bit Arm; with the dot products of Armv8.2; and with the matrix products of i8mm (Armv8.6)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from intaglio.ir.types import DType
from intaglio.kernels.isa.record import Dot, Integers
from intaglio.kernels.isa.vec4 import VEC4

_NARROW: Mapping[str, str] = {
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

NEON = replace(
    VEC4,
    name="neon",
    prelude="#include <arm_neon.h>\n\n" + VEC4.prelude,
    narrow=_NARROW,
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

_INTEGER_PRELUDE = """\
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

INTEGERS = Integers(
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
    prelude=_INTEGER_PRELUDE,
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

DOT_INTEGERS = Integers(
    dots=(Dot("vdot4_i8", 4, DType.I8, DType.I8), _DOT1),
    taps=1,
    types=INTEGERS.types,
    loads=INTEGERS.loads,
    stores=INTEGERS.stores,
    prelude=INTEGERS.prelude,
    table={
        **(INTEGERS.table or {}),
        "vrepeat_bytes": "vreinterpretq_s8_s32(vdupq_n_s32({0}))",
        "vdot4_i8": "(ig_v4i)vdotq_s32((int32x4_t){0}, {1}, {2})",
    },
)

MATRIX_INTEGERS = replace(
    DOT_INTEGERS,
    dots=(Dot("vmmla_i8", 8, DType.I8, DType.I8, rows=2), *DOT_INTEGERS.dots),
    table={
        **(DOT_INTEGERS.table or {}),
        "vmmla_i8": "(ig_v4i)vmmlaq_s32((int32x4_t){0}, {1}, {2})",
        "vjoin_bytes": "vreinterpretq_s8_u8(vcombine_u8({0}, {1}))",
        "vjoin_low": "(ig_v4i)vzip1q_s64((int64x2_t){0}, (int64x2_t){1})",
        "vjoin_high": "(ig_v4i)vzip2q_s64((int64x2_t){0}, (int64x2_t){1})",
    },
)

ISAS = (
    NEON.with_integers(INTEGERS),
    NEON.with_integers(DOT_INTEGERS, "neon_dot"),
    NEON.with_integers(MATRIX_INTEGERS, "neon_i8mm"),
)
