"""Kernels that find as many as there are: they count, and end with an error where there is no room for the result."""

from __future__ import annotations

import math

from intaglio.ir.sizes import Size, least, most
from intaglio.ir.types import DType, strides_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.detection import area, strike
from intaglio.kernels.elementwise import offset_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import (
    IDX,
    SIZE_OUT_OF_BOUNDS,
    Buffer,
    Expr,
    Load,
    Num,
    Op,
    Type,
    Var,
    both,
    cast,
    either,
    idx,
    imin,
    select,
)  # fmt: skip
from intaglio.ops.found import AsSize, NonMaxSuppression, NonZero, Unique

F32, I64, U8 = Type("f32"), Type("i64"), Type("u8")


def as_size(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, AsSize)
    x, y = job.operand(0, "x"), job.writes()
    number = k.let("number", cast(Load(x, idx(0), Type(x.dtype.value)), I64))
    low, high = (Num(n, I64) for n in (op.low, op.high))
    with k.when(either(number.compare("lt", low), number.compare("gt", high))):
        k.fail(SIZE_OUT_OF_BOUNDS)
    if isinstance(op.limit, Size):
        with k.when(number.compare("gt", cast(idx(op.limit), I64))):
            k.fail(SIZE_OUT_OF_BOUNDS)
    k.store(y, 0, number)
    return job.done("as_size", f"a size from {op.low} to {op.high}")


def nonzero(job: Job) -> Lowered:
    """Counts first: how far the rows of indices are apart is known then."""
    op, k, shape = job.node.op, job.k, job.type(0).shape
    assert isinstance(op, NonZero)
    x, y, count = job.operand(0, "x"), job.writes(0), job.writes(1, "count")
    sizes = list(shape) or [1]
    kind = Type(x.dtype.value)

    def each(total: Var, write: bool) -> None:
        with k.loops([f"i{n}" for n in range(len(sizes))], sizes) as at:
            stored = Load(x, offset_of(at, list(strides_of(tuple(sizes)))), kind)
            value = cast(stored, F32) if x.dtype in (DType.F16, DType.BF16) else stored
            with k.when(value.compare("ne", Num(0, value.type))):
                if write:
                    for n, i in enumerate(at):
                        k.store(y, n * rows + total, cast(i, I64))
                k.assign(total, total + 1)

    rows = k.var("rows", 0)
    each(rows, write=False)
    _room(k, rows, op.count, math.prod(sizes))
    _enough(k, rows, op.count)
    k.store(count, 0, cast(rows, I64))
    each(k.var("done", 0), write=True)
    return job.done("nonzero", f"nonzero of {x.dtype.value}{list(shape)}, at most {most(op.count)}")


def _room(k: Builder, found: Expr, room: int, high: int) -> None:
    """Where more can be found (`high`) than there may be."""
    if most(room) < most(high):
        with k.when(found.compare("gt", most(room))):
            k.fail(SIZE_OUT_OF_BOUNDS)


def _enough(k: Builder, found: Expr, room: int, low: int = 0) -> None:
    """Where fewer can be found (`low`) than there must be."""
    if least(room) > low:
        with k.when(found.compare("lt", least(room))):
            k.fail(SIZE_OUT_OF_BOUNDS)


