"""The product itself: two channels at a time against four, two or one columns of numbers of 16 bits.

    cols   [pair][column][2]     neighbours in a pair are multiplied and added by one SMLAD
    w      [channels / 2][pair]  four bytes each: a half word holds first + 256 * second channel

A word of weights is used as it is, which sums first + 256 * second, and once more with only the first channel's bytes taken out
(SXTB16): the difference, shifted, is the sum of the second. So a pair of products costs half an instruction less than with both
taken out. It needs the sum of the second channel to fit 24 bits, and weights that fit a half word together: `joined`. Where that
does not hold, both channels are taken out: `apart`. With twice the flash, weights are pairs of 16 bits already: `wide`.

With four columns all registers are sums, weights, columns and pointers: r7 is borrowed (it may be a frame pointer, so compilers do
not give it away) and waits in a float register meanwhile, and so does the end of the loop. The sum in r7 comes and goes in x.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.dsp.scaling import C_TYPES, DOUBLED, WORDS, finished, is_real, real_results
from intaglio.kernels.dsp.sums import summed
from intaglio.kernels.routines import Routine, family

UNROLL = 4  # pairs are a multiple of this


def pack_weights(channels: Array, layout: str) -> Array:
    """[outs, pairs, 2] as [outs / 2][pairs] words (two words each if `wide`), in bytes; an odd last channel has zeros beside it."""
    outs, pairs, _ = channels.shape
    even = np.zeros((-(-outs // 2) * 2, pairs, 2), np.int64)
    even[:outs] = channels
    first, second = even[0::2], even[1::2]
    if layout == "wide":
        return np.stack([first, second], axis=2).astype("<i2").view(np.int8).reshape(-1)
    half = first + 256 * second if layout == "joined" else (first & 0xFF) + 256 * second
    assert half.min() >= -(2**15) and half.max() < 2**15
    return half.astype("<i2").view(np.int8).reshape(-1)


def can_join(channels: Array, reach: Array) -> bool:
    """Do the sums of second channels fit 24 bits, and all pairs of weights 16?"""
    first, second = channels[0::2], channels[1::2]
    half = first[: len(second)] + 256 * second
    inside = half.size == 0 or (half.min() >= -(2**15) and half.max() < 2**15)
    lonely = channels[-1:] if len(channels) % 2 else channels[:0]
    return bool(inside and (lonely.size == 0 or lonely.min() >= -128) and (reach[1::2] < 2**23).all())


def joined_starts(starts: Array, joined: bool) -> Array:
    """Where the sums of a pair of channels begin."""
    out = starts.astype(np.int64).copy()
    if joined:
        out[1::2] = starts[0::2][: len(starts[1::2])] + 256 * starts[1::2]
    return out.astype(np.int32)  # wraps as the sums do


def unpack(w: Array, outs: int, pairs: int, layout: str) -> tuple[Array, Array]:
    if layout == "wide":
        both = w[: -(-outs // 2) * pairs * 8].view("<i2").reshape(-1, pairs, 2, 2).astype(np.int64)
        return both[:, :, 0].reshape(-1, pairs * 2), both[:, :, 1].reshape(-1, pairs * 2)
    half = w[: -(-outs // 2) * pairs * 4].view("<i2").reshape(-1, pairs * 2).astype(np.int64)
    first = ((half + 128) & 0xFF) - 128
    second = (half - first) >> 8 if layout == "joined" else half >> 8
    return first, second


# C ----------------------------------------------------------------------------------------------------------------------

_STEP4 = (
    "{weights}",
    "ldrd {x}, {z}, [{a}], #8",
    "smlad {r0}, {w0}, {x}, {r0}",
    "smlad {s0}, {e}, {x}, {s0}",
    "smlad {r1}, {w0}, {z}, {r1}",
    "smlad {s1}, {e}, {z}, {s1}",
    "ldrd {x}, {z}, [{a}], #8",
    "smlad {r2}, {w0}, {x}, {r2}",
    "smlad {s2}, {e}, {x}, {s2}",
    "smlad {r3}, {w0}, {z}, {r3}",
    "smlad {s3}, {e}, {z}, {s3}",
)
_STEP2 = (
    "{weights}",
    "ldrd {x}, {z}, [{a}], #8",
    "smlad {r0}, {w0}, {x}, {r0}",
    "smlad {s0}, {e}, {x}, {s0}",
    "smlad {r1}, {w0}, {z}, {r1}",
    "smlad {s1}, {e}, {z}, {s1}",
    "ldrd {x}, {z}, [{a}], #8",
    "{weights1}",
    "smlad {r0}, {w1}, {x}, {r0}",
    "smlad {s0}, {e}, {x}, {s0}",
    "smlad {r1}, {w1}, {z}, {r1}",
    "smlad {s1}, {e}, {z}, {s1}",
)
_STEP1 = (
    "{weights}",
    "ldrd {x}, {z}, [{a}], #8",
    "smlad {r0}, {w0}, {x}, {r0}",
    "smlad {s0}, {e}, {x}, {s0}",
    "{weights1}",
    "smlad {r0}, {w1}, {z}, {r0}",
    "smlad {s0}, {e}, {z}, {s0}",
)
# How a pair's weights come into {e} (the first channel) and {w0} or {w1} (the second, or both): one pair, then two at once.
_ODD = "sxtb16 {w0}, {w0}, ror #8"
_LOADS = {
    "joined": ("ldr {w0}, [{w}], #4", "sxtb16 {e}, {w0}"),
    "apart": ("ldr {w0}, [{w}], #4", "sxtb16 {e}, {w0}", _ODD),
    "wide": ("ldrd {e}, {w0}, [{w}], #8",),
}
_LOADS_OF_TWO = {
    "joined": (("ldrd {w0}, {w1}, [{w}], #8", "sxtb16 {e}, {w0}"), ("sxtb16 {e}, {w1}",)),
    "apart": (("ldrd {w0}, {w1}, [{w}], #8", "sxtb16 {e}, {w0}", _ODD), ("sxtb16 {e}, {w1}", _ODD.replace("w0", "w1"))),
    "wide": (("ldrd {e}, {w0}, [{w}], #8",), ("ldrd {e}, {w1}, [{w}], #8",)),
}
_STEPS = {4: (_STEP4, 1), 2: (_STEP2, 2), 1: (_STEP1, 2)}
_REGISTERS = ("r4", "r5", "r6", "r12"), ("r8", "r9", "r10", "r11")


def _assembly(columns: int, layout: str) -> list[str]:
    steps, taken = _STEPS[columns]
    names = ["w0", "w1", "w", "a", "x", "z", "e", *(f"{s}{c}" for s in "sr" for c in range(columns))]
    words = {name: f"%[{name}]" for name in names}
    before, after = [], []
    if columns == 4:
        words["s3"] = "r7"
        before, after = ["vmov %[keep], r7", "mov r7, %[x]"], ["mov %[x], r7", "vmov r7, %[keep]"]
    first, second = (_LOADS[layout], ()) if taken == 1 else _LOADS_OF_TWO[layout]
    loads = {"{weights}": first, "{weights1}": second}
    lines = [line for step in steps for line in loads.get(step, (step,))]
    end = ["vmov %[x], %[end]", "cmp %[a], %[x]"] if columns == 4 else ["cmp %[a], %[end]"]
    whole = [*before, "1:", *[line.format(**words) for line in lines] * (UNROLL // taken), *end, "bne 1b", *after]
    return [*(f'            "{line}\\n\\t"' for line in whole[:-1]), f'            "{whole[-1]}"']


def _sums(columns: int, layout: str) -> str:
    """The inner loop: sums s0.. of the first channel, r0.. of both (or of the second)."""
    outputs = [f'[{"x" if (s, c) == ("s", 3) else f"{s}{c}"}] "+r"({s}{c})' for s in "sr" for c in range(columns)]
    temporaries = ["w0", "e", "z"] + (["x", "w1"] if columns < 4 else [])
    pinned = {"w0": "r2", "e": "r3", "z": "lr"}

    def declare(name: str) -> str:
        return f'        register uint32_t {name} IG_PIN("{pinned[name]}");' if columns == 4 else f"        uint32_t {name};"

    keep = ', [keep] "=&t"(keep)' if columns == 4 else ""
    pointer = 'register const int16_t *a IG_PIN("r1") = cols;' if columns == 4 else "const int16_t *a = cols;"
    end = '"t"(ig_as_float((int32_t)(intptr_t)end))' if columns == 4 else '"r"(end)'
    lines = [
        "#ifdef IG_FLOATS" if columns == 4 else "#ifdef IG_DSP",
        f"        {pointer}",
        *map(declare, temporaries),
        *(["        float keep;"] if columns == 4 else []),
        "        __asm__ volatile(",
        *_assembly(columns, layout),
        f"            : {', '.join(outputs)},",
        f"""              [w] "+r"(w), [a] "+r"(a), {", ".join(f'[{t}] "=&r"({t})' for t in temporaries)}{keep}""",
        f'            : [end] {end} : "cc", "memory");',
        "#else",
        f"        for (const int16_t *a = cols; a != end; a += {2 * columns}, w += {8 if layout == 'wide' else 4}) {{",
        *{
            "joined": ["            const int32_t o = ig_word(w), e = ig_sxtb16(o);"],
            "apart": ["            const int32_t e = ig_sxtb16(ig_word(w)), o = ig_sxtb16_odd(ig_word(w));"],
            "wide": ["            const int32_t e = ig_word(w), o = ig_word(w + 4);"],
        }[layout],
    ]
    for c in range(columns):
        lines.append(f"            s{c} = ig_smlad(e, ig_word(a + {2 * c}), s{c});")
        lines.append(f"            r{c} = ig_smlad(o, ig_word(a + {2 * c}), r{c});")
    return "\n".join([*lines, "        }", "#endif"])


def _results(columns: int, joined: bool, variant: str, more: str) -> str:
    doubled = variant.split("_")[0] in DOUBLED
    c_type = C_TYPES[variant.split("_")[1]]
    last = "" if is_real(variant) else ", right = scale[{}]"
    lines = ["        {", f"            const int32_t m = scale[1], add = scale[2]{last.format(3)};"]
    places = ["y[0]", "y[step]", "y[2 * step]", "y[3 * step]"]

    def finish(total: str, place: str) -> str:
        value = f"ig_finish_{variant}({total}, m, add, {'x_step' if is_real(variant) else 'right'})"
        return f"ig_sum_{more}({value}, {place.replace('y[', 'other[')}, record)" if more else value

    for c in range(columns):
        first = f"s{c} * 2" if doubled else f"s{c}"
        lines.append(f"            {places[c]} = ({c_type}){finish(first, places[c])};")
    lines += ["        }", "        if (o + 1 < outs) {"]
    lines += [f"            const int32_t m = scale[5], add = scale[6]{last.format(7)};"]
    for c in range(columns):
        if joined:
            second = f"(int32_t)((uint32_t)r{c} - (uint32_t)s{c}) >> {7 if doubled else 8}"
        else:
            second = f"r{c} * 2" if doubled else f"r{c}"
        place = places[c].replace("[", "[1 + ").replace("1 + 0", "1")
        lines.append(f"            {place} = ({c_type}){finish(second, place)};")
    return "\n".join([*lines, "        }"])


def _declare(columns: int, real: bool) -> str:
    lines = []
    starts = [f"(int32_t)(0u - (uint32_t)zero * (uint32_t)scale[{n}])" if real else f"scale[{n}]" for n in (0, WORDS)]
    for s, start, registers in zip("sr", starts, _REGISTERS, strict=True):
        for c in range(columns):
            value = start if c == 0 else f"{s}0"
            if columns == 4:
                lines.append(f'        register int32_t {s}{c} IG_PIN("{registers[c]}") = {value};')
            else:
                lines.append(f"        int32_t {s}{c} = {value};")
    return "\n".join(lines)


def _tile(columns: int, name: str) -> Routine:
    """`joined_twice_i8`; with `_sum_left_i8` behind it, another tensor is added to the results."""
    layout, _, rest = name.partition("_")
    variant, _, more = rest.partition("_sum_")
    joined = layout == "joined"
    kind, real = C_TYPES[variant.split("_")[1]], is_real(variant)
    own = f",\n    const {kind} *other, const int32_t *record" if more else ", int32_t zero, float x_step" if real else ""
    text = f"""\
