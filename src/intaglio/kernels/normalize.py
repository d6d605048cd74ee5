"""Softmax, log-softmax, layer norm, batch norm, LRN: row by row, each row read two or three times while it is in the cache."""

from __future__ import annotations

import math

import numpy as np

from intaglio.ir.graph import Value
from intaglio.ir.sizes import Size, most, moves
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.expressions import computed_in
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Type, cast, idx, imax, imin
from intaglio.kernels.part import Part
from intaglio.kernels.reduce import across, fold, reciprocal, split_axis, start_value
from intaglio.ops.norm import BatchNorm, LayerNorm, Lrn
from intaglio.ops.reduce import LogSoftmax, Softmax


class Row:
    """A row of `size` numbers from `base` on: folding it and rewriting it, in vectors and a rest. The rest is numbers one at a
    time. Where the caller gives the size, it is a vector with as many lanes as are left, which stays in a register until it is
    finished: a load of fewer lanes waits for a store of fewer lanes."""

    def __init__(self, job: Job, x: Buffer, y: Buffer, base: Expr, size: int, stride: int, kind: str) -> None:
        self.job, self.k, self.x, self.y, self.base, self.size, self.stride = job, job.k, x, y, base, size, stride
        self.one = Lanes.scalar(kind)
        fast = kind == "f32" and x.dtype is DType.F32 and y.dtype is DType.F32 and stride == 1 and most(size) >= job.isa.lanes > 1
        self.e = job.vector if fast else self.one
        self.done = size // self.e.lanes * self.e.lanes if fast else 0
        self.part = Part.of(job, size - self.done) if fast and isinstance(size, Size) else None
        if self.part is not None:
            self.tail = self.k.var("tail", self.e.const(0.0), self.e.type)
            with self.part.there():
                self.k.assign(self.tail, self.part.lanes.load(x, base + self.done))

    def total(self, name: str, kind: str, term: object, source: Buffer | None = None) -> Expr:
        """Fold `term(lanes, value)` over the row."""
        assert callable(term)
        k, source = self.k, source or self.x
        rest = k.var(name, start_value(self.one, kind), self.one.type)
        if most(self.done):
            acc = k.var(f"{name}s", start_value(self.e, kind), self.e.type)
            with k.loop("j", 0, self.done, self.e.lanes) as j:
                k.assign(acc, fold(self.e, kind, acc, term(self.e, k.let("v", self.e.load(source, self.base + j)))))
            if self.part is not None:
                with self.part.there():
                    value = self.part.filled(term(self.part.lanes, self.tail), start_value(self.e, kind))
                    k.assign(acc, fold(self.e, kind, acc, value))
            k.assign(rest, across(k, self.e, kind, acc))
        if self.part is not None:
            return rest
        with k.loop("j", self.done, self.size) as j:
            value = k.let("v", self.one.load(source, self.base + j * self.stride))
            k.assign(rest, fold(self.one, kind, rest, term(self.one, value)))
        return rest

    def summed(self, name: str, value: object) -> Expr:
        """The sum of all `y[j] = value(lanes, x[j], j)`, which are read and written again."""
        assert callable(value)
        k, e = self.k, self.e
        if self.part is None:
            self.rewrite(value)
            return self.total(name, "sum", lambda e, v: v, source=self.y)
        acc = k.var(f"{name}s", e.const(0.0), e.type)
        with k.loop("j", 0, self.done, e.lanes) as j:
            result = k.let("made", value(e, k.let("v", e.load(self.x, self.base + j)), j))
            k.store(self.y, self.base + j, result)
            k.assign(acc, e.add(acc, result))
        with self.part.there():
            k.assign(self.tail, value(self.part.lanes, self.tail, idx(self.done)))
            k.assign(acc, e.add(acc, self.part.filled(self.tail, e.const(0.0))))
        return k.let(name, across(k, e, "sum", acc))

    def rewrite(self, value: object, source: Buffer | None = None) -> None:
        """y[j] = value(lanes, x[j], j)."""
        assert callable(value)
        k, source = self.k, source or self.x
        if most(self.done):
            with k.loop("j", 0, self.done, self.e.lanes) as j:
                k.store(self.y, self.base + j, value(self.e, k.let("v", self.e.load(source, self.base + j)), j))
        if self.part is not None:
            with self.part.there():
                result = value(self.part.lanes, self.tail, idx(self.done))
                k.store(self.y, self.base + self.done, result, left=self.part.left)
            return
        with k.loop("j", self.done, self.size) as j:
            at = self.base + j * self.stride
            result = value(self.one, k.let("v", self.one.load(source, at)), j)
            k.store(self.y, at, cast(result, Type(self.y.dtype.value)))