def non_max_suppression(job: Job) -> Lowered:
    op, k, e = job.node.op, job.k, Lanes.scalar()
    assert isinstance(op, NonMaxSuppression)
    batch, boxes_each, _ = job.type(0).shape
    classes = job.type(1).shape[1]
    boxes, scores = job.operand(0, "boxes"), job.operand(1, "scores")
    active = job.scratch(boxes_each, "active", DType.U8)
    corners = job.scratch(boxes_each * 4, "corners")
    given = ((job.optional(n), name) for n, name in ((2, "limit"), (3, "overlap"), (4, "least")))
    asked, *limits = (None if value is None else job.reads(value, name) for value, name in given)
    y, count = job.writes(0), job.writes(1, "count")
    words = (("most_overlap", op.overlap), ("least_score", op.least_score))
    most_overlap, least_score = (
        e.const(number) if buffer is None else k.let(word, e.load(buffer, idx(0)))
        for buffer, (word, number) in zip(limits, words, strict=True)
    )
    limit = None if asked is None else k.let("places", imin(op.most, cast(Load(asked, idx(0), I64), IDX)))
    rows = k.var("rows", 0)
    with k.loop("batch", 0, batch) as b:
        with k.loop("i", 0, boxes_each) as i:
            _corners(k, e, op, boxes, k.let("box", (b * boxes_each + i) * 4), corners, i * 4)
        with k.loop("kind", 0, classes) as c:
            table = k.let("table", (b * classes + c) * boxes_each)
            with k.loop("i", 0, boxes_each) as i:
                good = e.load(scores, table + i).compare("gt", least_score)
                k.store(active, i, select(good, Num(1, U8), Num(0, U8)))
            places = idx(op.most) if limit is None else limit
            _take(job, most_overlap, scores, active, corners, table, rows, b, c, y, places)
    _enough(k, rows, op.count)
    k.store(count, 0, cast(rows, I64))
    told = [number if buffer is None else "computed" for buffer, (_, number) in zip(limits, words, strict=True)]
    about = f"non_max_suppression, {op.most} of {boxes_each} boxes, overlap {told[0]}, score {told[1]}"
    return job.done("non_max_suppression", about)


def _corners(k: Builder, e: Lanes, op: NonMaxSuppression, boxes: Buffer, at: Expr, corners: Buffer, to: Expr) -> None:
    """A box as low and high corner."""
    a, b, c, d = (k.let(f"v{n}", e.load(boxes, at + n)) for n in range(4))
    if op.centred:
        half = [k.let("half", e.div(side, e.const(2.0))) for side in (c, d)]
        made = [e.sub(a, half[0]), e.sub(b, half[1]), e.add(a, half[0]), e.add(b, half[1])]
    else:
        made = [e.lowest(a, c), e.lowest(b, d), e.highest(a, c), e.highest(b, d)]
    for n, value in enumerate(made):
        k.store(corners, to + n, value)


def _take(
    job: Job, most_overlap: Expr, scores: Buffer, active: Buffer, corners: Buffer, table: Expr, rows: Var, b: Expr, c: Expr,
    y: Buffer, places: Expr,
) -> None:  # fmt: skip
    """The best that is left, as often as there are places."""
    k, e, op, (batch, count, _), classes = job.k, Lanes.scalar(), job.node.op, job.type(0).shape, job.type(1).shape[1]
    assert isinstance(op, NonMaxSuppression)
    with k.loop("place", 0, places):
        best = k.var("best", Num(-1, IDX))
        score = k.var("score", e.const(0.0), F32)
        with k.loop("i", 0, count) as i:
            now = k.let("now", e.load(scores, table + i))
            better = Op("or", (best.compare("lt", 0), now.compare("gt", score)), Type("bool"))
            with k.when(both(Load(active, i, U8).compare("ne", Num(0, U8)), better)):
                k.assign(best, i)
                k.assign(score, now)
        with k.when(best.compare("ge", 0)):
            _room(k, rows + 1, op.count, batch * classes * op.most)
            for n, value in enumerate((b, c, best)):
                k.store(y, rows * 3 + n, cast(value, I64))
            k.assign(rows, rows + 1)
            k.store(active, best, Num(0, U8))
            mine = [k.let(name, e.load(corners, best * 4 + n)) for n, name in enumerate(("top", "left", "bottom", "right"))]
            size = k.let("area", area(e, mine))
            with k.loop("i", 0, count) as i:
                strike(job, e, most_overlap, corners, active, mine, size, i)


