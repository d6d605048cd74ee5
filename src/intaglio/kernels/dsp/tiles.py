"""The product itself: two channels at a time against four, two or one columns of numbers of 16 bits.

    cols   [pair][column][2]     neighbours in a pair are multiplied and added by one SMLAD
    w      [channels / 2][pair]  four bytes each: a half word holds first + 256 * second channel

A word of weights is used as it is, which sums first + 256 * second, and once more with only the first channel's bytes taken out
(SXTB16): the difference, shifted, is the sum of the second. So a pair of products costs half an instruction less than with both
taken out. It needs the sum of the second channel to fit 24 bits, and weights that fit a half word together: `joined`. Where that
does not hold, both channels are taken out: `apart`. With twice the flash, weights are pairs of 16 bits already: `wide`.

The C is `c/tile.c`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.dsp.primitives import C, operations
from intaglio.kernels.dsp.scaling import WORDS, finish_routine, finished, real_results
from intaglio.kernels.dsp.variants import Layout, Variant
from intaglio.kernels.routines import Routine, routine_of

UNROLL = 4  # pairs are a multiple of this
LONG = 64  # pairs, from which on the loop is what counts (c/tile_quick.h)


def pack_weights(channels: Array, layout: Layout) -> Array:
    """[outs, pairs, 2] as [outs / 2][pairs] words (two words each if `wide`), in bytes; an odd last channel has zeros beside it."""
    outs, pairs, _ = channels.shape
    even = np.zeros((-(-outs // 2) * 2, pairs, 2), np.int64)
    even[:outs] = channels
    first, second = even[0::2], even[1::2]
    if layout is Layout.WIDE:
        return np.stack([first, second], axis=2).astype("<i2").view(np.int8).reshape(-1)
    half = first + 256 * second if layout is Layout.JOINED else (first & 0xFF) + 256 * second
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


def unpack(w: Array, outs: int, pairs: int, layout: Layout) -> tuple[Array, Array]:
    if layout is Layout.WIDE:
        both = w[: -(-outs // 2) * pairs * 8].view("<i2").reshape(-1, pairs, 2, 2).astype(np.int64)
        return both[:, :, 0].reshape(-1, pairs * 2), both[:, :, 1].reshape(-1, pairs * 2)
    half = w[: -(-outs // 2) * pairs * 4].view("<i2").reshape(-1, pairs * 2).astype(np.int64)
    first = ((half + 128) & 0xFF) - 128
    second = (half - first) >> 8 if layout is Layout.JOINED else half >> 8
    return first, second


def wrapped(x: Array) -> Array:
    return x.astype(np.int64).astype(np.int32).astype(np.int64)


_TAKES = {Layout.JOINED: ("sxtb16",), Layout.APART: ("sxtb16", "sxtb16_odd"), Layout.WIDE: ()}


@cache
def tile(columns: int, variant: Variant, pairs: int = 0) -> Routine:
    """All channels times four, two or one columns of this many pairs."""
    long = columns == 4 and variant.finish.doubled and pairs >= LONG and variant.layout is not Layout.WIDE
    layout, finish = variant.layout, variant.finish
    joined = layout is Layout.JOINED

    def meaning(w: Array, scale: Array, cols: Array, pairs: int, outs: int, y: Array, step: int, *extra: Any) -> None:
        first, second = unpack(w, outs, pairs, layout)
        x = cols[: 2 * columns * pairs].reshape(pairs, columns, 2).transpose(0, 2, 1).reshape(pairs * 2, columns).astype(np.int64)
        records = scale[: -(-outs // 2) * 2 * WORDS].reshape(-1, WORDS)
        starts = records[:, 0].astype(np.int64) * (-int(extra[0]) if finish.real else 1)
        s = first @ x + starts[0::2, None]
        other = (first + 256 * second if joined else second) @ x + starts[1::2, None]
        r = wrapped(other - s) >> 8 if joined else other
        for channel in range(outs):
            sums = (s if channel % 2 == 0 else r)[channel // 2]
            for c in range(columns):
                at = channel + c * step
                record = records[channel : channel + 1]
                if finish.real:
                    y[at] = real_results(sums[c : c + 1], record, finish, extra[1])[0]
                    continue
                y[at] = finished(sums[c : c + 1], record, finish)[0]

    needs = operations("smlad", *_TAKES[layout], *(("as_float",) if columns == 4 else ()))
    needs += (finish_routine(finish),)
    layouts = {each.name: layout is each for each in Layout}
    name = f"tile{columns}{'long' if long else ''}_{variant}"
    return routine_of(
        C / "tile.c", name, meaning, needs, COLUMNS=columns, PAIR=2 * columns, WORD=word_bytes(layout),
        QUICK=finish.doubled, LONG=long, **layouts, **finish.macros(), **finish.quick_macros(),
    )  # fmt: skip


def word_bytes(layout: Layout) -> int:
    """Bytes of weights per pair, of two channels."""
    return 8 if layout is Layout.WIDE else 4
