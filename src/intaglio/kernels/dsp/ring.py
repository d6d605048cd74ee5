"""Depthwise 3x3 on the DSP extension: four channels at a time, or one, with three rows of the image as pairs of 16-bit numbers in
a ring.

    ring   [pair][row][channel]      a pair is two neighbours of a row; rows come and go, row r is in place r % 3

    results      0             1                 2             3
    pairs        (0,1) (2,-)   (-,1) (2,3)       (2,3) (4,-)   (-,3) (4,5)      each is SMLAD of one and SMLAxy of the other

Every byte is made a number of 16 bits once, and every word that is loaded serves two results or more. Where the window turns in the
ring, its taps turn instead. Four results share the taps, which wait in float registers. What is outside of the image is in the ring
as zero points, so no border has code of its own. A row of results is written when the row below it is in the ring, so the result
may take the memory of x. A record of eight words per channel: taps 0 and 1 of each row as pairs, the third taps (rows 0 and 1 as
a pair; row 2 together with the shift), start, multiplier, offset: as in `slide.py`, with rows and columns exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.dsp.gather import widening
from intaglio.kernels.dsp.primitives import C, operations
from intaglio.kernels.dsp.scaling import finish_routine, finished
from intaglio.kernels.dsp.slide import taps_of
from intaglio.kernels.dsp.variants import C_TYPES, Finish
from intaglio.kernels.routines import Routine, routine_of

ROWS = 3
SCALES = 14  # words per channel: start, multiplier, offset, right, and two taps for each of rows 0, 1, 2, 0, 1


def lanes_of(channels: int) -> int:
    """How many at a time."""
    return 4 if channels >= 4 else 1


def ring_words(count: int, stride: int, lanes: int) -> int:
    """Working memory for rows of `count` results, four at a time."""
    pairs = 2 * stride * -(-count // 4) + 1
    return lanes * ROWS * pairs


def _meaning(stride: int, finish: Finish) -> Callable[..., None]:
    def meaning(
        image: Array, step: int, across: int, length: int, rows: int, before: int, above: int, down: int, y: Array, y_step: int,
        y_across: int, count: int, results: int, zero: int, channels: int, record: Array, ring: Array, scales: Array,
    ) -> None:  # fmt: skip
        taps, records = taps_of(record, channels)
        image = image.copy()  # y may be the same memory
        twice = 2 if finish.doubled else 1
        for i in range(results):
            for j in range(count):
                total = records[:, 0].copy()
                for r in range(3):
                    for t in range(3):
                        row, position = i * down - above + r, j * stride - before + t
                        inside = 0 <= row < rows and 0 <= position < length
                        at = row * across + position * step
                        total += taps[:, r, t] * (image[at : at + channels].astype(np.int64) if inside else zero)
                assert (total % twice == 0).all()
                to = i * y_across + j * y_step
                y[to : to + channels] = finished(total // twice, records, finish)

    return meaning


@cache
def ring(stride: int, lanes: int, kind: DType, finish: Finish) -> Routine:
    """A whole image."""
    take, take_odd = widening(kind)
    needs = operations("pkhbt", "smlad", "smlabb", "smlabt", *(("pkhtb", take, take_odd) if lanes == 4 else ()))
    return routine_of(
        C / "ring.c", f"ring{lanes}_{stride}_{kind.value}_{finish}", _meaning(stride, finish), (*needs, finish_routine(finish)),
        STRIDE=stride, LANES=lanes, X_TYPE=C_TYPES[kind], WIDEN=f"ig_{take}", WIDEN_ODD=f"ig_{take_odd}", **finish.macros(),
        QUICK=finish.doubled, **finish.quick_macros(),
    )  # fmt: skip
