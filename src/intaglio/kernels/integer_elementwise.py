"""Sums, products and changes of scale of 8-bit numbers, 16 (or 8) at a time.

    x = widen(a[i..]) - a_zero               16 bits
    lo, hi = widen(x)                        32 bits, two vectors
    v = shift_away(high(lo, m), n)           as `contraction/scaling.py` scales sums
    y[i..] = bytes(adds(narrow(v, v'), zero))

A lifted operand of `qadd` is at most 9 bits times a constant, so `(x << lift) * m` needs no 64-bit product: the upper and the lower
half of the multiplier are applied apart. What is left over of a row goes through the scalar expressions of `elementwise.py`, which
also takes what has other types or walks over an operand with a stride.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Value
from intaglio.ir.types import DType, strides_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.quantised import BYTES, size_of
from intaglio.kernels.contraction.scaling import Bytes, Scaling, factor_of, i16, i32, scaling_by, splat, vector
from intaglio.kernels.elementwise import broadcast_strides, merge_axes, offset_of, one_lane
from intaglio.kernels.isa import Isa
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Op, Type, cast
from intaglio.ops.base import Elementwise, Step
from intaglio.ops.quantised import QAdd, QMul, Requantize

Compute = Callable[[list[Expr]], Expr]  # from one vector of each operand to scaled numbers
HALVES = ("low", "high")


@dataclass(frozen=True, slots=True)
class Lift:
    """`scale32(x << lift, multiplier, shift)` of small numbers, in 32 bits:
    (x * m + 2^(30-lift)) >> (31-lift) with m in two halves, of which the upper one shifts out whole."""

    multiplier: int
    right: int
    lift: int


@dataclass(frozen=True, slots=True)
class Scales:
    """How the operands and their sum or product are scaled."""

    sides: tuple[Lift, ...]
    total: Scaling


def _scaling(job: Job, multiplier: int, shift: int, bound: int) -> Scaling | str:
    """`scale32` by constants of numbers of at most `bound`."""
    return scaling_by(job.isa, "twice", np.array([multiplier]), np.array([shift]), bound)


def _lift(multiplier: int, shift: int, lift: int, bound: int) -> Lift | None:
    fits = 16 <= lift <= 30 and 0 <= -shift <= 31 and multiplier >= 0 and bound < 1 << 9 and bound << lift < 1 << 30
    return Lift(multiplier, -shift, lift) if fits else None


def _scales(job: Job, op: Elementwise, kinds: list[DType]) -> Scales | str:
    match op:
        case Requantize():
            total = _scaling(job, op.multiplier, op.shift, size_of(kinds[0], op.x_zero))
            return total if isinstance(total, str) else Scales((), total)
        case QMul():
            bound = size_of(kinds[0], op.a_zero) * size_of(kinds[1], op.b_zero)
            total = _scaling(job, op.multiplier, op.shift, bound)
            return total if isinstance(total, str) else Scales((), total)
        case QAdd():
            bounds = [size_of(kinds[0], op.a_zero), size_of(kinds[1], op.b_zero)]
            left = _lift(op.a_multiplier, op.a_shift, op.lift, bounds[0])
            right = _lift(op.b_multiplier, op.b_shift, op.lift, bounds[1])
            total = _scaling(job, op.multiplier, op.shift, sum(b << op.lift for b in bounds))
            if left is None or right is None:
                return "an operand, shifted to the left, may not fit 32 bits"
            return total if isinstance(total, str) else Scales((left, right), total)
    raise AssertionError(op)


def _lifted(k: Builder, isa: Isa, how: Lift, x: Expr) -> Expr:
    to, n = i32(isa), 31 - how.lift
    upper, lower = how.multiplier >> 16, how.multiplier & 0xFFFF
    value: Expr = vector("vimul", to, x, splat(isa, upper << (16 - n)))
    if lower:
        part = vector("viadd", to, vector("vimul", to, x, splat(isa, lower)), splat(isa, (1 << n) >> 1))
        value = vector("viadd", to, value, vector("vishift_right", to, part, splat(isa, n)))
    value = k.let("scaled", value)
    if how.right == 0:
        return value
    half = 1 << (how.right - 1)
    if "vshift_away_quick" in isa.table:
        return k.let("side", vector("vshift_away_quick", to, value, splat(isa, how.right), splat(isa, half)))
    return k.let("side", vector("vshift_away", to, value, splat(isa, how.right)))


def _compute(job: Job, op: Elementwise, scales: Scales) -> Compute:
    """What happens to a vector of each operand, zero points subtracted already."""
    k, isa, to = job.k, job.isa, i32(job.isa)
    factor = factor_of(job, scales.total)

    def compute(x: list[Expr]) -> Expr:
        value = x[0]
        if isinstance(op, QMul):
            value = k.let("product", vector("vimul", to, x[0], x[1]))
        elif isinstance(op, QAdd):
            sides = [_lifted(k, isa, how, side) for how, side in zip(scales.sides, x, strict=True)]
            value = k.let("sum", vector("visub" if op.subtract else "viadd", to, *sides))
        return factor.apply(k, value, factor.constants(k, Num(0)))

    return compute


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


@dataclass(frozen=True, slots=True)
class Walk:
    """Loops over merged axes: their sizes, the steps of each operand and of the result, and how numbers are scaled."""

    values: tuple[Value, ...]
    sizes: list[int]
    steps: list[list[int]]
    out: list[int]
    scales: Scales


@fact
def walk_of(job: Job) -> Walk | str:
    op, out = job.node.op, job.node.output.type
    assert isinstance(op, (QAdd, QMul, Requantize))
    values = tuple(v for v in job.node.inputs if v is not None)
    if not job.isa.integers.dots:
        return "the target has no integer vectors"
    if op.to not in BYTES or any(v.dtype not in BYTES for v in values):
        return "it is for bytes"
    sizes, steps = merge_axes(out.shape, [broadcast_strides(v.shape, out.shape) for v in values] + [strides_of(out.shape)])
    if not sizes or sizes[-1] < 2 * job.isa.lanes:
        return f"the last axis does not fill a vector of {2 * job.isa.lanes}"
    if any(w[-1] not in (0, 1) for w in steps[:-1]):
        return "an operand is not read in order along the last axis"
    scales = _scales(job, op, [v.dtype for v in values])
    return scales if isinstance(scales, str) else Walk(values, sizes, steps[:-1], steps[-1], scales)


def integer_elementwise(job: Job) -> Lowered:
    op, k, isa, walk = job.node.op, job.k, job.isa, walk_of(job)
    assert isinstance(op, (QAdd, QMul, Requantize)) and not isinstance(walk, str)
    values, sizes, walks, out_walk = walk.values, walk.sizes, walk.steps, walk.out
    out, wide = job.node.output.type, 2 * isa.lanes
    buffers = [job.reads(v, f"x{n}") for n, v in enumerate(values)]
    compute = _compute(job, op, walk.scales)
    y = job.writes()
    zeros = _zeros(op)
    bytes_ = Bytes(isa, op.y_zero, op.low, op.high, op.to)
    outer = len(sizes) - 1
    with k.loops([f"i{n}" for n in range(outer)], sizes[:outer]) as at:
        bases = [k.let(f"at{n}", offset_of(at, w[:outer])) for n, w in enumerate(walks)]
        to = k.let("to", offset_of(at, out_walk[:outer]))
        done = sizes[-1] // wide * wide
        held = [None if w[-1] else repeated(k, isa, b, base, z, n)
                for n, (b, w, base, z) in enumerate(zip(buffers, walks, bases, zeros, strict=True))]  # fmt: skip
        with k.loop("i", 0, done, wide) as i:
            given = [held[n] or widened(k, isa, b, bases[n] + i, zeros[n], n) for n, b in enumerate(buffers)]
            parts = [[vector(f"vwiden_{half}", i32(isa), v) for v in given] for half in HALVES]
            results = [compute([k.let(f"{half}{n}", v) for n, v in enumerate(p)]) for half, p in zip(HALVES, parts, strict=True)]
            bytes_.store(k, y, to + i, wide, results)
        with k.loop("i", done, sizes[-1]) as i:
            steps = (Step(op, tuple(range(len(values)))),)
            one_lane(k, steps, buffers, [bases[n] + i * w[-1] for n, w in enumerate(walks)], y, to + i)
    shapes = " ".join(f"{v.dtype.value}{list(v.shape)}" for v in values)
    return job.done(op.NAME, f"{op.NAME} {shapes} -> {out.dtype.value}{list(out.shape)}", f"{op.NAME}(lanes={wide})", in_place=True)


def widened(k: Builder, isa: Isa, x: Buffer, at: Expr, zero: int, n: int) -> Expr:
    """Neighbouring bytes of operand `n` as 16 bits, less their zero point."""
    loaded = Load(x, at, Type(x.dtype.value, 2 * isa.lanes))
    return k.let(f"x{n}_16", _centred(isa, Op(f"vwiden_{x.dtype.value}", (loaded,), i16(isa)), zero))


def repeated(k: Builder, isa: Isa, x: Buffer, at: Expr, zero: int, n: int) -> Expr:
    """The same of one byte over and over."""
    one = cast(Load(x, at, Type(x.dtype.value)), Type("i16"))
    return k.let(f"x{n}_16", _centred(isa, Op("vsplat_i16", (one,), i16(isa)), zero))
