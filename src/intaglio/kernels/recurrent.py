"""LSTM, GRU and RNN: the input's part of all gates for all steps as one matrix product, then step by step the state's part.

    xg[t] = x[t] W + b          one tiled product over all time steps, into scratch
    rg    = h R                 a vector times a packed matrix per step
    c, h  = gates(xg[t] + rg)   elementwise, in vectors

Constant weights of f32 (stored so, or as i8 or f16) are packed and run in register tiles; weights that are computed, and doubles,
run one lane at a time. Scales of i8 weights multiply the sums before the bias comes.
Scratch holds xg, rg, h, c and (for a GRU that resets first) reset * h. Where the caller gives the number of steps, xg comes last:
the others are then at places that a compiler knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array, Value
from intaglio.ir.sizes import Size
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.fma import Fma, pack_bias, pack_panels
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.contraction.tile import Tile, choose_tile
from intaglio.kernels.contraction.tiles import Tiles
from intaglio.kernels.epilogue import Epilogue, Extra
from intaglio.kernels.expressions import ROWS, computed_in
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import INDEX_OUT_OF_RANGE, Buffer, Expr, Load, Num, Type, Var, cast, either, idx
from intaglio.ops.base import Step
from intaglio.ops.binary import Add, Mul
from intaglio.ops.recurrent import OPERANDS, OPERATORS, Gru, Lstm, Recurrent

_SCALED = (Step(Mul(), (0, 1)), Step(Add(), (3, 2)))  # sum * scale + bias


@dataclass(frozen=True, slots=True)
class _Product:
    """vector[depth] * matrix[depth, columns] for one direction: packed, or the model's own [columns, depth] rows."""

    depth: int
    columns: int
    buffer: Buffer
    base: int  # where this direction's weights start
    tile: Tile | None
    bias: Buffer | None
    bias_base: int = 0
    scale: Buffer | None = None
    scale_base: int = 0


