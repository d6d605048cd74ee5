"""Gather, scatter and their kin. Indices that are data are checked: one that points outside ends the run with an error code
instead of reading there. Constant indices were checked when the model was imported."""

from __future__ import annotations

import math

from intaglio.ir.graph import Value
from intaglio.ir.types import DType, Shape, strides_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.elementwise import offset_of
from intaglio.kernels.expressions import computed_in
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import IDX, INDEX_OUT_OF_RANGE, Buffer, Expr, Load, Num, Type, both, cast, either, idx, select
from intaglio.kernels.reduce import split_axis
from intaglio.ops.base import normal_axis
from intaglio.ops.index import Gather, GatherElements, GatherNd, OneHot, ScatterElements, ScatterNd
from intaglio.ops.move import ReverseSequence
from intaglio.ops.reduce import TopK


def _about(job: Job) -> str:
    shapes = " ".join(f"{v.dtype.value}{list(v.shape)}" for v in job.node.inputs if v is not None)
    return f"{job.node.op.NAME}\n{shapes} -> {job.node.output.dtype.value}{list(job.node.output.shape)}"


def read_index(k: Builder, indices: Value, buffer: Buffer, at: Expr, size: int, *, from_end: bool = True) -> Expr:
    """An index from memory: negative ones count from the end where the operator says so, data is checked."""
    raw = k.let("raw", cast(Load(buffer, at, Type(buffer.dtype.value)), IDX))
    if indices.data is not None and (indices.data.size == 0 or int(indices.data.min()) >= 0):
        return raw
    wraps = from_end and buffer.dtype.is_signed
    index = k.let("index", select(raw.compare("lt", 0), raw + size, raw)) if wraps else raw
    if indices.data is None:
        with k.when(either(index.compare("lt", 0), index.compare("ge", size))):
            k.fail(INDEX_OUT_OF_RANGE)
    return index


def gather(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, Gather)
    indices = job.node.inputs[1]
    assert indices is not None
    x, i_buf, y = job.operand(0, "x"), job.operand(1, "indices"), job.writes()
    outer, size, inner = split_axis(job.type(0).shape, normal_axis(op.axis, job.type(0).rank))
    count = indices.type.elements
    with k.loop("o", 0, outer) as o, k.loop("i", 0, count) as i:
        index = read_index(k, indices, i_buf, i, size)
        k.copy(y, (o * count + i) * inner, x, (o * size + index) * inner, inner)
    return job.done("gather", _about(job) + f", axis {op.axis}")


def gather_elements(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, GatherElements)
    indices = job.node.inputs[1]
    assert indices is not None
    x, i_buf, y = job.operand(0, "x"), job.operand(1, "indices"), job.writes()
    axis = normal_axis(op.axis, job.type(0).rank)
    source, to = strides_of(job.type(0).shape), strides_of(indices.shape)
    with k.loops([f"i{n}" for n in range(len(indices.shape))], list(indices.shape)) as at:
        place = k.let("to", offset_of(at, list(to)))
        index = read_index(k, indices, i_buf, place, job.type(0).shape[axis])
        spot = offset_of([index if n == axis else a for n, a in enumerate(at)], list(source))
        k.store(y, place, Load(x, spot, Type(x.dtype.value)))
    return job.done("gather_elements", _about(job) + f", axis {axis}")


def _tuple_place(k: Builder, indices: Value, buffer: Buffer, base: Expr, sizes: Shape, strides: Shape) -> Expr:
    """The offset that a tuple of indices names."""
    place: Expr = idx(0)
    for n, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        place = place + read_index(k, indices, buffer, base + n, size) * stride
    return k.let("place", place)


