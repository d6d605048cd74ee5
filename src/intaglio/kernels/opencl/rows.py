"""Softmax, layer norm and reductions of long rows: a work-group per row.

Every item folds its share of the row, the shares meet in local memory, and every item folds those: one barrier per reduction.
Short rows are left to one item each (`spread.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from intaglio.ir.types import DType, strides_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.elementwise import offset_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Array, Barrier, Buffer, Expr, Type, cast
from intaglio.kernels.normalize import _entry, _per_element, norm_name
from intaglio.kernels.opencl.launch import Variant, device_kernel, global_id, launch_of, local_id
from intaglio.kernels.reduce import _axes, _finish, fold, split_axis, start_value
from intaglio.ops.base import normal_axes
from intaglio.ops.norm import LayerNorm
from intaglio.ops.reduce import LogSoftmax, Reduce, Softmax

GROUP = 64
LEAST = 64  # elements of a row
MOST_ROWS = 4096  # more than that keep the device busy with an item each
FLOATS = (DType.F32, DType.F16)
_KINDS = frozenset({"sum", "mean", "max", "min", "l1", "l2", "sum_square"})


class _Group:
    """Reductions by the items of a group; each has its own room in local memory, so that no barrier has to guard it twice."""

    def __init__(self, k: Builder) -> None:
        self.k, self.item, self.count = k, k.let("item", local_id(0)), 0
        self.one = Lanes.scalar()

    def fold(self, kind: str, size: int, term: Callable[[Expr], Expr]) -> Expr:
        """Fold term(j) for j below `size`."""
        k, e = self.k, self.one
        share = Buffer(f"share{self.count}", DType.F32, False, "local")
        self.count += 1
        k.reserve(share.name)
        k.emit(Array(share, GROUP))
        own = k.var("own", start_value(e, kind), e.type)
        with k.loop("j", self.item, size, GROUP) as j:
            k.assign(own, fold(e, kind, own, term(j)))
        k.store(share, self.item, own)
        k.emit(Barrier())
        total = k.var("total", start_value(e, kind), e.type)
        joined = "sum" if kind in ("mean", "l1", "l2", "sum_square") else kind
        with k.loop("j", 0, GROUP) as j:
            k.assign(total, fold(e, joined, total, e.load(share, j)))
        return total

    def each(self, size: int, body: Callable[[Expr], None]) -> None:
        with self.k.loop("j", self.item, size, GROUP) as j:
            body(j)


def _done(job: Job, k: Builder, stem: str, rows: int, about: str, *, in_place: bool) -> Lowered:
    size = (GROUP, rows)
    launch = launch_of(k, stem, list(job.params), size, (GROUP, 1), (GROUP, 1), fixed=True, about=f"{about}\na work-group per row")
    return device_kernel(job, stem, about, [Variant("groups", (launch,), cpu=True)], in_place=in_place)


def _too_few(job: Job, size: int, rows: int) -> str | None:
    """Why no work-group is worth its barriers here."""
    if wrong := [t.value for t in (job.type(0).dtype, job.node.output.dtype) if t not in FLOATS]:
        return f"the type is {wrong[0]}, not f32 or f16"
    if size < LEAST:
        return f"a row has fewer than {LEAST} elements"
    return f"there are more than {MOST_ROWS} rows, enough for one work-item each" if rows > MOST_ROWS else None


def softmax_applies(job: Job) -> str | None:
    op = job.node.op
    assert isinstance(op, Softmax | LogSoftmax)
    outer, size, inner = split_axis(job.node.output.shape, op.axis)
    return _too_few(job, size, outer * inner)


def softmax(job: Job) -> Lowered:
    op, out = job.node.op, job.node.output
    assert isinstance(op, Softmax | LogSoftmax)
    outer, size, inner = split_axis(out.shape, op.axis)
    x, y, k = job.operand(0, "x"), job.writes(), job.k
    group, e = _Group(k), Lanes.scalar()
    row = k.let("row", global_id(1))
    base = k.let("base", (row // inner) * (size * inner) + row % inner if inner > 1 else row * size)

    def at(j: Expr) -> Expr:
        return e.load(x, base + j * inner)

    top = group.fold("max", size, at)
    total = group.fold("sum", size, lambda j: e.call("exp", e.sub(at(j), top)))
    if isinstance(op, LogSoftmax):
        shift = k.let("shift", e.add(e.call("log", total), top))
        final: Callable[[Expr], Expr] = lambda j: e.sub(at(j), shift)
    else:
        factor = k.let("factor", e.div(e.const(1.0), total))
        final = lambda j: e.mul(e.call("exp", e.sub(at(j), top)), factor)
    group.each(size, lambda j: k.store(y, base + j * inner, cast(final(j), Type(y.dtype.value))))
    return _done(
        job, k, op.NAME, outer * inner, f"{op.NAME} along axis {op.axis} of {out.dtype.value}{list(out.shape)}", in_place=True
    )


def layer_norm_applies(job: Job) -> str | None:
    op, out = job.node.op, job.node.output
    assert isinstance(op, LayerNorm)
    axis = op.axis % out.type.rank
    size = math.prod(out.shape[axis:])
    if reason := _too_few(job, size, math.prod(out.shape[:axis])):
        return reason
    extras = [v for v in (job.optional(1), job.optional(2)) if v is not None]
    odd = any(math.prod(v.shape) not in (1, size) and v.data is None for v in extras)
    return "scale or bias is computed and neither a number nor a row" if odd else None


def layer_norm(job: Job) -> Lowered:
    op, out = job.node.op, job.node.output
    assert isinstance(op, LayerNorm)
    axis = op.axis % out.type.rank
    shape = out.shape[axis:]
    size, outer = math.prod(shape), math.prod(out.shape[:axis])
    x = job.operand(0, "x")
    scale, bias = _per_element(job, job.optional(1), "scale", shape), _per_element(job, job.optional(2), "bias", shape)
    single = [v is not None and v.type.elements == 1 and v.data is None for v in (job.optional(1), job.optional(2))]
    y, k, e = job.writes(), job.k, Lanes.scalar()
    group = _Group(k)
    base = k.let("base", global_id(1) * size)
    mean: Expr | None = None
    if op.centred:
        mean = k.let("mean", e.mul(group.fold("sum", size, lambda j: e.load(x, base + j)), e.const(1.0 / size)))

    def centred(j: Expr) -> Expr:
        return e.load(x, base + j) if mean is None else e.sub(e.load(x, base + j), mean)

    def squared(j: Expr) -> Expr:
        far = k.let("far", centred(j))
        return e.mul(far, far)

    var = k.let("var", e.mul(group.fold("sum", size, squared), e.const(1.0 / size)))
    factor = k.let("factor", e.div(e.const(1.0), e.call("sqrt", e.add(var, e.const(op.epsilon)))))

    def write(j: Expr) -> None:
        value = e.mul(centred(j), factor)
        if scale is not None:
            value = e.mul(value, _entry(e, scale, j, single[0]))
        if bias is not None:
            value = e.add(value, _entry(e, bias, j, single[1]))
        k.store(y, base + j, cast(value, Type(y.dtype.value)))

    group.each(size, write)
    about = f"{norm_name(op)} over the last {size} of {out.dtype.value}{list(out.shape)}, epsilon {op.epsilon}"
    return _done(job, k, norm_name(op), outer, about, in_place=True)


def reduce_applies(job: Job) -> str | None:
    op, x_type, out = job.node.op, job.type(0), job.node.output.type
    assert isinstance(op, Reduce)
    axes = _axes(x_type.shape, normal_axes(op.axes, x_type.rank))
    if op.kind not in _KINDS:
        return f"work-groups do not compute `{op.kind}`"
    if out.elements == 0:
        return "the result is empty"
    if reason := _too_few(job, math.prod(a.size for a in axes if a.reduced), out.elements):
        return reason
    kept = [a for a in axes if not a.reduced]
    if kept and not axes[-1].reduced and kept[-1].size >= GROUP:
        return "the last axis is kept, so that neighbouring work-items read neighbouring columns"
    return None


def reduce(job: Job) -> Lowered:
    op, node = job.node.op, job.node
    assert isinstance(op, Reduce)
    x_type, out = job.type(0), node.output.type
    axes = _axes(x_type.shape, normal_axes(op.axes, x_type.rank))
    kept, gone = [a for a in axes if not a.reduced], [a for a in axes if a.reduced]
    count = math.prod(a.size for a in gone)
    x, y, k, e = job.operand(0, "x"), job.writes(), job.k, Lanes.scalar()
    group = _Group(k)
    row = k.let("row", global_id(1))
    base = k.let("base", offset_of(_digits(row, [a.size for a in kept]), [a.stride for a in kept]))

    def term(j: Expr) -> Expr:
        return e.load(x, base + offset_of(_digits(j, [a.size for a in gone]), [a.stride for a in gone]))

    total = group.fold(op.kind, count, term)
    with k.when(group.item.compare("eq", 0)):
        k.store(y, row, cast(_finish(e, op.kind, total, count), Type(y.dtype.value)))
    about = f"reduce {op.kind} over axes {list(op.axes)}, {x_type.dtype.value}{list(x_type.shape)} -> {list(out.shape)}"
    return _done(job, k, f"reduce_{op.kind}", out.elements, about, in_place=False)


def _digits(number: Expr, sizes: list[int]) -> list[Expr]:
    """The index of every axis from one number."""
    strides = strides_of(tuple(sizes))
    out: list[Expr] = []
    for n, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        whole = number // stride
        out.append(whole if n == 0 else whole % size)
    return out