class _Cells:
    """Everything a direction needs, and the code of one step."""

    def __init__(self, job: Job, op: Recurrent) -> None:
        self.job, self.op, self.k = job, op, job.k
        node = job.node
        x = job.type(0).shape
        self.batch, self.time = (x[0], x[1]) if op.layout_batch_first else (x[1], x[0])
        self.features, self.hidden, self.gates = x[2], op.hidden, op.GATES
        given: list[Value | None] = [*node.inputs, *[None] * (OPERANDS - len(node.inputs))]
        self.w, self.r, self.b, self.lens, self.h0, self.c0, self.p, *self.scales = given[1:]
        weights = [v for v in (self.w, self.r, self.b, *self.scales) if v is not None]
        self.packed = node.output.dtype is DType.F32 and all(v.data is not None for v in weights)
        self.kind = computed_in(node.output.dtype)
        self.e = job.vector if self.packed else Lanes.scalar(self.kind)
        self.one = Lanes.scalar(self.kind)
        self.width = self.gates * self.hidden
        rows = self.time * self.batch
        self.at_rg = 0 if isinstance(rows, Size) else rows * self.width
        self.at_h = self.at_rg + self.width
        self.at_c = self.at_h + self.batch * self.hidden
        self.at_rh = self.at_c + (self.batch * self.hidden if op.STATES == 2 else 0)
        size = self.at_rh + (self.hidden if isinstance(op, Gru) else 0)
        self.at_xg = 0
        if isinstance(rows, Size):
            self.at_xg, size = size, size + rows * self.width
        self.x = job.operand(0, "x")
        self.raw = [None if v is None or self.packed else job.reads(v, n) for v, n in ((self.w, "w"), (self.r, "r"), (self.b, "b"))]
        self.raw_scales = [
            None if v is None or self.packed else job.reads(v, f"{n}_scale") for v, n in zip(self.scales, "wr", strict=True)
        ]
        self.lens_in = None if self.lens is None else job.reads(self.lens, "lens")
        self.starts = [None if v is None else job.reads(v, n) for v, n in ((self.h0, "h0"), (self.c0, "c0"))]
        self.peep = None if self.p is None else job.reads(self.p, "p")
        self.inputs: list[_Product] = []
        self.recurrents: list[list[_Product]] = []
        for d in range(op.directions):
            self._weights(d, rows)
        self.scratch = job.scratch(size, "s", DType(self.kind))
        self.outs = [job.writes(n, name) for n, name in enumerate(("y", "y_h", "y_c")[: len(node.outputs)])]

    def _weights(self, d: int, rows: int) -> None:
        """The products of direction d. Biases of both sides are added once, in xg, except behind a reset."""
        h, op, job = self.hidden, self.op, self.job
        late = isinstance(op, Gru) and op.linear_before_reset
        parts = [(0, self.width)] if not isinstance(op, Gru) or late else [(0, 2 * h), (2 * h, 3 * h)]
        if not self.packed:
            w, r, b = self.raw
            assert w is not None and r is not None
            at, (w_scale, r_scale) = d * self.width, self.raw_scales
            self.inputs.append(_Product(self.features, self.width, w, at * self.features, None, b, 2 * at, w_scale, at))
            self.recurrents.append(
                [_Product(h, hi - lo, r, (at + lo) * h, None, b, 2 * at + self.width + lo, r_scale, at + lo) for lo, hi in parts]
            )
            return
        assert self.w is not None and self.r is not None and self.w.data is not None and self.r.data is not None
        lanes = self.e.lanes
        bias = np.zeros((2, self.width), np.float32)
        if self.b is not None and self.b.data is not None:
            bias = self.b.data[d].astype(np.float32).reshape(2, self.width)
        now = bias[0] + bias[1]
        if late:
            now[2 * h :] = bias[0][2 * h :]
        tile = choose_tile(job.target, rows, self.width, self.features, lanes)
        w = pack_panels(job, [_t(self.w.data[d])], tile, f"w{d}")
        b = pack_bias(job, now, 1, tile, f"b{d}")
        self.inputs.append(_Product(self.features, self.width, w, 0, tile, b, 0, self._scale(0, d, 0, self.width, tile, f"ws{d}")))
        products = []
        for n, (lo, hi) in enumerate(parts):
            narrow = choose_tile(job.target, 1, hi - lo, h, lanes)
            r = pack_panels(job, [_t(self.r.data[d][lo:hi])], narrow, f"r{d}_{n}")
            after: Buffer | None = None
            if late:
                held = np.zeros(self.width, np.float32)
                held[2 * h :] = bias[1][2 * h :]
                after = pack_bias(job, held, 1, narrow, f"rb{d}")
            products.append(_Product(h, hi - lo, r, 0, narrow, after, 0, self._scale(1, d, lo, hi, narrow, f"rs{d}_{n}")))
        self.recurrents.append(products)

    def _scale(self, which: int, d: int, low: int, high: int, tile: Tile, name: str) -> Buffer | None:
        """The scales of some columns, padded like these."""
        scale = self.scales[which]
        if scale is None or scale.data is None:
            return None
        return pack_bias(self.job, scale.data[d][low:high], 1, tile, name)

    # Products ---------------------------------------------------------------------------------------------------------

    def _tiled(self, product: _Product, rows: int, x: Buffer, x_base: Expr, y_base: Expr) -> None:
        """scratch[y_base..] = x[x_base..] * packed matrix: scaled, then biased, where there are scales."""
        assert product.tile is not None
        bias, after = product.bias, Epilogue((), ())
        if product.scale is not None:
            extras = (Extra(product.scale, "channel"), *(() if bias is None else (Extra(bias, "channel"),)))
            bias, after = None, Epilogue(_SCALED[: len(extras)], extras)
        micro = Fma(self.e, product.buffer, bias, self.scratch, after)
        tiles = Tiles(self.k, Problem.matrix(rows, product.depth, product.columns), product.tile, micro)
        tiles.x_base, tiles.y_base = x_base, y_base
        tiles.matrix(x, self.job.target.l2_bytes)

    def project(self, d: int) -> None:
        """xg for all rows of x, in the order of x."""
        product, k, rows = self.inputs[d], self.k, self.time * self.batch
        if product.tile is not None:
            self._tiled(product, rows, self.x, idx(0), idx(self.at_xg))
            return
        e, late = self.one, isinstance(self.op, Gru) and self.op.linear_before_reset
        with k.loop("row", 0, rows) as row, k.loop("g", 0, self.width) as g:
            total = k.var("total", e.const(0))
            with k.loop("j", 0, self.features) as j:
                product_ = e.mul(
                    e.load(self.x, row * self.features + j),
                    e.load(product.buffer, g * self.features + product.base + j),
                )
                k.assign(total, e.add(total, product_))
            self._rescale(total, product, g)
            if product.bias is not None:
                both = e.add(
                    e.load(product.bias, g + product.bias_base),
                    e.load(product.bias, g + (product.bias_base + self.width)),
                )
                first = e.load(product.bias, g + product.bias_base)
                k.assign(total, e.add(total, e.choose(g.compare("ge", 2 * self.hidden), first, both) if late else both))
            k.store(self.scratch, row * self.width + g + self.at_xg, total)

    def _rescale(self, total: Var, product: _Product, g: Expr) -> None:
        if product.scale is not None:
            self.k.assign(total, self.one.mul(total, self.one.load(product.scale, g + product.scale_base)))

    def recur(self, product: _Product, source: Expr, to: Expr, biased: bool) -> None:
        """scratch[to..] = scratch[source..] * R (+ bias)."""
        k, e, s = self.k, self.e, self.scratch
        if product.tile is None:
            with k.loop("g", 0, product.columns) as g:
                total = k.var("total", e.const(0))
                with k.loop("j", 0, product.depth) as j:
                    k.assign(
                        total,
                        e.add(
                            total,
                            e.mul(e.load(s, source + j), e.load(product.buffer, g * product.depth + product.base + j)),
                        ),
                    )
                self._rescale(total, product, g)
                if biased and product.bias is not None:
                    late = g.compare("ge", 2 * self.hidden)
                    k.assign(total, e.add(total, e.choose(late, e.load(product.bias, g + product.bias_base), e.const(0))))
                k.store(s, to + g, total)
            return
        self._tiled(product, 1, s, source, to)

    # Elementwise ------------------------------------------------------------------------------------------------------

    def along(self, body: Callable[[Expr, int], None]) -> None:
        """`body(j, lanes)` over the hidden units: whole vectors, then the rest."""
        lanes = self.e.lanes
        whole = self.hidden // lanes * lanes
        with self.k.loop("u", 0, whole, lanes) as u:
            body(u, lanes)
        if self.hidden > whole:
            with self.k.block():
                body(idx(whole), self.hidden - whole)

    def get(self, at: Expr, count: int) -> Expr:
        return self.e.load(self.scratch, at, count if self.e.vector else 0)

    def put(self, at: Expr, value: Expr, count: int) -> None:
        self.k.store(self.scratch, at, value, count if self.e.vector else 0)

    def emit(self, at: Expr, value: Expr, count: int) -> None:
        y = self.outs[0]
        self.k.store(y, at, cast(value, Type(y.dtype.value, self.e.lanes)), count if self.e.vector else 0)

    def act(self, index: int, x: Expr, clipped: bool = True) -> Expr:
        e, k, op = self.e, self.k, self.op
        if clipped and math.isfinite(op.clip):
            x = k.let("bound", e.lowest(e.const(op.clip), e.highest(e.const(-op.clip), x)))
        x = k.let("pre", x)
        return k.let("act", activation(k, e, op.activations[index], op.alphas[index], op.betas[index], x))


