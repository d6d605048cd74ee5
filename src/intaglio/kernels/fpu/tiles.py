"""Products of floats in the registers of an FPU: 16 sums, s16 to s31, are four pixels times four channels.

    w      [channels / 4][number][4], then the last channels one by one: [number]
    taps   of four pixels: where their numbers are, and the weights for them

Two numbers of each pixel and their weights are loaded by five VLDM, for 32 VFMA. Images are read where they are. A row of the
window is one piece of memory; where it reaches over the border, each of its taps is one, and those outside are zeros. The list of
these pieces is the working memory of a layer, 20 bytes for each. `dense` is
for a single row. The C is `c/tile.c` and `c/dense.c`, with assembly in it: compilers keep half of such a tile on the stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.dsp.primitives import BASE
from intaglio.kernels.routines import Routine, routine_of

C = Path(__file__).parent / "c"
PIXELS = CHANNELS = 4
MOST_TAPS = 25
TILE_WORDS, TAP_WORDS = 9, 5  # of the list


@dataclass(frozen=True, slots=True)
class After:
    """What follows a sum: another tensor is added, then what is negative becomes 0."""

    added: bool = False
    relu: bool = False

    def __str__(self) -> str:
        return "".join(f"_{word}" for word, there in (("add", self.added), ("relu", self.relu)) if there)

    def results(self, sums: Array, other: Array | None) -> Array:
        found = sums.astype(np.float32) if other is None else sums.astype(np.float32) + other
        return np.where(found < 0, np.float32(0), found) if self.relu else found


def pack_channels(matrix: Array) -> Array:
    """[numbers, channels] in the order in which they are read."""
    whole = matrix.shape[1] // CHANNELS * CHANNELS
    fours = matrix[:, :whole].reshape(len(matrix), -1, CHANNELS).transpose(1, 0, 2)
    return np.concatenate([fours.reshape(-1), matrix[:, whole:].T.reshape(-1)]).astype(np.float32)


def _unpacked(w: Array, numbers: int, outs: int) -> Array:
    whole = outs // CHANNELS * CHANNELS
    fours = w[: whole * numbers].reshape(-1, numbers, CHANNELS).transpose(1, 0, 2).reshape(numbers, whole)
    return np.concatenate([fours, w[whole * numbers : outs * numbers].reshape(-1, numbers).T], axis=1).astype(np.float64)


@cache
def tile(after: After) -> Routine:
    """Up to four pixels of an image times all channels."""

    def meaning(
        x: Array, zeros: Array, geometry: Array, room: Array, top: int, left: int, count: int, w: Array, bias: Array, outs: int,
        y: Array, step: int, *extra: Any,
    ) -> None:  # fmt: skip
        height, width, pixel, depth, kh, kw, stride, down, along = (int(n) for n in geometry[:9])
        weights = _unpacked(w, kh * kw * depth, outs).reshape(kh, kw, depth, outs)
        for p in range(count):
            sums = bias[:outs].astype(np.float64)
            for r in range(kh):
                for c in range(kw):
                    row, at = top + r * down, left + p * stride + c * along
                    if 0 <= row < height and 0 <= at < width:
                        start = (row * width + at) * pixel
                        sums = sums + x[start : start + depth].astype(np.float64) @ weights[r, c]
            other = extra[0][p * step : p * step + outs] if after.added else None
            y[p * step : p * step + outs] = after.results(sums, other)

    macros = {"TAPS": MOST_TAPS, "RELU": after.relu, "ADDED": after.added}
    return routine_of(C / "tile.c", f"float_tile{after}", meaning, (BASE,), **macros)


@cache
def dense(after: After) -> Routine:
    """One row times all channels."""

    def meaning(x: Array, w: Array, bias: Array, depth: int, outs: int, y: Array, *extra: Any) -> None:
        sums = x[:depth].astype(np.float64) @ _unpacked(w, depth, outs) + bias[:outs]
        y[:outs] = after.results(sums, extra[0][:outs] if after.added else None)

    return routine_of(C / "dense.c", f"float_dense{after}", meaning, (BASE,), RELU=after.relu, ADDED=after.added)
