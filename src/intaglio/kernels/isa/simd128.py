"""SIMD128 of WebAssembly: `vec4` with its own instructions, and dot products of 16-bit pairs. Multiply-adds are not fused."""

from __future__ import annotations

from dataclasses import replace

from intaglio.ir.types import DType
from intaglio.kernels.isa.record import Dot, Integers
from intaglio.kernels.isa.vec4 import VEC4

SIMD128 = replace(
    VEC4,
    name="simd128",
    prelude="#include <wasm_simd128.h>\n\n" + VEC4.prelude,
    table={
        **VEC4.table,
        # wasm_f32x4_pmin(a, b) is b < a ? b : a
        "vmin": "(ig_v4f)wasm_f32x4_pmin((v128_t){1}, (v128_t){0})",
        "vmax": "(ig_v4f)wasm_f32x4_pmax((v128_t){1}, (v128_t){0})",
        "vsqrt": "(ig_v4f)wasm_f32x4_sqrt((v128_t){0})",
        "vabs": "(ig_v4f)wasm_f32x4_abs((v128_t){0})",
        "vfloor": "(ig_v4f)wasm_f32x4_floor((v128_t){0})",
        "vceil": "(ig_v4f)wasm_f32x4_ceil((v128_t){0})",
        "vround": "(ig_v4f)wasm_f32x4_nearest((v128_t){0})",
        "vtoint": "(ig_v4i)wasm_i32x4_trunc_sat_f32x4(wasm_f32x4_nearest((v128_t){0}))",
    },
)

_INTEGER_PRELUDE = """\
typedef int64_t ig_v2l __attribute__((vector_size(16)));

IG_INLINE int32_t ig_four_bytes(const void *p)
{
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits;
}

/* the first n of 8 bytes */
IG_INLINE void ig_store_bytes(void *p, v128_t v, size_t n)
{
    unsigned char bytes[16];
    wasm_v128_store(bytes, v);
    memcpy(p, bytes, n);
}

/* (a * b + 2^30) >> 31 */
IG_INLINE ig_v4i ig_high(ig_v4i a, ig_v4i b)
{
    const v128_t half = wasm_i64x2_splat(1 << 30);
    const v128_t low = wasm_i64x2_add(wasm_i64x2_extmul_low_i32x4((v128_t)a, (v128_t)b), half);
    const v128_t high = wasm_i64x2_add(wasm_i64x2_extmul_high_i32x4((v128_t)a, (v128_t)b), half);
    return (ig_v4i)wasm_i32x4_shuffle(wasm_i64x2_shr(low, 31), wasm_i64x2_shr(high, 31), 0, 2, 4, 6);
}

/* x / 2^n, rounded half away from zero, where x + half does not overflow and n is not 0 */
IG_INLINE ig_v4i ig_shift_away_quick(ig_v4i x, ig_v4i n, ig_v4i half)
{
    return (x + (half + (x >> 31))) >> n;
}

/* the same for any n */
IG_INLINE ig_v4i ig_shift_away(ig_v4i x, ig_v4i n)
{
    const ig_v4u one = {1, 1, 1, 1};
    const ig_v4i mask = (ig_v4i)((one << (ig_v4u)n) - one);
    const ig_v4i threshold = (ig_v4i)((ig_v4u)mask >> 1) - (x >> 31);
    const ig_v4i up = (ig_v4i)((x & mask) > threshold);
    return (x >> n) - up;
}

/* (a * m + 2^(t-1)) >> t */
IG_INLINE ig_v4i ig_scale_once(ig_v4i a, ig_v4i m, ig_v4i t)
{
    const ig_v2l one = {1, 1};
    const ig_v2l t0 = (ig_v2l)wasm_i64x2_extend_low_i32x4((v128_t)t), t1 = (ig_v2l)wasm_i64x2_extend_high_i32x4((v128_t)t);
    const ig_v2l low = (ig_v2l)wasm_i64x2_extmul_low_i32x4((v128_t)a, (v128_t)m);
    const ig_v2l high = (ig_v2l)wasm_i64x2_extmul_high_i32x4((v128_t)a, (v128_t)m);
    const ig_v2l first = (low + (one << (t0 - one))) >> t0, second = (high + (one << (t1 - one))) >> t1;
    return (ig_v4i)wasm_i32x4_shuffle((v128_t)first, (v128_t)second, 0, 2, 4, 6);
}
"""

