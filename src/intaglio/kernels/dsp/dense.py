"""One column against four channels at a time: fully connected layers. The column is loaded once for all four.

    w   [channels / 4][pairs / 2][2][2]   the first two channels' words of two pairs, then the other two channels'

Words are made as in `tiles.py`, `joined` or `apart`. The column is one of pairs (`column`), or bytes as they are, taken apart again
for every four channels (`i8`, `u8`): that costs an eighth more instructions and no memory, where they are a multiple of eight.
Where all channels have the same factor, the scales are one record (multiplier, offset, shift) and a start per channel: `shared`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.dsp.gather import paired
from intaglio.kernels.dsp.scaling import C_TYPES, DOUBLED, WORDS, finished, is_real, real_results
from intaglio.kernels.dsp.tiles import pack_weights, unpack, wrapped
from intaglio.kernels.routines import Routine, family

CHANNELS = 4


def pack_dense(channels: Array, layout: str) -> Array:
    """[outs, pairs, 2] in the order in which they are read; channels up to a multiple of four are zeros."""
    outs, pairs, _ = channels.shape
    padded = np.zeros((-(-outs // CHANNELS) * CHANNELS, pairs, 2), np.int64)
    padded[:outs] = channels
    words = pack_weights(padded, layout).view("<i4").reshape(-1, 2, pairs // 2, 2)
    return np.ascontiguousarray(words.transpose(0, 2, 1, 3)).reshape(-1).view(np.int8)


_HALF = (
    "ldrd %[w0], %[w1], [%[w]], #8",
    "sxtb16 %[e], %[w0]",
    "{odd0}",
    "smlad %[{r}], %[w0], %[x], %[{r}]",
    "smlad %[{s}], %[e], %[x], %[{s}]",
    "sxtb16 %[e], %[w1]",
    "{odd1}",
    "smlad %[{r}], %[w1], %[z], %[{r}]",
    "smlad %[{s}], %[e], %[z], %[{s}]",
)
_LOADS = {
    "column": ("ldrd %[x], %[z], [%[a]], #8",),
    "i8": ("ldr %[e], [%[a]], #4", "sxtb16 %[x], %[e]", "sxtb16 %[z], %[e], ror #8"),
    "u8": ("ldr %[e], [%[a]], #4", "uxtb16 %[x], %[e]", "uxtb16 %[z], %[e], ror #8"),
}


def _assembly(joined: bool, source: str) -> str:
    odd = "" if joined else "sxtb16 %[w{0}], %[w{0}], ror #8"
    lines = list(_LOADS[source])
    for n in (0, 1):
        lines += [line.format(r=f"r{n}", s=f"s{n}", odd0=odd.format(0), odd1=odd.format(1)) for line in _HALF]
    body = [f'            "{line}\\n\\t"' for line in lines if line] * 2
    return "\n".join(['            "1:\\n\\t"', *body, '            "cmp %[a], %[end]\\n\\t"', '            "bne 1b"'])


def _finish(joined: bool, variant: str, shared: bool) -> str:
    doubled = variant.split("_")[0] in DOUBLED
    kind = C_TYPES[variant.split("_")[1]]
    lines = []
    for n in range(CHANNELS):
        s, r = f"s{n // 2}", f"r{n // 2}"
        total = s if n % 2 == 0 else r
        if n % 2 and joined:
            value = f"(int32_t)((uint32_t){r} - (uint32_t){s}) >> {7 if doubled else 8}"
        else:
            value = f"{total} * 2" if doubled else total
        words = [f"scale[{n * WORDS + i}]" for i in (1, 2, 3)]
        if is_real(variant):
            words[2] = "x_step"
        scale = "multiplier, offset, right" if shared else ", ".join(words)
        lines.append(f"        y[{n}] = ({kind})ig_finish_{variant}({value}, {scale});")
        if n + 1 < CHANNELS:
            lines += [f"        if (o + {n + 1} == outs)", "            break;"]
    return "\n".join(lines)


def dense_scales(records: Array, real: bool) -> tuple[str, Array]:
    """`shared` and one factor with all starts, or `each` and all records."""
    if not real and (records[:, 1:] == records[0, 1:]).all():
        padded = np.zeros(-(-len(records) // CHANNELS) * CHANNELS, np.int32)
        padded[: len(records)] = records[:, 0]
        return "shared", np.concatenate([records[0, 1:], padded])
    return "each", records.reshape(-1)


@family("dense")
def dense(name: str) -> Routine:
    """`column_shared_joined_once_i8`: what the column is, how scales are kept, how weights are, and the scaling."""
    source, scales, layout, variant = name.split("_", 3)
    joined, shared = layout == "joined", scales == "shared"
    kind, real = C_TYPES[variant.split("_")[1]], is_real(variant)
    own = ", int32_t zero, float x_step" if real else ""
    x_type = {"column": "int16_t", "i8": "int8_t", "u8": "uint8_t"}[source]
    other = "w0" if joined else "ig_sxtb16_odd(w0)"
    size = "4 * pairs / 2" if source != "column" else "2 * pairs"
    take = "u" if source == "u8" else "s"
    if source == "column":
        load = "x = ig_word(a + 2 * (i % 2))"
    else:
        load = f"x = i % 2 == 0 ? ig_{take}xtb16(ig_word(a)) : ig_{take}xtb16_odd(ig_word(a))"
    starts = [f"scale[{n}]" for n in range(4)] if shared else [f"scale[{n * WORDS}]" for n in range(4)]
    common = "    const int32_t multiplier = scale[0], offset = scale[1], right = scale[2];\n    scale += 3;\n" if shared else ""
    if real:
        starts = [f"(int32_t)(0u - (uint32_t)zero * (uint32_t){start})" for start in starts]
    step = CHANNELS * (1 if shared else WORDS)
    text = f"""\
