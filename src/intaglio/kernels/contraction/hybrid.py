"""Products of float activations with 8-bit weights: the row (or image) is quantised into scratch, sums are integers.

low, high = extremes of the row;  step = ...;  q[j] = round(x[j] / step)        then        y[n] = bias[n] + sum * (step * scale[n])
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.plain import Sums, dot, packed_weights, plain_image
from intaglio.kernels.contraction.problem import problem_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Num, Op, Type, Var, cast, idx, select
from intaglio.kernels.whole_numbers import I32, number
from intaglio.ops.hybrid import HybridConv, HybridMatMul

F32, F64 = Type("f32"), Type("f64")


def round_away(k: Builder, e: Lanes, value: Expr) -> Expr:
    """Half away from zero, as i32. To floats the number below a half is added: 0.49999997f + 0.5f would be 1."""
    half = 0.5 if e.kind == "f64" else float(np.nextafter(np.float32(0.5), np.float32(0.0)))
    value = k.let("scaled", value)
    away = e.add(value, e.choose(e.compare("lt", value, e.const(0.0)), e.const(-half), e.const(half)))
    return Op("vtrunc", (away,), Type("i32", e.lanes)) if e.vector else cast(away, I32)


def _clip(value: Expr, low: int, high: int) -> Expr:
    return Op("min", (Op("max", (value, number(low)), I32), number(high)), I32)


@dataclass(frozen=True, slots=True)
class Grid:
    """The numbers that a row is rounded to: x = (q - zero) * step. `inverse` is what x is multiplied by."""

    step: Expr
    inverse: Expr
    zero: Expr  # i32; 0 where rows are symmetric


def grid_of(k: Builder, low: Expr, high: Expr, asymmetric: bool) -> Grid:
    """By the extremes of a row, 0 among them."""
    e = Lanes.scalar()
    if not asymmetric:
        size = k.let("size", e.highest(Op("neg", (low,), F32), high))
        flat = k.let("flat", size.compare("eq", Num(0.0, F32)))
        inverse = k.let("inverse", select(_true(flat), Num(0.0, F32), e.div(e.const(127.0), size)))
        return Grid(k.let("step", select(_true(flat), Num(1.0, F32), e.div(size, e.const(127.0)))), inverse, number(0))
    d = Lanes.scalar("f64")
    spread = k.let("spread", d.sub(cast(high, F64), cast(low, F64)))
    flat = k.let("flat", spread.compare("eq", Num(0.0, F64)))
    scale = k.let("scale", select(_true(flat), Num(1.0, F64), d.div(spread, d.const(255.0))))
    below, above = k.let("below", d.div(cast(low, F64), scale)), k.let("above", d.div(cast(high, F64), scale))
    from_low, from_high = d.sub(d.const(-128.0), below), d.sub(d.const(127.0), above)
    nearer = d.sub(d.const(128.0), below).compare("lt", d.add(d.const(127.0), above))
    start = k.let("start", select(nearer, from_low, from_high))
    zero = k.let("zero", select(_true(flat), number(0), _clip(round_away(k, d, start), -128, 127)))
    inverse = k.let("inverse", cast(d.div(d.const(1.0), scale), F32))
    return Grid(k.let("step", cast(scale, F32)), inverse, zero)


def lowest_of(asymmetric: bool) -> int:
    """The lowest number of a row; 127 is the highest."""
    return -128 if asymmetric else -127


def extremes(k: Builder, x: Buffer, base: Expr, count: int) -> tuple[Expr, Expr]:
    """Of x[base + j], 0 among them; what is not a number does not count."""
    e = Lanes.scalar()
    low, high = k.var("low", e.const(0.0)), k.var("high", e.const(0.0))
    with k.loop("j", 0, count) as j:
        value = k.let("v", e.load(x, base + j))
        k.assign(low, e.lowest(value, low))
        k.assign(high, e.highest(value, high))
    return low, high


def quantize_into(k: Builder, x: Buffer, base: Expr, count: int, q: Buffer, asymmetric: bool) -> tuple[Expr, Expr]:
    """q[j] of x[base + j]; returns the step (f32) and the zero point (i32)."""
    e = Lanes.scalar()
    grid = grid_of(k, *extremes(k, x, base, count), asymmetric)
    with k.loop("j", 0, count) as j:
        real = e.mul(e.load(x, base + j), grid.inverse)
        real = e.add(cast(grid.zero, F32), real) if asymmetric else real
        k.store(q, j, cast(_clip(round_away(k, e, real), lowest_of(asymmetric), 127), Type("i8")))
    return grid.step, grid.zero


def _true(flag: Expr) -> Expr:
    return flag.compare("ne", Num(0, Type("bool")))


def hybrid_matmul(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, HybridMatMul)
    rows, depth = job.type(0).shape
    columns = job.type(1).shape[0]
    x, w, scale = job.operand(0, "x"), job.operand(1, "w"), job.operand(2, "scale")
    bias = job.optional(3)
    b = job.reads(bias, "bias") if bias is not None else None
    q = job.scratch(depth, "q", DType.I8, own=True)
    y = job.writes()
    e = Lanes.scalar()
    with k.loop("m", 0, rows) as m:
        step, zero = quantize_into(k, x, k.let("row", m * depth), depth, q, op.asymmetric)
        with k.loop("n", 0, columns) as n:
            total = k.var("total", number(0), I32)
            dot(k, total, q, idx(0), zero, w, n * depth, 0, depth)
            value: Expr = e.mul(cast(total, F32), e.mul(step, e.load(scale, n)))
            k.store(y, m * columns + n, value if b is None else e.add(value, e.load(b, n)))
    return job.done(f"hybrid_matmul_{depth}_{columns}", f"hybrid_matmul [{rows},{depth}] x i8[{columns},{depth}]")


def hybrid_conv(job: Job) -> Lowered:
    op, k, p = job.node.op, job.k, problem_of(job)
    weights, bias = job.node.inputs[1], job.optional(3)
    assert isinstance(op, HybridConv) and weights is not None
    x = job.operand(0, "x")
    w = packed_weights(job, weights, p)
    scale = job.operand(2, "scale")
    b = job.reads(bias, "bias") if bias is not None else None
    size = p.height * p.width * p.channels
    q = job.scratch(size, "q", DType.I8)
    y = job.writes()
    e = Lanes.scalar()
    with k.loop("n", 0, p.batch) as n:
        step, zero = quantize_into(k, x, k.let("image", n * size), size, q, op.asymmetric)

        def store(total: Var, o: Expr, place: Expr) -> None:
            value: Expr = e.mul(e.mul(cast(total, F32), e.load(scale, o)), step)
            k.store(y, place + o, value if b is None else e.add(value, e.load(b, o)))

        plain_image(k, p, Sums(q, zero, w, 0, lambda _: number(0), store), n, idx(0))
    return job.done(p.stem("hybrid_conv"), f"{p.title('hybrid_conv')}, weights i8")
