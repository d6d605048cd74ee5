"""Products of float activations with 8-bit weights: the row (or image) is quantised into scratch, sums are integers.

low, high = extremes of the row;  step = ...;  q[j] = round(x[j] / step)        then        y[n] = bias[n] + sum * (step * scale[n])
"""

from __future__ import annotations

import numpy as np

from intaglio.ir.types import DType
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Builder, Expr, Num, Op, Type, Var, cast, idx, imax, imin, select
from intaglio.kernels.quantised import I32, number, whole
from intaglio.ops.hybrid import HybridConv, HybridMatMul

F32, F64 = Type("f32"), Type("f64")


def _round_away(k: Builder, value: Expr) -> Expr:
    """Half away from zero, as an i32."""
    value = k.let("scaled", value)
    half = Num(0.5, value.type)
    away = select(
        value.compare("lt", Num(0.0, value.type)), Op("sub", (value, half), value.type), Op("add", (value, half), value.type)
    )
    return cast(away, I32)  # towards zero


def _clip(value: Expr, low: int, high: int) -> Expr:
    return Op("min", (Op("max", (value, number(low)), I32), number(high)), I32)


def quantize_into(k: Builder, x: Buffer, base: Expr, count: int, q: Buffer, asymmetric: bool) -> tuple[Expr, Expr]:
    """q[j] of x[base + j]; returns the step (f32) and the zero point (i32)."""
    e = Lanes.scalar()
    low, high = k.var("low", e.const(0.0)), k.var("high", e.const(0.0))
    with k.loop("j", 0, count) as j:
        value = k.let("v", e.load(x, base + j))
        k.assign(low, e.lowest(value, low))
        k.assign(high, e.highest(value, high))
    if not asymmetric:
        size = k.let("size", e.highest(Op("neg", (low,), F32), high))
        flat = k.let("flat", size.compare("eq", Num(0.0, F32)))
        inverse = k.let("inverse", select(_true(flat), Num(0.0, F32), e.div(e.const(127.0), size)))
        with k.loop("j", 0, count) as j:
            rounded = _round_away(k, e.mul(e.load(x, base + j), inverse))
            k.store(q, j, cast(_clip(rounded, -127, 127), Type("i8")))
        return k.let("step", select(_true(flat), Num(1.0, F32), e.div(size, e.const(127.0)))), number(0)
    d = Lanes.scalar("f64")
    spread = k.let("spread", d.sub(cast(high, F64), cast(low, F64)))
    flat = k.let("flat", spread.compare("eq", Num(0.0, F64)))
    scale = k.let("scale", select(_true(flat), Num(1.0, F64), d.div(spread, d.const(255.0))))
    below, above = k.let("below", d.div(cast(low, F64), scale)), k.let("above", d.div(cast(high, F64), scale))
    from_low, from_high = d.sub(d.const(-128.0), below), d.sub(d.const(127.0), above)
    nearer = d.sub(d.const(128.0), below).compare("lt", d.add(d.const(127.0), above))
    start = k.let("start", select(nearer, from_low, from_high))
    zero = k.let("zero", select(_true(flat), number(0), _clip(_round_away(k, start), -128, 127)))
    inverse = k.let("inverse", cast(d.div(d.const(1.0), scale), F32))
    with k.loop("j", 0, count) as j:
        real = e.add(cast(zero, F32), e.mul(e.load(x, base + j), inverse))
        k.store(q, j, cast(_clip(_round_away(k, real), -128, 127), Type("i8")))
    return k.let("step", cast(scale, F32)), zero


def _true(flag: Expr) -> Expr:
    return flag.compare("ne", Num(0, Type("bool")))


def _sum(k: Builder, total: Var, q: Buffer, q_at: Expr, zero: Expr, w: Buffer, w_at: Expr, count: Expr) -> None:
    with k.loop("j", 0, count) as j:
        left = whole(q, q_at + j)
        left = left if isinstance(zero, Num) and zero.value == 0 else Op("sub", (left, zero), I32)
        k.assign(total, Op("add", (total, Op("mul", (left, whole(w, w_at + j)), I32)), I32))