def _t(matrix: Array) -> Array:
    return np.ascontiguousarray(matrix.T)


def activation(k: Builder, e: Lanes, name: str, alpha: float, beta: float, x: Expr) -> Expr:
    match name:
        case "Affine":
            return e.fma(x, e.const(alpha), e.const(beta))
        case "ScaledTanh":
            return e.mul(e.call("tanh", e.mul(x, e.const(beta))), e.const(alpha))
    op = OPERATORS[name](alpha, beta)
    return ROWS[op.NAME](k, e, op, [x])


def recurrent(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, Recurrent)
    cells = _Cells(job, op)
    if cells.lens_in is not None:
        _check_lengths(cells)
        _fill_zero(cells)
    for d in range(op.directions):
        with k.block():
            k.comment(f"direction {d}")
            _direction(cells, d)
    shape = list(job.type(0).shape)
    about = (
        f"{op.NAME} {op.direction}, {shape} -> hidden {op.hidden}, {'packed weights' if cells.packed else 'weights as they come'}"
    )
    return job.done(f"{op.NAME}_{op.hidden}", about, f"{op.NAME}_packed" if cells.packed else f"{op.NAME}_general")


def _check_lengths(cells: _Cells) -> None:
    k = cells.k
    assert cells.lens_in is not None
    with k.loop("n", 0, cells.batch) as n:
        length = k.let("length", cast(Load(cells.lens_in, n, Type("i32")), Type("idx")))
        with k.when(either(length.compare("lt", 0), length.compare("gt", cells.time))):
            k.fail(INDEX_OUT_OF_RANGE)


