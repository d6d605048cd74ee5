"""The tiny inline C functions behind scalar operations, written for one element type at a time.

ig_min_f32(a, b)      the second operand when one is NaN
ig_add_i32(a, b)      wraps around (signed overflow is undefined in C)
ig_div_i64(a, b)      truncates; x / 0 is 0
ig_f32_to_i8(x)       saturating, NaN is 0
ig_f16_to_f32(bits)   storage formats
"""

from __future__ import annotations

from intaglio.kernels.fixed_point_functions import FIXED_POINT
from intaglio.kernels.scalar_functions import FUNCTIONS

C_TYPES = {
    "idx": "ptrdiff_t", "f32": "float", "f64": "double", "f16": "uint16_t", "bf16": "uint16_t", "i8": "int8_t", "i16": "int16_t",
    "i32": "int32_t", "i64": "int64_t", "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "bool": "uint8_t",
}  # fmt: skip
UNSIGNED = {"i8": "uint8_t", "i16": "uint16_t", "i32": "uint32_t", "i64": "uint64_t"}
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32, "u64": 64}
ARITHMETIC = {"add": "+", "sub": "-", "mul": "*"}


def is_signed_int(kind: str) -> bool:
    return kind in UNSIGNED


def _limits(kind: str) -> tuple[str, str]:
    bits = BITS[kind]
    if kind.startswith("u"):
        return "0", f"UINT{bits}_MAX"
    return f"INT{bits}_MIN", f"INT{bits}_MAX"


def _function(result: str, name: str, params: str, *body: str) -> str:
    lines = "\n".join(f"    {line}" for line in body)
    return f"IG_INLINE {result} {name}({params})\n{{\n{lines}\n}}"


def function_text(name: str) -> list[str]:
    """The definitions that `name` needs, itself last."""
    if name in _MACROS:
        return [_MACROS[name]]
    parts = name.split("_")
    if "to" in parts:
        return _conversion(name, parts[1], parts[3])
    op, kind = "_".join(parts[1:-1]), parts[-1]
    if op in FIXED_POINT:
        return [FIXED_POINT[needed].c for needed in (*FIXED_POINT[op].needs, op)]
    t = C_TYPES[kind]
    two = f"{t} a, {t} b"
    if op in ("min", "max"):
        return [_function(t, name, two, f"return a {'<' if op == 'min' else '>'} b ? a : b;")]
    if op in ("add", "sub", "mul") and kind in BITS:
        wide = "uint64_t" if BITS[kind] == 64 else "uint32_t"
        return [_function(t, name, two, f"return ({t})(({wide})a {ARITHMETIC[op]} ({wide})b);")]
    if op == "neg":
        wide = "uint64_t" if BITS[kind] == 64 else "uint32_t"
        return [_function(t, name, f"{t} a", f"return ({t})(0u - ({wide})a);")]
    if op == "abs":
        if kind == "f32":
            return [_function(t, name, f"{t} a", "return fabsf(a);")]
        if kind == "f64":
            return [_function(t, name, f"{t} a", "return fabs(a);")]
        if kind.startswith("u"):
            return [_function(t, name, f"{t} a", "return a;")]
        wide = "uint64_t" if BITS[kind] == 64 else "uint32_t"
        return [_function(t, name, f"{t} a", f"return a < 0 ? ({t})(0u - ({wide})a) : a;")]
    if op in ("div", "mod"):
        return [_function(t, name, two, *_division(op, kind, t))]
    if op in ("shift_left", "shift_right"):
        wide = "uint64_t" if BITS[kind] == 64 else "uint32_t"
        inside = f"({wide})b < {BITS[kind]}u"  # a negative distance is a very large one
        if op == "shift_left":
            return [_function(t, name, two, f"return ({t})({inside} ? ({wide})a << b : 0);")]
        rest = "0" if kind.startswith("u") else "(a < 0 ? -1 : 0)"
        return [_function(t, name, two, f"return ({t})({inside} ? a >> b : {rest});")]
    if op == "bit_not":
        return [_function(t, name, f"{t} a", f"return ({t})~a;")]
    if op in FUNCTIONS:
        return [_function(t, name, f"{t} x", f"return {FUNCTIONS[op].c_text(kind)};")]
    if op == "ipow":
        return [_integer_power(name, kind, t)]
    raise AssertionError(f"no C function {name}")


