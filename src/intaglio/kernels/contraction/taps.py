"""Depthwise convolution of 8-bit numbers: each channel for itself, channels in the lanes, two taps per instruction.

    x0, x1 = 16 channels of a pixel and of the one below it         AVX2
    lo, hi = zip_low(x0, x1), zip_high(x0, x1)                      pairs of taps side by side
    acc0_lo = dot2(acc0_lo, lo, w[pair].lo);  acc0_hi = ...         for every output pixel that reads this column

Rows of the window are taken two at a time; what is left of an odd number pairs neighbours in the row. Each zipped column is used by
all windows that cover it. NEON multiplies and adds one tap at a time without zipping. Channels that do not fill vectors, with
stride 1, are taken as a flat row: a vector covers the end of one pixel and the start of the next, and the weights repeat after as
many vectors as it takes until channel 0 comes first again (5 vectors for 5 channels).

Input rows wait in a stage (`stage.py`), padding included. Does not apply to several output channels per input channel: `dots.py`
takes these, in groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.sizes import Size, most
from intaglio.ir.types import DType
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.quantised import Quantised, not_bytes, quantised_of
from intaglio.kernels.contraction.scaling import Bytes, Factor, Scaling, factor_of, i16, i32, scaling_of
from intaglio.kernels.contraction.stage import Stage, stage_of
from intaglio.kernels.contraction.tile import parse_pixels
from intaglio.kernels.estimate import micros
from intaglio.kernels.isa import Isa
from intaglio.kernels.isa.meaning import INTEGER_MEANING
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Buffer, Expr, Load, Op, Type, Var, idx, imin
from intaglio.ops.quantised import QConv

PIXELS = (4, 5, 3, 2, 1)  # at a time
PAIR_CYCLES, COLUMN_CYCLES, END_CYCLES = 2.0, 3.0, 12.0  # of 2 vectors: a step, a zipped column, start and scaling of a pixel
FEW_TAPS = 100  # up to here, several pixels at a time
ONE_PIXEL = 6  # registers: sums, biases and scales, two of each
MOST_TAPS = 400  # all taps of a tile are written out
MOST_ENDS = 4  # of a flat row whose width has a range: what is left behind its whole vectors is code for each of so many lengths
Tap = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Taps:
    """One step: two taps, or one (`second` is None)."""

    first: Tap
    second: Tap | None


def steps_of(kernel: tuple[int, int], at_once: int) -> list[Taps]:
    kh, kw = kernel
    if at_once == 1:
        return [Taps((i, j), None) for i in range(kh) for j in range(kw)]
    steps = [Taps((i, j), (i + 1, j)) for i in range(0, kh - 1, 2) for j in range(kw)]
    if kh % 2:
        steps += [Taps((kh - 1, j), (kh - 1, j + 1) if j + 1 < kw else None) for j in range(0, kw, 2)]
    return steps


def flat_pixels(p: Problem, wide: int) -> int:
    """How many pixels it takes until channel 0 is first in a vector again; 1 where each pixel has vectors of its own."""
    used = p.channels / (-(-p.channels // wide) * wide)
    repeat = math.lcm(p.channels, wide) // p.channels if p.strides[1] == 1 and used < 0.8 else 1
    return 1 if isinstance(p.out_width, Size) and repeat > MOST_ENDS else repeat


def pixels_of(job: Job, positions: int, taps: int) -> int:
    """Output pixels at a time: as even as possible, their sums must stay in registers. Where the caller gives their number, one if
    all weights stay in registers beside the sums and the scales of one pixel, but not beside the sums of several: 3x3 on AVX2."""
    if taps > FEW_TAPS:
        return 1
    if isinstance(positions, Size):
        several = next(n for n in PIXELS if n <= most(positions))
        weights, registers = 2 * -(-taps // job.isa.integers.taps), job.target.registers
        return 1 if weights + ONE_PIXEL <= registers < weights + 2 * several else several
    return min(PIXELS, key=lambda p: (-(-positions // p) * p, -(-positions // p)))


def lane_order(isa: Isa) -> Array:
    """Which channel of a vector each lane of the two sums belongs to."""
    channels = np.arange(2 * isa.lanes)
    if isa.integers.taps == 1:
        return channels
    return np.concatenate([INTEGER_MEANING[f"vzip_{part}"](channels, channels)[::2] for part in ("low", "high")])


@dataclass(frozen=True, slots=True)
class Facts:
    problem: Problem
    numbers: Quantised  # weights [C, 1, kh, kw] of this problem
    scaling: Scaling


@fact
def taps_of(job: Job) -> Facts | str:
    """What the kernel needs, or why it does not apply."""
    op = job.node.op
    assert isinstance(op, QConv)
    if not job.isa.integers.dots:
        return "the target has no integer vectors"
    if reason := not_bytes(job):
        return reason
    if op.epilogue:
        return "another layer is fused into it"
    original = problem_of(job)
    if not original.depthwise:
        return "it is not depthwise"
    if original.kernel[0] * original.kernel[1] > MOST_TAPS:
        return f"the window has more than {MOST_TAPS} taps"
    numbers = quantised_of(job)
    if isinstance(numbers, str):
        return numbers
    problem = original.upright()
    if problem is not original:
        numbers = replace(numbers, weights=numbers.weights.transpose(0, 1, 3, 2))
    scaling = scaling_of(numbers, job.isa)
    return scaling if isinstance(scaling, str) else Facts(problem, numbers, scaling)


def qdepthwise(job: Job) -> Lowered:
    known, isa, original = taps_of(job), job.isa, problem_of(job)
    assert not isinstance(known, str)
    p, numbers = known.problem, known.numbers
    wide = 2 * isa.lanes
    repeat = flat_pixels(p, wide)
    padded = -(-p.channels * repeat // wide) * wide
    order = lane_order(isa)

    def arrange(values: Array) -> Array:
        """A number per channel as whole vectors, in the order of the lanes."""
        out = np.zeros(padded, values.dtype)
        out[: p.channels * repeat] = np.tile(np.broadcast_to(values, (p.channels,)), repeat)
        return np.ascontiguousarray(out.reshape(-1, wide)[:, order]).reshape(-1)

    x = job.operand(0, "x")
    steps = steps_of(p.kernel, isa.integers.taps)
    w = job.packed(_packed(isa, numbers.weights[:, 0], steps, repeat, padded), "w")
    first = job.packed(arrange(numbers.starts(numbers.x_zero)), "b")
    factor = factor_of(job, known.scaling, arrange)
    out = Bytes(isa, numbers.y_zero, numbers.low, numbers.high, numbers.to)
    stage = stage_of(job, p, x, DType.I16, numbers.x_zero, False)
    pixels = 1 if repeat > 1 else parse_pixels(job.asked, PIXELS) or pixels_of(job, p.out_width, p.taps)
    writer = _Writer(job, p, stage, steps, w, first, factor, out, job.writes(), repeat, pixels)
    writer.image()
    about = (
        f"{original.title('depthwise qconv', apart=True)}, {x.dtype.value}\n"
        f"{'a flat row' if repeat > 1 else f'{pixels} pixels'} x {wide} channels at a time, weights packed "
        + ("[block][kh/2][kw][c][2]" if isa.integers.taps == 2 else "[block][kh][kw][c]")
    )
    return job.done(original.stem("qdepthwise", apart=True), about, f"qdepthwise_lanes(pixels={pixels})")


def taps_ways(job: Job) -> list[str]:
    """The usual number of pixels first; a flat row has no others."""
    known = taps_of(job)
    assert not isinstance(known, str)
    p = known.problem
    if flat_pixels(p, 2 * job.isa.lanes) > 1:
        return ["qdepthwise_lanes(pixels=1)"]
    usual = pixels_of(job, p.out_width, p.taps)
    possible = [n for n in PIXELS if n <= most(p.out_width) and (n == 1 or p.taps <= FEW_TAPS)]
    return [f"qdepthwise_lanes(pixels={n})" for n in sorted(possible, key=lambda n: n != usual)]


def taps_estimate(job: Job) -> float:
    known = taps_of(job)
    assert not isinstance(known, str)
    p, lanes = known.problem, job.isa.lanes
    pixels = parse_pixels(job.asked, PIXELS) or pixels_of(job, p.out_width, p.taps)
    steps = len(steps_of(p.kernel, job.isa.integers.taps))
    shared = steps * min(1.0, ((pixels - 1) * p.strides[1] + p.kernel[1]) / (pixels * p.kernel[1]))  # columns of several pixels
    vectors = -(-p.channels // (2 * lanes))
    each = steps * PAIR_CYCLES + shared * COLUMN_CYCLES + END_CYCLES
    return micros(job.target, lanes, p.rows * vectors * each, p.taps * p.channels)


def _packed(isa: Isa, weights: Array, steps: list[Taps], repeat: int, padded: int) -> Array:
    """Weights [C, kh, kw] as vectors, block by block, step by step; two taps are zipped as the pixels will be."""
    wide = 2 * isa.lanes
    channels = weights.shape[0]

    def lanes(tap: Tap | None) -> Array:
        out = np.zeros(padded, np.int16)
        if tap is not None:
            out[: channels * repeat] = np.tile(weights[:, tap[0], tap[1]], repeat)
        return out.reshape(-1, wide)

    blocks: list[list[Array]] = [[] for _ in range(padded // wide)]
    for step in steps:
        pair = zip(lanes(step.first), lanes(step.second), strict=True)
        for block, (one, two) in zip(blocks, pair, strict=True):
            if isa.integers.taps == 1:
                block.append(one)
            else:
                block += [INTEGER_MEANING[f"vzip_{part}"](one, two) for part in ("low", "high")]
    return np.concatenate([v for block in blocks for v in block])


class _Writer:
    def __init__(
        self, job: Job, p: Problem, stage: Stage, steps: list[Taps], w: Buffer, bias: Buffer, factor: Factor, out: Bytes,
        y: Buffer, repeat: int, pixels: int,
    ) -> None:  # fmt: skip
        self.k, self.isa, self.problem, self.stage, self.steps = job.k, job.isa, p, stage, steps
        self.w, self.bias, self.factor, self.bytes, self.y = w, bias, factor, out, y
        self.wide = 2 * job.isa.lanes
        self.flat = repeat > 1
        self.at_once = job.isa.integers.taps
        self.advance = repeat * p.channels if self.flat else p.strides[1] * p.channels
        self.spacing = repeat * p.channels
        self.pixels = pixels

    def image(self) -> None:
        p, k, stage = self.problem, self.k, self.stage
        stage.prepare(k)
        line = p.out_width * p.channels
        with k.loop("n", 0, p.batch) as n, k.steps("stripe", p.out_height, stage.stripe) as first:
            base = stage.load(k, n, first, idx(0))

            def rows(block: Expr, start: int, stop: int | Expr, count: int) -> None:
                """Positions from `start` to `stop` of a block of channels, in all rows of the stripe."""
                with k.loop("oh", first, imin(first + stage.stripe, p.out_height)) as oh:
                    column = block * self.wide
                    place = k.let("line", stage.place(oh, first, base) + column)
                    out = k.let("out", (n * p.out_height + oh) * line + column)
                    self._row(place, out, block, start, stop, count)

            if self.flat:
                cycle = self.spacing // self.wide  # vectors until the channels repeat
                vectors = line // self.wide
                with k.loop("block", 0, cycle if isinstance(vectors, Size) else min(cycle, vectors)) as block:
                    stop = (idx(vectors + cycle - 1) - block) // cycle
                    rows(block, 0, vectors if cycle == 1 else k.let("stop", stop), self.wide)
                ends = vectors // cycle

                def end(rest: int) -> None:
                    with k.block():
                        rows(idx(vectors - ends * cycle), ends, ends + 1, rest)

                k.one_of(line - vectors * self.wide, end)
                return
            whole, tail = divmod(p.channels, self.wide)
            with k.loop("block", 0, whole) as block:
                rows(block, 0, p.out_width, self.wide)
            if tail:
                with k.block():
                    rows(idx(whole), 0, p.out_width, tail)

    def _row(self, line: Expr, out: Expr, block: Expr, start: int, stop: int | Expr, count: int) -> None:
        k = self.k
        if isinstance(stop, Expr):
            with k.loop("p", start, stop) as first:
                self._tile(first, [count], line, out, block)
            return
        full = (stop - start) // self.pixels * self.pixels + start
        with k.loop("p", start, full, self.pixels) as first:
            self._tile(first, [count] * self.pixels, line, out, block)

        def end(left: int) -> None:
            with k.block():
                self._tile(idx(full), [count] * left, line, out, block)

        k.one_of(stop - full, end)

    def _tile(self, first: Expr, counts: list[int], line: Expr, out: Expr, block: Expr) -> None:
        k, lanes, p = self.k, self.isa.lanes, self.problem
        start = k.let("start", line + first * self.advance)
        halves = [k.let(f"bias{h}", Load(self.bias, block * self.wide + h * lanes, i32(self.isa))) for h in (0, 1)]
        acc = [[k.var(f"acc{n}_{h}", halves[h]) for h in (0, 1)] for n in range(len(counts))]
        panel = k.let("panel", block * (len(self.steps) * self.at_once * self.wide))
        readers: dict[tuple[int, Tap | None, int], list[tuple[int, int]]] = {}  # place of a step's taps -> (pixel, step)
        for s, step in enumerate(self.steps):
            beside = None if step.second is None else (step.second[0] - step.first[0], step.second[1] - step.first[1])
            for n in range(len(counts)):
                column = n * self.advance + step.first[1] * p.dilations[1] * p.channels
                readers.setdefault((step.first[0], beside, column), []).append((n, s))
        for (row, beside, column), uses in sorted(readers.items(), key=lambda item: (item[0][0], item[0][2])):
            at = row * p.dilations[0] * self.stage.pitch + column
            one = k.let("x", self._pixels(start + at))
            pair = [one, one]
            if self.at_once == 2:
                two: Expr = one
                if beside is not None:
                    off = beside[0] * p.dilations[0] * self.stage.pitch + beside[1] * p.dilations[1] * p.channels
                    two = k.let("beside", self._pixels(start + (at + off)))
                pair = [k.let(part, Op(f"vzip_{part}", (one, two), i16(self.isa))) for part in ("low", "high")]
            for n, s in uses:
                self._multiply(acc[n], pair, panel + s * (self.at_once * self.wide))
        constants = [self.factor.constants(k, block * self.wide + h * lanes, str(h)) for h in (0, 1)]
        for n, count in enumerate(counts):
            values = [self.factor.apply(k, acc[n][h], constants[h]) for h in (0, 1)]
            self.bytes.store(k, self.y, out + (first + n) * self.spacing, count, values, zipped=self.at_once == 2)

    def _pixels(self, at: Expr) -> Expr:
        return Load(self.stage.buffer, at, Type("i16", self.wide))

    def _multiply(self, acc: list[Var], pair: list[Expr], w_at: Expr) -> None:
        for h, part in enumerate(("low", "high")):
            name, at = ("vdot2", w_at + h * self.wide) if self.at_once == 2 else (f"vtap_{part}", w_at)
            weight = self.k.let(f"w_{part}", Load(self.w, at, Type("i16", self.wide)))
            self.k.assign(acc[h], Op(name, (acc[h], pair[h], weight), i32(self.isa)))
