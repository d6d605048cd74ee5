"""Integer kernels beside convolutions and products: pooling, softmax, mean, resize, tables. Exact to the reference, plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import strides_of
from intaglio.kernels.elementwise import offset_of
from intaglio.kernels.integer_pool import Span, number_as, pool_windows
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import IDX, Buffer, Expr, Load, Num, Op, Type, cast, select
from intaglio.kernels.whole_numbers import I32, I64, bounded, number, scaled, whole
from intaglio.ops.base import normal_axes
from intaglio.ops.quantised_rows import QAveragePool, QMean, QResize, QSoftmax


def lookup(job: Job) -> Lowered:
    k = job.k
    x, table, y = job.operand(0, "x"), job.operand(1, "table"), job.writes()
    low = int(np.iinfo(x.dtype.numpy).min)
    with k.loop("i", 0, job.node.output.type.elements) as i:
        k.store(y, i, Load(table, whole(x, i, IDX) - low, Type(table.dtype.value)))
    return job.done("lookup", f"lookup in a table of 256, {list(job.type(0).shape)}", in_place=True)


def qaverage_pool(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, QAveragePool)
    x, y = job.operand(0, "x"), job.writes()

    def window(out: Expr, rows: Span, cols: Span, pixel: Callable[[Expr, Expr], Expr]) -> None:
        count = k.let("count", number_as(rows.count * cols.count, I32))
        half = number(int(count.value) // 2) if isinstance(count, Num) else k.let("half", Op("div", (count, number(2)), I32))
        with k.loop("c", 0, job.type(0).shape[-1]) as c:
            total = k.var("total", number(0), I32)
            with k.loop("i", rows.first, rows.last) as i, k.loop("j", cols.first, cols.last) as j:
                k.assign(total, Op("add", (total, whole(x, pixel(i, j) + c)), I32))
            lifted = select(total.compare("gt", number(0)), Op("add", (total, half), I32), Op("sub", (total, half), I32))
            mean = k.let("mean", Op("div", (k.let("lifted", lifted), count), I32))
            k.store(y, out + c, bounded(mean, op.low, op.high, y.dtype))

    pool_windows(job, op.kernel, op.strides, op.pads, window)
    return job.done("qaverage_pool", f"qaverage_pool {list(op.kernel)}, {list(job.type(0).shape)} -> {list(job.node.output.shape)}")


def _high(a: Expr, b: Expr) -> Expr:
    return Op("fn_doubling_high_multiply", (a, b), I32)


def qsoftmax(job: Job) -> Lowered:
    """The exp of every difference that can occur is a table; what is left is a sum, a reciprocal and a product."""
    op, k = job.node.op, job.k
    assert isinstance(op, QSoftmax)
    shape = job.type(0).shape
    x = job.operand(0, "x")
    table = job.packed(_exp_table(op), "exps")
    y = job.writes()
    size = shape[-1]
    multiplier, shift, lowest = op.factors()
    low, high, bits = int(np.iinfo(op.to.numpy).min), int(np.iinfo(op.to.numpy).max), op.to.bytes * 8
    with k.loop("o", 0, math.prod(shape[:-1])) as o:
        row = k.let("row", o * size)
        top = k.var("top", whole(x, row))
        with k.loop("j", 1, size, rolled=job.target.bare) as j:
            k.assign(top, Op("max", (top, whole(x, row + j)), I32))
        total = k.var("total", number(0), I32)
        with k.loop("j", 0, size, rolled=job.target.bare) as j:
            term = Load(table, cast(Op("sub", (top, whole(x, row + j)), I32), IDX), I32)
            k.assign(total, Op("add", (total, Op("fn_rounding_shift", (term, number(12)), I32)), I32))
        zeros = k.let("zeros", Op("fn_leading_zeros", (total,), I32))
        reciprocal = k.let("reciprocal", Op("fn_softmax_reciprocal", (total, zeros), I32))
        right = k.let("right", Op("sub", (number(12 + 31 - bits), zeros), I32))
        with k.loop("j", 0, size, rolled=job.target.bare) as j:
            exp = k.let("exp", Load(table, cast(Op("sub", (top, whole(x, row + j)), I32), IDX), I32))
            raw = Op("fn_rounding_shift", (_high(reciprocal, exp), right), I32)
            value = k.let("v", Op("add", (raw, number(low)), I32))
            k.store(y, row + j, bounded(value, low, high, op.to))
    about = (
        f"qsoftmax along the last axis, {list(shape)}, step {op.scale}, beta {op.beta}\n"
        f"factor {multiplier} * 2^({shift} - 31), differences below {lowest} count as 0"
    )
    return job.done("qsoftmax", about)


def _exp_table(op: QSoftmax) -> Array:
    """exp of the differences 0, -1, ... -255 in fixed point; 0 below the lowest that counts."""
    from intaglio.ops.fixed_point import doubling_high_multiply, wrap32
    from intaglio.ops.gemmlowp import exp_on_negative_values

    multiplier, shift, lowest = op.factors()
    difference = -np.arange(256, dtype=np.int64)
    counts = difference >= lowest
    lifted = wrap32(np.where(counts, difference, 0) << shift)
    exps = exp_on_negative_values(doubling_high_multiply(lifted, np.asarray(multiplier, np.int64)), 5)
    return np.where(counts, exps, 0).astype(np.int32)


def qmean(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, QMean)
    x, y = job.operand(0, "x"), job.writes()
    shape = job.type(0).shape
    axes = normal_axes(op.axes, len(shape))
    strides = strides_of(shape)
    kept = [a for a in range(len(shape)) if a not in axes]
    to = strides_of(tuple(shape[a] for a in kept))
    with k.loops([f"i{a}" for a in kept], [shape[a] for a in kept]) as at:
        base = k.let("from", offset_of(at, [strides[a] for a in kept]))
        total = k.var("total", number(0), I32)
        with k.loops([f"r{a}" for a in axes], [shape[a] for a in axes]) as inner:
            value = whole(x, base + offset_of(inner, [strides[a] for a in axes]))
            centred = Op("sub", (value, number(op.x_zero)), I32) if op.x_zero else value
            k.assign(total, Op("add", (total, centred), I32))
        how = "scale_once" if op.scaling == "once" else "scale32"
        result = Op("add", (scaled(total, number(op.multiplier), number(op.shift), how), number(op.y_zero)), I32)
        k.store(y, offset_of(at, list(to)), bounded(k.let("v", result), op.low, op.high, y.dtype))
    return job.done("qmean", f"qmean over axes {list(axes)}, {list(shape)} -> {list(job.node.output.shape)}")


def qresize(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, QResize)
    n_, h, w, c_ = job.type(0).shape
    x = job.operand(0, "x")
    tables: list[tuple[Buffer, Buffer, Buffer]] = []
    for axis, size in ((1, h), (2, w)):
        low, high, weight = (np.asarray(t).astype(np.int32) for t in op.places(axis, size))
        tables.append((job.packed(low, f"low{axis}"), job.packed(high, f"high{axis}"), job.packed(weight, f"weight{axis}")))
    y = job.writes()
    _, oh_, ow_, _ = op.shape
    one = number(1 << 10, I64)
    with k.loop("n", 0, n_) as n, k.loop("oh", 0, oh_) as oh, k.loop("ow", 0, ow_) as ow:
        rows = [k.let(f"row{m}", (n * h + whole(tables[0][m], oh, IDX)) * w) for m in (0, 1)]
        cols = [k.let(f"col{m}", whole(tables[1][m], ow, IDX)) for m in (0, 1)]
        wy, wx = k.let("wy", whole(tables[0][2], oh, I64)), k.let("wx", whole(tables[1][2], ow, I64))
        sides = [[Op("sub", (one, wy), I64), wy], [Op("sub", (one, wx), I64), wx]]
        with k.loop("c", 0, c_) as c:
            total = k.var("total", number(0, I64), I64)
            for i in (0, 1):
                for j in (0, 1):
                    share = Op("mul", (sides[0][i], sides[1][j]), I64)
                    pixel = whole(x, (rows[i] + cols[j]) * c_ + c, I64)
                    k.assign(total, Op("add", (total, Op("mul", (pixel, share), I64)), I64))
            half = number(1 << 19, I64)
            lifted = select(total.compare("gt", number(0, I64)), Op("add", (total, half), I64), Op("sub", (total, half), I64))
            value = Op("div", (k.let("lifted", lifted), number(1 << 20, I64)), I64)
            k.store(y, ((n * oh_ + oh) * ow_ + ow) * c_ + c, cast(value, Type(y.dtype.value)))
    return job.done("qresize", f"qresize bilinear, {list(job.type(0).shape)} -> {list(op.shape)}")