def softmax(job: Job) -> Lowered:
    op, k, out = job.node.op, job.k, job.node.output
    assert isinstance(op, (Softmax, LogSoftmax))
    x, y = job.operand(0, "x"), job.writes()
    outer, size, inner = split_axis(out.shape, op.axis)
    kind = computed_in(out.dtype)
    with k.loops(["o", "i"], [outer, inner]) as (o, i):
        row = Row(job, x, y, k.let("row", o * (size * inner) + i), size, inner, kind)
        top = row.total("top", "max", lambda e, v: v)

        def shifted(e: Lanes, v: Expr) -> Expr:
            return e.sub(v, e.splat(top))

        if isinstance(op, LogSoftmax):
            total = row.total("total", "sum", lambda e, v: e.call("exp", shifted(e, v)))
            log = k.let("shift", row.one.add(row.one.call("log", total), top))
            row.rewrite(lambda e, v, j: e.sub(v, e.splat(log)))
        elif y.dtype in (DType.F16, DType.BF16):  # the sum must not be of rounded terms
            total = row.total("total", "sum", lambda e, v: e.call("exp", shifted(e, v)))
            row.rewrite(lambda e, v, j: e.div(e.call("exp", shifted(e, v)), e.splat(total)))
        else:
            total = row.summed("total", lambda e, v, j: e.call("exp", shifted(e, v)))
            factor = k.let("factor", row.one.div(row.one.const(1.0), total))
            row.rewrite(lambda e, v, j: e.mul(v, e.splat(factor)), source=y)
    return job.done(op.NAME, f"{op.NAME} along axis {op.axis}\n{out.dtype.value}{list(out.shape)}", op.NAME, in_place=True)


def _per_element(job: Job, value: Value | None, name: str, shape: tuple[int, ...]) -> Buffer | None:
    """A scale or bias with one entry per element of the row; smaller constants are spread out at compile time."""
    if value is None:
        return None
    if value.type.elements == 1 and moves(shape):
        return job.reads(value, name)
    if value.shape != shape and value.data is not None and value.dtype not in (DType.F16, DType.BF16):
        return job.packed(np.ascontiguousarray(np.broadcast_to(value.data, shape)).reshape(-1), name, value.dtype)
    return job.reads(value, name)


def layer_norm_applies(job: Job) -> str | None:
    op, out = job.node.op, job.node.output
    assert isinstance(op, LayerNorm)
    size = math.prod(out.shape[op.axis % out.type.rank :])
    if size == 0:
        return "there are no elements to normalise"
    for value in (job.optional(1), job.optional(2)):
        if value is not None and value.data is None and math.prod(value.shape) not in (1, size):
            return "a computed scale or bias has neither one element nor one per normalised element"
    return None


def _mean(k: Builder, row: Row, one: Lanes, size: int) -> Expr:
    return k.let("mean", one.mul(row.total("total", "sum", lambda e, v: v), reciprocal(one, size)))


