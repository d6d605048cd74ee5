"""Means of integers by floats, added in the order that decides their last bit."""

from __future__ import annotations

from collections.abc import Sequence

from intaglio.ir.sizes import Size, most, moves
from intaglio.kernels.builder import Builder
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Op, Type, Var, cast, idx, imax, imin
from intaglio.kernels.whole_numbers import I32, bounded, number
from intaglio.ops.quantised_real import QRealMean

F32 = Type("f32")


def _real(x: Buffer, at: Expr, op: QRealMean) -> Expr:
    stored = cast(Load(x, at, Type(x.dtype.value)), I32)
    steps = Op("sub", (stored, number(op.x_zero)), I32) if op.x_zero else stored
    return Op("mul", (cast(steps, F32), Num(op.x_scale, F32)), F32)


def _add(k: Builder, total: Var, value: Expr) -> None:
    k.assign(total, Op("add", (total, value), F32))


def _never_cut(op: QRealMean, sizes: Sequence[int], outs: Sequence[int]) -> bool:
    """Are windows of images whose size the caller gives inside of all of them? Compilers see it by themselves where sizes are
    numbers; where they do not, a 2x2 of 32 channels took 12 times as many instructions on AVX2."""
    last = [(out - 1) * stride + kernel for out, stride, kernel in zip(outs, op.strides, op.kernel, strict=True)]
    return moves(sizes) and not any(op.pads) and all(most(end - size) <= 0 for end, size in zip(last, sizes, strict=True))


def qreal_mean(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, QRealMean)
    x, y = job.operand(0, "x"), job.writes()
    n_, h, w, c_ = job.type(0).shape
    _, oh_, ow_, _ = job.node.output.shape

    def store(total: Expr, count: Expr, at: Expr) -> None:
        mean = Op("div", (total, count), F32)
        nearest = Op("fn_nearest", (Op("div", (mean, Num(op.y_scale, F32)), F32),), I32)
        k.store(y, at, bounded(k.let("v", Op("add", (nearest, number(op.y_zero)), I32)), op.low, op.high, op.to))

    if op.order == "lanes":
        full = h * w // 4 * 4
        with k.loop("n", 0, n_) as n, k.loop("c", 0, c_) as c:
            lanes = [k.var(f"lane{i}", Num(0.0, F32)) for i in range(4)]
            start = k.let("start", n * (h * w * c_) + c)
            with k.loop("i", 0, full // 4) as i:
                for lane, total in enumerate(lanes):
                    _add(k, total, _real(x, start + (i * 4 + lane) * c_, op))
            halves = [Op("add", (lanes[i], lanes[i + 2]), F32) for i in (0, 1)]
            total = k.var("total", Op("add", (halves[0], halves[1]), F32))
            with k.loop("i", full, h * w) as i:
                _add(k, total, _real(x, start + i * c_, op))
            store(total, cast(idx(h * w), F32) if isinstance(h * w, Size) else Num(float(h * w), F32), n * c_ + c)
    else:
        with k.loop("n", 0, n_) as n, k.loop("oh", 0, oh_) as oh, k.loop("ow", 0, ow_) as ow:
            top, left = k.let("top", oh * op.strides[0] - op.pads[0]), k.let("left", ow * op.strides[1] - op.pads[1])
            if _never_cut(op, (h, w), (oh_, ow_)):
                rows, cols = (top, top + op.kernel[0]), (left, left + op.kernel[1])
                inside: Expr = Num(float(op.kernel[0] * op.kernel[1]), F32)
            else:
                rows = (k.let("row_first", imax(top, 0)), k.let("row_last", imin(top + op.kernel[0], h)))
                cols = (k.let("col_first", imax(left, 0)), k.let("col_last", imin(left + op.kernel[1], w)))
                inside = cast((rows[1] - rows[0]) * (cols[1] - cols[0]), F32)
            count = Num(float(op.kernel[0] * op.kernel[1]), F32) if op.count_include_pad else k.let("count", inside)
            with k.loop("c", 0, c_) as c:
                total = k.var("total", Num(0.0, F32))
                if op.order == "columns":
                    with k.loop("j", cols[0], cols[1]) as j:
                        column = k.var("column", Num(0.0, F32))
                        with k.loop("i", rows[0], rows[1]) as i:
                            _add(k, column, _real(x, ((n * h + i) * w + j) * c_ + c, op))
                        _add(k, total, column)
                else:
                    with k.loop("i", rows[0], rows[1]) as i, k.loop("j", cols[0], cols[1]) as j:
                        _add(k, total, _real(x, ((n * h + i) * w + j) * c_ + c, op))
                store(total, count, ((n * oh_ + oh) * ow_ + ow) * c_ + c)
    about = f"mean of windows {list(op.kernel)} by floats, {list(job.type(0).shape)} -> {list(job.node.output.shape)}"
    return job.done("qreal_mean", about)