/* Channels two by two, times {columns} column(s) of `pairs` pairs; results `step` apart{", and a sum" if more else ""}. */
IG_ROUTINE void ig_tile{columns}_{name}(const int8_t *weights, const int32_t *scale, const int16_t *cols, ptrdiff_t pairs,
    ptrdiff_t outs, {kind} *y, ptrdiff_t step{own})
{{
    const int16_t *const end = cols + {2 * columns} * pairs;
{_pointer(columns)}
    for (ptrdiff_t o = 0; o < outs; o += 2, scale += {2 * WORDS}, y += 2{", other += 2" if more else ""}) {{
{_declare(columns, real)}
{_sums(columns, layout)}
{_results(columns, joined, variant, more)}
    }}
{"" if columns > 1 else "    (void)step;" + chr(10)}}}"""

    def meaning(w: Array, scale: Array, cols: Array, pairs: int, outs: int, y: Array, step: int, *extra: Any) -> None:
        first, second = unpack(w, outs, pairs, layout)
        x = cols[: 2 * columns * pairs].reshape(pairs, columns, 2).transpose(0, 2, 1).reshape(pairs * 2, columns).astype(np.int64)
        records = scale[: -(-outs // 2) * 2 * WORDS].reshape(-1, WORDS)
        starts = records[:, 0].astype(np.int64) * (-int(extra[0]) if real else 1)
        s = first @ x + starts[0::2, None]
        other = (first + 256 * second if joined else second) @ x + starts[1::2, None]
        r = wrapped(other - s) >> 8 if joined else other
        for channel in range(outs):
            sums = (s if channel % 2 == 0 else r)[channel // 2]
            for c in range(columns):
                at = channel + c * step
                record = records[channel : channel + 1]
                if real:
                    y[at] = real_results(sums[c : c + 1], record, variant, extra[1])[0]
                    continue
                value = finished(sums[c : c + 1], record, variant)
                y[at] = (summed(more, value, extra[0][at : at + 1], extra[1]) if more else value)[0]

    operations = ("op_smlad", *{"joined": ("op_sxtb16",), "apart": ("op_sxtb16", "op_sxtb16_odd"), "wide": ()}[layout])
    operations += ("as_float",) if columns == 4 else ()
    return Routine(text, meaning, ("base", *operations, f"finish_{variant}", *((f"sum_{more}",) if more else ())))


def _pointer(columns: int) -> str:
    if columns < 4:
        return "    const int8_t *w = weights;"
    return '    register const int8_t *w IG_PIN("r0") = weights;'


def wrapped(x: Array) -> Array:
    return x.astype(np.int64).astype(np.int32).astype(np.int64)


@family("tile4")
def tile4(name: str) -> Routine:
    return _tile(4, name)


@family("tile2")
def tile2(name: str) -> Routine:
    return _tile(2, name)


@family("tile1")
def tile1(name: str) -> Routine:
    return _tile(1, name)
