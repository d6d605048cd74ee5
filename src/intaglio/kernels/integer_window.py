"""Depthwise convolution of 8-bit numbers: each channel for itself, channels in the lanes, two taps per instruction.

    x0, x1 = 16 channels of a pixel and of the one below it         AVX2
    lo, hi = zip_low(x0, x1), zip_high(x0, x1)                      pairs of taps side by side
    acc0_lo = dot2(acc0_lo, lo, w[pair].lo);  acc0_hi = ...         for every output pixel that reads this column

Rows of the window are taken two at a time; what is left of an odd number pairs neighbours in the row. Each zipped column is used by
all windows that cover it. NEON multiplies and adds one tap at a time without zipping. Channels that do not fill vectors, with
stride 1, are taken as a flat row: a vector covers the end of one pixel and the start of the next, and the weights repeat after as
many vectors as it takes until channel 0 comes first again (5 vectors for 5 channels).

Input rows wait in a stage (`integer_stage.py`), padding included. Does not apply to several output channels per input channel
(`integer_conv.py` in groups) or where that does not (`quantised.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.conv import Geometry
from intaglio.kernels.integer_conv import constants_of, qgeometry, size_of, takes, upright
from intaglio.kernels.integer_scaling import Bytes, Factor, factor_of, i16, i32
from intaglio.kernels.integer_stage import Stage, stage_of
from intaglio.kernels.isa import Isa
from intaglio.kernels.isa_integer import INTEGER_MEANING
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Op, Type, Var, idx, imin
from intaglio.ops.quantised import QConv

MOST_TAPS = 400  # all taps of a tile are written out
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


def flat_pixels(geo: Geometry, wide: int) -> int:
    """How many pixels it takes until channel 0 is first in a vector again; 1 where each pixel has vectors of its own."""
    used = geo.channels / (-(-geo.channels // wide) * wide)
    return math.lcm(geo.channels, wide) // geo.channels if geo.strides[1] == 1 and used < 0.8 else 1


def pixels_of(positions: int, taps: int) -> int:
    """Output pixels at a time: as even as possible, their sums must stay in registers."""
    if taps > 100:
        return 1
    return min((4, 5, 3, 2, 1), key=lambda p: (-(-positions // p) * p, -(-positions // p)))


def lane_order(isa: Isa) -> Array:
    """Which channel of a vector each lane of the two sums belongs to."""
    channels = np.arange(2 * isa.lanes)
    if isa.integers.taps == 1:
        return channels
    return np.concatenate([INTEGER_MEANING[f"vzip_{part}"](channels, channels)[::2] for part in ("low", "high")])


def qdepthwise(job: Job) -> Lowered | None:
    op, isa = job.node.op, job.isa
    assert isinstance(op, QConv)
    known = constants_of(job) if takes(job, op.to) and not op.epilogue else None
    if known is None or op.group == 1 or not job.type(0).shape[-1] == op.group == job.node.output.shape[-1]:
        return None
    weights, bias, multiplier, shift = known
    original = qgeometry(job, op)
    geo = upright(original)
    centred = (weights.astype(np.int64) - op.w_zero).reshape(geo.channels, *original.kernel)
    if geo is not original:
        centred = centred.transpose(0, 2, 1)
    taps = centred.shape[1] * centred.shape[2]
    if taps > MOST_TAPS:
        return None
    wide = 2 * isa.lanes
    repeat = flat_pixels(geo, wide)
    padded = -(-geo.channels * repeat // wide) * wide
    order = lane_order(isa)

    def arrange(values: Array) -> Array:
        """A number per channel as whole vectors, in the order of the lanes."""
        out = np.zeros(padded, values.dtype)
        out[: geo.channels * repeat] = np.tile(np.broadcast_to(values, (geo.channels,)), repeat)
        return np.ascontiguousarray(out.reshape(-1, wide)[:, order]).reshape(-1)

    x = job.operand(0, "x")
    steps = steps_of(geo.kernel, isa.integers.taps)
    w = job.packed(_packed(isa, centred, steps, repeat, padded), "w")
    real = bias if bias is not None and bias.dtype == np.float32 else None
    b = np.zeros(geo.channels, np.int64) if bias is None or real is not None else bias.astype(np.int64)
    first = job.packed(arrange((b - op.x_zero * centred.sum(axis=(1, 2))).astype(np.int32)), "b")
    reach = np.abs(centred).sum(axis=(1, 2)) * size_of(x.dtype, op.x_zero) + np.abs(b)
    factor = factor_of(job, op.scaling, multiplier, shift, int(reach.max(initial=0)), arrange, real)
    if factor is None:
        return None
    out = Bytes(isa, op.y_zero, op.low, op.high, op.to)
    stage = stage_of(job, geo, x, DType.I16, op.x_zero, False)
    writer = _Writer(job, geo, stage, steps, w, first, factor, out, job.writes(), repeat, taps)
    writer.image()
    pixels = writer.pixels
    kh, kw = original.kernel
    about = (
        f"depthwise qconv {kh}x{kw}, {geo.channels} channels, {original.height}x{original.width} -> "
        f"{original.out_height}x{original.out_width}, stride {original.strides[0]}x{original.strides[1]}, {x.dtype.value}\n"
        f"{'a flat row' if repeat > 1 else f'{pixels} pixels'} x {wide} channels at a time, weights packed "
        + ("[block][kh/2][kw][c][2]" if isa.integers.taps == 2 else "[block][kh][kw][c]")
    )
    return job.done(f"qdepthwise{kh}x{kw}_{geo.channels}", about, f"qdepthwise_lanes(pixels={pixels})")


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
        self, job: Job, geo: Geometry, stage: Stage, steps: list[Taps], w: Buffer, bias: Buffer, factor: Factor, out: Bytes,
        y: Buffer, repeat: int, taps: int,
    ) -> None:  # fmt: skip
        self.k, self.isa, self.geo, self.stage, self.steps = job.k, job.isa, geo, stage, steps
        self.w, self.bias, self.factor, self.bytes, self.y = w, bias, factor, out, y
        self.wide = 2 * job.isa.lanes
        self.flat = repeat > 1
        self.at_once = job.isa.integers.taps
        self.advance = repeat * geo.channels if self.flat else geo.strides[1] * geo.channels
        self.spacing = repeat * geo.channels
        self.pixels = 1 if self.flat else pixels_of(geo.out_width, taps)

    def image(self) -> None:
        geo, k, stage = self.geo, self.k, self.stage
        stage.prepare(k)
        line = geo.out_width * geo.channels
        with k.loop("n", 0, geo.batch) as n, k.loop("stripe", 0, geo.out_height, stage.stripe) as first:
            base = k.let("base", n * (geo.height * geo.width * geo.channels))
            stage.load(k, base, first)

            def rows(block: Expr, start: int, stop: Expr, count: int) -> None:
                """Positions from `start` to `stop` of a block of channels, in all rows of the stripe."""
                with k.loop("oh", first, imin(first + stage.stripe, geo.out_height)) as oh:
                    column = block * self.wide
                    place = k.let("line", stage.place(oh, first, base) + column)
                    out = k.let("out", (n * geo.out_height + oh) * line + column)
                    self._row(place, out, block, start, stop, count)

            if self.flat:
                cycle = self.spacing // self.wide  # vectors until the channels repeat
                vectors, rest = divmod(line, self.wide)
                with k.loop("block", 0, min(cycle, vectors)) as block:
                    stop = (idx(vectors + cycle - 1) - block) // cycle
                    rows(block, 0, idx(vectors) if cycle == 1 else k.let("stop", stop), self.wide)
                if rest:
                    with k.block():
                        rows(idx(vectors % cycle), vectors // cycle, idx(vectors // cycle + 1), rest)
                return
            whole, tail = divmod(geo.channels, self.wide)
            with k.loop("block", 0, whole) as block:
                rows(block, 0, idx(geo.out_width), self.wide)
            if tail:
                with k.block():
                    rows(idx(whole), 0, idx(geo.out_width), tail)

    def _row(self, line: Expr, out: Expr, block: Expr, start: int, stop: Expr, count: int) -> None:
        k = self.k
        if not isinstance(stop, Num):
            with k.loop("p", start, stop) as p:
                self._tile(p, [count], line, out, block)
            return
        full = (int(stop.value) - start) // self.pixels * self.pixels + start
        with k.loop("p", start, full, self.pixels) as p:
            self._tile(p, [count] * self.pixels, line, out, block)
        if full < stop.value:
            with k.block():
                self._tile(idx(full), [count] * (int(stop.value) - full), line, out, block)

    def _tile(self, p: Expr, counts: list[int], line: Expr, out: Expr, block: Expr) -> None:
        k, lanes, geo = self.k, self.isa.lanes, self.geo
        start = k.let("start", line + p * self.advance)
        halves = [k.let(f"bias{h}", Load(self.bias, block * self.wide + h * lanes, i32(self.isa))) for h in (0, 1)]
        acc = [[k.var(f"acc{n}_{h}", halves[h]) for h in (0, 1)] for n in range(len(counts))]
        panel = k.let("panel", block * (len(self.steps) * self.at_once * self.wide))
        readers: dict[tuple[int, Tap | None, int], list[tuple[int, int]]] = {}  # place of a step's taps -> (pixel, step)
        for s, step in enumerate(self.steps):
            beside = None if step.second is None else (step.second[0] - step.first[0], step.second[1] - step.first[1])
            for n in range(len(counts)):
                column = n * self.advance + step.first[1] * geo.dilations[1] * geo.channels
                readers.setdefault((step.first[0], beside, column), []).append((n, s))
        for (row, beside, column), uses in sorted(readers.items(), key=lambda item: (item[0][0], item[0][2])):
            at = row * geo.dilations[0] * self.stage.pitch + column
            one = k.let("x", self._pixels(start + at))
            pair = [one, one]
            if self.at_once == 2:
                two: Expr = one
                if beside is not None:
                    off = beside[0] * geo.dilations[0] * self.stage.pitch + beside[1] * geo.dilations[1] * geo.channels
                    two = k.let("beside", self._pixels(start + (at + off)))
                pair = [k.let(part, Op(f"vzip_{part}", (one, two), i16(self.isa))) for part in ("low", "high")]
            for n, s in uses:
                self._multiply(acc[n], pair, panel + s * (self.at_once * self.wide))
        constants = [self.factor.constants(k, block * self.wide + h * lanes, str(h)) for h in (0, 1)]
        for n, count in enumerate(counts):
            values = [self.factor.apply(k, acc[n][h], constants[h]) for h in (0, 1)]
            self.bytes.store(k, self.y, out + (p + n) * self.spacing, count, values, zipped=self.at_once == 2)

    def _pixels(self, at: Expr) -> Expr:
        return Load(self.stage.buffer, at, Type("i16", self.wide))

    def _multiply(self, acc: list[Var], pair: list[Expr], w_at: Expr) -> None:
        for h, part in enumerate(("low", "high")):
            name, at = ("vdot2", w_at + h * self.wide) if self.at_once == 2 else (f"vtap_{part}", w_at)
            weight = self.k.let(f"w_{part}", Load(self.w, at, Type("i16", self.wide)))
            self.k.assign(acc[h], Op(name, (acc[h], pair[h], weight), i32(self.isa)))
