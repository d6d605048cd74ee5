"""A single row of bytes times channels, for `halves.py`: with one pixel only, two channels share a multiplication.

    word = u0 + 2^8 * u1 + 2^16 * u2 + 2^24 * u3         a weight of each of four channels, with 128 added
    x * (word & 0x00ff00ff - 0x00800080) = x * w0 + 2^16 * (x * w2)
    x * (word >> 8 & 0x00ff00ff - 0x00800080) = x * w1 + 2^16 * (x * w3)

Sums of both halves fit 16 bits for a number of neighbouring weights that is known from them. Four channels have the longest run
that fits in all of them and divides the depth, two or a multiple of four. It is in their records.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.contraction.halves_parts import THUMB, C, finish_part, fits, full_records, signed
from intaglio.kernels.dsp.primitives import BASE
from intaglio.kernels.dsp.scaling import finished
from intaglio.kernels.dsp.variants import C_TYPES, Finish
from intaglio.kernels.routines import Routine, no_meaning, routine_of

CHANNELS = 4


@cache
def row(kind: DType, finish: Finish) -> Routine:
    """One row times all channels."""

    def meaning(w: Array, scale: Array, x: Array, depth: int, outs: int, zero: int, y: Array) -> None:
        blocks = -(-outs // CHANNELS)
        weights = w[: blocks * CHANNELS * depth].reshape(blocks, depth, CHANNELS).astype(np.int64) - 128
        records = full_records(scale, outs, zero)
        sums = np.einsum("bdc,d->bc", weights, signed(x[:depth])).reshape(-1)[:outs]
        y[:outs] = finished(sums + records[:, 0], records, finish)

    part = finish_part(finish)
    macros = {"X_TYPE": C_TYPES[kind]}
    sums = routine_of(
        C / "halves_row_sums.c", f"halves_row_sums_{kind.value}", no_meaning, (BASE, THUMB), **macros, SIGNED=kind is DType.I8
    )
    names = {**macros, "Y_TYPE": C_TYPES[finish.out.to], "FINISH": f"ig_{part.name}", "SUMS": f"ig_{sums.name}"}
    return routine_of(C / "halves_row.c", f"halves_row_{kind.value}_{finish}", meaning, (BASE, sums, part), **names)


def pack_row(weights: Array, records: Array) -> tuple[Array, Array]:
    """Weights [channels, depth] as [block][depth][4], and records with the runs of their blocks."""
    channels, depth = weights.shape
    more = -channels % CHANNELS
    blocks = np.pad(weights, ((0, more), (0, 0))).reshape(-1, CHANNELS, depth)
    runs = [n for n in range(depth, 3, -4) if depth % n == 0] + [2]
    longest = [next(run for run in runs if fits(block, run)) for block in blocks]
    words = np.pad(records, ((0, more), (0, 0)))
    words[:, 2] += np.repeat(longest, CHANNELS) << 8
    return (blocks.transpose(0, 2, 1) + 128).astype(np.uint8), words.astype(np.int32)
