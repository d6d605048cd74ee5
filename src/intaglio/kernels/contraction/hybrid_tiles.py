"""Products of float activations with 8-bit weights by the register tiles of integers (`dots.py`).

    low, high = extremes of a row (or image);  step, inverse, zero = ...          vectors, then one number of each for the row
    q[j] = round(x[j] * inverse + zero)                                           in the type of the dot product
    acc = dots of q and w                                                         tiles, weights packed as for bytes
    y[n] = tofloat(acc) * (step * scale[n]) + bias[n]

Where the dot product takes 16 bits, q is stored without its zero point. Bytes keep it: sums start from minus the zero point times
the sum of the weights then, and padding is filled with it. The numbers of a row wait in memory and not in variables, so that
threads can divide what comes after them.

Does not apply to weights, scales or biases that are computed, to depthwise convolutions, or to sums that might not fit 32 bits:
`hybrid.py` takes these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.dots import (
    Dots,
    Runs,
    along_rows,
    arranged,
    choose_dot,
    micro_of,
    pack_weights,
    packing_text,
    ranked,
)
from intaglio.kernels.contraction.hybrid import extremes, grid_of, lowest_of, round_away
from intaglio.kernels.contraction.micro import Column
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.quantised import runs_of
from intaglio.kernels.contraction.scaling import i16, i32, splat
from intaglio.kernels.contraction.stage import SLACK, offset_of_type, stage_of
from intaglio.kernels.contraction.tile import Block, Tile, parse_tile
from intaglio.kernels.contraction.tiles import Tiles
from intaglio.kernels.estimate import micros
from intaglio.kernels.isa import Dot
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Op, Type, cast, idx
from intaglio.kernels.whole_numbers import I32
from intaglio.ops.hybrid import HybridConv, HybridMatMul

F32 = Type("f32")
QUANTISE_CYCLES = 8.0  # per vector of x
MOST = 255  # the largest size of a number less its zero point


@dataclass(frozen=True, slots=True)
class Facts:
    problem: Problem  # of one image, or of all rows
    dot: Dot
    grouped: Array  # weights [groups, columns, runs, steps, group]
    scale: Array
    bias: Array | None

    @property
    def per_channel(self) -> tuple[int, int]:
        groups, columns = self.grouped.shape[:2]
        return groups, columns


@fact
def hybrid_of(job: Job) -> Facts | str:
    """What a kernel needs, or why there is none."""
    op, (weights, scale, bias) = job.node.op, (job.optional(i) for i in (1, 2, 3))
    if not job.isa.integers.dots:
        return "the target has no integer dot products"
    if weights is None or scale is None or weights.data is None or scale.data is None or (bias is not None and bias.data is None):
        return "weights, scales or bias are computed"
    if job.node.output.type.elements == 0 or job.type(0).elements == 0:
        return "a tensor is empty"
    w = weights.data.astype(np.int64)
    if isinstance(op, HybridConv):
        problem = problem_of(job)
        if problem.depthwise:
            return "it is depthwise"
        problem, w = along_rows(replace(problem, batch=1), w)
    else:
        assert isinstance(op, HybridMatMul)
        problem, w = Problem.matrix(job.type(0).shape[0], w.shape[1], w.shape[0]), w[:, :, None, None]
    if int(np.abs(w).reshape(len(w), -1).sum(axis=1).max()) * MOST >= 2**31:
        return "a sum may not fit 32 bits"
    chosen = choose_dot(job.isa, runs_of(w, problem.group, problem.joined), problem.out_width)
    if chosen is None:
        return "no dot product of the target is exact for these weights"
    reals = [None if v is None or v.data is None else v.data.reshape(-1).astype(np.float32) for v in (scale, bias)]
    assert reals[0] is not None
    return Facts(problem, *chosen, reals[0], reals[1])


# Activations ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """Where rows of floats become whole numbers: `q` in the type of the dot product, `steps` with the step and the inverse of each
    row, and `zeros` with their zero points, where they have any."""

    e: Lanes
    x: Buffer
    q: Buffer
    steps: Buffer
    zeros: Buffer | None

    @property
    def centred(self) -> bool:
        """Is the zero point subtracted already?"""
        return self.q.dtype is DType.I16

    def step(self, row: Expr) -> Expr:
        return Load(self.steps, row * 2, F32)

    def zero(self, row: Expr) -> Expr:
        """The number that stands for 0.0 in q."""
        if self.centred:
            return Num(0, I32)
        shift = Num(offset_of_type(DType.I8, self.q.dtype), I32)
        return shift if self.zeros is None else Op("add", (Load(self.zeros, row, I32), shift), I32)

    def quantize(self, k: Builder, row: Expr, base: Expr, count: int, to: Expr) -> None:
        """`count` floats from x[base] on as numbers from q[to] on, which a vector may exceed."""
        with k.block():
            grid = grid_of(k, *self._extremes(k, base, count), self.zeros is not None)
            k.store(self.steps, row * 2, grid.step)
            k.store(self.steps, row * 2 + 1, grid.inverse)
            if self.zeros is not None:
                k.store(self.zeros, row, grid.zero)
        wide = 2 * self.e.lanes
        with k.loop("j", 0, count // wide * wide, wide) as j:
            self._store(k, row, to + j, [self.e.load(self.x, base + j + h * self.e.lanes) for h in (0, 1)])
        if left := count % wide:
            at, first = base + (count - left), min(left, self.e.lanes)
            rest = self.e.load(self.x, at + first, left - first) if left > first else self.e.const(0.0)
            with k.block():
                self._store(k, row, to + (count - left), [self.e.load(self.x, at, first), rest])

    def _extremes(self, k: Builder, base: Expr, count: int) -> tuple[Expr, Expr]:
        """Up to four vectors at a time; the last ones overlap those before them."""
        e, lanes = self.e, self.e.lanes
        if count < lanes:
            return extremes(k, self.x, base, count)
        several = min(4, count // lanes)
        lows, highs = ([k.var(f"{name}{n}", e.const(0.0)) for n in range(several)] for name in ("low", "high"))
        whole = count // (several * lanes) * (several * lanes)

        def take(n: int, at: Expr) -> None:
            value = k.let(f"v{n}", e.load(self.x, at))
            k.assign(lows[n], e.lowest(value, lows[n]))
            k.assign(highs[n], e.highest(value, highs[n]))

        with k.loop("j", 0, whole, several * lanes) as j:
            for n in range(several):
                take(n, base + j + n * lanes)
        for n in range(-(-(count - whole) // lanes)):
            take(n, base + (count - (n + 1) * lanes))
        low: Expr = lows[0]
        high: Expr = highs[0]
        for a, b in zip(lows[1:], highs[1:], strict=True):
            low, high = e.lowest(a, low), e.highest(b, high)
        return k.let("low", Op("hmin", (low,), F32)), k.let("high", Op("hmax", (high,), F32))

    def _store(self, k: Builder, row: Expr, to: Expr, values: list[Expr]) -> None:
        e, wide = self.e, i16(self.e.isa)
        inverse = e.splat(Load(self.steps, row * 2 + 1, F32))
        zero = None if self.zeros is None else Load(self.zeros, row, I32)
        halves = []
        for value in values:
            real = e.mul(value, inverse)
            real = real if zero is None else e.add(e.splat(cast(zero, F32)), real)
            halves.append(k.let("whole", round_away(k, e, real)))
        v: Expr = Op("vnarrow", tuple(halves), wide)
        for name, limit in (("vmax_i16", lowest_of(zero is not None)), ("vmin_i16", 127)):
            v = Op(name, (v, Op("vsplat_i16", (Num(limit, Type("i16")),), wide)), wide)
        if self.centred:
            if zero is not None:
                v = Op("vsub_i16", (v, Op("vsplat_i16", (cast(zero, Type("i16")),), wide)), wide)
        else:
            v = Op("vbytes_i8", (v,), Type("i8", wide.lanes))
            v = v if self.q.dtype is DType.I8 else Op("vflip_i8", (v,), Type("u8", wide.lanes))
        k.store(self.q, to, v)


# Sums -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToReals:
    """Sums start from minus the zero point times the sum of the weights; they are scaled to floats. `row` is that of the step and
    the zero point; None: each row of a tile has its own."""

    rows: Rows
    sums: Buffer | None  # of the weights, negative; None where the zero point is 0
    scale: Buffer
    bias: Buffer | None
    y: Buffer
    row: Expr | None

    def _row(self, at: Column, r: int) -> Expr:
        return at.row + r if self.row is None else self.row

    def first(self, k: Builder, rows: int, block: Block, at: Column) -> list[list[Expr]]:
        isa = self.rows.e.isa
        if self.sums is None:
            return [[splat(isa, 0)] * block.vectors] * rows
        weights = [k.let(f"sum{v}", Load(self.sums, at.packed + v * isa.lanes, i32(isa))) for v in range(block.vectors)]

        def starts(r: int) -> list[Expr]:
            zero = Op("visplat", (self.rows.zero(self._row(at, r)),), i32(isa))
            return [k.let(f"first{v}", Op("vimul", (zero, weight), i32(isa))) for v, weight in enumerate(weights)]

        return [starts(r) for r in range(rows)] if self.row is None else [starts(0)] * rows

    def finish(self, k: Builder, sums: Sequence[Sequence[Expr]], block: Block, at: Column, places: list[Expr]) -> None:
        e = self.rows.e
        for v in range(block.vectors):
            place = at.packed + v * e.lanes
            scale = k.let(f"scale{v}", e.load(self.scale, place))
            bias = None if self.bias is None else k.let(f"real{v}", e.load(self.bias, place))
            for r, (row, to) in enumerate(zip(sums, places, strict=True)):
                step = e.splat(self.rows.step(self._row(at, r)))
                real = Op("vtofloat", (row[v],), e.type)
                value = e.mul(real, e.mul(step, scale)) if self.row is None else e.mul(e.mul(real, scale), step)
                value = value if bias is None else e.add(value, bias)
                k.store(self.y, to + v * e.lanes, k.let("v", value), block.lanes_of(v, e.lanes))


# Kernels ----------------------------------------------------------------------------------------------------------------


def _rows(job: Job, dot: Dot, rows: int, numbers: int, asymmetric: bool, own: bool) -> Rows:
    x = job.operand(0, "x")
    q = job.scratch(numbers + SLACK, "q", dot.x, own=own)
    steps = job.scratch(2 * rows, "steps", own=own)
    return Rows(job.vector, x, q, steps, job.scratch(rows, "zeros", DType.I32, own=own) if asymmetric else None)


def _micro(job: Job, known: Facts, tile: Tile, rows: Rows, row: Expr | None) -> Dots:
    def arrange(values: Array) -> Array:
        return arranged(values, *known.per_channel, job.isa.lanes)

    w = pack_weights(job, known.dot, known.grouped, tile)
    sums = None
    if not rows.centred and (rows.zeros is not None or known.dot.x is DType.U8):
        sums = job.packed(arrange(-known.grouped.sum(axis=(2, 3, 4)).reshape(-1).astype(np.int32)), "sums")
    scale = job.packed(arrange(known.scale), "scale")
    bias = None if known.bias is None else job.packed(arrange(known.bias), "bias")
    return micro_of(job.isa, known.dot, w, ToReals(rows, sums, scale, bias, job.writes(), row))


def _runs(job: Job, known: Facts) -> Runs:
    p, steps = known.problem, known.grouped.shape[2] * known.grouped.shape[3]
    return Runs(p.out_width, p.out_height, p.columns, steps, job.isa.lanes, known.dot.rows)


def _tile(job: Job, known: Facts) -> Tile:
    return parse_tile(job.asked) or ranked(_runs(job, known), job.target.registers)[0]


def tiles_ways(job: Job) -> list[str]:
    known, name = hybrid_of(job), job.node.op.NAME
    assert isinstance(known, Facts)
    return [f"{name}_tiles(tile={tile})" for tile in ranked(_runs(job, known), job.target.registers)]


def tiles_estimate(job: Job) -> float:
    """With a pass over x, which is quantised first."""
    known, lanes = hybrid_of(job), job.isa.lanes
    assert isinstance(known, Facts)
    steps = _runs(job, known).cycles(_tile(job, known)) * known.problem.batch * known.problem.group
    return micros(job.target, lanes, steps + job.type(0).elements / lanes * QUANTISE_CYCLES, known.grouped.size)


def hybrid_matmul_tiles(job: Job) -> Lowered:
    op, k, known = job.node.op, job.k, hybrid_of(job)
    assert isinstance(op, HybridMatMul) and isinstance(known, Facts)
    p, wide = known.problem, 2 * job.isa.lanes
    rows, depth, columns = p.rows, p.channels, p.out_channels
    pitch = -(-depth // wide) * wide
    tile = _tile(job, known)
    numbers = _rows(job, known.dot, rows, rows * pitch, op.asymmetric, own=False)
    micro = _micro(job, known, tile, numbers, None)
    tiles = Tiles(k, p, tile, micro)
    with k.loop("m", 0, rows) as m:
        numbers.quantize(k, m, k.let("row", m * depth), depth, k.let("to", m * pitch))
    tiles.x_pitch = pitch
    tiles.matrix(numbers.q, job.target.l2_bytes)
    about = f"hybrid_matmul [{rows}, {depth}] x i8 [{depth}, {columns}]\n{packing_text(micro, tile, rows)}"
    return job.done(f"hybrid_matmul_{depth}_{columns}", about, f"hybrid_matmul_tiles(tile={tile})")


def hybrid_conv_tiles(job: Job) -> Lowered:
    op, k, known, original = job.node.op, job.k, hybrid_of(job), problem_of(job)
    assert isinstance(op, HybridConv) and isinstance(known, Facts)
    p, size = known.problem, original.height * original.width * original.channels
    tile = _tile(job, known)
    numbers = _rows(job, known.dot, 1, size, op.asymmetric, own=original.batch > 1)
    micro = _micro(job, known, tile, numbers, idx(0))
    padding = cast(numbers.zero(idx(0)), Type(numbers.q.dtype.value))
    stage = stage_of(job, p, numbers.q, known.dot.x, 0 if numbers.centred else padding, not p.padded)
    tiles = Tiles(k, p, tile, micro)
    with k.loop("image", 0, original.batch) as image:
        numbers.quantize(k, idx(0), k.let("first", image * size), size, idx(0))
        tiles.y_base = image * (p.out_height * p.out_width * p.out_channels)
        if p.pointwise:
            tiles.matrix(numbers.q, job.target.l2_bytes)
        else:
            tiles.image(stage)
    runs = "" if p.pointwise else f"[kh]{'' if p.joined else '[kw]'}"
    about = f"{original.title('hybrid_conv')}, weights i8\n{packing_text(micro, tile, p.out_width, runs)}"
    return job.done(original.stem("hybrid_conv"), about, f"hybrid_conv_tiles(tile={tile})")