def unique(job: Job) -> Lowered:
    """Each row is compared with those that were found. Then they are sorted by exchanging neighbours, and rows look up theirs."""
    op, k = job.node.op, job.k
    assert isinstance(op, Unique)
    n, width = job.type(0).shape
    x, y = job.operand(0, "x"), job.writes(0)
    first, inverse, numbers, count = (job.writes(i + 1, name) for i, name in enumerate(("first", "inverse", "numbers", "count")))
    rows = k.var("rows", 0)
    with k.loop("i", 0, n) as i:
        at = k.var("at", 0)
        _look_up(k, x, i * width, y, width, at, rows)
        with k.when(at.compare("eq", rows)):
            _room(k, rows + 1, op.count, n)
            with k.loop("w", 0, width) as w:
                k.store(y, rows * width + w, Load(x, i * width + w, Type(x.dtype.value)))
            k.store(first, rows, cast(i, I64))
            k.store(numbers, rows, Num(0, I64))
            k.assign(rows, rows + 1)
        k.store(numbers, at, Load(numbers, at, I64) + Num(1, I64))
        k.store(inverse, i, cast(at, I64))
    _enough(k, rows, op.count, min(1, least(n)))
    if op.sorted:
        _sort(k, y, width, [first, numbers], rows)
        with k.loop("i", 0, n) as i:
            at = k.var("at", 0)
            _look_up(k, x, i * width, y, width, at, rows)
            k.store(inverse, i, cast(at, I64))
    k.store(count, 0, cast(rows, I64))
    return job.done("unique", f"unique rows of {x.dtype.value}{list(job.type(0).shape)}{', sorted' if op.sorted else ''}")


def _value(buffer: Buffer, at: Expr) -> Expr:
    stored = Load(buffer, at, Type(buffer.dtype.value))
    return cast(stored, F32) if buffer.dtype in (DType.F16, DType.BF16) else stored


def _order(k: Builder, a: Buffer, a_at: Expr, b: Buffer, b_at: Expr, width: int) -> Var:
    """-1, 0 or 1: how two rows compare."""
    order = k.var("order", 0)
    with k.loop("w", 0, width) as w:
        left, right = k.let("left", _value(a, a_at + w)), k.let("right", _value(b, b_at + w))
        with k.when(both(order.compare("eq", 0), left.compare("lt", right))):
            k.assign(order, -1)
        with k.when(both(order.compare("eq", 0), left.compare("gt", right))):
            k.assign(order, 1)
    return order


def _look_up(k: Builder, x: Buffer, x_at: Expr, y: Buffer, width: int, at: Var, rows: Var) -> None:
    """`at` becomes the row of y that is this row of x, or `rows`."""
    differs = k.var("differs", 1)
    with k.during(both(differs.compare("ne", 0), at.compare("lt", rows))):
        k.assign(differs, _order(k, x, x_at, y, at * width, width))
        with k.when(differs.compare("ne", 0)):
            k.assign(at, at + 1)


def _sort(k: Builder, y: Buffer, width: int, beside: list[Buffer], rows: Var) -> None:
    """By insertion, with what belongs to each row."""
    with k.loop("i", 1, rows) as i:
        at = k.var("at", i)
        order = k.var("wrong", 1)
        with k.during(both(order.compare("gt", 0), at.compare("gt", 0))):
            k.assign(order, _order(k, y, (at - 1) * width, y, at * width, width))
            with k.when(order.compare("gt", 0)):
                with k.loop("w", 0, width) as w:
                    _exchange(k, y, (at - 1) * width + w, at * width + w)
                for buffer in beside:
                    _exchange(k, buffer, at - 1, at)
                k.assign(at, at - 1)


def _exchange(k: Builder, buffer: Buffer, a: Expr, b: Expr) -> None:
    kind = Type(buffer.dtype.value)
    held = k.let("held", Load(buffer, a, kind))
    k.store(buffer, a, Load(buffer, b, kind))
    k.store(buffer, b, held)
