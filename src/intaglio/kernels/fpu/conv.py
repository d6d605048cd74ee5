"""Convolutions and matrix products of floats on cores with an FPU, by the tiles of `tiles.py`: one routine for all layers.

Does not apply to depthwise convolutions, to weights that are computed or not f32, to windows of more than 25 taps, and where more
follows than a sum with another tensor and a relu.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array, Value
from intaglio.ir.sizes import most, moves
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.columns import Row, write_columns
from intaglio.kernels.contraction.fma import conv_applies
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.products import matmul_applies, product_of
from intaglio.kernels.epilogue import operand_kind, steps_text
from intaglio.kernels.fpu.tiles import CHANNELS, MOST_TAPS, PIXELS, TAP_WORDS, TILE_WORDS, After, dense, pack_channels, tile
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Array as Declared
from intaglio.kernels.loop import Buffer, Expr, Place, Type, cast, idx
from intaglio.ops.activation import Relu
from intaglio.ops.base import Step
from intaglio.ops.binary import Add
from intaglio.ops.conv import Conv
from intaglio.ops.matmul import MatMul

# Cycles of a Cortex-M4F: of four channels (starts, results), of a piece and of a number of it; of a tile, and of a piece in its
# list; of loops, of a number and of a result.
FOUR_CHANNELS, PIECE, NUMBER, TILE, LISTED, LOOP_NUMBER, LOOP_RESULT = 150, 22, 58.5, 80, 70, 4.4, 8
FAR = 1.2


@dataclass(frozen=True, slots=True)
class Facts:
    problem: Problem
    matrices: list[Array]  # [numbers, channels] of each group
    bias: Array | None
    after: After
    other: Value | None  # that is added


@fact
def facts(job: Job) -> Facts | str:
    """What a kernel needs, or why there is none."""
    op, weights = job.node.op, job.node.inputs[1]
    assert isinstance(op, (Conv, MatMul)) and weights is not None
    if not (job.isa.dsp and job.isa.fused and job.target.bare):
        return "the target is not a Cortex-M with an FPU and without vectors"
    if reason := conv_applies(job) if isinstance(op, Conv) else matmul_applies(job):
        return reason
    if weights.data is None or weights.dtype is not DType.F32:
        return "the weights are computed, or not f32"
    if isinstance(op, Conv):
        bias, p = job.optional(2), problem_of(job)
        p = Problem.matrix(p.rows, p.channels, p.out_channels) if p.pointwise else p.upright()
        found = after_of(op.epilogue, [v for v in job.node.inputs[3:] if v is not None], job.node.output)
        matrices: list[Array] = [matrix.reshape(-1, p.columns) for matrix in p.matrices(_turned(weights.data, p))]
        data = None if bias is None else bias.data
    else:
        product = product_of(job)
        if not product.shared:
            return "there are several right sides"
        p, bias = Problem.matrix(product.rows, product.depth, product.columns), job.optional(2)
        if bias is not None and (bias.data is None or bias.data.size != p.out_channels):
            return "the bias is computed, or not a number per column"
        data = None if bias is None else bias.data
        found = after_of(op.epilogue, [v for v in job.node.inputs[3:] if v is not None], job.node.output)
        right = weights.data.reshape(weights.shape[-2:])
        matrices = [right.T if op.transpose_b else right]
    if isinstance(found, str):
        return found
    if job.target.limited and most(p.rows) > 1:
        return "memory has a limit"  # and tiles have working memory
    if p.kernel[0] * p.kernel[1] > MOST_TAPS:
        return f"the window has more than {MOST_TAPS} taps"
    return Facts(p, matrices, data, *found)


def applies(job: Job) -> str | None:
    """Not where loops are faster by far; a little slower will do, since tiles are less code."""
    known = facts(job)
    if isinstance(known, str):
        return known
    largest = known.problem.most()
    tiled, looped = by_tiles(largest), by_loops(largest)
    if largest.rows == 1 or tiled <= FAR * looped or "_fpu" in job.asked:
        return None
    return f"loops are faster: about {looped:,} cycles, {tiled:,} by tiles"


def by_tiles(p: Problem) -> int:
    """Cycles, estimated: of each piece of the windows and of each four channels. Where windows reach over the border, or a row of
    them is not one piece, each tap is a piece, and those to the left and right of the image are computed."""
    joined = p.joined and p.depth == p.channels
    inner, edges = p.inner_and_edges(PIXELS)
    whole, parts = (inner, edges) if joined else ([], [*inner, *edges])
    kh, kw = p.kernel
    total = 0.0
    for tiles, taps, run in ((len(whole), kh, kw * p.depth), (len(parts), kh * kw, p.depth)):
        pieces = taps * p.share_inside
        fours = -(-p.columns // CHANNELS) * (FOUR_CHANNELS + pieces * (PIECE + run * NUMBER))
        total += tiles * (fours + TILE + pieces * LISTED)
    return round(total * p.batch * p.group * p.out_height)


def by_loops(p: Problem) -> int:
    """Without the taps that are outside."""
    (_, stride), (_, along) = p.strides, p.dilations
    inside = 0
    for kw in range(p.kernel[1]):  # the columns of the result whose tap is inside
        before = p.pads[1] - kw * along
        inside += max(0, min((p.width - 1 + before) // stride, p.out_width - 1) + 1 - max(0, -(-before // stride)))
    share = p.share_inside * inside / (p.out_width * p.kernel[1])
    return round(p.rows * p.out_channels * (p.taps * share * LOOP_NUMBER + LOOP_RESULT))


def _turned(weights: Array, p: Problem) -> Array:
    """Weights [O, I, kh, kw] of the problem, whose image may have been turned upright."""
    return weights if weights.shape[2:] == p.kernel else weights.reshape(*weights.shape[:2], *p.kernel)


def after_of(steps: tuple[Step, ...], extras: list[Value], out: Value) -> tuple[After, Value | None] | str:
    """A sum with another tensor, a relu, or both."""
    ops = [step.op for step in steps]
    added = bool(ops) and isinstance(ops[0], Add)
    if [op for op in ops[added:] if not isinstance(op, Relu)] or len(ops) > 1 + added or len(extras) != added:
        return "what follows is more than a sum and a relu"
    if added and (sorted(steps[0].args) != [0, 1] or operand_kind(extras[0].shape, out.shape) != "full"):
        return "what is added is not a tensor of the same shape"
    return After(added, len(ops) > added), extras[0] if added else None


@dataclass(frozen=True, slots=True)
class Window:
    """The first of some windows side by side."""

    base: Expr
    top: Expr
    left: Expr


@dataclass(frozen=True, slots=True)
class Floats:
    problem: Problem
    after: After
    x: Buffer
    zeros: Buffer
    geometry: Buffer
    room: Buffer
    w: Buffer
    bias: Buffer
    y: Buffer
    other: Buffer | None

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(range(PIXELS, 0, -1))

    def gather(self, k: Builder, row: Row, first: Expr, count: int) -> Window:
        p = self.problem
        return Window(row.base, row.top, k.let("left", first * p.strides[1] - p.pads[1]))

    def multiply(self, k: Builder, columns: Window, count: int, g: Expr, out: Expr) -> None:
        p = self.problem
        span = (idx(p.columns), idx(count), p.out_channels)
        more = () if self.other is None else (Place(self.other, out, *span),)
        k.call(
            tile(self.after), Place(self.x, columns.base), Place(self.zeros, idx(0)), Place(self.geometry, idx(0)),
            Place(self.room, idx(0)), columns.top, columns.left, count, Place(self.w, g * (p.taps * p.columns)),
            Place(self.bias, g * p.columns), p.columns, Place(self.y, out, *span), p.out_channels, *more,
        )  # fmt: skip


def contraction_fpu(job: Job) -> Lowered:
    known, op = facts(job), job.node.op
    assert isinstance(known, Facts) and isinstance(op, (Conv, MatMul))
    p, after = known.problem, known.after
    x = job.operand(0, "x")
    w = job.packed(np.concatenate([pack_channels(matrix) for matrix in known.matrices]), "w", DType.F32)
    bias = np.zeros(p.out_channels) if known.bias is None else known.bias.reshape(-1)
    b = job.packed(bias.astype(np.float32), "b")
    other = None if known.other is None else job.reads(known.other, "other")
    name, stem = ("conv", p.stem("conv")) if isinstance(op, Conv) else ("matmul", f"matmul_{p.rows}_{p.channels}_{p.out_channels}")
    about = f"{p.title(name)}{steps_text(op.epilogue)}\nweights packed [channel / 4][number][4]"
    if p.rows == 1 and p.taps == p.channels:
        y = job.writes()
        low, high = job.share("o", p.out_channels, CHANNELS)
        outs = high - low
        more = () if other is None else (Place(other, low, outs),)
        places = (Place(x, idx(0)), Place(w, low * p.channels), Place(b, low))
        job.k.call(dense(after), *places, p.channels, outs, Place(y, low, outs), *more)
        return job.done(stem, about, f"{name}_fpu(row{after})", over=other)
    numbers = _geometry(job, p)
    zeros = job.packed(np.zeros(p.depth, np.float32), "zeros") if p.padded else b
    apart = p.padded or p.dilations[1] > 1 or p.group > 1  # taps of a row may be pieces of their own
    room = job.scratch(TILE_WORDS + TAP_WORDS * p.kernel[0] * (p.kernel[1] if apart else 1), "room", DType.I32, own=True)
    write_columns(job, p, Floats(p, after, x, zeros, numbers, room, w, b, job.writes(), other), shared=True)
    return job.done(stem, about, f"{name}_fpu(four{after})", over=other)


def _geometry(job: Job, p: Problem) -> Buffer:
    """Sizes that a tile needs: constants, or an array on the stack where the caller gives some of them."""
    numbers = (p.height, p.width, p.channels, p.depth, *p.kernel, p.strides[1], *p.dilations)
    if not moves(numbers):
        return job.packed(np.asarray(numbers, np.int32), "geometry")
    k, buffer = job.k, Buffer("geometry", DType.I32, False, "private")
    k.reserve(buffer.name)
    k.emit(Declared(buffer, len(numbers)))
    for n, number in enumerate(numbers):
        k.store(buffer, n, cast(idx(number), Type("i32")))
    return buffer
