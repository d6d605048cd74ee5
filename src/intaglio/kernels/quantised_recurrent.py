"""LSTM of integers: one row of a weight matrix at a time, gates in 16 bits, exact to the reference.

    for every step and batch entry
      gates[g][u] = act(sat(sat(scale(bw + w x)) + scale(br + r h)))
      c, h        = one loop over the units

The running states live in the outputs `h_out` and `c_out`; scratch holds the gates of one step.
"""

from __future__ import annotations

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Buffer, Expr, Op, Type, cast
from intaglio.kernels.whole_numbers import I32, bounded, number, scaled, whole
from intaglio.ops.quantised_recurrent import GATES, QLstm

_LOW, _HIGH = -(1 << 15), (1 << 15) - 1


def clipped(k: Builder, value: Expr, low: int, high: int) -> Expr:
    value = k.let("v", value)
    return Op("min", (Op("max", (value, number(low)), I32), number(high)), I32)


def dot(k: Builder, start: Expr, a: Buffer, a_at: Expr, b: Buffer, b_at: Expr, count: int) -> Expr:
    """start + the sum of products of two runs."""
    total = k.var("total", start)
    with k.loop("j", 0, count) as j:
        k.assign(total, Op("add", (total, Op("mul", (whole(a, a_at + j), whole(b, b_at + j)), I32)), I32))
    return total


def sigmoid16(value: Expr) -> Expr:
    return Op("fn_logistic16", (value, number(3)), I32)


def tanh16(value: Expr, integer_bits: int) -> Expr:
    return Op("fn_tanh16", (value, number(integer_bits)), I32)


def _plus(a: Expr, b: Expr) -> Expr:
    return Op("add", (a, b), I32)


def _times(a: Expr, b: Expr) -> Expr:
    return Op("mul", (a, b), I32)


def qlstm(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, QLstm)
    first, second, features = job.type(0).shape
    time, batch = (first, second) if op.time_major else (second, first)
    size = job.type(6).shape[1]
    x, w, r = job.operand(0, "x"), job.operand(1, "w"), job.operand(2, "r")
    bw, br = job.operand(3, "bw"), job.operand(4, "br")
    h0, c0 = job.operand(5, "h0"), job.operand(6, "c0")
    gates = job.scratch(op.gates * size, "gates", DType.I16)
    y, h, c = job.writes(0, "y"), job.writes(1, "h"), job.writes(2, "c")
    k.copy(h, 0, h0, 0, batch * size)
    k.copy(c, 0, c0, 0, batch * size)
    names = GATES[4 - op.gates :]
    with k.loop("t", 0, time) as t, k.loop("n", 0, batch) as n:
        row = k.let("row", t * batch + n if op.time_major else n * time + t)
        state = k.let("state", n * size)
        for g, name in enumerate(names):
            k.comment(f"{name} gate")
            with k.loop("u", 0, size) as u:
                unit = k.let("unit", u + g * size)
                from_x = dot(k, whole(bw, unit), x, row * features, w, unit * features, features)
                part = scaled(from_x, number(op.w_multipliers[g]), number(op.w_shifts[g]), "scale32")
                part = k.let("from_x", clipped(k, part, _LOW, _HIGH))
                from_h = dot(k, whole(br, unit), h, state, r, unit * size, size)
                more = scaled(from_h, number(op.r_multipliers[g]), number(op.r_shifts[g]), "scale32")
                gate = k.let("gate", clipped(k, _plus(more, part), _LOW, _HIGH))
                k.store(gates, unit, cast(tanh16(gate, 3) if name == "update" else sigmoid16(gate), Type("i16")))
        with k.loop("u", 0, size) as u:
            _unit(k, op, gates, size, u, state + u, row * size + u, y, h, c)
    about = f"qlstm {list(job.type(0).shape)} -> {size} units, {op.gates} gates, i8 with an i16 cell state"
    return job.done(f"qlstm_{size}", about)


def _unit(k: Builder, op: QLstm, gates: Buffer, size: int, u: Expr, at: Expr, to: Expr, y: Buffer, h: Buffer, c: Buffer) -> None:
    """Cell and hidden state of one unit."""
    *first, forget, update, output = (k.let("gate", whole(gates, u + g * size)) for g in range(op.gates))
    enter = first[0] if first else Op("sub", (number(_HIGH), forget), I32)
    kept = _short(Op("fn_rounding_shift", (_times(forget, whole(c, at)), number(15)), I32))
    new = _short(Op("fn_rounding_shift", (_times(enter, update), number(30 + op.cell_bits)), I32))
    low, high = (-op.cell_clip, op.cell_clip) if op.cell_clip else (_LOW, _HIGH)
    cell = k.let("cell", clipped(k, _plus(kept, new), low, high))
    k.store(c, at, cast(cell, Type("i16")))
    product = k.let("product", _times(output, tanh16(cell, 15 + op.cell_bits)))
    value = _plus(scaled(product, number(op.h_multiplier), number(op.h_shift), "scale32"), number(op.h_zero))
    hidden = k.let("hidden", bounded(k.let("v", value), -128, 127, DType.I8))
    k.store(h, at, hidden)
    k.store(y, to, hidden)


def _short(value: Expr) -> Expr:
    """What is left in 16 bits."""
    return cast(cast(value, Type("i16")), I32)