def _division(op: str, kind: str, t: str) -> list[str]:
    sign = "/" if op == "div" else "%"
    if kind.startswith("u"):
        return [f"return ({t})(b == 0 ? 0 : a {sign} b);"]
    lines = ["if (b == 0) {", "    return 0;", "}", "if (b == -1) { /* the lowest value has no positive twin */"]
    wide = "uint64_t" if BITS[kind] == 64 else "uint32_t"
    lines += [f"    return {f'({t})(0u - ({wide})a)' if op == 'div' else '0'};", "}", f"return ({t})(a {sign} b);"]
    return lines


def _integer_power(name: str, kind: str, t: str) -> str:
    wide = "uint64_t" if BITS[kind] == 64 else "uint32_t"
    return _function(
        t, name, f"{t} base, {t} exponent",
        f"{wide} result = 1;",
        f"{wide} square = ({wide})base;",
        *([] if kind.startswith("u") else [
            "if (exponent < 0) {",
            f"    return base == 1 ? 1 : (base == -1 ? ({t})(exponent % 2 == 0 ? 1 : -1) : 0);",
            "}",
        ]),
        f"for ({t} rest = exponent; rest > 0; rest = ({t})(rest / 2)) {{",
        "    if (rest % 2 == 1) {",
        "        result *= square;",
        "    }",
        "    square *= square;",
        "}",
        f"return ({t})result;",
    )  # fmt: skip


def _conversion(name: str, source: str, to: str) -> list[str]:
    if (source, to) == ("f16", "f32"):
        return [_F16_TO_F32]
    if (source, to) == ("f32", "f16"):
        return [_F32_TO_F16]
    if (source, to) == ("bf16", "f32"):
        return [_BF16_TO_F32]
    if (source, to) == ("f32", "bf16"):
        return [_F32_TO_BF16]
    low, high = _limits(to)
    bits = BITS[to] - (0 if to.startswith("u") else 1)
    t, s = C_TYPES[to], C_TYPES[source]
    suffix = "f" if source == "f32" else ""
    limit = f"{float(2**bits)!r}{suffix}"
    below = f"{-float(2**bits)!r}{suffix}" if not to.startswith("u") else f"0.0{suffix}"
    return [
        _function(
            t, name, f"{s} x",
            f"if (!(x > {below})) {{ /* NaN too */",
            f"    return {f'x < 0.0{suffix} ? {low} : 0' if not to.startswith('u') else '0'};",
            "}",
            f"return x >= {limit} ? {high} : ({t})x;",
        )
    ]  # fmt: skip


_F16_TO_F32 = """\
IG_INLINE float ig_f16_to_f32(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    const uint32_t exponent = (h >> 10) & 0x1fu;
    const uint32_t mantissa = h & 0x3ffu;
    uint32_t bits = sign | (exponent + 112u) << 23 | mantissa << 13;
    float value;
    if (exponent == 0u) {
        value = (float)mantissa * 5.9604644775390625e-8f;
        return sign != 0u ? -value : value;
    }
    if (exponent == 31u) {
        bits = sign | 0x7f800000u | mantissa << 13;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}"""

_F32_TO_F16 = """\
IG_INLINE uint16_t ig_f32_to_f16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t rest = bits & 0x7fffffffu;
    if (rest > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (rest >= 0x47800000u) { /* rounds to infinity from 65520 on, which the carry below does for the rest */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (rest < 0x38800000u) { /* subnormal: add a number whose unit of the last place is 2^-24 */
        float size;
        memcpy(&size, &rest, sizeof size);
        size += 0.5f;
        memcpy(&rest, &size, sizeof rest);
        return (uint16_t)(sign | (rest - 0x3f000000u));
    }
    rest += 0xfffu + ((rest >> 13) & 1u);
    return (uint16_t)(sign | ((rest - 0x38000000u) >> 13));
}"""

_BF16_TO_F32 = """\
IG_INLINE float ig_bf16_to_f32(uint16_t h)
{
    const uint32_t bits = (uint32_t)h << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}"""

_F32_TO_BF16 = """\
IG_INLINE uint16_t ig_f32_to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 | 0x40u);
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}"""

_ROLLED = """\
#if defined(__clang__)
#define IG_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define IG_ROLLED _Pragma("GCC unroll 1")
#endif"""

_PREFETCH = """\
/* into the second cache, where a stream of weights does not displace what is in use */
#define IG_PREFETCH(start, bytes) __builtin_prefetch((const void *)((uintptr_t)(start) + (uintptr_t)(bytes)), 0, 2)"""

_RELOAD = """\
/* numbers in memory are read again after it: gcc would hold them in registers during a whole loop, and spill sums */
#define IG_RELOAD() __asm__ volatile("" ::: "memory")"""

_MACROS = {"ig_rolled": _ROLLED, "ig_prefetch": _PREFETCH, "ig_reload": _RELOAD}