def gather_nd(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, GatherNd)
    indices = job.node.inputs[1]
    assert indices is not None
    x, i_buf, y = job.operand(0, "x"), job.operand(1, "indices"), job.writes()
    shape, b, depth = job.type(0).shape, op.batch_dims, indices.shape[-1]
    batch = math.prod(shape[:b])
    tuples = math.prod(indices.shape[b:-1])
    inner = math.prod(shape[b + depth :])
    size = math.prod(shape[b:])
    strides = strides_of(shape)[b : b + depth]
    with k.loop("b", 0, batch) as n, k.loop("i", 0, tuples) as i:
        row = k.let("row", n * tuples + i)
        place = _tuple_place(k, indices, i_buf, row * depth, shape[b : b + depth], strides)
        k.copy(y, row * inner, x, n * size + place, inner)
    return job.done("gather_nd", _about(job))


def _combined(e: Lanes, reduction: str, old: Expr, new: Expr) -> Expr:
    match reduction:
        case "add":
            return e.add(old, new)
        case "mul":
            return e.mul(old, new)
        case "max":
            return e.highest(old, new)
        case "min":
            return e.lowest(old, new)
    return new


def scatter_elements(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, ScatterElements)
    indices = job.node.inputs[1]
    assert indices is not None
    x, i_buf, u, y = job.operand(0, "x"), job.operand(1, "indices"), job.operand(2, "updates"), job.writes()
    shape = job.type(0).shape
    axis = normal_axis(op.axis, len(shape))
    k.copy(y, 0, x, 0, job.type(0).elements)
    e = Lanes.scalar(computed_in(y.dtype))
    source, to = strides_of(indices.shape), strides_of(shape)
    with k.loops([f"i{n}" for n in range(len(shape))], list(indices.shape)) as at:
        place = k.let("from", offset_of(at, list(source)))
        index = read_index(k, indices, i_buf, place, shape[axis])
        spot = k.let("to", offset_of([index if n == axis else a for n, a in enumerate(at)], list(to)))
        value = _combined(e, op.reduction, e.load(y, spot), e.load(u, place))
        k.store(y, spot, cast(value, Type(y.dtype.value)))
    return job.done("scatter_elements", _about(job) + f", axis {axis}, reduction {op.reduction}")


def scatter_nd(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, ScatterNd)
    indices = job.node.inputs[1]
    assert indices is not None
    x, i_buf, u, y = job.operand(0, "x"), job.operand(1, "indices"), job.operand(2, "updates"), job.writes()
    shape, depth = job.type(0).shape, indices.shape[-1]
    inner = math.prod(shape[depth:])
    k.copy(y, 0, x, 0, job.type(0).elements)
    e = Lanes.scalar(computed_in(y.dtype))
    with k.loop("i", 0, math.prod(indices.shape[:-1])) as i:
        place = _tuple_place(k, indices, i_buf, i * depth, shape[:depth], strides_of(shape)[:depth])
        if op.reduction == "none":
            k.copy(y, place, u, i * inner, inner)
        else:
            with k.loop("j", 0, inner) as j:
                value = _combined(e, op.reduction, e.load(y, place + j), e.load(u, i * inner + j))
                k.store(y, place + j, cast(value, Type(y.dtype.value)))
    return job.done("scatter_nd", _about(job) + f", reduction {op.reduction}")


def one_hot(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, OneHot)
    i_buf, values, y = job.operand(0, "indices"), job.operand(1, "values"), job.writes()
    shape = job.type(0).shape
    axis = normal_axis(op.axis, len(shape) + 1)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis:])
    kind = Type(y.dtype.value)
    with k.loop("o", 0, outer) as o, k.loop("i", 0, inner) as i:
        raw = k.let("raw", cast(Load(i_buf, o * inner + i, Type(i_buf.dtype.value)), IDX))
        index = k.let("index", select(raw.compare("lt", 0), raw + op.depth, raw))
        with k.loop("d", 0, op.depth) as d:
            hot = k.let("which", select(d.compare("eq", index), idx(1), idx(0)))
            k.store(y, (o * op.depth + d) * inner + i, Load(values, hot, kind))
    return job.done("one_hot", _about(job) + f", depth {op.depth}")


