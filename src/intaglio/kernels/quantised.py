"""Integer kernels: convolution, matrix products, pooling, softmax, mean, resize, tables. Exact to the reference, plain loops.

Weights of a convolution are packed [o][kh][kw][i], so that the sum over a window row is one run of products that compilers turn
into vector code. Sums are 32 bits wide (64 with 16-bit activations and a 64-bit bias), scaled by `scale32` and its kin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, strides_of
from intaglio.kernels.elementwise import broadcast_strides, offset_of
from intaglio.kernels.epilogue import epilogue_of
from intaglio.kernels.integer_pool import Span, number_as, pool_windows
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import IDX, Buffer, Builder, Expr, Load, Num, Op, Type, Var, cast, idx, imax, imin, select
from intaglio.ops.base import normal_axes
from intaglio.ops.quantised import QConv, QMatMul
from intaglio.ops.quantised_rows import QAveragePool, QMean, QResize, QSoftmax

I32, I64 = Type("i32"), Type("i64")


def number(value: int, kind: Type = I32) -> Expr:
    return Num(int(value), kind)


def whole(buffer: Buffer, at: Expr, kind: Type = I32) -> Expr:
    """An element widened to the type of the sums."""
    return cast(Load(buffer, at, Type(buffer.dtype.value)), kind)


def bounded(value: Expr, low: int, high: int, to: DType) -> Expr:
    kind = value.type
    inside = Op("min", (Op("max", (value, number(low, kind)), kind), number(high, kind)), kind)
    return cast(inside, Type(to.value))


def scaled(sum_: Expr, multiplier: Expr, shift: Expr, how: str) -> Expr:
    """How a sum becomes a number of the result: scale32, scale_once or scale64."""
    return Op(f"fn_{how}", (sum_, multiplier, shift), I32)


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


def _dot(
    k: Builder, total: Var, kind: Type, x: Buffer, x_at: Expr, x_zero: int, w: Buffer, w_at: Expr, w_zero: int, count: int | Expr
) -> None:
    """total += sum over j of (x[j] - x_zero) * (w[j] - w_zero)."""
    with k.loop("j", 0, count) as j:
        left, right = whole(x, x_at + j, kind), whole(w, w_at + j, kind)
        left = Op("sub", (left, number(x_zero, kind)), kind) if x_zero else left
        right = Op("sub", (right, number(w_zero, kind)), kind) if w_zero else right
        k.assign(total, Op("add", (total, Op("mul", (left, right), kind)), kind))


def qconv(job: Job) -> Lowered | None:
    op, k, node = job.node.op, job.k, job.node
    assert isinstance(op, QConv)
    weights, bias = node.inputs[1], job.optional(2)
    if weights is None or weights.data is None:
        return None
    n_, h, w_, c = job.type(0).shape
    _, oh_, ow_, outs = node.output.shape
    kh_, kw_ = weights.shape[2:]
    depth, columns = c // op.group, outs // op.group
    kind, how = _sums_of(job.type(0).dtype, None if bias is None else bias.dtype, op.scaling)
    x = job.operand(0, "x")
    depthwise = depth == 1 and columns == 1
    order = (2, 3, 0, 1) if depthwise else (0, 2, 3, 1)  # depthwise: channels side by side
    w = job.packed(np.ascontiguousarray(weights.data.transpose(order)).reshape(-1), "w", weights.dtype)
    b, factors = _bias_and_factors(job, how)
    epilogue = epilogue_of(job, op.epilogue, [v for v in node.inputs[5:] if v is not None], node.output.shape)
    y = job.writes()
    sh, sw = op.strides
    dh, dw = op.dilations
    with k.loop("n", 0, n_) as n, k.loop("oh", 0, oh_) as oh:
        top = k.let("top", oh * sh - op.pads[0])
        kh_low = k.let("kh_first", imax(0, (0 - top + (dh - 1)) // dh))
        kh_high = k.let("kh_last", imin(kh_, (idx(h + dh - 1) - top) // dh))
        with k.loop("ow", 0, ow_) as ow:
            left = k.let("left", ow * sw - op.pads[1])
            kw_low = k.let("kw_first", imax(0, (0 - left + (dw - 1)) // dw))
            kw_high = k.let("kw_last", imin(kw_, (idx(w_ + dw - 1) - left) // dw))
            place = k.let("to", ((n * oh_ + oh) * ow_ + ow) * outs)
            with k.loop("o", 0, outs) as o:
                total = k.var("total", whole(b, o, kind) if b is not None else number(0, kind), kind)
                group = o // columns if op.group > 1 else idx(0)
                with k.loop("kh", kh_low, kh_high) as kh:
                    line = k.let("line", ((n * h + top + kh * dh) * w_ + left) * c + group * depth)
                    if depthwise:
                        with k.loop("kw", kw_low, kw_high) as kw:
                            _dot(k, total, kind, x, line + kw * (dw * c), op.x_zero, w, (kh * kw_ + kw) * outs + o, op.w_zero, 1)
                    elif op.group == 1 and dw == 1:
                        run = k.let("run", (kw_high - kw_low) * depth)
                        first = k.let("first", line + kw_low * c)
                        panel = k.let("panel", ((o * kh_ + kh) * kw_ + kw_low) * depth)
                        _dot(k, total, kind, x, first, op.x_zero, w, panel, op.w_zero, run)
                    else:
                        with k.loop("kw", kw_low, kw_high) as kw:
                            panel = k.let("panel", ((o * kh_ + kh) * kw_ + kw) * depth)
                            _dot(k, total, kind, x, line + kw * (dw * c), op.x_zero, w, panel, op.w_zero, depth)
                value = factors.scaled(total, o, o)
                shifted = Op("add", (value, number(op.y_zero)), I32)
                result = bounded(k.let("v", shifted), op.low, op.high, op.to)
                k.store(y, place + o, epilogue.finish(k, job.one, result, o, place + o, 1) if op.epilogue else result)
    about = (
        f"qconv {kh_}x{kw_}, {c} -> {outs} channels, {h}x{w_} -> {oh_}x{ow_}, stride {sh}x{sw}, group {op.group}, "
        f"{job.type(0).dtype.value}\nNHWC, weights packed {'[kh][kw][c]' if depthwise else '[o][kh][kw][i]'}"
    )
    return job.done(f"qconv{kh_}x{kw_}_{c}_{outs}", about, "qdepthwise" if depthwise else "qconv")


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
                _dot(k, total, kind, a, a_at, op.a_zero, b, b_at + n * depth, op.b_zero, depth)
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
        with k.loop("j", 1, size) as j:
            k.assign(top, Op("max", (top, whole(x, row + j)), I32))
        total = k.var("total", number(0), I32)
        with k.loop("j", 0, size) as j:
            term = Load(table, cast(Op("sub", (top, whole(x, row + j)), I32), IDX), I32)
            k.assign(total, Op("add", (total, Op("fn_rounding_shift", (term, number(12)), I32)), I32))
        zeros = k.let("zeros", Op("fn_leading_zeros", (total,), I32))
        reciprocal = k.let("reciprocal", Op("fn_softmax_reciprocal", (total, zeros), I32))
        right = k.let("right", Op("sub", (number(12 + 31 - bits), zeros), I32))
        with k.loop("j", 0, size) as j:
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
        result = Op("add", (scaled(total, number(op.multiplier), number(op.shift), "scale32"), number(op.y_zero)), I32)
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
