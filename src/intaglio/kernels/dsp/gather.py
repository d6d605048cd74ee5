"""Windows as columns of numbers of 16 bits, in pairs, for `tiles.py`.

    bytes of a run      0 1 2 3  4 5 6 7  8 9 10
    pairs               (0,2) (1,3) (4,6) (5,7) (8,9) (10,-)

Four bytes are one load and two SXTB16, which take out bytes 0 and 2, then 1 and 3: weights are packed in that order, so nothing
is shuffled. A run is what lies side by side in memory: the columns of a window row with all their channels, or the channels of one
pixel where columns are dilated or channels grouped. `gather` brings one column, `gather_all` all columns of a tile. `edge` is for
windows that reach over the border: what is outside counts as zero point.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.dsp.primitives import C, operations
from intaglio.kernels.dsp.variants import C_TYPES
from intaglio.kernels.routines import Routine, routine_of


def pairs_of(length: int) -> list[tuple[int, int]]:
    """Which numbers of a run stand in a pair; -1: none."""
    whole = length // 4 * 4
    pairs = [pair for q in range(0, whole, 4) for pair in ((q, q + 2), (q + 1, q + 3))]
    return pairs + [(i, i + 1 if i + 1 < length else -1) for i in range(whole, length, 2)]


def paired(run: Array) -> Array:
    """The last axis as [pairs, 2]; a place without a number is 0."""
    order = np.asarray(pairs_of(run.shape[-1])).reshape(-1, 2)
    return np.where(order >= 0, run[..., order], 0)


def _put(to: Array, columns: int, at: int, run: Array) -> int:
    """A run at pair `at`; what is in no pair stays as it is. The next pair."""
    for n, (a, b) in enumerate(pairs_of(run.size)):
        to[2 * columns * (at + n)] = run[a]
        if b >= 0:
            to[2 * columns * (at + n) + 1] = run[b]
    return at + len(pairs_of(run.size))


def widening(kind: DType) -> tuple[str, str]:
    """The operations that make numbers of 16 bits of bytes 0 and 2, and of bytes 1 and 3."""
    take = "sxtb16" if kind is DType.I8 else "uxtb16"
    return take, f"{take}_odd"


def _macros(columns: int, kind: DType) -> dict[str, str | int]:
    take, take_odd = widening(kind)
    pairs = {f"PAIR{n}": 2 * columns * n for n in (1, 2)}
    return {"TYPE": C_TYPES[kind], "COLUMNS": columns, "WIDEN": f"ig_{take}", "WIDEN_ODD": f"ig_{take_odd}", **pairs}


@cache
def gather(columns: int, kind: DType) -> Routine:
    def meaning(x: Array, row: int, rows: int, length: int, to: Array) -> None:
        at = 0
        for r in range(rows):
            at = _put(to, columns, at, x[r * row : r * row + length].astype(np.int16))

    needs = operations("put_word", *widening(kind))
    return routine_of(C / "gather.c", f"gather{columns}_{kind.value}", meaning, needs, **_macros(columns, kind))


@cache
def gather_all(columns: int, kind: DType) -> Routine:
    """The windows of all columns at once."""

    def meaning(x: Array, across: int, row: int, rows: int, length: int, to: Array) -> None:
        for c in range(columns):
            at = 0
            for r in range(rows):
                first = c * across + r * row
                at = _put(to[2 * c :], columns, at, x[first : first + length].astype(np.int16))

    needs = operations("put_word", "pkhbt", *widening(kind))
    macros = {**_macros(columns, kind), "SIGNED": kind is DType.I8}
    return routine_of(C / "gather_all.c", f"gather_all{columns}_{kind.value}", meaning, needs, **macros)


@cache
def edge(columns: int, kind: DType) -> Routine:
    def meaning(
        x: Array, top: int, left: int, height: int, width: int, channels: int, rows: int, cols: int, down: int, across: int,
        depth: int, joint: int, zero: int, to: Array,
    ) -> None:  # fmt: skip
        at = 0
        for i in range(rows):
            run = np.full((cols, depth), zero, np.int16)
            for j in range(cols):
                h, w = top + i * down, left + j * across
                if 0 <= h < height and 0 <= w < width:
                    start = (h * width + w) * channels
                    run[j] = x[start : start + depth]
            for part in [run.reshape(-1)] if joint else list(run):
                at = _put(to, columns, at, part)

    needs = operations("put_word", *widening(kind))
    return routine_of(C / "edge.c", f"edge{columns}_{kind.value}", meaning, needs, **_macros(columns, kind))
