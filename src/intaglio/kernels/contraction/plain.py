"""Contractions one product at a time: exact to the reference for every type that the tiles do not take.

Weights of a convolution are packed [o][kh][kw][i], so that the sum over a window row is one run of products that compilers turn
into vector code. Sums are 32 bits wide (64 with 16-bit activations and a 64-bit bias), scaled by `scale32` and its kin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Value
from intaglio.ir.types import DType, strides_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.elementwise import broadcast_strides, offset_of
from intaglio.kernels.epilogue import epilogue_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Op, Type, Var, cast, idx, imax, imin
from intaglio.kernels.whole_numbers import I32, I64, bounded, number, scaled, whole
from intaglio.ops.quantised import QConv, QMatMul


@dataclass(frozen=True, slots=True)
class Factors:
    """What a sum of products is scaled by: multipliers and shifts, or floats, or nothing; and a bias of floats, if any."""

    multiplier: Buffer | None
    shift: Buffer | None
    bias: Buffer | None
    how: str

    def scaled(self, total: Expr, which: Expr, column: Expr) -> Expr:
        if self.multiplier is None:
            return total
        if self.shift is not None:
            return scaled(total, whole(self.multiplier, which), whole(self.shift, which), self.how)
        factor = Load(self.multiplier, which, Type("f32"))
        if self.bias is None and total.type == I32:
            return Op("fn_scale_float", (total, factor), I32)
        real: Expr = Op("mul", (cast(total, Type("f32")), factor), Type("f32"))
        if self.bias is not None:
            real = Op("add", (real, Load(self.bias, column, Type("f32"))), Type("f32"))
        return Op("fn_nearest", (real,), I32)


def _bias_and_factors(job: Job, how: str) -> tuple[Buffer | None, Factors]:
    """The bias of whole numbers that a sum starts from, and what comes after."""
    bias = job.optional(2)
    read = job.reads(bias, "bias") if bias is not None else None
    real = bias is not None and bias.dtype is DType.F32
    multiplier, shift = (
        job.operand(i, name) if job.optional(i) is not None else None for i, name in ((3, "multiplier"), (4, "shift"))
    )
    return None if real else read, Factors(multiplier, shift, read if real else None, how)


_SCALINGS = {"twice": "scale32", "once": "scale_once", "float": "scale_float", "none": ""}


def _sums_of(x: DType, bias: DType | None, scaling: str) -> tuple[Type, str]:
    if x is DType.I16 and bias in (None, DType.I64) and scaling in ("twice", "once"):
        return I64, "scale64"
    if x in (DType.I16, DType.U16) and scaling == "float":
        return I64, "scale_float"
    return I32, _SCALINGS[scaling]


def dot(k: Builder, total: Var, x: Buffer, x_at: Expr, x_zero: Expr, w: Buffer, w_at: Expr, w_zero: int, count: int | Expr) -> None:
    """total += sum over j of (x[j] - x_zero) * (w[j] - w_zero)."""
    kind = total.type
    with k.loop("j", 0, count) as j:
        left, right = whole(x, x_at + j, kind), whole(w, w_at + j, kind)
        left = left if isinstance(x_zero, Num) and x_zero.value == 0 else Op("sub", (left, x_zero), kind)
        right = Op("sub", (right, number(w_zero, kind)), kind) if w_zero else right
        k.assign(total, Op("add", (total, Op("mul", (left, right), kind)), kind))


@dataclass(frozen=True, slots=True)
class Sums:
    """What an image is multiplied with. `start(o)` is what the sum of channel `o` starts from, `store(total, o, place)` ends it."""

    x: Buffer
    x_zero: Expr
    w: Buffer
    w_zero: int
    start: Callable[[Expr], Expr]
    store: Callable[[Var, Expr, Expr], None]


def packed_weights(job: Job, weights: Value, p: Problem) -> Buffer:
    """[o][kh][kw][i]; of a depthwise convolution [kh][kw][o], channels side by side."""
    assert weights.data is not None
    order = (2, 3, 0, 1) if p.depthwise else (0, 2, 3, 1)
    return job.packed(np.ascontiguousarray(weights.data.transpose(order)).reshape(-1), "w", weights.dtype)


def plain_image(k: Builder, p: Problem, sums: Sums, n: Expr, base: Expr) -> None:
    """All pixels of image `n`, which starts at `base` in x."""
    (kh_, kw_), (sh, sw), (dh, dw), outs = p.kernel, p.strides, p.dilations, p.out_channels
    with k.loop("oh", 0, p.out_height) as oh:
        top = k.let("top", oh * sh - p.pads[0])
        rows = _inside(k, "kh", top, kh_, dh, p.height)
        with k.loop("ow", 0, p.out_width) as ow:
            left = k.let("left", ow * sw - p.pads[1])
            low, high = _inside(k, "kw", left, kw_, dw, p.width)
            place = k.let("to", ((n * p.out_height + oh) * p.out_width + ow) * outs)
            with k.loop("o", 0, outs) as o:
                first = sums.start(o)
                total = k.var("total", first, first.type)
                group = o // p.columns if p.group > 1 else idx(0)
                with k.loop("kh", *rows) as kh:
                    line = k.let("line", base + ((top + kh * dh) * p.width + left) * p.channels + group * p.depth)
                    _window_row(k, p, sums, total, o, kh, line, low, high)
                sums.store(total, o, place)


def _inside(k: Builder, name: str, first: Expr, count: int, step: int, size: int) -> tuple[Expr, Expr]:
    """Which taps from `first` on lie inside an axis of `size`."""
    low = k.let(f"{name}_first", imax(0, (0 - first + (step - 1)) // step))
    return low, k.let(f"{name}_last", imin(count, (idx(size + step - 1) - first) // step))


def _window_row(k: Builder, p: Problem, sums: Sums, total: Var, o: Expr, kh: Expr, line: Expr, low: Expr, high: Expr) -> None:
    kw_, across = p.kernel[1], p.dilations[1] * p.channels

    def products(x_at: Expr, w_at: Expr, count: int | Expr) -> None:
        dot(k, total, sums.x, x_at, sums.x_zero, sums.w, w_at, sums.w_zero, count)

    if p.joined:
        run = k.let("run", (high - low) * p.depth)
        first = k.let("first", line + low * p.channels)
        panel = k.let("panel", ((o * p.kernel[0] + kh) * kw_ + low) * p.depth)
        products(first, panel, run)
        return
    with k.loop("kw", low, high) as kw:
        if p.depthwise:
            products(line + kw * across, (kh * kw_ + kw) * p.out_channels + o, 1)
        else:
            panel = k.let("panel", ((o * p.kernel[0] + kh) * kw_ + kw) * p.depth)
            products(line + kw * across, panel, p.depth)


def computed_weights(job: Job) -> str | None:
    weights = job.node.inputs[1]
    return "the weights are computed" if weights is None or weights.data is None else None


def qconv(job: Job) -> Lowered:
    op, k, node, p = job.node.op, job.k, job.node, problem_of(job)
    weights, bias = node.inputs[1], job.optional(2)
    assert isinstance(op, QConv) and weights is not None
    kind, how = _sums_of(job.type(0).dtype, None if bias is None else bias.dtype, op.scaling)
    x = job.operand(0, "x")
    w = packed_weights(job, weights, p)
    b, factors = _bias_and_factors(job, how)
    epilogue = epilogue_of(job, op.epilogue, [v for v in node.inputs[5:] if v is not None], node.output.shape)
    y = job.writes()

    def start(o: Expr) -> Expr:
        return whole(b, o, kind) if b is not None else number(0, kind)

    def store(total: Var, o: Expr, place: Expr) -> None:
        shifted = Op("add", (factors.scaled(total, o, o), number(op.y_zero)), I32)
        result = bounded(k.let("v", shifted), op.low, op.high, op.to)
        k.store(y, place + o, epilogue.finish(k, job.one, result, o, place + o, 1) if op.epilogue else result)

    with k.loop("n", 0, p.batch) as n:
        base = n * (p.height * p.width * p.channels)
        plain_image(k, p, Sums(x, number(op.x_zero, kind), w, op.w_zero, start, store), n, base)
    packing = "[kh][kw][c]" if p.depthwise else "[o][kh][kw][i]"
    about = f"{p.title('qconv')}, {job.type(0).dtype.value}\nNHWC, weights packed {packing}"
    return job.done(p.stem("qconv"), about, "qdepthwise" if p.depthwise else "qconv")


def qmatmul(job: Job) -> Lowered:
    op, k, node = job.node.op, job.k, job.node
    assert isinstance(op, QMatMul)
    left, right, out = job.type(0), job.type(1), node.output
    bias, weights = job.optional(2), node.inputs[1]
    assert weights is not None
    kind, how = _sums_of(left.dtype, None if bias is None else bias.dtype, op.scaling)
    a = job.operand(0, "a")
    columns, depth = out.shape[-1], left.shape[-1]
    transposed = op.transpose_b
    if weights.data is not None and not op.transpose_b:  # rows of the right side become runs
        b = job.packed(np.ascontiguousarray(weights.data.swapaxes(-1, -2)).reshape(-1), "b", weights.dtype)
        transposed = True
    else:
        b = job.operand(1, "b")
    c, factors = _bias_and_factors(job, how)
    y = job.writes()
    batch = out.shape[:-2]
    names = [f"b{n}" for n in range(len(batch))]
    a_size, b_size = math.prod(left.shape[-2:]), math.prod(right.shape[-2:])
    single = job.optional(3) is not None and job.type(3).elements == 1
    with k.loops([*names, "m"], [*batch, out.shape[-2]]) as at:
        *outer, m = at
        a_at = k.let("a_at", offset_of(outer, [s * a_size for s in broadcast_strides(left.shape[:-2], batch)]) + m * depth)
        b_at = k.let("b_at", offset_of(outer, [s * b_size for s in broadcast_strides(right.shape[:-2], batch)]))
        row = k.let("to", offset_of(at, list(strides_of(out.shape)[:-1])))
        with k.loop("n", 0, columns) as n:
            total = k.var("total", whole(c, n, kind) if c is not None else number(0, kind), kind)
            if transposed:
                dot(k, total, a, a_at, number(op.a_zero, kind), b, b_at + n * depth, op.b_zero, depth)
            else:
                with k.loop("j", 0, depth) as j:
                    x = Op("sub", (whole(a, a_at + j, kind), number(op.a_zero, kind)), kind)
                    w = Op("sub", (whole(b, b_at + j * columns + n, kind), number(op.b_zero, kind)), kind)
                    k.assign(total, Op("add", (total, Op("mul", (x, w), kind)), kind))
            which = idx(0) if single else n
            value = factors.scaled(total, which, n)
            k.store(y, row + n, bounded(k.let("v", Op("add", (value, number(op.y_zero)), I32)), op.low, op.high, op.to))
    side = f"{list(right.shape)}{' transposed' if op.transpose_b else ''}"
    about = f"qmatmul {list(left.shape)} x {side} -> {list(out.shape)}, {left.dtype.value}"
    return job.done(f"qmatmul_{depth}_{columns}", about, "qmatmul")