def _fill_zero(cells: _Cells) -> None:
    y = cells.outs[0]
    kind = y.dtype.value
    with cells.k.loop("i", 0, cells.job.node.outputs[0].type.elements) as i:
        cells.k.store(y, i, Num(0.0 if kind in ("f32", "f64") else 0, Type(kind)))


def _direction(cells: _Cells, d: int) -> None:
    op, k, one = cells.op, cells.k, cells.one
    h, dirs, batch, time = cells.hidden, op.directions, cells.batch, cells.time
    cells.project(d)
    homes = [cells.at_h, cells.at_c][: op.STATES]

    def outside(n: Expr, j: Expr) -> Expr:  # a state as the model has it
        return (n * dirs + d) * h + j if op.layout_batch_first else (n + d * batch) * h + j

    for start, home in zip(cells.starts, homes, strict=False):
        with k.loop("n", 0, batch) as n, k.loop("u", 0, h) as u:
            k.store(cells.scratch, n * h + u + home, one.load(start, outside(n, u)) if start is not None else one.const(0.0))
    with k.loop("t", 0, time) as t, k.loop("n", 0, batch) as n:
        backwards = op.direction == "reverse" or d == 1
        if cells.lens_in is None:
            _one_step(cells, d, n, k.let("when", idx(time - 1) - t if backwards else t))
        else:
            length = k.let("length", cast(Load(cells.lens_in, n, Type("i32")), Type("idx")))
            with k.when(t.compare("lt", length)):
                _one_step(cells, d, n, k.let("when", length - 1 - t if backwards else t))
    for out, home in zip(cells.outs[1:], homes, strict=True):
        with k.loop("n", 0, batch) as n, k.loop("u", 0, h) as u:
            value = Load(cells.scratch, n * h + u + home, Type(cells.kind))
            k.store(out, outside(n, u), cast(value, Type(out.dtype.value)))


def _one_step(cells: _Cells, d: int, n: Expr, t: Expr) -> None:
    op, k, h = cells.op, cells.k, cells.hidden
    row = k.let("xg", (n * cells.time + t if op.layout_batch_first else t * cells.batch + n) * cells.width + cells.at_xg)
    if op.layout_batch_first:
        y = k.let("to", ((n * cells.time + t) * op.directions + d) * h)
    else:
        y = k.let("to", ((t * op.directions + d) * cells.batch + n) * h)
    hidden = k.let("h", n * h + cells.at_h)
    rg = idx(cells.at_rg)
    match op:
        case Lstm():
            cells.recur(cells.recurrents[d][0], hidden, rg, False)
            cells.along(lambda u, count: _lstm_cell(cells, op, d, u, count, row, n * h + cells.at_c, hidden, y))
        case Gru():
            _gru_step(cells, op, d, row, hidden, y)
        case _:
            cells.recur(cells.recurrents[d][0], hidden, rg, False)
            cells.along(lambda u, count: _rnn_cell(cells, d, u, count, row, hidden, y))


