"""Pools and means of 8-bit numbers, 16 (or 8) channels at a time.

    average:  sums of 32 bits; trunc((sum +- count / 2) / count) in floats, exact below 2^22
    max:      bytes as they are
    mean:     sums of 32 bits, scaled as `contraction/scaling.py` does

Windows that may leave the image are cut by the bounds of their loops. The last vector of channels overlaps the one before it.
Fewer channels than a vector has, windows with holes or of padding alone, and other layouts stay with the plain kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from intaglio.ir.types import Layout
from intaglio.kernels.contraction.quantised import BYTES, size_of
from intaglio.kernels.contraction.scaling import Bytes, Scaling, factor_of, i16, i32, scaling_by, splat, vector
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Op, Type, Var, cast, idx, imax, imin
from intaglio.ops.base import normal_axes
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised_rows import QAveragePool, QMean

MOST_PIXELS = 1 << 13  # of an averaged window: its sum is exact as a float
HALVES = ("low", "high")


def _no_vectors(job: Job, channels: int) -> str | None:
    if not job.isa.integers.dots:
        return "the target has no integer vectors"
    if job.type(0).dtype not in BYTES:
        return f"it is for bytes, not {job.type(0).dtype.value}"
    if channels < 2 * job.isa.lanes:
        return f"{channels} channels do not fill a vector of {2 * job.isa.lanes}"
    return "the result is empty" if job.node.output.type.elements == 0 else None


def all_inside(job: Job, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]) -> bool:
    """Does every window have a pixel?"""
    sizes, outs = job.type(0).shape[1:3], job.node.output.shape[1:3]
    return all(pads[a] < kernel[a] and (outs[a] - 1) * strides[a] - pads[a] < sizes[a] for a in (0, 1))


def _each_vector(job: Job, channels: int, body: Callable[[Expr], None]) -> None:
    k, wide = job.k, 2 * job.isa.lanes
    with k.loop("c", 0, channels // wide * wide, wide) as c:
        body(c)
    if channels % wide:
        with k.block():
            body(idx(channels - wide))


def _add(job: Job, sums: list[Var], x: Buffer, at: Expr) -> None:
    """A vector of bytes onto two of sums."""
    k, isa = job.k, job.isa
    loaded = Load(x, at, Type(x.dtype.value, 2 * isa.lanes))
    wide = k.let("wide", vector(f"vwiden_{x.dtype.value}", i16(isa), loaded))
    for total, half in zip(sums, HALVES, strict=True):
        k.assign(total, vector("viadd", i32(isa), total, vector(f"vwiden_{half}", i32(isa), wide)))


@dataclass(frozen=True, slots=True)
class Span:
    """The rows, or the columns, of one window that are in the image."""

    first: Expr
    last: Expr
    count: Expr


Window = Callable[[Expr, Span, Span, Callable[[Expr, Expr], Expr]], None]


def pool_windows(job: Job, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...], body: Window) -> None:
    """`body(place of y, rows, columns, place of a pixel)` for every window. Windows that never leave the image are not cut."""
    k = job.k
    n_, h, w, c_ = job.type(0).shape
    _, oh_, ow_, _ = job.node.output.shape

    def span(name: str, start: Expr, axis: int, size: int, outs: int) -> Span:
        if pads[axis] == 0 and (outs - 1) * strides[axis] + kernel[axis] <= size:
            return Span(start, start + kernel[axis], idx(kernel[axis]))
        first, last = k.let(f"{name}_first", imax(start, 0)), k.let(f"{name}_last", imin(start + kernel[axis], size))
        return Span(first, last, last - first)

    with k.loop("n", 0, n_) as n, k.loop("oh", 0, oh_) as oh, k.loop("ow", 0, ow_) as ow:
        top, left = k.let("top", oh * strides[0] - pads[0]), k.let("left", ow * strides[1] - pads[1])
        rows, cols = span("row", top, 0, h, oh_), span("col", left, 1, w, ow_)
        out = k.let("to", ((n * oh_ + oh) * ow_ + ow) * c_)
        body(out, rows, cols, lambda i, j: ((n * h + i) * w + j) * c_)


def number_as(value: Expr, to: Type) -> Expr:
    """An index as a number of another type; one that is known is written as such."""
    if isinstance(value, Num):
        return Num(float(value.value) if to.kind == "f32" else int(value.value), to)
    return cast(value, to)


def qaverage_pool_applies(job: Job) -> str | None:
    op = job.node.op
    assert isinstance(op, QAveragePool)
    if reason := _no_vectors(job, job.type(0).shape[-1]):
        return reason
    if math.prod(op.kernel) > MOST_PIXELS:
        return f"a window has more than {MOST_PIXELS} pixels"
    return None if all_inside(job, op.kernel, op.strides, op.pads) else "a window is all padding"


def qaverage_pool_lanes(job: Job) -> Lowered:
    op, k, isa = job.node.op, job.k, job.isa
    assert isinstance(op, QAveragePool)
    shape = job.type(0).shape
    x, y = job.operand(0, "x"), job.writes()
    real = Type("f32", isa.lanes)
    bytes_ = Bytes(isa, 0, op.low, op.high, y.dtype)

    def window(out: Expr, rows: Span, cols: Span, pixel: Callable[[Expr, Expr], Expr]) -> None:
        pixels = rows.count * cols.count
        count, half = (k.let(name, number_as(n, Type("f32"))) for name, n in (("count", pixels), ("half", pixels // 2)))
        less = Num(-half.value, half.type) if isinstance(half, Num) else Op("neg", (half,), half.type)
        counts = k.let("counts", Op("vsplat", (count,), real))
        up, down = (k.let(s, Op("vsplat", (v,), real)) for s, v in (("up", half), ("down", less)))

        def channels(c: Expr) -> None:
            sums = [k.var(f"sum_{half}", splat(isa, 0)) for half in HALVES]
            with k.loop("i", rows.first, rows.last) as i, k.loop("j", cols.first, cols.last) as j:
                _add(job, sums, x, pixel(i, j) + c)
            values = []
            for total in sums:
                value = k.let("total", Op("vtofloat", (total,), real))
                positive = Op("vgt", (value, Op("vsplat", (Num(0.0, Type("f32")),), real)), Type("mask", isa.lanes))
                lifted = Op("vadd", (value, Op("vblend", (positive, up, down), real)), real)
                values.append(k.let("mean", vector("vtrunc", i32(isa), Op("vdiv", (lifted, counts), real))))
            bytes_.store(k, y, out + c, 2 * isa.lanes, values)

        _each_vector(job, shape[-1], channels)

    pool_windows(job, op.kernel, op.strides, op.pads, window)
    about = f"qaverage_pool {list(op.kernel)}, {list(shape)} -> {list(job.node.output.shape)}, {2 * isa.lanes} channels at a time"
    return job.done("qaverage_pool", about, f"qaverage_pool(lanes={2 * isa.lanes})")


def max_pool_applies(job: Job) -> str | None:
    op, shape = job.node.op, job.type(0).shape
    assert isinstance(op, MaxPool)
    if op.layout is not Layout.NHWC or len(shape) != 4:
        return "the layout is not NHWC with two spatial axes"
    if reason := _no_vectors(job, shape[-1]):
        return reason
    if any(d != 1 for d in op.dilations):
        return "the window is dilated"
    return None if all_inside(job, op.kernel, op.strides, op.pads) else "a window is all padding"


def max_pool_bytes(job: Job) -> Lowered:
    op, k, isa = job.node.op, job.k, job.isa
    assert isinstance(op, MaxPool)
    shape = job.type(0).shape
    x, y = job.operand(0, "x"), job.writes()
    kind = Type(x.dtype.value, 2 * isa.lanes)

    def window(out: Expr, rows: Span, cols: Span, pixel: Callable[[Expr, Expr], Expr]) -> None:
        def channels(c: Expr) -> None:
            top = k.var("top", Load(x, pixel(rows.first, cols.first) + c, kind))
            with k.loop("i", rows.first, rows.last) as i, k.loop("j", cols.first, cols.last) as j:
                k.assign(top, Op(f"vmax_{x.dtype.value}", (top, Load(x, pixel(i, j) + c, kind)), kind))
            k.store(y, out + c, top)

        _each_vector(job, shape[-1], channels)

    pool_windows(job, op.kernel, op.strides, op.pads, window)
    about = f"max_pool {list(op.kernel)}, {list(shape)} -> {list(job.node.output.shape)}, {2 * isa.lanes} channels at a time"
    return job.done("max_pool_bytes", about, f"max_pool_bytes(lanes={2 * isa.lanes})")


@dataclass(frozen=True, slots=True)
class Mean:
    """[outer, count, channels], reduced over the one in the middle."""

    outer: int
    count: int
    channels: int
    scaling: Scaling


@fact
def mean_of(job: Job) -> Mean | str:
    op, shape = job.node.op, job.type(0).shape
    assert isinstance(op, QMean)
    axes = sorted(normal_axes(op.axes, len(shape)))
    if not axes or axes != list(range(axes[0], axes[-1] + 1)) or axes[-1] == len(shape) - 1:
        return "the reduced axes do not lie side by side with channels behind them"
    outer, count, channels = math.prod(shape[: axes[0]]), math.prod(shape[a] for a in axes), math.prod(shape[axes[-1] + 1 :])
    if reason := _no_vectors(job, channels):
        return reason
    bound = count * size_of(job.type(0).dtype, op.x_zero)
    scaling = scaling_by(job.isa, op.scaling, np.array([op.multiplier]), np.array([op.shift]), bound)
    return scaling if isinstance(scaling, str) else Mean(outer, count, channels, scaling)


def qmean_lanes(job: Job) -> Lowered:
    op, k, isa, mean = job.node.op, job.k, job.isa, mean_of(job)
    assert isinstance(op, QMean) and not isinstance(mean, str)
    x = job.operand(0, "x")
    factor = factor_of(job, mean.scaling)
    y = job.writes()
    bytes_ = Bytes(isa, op.y_zero, op.low, op.high, y.dtype)
    with k.loop("n", 0, mean.outer) as n:

        def body(c: Expr) -> None:
            sums = [k.var(f"sum_{half}", splat(isa, -mean.count * op.x_zero)) for half in HALVES]
            with k.loop("i", 0, mean.count) as i:
                _add(job, sums, x, (n * mean.count + i) * mean.channels + c)
            constants = factor.constants(k, idx(0))
            bytes_.store(k, y, n * mean.channels + c, 2 * isa.lanes, [factor.apply(k, total, constants) for total in sums])

        _each_vector(job, mean.channels, body)
    axes, shape = sorted(normal_axes(op.axes, job.type(0).rank)), job.type(0).shape
    about = f"qmean over axes {axes}, {list(shape)} -> {list(job.node.output.shape)}, {2 * isa.lanes} channels at a time"
    return job.done("qmean", about, f"qmean(lanes={2 * isa.lanes})")