/* Channels four by four, times one column of `pairs` pairs. */
IG_ROUTINE void ig_dense_{name}(const int8_t *w, const int32_t *scale, const {x_type} *column, ptrdiff_t pairs,
    ptrdiff_t outs, {kind} *y{own})
{{
    const {x_type} *const end = column + {size};
{common}    for (ptrdiff_t o = 0; o < outs; o += {CHANNELS}, scale += {step}, y += {CHANNELS}) {{
        int32_t s0 = {starts[0]}, r0 = {starts[1]}, s1 = {starts[2]}, r1 = {starts[3]};
        const {x_type} *a = column;
#ifdef IG_DSP
        uint32_t w0, w1, e, x, z;
        __asm__ volatile(
{_assembly(joined, source)}
            : [s0] "+r"(s0), [r0] "+r"(r0), [s1] "+r"(s1), [r1] "+r"(r1), [w] "+r"(w), [a] "+r"(a), [w0] "=&r"(w0),
              [w1] "=&r"(w1), [e] "=&r"(e), [x] "=&r"(x), [z] "=&r"(z)
            : [end] "r"(end) : "cc", "memory");
#else
        for (; a != end; a += 4) {{
            for (int i = 0; i < 4; i++, w += 4) {{
                const int32_t w0 = ig_word(w), e = ig_sxtb16(w0), both = {other}, {load};
                if (i < 2) {{
                    s0 = ig_smlad(e, x, s0);
                    r0 = ig_smlad(both, x, r0);
                }} else {{
                    s1 = ig_smlad(e, x, s1);
                    r1 = ig_smlad(both, x, r1);
                }}
            }}
        }}
#endif
{_finish(joined, variant, shared)}
    }}
}}"""

    def meaning(w: Array, scale: Array, column: Array, pairs: int, outs: int, y: Array, *extra: Any) -> None:
        groups = -(-outs // CHANNELS)
        words = w[: groups * CHANNELS * pairs * 2].view("<i4").reshape(groups, pairs // 2, 2, 2).transpose(0, 2, 1, 3)
        first, second = unpack(np.ascontiguousarray(words).reshape(-1).view(np.int8), groups * CHANNELS, pairs, layout)
        x = column[: 2 * pairs].astype(np.int64)
        if source != "column":
            x = paired(x).reshape(-1)
        if shared:
            records = np.zeros((groups * CHANNELS, WORDS), np.int64)
            records[:, 0], records[:, 1:] = scale[3 : 3 + groups * CHANNELS], scale[:3]
        else:
            records = scale[: groups * CHANNELS * WORDS].reshape(-1, WORDS)
        starts = records[:, 0].astype(np.int64) * (-int(extra[0]) if real else 1)
        s = first @ x + starts[0::2]
        other = (first + 256 * second if joined else second) @ x + starts[1::2]
        r = wrapped(other - s) >> 8 if joined else other
        sums = np.stack([s, r], axis=1).reshape(-1)[:outs]
        y[:outs] = real_results(sums, records[:outs], variant, extra[1]) if real else finished(sums, records[:outs], variant)

    operations = ("op_sxtb16", "op_smlad", *(() if joined else ("op_sxtb16_odd",)))
    operations += (f"op_{take}xtb16", f"op_{take}xtb16_odd") if source != "column" else ()
    return Routine(text, meaning, ("base", *operations, f"finish_{variant}"))