def reverse_sequence(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, ReverseSequence)
    x, lens, y = job.operand(0, "x"), job.operand(1, "lens"), job.writes()
    shape = job.type(0).shape
    strides = strides_of(shape)
    inner = math.prod(shape[2:])
    time = shape[op.time_axis]
    with k.loop("b", 0, shape[op.batch_axis]) as b:
        length = k.let("length", cast(Load(lens, b, Type("i64")), IDX))
        with k.when(either(length.compare("lt", 0), length.compare("gt", time))):
            k.fail(INDEX_OUT_OF_RANGE)
        with k.loop("t", 0, time) as t:
            source = k.let("from", select(t.compare("lt", length), length - 1 - t, t))
            base = b * strides[op.batch_axis]
            k.copy(y, base + t * strides[op.time_axis], x, base + source * strides[op.time_axis], inner)
    return job.done("reverse_sequence", _about(job))


def max_unpool(job: Job) -> Lowered:
    k = job.k
    indices = job.node.inputs[1]
    assert indices is not None
    x, i_buf, y = job.operand(0, "x"), job.operand(1, "indices"), job.writes()
    size = job.node.output.type.elements
    kind = Type(y.dtype.value)
    with k.loop("i", 0, size) as i:
        k.store(y, i, Num(0.0 if y.dtype in (DType.F32, DType.F64) else 0, kind))
    with k.loop("i", 0, job.type(0).elements) as i:
        k.store(y, read_index(k, indices, i_buf, i, size, from_end=False), Load(x, i, kind))
    return job.done("max_unpool", _about(job))


def _comes_first(value: Expr, other: Expr, largest: bool) -> Expr:
    """NaN is above all numbers, as in numpy, PyTorch and JAX."""
    high, low = (value, other) if largest else (other, value)
    above = either(high.compare("gt", low), high.compare("ne", high))
    return both(low.compare("eq", low), above)


def topk(job: Job) -> Lowered:
    """Insertion into the k best so far: k is small, and equal numbers keep their order."""
    op, k = job.node.op, job.k
    assert isinstance(op, TopK)
    x, y, where = job.operand(0, "x"), job.writes(0, "y"), job.writes(1, "where")
    outer, size, inner = split_axis(job.type(0).shape, normal_axis(op.axis, job.type(0).rank))
    e, how = Lanes.scalar(computed_in(x.dtype)), "gt" if op.largest else "lt"
    if op.k == 0:
        return job.done("topk", _about(job))
    with k.loops(["o", "i"], [outer, inner]) as (o, i):
        source = k.let("from", o * (size * inner) + i)
        to = k.let("to", o * (op.k * inner) + i)
        found = k.var("found", idx(0))
        with k.loop("j", 0, size) as j:
            value = k.let("v", e.load(x, source + j * inner))
            spot = k.var("spot", found)

            def better(at: Expr, value: Expr = value) -> Expr:
                other = e.load(y, to + at * inner)
                return _comes_first(value, other, op.largest) if e.is_float else value.compare(how, other)

            with k.during(both(spot.compare("gt", 0), better(spot - 1))):
                with k.when(spot.compare("lt", op.k)):
                    k.store(y, to + spot * inner, Load(y, to + (spot - 1) * inner, Type(y.dtype.value)))
                    k.store(where, to + spot * inner, Load(where, to + (spot - 1) * inner, Type("i64")))
                k.assign(spot, spot - 1)
            with k.when(spot.compare("lt", op.k)):
                k.store(y, to + spot * inner, cast(value, Type(y.dtype.value)))
                k.store(where, to + spot * inner, cast(j, Type("i64")))
                with k.when(found.compare("lt", op.k)):
                    k.assign(found, found + 1)
    return job.done("topk", _about(job) + f", k {op.k} along axis {op.axis}")
