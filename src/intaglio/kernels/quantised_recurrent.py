"""LSTM of integers: one row of a weight matrix at a time, gates in 16 bits, exact to the reference.

    for every step and batch entry
      gates[g][u] = act(sat(sat(scale(bw + w x)) + scale(br + r h)))
      c, h        = one loop over the units

With peepholes the output gate comes after the cell state; a norm is two loops over a gate; a projection is a loop at the end.
The running states live in the outputs `h_out` and `c_out`; scratch holds the gates of one step.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Buffer, Expr, Op, Type, cast, idx, select
from intaglio.kernels.whole_numbers import I32, I64, bounded, number, scaled, whole
from intaglio.ops.quantised_recurrent import GATES, QLstm

_LOW, _HIGH = -(1 << 15), (1 << 15) - 1
_EXTRAS = ("peepholes", "norm", "norm_bias", "projection", "projection_bias")  # operands 7 to 11


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


@dataclass(frozen=True, slots=True)
class _Layer:
    """An LSTM being written: its parameters, and the sizes that all loops go by."""

    k: Builder
    op: QLstm
    features: int
    cells: int
    outputs: int
    batch: int
    x: Buffer
    w: Buffer
    r: Buffer
    bw: Buffer
    br: Buffer
    gates: Buffer
    h: Buffer
    c: Buffer
    y: Buffer
    p: Buffer | None = None
    n: Buffer | None = None
    nb: Buffer | None = None
    q: Buffer | None = None
    bq: Buffer | None = None
    hidden: Buffer | None = None

    def gate(self, name: str, row: Expr, entry: Expr) -> None:
        """The numbers of one gate for one entry of the batch."""
        k, op, size = self.k, self.op, self.cells
        g = GATES[4 - op.gates :].index(name)
        place = op.peephole(name)
        k.comment(f"{name} gate")
        with k.loop("u", 0, size) as u:
            unit = k.let("unit", u + g * size)
            from_x = dot(k, whole(self.bw, unit), self.x, row * self.features, self.w, unit * self.features, self.features)
            part = scaled(from_x, number(op.w_multipliers[g]), number(op.w_shifts[g]), "scale32")
            part = k.let("from_x", clipped(k, part, _LOW, _HIGH))
            from_h = dot(k, whole(self.br, unit), self.h, entry * self.outputs, self.r, unit * self.outputs, self.outputs)
            more = scaled(from_h, number(op.r_multipliers[g]), number(op.r_shifts[g]), "scale32")
            value = k.let("gate", clipped(k, _plus(more, part), _LOW, _HIGH))
            if place is not None:
                value = self.peephole(value, place, entry, u)
            self.store(unit, value, "" if self.n is not None else name)
        if self.n is not None:
            self.norm(name, g)

    def store(self, unit: Expr, value: Expr, name: str) -> None:
        """Through the activation of the gate, or as it is."""
        squashed = value if not name else tanh16(value, 3) if name == "update" else sigmoid16(value)
        self.k.store(self.gates, unit, cast(squashed, Type("i16")))

    def peephole(self, value: Expr, place: int, entry: Expr, u: Expr) -> Expr:
        k, op, first = self.k, self.op, place * self.cells
        assert self.p is not None
        at = k.let("at", entry * self.cells + u)
        total = k.var("seen", value)
        seen_at, inside = u, None
        if self.outputs != self.cells:
            flat = at if op.time_major else u
            seen_at, inside = flat % self.outputs, flat.compare("lt", (self.batch if op.time_major else 1) * self.outputs)
        with nullcontext() if inside is None else k.when(inside):
            seen = k.let("product", _times(whole(self.p, seen_at + first), whole(self.c, at)))
            seen = scaled(seen, number(op.p_multipliers[place]), number(op.p_shifts[place]), "scale32")
            k.assign(total, clipped(k, _plus(seen, total), _LOW, _HIGH))
        return total

    def norm(self, name: str, g: int) -> None:
        k, op, size = self.k, self.op, self.cells
        assert self.n is not None
        assert self.nb is not None
        sum_, squares = k.var("sum", number(0, I64), I64), k.var("squares", number(0, I64), I64)
        with k.loop("u", 0, size) as u:
            value = k.let("value", whole(self.gates, u + g * size))
            k.assign(sum_, Op("add", (sum_, cast(value, I64)), I64))
            k.assign(squares, Op("add", (squares, cast(_times(value, value), I64)), I64))
        mean = k.let("mean", Op("div", (Op("mul", (sum_, number(1024, I64)), I64), number(size, I64)), I64))
        scaled_up = Op("mul", (squares, number((1 << 20) // size, I64)), I64)
        spread = k.let("spread", Op("sub", (scaled_up, Op("mul", (mean, mean), I64)), I64))
        variance = k.let("variance", cast(Op("div", (spread, number(1 << 20, I64)), I64), I32))
        variance = k.let("guarded", select(variance.compare("lt", number(1)), number(op.n_guards[g]), variance))
        multiplier = k.let("multiplier", Op("fn_inv_sqrt", (variance,), I32))
        shift = k.let("shift", Op("fn_inv_sqrt_shift", (variance,), I32))
        with k.loop("u", 0, size) as u:
            unit = k.let("unit", u + g * size)
            apart = k.let("apart", Op("sub", (_times(number(1024), whole(self.gates, unit)), cast(mean, I32)), I32))
            product = Op("mul", (cast(scaled(apart, multiplier, shift, "scale32"), I64), whole(self.n, unit, I64)), I64)
            total = cast(Op("add", (cast(cast(product, I32), I64), whole(self.nb, unit, I64)), I64), I32)  # LiteRT has 32-bit sums
            lifted = k.let("lifted", cast(total, I64))
            half = select(lifted.compare("gt", number(0, I64)), number(512, I64), number(-512, I64))
            rounded = cast(Op("div", (Op("add", (lifted, half), I64), number(1024, I64)), I64), I32)
            value = scaled(k.let("rounded", rounded), number(op.n_multipliers[g]), number(op.n_shifts[g] + 12), "scale32")
            self.store(unit, k.let("normal", clipped(k, value, _LOW, _HIGH)), name)

    def cell(self, u: Expr, at: Expr) -> Expr:
        """The cell state of one unit."""
        k, op, size = self.k, self.op, self.cells
        *first, forget, update = (k.let("gate", whole(self.gates, u + g * size)) for g in range(op.gates - 1))
        enter = first[0] if first else Op("sub", (number(_HIGH), forget), I32)
        kept = _short(Op("fn_rounding_shift", (_times(forget, whole(self.c, at)), number(15)), I32))
        new = _short(Op("fn_rounding_shift", (_times(enter, update), number(30 + op.cell_bits)), I32))
        low, high = (-op.cell_clip, op.cell_clip) if op.cell_clip else (_LOW, _HIGH)
        cell = k.let("cell", clipped(k, _plus(kept, new), low, high))
        k.store(self.c, at, cast(cell, Type("i16")))
        return cell

    def out(self, cell: Expr, u: Expr, at: Expr, to: Expr) -> None:
        """The hidden state of one unit, or what a projection takes."""
        k, op = self.k, self.op
        output = k.let("gate", whole(self.gates, u + (op.gates - 1) * self.cells))
        product = k.let("product", _times(output, tanh16(cell, 15 + op.cell_bits)))
        value = _plus(scaled(product, number(op.h_multiplier), number(op.h_shift), "scale32"), number(op.h_zero))
        hidden = k.let("hidden", bounded(k.let("v", value), -128, 127, DType.I8))
        if self.hidden is not None:
            k.store(self.hidden, u, hidden)
            return
        k.store(self.h, at, hidden)
        k.store(self.y, to, hidden)

    def project(self, row: Expr, entry: Expr) -> None:
        k, op = self.k, self.op
        if self.q is None or self.bq is None or self.hidden is None:
            return
        k.comment("projection")
        low, high = max(-op.q_clip or -128, -128), op.q_clip or 127
        with k.loop("o", 0, self.outputs) as o:
            total = dot(k, whole(self.bq, o), self.hidden, idx(0), self.q, o * self.cells, self.cells)
            value = _plus(scaled(total, number(op.q_multiplier), number(op.q_shift), "scale32"), number(op.q_zero))
            made = k.let("made", bounded(k.let("v", value), low, high, DType.I8))
            k.store(self.h, entry * self.outputs + o, made)
            k.store(self.y, row * self.outputs + o, made)


def _layer(job: Job) -> _Layer:
    op = job.node.op
    assert isinstance(op, QLstm)
    features = job.type(0).shape[2]
    (batch, cells), outputs = job.type(6).shape, job.type(5).shape[1]
    x, w, r = job.operand(0, "x"), job.operand(1, "w"), job.operand(2, "r")
    bw, br = job.operand(3, "bw"), job.operand(4, "br")
    h0, c0 = job.operand(5, "h0"), job.operand(6, "c0")
    gates = job.scratch(op.gates * cells, "gates", DType.I16)
    found = [job.optional(7 + n) for n in range(len(_EXTRAS))]
    p, n, nb, q, bq = (None if v is None else job.reads(v, name) for v, name in zip(found, _EXTRAS, strict=True))
    hidden = None if q is None else job.scratch(cells, "kept", DType.I8)
    y, h, c = job.writes(0, "y"), job.writes(1, "h"), job.writes(2, "c")
    job.k.copy(h, 0, h0, 0, batch * outputs)
    job.k.copy(c, 0, c0, 0, batch * cells)
    return _Layer(job.k, op, features, cells, outputs, batch, x, w, r, bw, br, gates, h, c, y, p, n, nb, q, bq, hidden)


def qlstm(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, QLstm)
    layer = _layer(job)
    first, second, _ = job.type(0).shape
    time, batch = (first, second) if op.time_major else (second, first)
    size = layer.cells
    names = GATES[4 - op.gates :]
    with k.loop("t", 0, time) as t, k.loop("n", 0, batch) as n:
        row = k.let("row", t * batch + n if op.time_major else n * time + t)
        late = layer.p is not None  # its output gate sees the new cell state
        for name in names[:-1] if late else names:
            layer.gate(name, row, n)
        if late:
            with k.loop("u", 0, size) as u:
                layer.cell(u, n * size + u)
            layer.gate("output", row, n)
        with k.loop("u", 0, size) as u:
            at = k.let("at", n * size + u)
            cell = k.let("cell", whole(layer.c, at)) if late else layer.cell(u, at)
            layer.out(cell, u, at, row * size + u)
        layer.project(row, n)
    also = [name for name, there in (("peepholes", layer.p), ("norm", layer.n), ("projection", layer.q)) if there is not None]
    about = f"qlstm {list(job.type(0).shape)} -> {size} units, {op.gates} gates, i8 with an i16 cell state"
    return job.done(f"qlstm_{size}", ", ".join([about, *also]))


def _short(value: Expr) -> Expr:
    """What is left in 16 bits."""
    return cast(cast(value, Type("i16")), I32)
