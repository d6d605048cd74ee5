"""Depthwise 3x3: a window slides along one axis, with the sums of three results in flight, in registers.

    at each position: three bytes across, the first two as a pair
        done = tap 2 of the oldest sum       a tap is SMLAD of the pair and SMLAB of the third byte
        next = tap 1 of the second
        new  = tap 0, from the bias

Every byte is loaded once per row across, nothing is copied, channels stay where they are in NHWC. At the border across, where one
row of the window is missing, two bytes are loaded and the third tap counts as zero point, folded into the start; at the border
along, the position is the zero point itself. A record of eight words per channel: three pairs of taps (rows 0 and 1), the third
taps (0 and 1 as a pair; 2 together with the shift), start, multiplier, offset. Taps and start are doubled where the scaling wants
doubled sums.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.dsp.scaling import DOUBLED, Scales, finished
from intaglio.kernels.routines import Routine, family

WORDS = 8
FULL, FIRST_MISSING, LAST_MISSING = 0, 1, 2


def pack_records(weights: Array, scales: Scales) -> Array:
    """Weights [channels, along, across], zero point subtracted."""
    twice = 2 if scales.how in DOUBLED else 1
    w = weights.astype(np.int64) * twice
    low, high = w[:, :, 0] & 0xFFFF, w[:, :, 1]
    third = w[:, :, 2]
    right = scales.records[:, 3].astype(np.int64)
    words = [low[:, t] + (high[:, t] << 16) for t in range(3)]
    words += [(third[:, 0] & 0xFFFF) + (third[:, 1] << 16), (third[:, 2] & 0xFFFF) + (right << 16)]
    start, multiplier, offset = (scales.records[:, i].astype(np.int64) for i in range(3))
    return np.stack([*words, start * twice, multiplier, offset], axis=1).astype(np.int32).reshape(-1)


def _loads(three: bool, plain: bool) -> list[str]:
    two = ["first = x[0];", "second = x[down];"] if plain else ["pair = ig_pkhbt(x[0], x[down]);"]
    return [*two, *(["third = x[2 * down];"] if three else []), "x += step;"]


def _taps(three: bool, plain: bool, which: int, total: str) -> str:
    if plain:
        return f"{total} + first * a{which} + second * b{which}" + (f" + third * c{which}" if three else "")
    pair = f"ig_smlad(pair, p{which}, {total})"
    if not three:
        return pair
    return [f"ig_smlabb(third, q, {pair})", f"ig_smlabt(third, q, {pair})", f"ig_smlabb(third, last, {pair})"][which]


def _body(stride: int, three: bool, plain: bool, variant: str, pad: str) -> str:
    """Along one row of results."""
    kind = {"i8": "int8_t", "u8": "uint8_t"}[variant.split("_")[1]]
    load = _loads(three, plain)
    outside = [*(["first = second = zero;"] if plain else ["pair = both;"]), *(["third = zero;"] if three else [])]
    out = [f"*y = ({kind})ig_finish_{variant}(done, multiplier, offset, right);", "y += y_step;"]
    fresh = f"new = {_taps(three, plain, 0, 'start')};"
    if stride == 1:
        middle = [f"next = {_taps(three, plain, 1, 'new')};", fresh]
        turn = [f"done = {_taps(three, plain, 2, 'next')};", *middle]
        step, last, begin = [*load, *turn], [*outside, *turn], [*load, *middle]
    else:
        middle = [f"new = {_taps(three, plain, 1, 'new')};"]
        turn = [f"done = {_taps(three, plain, 2, 'new')};", fresh]
        step, last, begin = [*load, *middle, *load, *turn], [*load, *middle, *outside, *turn], []
    lines = [
        "if (before) {", *_deeper(outside), "} else {", *_deeper(load), "}", fresh, *begin,
        "for (ptrdiff_t i = after; i < count; i++) {", *_deeper([*step, *out]), "}",
        "if (after) {", *_deeper([*last, *out]), "}",
    ]  # fmt: skip
    return "\n".join(pad + line for line in lines)


def _deeper(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


_PAIRS = """\
        int32_t p0 = record[0], p1 = record[1], p2 = record[2], pair;
        const int32_t q = record[3], last = record[4];
