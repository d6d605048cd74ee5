"""Reductions, arg-reductions and running sums.

Neighbouring axes that are both reduced or both kept are merged first. When the last axis is kept, lanes run along it; when it is
reduced, four vectors of partial sums run along it and are added up at the end. Where the caller gives its size, four rows share
the turns of a loop, with two vectors each. Integers and doubles run one lane at a time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from intaglio.ir.sizes import Size, larger, most
from intaglio.ir.types import DType, Shape, strides_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.elementwise import offset_of
from intaglio.kernels.expressions import computed_in
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import BOOL, Buffer, Expr, Load, Num, Op, Type, Var, both, cast, either, idx, select
from intaglio.kernels.part import Part
from intaglio.ops.base import normal_axes
from intaglio.ops.reduce import ArgReduce, Cumsum, Reduce

_SUMS = frozenset({"sum", "mean", "l1", "l2", "sum_square", "log_sum"})
_LONG, _PART = 2048, 128  # elements that are added up one after the other, at most; those of a part
_VECTOR_KINDS = frozenset({"sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum"})


@dataclass(frozen=True, slots=True)
class _Axis:
    size: int
    stride: int
    reduced: bool


def _axes(shape: Shape, reduced: Shape) -> list[_Axis]:
    out: list[_Axis] = []
    for axis, (size, stride) in enumerate(zip(shape, strides_of(shape), strict=True)):
        gone = axis in reduced
        if size == 1:
            continue
        if out and out[-1].reduced == gone and out[-1].stride == stride * size:
            out[-1] = _Axis(out[-1].size * size, stride, gone)
        else:
            out.append(_Axis(size, stride, gone))
    return out


def _limit(e: Lanes, kind: str) -> Expr:
    """Where max and min start."""
    if e.is_float:
        return e.const(float("-inf") if kind == "max" else float("inf"))
    if e.kind == "bool":
        return Num(0 if kind == "max" else 1, e.type)
    info = np.iinfo(DType(e.kind).numpy)
    return Num(int(info.min if kind == "max" else info.max), e.type)


def start_value(e: Lanes, kind: str) -> Expr:
    match kind:
        case "max" | "min":
            return _limit(e, kind)
        case "prod":
            return e.const(1)
        case "any" | "all":
            return Num(0 if kind == "any" else 1, BOOL)
    return e.const(0)


def fold(e: Lanes, kind: str, acc: Expr, x: Expr) -> Expr:
    match kind:
        case "sum" | "mean" | "log_sum":
            return e.add(acc, x)
        case "max" | "min":
            better = e.highest(acc, x) if kind == "max" else e.lowest(acc, x)
            return e.choose(e.compare("ne", acc, acc), acc, better) if e.is_float else better
        case "prod":
            return e.mul(acc, x)
        case "l1":
            return e.add(acc, e.abs(x))
        case "l2" | "sum_square":
            return e.fma(x, x, acc)
        case "any":
            return Op("or", (acc.compare("ne", Num(0, BOOL)), x.compare("ne", Num(0, BOOL))), BOOL)
        case "all":
            return Op("and", (acc.compare("ne", Num(0, BOOL)), x.compare("ne", Num(0, BOOL))), BOOL)
    raise AssertionError(kind)


def number(e: Lanes, count: int) -> Expr:
    """A count in the type of the arithmetic, also where the caller says what it is."""
    return cast(idx(count), Type(e.kind)) if isinstance(count, Size) else e.const(count)


def reciprocal(e: Lanes, count: int) -> Expr:
    return e.div(e.const(1.0), number(e, count)) if isinstance(count, Size) else e.const(1.0 / count)


def _finish(e: Lanes, kind: str, acc: Expr, count: int) -> Expr:
    match kind:
        case "mean" if isinstance(count, Size):
            one = Lanes.scalar(e.kind)
            some = count if e.is_float else larger(count, 1)  # whole numbers have no NaN for the mean of nothing
            return e.mul(acc, e.splat(reciprocal(one, count))) if e.vector else e.div(acc, number(one, some))
        case "mean":
            return (
                e.mul(acc, e.const(1.0 / count))
                if e.vector
                else e.div(acc, e.const(max(count, 1)) if not e.is_float else e.const(count))
            )
        case "l2":
            if not e.is_float:
                return cast(Op("fn_sqrt", (cast(acc, Type("f64")),), Type("f64")), e.type)
            return e.call("sqrt", acc)
        case "log_sum":
            if not e.is_float:
                return cast(Op("fn_log", (cast(acc, Type("f64")),), Type("f64")), e.type)
            return e.call("log", acc)
    return acc


def reduce(job: Job) -> Lowered:
    op, k, node = job.node.op, job.k, job.node
    assert isinstance(op, Reduce)
    x_type, out = job.type(0), node.output.type
    axes = _axes(x_type.shape, normal_axes(op.axes, x_type.rank))
    count = math.prod(a.size for a in axes if a.reduced)  # of no rows too, where their number is a size
    x, y = job.operand(0, "x"), job.writes()
    about = f"reduce {op.kind} over axes {list(op.axes)}\n{x_type.dtype.value}{list(x_type.shape)} -> {list(out.shape)}"
    if x_type.elements == 0:
        e = Lanes.scalar(computed_in(out.dtype))
        with k.loop("i", 0, out.elements) as i:
            value = _finish(e, op.kind, start_value(e, op.kind if op.kind != "log_sum_exp" else "sum"), 1)
            value = e.call("log", value) if op.kind == "log_sum_exp" else value
            value = e.const(math.nan) if op.kind == "mean" and e.is_float else value  # 0 / 0
            k.store(y, i, cast(value, Type(y.dtype.value)))
        return job.done("reduce_empty", about)
    lanes = job.isa.lanes
    fast = x_type.dtype is DType.F32 and lanes > 1 and op.kind in _VECTOR_KINDS and bool(axes)
    kept = [a for a in axes if not a.reduced]
    gone = [a for a in axes if a.reduced]
    to = strides_of(tuple(a.size for a in kept))
    if fast and not axes[-1].reduced and most(axes[-1].size) >= lanes and not isinstance(axes[-1].size, Size):
        _kept_last(job, op.kind, x, y, kept, gone, to, count)
        return job.done(f"reduce_{op.kind}", about, f"reduce(lanes={lanes})")
    if fast and isinstance(axes[-1].size, Size) and axes[-1].reduced and most(axes[-1].size) >= lanes:
        _rows(job, op.kind, x, y, kept, gone, to, count)
        return job.done(f"reduce_{op.kind}", about, f"reduce(lanes={lanes})")
    with k.loops([f"i{n}" for n in range(len(kept))], [a.size for a in kept]) as at:
        base = k.let("from", offset_of(at, [a.stride for a in kept]))
        place = offset_of(at, list(to))
        if fast and axes[-1].reduced and most(axes[-1].size) >= lanes:
            value = _reduced_last(job, op.kind, x, base, gone, count)
            using = f"reduce(lanes={lanes})"
        elif op.kind == "log_sum_exp":
            value = _log_sum_exp(k, x, base, gone, Lanes.scalar("f64" if out.dtype is DType.F64 or out.dtype.is_int else "f32"))
            using = "reduce"
        else:
            e = Lanes.scalar(computed_in(out.dtype))
            acc = k.var("acc", start_value(e, op.kind), e.type)
            _fold_all(k, e, op.kind, [acc], gone, lambda offset: [k.let("v", e.load(x, base + offset))])
            value = _finish(e, op.kind, acc, count)
            using = "reduce"
        k.store(y, place, cast(value, Type(y.dtype.value)))
    return job.done(f"reduce_{op.kind}", about, using)


def _fold_all(k: Builder, e: Lanes, kind: str, acc: list[Var], gone: list[_Axis], loaded: Callable[[Expr], Iterable[Expr]]) -> None:
    """Everything along the reduced axes. A long sum of floats is one of sums of parts: an addition rounds by the size of what was
    added up before, so one after the other 12,544 of them (a picture of 112x112) are 5e-5 off."""

    def add(into: list[Var], offset: Expr) -> None:
        for total, value in zip(into, loaded(offset), strict=True):
            k.assign(total, fold(e, kind, total, value))

    sizes, strides, names = [a.size for a in gone], [a.stride for a in gone], [f"r{n}" for n in range(len(gone))]
    if not gone or isinstance(gone[-1].size, Size) or gone[-1].size <= _LONG or not e.is_float or kind not in _SUMS:
        with k.loops(names, sizes) as inner:
            add(acc, offset_of(inner, strides))
        return
    long, stride = sizes[-1], strides[-1]
    whole = long // _PART

    def part(base: Expr, count: int) -> None:
        sums = [k.var(f"some{n}", start_value(e, kind), e.type) for n in range(len(acc))]
        with k.loop(names[-1], 0, count) as r:
            add(sums, base + r * stride)
        for total, some in zip(acc, sums, strict=True):
            k.assign(total, e.add(total, some))

    with k.loops(names[:-1], sizes[:-1]) as inner:
        base = offset_of(inner, strides[:-1])
        with k.loop("block", 0, whole) as p:
            part(base + p * (_PART * stride), _PART)
        if long % _PART:
            with k.block():
                part(base + whole * _PART * stride, long % _PART)


def _kept_last(job: Job, kind: str, x: Buffer, y: Buffer, kept: list[_Axis], gone: list[_Axis], to: Shape, count: int) -> None:
    k, e, lanes = job.k, job.vector, job.isa.lanes
    *outer, last = kept
    with k.loops([f"i{n}" for n in range(len(outer))], [a.size for a in outer]) as at:
        base = k.let("from", offset_of(at, [a.stride for a in outer]))
        place = k.let("to", offset_of(at, list(to[:-1])))

        def body(first: Expr, vectors: int, part: int) -> None:
            acc = [k.var(f"acc{v}", start_value(e, kind), e.type) for v in range(vectors)]

            def loaded(offset: Expr) -> Iterator[Expr]:
                row = k.let("row", base + first + offset)
                return (k.let(f"v{v}", e.load(x, row + v * lanes, part)) for v in range(vectors))

            _fold_all(k, e, kind, acc, gone, loaded)
            for v in range(vectors):
                k.store(y, place + first + v * lanes, _finish(e, kind, acc[v], count), part)

        done = last.size // (4 * lanes) * (4 * lanes)
        with k.loop("c", 0, done, 4 * lanes) as c:
            body(c, 4, lanes)
        whole = last.size // lanes * lanes
        with k.loop("c", done, whole, lanes) as c:
            body(c, 1, lanes)
        if last.size > whole:
            with k.block():
                body(idx(whole), 1, last.size - whole)


def _reduced_last(job: Job, kind: str, x: Buffer, base: Expr, gone: list[_Axis], count: int) -> Expr:
    k, e, lanes, one = job.k, job.vector, job.isa.lanes, Lanes.scalar()
    *outer, last = gone
    ways = 4 if most(last.size) >= 4 * lanes else 1
    acc = [k.var(f"acc{v}", start_value(e, kind), e.type) for v in range(ways)]
    rest = k.var("rest", start_value(one, kind), one.type)
    with k.loops([f"r{n}" for n in range(len(outer))], [a.size for a in outer]) as at:
        row = k.let("row", base + offset_of(at, [a.stride for a in outer]))
        done = last.size // (ways * lanes) * (ways * lanes)
        with k.loop("j", 0, done, ways * lanes) as j:
            for v in range(ways):
                k.assign(acc[v], fold(e, kind, acc[v], k.let(f"v{v}", e.load(x, row + j + v * lanes))))
        with k.loop("j", done, last.size) as j:
            k.assign(rest, fold(one, kind, rest, k.let("v", one.load(x, row + j))))
    joined: Expr = acc[0]
    join = {"l1": "sum", "l2": "sum", "sum_square": "sum"}.get(kind, kind)
    for v in range(1, ways):
        joined = k.let("joined", fold(e, join, joined, acc[v]))
    total = k.let("total", fold(one, join, rest, k.let("lanes", across(k, e, join, joined))))
    return _finish(one, kind, total, count)


_ROWS = 4


def _rows(job: Job, kind: str, x: Buffer, y: Buffer, kept: list[_Axis], gone: list[_Axis], to: Shape, count: int) -> None:
    """Rows whose length the caller gives."""
    k = job.k
    *outer, last = kept or [_Axis(1, 0, False)]
    with k.loops([f"i{n}" for n in range(len(outer))], [a.size for a in outer]) as at:
        base = k.let("from", offset_of(at, [a.stride for a in outer]))
        place = k.let("to", offset_of(at, list(to[: len(outer)])))
        part = Part.of(job, gone[-1].size % job.isa.lanes)

        def some(first: Expr, rows: int) -> None:
            starts = [k.let(f"row{r}", base + (first + r) * last.stride) for r in range(rows)]
            for r, total in enumerate(_totals(job, kind, x, starts, gone, part)):
                k.store(y, place + first + r, _finish(Lanes.scalar(), kind, k.let(f"total{r}", total), count))

        done = last.size // _ROWS * _ROWS
        with k.loop("i", 0, done, _ROWS) as i:
            some(i, _ROWS)
        with k.loop("i", done, last.size) as i:
            some(i, 1)


def _totals(job: Job, kind: str, x: Buffer, starts: list[Expr], gone: list[_Axis], part: Part | None) -> list[Expr]:
    """A number for each row: vectors of it side by side, single vectors, and the lanes that are left."""
    k, e, lanes = job.k, job.vector, job.isa.lanes
    *outer, last = gone
    ways = max(1, min(most(last.size) // lanes, 2 if len(starts) > 1 else 4))
    acc = [[k.var(f"acc{r}", start_value(e, kind), e.type) for _ in range(ways)] for r in range(len(starts))]

    def add(which: Lanes, at: Expr, vectors: int) -> None:
        for sums, start in zip(acc, starts, strict=True):
            for v in range(vectors):
                value = k.let("v", which.load(x, start + at + v * lanes))
                if which.left is not None and part is not None and kind in ("max", "min", "prod"):
                    value = part.filled(value, start_value(e, kind))
                k.assign(sums[v], fold(e, kind, sums[v], value))

    with k.loops([f"r{n}" for n in range(len(outer))], [a.size for a in outer]) as at:
        first = k.let("first", offset_of(at, [a.stride for a in outer]))
        done = last.size // (ways * lanes) * (ways * lanes)
        with k.loop("j", 0, done, ways * lanes) as j:
            add(e, first + j, ways)
        whole = last.size // lanes * lanes
        with k.loop("j", done, whole, lanes) as j:
            add(e, first + j, 1)
        if part is not None:
            with part.there():
                add(part.lanes, first + whole, 1)
    join = {"l1": "sum", "l2": "sum", "sum_square": "sum"}.get(kind, kind)
    for sums in acc:
        for other in sums[1:]:
            k.assign(sums[0], fold(e, join, sums[0], other))
    return [across(k, e, join, sums[0]) for sums in acc]


def across(k: Builder, e: Lanes, kind: str, vector: Expr) -> Expr:
    """One number out of the lanes of a vector."""
    if kind in ("max", "min"):
        return Op(f"h{kind}", (vector,), Type("f32"))
    if kind == "prod":
        return Op("hprod", (vector,), Type("f32"))
    return Op("hsum", (vector,), Type("f32"))


def _log_sum_exp(k: Builder, x: Buffer, base: Expr, gone: list[_Axis], e: Lanes) -> Expr:
    """Shifted by the largest, so that nothing overflows."""
    sizes, strides = [a.size for a in gone], [a.stride for a in gone]
    top = k.var("top", e.const(float("-inf")))
    with k.loops([f"r{n}" for n in range(len(gone))], sizes) as at:
        k.assign(top, e.highest(top, cast(e.load(x, base + offset_of(at, strides)), e.type)))
    shift = k.let("shift", e.choose(e.compare("lt", e.abs(top), e.const(float("inf"))), top, e.const(0.0)))
    total = k.var("total", e.const(0.0))
    with k.loops([f"r{n}" for n in range(len(gone))], sizes) as at:
        value = cast(e.load(x, base + offset_of(at, strides)), e.type)
        k.assign(total, e.add(total, e.call("exp", e.sub(value, shift))))
    return e.add(e.call("log", total), shift)


def split_axis(shape: Shape, axis: int) -> tuple[int, int, int]:
    """[outer, size, inner] around an axis."""
    axis %= max(len(shape), 1)
    return math.prod(shape[:axis]), shape[axis] if shape else 1, math.prod(shape[axis + 1 :])


def arg_reduce(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, ArgReduce)
    x, y = job.operand(0, "x"), job.writes()
    outer, size, inner = split_axis(job.type(0).shape, op.axis)
    e = Lanes.scalar(computed_in(job.type(0).dtype))
    # Without a unit for floats, whole numbers of the same order are compared: NaN is the largest.
    ordered = job.target.bare and job.target.fpu == "none" and job.type(0).dtype is DType.F32 and op.kind == "max"

    def number(at: Expr) -> Expr:
        value = e.load(x, at)
        if not ordered:
            return value
        place = k.let("order", Op("fn_order", (value,), Type("i32")))
        return select(place.compare("eq", -1), Num(0, Type("i32")), place)  # -0 is 0

    with k.loops(["o", "i"], [outer, inner]) as (o, i):
        base = k.let("from", o * (size * inner) + i)
        best = k.var("best", number(base))
        where = k.var("where", idx(0))
        with k.loop("j", 1, size) as j:
            value = k.let("v", number(base + j * inner))
            word = ("ge" if op.select_last else "gt") if op.kind == "max" else ("le" if op.select_last else "lt")
            better = value.compare(word, best)
            if e.is_float and not ordered:  # NaN is the best of all, as in numpy
                fresh = value.compare("ne", value)
                better = either(better, fresh) if op.select_last else both(either(better, fresh), best.compare("eq", best))
            with k.when(better):
                k.assign(best, value)
                k.assign(where, j)
        k.store(y, o * inner + i, cast(where, Type("i64")))
    about = f"arg{op.kind} along axis {op.axis}\n{job.type(0).dtype.value}{list(job.type(0).shape)}"
    return job.done(f"arg_{op.kind}", about)


def cumsum(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, Cumsum)
    x, y = job.operand(0, "x"), job.writes()
    outer, size, inner = split_axis(job.type(0).shape, op.axis)
    e = Lanes.scalar(computed_in(job.type(0).dtype))
    with k.loops(["o", "i"], [outer, inner]) as (o, i):
        base = k.let("from", o * (size * inner) + i)
        total: Var = k.var("total", e.const(0))
        with k.loop("j", 0, size) as j:
            at = k.let("at", base + ((idx(size - 1) - j) * inner if op.reverse else j * inner))
            value = k.let("v", e.load(x, at))
            if op.exclusive:
                k.store(y, at, cast(total, Type(y.dtype.value)))
            k.assign(total, e.add(total, value))
            if not op.exclusive:
                k.store(y, at, cast(total, Type(y.dtype.value)))
    return job.done("cumsum", f"cumsum along axis {op.axis}\n{job.type(0).dtype.value}{list(job.type(0).shape)}")


__all__ = ["Load", "across", "arg_reduce", "cumsum", "fold", "reduce", "split_axis", "start_value"]
