"""Depthwise 3x3 without working memory: a window slides along one axis, with the sums of three results in flight, in registers.
Cores with the DSP extension use it where memory has a limit, two products at a time.

    at each position: three bytes across
        done = tap 2 of the oldest sum       a tap is three products
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
from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.contraction.halves_parts import finish_part
from intaglio.kernels.dsp.primitives import BASE, C, operations
from intaglio.kernels.dsp.scaling import Scales, finish_routine, finished
from intaglio.kernels.dsp.variants import C_TYPES, Finish
from intaglio.kernels.routines import Routine, routine_of

WORDS = 8
FULL, FIRST_MISSING, LAST_MISSING = 0, 1, 2


def pack_records(weights: Array, scales: Scales, narrow: bool = False) -> Array:
    """Weights [channels, along, across], zero point subtracted."""
    twice = _times(scales.finish, narrow)
    w = weights.astype(np.int64) * twice
    low, high = w[:, :, 0] & 0xFFFF, w[:, :, 1]
    third = w[:, :, 2]
    right = scales.records[:, 3].astype(np.int64)
    words = [low[:, t] + (high[:, t] << 16) for t in range(3)]
    words += [(third[:, 0] & 0xFFFF) + (third[:, 1] << 16), (third[:, 2] & 0xFFFF) + (right << 16)]
    start, multiplier, offset = (scales.records[:, i].astype(np.int64) for i in range(3))
    return np.stack([*words, start * twice, multiplier, offset], axis=1).astype(np.int32).reshape(-1)


def _times(finish: Finish, narrow: bool) -> int:
    return 2 if finish.doubled and not narrow else 1


def taps_of(record: Array, channels: int) -> tuple[Array, Array]:
    """The taps [channels, 3, 3] and the scales (start, multiplier, offset, right) of packed records."""
    words = record[: channels * WORDS].reshape(channels, WORDS).astype(np.int64)
    half = [words[:, t].astype(np.int32).view(np.int16).reshape(channels, 2).astype(np.int64) for t in range(5)]
    third = np.stack([half[3][:, 0], half[3][:, 1], half[4][:, 0]], axis=1)
    taps = np.stack([np.stack([half[t][:, 0], half[t][:, 1], third[:, t]], axis=1) for t in range(3)], axis=1)
    return taps, np.stack([words[:, 5], words[:, 6], words[:, 7], words[:, 4] >> 16], axis=1)


def _meaning(stride: int, finish: Finish, twice: int) -> Callable[..., None]:
    def meaning(
        image: Array, step: int, down: int, to: Array, y_step: int, count: int, before: int, after: int, missing: int,
        zero: int, channels: int, record: Array,
    ) -> None:  # fmt: skip
        taps, records = taps_of(record, channels)
        for j in range(count):
            total = records[:, 0].copy()
            for t in range(3):
                position = j * stride + t - before
                outside = position < 0 or (after and j == count - 1 and t == 2)
                for r in range(3):
                    gone = outside or (missing == 1 and r == 0) or (missing == 2 and r == 2)
                    row = r - (1 if missing == 1 else 0)
                    at = position * step + row * down
                    total += taps[:, t, r] * (zero if gone else image[at : at + channels].astype(np.int64))
            assert (total % twice == 0).all()
            to[j * y_step : j * y_step + channels] = finished(total // twice, records, finish)

    return meaning


@cache
def slide(stride: int, kind: DType, finish: Finish, pairs: bool = False, narrow: bool = False) -> Routine:
    """A row of results; `pairs`: with the DSP extension, else one number at a time. `narrow`: sums become bytes by products of
    16 by 16 bits, and are not doubled."""
    needs = operations("pkhbt", "smlad", "smlabb", "smlabt") if pairs else (BASE,)
    last = finish_part(finish, apart=True) if narrow else finish_routine(finish)
    macros = {**finish.macros(), "FINISH": f"ig_{last.name}"}
    name = f"slide{'pairs' if pairs else 'narrow' if narrow else ''}_{stride}_{kind.value}_{finish}"
    return routine_of(
        C / "slide.c", name, _meaning(stride, finish, _times(finish, narrow)), (*needs, last), PAIRS=pairs, STRIDE=stride,
        X_TYPE=C_TYPES[kind], **macros,
    )  # fmt: skip