def layer_norm(job: Job) -> Lowered:
    op, k, out, node = job.node.op, job.k, job.node.output, job.node
    assert isinstance(op, LayerNorm)
    axis = op.axis % out.type.rank
    shape = out.shape[axis:]
    size, outer = math.prod(shape), math.prod(out.shape[:axis])
    x = job.operand(0, "x")
    scale = _per_element(job, job.optional(1), "scale", shape)
    bias = _per_element(job, job.optional(2), "bias", shape)
    operands = (job.optional(1), job.optional(2))
    alone = [v is not None and v.type.elements == 1 and size != 1 for v in operands]
    single = [one and (moves(shape) or v is None or v.data is None) for one, v in zip(alone, operands, strict=True)]
    y = job.writes()
    kind = computed_in(out.dtype)
    with k.loop("o", 0, outer) as o:
        row = Row(job, x, y, k.let("row", o * size), size, 1, kind)
        one = row.one
        mean = _mean(k, row, one, size) if op.centred else None

        def centred(e: Lanes, v: Expr) -> Expr:
            return v if mean is None else e.sub(v, e.splat(mean))

        def squared(e: Lanes, v: Expr) -> Expr:
            far = k.let("far", centred(e, v))
            return e.mul(far, far)

        var = one.mul(row.total("squares", "sum", squared), reciprocal(one, size))
        factor = k.let("factor", one.div(one.const(1.0), one.call("sqrt", one.add(var, one.const(op.epsilon)))))

        def result(e: Lanes, v: Expr, j: Expr) -> Expr:
            value = e.mul(centred(e, v), e.splat(factor))
            if scale is not None:
                value = e.mul(value, _entry(e, scale, j, single[0]))
            if bias is not None:
                value = e.add(value, _entry(e, bias, j, single[1]))
            return value

        row.rewrite(result)
    about = f"{norm_name(op)} over the last {size} of {out.dtype.value}{list(out.shape)}, epsilon {op.epsilon}"
    assert node.inputs[0] is not None
    return job.done(norm_name(op), about, "layer_norm", in_place=True)


def norm_name(op: LayerNorm) -> str:
    return "layer_norm" if op.centred else "rms_norm"


def _entry(e: Lanes, buffer: Buffer, j: Expr, single: bool) -> Expr:
    if single:
        return e.splat(Lanes.scalar(e.kind).load(buffer, idx(0)))
    if e.vector and buffer.dtype is not DType.F32:
        raise AssertionError("vectors are f32")
    return e.load(buffer, j)


def batch_norm(job: Job) -> Lowered:
    """Where `fold_batch_norm` was switched off."""
    op, k, out = job.node.op, job.k, job.node.output
    assert isinstance(op, BatchNorm)
    names = ("x", "scale", "bias", "mean", "var")
    x, scale, bias, mean, var = [job.operand(n, name) for n, name in enumerate(names)]
    y = job.writes()
    e = Lanes.scalar(computed_in(out.dtype))
    outer, size, inner = split_axis(out.shape, op.axis)
    with k.loop("o", 0, outer) as o, k.loop("c", 0, size) as c:
        root = e.call("sqrt", e.add(e.load(var, c), e.const(op.epsilon)))
        factor = k.let("factor", e.div(e.load(scale, c), root))
        shift = k.let("shift", e.sub(e.load(bias, c), e.mul(e.load(mean, c), factor)))
        with k.loop("i", 0, inner) as i:
            at = k.let("at", (o * size + c) * inner + i)
            k.store(y, at, cast(e.add(e.mul(e.load(x, at), factor), shift), Type(y.dtype.value)))
    return job.done("batch_norm", f"batch_norm, epsilon {op.epsilon}\n{out.dtype.value}{list(out.shape)}")


def lrn(job: Job) -> Lowered:
    op, k, out = job.node.op, job.k, job.node.output
    assert isinstance(op, Lrn)
    x, y = job.operand(0, "x"), job.writes()
    e = Lanes.scalar(computed_in(out.dtype))
    outer, size, inner = split_axis(out.shape, op.axis)
    before, after = (op.size - 1) // 2, op.size // 2
    with k.loop("o", 0, outer) as o, k.loop("c", 0, size) as c:
        first = k.let("first", imax(0, c - before))
        last = k.let("last", imin(size, c + (after + 1)))
        with k.loop("i", 0, inner) as i:
            total = k.var("total", e.const(0.0))
            with k.loop("j", first, last) as j:
                value = k.let("v", e.load(x, (o * size + j) * inner + i))
                k.assign(total, e.add(total, e.mul(value, value)))
            at = k.let("at", (o * size + c) * inner + i)
            base = e.add(e.const(op.bias), e.mul(total, e.const(op.alpha / op.size)))
            k.store(y, at, cast(e.div(e.load(x, at), e.call("pow", base, e.const(op.beta))), Type(y.dtype.value)))
    return job.done("lrn", f"lrn of {op.size}, alpha {op.alpha}, beta {op.beta}\n{out.dtype.value}{list(out.shape)}")


__all__ = ["Builder", "Row", "layer_norm", "softmax"]
