"""Rows of bytes times channels: VMLADAVA multiplies sixteen bytes by sixteen and adds all products to a sum in a general register.

    x0, x1 = 16 bytes of two rows;  w0, w1 = 16 bytes of two channels
    s00 += x0 . w0;  s01 += x0 . w1;  s10 += x1 . w0;  s11 += x1 . w1

With MVE, four rows and one channel at a time where sums are scaled quickly: then the four results are one vector (`four_rows`).
The last bytes of a row are loaded under a predicate, the rest of the vector is zeros: rows need no padding. Activations without a
sign are moved by 128 on their way (the zero point of the records moves along). Sums become bytes as in `dsp/scaling.py`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.c_template import render
from intaglio.kernels.dsp.primitives import BASE
from intaglio.kernels.dsp.scaling import WORDS, finish_routine, finished
from intaglio.kernels.dsp.variants import C_TYPES, Finish, How
from intaglio.kernels.routines import Routine, routine_of

C = Path(__file__).parent / "c"
MVE = Routine("mve", render(C / "mve.c"))


@cache
def rows(count: int, kind: DType, finish: Finish) -> Routine:
    """One or two rows, all channels."""

    def meaning(w: Array, scale: Array, x: Array, depth: int, x_step: int, outs: int, y: Array, y_step: int) -> None:
        weights = w[: outs * depth].reshape(outs, depth).astype(np.int64)
        records = scale[: outs * WORDS].reshape(outs, WORDS)
        for r in range(count):
            row = x[r * x_step : r * x_step + depth].astype(np.int64) - (128 if kind is DType.U8 else 0)
            y[r * y_step : r * y_step + outs] = finished(weights @ row + records[:, 0], records, finish)

    return routine_of(
        C / "rows.c", f"rows_{count}_{kind.value}_{finish}", meaning, (BASE, MVE, finish_routine(finish)), ROWS=count,
        X_TYPE=C_TYPES[kind], SIGNED=kind is DType.I8, **finish.macros(),
    )  # fmt: skip


def is_quick(finish: Finish) -> bool:
    """Are sums scaled as vectors do it: VQRDMULH, an offset, a shift?"""
    return finish.how in (How.TWICE, How.CLIPPED)


@cache
def four_rows(finish: Finish) -> Routine:
    """One to four rows, all channels."""

    def meaning(w: Array, scale: Array, x: Array, depth: int, x_step: int, outs: int, y: Array, y_step: int, count: int) -> None:
        weights = w[: outs * depth].reshape(outs, depth).astype(np.int64)
        records = scale[: outs * WORDS].reshape(outs, WORDS)
        for r in range(count):
            row = x[r * x_step : r * x_step + depth].astype(np.int64)
            y[r * y_step : r * y_step + outs] = finished(weights @ row + records[:, 0], records, finish)

    (low, high), sign = finish.out.bounds, finish.how is How.TWICE
    return routine_of(
        C / "four_rows.c", f"four_rows_{finish}", meaning, (BASE, MVE), Y_TYPE=C_TYPES[finish.out.to],
        Y_SIGNED=finish.out.to is DType.I8, SIGN=sign, LOW=low, HIGH=high,
    )  # fmt: skip


@cache
def window(kind: DType) -> Routine:
    """A window as a row."""

    def meaning(
        x: Array, top: int, left: int, height: int, width: int, channels: int, rows: int, cols: int, down: int, across: int,
        depth: int, zero: int, to: Array,
    ) -> None:  # fmt: skip
        for i in range(rows):
            for j in range(cols):
                h, w = top + i * down, left + j * across
                inside = 0 <= h < height and 0 <= w < width
                at = (i * cols + j) * depth
                start = (h * width + w) * channels
                to[at : at + depth] = x[start : start + depth] if inside else zero

    return routine_of(C / "window.c", f"window_{kind.value}", meaning, (BASE, MVE), TYPE=C_TYPES[kind])
