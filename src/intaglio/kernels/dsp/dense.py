"""One column against four channels at a time: fully connected layers. The column is loaded once for all four.

    w   [channels / 4][pairs / 2][2][2]   the first two channels' words of two pairs, then the other two channels'
    w   [channels / 6][pairs][3]          six channels at a time, words of three pairs of channels: `sixes`
        [channels / 2][pairs]             then what is left of the channels

Six take 1.2 cycles per product where four take 1.4, and more code: from SIXES products on, where weights are joined, sums are
scaled quickly and there are float registers to keep pointers in (`c/dense_six.c`).

Words are made as in `tiles.py`, `joined` or `apart`. The column is one of pairs (`column`), or bytes as they are, taken apart again
for every four channels (`i8`, `u8`): that costs an eighth more instructions and no memory, where they are a multiple of eight.
Where all channels have the same factor, the scales are one record (multiplier, offset, shift) and a start per channel: `shared`.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.dsp.gather import paired, widening
from intaglio.kernels.dsp.primitives import C, operations
from intaglio.kernels.dsp.scaling import WORDS, finish_routine, finished, real_results
from intaglio.kernels.dsp.tiles import pack_weights, unpack, wrapped
from intaglio.kernels.dsp.variants import C_TYPES, Finish, Layout, Variant
from intaglio.kernels.routines import Routine, routine_of

CHANNELS = 4
SIXES = 1024


def by_sixes(layout: Layout, finish: Finish, outs: int, pairs: int) -> bool:
    return layout is Layout.JOINED and finish.doubled and outs >= 6 and outs * pairs * 2 >= SIXES


def shared_by(sixes: bool) -> tuple[int, int]:
    """Channels of which parts have whole groups, and the least that a part needs."""
    return (6, 6) if sixes else (CHANNELS, 1)


def pack_sixes(channels: Array, layout: Layout) -> Array:
    """[outs, pairs, 2] in the order in which they are read; an odd last channel has zeros beside it."""
    outs, pairs, _ = channels.shape
    words, threes = pack_weights(channels, layout).view("<i4").reshape(-1, pairs), outs // 6 * 3
    first = words[:threes].reshape(-1, 3, pairs).transpose(0, 2, 1)
    return np.concatenate([first.reshape(-1), words[threes:].reshape(-1)]).view(np.int8)


def pack_dense(channels: Array, layout: Layout) -> Array:
    """[outs, pairs, 2] in the order in which they are read; channels up to a multiple of four are zeros."""
    outs, pairs, _ = channels.shape
    padded = np.zeros((-(-outs // CHANNELS) * CHANNELS, pairs, 2), np.int64)
    padded[:outs] = channels
    words = pack_weights(padded, layout).view("<i4").reshape(-1, 2, pairs // 2, 2)
    return np.ascontiguousarray(words.transpose(0, 2, 1, 3)).reshape(-1).view(np.int8)


def dense_scales(records: Array, step: int, *, apart: bool) -> tuple[bool, Array]:
    """Shared: one factor with all starts; or all records, if they have to be `apart`. Up to a multiple of `step` channels."""
    missing = -len(records) % step
    if not apart and (records[:, 1:] == records[0, 1:]).all():
        return True, np.concatenate([records[0, 1:], np.pad(records[:, 0], (0, missing))])
    return False, np.pad(records, ((0, missing), (0, 0))).reshape(-1)


def _channels(w: Array, pairs: int, outs: int, variant: Variant) -> tuple[Array, Array]:
    """First and second channels, as they were before they were packed."""
    if variant.sixes:
        words, threes = w[: -(-outs // 2) * pairs * 4].view("<i4"), outs // 6 * 3
        first = words[: threes * pairs].reshape(-1, pairs, 3).transpose(0, 2, 1)
        return unpack(np.concatenate([first.reshape(-1), words[threes * pairs :]]).view(np.int8), outs, pairs, variant.layout)
    groups = -(-outs // CHANNELS)
    words = w[: groups * CHANNELS * pairs * 2].view("<i4").reshape(groups, pairs // 2, 2, 2).transpose(0, 2, 1, 3)
    return unpack(np.ascontiguousarray(words).reshape(-1).view(np.int8), groups * CHANNELS, pairs, variant.layout)


@cache
def dense(variant: Variant) -> Routine:
    """All channels times one column."""
    layout, finish, shared = variant.layout, variant.finish, bool(variant.shared)
    joined = layout is Layout.JOINED
    bytes_ = variant.column != "column"
    kind = DType(variant.column) if bytes_ else DType.I16

    def meaning(column: Array, w: Array, scale: Array, y: Array, pairs: int, outs: int, *extra: Any) -> None:
        first, second = _channels(w, pairs, outs, variant)
        x, even = column[: 2 * pairs].astype(np.int64), 2 * len(first)
        if bytes_:
            x = paired(x).reshape(-1)
        if shared:
            records = np.zeros((even, WORDS), np.int64)
            records[:, 0], records[:, 1:] = scale[3 : 3 + even], scale[:3]
        else:
            records = scale[: even * WORDS].reshape(-1, WORDS)
        starts = records[:, 0].astype(np.int64) * (-int(extra[0]) if finish.real else 1)
        s = first @ x + starts[0::2]
        other = (first + 256 * second if joined else second) @ x + starts[1::2]
        r = wrapped(other - s) >> 8 if joined else other
        sums, records = np.stack([s, r], axis=1).reshape(-1)[:outs], records[:outs]
        y[:outs] = real_results(sums, records, finish, extra[1]) if finish.real else finished(sums, records, finish)

    take, take_odd = widening(kind)
    needs = operations("sxtb16", "smlad", *(() if joined else ("sxtb16_odd",)), *((take, take_odd) if bytes_ else ()))
    needs += (finish_routine(finish),)
    macros: dict[str, str | int] = {"X_TYPE": C_TYPES[kind], "BYTES": bytes_, "WIDEN": f"ig_{take}", "WIDEN_ODD": f"ig_{take_odd}"}
    macros |= {"X_SIGNED": kind is DType.I8, "SHARED": shared, **finish.macros()}
    macros |= finish.quick_macros() if variant.sixes else {"JOINED": joined}
    return routine_of(C / ("dense_six.c" if variant.sixes else "dense.c"), f"dense_{variant}", meaning, needs, **macros)
