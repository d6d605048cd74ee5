"""The distribution that fits the probabilities of pairs: `ops/coupling.py` says what is iterated. The matrix Q and the vector Qp
are working memory; the result is the iterate itself."""

from __future__ import annotations

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Var, idx, select
from intaglio.ops.coupling import MOST_TURNS, PairwiseCoupling, tolerance


def _fill(k: Builder, e: Lanes, r: Buffer, row: Expr, q: Buffer, count: int) -> None:
    """Q[t][t] is the sum of squares of r[j][t], Q[t][j] = Q[j][t] = -r[j][t] r[t][j]."""
    with k.loop("t", 0, count) as t:
        k.store(q, t * count + t, e.const(0.0))
    place = k.var("pair", idx(0))
    with k.loop("i", 0, count - 1) as i, k.loop("j", i + 1, count) as j:
        first = k.let("first", e.load(r, row + place))
        second = k.let("second", e.sub(e.const(1.0), first))
        product = k.let("product", e.neg(e.mul(first, second)))
        k.store(q, i * count + j, product)
        k.store(q, j * count + i, product)
        k.store(q, i * count + i, e.add(e.load(q, i * count + i), e.mul(second, second)))
        k.store(q, j * count + j, e.add(e.load(q, j * count + j), e.mul(first, first)))
        k.assign(place, place + 1)


def _measure(k: Builder, e: Lanes, q: Buffer, qp: Buffer, p: Buffer, to: Expr, count: int) -> tuple[Var, Var]:
    """Qp, p'Qp, and how far the furthest class is from the minimum."""
    whole = k.var("whole", e.const(0.0), e.type)
    with k.loop("t", 0, count) as t:
        total = k.var("total", e.const(0.0), e.type)
        with k.loop("j", 0, count) as j:
            k.assign(total, e.add(total, e.mul(e.load(q, t * count + j), e.load(p, to + j))))
        k.store(qp, t, total)
        k.assign(whole, e.add(whole, e.mul(e.load(p, to + t), total)))
    worst = k.var("worst", e.const(0.0), e.type)
    with k.loop("t", 0, count) as t:
        k.assign(worst, e.highest(e.abs(e.sub(e.load(qp, t), whole)), worst))
    return whole, worst


def _turn(k: Builder, e: Lanes, q: Buffer, qp: Buffer, p: Buffer, to: Expr, whole: Var, count: int) -> None:
    with k.loop("t", 0, count) as t:
        own, here = k.let("own", e.load(q, t * count + t)), k.let("here", e.load(qp, t))
        step = k.let("step", e.div(e.sub(whole, here), own))
        k.store(p, to + t, e.add(e.load(p, to + t), step))
        grown = k.let("grown", e.add(e.const(1.0), step))
        added = e.mul(step, e.add(e.mul(step, own), e.mul(e.const(2.0), here)))
        k.assign(whole, e.div(e.add(whole, added), e.mul(grown, grown)))
        with k.loop("j", 0, count) as j:
            moved = e.add(e.load(qp, j), e.mul(step, e.load(q, t * count + j)))
            k.store(qp, j, e.div(moved, grown))
            k.store(p, to + j, e.div(e.load(p, to + j), grown))


def pairwise_coupling(job: Job) -> Lowered:
    op, k, e = job.node.op, job.k, Lanes.scalar()
    assert isinstance(op, PairwiseCoupling)
    count, (rows, pairs) = op.classes, job.type(0).shape
    r, p = job.operand(0, "r"), job.writes(0, "p")
    q, qp = job.scratch(count * count, "q", DType.F32), job.scratch(count, "qp", DType.F32)
    with k.loop("n", 0, rows) as n:
        to = k.let("to", n * count)
        _fill(k, e, r, k.let("row", n * pairs), q, count)
        with k.loop("t", 0, count) as t:
            k.store(p, to + t, e.const(1.0 / count))
        left = k.var("left", idx(max(MOST_TURNS, count)))
        with k.during(left.compare("gt", 0)):
            whole, worst = _measure(k, e, q, qp, p, to, count)
            k.assign(left, select(worst.compare("lt", tolerance(count)), idx(0), left - 1))
            with k.when(worst.compare("ge", tolerance(count))):
                _turn(k, e, q, qp, p, to, whole, count)
    return job.done("pairwise_coupling", f"pairwise_coupling\nf32[{rows},{pairs}] -> f32[{rows},{count}]")