_HALF = ("i8x8", "u8x8")

INTEGERS = Integers(
    dots=(Dot("vdot2", 2, DType.I16, DType.I16, narrow_weights=True),),
    taps=2,
    types={"i16x8": "v128_t", **dict.fromkeys(_HALF, "v128_t"), "i16x2": "int32_t"},
    loads={
        "i32x4": "(ig_v4i)wasm_v128_load(&{0})",
        "i16x8": "wasm_v128_load(&{0})",
        **dict.fromkeys(_HALF, "wasm_v128_load64_zero(&{0})"),
        "i16x2": "ig_four_bytes(&{0})",
    },
    stores={
        "i32x4": "wasm_v128_store(&{0}, (v128_t){1})",
        "i16x8": "wasm_v128_store(&{0}, {1})",
        **dict.fromkeys(_HALF, "wasm_v128_store64_lane(&{0}, {1}, 0)"),
    },
    prelude=_INTEGER_PRELUDE,
    table={
        "vrepeat": "wasm_i32x4_splat({0})",
        "vsplat_i16": "wasm_i16x8_splat({0})",
        "vdot2": "(ig_v4i)wasm_i32x4_add((v128_t){0}, wasm_i32x4_dot_i16x8({1}, {2}))",
        "vzip_low": "wasm_i16x8_shuffle({0}, {1}, 0, 8, 1, 9, 2, 10, 3, 11)",
        "vzip_high": "wasm_i16x8_shuffle({0}, {1}, 4, 12, 5, 13, 6, 14, 7, 15)",
        "vwiden_i8": "wasm_i16x8_extend_low_i8x16({0})",
        "vwiden_u8": "wasm_u16x8_extend_low_u8x16({0})",
        "vwiden_low": "(ig_v4i)wasm_i32x4_extend_low_i16x8({0})",
        "vwiden_high": "(ig_v4i)wasm_i32x4_extend_high_i16x8({0})",
        "vflip_i8": "wasm_v128_xor({0}, wasm_i8x16_splat(-128))",
        "vflip_u8": "wasm_v128_xor({0}, wasm_i8x16_splat(-128))",
        "vnarrow": "wasm_i16x8_narrow_i32x4((v128_t){0}, (v128_t){1})",
        "vnarrow_zipped": "wasm_i16x8_narrow_i32x4((v128_t){0}, (v128_t){1})",
        "vadds_i16": "wasm_i16x8_add_sat({0}, {1})",
        "vadd_i16": "wasm_i16x8_add({0}, {1})",
        "vsub_i16": "wasm_i16x8_sub({0}, {1})",
        "vmin_i16": "wasm_i16x8_min({0}, {1})",
        "vmax_i16": "wasm_i16x8_max({0}, {1})",
        "vmax_i8": "wasm_i8x16_max({0}, {1})",
        "vmax_u8": "wasm_u8x16_max({0}, {1})",
        "vbytes_i8": "wasm_i8x16_narrow_i16x8({0}, {0})",
        "vbytes_u8": "wasm_u8x16_narrow_i16x8({0}, {0})",
        "vimul": "(ig_v4i)((ig_v4u){0} * (ig_v4u){1})",
        "vishift_left": "(ig_v4i)((ig_v4u){0} << (ig_v4u){1})",
        "vishift_right": "({0} >> {1})",
        "vhigh": "ig_high({0}, {1})",
        "vshift_away": "ig_shift_away({0}, {1})",
        "vshift_away_quick": "ig_shift_away_quick({0}, {1}, {2})",
        "vscale_once": "ig_scale_once({0}, {1}, {2})",
        "vtrunc": "(ig_v4i)wasm_i32x4_trunc_sat_f32x4((v128_t){0})",
    },
)

ISAS = (SIMD128.with_integers(INTEGERS),)
