"""Convolution, transposed convolution and pooling for any layout, type and number of spatial axes: correct first.

One loop per axis around one sum. Taps outside of the image are skipped by a test, so these are for shapes that no fast kernel
takes: three spatial axes, integers, doubles, weights that are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np

from intaglio.ir.graph import Value
from intaglio.ir.sizes import most, moves
from intaglio.ir.types import DType, Layout, Shape, strides_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.elementwise import broadcast_strides, offset_of
from intaglio.kernels.expressions import apply, computed_in
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import BOOL, Buffer, Expr, Num, Type, Var, both, cast, either, idx
from intaglio.ops.conv import Conv, ConvTranspose
from intaglio.ops.pool import AveragePool, LpPool, MaxPool, MaxPoolIndices, Pool


class _Image:
    """Addresses of an [N, C, spatial...] or [N, spatial..., C] array."""

    def __init__(self, shape: Shape, layout: Layout) -> None:
        strides = strides_of(shape)
        if layout is Layout.NHWC:
            self.batch, self.spatial, self.channels = shape[0], shape[1:-1], shape[-1]
            self._n, self._s, self._c = strides[0], strides[1:-1], strides[-1]
        else:
            self.batch, self.channels, self.spatial = shape[0], shape[1], shape[2:]
            self._n, self._c, self._s = strides[0], strides[1], strides[2:]

    def at(self, n: Expr, c: Expr, place: list[Expr]) -> Expr:
        return n * self._n + c * self._c + offset_of(place, list(self._s))


def _inside(place: list[Expr], sizes: Shape) -> Expr:
    cond: Expr | None = None
    for p, size in zip(place, sizes, strict=True):
        test = both(p.compare("ge", 0), p.compare("lt", size))
        cond = test if cond is None else both(cond, test)
    return cond if cond is not None else Num(1, BOOL)


def conv_general(job: Job) -> Lowered:
    op, node, k = job.node.op, job.node, job.k
    assert isinstance(op, Conv)
    e = Lanes.scalar(computed_in(node.output.dtype))
    x, w = job.operand(0, "x"), job.operand(1, "w")
    bias = job.optional(2)
    b = job.reads(bias, "b") if bias is not None else None
    extras: list[Value] = [v for v in node.inputs[3:] if v is not None]
    found = [job.reads(v, f"e{n}") for n, v in enumerate(extras)]
    y = job.writes()
    src, dst = _Image(job.type(0).shape, op.layout), _Image(node.output.shape, op.layout)
    kernel = job.type(1).shape[2:]
    rank = len(kernel)
    depth, columns = src.channels // op.group, dst.channels // op.group
    w_strides = strides_of(job.type(1).shape)
    with k.loops(["n", "g", "o", *[f"p{i}" for i in range(rank)]], [dst.batch, op.group, columns, *dst.spatial]) as at:
        n, g, o, *place = at
        channel = k.let("oc", g * columns + o)
        total = k.var("total", e.load(b, channel) if b is not None else e.const(0))
        with k.loops(["c", *[f"k{i}" for i in range(rank)]], [depth, *kernel]) as taps:
            c, *tap = taps
            spots = [k.let(f"i{i}", place[i] * op.strides[i] + tap[i] * op.dilations[i] - op.pads[i]) for i in range(rank)]
            with k.when(_inside(spots, src.spatial)):
                weight = e.load(w, channel * w_strides[0] + c * w_strides[1] + offset_of(tap, list(w_strides[2:])))
                pixel = e.load(x, src.at(n, g * depth + c, spots))
                k.assign(total, e.add(total, e.mul(pixel, weight)))
        operands: list[Expr] = [total]
        full = [n, channel, *place] if op.layout is not Layout.NHWC else [n, *place, channel]
        for buffer, value in zip(found, extras, strict=True):
            operands.append(k.let("s", e.load(buffer, offset_of(full, list(broadcast_strides(value.shape, node.output.shape))))))
        result = apply(k, e, op.epilogue, operands) if op.epilogue else total
        k.store(y, dst.at(n, channel, place), cast(result, Type(y.dtype.value)))
    shapes = f"{list(job.type(0).shape)} * {list(job.type(1).shape)} -> {list(node.output.shape)}"
    about = f"conv {shapes}, group {op.group}, {op.layout.value}"
    return job.done(f"conv_{rank}d", about, "conv_general")


def conv_transpose_general(job: Job) -> Lowered:
    """Each output gathers the inputs whose window covers it: those where (o + pad - tap) is a multiple of the stride."""
    op, node, k = job.node.op, job.node, job.k
    assert isinstance(op, ConvTranspose)
    e = Lanes.scalar(computed_in(node.output.dtype))
    x, w = job.operand(0, "x"), job.operand(1, "w")
    bias = job.optional(2)
    b = job.reads(bias, "b") if bias is not None else None
    y = job.writes()
    src, dst = _Image(job.type(0).shape, op.layout), _Image(node.output.shape, op.layout)
    kernel = job.type(1).shape[2:]
    rank = len(kernel)
    depth, columns = src.channels // op.group, dst.channels // op.group
    w_strides = strides_of(job.type(1).shape)
    with k.loops(["n", "g", "o", *[f"p{i}" for i in range(rank)]], [dst.batch, op.group, columns, *dst.spatial]) as at:
        n, g, o, *place = at
        channel = k.let("oc", g * columns + o)
        total = k.var("total", e.load(b, channel) if b is not None else e.const(0))
        with k.loops([f"k{i}" for i in range(rank)], list(kernel)) as tap:
            far = [k.let(f"f{i}", place[i] + op.pads[i] - tap[i] * op.dilations[i]) for i in range(rank)]
            cond: Expr | None = None
            for i in range(rank):
                test = both(far[i].compare("ge", 0), far[i].compare("lt", src.spatial[i] * op.strides[i]))
                test = both(test, (far[i] % op.strides[i]).compare("eq", 0)) if op.strides[i] > 1 else test
                cond = test if cond is None else both(cond, test)
            with k.when(cond if cond is not None else Num(1, BOOL)):
                spots = [k.let(f"i{i}", far[i] // op.strides[i]) for i in range(rank)]
                with k.loop("c", 0, depth) as c:
                    weight = e.load(w, (g * depth + c) * w_strides[0] + o * w_strides[1] + offset_of(tap, list(w_strides[2:])))
                    pixel = e.load(x, src.at(n, g * depth + c, spots))
                    k.assign(total, e.add(total, e.mul(pixel, weight)))
        k.store(y, dst.at(n, channel, place), cast(total, Type(y.dtype.value)))
    about = f"conv_transpose {list(job.type(0).shape)} * {list(job.type(1).shape)} -> {list(node.output.shape)}, group {op.group}"
    return job.done(f"conv_transpose_{rank}d", about, "conv_transpose_general")


def _pool_parts(job: Job) -> tuple[Pool, _Image, _Image, int]:
    op = job.node.op
    assert isinstance(op, Pool)
    return op, _Image(job.type(0).shape, op.layout), _Image(job.node.output.shape, op.layout), len(op.kernel)


def _spots(k: Builder, op: Pool, place: list[Expr], tap: list[Expr]) -> list[Expr]:
    return [
        k.let(f"i{i}", p * op.strides[i] + t * op.dilations[i] - op.pads[i])
        for i, (p, t) in enumerate(zip(place, tap, strict=True))
    ]


def _leaves(op: Pool, sizes: Sequence[int], outs: Sequence[int]) -> bool:
    """Is a pixel of any window outside of the image?"""
    rank = len(op.kernel)
    last = [(outs[a] - 1) * op.strides[a] + (op.kernel[a] - 1) * op.dilations[a] - op.pads[a] for a in range(rank)]
    return any(most(op.pads[a]) > 0 or most(last[a] - sizes[a]) >= 0 for a in range(rank))


def _counted(op: AveragePool, spots: list[Expr], sizes: Shape) -> Expr:
    """Does a pixel count for the average?"""
    rank = len(spots)
    pads = (op.counted_pads or op.pads) if op.count_include_pad else (0,) * (2 * rank)
    moved = [spot + pads[a] for a, spot in enumerate(spots)]
    return _inside(moved, tuple(size + pads[a] + pads[a + rank] for a, size in enumerate(sizes)))


def pool_general(job: Job) -> Lowered:
    op, src, dst, rank = _pool_parts(job)
    k, out = job.k, job.node.output
    e = Lanes.scalar(computed_in(out.dtype))
    x = job.operand(0, "x")
    counts: Buffer | None = None
    count: Expr | None = None  # where all windows have as many pixels
    found: Var | None = None  # counted while it runs, where the caller says how large the image is
    if isinstance(op, AveragePool) and moves((*src.spatial, *dst.spatial)):
        found = Var("found", e.type)
    elif isinstance(op, AveragePool):
        table = np.maximum(np.broadcast_to(op.counts(src.spatial), dst.spatial), 1)
        if table.size and np.all(table == table.flat[0]):
            count = e.const(int(table.flat[0]))
        else:
            counts = job.packed(table.astype(np.float64 if out.dtype is DType.F64 else np.float32).reshape(-1), "count")
    y = job.writes()
    with k.loops(["n", "c", *[f"p{i}" for i in range(rank)]], [dst.batch, dst.channels, *dst.spatial]) as at:
        n, c, *place = at
        total = k.var("total", _lowest(e) if isinstance(op, MaxPool) else e.const(0))
        if found is not None:
            found = k.var("found", e.const(0))
        with k.loops([f"k{i}" for i in range(rank)], list(op.kernel)) as tap:
            spots = _spots(k, op, place, tap)
            if found is not None and isinstance(op, AveragePool):
                with k.when(_counted(op, spots, src.spatial)):
                    k.assign(found, e.add(found, e.const(1)))
            with k.when(_inside(spots, src.spatial)) if _leaves(op, src.spatial, dst.spatial) else nullcontext():
                value = k.let("v", e.load(x, src.at(n, c, spots)))
                k.assign(total, _pooled(e, op, total, value))
        result: Expr = total
        if found is not None:
            result = e.div(total, e.highest(found, e.const(1)))
        elif count is not None:
            result = e.div(total, count)
        elif counts is not None:
            result = e.div(
                total,
                cast(
                    Lanes.scalar(counts.dtype.value).load(counts, offset_of(place, list(strides_of(dst.spatial)))),
                    e.type,
                ),
            )
        elif isinstance(op, LpPool) and op.p == 2:
            result = e.call("sqrt", total)
        elif isinstance(op, LpPool) and op.p != 1:
            result = e.call("pow", total, e.const(1.0 / op.p))
        k.store(y, dst.at(n, c, place), cast(result, Type(y.dtype.value)))
    about = f"{op.NAME} {list(op.kernel)}, {list(job.type(0).shape)} -> {list(out.shape)}, {op.layout.value}"
    return job.done(op.NAME, about, "pool_general")


def _lowest(e: Lanes) -> Expr:
    if e.is_float:
        return e.const(float("-inf"))
    return Num(int(np.iinfo(DType(e.kind).numpy).min), e.type)


def _pooled(e: Lanes, op: Pool, total: Var, value: Expr) -> Expr:
    if isinstance(op, MaxPool):
        return e.highest(value, total) if not e.is_float else e.highest(total, value)
    if isinstance(op, LpPool):
        if op.p == 1:
            return e.add(total, e.abs(value))
        power = e.mul(value, value) if op.p == 2 else e.call("pow", e.abs(value), e.const(float(op.p)))
        return e.add(total, power)
    return e.add(total, value)


def max_pool_indices(job: Job) -> Lowered:
    op, src, dst, rank = _pool_parts(job)
    assert isinstance(op, MaxPoolIndices)
    k, out = job.k, job.node.output
    e = Lanes.scalar(computed_in(out.dtype))
    x = job.operand(0, "x")
    y, where = job.writes(0, "y"), job.writes(1, "where")
    size = int(np.prod(src.spatial))
    order = strides_of(src.spatial) if not op.storage_order else tuple(int(np.prod(src.spatial[:i])) for i in range(rank))
    with k.loops(["n", "c", *[f"p{i}" for i in range(rank)]], [dst.batch, dst.channels, *dst.spatial]) as at:
        n, c, *place = at
        best = k.var("best", _lowest(e))
        found = k.var("found", idx(-1))
        with k.loops([f"k{i}" for i in range(rank)], list(op.kernel)) as tap:
            spots = _spots(k, op, place, tap)
            with k.when(_inside(spots, src.spatial)):
                value = k.let("v", e.load(x, src.at(n, c, spots)))
                with k.when(either(found.compare("lt", 0), value.compare("gt", best))):
                    k.assign(best, value)
                    k.assign(found, offset_of(spots, list(order)))
        k.store(y, dst.at(n, c, place), cast(best, Type(y.dtype.value)))
        k.store(where, dst.at(n, c, place), cast(found + (n * src.channels + c) * size, Type("i64")))
    about = f"max_pool with indices {list(op.kernel)}, {list(job.type(0).shape)} -> {list(out.shape)}"
    return job.done("max_pool_indices", about)
