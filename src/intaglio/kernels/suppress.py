"""Suppression of boxes by a heap, as LiteRT does it: `ops/detection.py` says how."""

from __future__ import annotations

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.detection import area
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import IDX, Buffer, Expr, Load, Num, Type, Var, both, cast, either, idx, imin, select
from intaglio.ops.detection import SuppressBoxes

F32, I32 = Type("f32"), Type("i32")


def suppress_boxes(job: Job) -> Lowered:
    op, k, e = job.node.op, job.k, Lanes.scalar()
    assert isinstance(op, SuppressBoxes)
    count = job.type(0).shape[0]
    boxes, scores = job.operand(0, "boxes"), job.operand(1, "scores")
    limits = [job.operand(n, name) for n, name in ((2, "overlap"), (3, "least"), (4, "sigma"))]
    heap, since = job.scratch(count, "heap", DType.I32), job.scratch(count, "since", DType.I32)
    worth = job.scratch(count, "worth")
    indices, shown, found = job.writes(0, "indices"), job.writes(1, "shown"), job.writes(2, "found")
    most_overlap, least, sigma = (
        k.let(name, e.load(limit, idx(0))) for name, limit in zip(("most_overlap", "least_score", "width"), limits, strict=True)
    )
    soft = k.let("soft", select(sigma.compare("gt", e.const(0.0)), Num(1, IDX), Num(0, IDX)))
    factor = k.let("factor", e.div(e.const(-0.5), select(soft.compare("ne", 0), sigma, e.const(1.0))))
    size = k.var("size", 0)
    with k.loop("i", 0, count) as i:
        k.store(worth, i, e.load(scores, i))
        k.store(since, i, Num(0, I32))
        with k.when(e.load(scores, i).compare("gt", least)):
            _rise(k, e, heap, worth, k.var("at", size), i)
            k.assign(size, size + 1)
    with k.loop("i", 0, op.most) as i:
        k.store(indices, i, Num(0, I32))
        k.store(shown, i, e.const(0.0))
    places, taken = k.let("places", imin(size, op.most)), k.var("taken", 0)
    with k.during(both(taken.compare("lt", places), size.compare("gt", 0))):
        best = _pop(k, e, heap, worth, size)
        before = k.let("before", e.load(worth, best))
        score, struck = k.var("score", before, F32), k.var("struck", 0)
        mine = _corners(k, e, boxes, best, "m")
        mine_area = k.let("mine", area(e, mine))
        first, at = _index(k, "first", since, best), k.var("other", taken)
        with k.during(at.compare("gt", first)):
            k.assign(at, at - 1)
            part = _overlap(k, e, _corners(k, e, boxes, _index(k, "them", indices, at), "t"), mine, mine_area)
            with k.when(part.compare("ge", most_overlap)):
                k.assign(struck, 1)
            with k.when(both(struck.compare("eq", 0), soft.compare("ne", 0))):
                lower = e.call("exp", e.mul(e.mul(factor, part), part))
                k.assign(score, e.mul(score, lower))
            with k.when(either(struck.compare("ne", 0), score.compare("le", least))):
                k.assign(at, first)
        k.store(since, best, cast(taken, I32))
        k.store(worth, best, score)
        with k.when(both(struck.compare("eq", 0), score.compare("eq", before))):
            k.store(indices, taken, cast(best, I32))
            k.store(shown, taken, score)
            k.assign(taken, taken + 1)
        with k.when(both(struck.compare("eq", 0), score.compare("gt", least))):
            _rise(k, e, heap, worth, k.var("at", size), best)
            k.assign(size, size + 1)
    k.store(found, 0, cast(taken, I32))
    return job.done("suppress_boxes", f"suppress_boxes, at most {op.most} of {count}")


def _index(k: Builder, name: str, buffer: Buffer, at: Expr) -> Expr:
    return k.let(name, cast(Load(buffer, at, I32), IDX))


def _corners(k: Builder, e: Lanes, boxes: Buffer, box: Expr, stem: str) -> list[Expr]:
    """(low, low, high, high) of two opposite ones."""
    a, b, c, d = (k.let(f"{stem}{n}", e.load(boxes, box * 4 + n)) for n in range(4))
    made = (e.lowest(a, c), e.lowest(b, d), e.highest(a, c), e.highest(b, d))
    return [k.let(f"{stem}_corner", value) for value in made]


def _overlap(k: Builder, e: Lanes, box: list[Expr], mine: list[Expr], size: Expr) -> Expr:
    """Intersection over union; 0 where a box has no area."""
    theirs, zero = k.let("theirs", area(e, box)), e.const(0.0)
    sides = [e.highest(e.sub(e.lowest(mine[n + 2], box[n + 2]), e.highest(mine[n], box[n])), zero) for n in (0, 1)]
    shared = k.let("shared", e.mul(sides[0], sides[1]))
    real = both(size.compare("gt", zero), theirs.compare("gt", zero))
    union = select(real, e.sub(e.add(theirs, size), shared), e.const(1.0))
    return k.let("overlapped", select(real, e.div(shared, union), zero))


def _rise(k: Builder, e: Lanes, heap: Buffer, worth: Buffer, at: Var, box: Expr) -> None:
    """A box goes up from a free place, to where the one above is worth as much."""
    mine, rising = k.let("mine", e.load(worth, box)), k.var("rising", 1)
    with k.during(both(rising.compare("ne", 0), at.compare("gt", 0))):
        up = k.let("up", (at - 1) // 2)
        above = _index(k, "above", heap, up)
        with k.when(e.load(worth, above).compare("lt", mine)):
            k.store(heap, at, cast(above, I32))
            k.assign(at, up)
        with k.otherwise():
            k.assign(rising, 0)
    k.store(heap, at, cast(box, I32))


def _pop(k: Builder, e: Lanes, heap: Buffer, worth: Buffer, size: Var) -> Expr:
    """The best. The free place goes down to the end, the last one takes it and goes up."""
    top = _index(k, "best", heap, idx(0))
    k.assign(size, size - 1)
    with k.when(size.compare("gt", 0)):
        last, at = _index(k, "last", heap, size), k.var("at", 0)
        with k.during(at.compare("lt", (size - 1) // 2)):
            child = k.var("child", at * 2 + 2)
            left, right = (e.load(worth, _index(k, name, heap, child - n)) for n, name in ((1, "left"), (0, "right")))
            with k.when(right.compare("lt", left)):
                k.assign(child, child - 1)
            k.store(heap, at, Load(heap, child, I32))
            k.assign(at, child)
        with k.when(both((size % 2).compare("eq", 0), (at * 2 + 2).compare("eq", size))):
            k.store(heap, at, Load(heap, at * 2 + 1, I32))
            k.assign(at, at * 2 + 1)
        _rise(k, e, heap, worth, at, last)
    return top
