"""Non-maximum suppression: the best box that is left, then those that overlap it are struck out, as often as there are places."""

from __future__ import annotations

import math

from intaglio.ir.types import DType
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import IDX, Buffer, Expr, Load, Num, Op, Type, both, cast, select
from intaglio.ops.detection import SelectBoxes

F32, I32, U8 = Type("f32"), Type("i32"), Type("u8")


def select_boxes(job: Job) -> Lowered:
    op, k, e = job.node.op, job.k, Lanes.scalar()
    assert isinstance(op, SelectBoxes)
    count, classes = job.type(0).shape[0], math.prod(job.type(1).shape[:-1])
    boxes, scores = job.operand(0, "boxes"), job.operand(1, "scores")
    active = job.scratch(count, "active", DType.U8)
    indices, found = job.writes(0, "indices"), job.writes(1, "found")
    with k.loop("kind", 0, classes) as kind:
        table = kind * count
        with k.loop("i", 0, count) as i:
            good = e.load(scores, table + i).compare("ge", e.const(op.least_score))
            k.store(active, i, select(good, Num(1, U8), Num(0, U8)))
        taken = k.var("taken", Num(0, I32), I32)
        with k.loop("place", 0, op.most) as place:
            best = k.var("best", Num(-1, IDX))
            score = k.var("score", e.const(0.0), F32)
            with k.loop("i", 0, count) as i:
                now = k.let("now", e.load(scores, table + i))
                better = Op("or", (best.compare("lt", 0), now.compare("gt", score)), Type("bool"))
                with k.when(both(Load(active, i, U8).compare("ne", Num(0, U8)), better)):
                    k.assign(best, i)
                    k.assign(score, now)
            k.store(indices, kind * op.most + place, cast(best, I32))
            with k.when(best.compare("ge", 0)):
                k.assign(taken, Op("add", (taken, Num(1, I32)), I32))
                k.store(active, best, Num(0, U8))
                mine = [k.let(name, e.load(boxes, best * 4 + n)) for n, name in enumerate(("top", "left", "bottom", "right"))]
                size = k.let("area", area(e, mine))
                with k.loop("i", 0, count) as i:
                    strike(job, e, e.const(op.overlap), boxes, active, mine, size, i)
        k.store(found, kind, taken)
    return job.done("select_boxes", f"select_boxes {op.most} of {count}, score {op.least_score}, overlap {op.overlap}")


def area(e: Lanes, box: list[Expr]) -> Expr:
    return e.mul(e.sub(box[2], box[0]), e.sub(box[3], box[1]))


def strike(job: Job, e: Lanes, most: Expr, boxes: Buffer, active: Buffer, mine: list[Expr], size: Expr, i: Expr) -> None:
    """Box i is out when it overlaps too much."""
    k = job.k
    other = [k.let(f"b{n}", e.load(boxes, i * 4 + n)) for n in range(4)]
    theirs = k.let("theirs", area(e, other))
    sides = [e.highest(e.sub(e.lowest(mine[n + 2], other[n + 2]), e.highest(mine[n], other[n])), e.const(0.0)) for n in (0, 1)]
    shared = k.let("shared", e.mul(sides[0], sides[1]))
    real = both(size.compare("gt", e.const(0.0)), theirs.compare("gt", e.const(0.0)))
    part = k.let("part", e.div(shared, e.sub(e.add(size, theirs), shared)))
    with k.when(both(real, part.compare("gt", most))):
        k.store(active, i, Num(0, U8))
