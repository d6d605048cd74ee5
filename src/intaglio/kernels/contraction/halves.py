"""Convolutions and matrix products of bytes on cores that multiply 32 by 32 bits and nothing smaller (Cortex-M0+, M3, RV32).

    word = first + 2^16 * second        the same number of the windows of two pixels
    word * w = first * w + 2^16 * (second * w)

So one multiplication is two products, and one addition adds both, as long as the sums of both halves fit 16 bits. Whether they do
is known from the weights: four neighbours of a channel fit if they are at most 255 in size together, two always do unless both are
-128. After four products, or after two where four may not fit, the halves are split and added to whole sums. A list of runs says
how many fours of a channel fit before each one that does not.

Four pixels are gathered at a time, over the ends of rows, and multiplied by one channel after the other. A sum with another tensor
that follows a convolution is its last step. Does not apply to depthwise convolutions and where sums need the slow ways of scaling.
A single pixel is in `halves_row.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.columns import by_outs
from intaglio.kernels.contraction.halves_parts import (
    RECORD,
    THUMB,
    C,
    finishes,
    fits,
    fits_each,
    full_records,
    other_core,
    scaled_part,
    signed,
)
from intaglio.kernels.contraction.halves_row import pack_row, row
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.dsp.conv import beside_of
from intaglio.kernels.dsp.pairs import Added, small
from intaglio.kernels.dsp.primitives import BASE
from intaglio.kernels.dsp.scaling import Scaled, finished, scaled_of
from intaglio.kernels.dsp.sums import add
from intaglio.kernels.dsp.variants import C_TYPES, Finish, How, Sum
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Buffer, Expr, Place, idx, imin
from intaglio.kernels.routines import Routine, no_meaning, routine_of
from intaglio.ops.quantised import QConv

PIXELS = 4
FOUR = 4  # weights that are read at once
SPLIT = -(2**31)  # added to the shift of a record: some fours are split after two products, and the channel has runs
MOST = 255  # fours of a run


# Routines -----------------------------------------------------------------------------------------------------------------


def _side_by_side(to: Array, at: int, runs: list[Array]) -> int:
    """Runs of four pixels as words; the next word."""
    a, b, c, d = (signed(run) for run in runs)
    for n, word in enumerate((a + (b << 16), c + (d << 16))):
        to[at + n : at + n + 2 * a.size : 2] = word.astype(np.uint32).view(np.int32) if word.size else word
    return at + 2 * a.size


def _pack(kind: DType) -> Routine:
    name = f"halves_pack_{kind.value}"
    return routine_of(C / "halves_pack.c", name, no_meaning, (BASE,), TYPE=C_TYPES[kind], SIGNED=kind is DType.I8)


@cache
def rows(kind: DType) -> Routine:
    """Four rows of a matrix."""

    def meaning(x: Array, depth: int, count: int, to: Array) -> None:
        starts = [min(p, count - 1) * depth for p in range(PIXELS)]
        _side_by_side(to, 0, [x[at : at + depth] for at in starts])

    names = {"TYPE": C_TYPES[kind], "PACK": f"ig_halves_pack_{kind.value}"}
    return routine_of(C / "halves_rows.c", f"halves_rows_{kind.value}", meaning, (BASE, _pack(kind)), **names)


@cache
def windows(kind: DType) -> Routine:
    """The windows of four pixels."""

    def meaning(
        x: Array, outside: Array, row: int, column: int, out_width: int, count: int, stride_down: int, stride_across: int,
        pad_top: int, pad_left: int, height: int, width: int, channels: int, rows: int, cols: int, down: int, across: int,
        depth: int, to: Array,
    ) -> None:  # fmt: skip
        places = [divmod(row * out_width + column + min(p, count - 1), out_width) for p in range(PIXELS)]
        at = 0
        for tap in range(rows * cols):
            i, j = divmod(tap, cols)
            runs = []
            for r, c in places:
                h, w = r * stride_down - pad_top + i * down, c * stride_across - pad_left + j * across
                start = (h * width + w) * channels
                inside = 0 <= h < height and 0 <= w < width
                runs.append(x[start : start + depth] if inside else outside[:depth])
            at = _side_by_side(to, at, runs)

    names = {"TYPE": C_TYPES[kind], "PACK": f"ig_halves_pack_{kind.value}"}
    return routine_of(C / "halves_windows.c", f"halves_windows_{kind.value}", meaning, (BASE, _pack(kind)), **names)


@cache
def products(finish: Finish) -> Routine:
    """Four pixels times all channels."""

    def meaning(
        w: Array, scale: Array, runs: Array, pixels: Array, fours: int, outs: int, zero: int, count: int, y: Array, y_step: int
    ) -> None:  # fmt: skip
        weights = w[: outs * FOUR * fours].reshape(outs, -1).astype(np.int64)
        words = pixels[: 2 * FOUR * fours].reshape(-1, 2).astype(np.int64)
        low = words.astype(np.int16).astype(np.int64)
        values = np.stack([low, (words - low) >> 16], axis=2).reshape(-1, PIXELS)
        records = full_records(scale, outs, zero)
        results = finished((weights @ values).T + records[:, 0], records, finish)
        for p in range(count):
            y[p * y_step : p * y_step + outs] = results[p]

    (low, high), part = finish.out.bounds, scaled_part(finish.how)
    sums = routine_of(
        C / "halves_sums.c", f"halves_sums_{finish.how}", no_meaning, (BASE, THUMB, part), TWICE=finish.how is How.TWICE,
        SCALED=f"ig_{part.name}",
    )  # fmt: skip
    names = {"Y_TYPE": C_TYPES[finish.out.to], "SUMS": f"ig_{sums.name}"}
    return routine_of(C / "halves.c", f"halves_{finish}", meaning, (BASE, sums), LOW=low, HIGH=high, **names)


# The kernel ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Packed:
    """Weights [channel][number of the window], with zeros to fours; of a single row as in `halves_row.py`. Records."""

    w: Array
    records: Array
    runs: Array | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    scaled: Scaled
    packed: Packed
    beside: tuple[Sum, Array] | None  # the sum that follows, with its record


@fact
def facts(job: Job) -> Facts | str:
    """What the kernel needs, or why it does not apply."""
    op = job.node.op
    if reason := other_core(job):
        return reason
    known = scaled_of(job)
    if isinstance(known, str):
        return known
    beside = beside_of(job, op) if isinstance(op, QConv) and op.epilogue else None
    if isinstance(beside, str):
        return beside
    p, n = known.problem, known.numbers
    if p.group > 1 and p.depth == 1:
        return "every group has one input channel"
    if not small(n.weights):
        return "the weights do not fit 8 bits"
    if not finishes(known.scales.finish, n.reach):
        return "sums are scaled in a slow way"
    packed = _packed(known)
    return packed if isinstance(packed, str) else Facts(known, packed, beside)


def single(known: Scaled) -> bool:
    """Is there one pixel, the whole image, and nothing to add?"""
    return known.name != "qconv" and known.problem.rows == 1


def _packed(known: Scaled) -> Packed | str:
    n, p = known.numbers, known.problem
    weights = n.runs(p.group, True).reshape(n.outs, p.taps)
    weights = weights if single(known) else np.pad(weights, ((0, 0), (0, -p.taps % FOUR)))
    if weights.shape[1] % FOUR:
        return "there is one row, and its length is not a multiple of four"
    if not fits(weights, 2):
        return "two neighbouring weights are -128"
    records = known.scales.records[:, [0, 1, 3]].astype(np.int64)
    if n.x is DType.U8:  # bytes are moved by 128 when they are gathered
        records[:, 0] += 128 * weights.sum(axis=1)
    if single(known):
        return Packed(*pack_row(weights, records))
    runs: list[int] = []
    for record, good in zip(records, fits_each(weights, FOUR), strict=True):
        if not good.all():
            record[2] += SPLIT + (len(runs) << 5)
            runs += runs_of_fours(good)
    return Packed(weights.astype(np.int8), records.astype(np.int32), np.asarray(runs or [0], np.uint8))


def runs_of_fours(good: Array) -> list[int]:
    """How many fit before each four that does not, and after the last; a run that is too long ends with one that fits."""
    runs, run = [], 0
    for fit in good:
        early = not fit or run == MOST
        runs += [run] if early else []
        run = 0 if early else run + 1
    return runs + ([run] if run else [])


@dataclass(frozen=True, slots=True)
class Halves:
    """The buffers of a kernel; `outside` is None where no window reaches over the border."""

    problem: Problem
    x: Buffer
    outside: Buffer | None
    pixels: Buffer
    w: Buffer
    scale: Buffer
    runs: Buffer
    y: Buffer
    finish: Finish
    y_zero: int
    added: Added | None = None

    @property
    def fours(self) -> int:
        return -(-self.problem.taps // FOUR)

    def gather(self, k: Builder, base: Expr, at: Expr, count: Expr) -> None:
        p, to = self.problem, Place(self.pixels, idx(0))
        if p.pointwise:
            k.call(rows(self.x.dtype), Place(self.x, base + at * p.depth, count * p.depth), p.depth, count, to)
            return
        row = k.let("row", at // p.out_width)
        column = k.let("column", at - row * p.out_width)
        outside = Place(self.x if self.outside is None else self.outside, idx(0))
        k.call(
            windows(self.x.dtype), Place(self.x, base), outside, row, column, p.out_width, count, *p.strides, *p.pads, p.height,
            p.width, p.channels, *p.kernel, *p.dilations, p.depth, to,
        )  # fmt: skip

    def multiply(self, k: Builder, g: Expr, count: Expr, out: Expr, span: tuple[Expr, Expr]) -> None:
        """Channels of a group, from the first of `span` to the second."""
        p, fours = self.problem, self.fours
        low, columns = span[0], span[1] - span[0]
        first = g * p.columns + low
        w, scale = Place(self.w, first * (FOUR * fours)), Place(self.scale, first * RECORD)
        runs, pixels = Place(self.runs, idx(0)), Place(self.pixels, idx(0))
        to, step = Place(self.y, out + low, columns, count, p.out_channels), p.out_channels
        if self.added is not None:
            to, step = Place(self.added.results, idx(0)), p.columns
        k.call(products(self.finish), w, scale, runs, pixels, fours, columns, self.y_zero, count, to, step)
        if self.added is not None:
            rows, length = (idx(1), count * p.columns) if p.group == 1 else (count, idx(p.columns))
            with k.loop("c", 0, rows) as c:
                at = out + c * p.out_channels
                other, record = Place(self.added.other, at, length), Place(self.added.record, idx(0))
                results, y = Place(self.added.results, c * p.columns), Place(self.y, at, length)
                k.call(add(self.added.sum), results, other, y, length, record)


def contraction_halves(job: Job) -> Lowered:
    found, k = facts(job), job.k
    assert isinstance(found, Facts)
    known, p, numbers = found.scaled, found.scaled.problem, found.scaled.numbers
    x, finish = job.operand(0, "x"), known.scales.finish
    using = f"{known.name}_halves({x.dtype.value}_{finish})"
    w = job.packed(found.packed.w.reshape(-1), "w")
    scale = job.packed(found.packed.records.reshape(-1), "scale", DType.I32)
    if single(known):
        y = job.writes()
        low, high = job.share("o", p.out_channels, FOUR)
        outs = high - low
        places = (Place(w, low * p.depth), Place(scale, low * RECORD), Place(x, idx(0)))
        k.call(row(x.dtype, finish), *places, p.depth, outs, numbers.y_zero, Place(y, low, outs))
        return job.done(known.stem, f"{known.title}\nweights packed [channel / 4][number][4]", using)
    outside = job.packed(np.full(p.depth, numbers.x_zero, x.dtype.numpy), "outside", x.dtype) if p.padded else None
    assert found.packed.runs is not None
    runs = job.packed(found.packed.runs, "runs")
    over, added, stem = None, None, known.stem
    if found.beside is not None:
        over, record = job.operand(5, "other"), job.packed(found.beside[1], "record", DType.I32)
        added = Added(found.beside[0], over, record, job.scratch(PIXELS * p.columns, "results", numbers.to, own=True))
        using, stem = using.replace(")", f"_sum_{found.beside[0]})"), f"{stem}_sum"
    y = job.writes()
    pixels = job.scratch(2 * FOUR * -(-p.taps // FOUR), "pixels", DType.I32, own=True)
    micro = Halves(p, x, outside, pixels, w, scale, runs, y, finish, numbers.y_zero, added)
    size = p.out_height * p.out_width
    by_channels = added is None and by_outs(job, -(-size // PIXELS), p.columns)
    low, high = (idx(0), idx(size)) if by_channels else job.share("at", size, PIXELS)
    span = job.share("o", p.columns, 1) if by_channels else (idx(0), idx(p.columns))
    with k.loop("n", 0, p.batch) as n, k.loop("g", 0, p.group) as g, k.loop("at", low, high, PIXELS) as at:
        count = k.let("count", imin(PIXELS, idx(size) - at)) if size % PIXELS else idx(PIXELS)
        micro.gather(k, k.let("base", n * (p.height * p.width * p.channels) + g * p.depth), at, count)
        micro.multiply(k, g, count, k.let("out", (n * size + at) * p.out_channels + g * p.columns), span)
    about = f"{known.title}\n{'rows' if p.pointwise else 'NHWC, windows'} of four pixels, two in a word"
    same = p.pointwise and over is None and not by_channels  # a part writes pixels that another has yet to read
    return job.done(stem, about, using, in_place=same, over=over)
