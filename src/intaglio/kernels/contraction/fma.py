"""Convolutions of floats by register tiles: the micro-kernel of any instruction set with a fused (or plain) multiply-add.

    for j in 0..K:                         6x2 with 8 lanes: 12 accumulators, 2 weights, 1 broadcast = 15 of 16 registers
      w0 = w[j*16..]  w1 = w[j*16+8..]     (named variables, not arrays of vectors: gcc spills those)
      a = splat(x[row0 + j]);  acc0_0 = fma(a, w0, acc0_0);  acc0_1 = fma(a, w1, acc0_1)
      a = splat(x[row1 + j]);  ...

Weights of i8 and f16 are widened when they are loaded. Does not apply to weights that are computed, to other layouts, or to
depthwise convolutions (`windows.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.sizes import least
from intaglio.ir.types import DType, Layout
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.gather import Direct
from intaglio.kernels.contraction.micro import Column, Sums
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.tile import Block, Tile, choose_tile, cycles, pack_columns, parse_tile, possible_tiles
from intaglio.kernels.contraction.tiles import Tiles, far_weights
from intaglio.kernels.epilogue import Epilogue, epilogue_of, steps_text
from intaglio.kernels.estimate import micros
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr
from intaglio.ops.conv import Conv
from intaglio.ops.pool import Pool
from intaglio.targets import Target


@dataclass(frozen=True, slots=True)
class Fma:
    """Sums of f32, a vector of output columns at a time."""

    e: Lanes
    w: Buffer
    b: Buffer | None
    y: Buffer
    epilogue: Epilogue

    @property
    def lanes(self) -> int:
        return self.e.lanes

    @property
    def group(self) -> int:
        return 1

    def start(self, k: Builder, rows: int, block: Block, at: Column) -> Sums:
        e, b = self.e, self.b
        if b is not None and e.vector:
            k.reload()
        firsts = [
            e.const(0.0) if b is None else k.let(f"bias{v}", e.load(b, at.packed + v * e.lanes)) for v in range(block.vectors)
        ]
        return [[k.var(f"acc{r}_{v}", firsts[v]) for v in range(block.vectors)] for r in range(rows)]

    def step(self, k: Builder, sums: Sums, w_at: Expr, x: Buffer, places: Mapping[int, Expr]) -> None:
        e = self.e
        columns = [k.let(f"w{v}", e.load(self.w, w_at + v * e.lanes)) for v in range(len(sums[0]))]
        for r, place in places.items():
            a = k.let(f"a{r}", e.splat(Lanes.scalar().load(x, place)))
            for acc, column in zip(sums[r], columns, strict=True):
                k.assign(acc, e.fma(a, column, acc))

    def finish(self, k: Builder, sums: Sums, block: Block, at: Column, places: list[Expr]) -> None:
        e = self.e
        for row, place in zip(sums, places, strict=True):
            for v, acc in enumerate(row):
                count = block.lanes_of(v, e.lanes)
                to = place + v * e.lanes
                value = self.epilogue.finish(k, e, acc, at.channel + v * e.lanes, to, count)
                k.store(self.y, to, value, count if e.vector else 0)


def pack_panels(job: Job, matrices: Sequence[Array], tile: Tile, name: str = "w") -> Buffer:
    """Matrices [K, N] one after the other, each in blocks of columns as a tile reads them."""
    parts = [pack_columns(m, tile.vectors, job.isa.lanes) for m in matrices]
    return job.packed(parts[0] if len(parts) == 1 else np.concatenate(parts), name)


def pack_bias(job: Job, bias: Array | None, groups: int, tile: Tile, name: str = "b") -> Buffer | None:
    """A number per column, padded as the columns are."""
    if bias is None:
        return None
    parts = np.split(bias.astype(np.float32, copy=False).reshape(-1), groups)
    return pack_panels(job, [part.reshape(1, -1) for part in parts], tile, name)


def not_float_image(job: Job) -> str | None:
    """Why this is not a convolution or pool of an NHWC image of f32."""
    op = job.node.op
    assert isinstance(op, (Conv, Pool))
    if op.layout is not Layout.NHWC:
        return f"the layout is {op.layout.value}, not NHWC"
    if job.type(0).rank != 4:
        return "the number of spatial axes is not 2"
    if job.type(0).dtype is not DType.F32:
        return f"the type is {job.type(0).dtype.value}, not f32"
    return "the result is empty" if least(job.node.output.type.elements) == 0 else None


def computed(job: Job) -> str | None:
    """Are weights or bias known only at run time?"""
    weights, bias = job.optional(1), job.optional(2)
    if weights is None or weights.data is None:
        return "the weights are computed"
    return "the bias is computed" if bias is not None and bias.data is None else None


def conv_applies(job: Job) -> str | None:
    if reason := not_float_image(job):
        return reason
    return "it is depthwise" if problem_of(job).depthwise else computed(job)


def _run(p: Problem) -> int:
    """Pixels side by side."""
    return p.rows if p.pointwise else p.out_width


def conv_ways(job: Job) -> list[str]:
    p, lanes = problem_of(job), job.vector.lanes
    chosen = choose_tile(job.target, _run(p), p.columns, p.taps, lanes)
    return [f"conv_nhwc(tile={tile})" for tile in possible_tiles(job.target, _run(p), p.columns, lanes, chosen)]


def conv_estimate(job: Job) -> float:
    return direct_us(problem_of(job), job.target, job.vector.lanes, parse_tile(job.asked))


def direct_us(p: Problem, target: Target, lanes: int, asked: Tile | None = None) -> float:
    """Microseconds of a direct convolution."""
    p = p.most()
    run = _run(p)
    tile = asked or choose_tile(target, run, p.columns, p.taps, lanes)
    steps = cycles(target, tile, run, p.columns, p.taps, lanes) * (p.rows // run) * p.group * p.share_inside
    return micros(target, lanes, steps, p.taps * p.out_channels * DType.F32.bytes)


def conv_nhwc(job: Job) -> Lowered:
    op, node, p = job.node.op, job.node, problem_of(job)
    weights, bias = node.inputs[1], job.optional(2)
    assert isinstance(op, Conv) and weights is not None and weights.data is not None
    run = _run(p)
    tile = parse_tile(job.asked) or choose_tile(job.target, run, p.columns, p.taps, job.vector.lanes)
    x = job.operand(0, "x")
    w = pack_panels(job, p.matrices(weights.data), tile)
    b = pack_bias(job, None if bias is None else bias.data, p.group, tile)
    epilogue = epilogue_of(job, op.epilogue, [v for v in node.inputs[3:] if v is not None], node.output.shape)
    micro = Fma(job.vector, w, b, job.writes(), epilogue)
    far = far_weights(job.target, weights.type.bytes)
    if p.pointwise:
        Tiles(job.k, Problem.matrix(run, p.channels, p.out_channels), tile, micro, far=far).matrix(x, job.target.l2_bytes)
    else:
        tiles = Tiles(job.k, p, tile, micro, far=far)
        tiles.most_taps = 0 if job.target.bare else tiles.most_taps
        tiles.image(Direct(p, x, job.target.l2_bytes))
    about = (
        f"{p.title('conv')}{steps_text(op.epilogue)}\n"
        f"NHWC, {tile.about(run, 'pixel', micro.lanes, 'channels')}, "
        f"weights packed [block][kh][kw][ic][{tile.vectors * micro.lanes}]"
    )
    return job.done(p.stem("conv"), about, f"conv_nhwc(tile={tile})", over=epilogue.over)