"""
_SHIFT_PAIRS = """\
        if (missing == 1) { /* taps 1 and 2 are there */
            start = ig_smlabb(zero, p0, ig_smlabb(zero, p1, ig_smlabb(zero, p2, start)));
            p0 = ig_pkhbt(p0 >> 16, q);
            p1 = ig_pkhbt(p1 >> 16, q >> 16);
            p2 = ig_pkhbt(p2 >> 16, last);
        } else {
            start = ig_smlabb(zero, q, ig_smlabt(zero, q, ig_smlabb(zero, last, start)));
        }"""
_SINGLES = """\
        int32_t a0 = (int16_t)record[0], b0 = record[0] >> 16, a1 = (int16_t)record[1], b1 = record[1] >> 16;
        int32_t a2 = (int16_t)record[2], b2 = record[2] >> 16, first, second;
        const int32_t last = record[4], c0 = (int16_t)record[3], c1 = record[3] >> 16, c2 = (int16_t)last;
"""
_SHIFT_SINGLES = """\
        if (missing == 1) { /* taps 1 and 2 are there */
            start += zero * (a0 + a1 + a2);
            a0 = b0, b0 = c0, a1 = b1, b1 = c1, a2 = b2, b2 = c2;
        } else {
            start += zero * (c0 + c1 + c2);
        }"""


def _slide(name: str, plain: bool) -> Routine:
    """`1_i8_twice_i8`: stride, type of x, scaling."""
    stride, source, variant = name.split("_", 2)
    sums = "done, new, next" if stride == "1" else "done, new"
    x_type, y_type = ({"i8": "int8_t", "u8": "uint8_t"}[t] for t in (source, variant.split("_")[1]))
    family_name = "slideplain" if plain else "slide"
    both = "" if plain else ", both = ig_pkhbt(zero, zero)"
    text = f"""\
/* One row of a depthwise 3x3 for all channels, stride {stride} along it: `count` results from positions `step` apart, with three
 * bytes `down` apart at each. `before`, `after`: the first, the last position is outside. `missing`: 1 the first byte across is
 * outside, 2 the last. */
IG_ROUTINE void ig_{family_name}_{name}(const {x_type} *image, ptrdiff_t step, ptrdiff_t down, {y_type} *to, ptrdiff_t y_step,
    ptrdiff_t count, ptrdiff_t before, ptrdiff_t after, ptrdiff_t missing, ptrdiff_t zero_point, ptrdiff_t channels,
    const int32_t *record)
{{
    const int32_t zero = (int32_t)zero_point{both};
    for (ptrdiff_t c = 0; c < channels; c++, image++, to++, record += {WORDS}) {{
        const {x_type} *x = image;
        {y_type} *y = to;
{_SINGLES if plain else _PAIRS}        const int32_t multiplier = record[6], offset = record[7], right = last >> 16;
        int32_t start = record[5], {sums}, third;
        if (missing == 0) {{
{_body(int(stride), True, plain, variant, " " * 12)}
            continue;
        }}
{_SHIFT_SINGLES if plain else _SHIFT_PAIRS}
{_body(int(stride), False, plain, variant, " " * 8)}
    }}
}}"""
    operations = () if plain else ("op_pkhbt", "op_smlad", "op_smlabb", "op_smlabt")
    return Routine(text, _meaning(int(stride), variant), ("base", *operations, f"finish_{variant}"))


def _meaning(stride: int, variant: str) -> Callable[..., None]:
    def meaning(
        image: Array, step: int, down: int, to: Array, y_step: int, count: int, before: int, after: int, missing: int,
        zero: int, channels: int, record: Array,
    ) -> None:  # fmt: skip
        words = record[: channels * WORDS].reshape(channels, WORDS).astype(np.int64)
        twice = 2 if variant.split("_")[0] in DOUBLED else 1
        half = [words[:, t].astype(np.int32).view(np.int16).reshape(channels, 2).astype(np.int64) for t in range(5)]
        third = np.stack([half[3][:, 0], half[3][:, 1], half[4][:, 0]], axis=1)
        taps = np.stack([np.stack([half[t][:, 0], half[t][:, 1], third[:, t]], axis=1) for t in range(3)], axis=1)
        records = np.stack([words[:, 5], words[:, 6], words[:, 7], words[:, 4] >> 16], axis=1)
        for j in range(count):
            total = words[:, 5].copy()
            for t in range(3):
                position = j * stride + t - before
                outside = position < 0 or (after and j == count - 1 and t == 2)
                for r in range(3):
                    gone = outside or (missing == 1 and r == 0) or (missing == 2 and r == 2)
                    row = r - (1 if missing == 1 else 0)
                    at = position * step + row * down
                    total += taps[:, t, r] * (zero if gone else image[at : at + channels].astype(np.int64))
            assert (total % twice == 0).all()
            to[j * y_step : j * y_step + channels] = finished(total // twice, records, variant)

    return meaning


@family("slide")
def slide(name: str) -> Routine:
    return _slide(name, plain=False)


@family("slideplain")
def slide_plain(name: str) -> Routine:
    """For cores without pairs: the same, one number at a time."""
    return _slide(name, plain=True)
