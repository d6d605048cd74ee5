"""Sums, products and changes of scale of 8-bit numbers, 16 (or 8) at a time.

    x = widen(a[i..]) - a_zero               16 bits
    lo, hi = widen(x)                        32 bits, two vectors
    v = shift_away(high(lo, m), n)           as `integer_scaling.py` scales sums
    y[i..] = bytes(adds(narrow(v, v'), zero))

A lifted operand of `qadd` is at most 9 bits times a constant, so `(x << lift) * m` needs no 64-bit product: the upper and the lower
half of the multiplier are applied apart. What is left over of a row goes through the scalar expressions of `elementwise.py`, which
also takes what has other types or walks over an operand with a stride.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio.ir.types import DType, strides_of
from intaglio.kernels.elementwise import broadcast_strides, merge_axes, offset_of, one_lane
from intaglio.kernels.integer_conv import BYTES, size_of
from intaglio.kernels.integer_scaling import Bytes, Factor, factor_of, i16, i32, splat, vector
from intaglio.kernels.isa import Isa
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Buffer, Builder, Expr, Load, Num, Op, Type, cast
from intaglio.ops.base import Elementwise, Step
from intaglio.ops.quantised import QAdd, QMul, Requantize

Compute = Callable[[list[Expr]], Expr]  # from one vector of each operand to scaled numbers
HALVES = ("low", "high")


def _one_factor(job: Job, multiplier: int, shift: int, bound: int) -> Factor | None:
    """`scale32` by constants of numbers of at most `bound`."""
    return factor_of(job, "twice", np.array([multiplier]), np.array([shift]), bound, lambda values: values)


def _apply(k: Builder, factor: Factor, value: Expr) -> Expr:
    return factor.apply(k, value, factor.constants(k, Num(0)))


def lifted(job: Job, multiplier: int, shift: int, lift: int, bound: int) -> Callable[[Expr], Expr] | None:
    """`scale32(x << lift, multiplier, shift)` of small numbers; None where 32 bits would not do.

    (x * m + 2^(30-lift)) >> (31-lift) with m in two halves: the upper one shifts out whole."""
    k, isa, to = job.k, job.isa, i32(job.isa)
    right = -shift
    if not (16 <= lift <= 30 and 0 <= right <= 31 and multiplier >= 0 and bound < 1 << 9 and bound << lift < 1 << 30):
        return None
    upper, lower, n = multiplier >> 16, multiplier & 0xFFFF, 31 - lift

    def compute(x: Expr) -> Expr:
        value: Expr = vector("vimul", to, x, splat(isa, upper << (16 - n)))
        if lower:
            part = vector("viadd", to, vector("vimul", to, x, splat(isa, lower)), splat(isa, (1 << n) >> 1))
            value = vector("viadd", to, value, vector("vishift_right", to, part, splat(isa, n)))
        value = k.let("scaled", value)
        if right == 0:
            return value
        half = 1 << (right - 1)
        if "vshift_away_quick" in isa.table:
            return k.let("side", vector("vshift_away_quick", to, value, splat(isa, right), splat(isa, half)))
        return k.let("side", vector("vshift_away", to, value, splat(isa, right)))

    return compute


def _computed(job: Job, op: Elementwise, kinds: list[DType]) -> Compute | None:
    """What happens to a vector of each operand, zero points subtracted already."""
    k, to = job.k, i32(job.isa)
    match op:
        case Requantize():
            factor = _one_factor(job, op.multiplier, op.shift, size_of(kinds[0], op.x_zero))
            return None if factor is None else lambda x: _apply(k, factor, x[0])
        case QMul():
            bound = size_of(kinds[0], op.a_zero) * size_of(kinds[1], op.b_zero)
            product = _one_factor(job, op.multiplier, op.shift, bound)
            return None if product is None else lambda x: _apply(k, product, k.let("product", vector("vimul", to, x[0], x[1])))
        case QAdd():
            bounds = [size_of(kinds[0], op.a_zero), size_of(kinds[1], op.b_zero)]
            left = lifted(job, op.a_multiplier, op.a_shift, op.lift, bounds[0])
            right = lifted(job, op.b_multiplier, op.b_shift, op.lift, bounds[1])
            total = _one_factor(job, op.multiplier, op.shift, sum(b << op.lift for b in bounds))
            if left is None or right is None or total is None:
                return None
            name = "visub" if op.subtract else "viadd"
            return lambda x: _apply(k, total, k.let("sum", vector(name, to, left(x[0]), right(x[1]))))
    return None


def _zeros(op: Elementwise) -> list[int]:
    match op:
        case Requantize():
            return [op.x_zero]
        case QAdd() | QMul():
            return [op.a_zero, op.b_zero]
    raise AssertionError(op)


def _centred(isa: Isa, value: Expr, zero: int) -> Expr:
    if not zero:
        return value
    return vector("vsub_i16", i16(isa), value, Op("vsplat_i16", (Num(zero, Type("i16")),), i16(isa)))


def integer_elementwise(job: Job) -> Lowered | None:
    op, node, k, isa = job.node.op, job.node, job.k, job.isa
    assert isinstance(op, (QAdd, QMul, Requantize))
    values = [v for v in node.inputs if v is not None]
    out = node.output.type
    wide = 2 * isa.lanes
    if not isa.integers.dots or op.to not in BYTES or any(v.dtype not in BYTES for v in values):
        return None
    sizes, strides = merge_axes(out.shape, [broadcast_strides(v.shape, out.shape) for v in values] + [strides_of(out.shape)])
    *walks, out_walk = strides
    if not sizes or sizes[-1] < wide or any(w[-1] not in (0, 1) for w in walks):
        return None
    buffers = [job.reads(v, f"x{n}") for n, v in enumerate(values)]
    compute = _computed(job, op, [v.dtype for v in values])
    if compute is None:
        return None
    y = job.writes()
    zeros = _zeros(op)
    bytes_ = Bytes(isa, op.y_zero, op.low, op.high, op.to)
    outer = len(sizes) - 1
    with k.loops([f"i{n}" for n in range(outer)], sizes[:outer]) as at:
        bases = [k.let(f"at{n}", offset_of(at, w[:outer])) for n, w in enumerate(walks)]
        to = k.let("to", offset_of(at, out_walk[:outer]))
        done = sizes[-1] // wide * wide
        held = [None if w[-1] else _repeated(k, isa, b, base, z, n)
                for n, (b, w, base, z) in enumerate(zip(buffers, walks, bases, zeros, strict=True))]  # fmt: skip
        with k.loop("i", 0, done, wide) as i:
            given = [held[n] or _vector(k, isa, b, bases[n] + i, zeros[n], n) for n, b in enumerate(buffers)]
            parts = [[vector(f"vwiden_{half}", i32(isa), v) for v in given] for half in HALVES]
            results = [compute([k.let(f"{half}{n}", v) for n, v in enumerate(p)]) for half, p in zip(HALVES, parts, strict=True)]
            bytes_.store(k, y, to + i, wide, results)
        with k.loop("i", done, sizes[-1]) as i:
            steps = (Step(op, tuple(range(len(values)))),)
            one_lane(k, steps, buffers, [bases[n] + i * w[-1] for n, w in enumerate(walks)], y, to + i)
    shapes = " ".join(f"{v.dtype.value}{list(v.shape)}" for v in values)
    return job.done(op.NAME, f"{op.NAME} {shapes} -> {out.dtype.value}{list(out.shape)}", f"{op.NAME}(lanes={wide})", in_place=True)


def _vector(k: Builder, isa: Isa, x: Buffer, at: Expr, zero: int, n: int) -> Expr:
    loaded = Load(x, at, Type(x.dtype.value, 2 * isa.lanes))
    return k.let(f"x{n}_16", _centred(isa, Op(f"vwiden_{x.dtype.value}", (loaded,), i16(isa)), zero))


def _repeated(k: Builder, isa: Isa, x: Buffer, at: Expr, zero: int, n: int) -> Expr:
    one = cast(Load(x, at, Type(x.dtype.value)), Type("i16"))
    return k.let(f"x{n}_16", _centred(isa, Op("vsplat_i16", (one,), i16(isa)), zero))