def _rnn_cell(cells: _Cells, d: int, u: Expr, count: int, row: Expr, hidden: Expr, y: Expr) -> None:
    e = cells.e
    new = cells.act(d, e.add(cells.get(row + u, count), cells.get(u + cells.at_rg, count)))
    cells.put(hidden + u, new, count)
    cells.emit(y + u, new, count)


def _lstm_cell(cells: _Cells, op: Lstm, d: int, u: Expr, count: int, row: Expr, cell: Expr, hidden: Expr, y: Expr) -> None:
    e, k, h, at = cells.e, cells.k, cells.hidden, d * 3

    def gate(n: int) -> Expr:
        return k.let("z", e.add(cells.get(row + u + n * h, count), cells.get(u + (cells.at_rg + n * h), count)))

    def peep(n: int) -> Expr:
        assert cells.peep is not None
        return e.load(cells.peep, u + (d * 3 + n) * h, count if e.vector else 0)

    zi, zo, zf, zc = gate(0), gate(1), gate(2), gate(3)
    c = k.let("c", cells.get(cell + u, count))
    if cells.peep is not None:
        zi, zf = k.let("z", e.fma(peep(0), c, zi)), k.let("z", e.fma(peep(2), c, zf))
    i = cells.act(at, zi)
    f = k.let("f", e.sub(e.const(1), i)) if op.input_forget else cells.act(at, zf)
    new = k.let("c", e.fma(f, c, e.mul(i, cells.act(at + 1, zc))))
    if math.isfinite(op.cell_clip):
        new = k.let("c", e.lowest(e.const(op.cell_clip), e.highest(e.const(-op.cell_clip), new)))
    if cells.peep is not None:
        zo = k.let("z", e.fma(peep(1), new, zo))
    out = k.let("out", e.mul(cells.act(at, zo), cells.act(at + 2, new, clipped=False)))
    cells.put(cell + u, new, count)
    cells.put(hidden + u, out, count)
    cells.emit(y + u, out, count)


def _gru_step(cells: _Cells, op: Gru, d: int, row: Expr, hidden: Expr, y: Expr) -> None:
    e, k, h, at = cells.e, cells.k, cells.hidden, d * 2
    rg, products = cells.at_rg, cells.recurrents[d]
    cells.recur(products[0], hidden, idx(rg), op.linear_before_reset)

    def gate(n: int, u: Expr, count: int) -> Expr:
        return e.add(cells.get(row + u + n * h, count), cells.get(u + (rg + n * h), count))

    if not op.linear_before_reset:

        def reset(u: Expr, count: int) -> None:
            cells.put(u + cells.at_rh, e.mul(cells.act(at, gate(1, u, count)), cells.get(hidden + u, count)), count)

        cells.along(reset)
        cells.recur(products[1], idx(cells.at_rh), idx(rg + 2 * h), False)

    def finish(u: Expr, count: int) -> None:
        z = cells.act(at, gate(0, u, count))
        inner = cells.get(u + (rg + 2 * h), count)
        if op.linear_before_reset:
            inner = e.mul(cells.act(at, gate(1, u, count)), inner)
        new = cells.act(at + 1, e.add(cells.get(row + u + 2 * h, count), inner))
        old = k.let("old", cells.get(hidden + u, count))
        out = k.let("out", e.fma(z, e.sub(old, new), new))  # (1 - z) new + z old
        cells.put(hidden + u, out, count)
        cells.emit(y + u, out, count)

    cells.along(finish)
