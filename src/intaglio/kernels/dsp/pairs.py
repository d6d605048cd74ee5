"""The micro-kernel of the DSP extension: windows are gathered as columns of 16-bit pairs, four at a time, and multiplied by two
channels at once.

    gather_all4(x at the window of at)                   one by one, by gather4 and edge4, where one reaches over the border
    tile4(w, scales, columns, y)                         all channels

What is left of a row is taken two columns at a time, then one. A single column is multiplied by four channels at once (`dense.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.sizes import most
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.columns import Row
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.dsp.dense import CHANNELS, by_sixes, dense, dense_scales, pack_dense, pack_sixes, shared_by
from intaglio.kernels.dsp.gather import edge, gather, gather_all, paired
from intaglio.kernels.dsp.scaling import WORDS
from intaglio.kernels.dsp.sums import add
from intaglio.kernels.dsp.tiles import UNROLL, can_join, joined_starts, pack_weights, tile, word_bytes
from intaglio.kernels.dsp.variants import Finish, Layout, Sum, Variant, parse_variant
from intaglio.kernels.job import Job
from intaglio.kernels.loop import Buffer, Expr, Place, idx
from intaglio.kernels.routines import Routine


def small(weights: Array) -> bool:
    """Bytes, once their zero point is subtracted?"""
    return int(weights.min()) >= -128 and int(weights.max()) <= 127


@dataclass(frozen=True, slots=True)
class Product:
    """Channels ready to be multiplied: packed weights and scales, and which variant of the routines takes them."""

    w: Buffer
    scale: Buffer
    pairs: int
    variant: Variant


def pack(job: Job, runs: Array, records: Array, reach: Array, finish: Finish, single: bool) -> Product:
    """Weights [groups, columns, runs, length] and a record per channel, as the routines read them; `single`: for one column."""
    groups, columns = runs.shape[:2]
    pairs = paired(runs).reshape(groups, columns, -1, 2)
    pairs = np.pad(pairs, ((0, 0), (0, 0), (0, -pairs.shape[2] % UNROLL), (0, 0)))
    joined = all(can_join(*part) for part in zip(pairs, reach.reshape(groups, columns), strict=True))
    layout = _layout(job, runs, joined, single)
    words = records.reshape(groups, columns, -1).copy()
    words[:, :, 0] = [joined_starts(starts, layout is Layout.JOINED) for starts in words[:, :, 0]]
    sixes = single and job.target.fpu != "none" and by_sixes(layout, finish, columns, pairs.shape[2])
    packer = pack_sixes if sixes else pack_dense if single else pack_weights
    w = job.packed(np.concatenate([packer(part, layout) for part in pairs]), "w", DType.I8)
    if single:
        apart = finish.real or job.is_shared(columns, *shared_by(sixes))
        shared, scales = dense_scales(words[0], 2 if sixes else CHANNELS, apart=apart)
    else:
        shared, scales = None, np.pad(words, ((0, 0), (0, columns % 2), (0, 0)))
    variant = Variant(layout, finish, shared=shared, sixes=sixes)
    return Product(w, job.packed(scales.reshape(-1), "scale", DType.I32), pairs.shape[2], variant)


def _layout(job: Job, runs: Array, joined: bool, single: bool) -> Layout:
    """What an edited IR file names, where it can be done; `joined`: two channels fit a half word. Weights of 16 bits take fewer
    instructions and twice the reads of flash, which is slower where flash has wait states (KWS on a NUCLEO-L4R5ZI: 7 %)."""
    fits = {Layout.JOINED: small(runs) and joined, Layout.APART: small(runs), Layout.WIDE: not single}
    asked = parse_variant(job.asked)
    if asked is not None and fits[asked.layout]:
        return asked.layout
    wide = job.target.optimize == "speed" and not job.target.slow_flash
    if fits[Layout.WIDE] and (wide or not small(runs)):
        return Layout.WIDE
    return Layout.JOINED if fits[Layout.JOINED] else Layout.APART


def widths_of(job: Job) -> tuple[int, ...]:
    """How many columns at a time: four need a float register to spare."""
    return (4, 2, 1) if job.target.fpu != "none" else (2, 1)


def widest(job: Job, p: Problem) -> int:
    """Columns of the largest tile."""
    return max(width for width in widths_of(job) if width <= most(p.out_width))


def columns_of(job: Job, p: Problem, product: Product) -> Buffer:
    """Working memory for the columns of a tile."""
    return job.scratch(2 * widest(job, p) * product.pairs, "columns", DType.I16, own=True)


@dataclass(frozen=True, slots=True)
class Added:
    """Another tensor is added to the results of a tile, which wait in `results`: y may be the memory of the other."""

    sum: Sum
    other: Buffer
    record: Buffer
    results: Buffer


@dataclass(frozen=True, slots=True)
class Pairs:
    """`zero` is what is outside of the image, `more` are the last arguments of a tile."""

    problem: Problem
    product: Product
    x: Buffer
    columns: Buffer
    y: Buffer
    zero: Expr
    widths: tuple[int, ...]
    more: tuple[Expr, ...] = ()
    added: Added | None = None
    outs: tuple[Expr, Expr] | None = None  # channels of a group that this part computes; None: all

    def gather(self, k: Builder, row: Row, first: Expr, count: int) -> Place:
        p = self.problem
        left = k.let("left", first * p.strides[1] - p.pads[1])
        inside = p.inside(row.top, left, count)
        if inside is True:
            self._within(k, row, left, count)
        elif inside is False or count == 1:
            self._each(k, row, left, count)
        else:
            with k.when(inside):
                self._within(k, row, left, count)
            with k.otherwise():
                self._each(k, row, left, count)
        return Place(self.columns, idx(0))

    def _within(self, k: Builder, row: Row, left: Expr, count: int) -> None:
        """All windows at once."""
        p = self.problem
        across = p.strides[1] * p.channels
        self._runs(k, row, left, gather_all(count, self.x.dtype), count, idx(0), across)

    def _each(self, k: Builder, row: Row, first: Expr, count: int) -> None:
        """One window at a time, as some may reach over the border."""
        p = self.problem
        with k.loop("c", 0, count) as c:
            left = k.let("left", first + c * p.strides[1]) if count > 1 else first
            routine, inside = gather(count, self.x.dtype), p.inside(row.top, left)
            if inside is True:
                self._runs(k, row, left, routine, count, c * 2)
            elif inside is False:
                self._over(k, row, left, count, c * 2)
            else:
                with k.when(inside):
                    self._runs(k, row, left, routine, count, c * 2)
                with k.otherwise():
                    self._over(k, row, left, count, c * 2)

    def _runs(self, k: Builder, row: Row, left: Expr, routine: Routine, count: int, to: Expr, *more: int) -> None:
        """The window of `left`; `more` are arguments behind its place."""
        p = self.problem
        (kh, kw), (dh, dw) = p.kernel, p.dilations
        start = k.let("start", row.base + (row.top * p.width + left) * p.channels)
        down = dh * p.width * p.channels if kh > 1 else 0
        if p.joined:
            span = idx(p.depth * count) if p.pointwise else None  # in place, results go where these were
            k.call(routine, Place(self.x, start, span), *more, down, kh, kw * p.depth, Place(self.columns, to))
            return
        pairs = -(-p.depth // 2) * kw
        with k.loop("i", 0, kh) as i:
            target = Place(self.columns, to + i * (2 * count * pairs))
            k.call(routine, Place(self.x, start + i * down), *more, dw * p.channels, kw, p.depth, target)

    def _over(self, k: Builder, row: Row, left: Expr, count: int, to: Expr) -> None:
        p = self.problem
        k.call(
            edge(count, self.x.dtype), Place(self.x, row.base), row.top, left, p.height, p.width, p.channels, *p.kernel,
            *p.dilations, p.depth, int(p.joined), self.zero, Place(self.columns, to),
        )  # fmt: skip

    def multiply(self, k: Builder, columns: Place, count: int, g: Expr, out: Expr) -> None:
        p, packed = self.problem, self.product
        size = -(-p.columns // 2) * 2  # of a group, in whole pairs of channels
        low, high = self.outs or (idx(0), idx(p.columns))
        columns_here = high - low
        w = Place(packed.w, (g * size + low) * (packed.pairs * word_bytes(packed.variant.layout) // 2))
        scale = Place(packed.scale, (g * size + low) * WORDS)
        routine = tile(count, replace(packed.variant, sum=None), packed.pairs)
        if self.added is None:
            y = Place(self.y, out + low, columns_here, idx(count), p.out_channels)
            k.call(routine, w, scale, columns, packed.pairs, columns_here, y, p.out_channels, *self.more)
            return
        k.call(routine, w, scale, columns, packed.pairs, p.columns, Place(self.added.results, idx(0)), p.columns, *self.more)
        rows, length = (1, count * p.columns) if p.group == 1 else (count, p.columns)
        with k.loop("c", 0, rows) as c:
            at, to = Place(self.added.results, c * p.columns), out + c * p.out_channels
            other, record = Place(self.added.other, to, idx(length)), Place(self.added.record, idx(0))
            k.call(add(self.added.sum), at, other, Place(self.y, to, idx(length)), length, record)


def multiply_single(
    k: Builder, product: Product, column: Buffer, outs: tuple[Expr, Expr], y: Buffer, *more: Expr
) -> Variant:  # fmt: skip
    """One column, bytes as they are or pairs; `outs`: from which channel to which."""
    variant = replace(product.variant, column="column" if column.dtype is DType.I16 else column.dtype.value)
    low, count = outs[0], outs[1] - outs[0]
    w = Place(product.w, low * (product.pairs * word_bytes(variant.layout) // 2))
    places = (Place(column, idx(0)), w, Place(product.scale, low * WORDS), Place(y, low, count))  # as a layer has them
    k.call(dense(variant), *places, product.pairs, count, *more)
    return variant
