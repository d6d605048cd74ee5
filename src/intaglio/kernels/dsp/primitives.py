"""Single instructions of the DSP extension as inline C functions, with their meaning in plain C for any other compiler.

Inline assembly rather than intrinsics: gcc and clang spell them differently, and neither has all of these.
"""

from __future__ import annotations

from intaglio.kernels.routines import Routine, family

# name: (instruction with operands, number of parameters, what it gives, the same in C)
_ROWS = {
    "smlad": (
        "smlad %0, %1, %2, %3", 3, "c + low a * low b + high a * high b",
        "(int32_t)((uint32_t)c + (uint32_t)((int16_t)a * (int16_t)b) + (uint32_t)((a >> 16) * (b >> 16)))",
    ),
    "smlabb": ("smlabb %0, %1, %2, %3", 3, "c + low a * low b", "c + (int16_t)a * (int16_t)b"),
    "smlabt": ("smlabt %0, %1, %2, %3", 3, "c + low a * high b", "c + (int16_t)a * (b >> 16)"),
    "sxtb16": (
        "sxtb16 %0, %1", 1, "bytes 0 and 2, as numbers of 16 bits",
        "(int32_t)((uint32_t)(uint16_t)(int8_t)a | (uint32_t)(int8_t)(a >> 16) << 16)",
    ),
    "sxtb16_odd": (
        "sxtb16 %0, %1, ror #8", 1, "bytes 1 and 3, as numbers of 16 bits",
        "(int32_t)((uint32_t)(uint16_t)(int8_t)(a >> 8) | (uint32_t)(int8_t)(a >> 24) << 16)",
    ),
    "uxtb16": ("uxtb16 %0, %1", 1, "bytes 0 and 2, without a sign", "a & 0x00ff00ff"),
    "uxtb16_odd": ("uxtb16 %0, %1, ror #8", 1, "bytes 1 and 3, without a sign", "(a >> 8) & 0x00ff00ff"),
    "sxtab16": (
        "sxtab16 %0, %1, %2", 2, "two sums of 16 bits, plus bytes 0 and 2 of b",
        "(int32_t)((((uint32_t)a + (uint32_t)(int8_t)b) & 0xffffu) | (((uint32_t)a >> 16) + (uint32_t)(int8_t)(b >> 16)) << 16)",
    ),
    "sxtab16_odd": (
        "sxtab16 %0, %1, %2, ror #8", 2, "two sums of 16 bits, plus bytes 1 and 3 of b",
        "(int32_t)((((uint32_t)a + (uint32_t)(int8_t)(b >> 8)) & 0xffffu)"
        " | (((uint32_t)a >> 16) + (uint32_t)(int8_t)(b >> 24)) << 16)",
    ),
    "uxtab16": (
        "uxtab16 %0, %1, %2", 2, "two sums of 16 bits, plus bytes 0 and 2 of b, without a sign",
        "(int32_t)((((uint32_t)a + (uint8_t)b) & 0xffffu) | (((uint32_t)a >> 16) + (uint8_t)(b >> 16)) << 16)",
    ),
    "uxtab16_odd": (
        "uxtab16 %0, %1, %2, ror #8", 2, "two sums of 16 bits, plus bytes 1 and 3 of b, without a sign",
        "(int32_t)((((uint32_t)a + (uint8_t)(b >> 8)) & 0xffffu) | (((uint32_t)a >> 16) + (uint8_t)(b >> 24)) << 16)",
    ),
    "pkhbt": (
        "pkhbt %0, %1, %2, lsl #16", 2, "low a, and low b above it", "(int32_t)((uint32_t)(uint16_t)a | (uint32_t)b << 16)",
    ),
    "smmla": ("smmla %0, %1, %2, %3", 3, "c + (a * b >> 32)", "c + (int32_t)(((int64_t)a * b) >> 32)"),
    "smmlar": (
        "smmlar %0, %1, %2, %3", 3, "c + (a * b >> 32), rounded",
        "c + (int32_t)(((int64_t)a * b + INT64_C(0x80000000)) >> 32)",
    ),
    "sat_i8": ("ssat %0, #8, %1", 1, "within -128 and 127", "a < -128 ? -128 : a > 127 ? 127 : a"),
    "sat_u8": ("usat %0, #8, %1", 1, "within 0 and 255", "a < 0 ? 0 : a > 255 ? 255 : a"),
}  # fmt: skip


def primitive_text(name: str) -> str:
    """One instruction as a function; the C is for reading, for tests on a computer, and for `-O0`."""
    instruction, count, about, plain = _ROWS[name]
    letters = "abc"[:count]
    params = ", ".join(f"int32_t {letter}" for letter in letters)
    operands = ", ".join(f'"r"({letter})' for letter in letters)
    return f"""\
/* {about} */
IG_INLINE int32_t ig_{name}({params})
{{
#ifdef IG_DSP
    int32_t result;
    __asm__("{instruction}" : "=r"(result) : {operands});
    return result;
#else
    return {plain};
#endif
}}"""


BASE = """\
#if defined(__ARM_FEATURE_DSP) && defined(__OPTIMIZE__) && !defined(IG_NO_ASSEMBLY)
#define IG_DSP 1
#endif
#if defined(IG_DSP) && defined(__ARM_FP)
#define IG_FLOATS 1 /* float registers to keep numbers in */
#define IG_PIN(name) __asm__(name) /* this register */
#else
#define IG_PIN(name)
#endif
#define IG_ROUTINE static __attribute__((noinline, unused))
#if defined(__OPTIMIZE_SIZE__)
#define IG_UNROLL
#elif defined(__clang__)
#define IG_UNROLL _Pragma("clang loop unroll_count(4)")
#else
#define IG_UNROLL _Pragma("GCC unroll 4")
#endif

/* Four bytes from anywhere */
IG_INLINE int32_t ig_word(const void *p)
{
    int32_t bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    return bits;
}"""


_AS_FLOAT = """\
IG_INLINE float ig_as_float(int32_t bits)
{
    float value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}"""


def no_meaning(*_: object) -> None:
    raise AssertionError("a part of routines, which have meanings of their own")


@family("base")
def _base(_: str) -> Routine:
    return Routine(BASE, no_meaning)


@family("op")
def _operation(name: str) -> Routine:
    return Routine(primitive_text(name), no_meaning, ("base",))


@family("as")
def _as_float(_: str) -> Routine:
    return Routine(_AS_FLOAT, no_meaning)