def hybrid_matmul(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, HybridMatMul)
    rows, depth = job.type(0).shape
    columns = job.type(1).shape[0]
    x, w, scale = job.operand(0, "x"), job.operand(1, "w"), job.operand(2, "scale")
    bias = job.optional(3)
    b = job.reads(bias, "bias") if bias is not None else None
    q = job.scratch(depth, "q", DType.I8)
    y = job.writes()
    e = Lanes.scalar()
    with k.loop("m", 0, rows) as m:
        step, zero = quantize_into(k, x, k.let("row", m * depth), depth, q, op.asymmetric)
        with k.loop("n", 0, columns) as n:
            total = k.var("total", number(0), I32)
            _sum(k, total, q, idx(0), zero, w, n * depth, idx(depth))
            value: Expr = e.mul(cast(total, F32), e.mul(step, e.load(scale, n)))
            k.store(y, m * columns + n, value if b is None else e.add(value, e.load(b, n)))
    return job.done(f"hybrid_matmul_{depth}_{columns}", f"hybrid_matmul [{rows},{depth}] x i8[{columns},{depth}]")


def hybrid_conv(job: Job) -> Lowered | None:
    op, k, node = job.node.op, job.k, job.node
    assert isinstance(op, HybridConv)
    weights = node.inputs[1]
    if weights is None or weights.data is None:
        return None
    n_, h, w_, c = job.type(0).shape
    _, oh_, ow_, outs = node.output.shape
    kh_, kw_ = weights.shape[2:]
    depth, columns = c // op.group, outs // op.group
    x = job.operand(0, "x")
    w = job.packed(np.ascontiguousarray(weights.data.transpose(0, 2, 3, 1)).reshape(-1), "w", weights.dtype)
    scale = job.operand(2, "scale")
    bias = job.optional(3)
    b = job.reads(bias, "bias") if bias is not None else None
    q = job.scratch(h * w_ * c, "q", DType.I8)
    y = job.writes()
    e = Lanes.scalar()
    (sh, sw), (dh, dw) = op.strides, op.dilations
    with k.loop("n", 0, n_) as n:
        step, zero = quantize_into(k, x, k.let("image", n * (h * w_ * c)), h * w_ * c, q, op.asymmetric)
        with k.loop("oh", 0, oh_) as oh, k.loop("ow", 0, ow_) as ow:
            top, left = k.let("top", oh * sh - op.pads[0]), k.let("left", ow * sw - op.pads[1])
            rows = (
                k.let("kh_first", imax(0, (0 - top + (dh - 1)) // dh)),
                k.let("kh_last", imin(kh_, (idx(h + dh - 1) - top) // dh)),
            )
            cols = (
                k.let("kw_first", imax(0, (0 - left + (dw - 1)) // dw)),
                k.let("kw_last", imin(kw_, (idx(w_ + dw - 1) - left) // dw)),
            )
            place = k.let("to", ((n * oh_ + oh) * ow_ + ow) * outs)
            with k.loop("o", 0, outs) as o:
                total = k.var("total", number(0), I32)
                group = o // columns if op.group > 1 else idx(0)
                with k.loop("kh", rows[0], rows[1]) as kh, k.loop("kw", cols[0], cols[1]) as kw:
                    at = k.let("at", ((top + kh * dh) * w_ + left + kw * dw) * c + group * depth)
                    _sum(k, total, q, at, zero, w, ((o * kh_ + kh) * kw_ + kw) * depth, idx(depth))
                value: Expr = e.mul(e.mul(cast(total, F32), e.load(scale, o)), step)
                k.store(y, place + o, value if b is None else e.add(value, e.load(b, o)))
    about = f"hybrid_conv {kh_}x{kw_}, {c} -> {outs} channels, {h}x{w_} -> {oh_}x{ow_}, weights i8"
    return job.done(f"hybrid_conv{kh_}x{kw_}_{c}_{outs}", about)
