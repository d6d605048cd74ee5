"""Sizes of the caller as data: one store each, and counting up to one."""

from __future__ import annotations

from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Expr, Type, as_expr, cast, idx
from intaglio.ops.sizes import Dimensions, Iota


def _stored(value: Expr, job: Job) -> Expr:
    return cast(value, Type(job.node.output.dtype.value))


def dimensions(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, Dimensions)
    y = job.writes()
    for n, size in enumerate(op.sizes):
        k.store(y, n, _stored(idx(size), job))
    return job.done("dimensions", f"y = {', '.join(map(str, op.sizes))}")


def iota(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, Iota)
    y, wide = job.writes(), Type("f64" if op.dtype.is_float else "i64")
    with k.loop("i", 0, op.count) as i:
        step = cast(i, wide) * as_expr(op.step, wide)
        k.store(y, i, cast(as_expr(op.start, wide) + step, Type(y.dtype.value)))
    return job.done("iota", f"y[i] = {op.start} + i * {op.step}, {op.count} of them")
