"""Attention in bands of query rows: scores of a band, softmax of its rows, weighted sum of the values.

    for each batch and head:
      keys, transposed and scaled, and values are packed into scratch
      for each band of rows that keeps its scores in half of L1:
        s = q k^T                     register tiles (`tiles.py`), q read where it is
        s = exp(s + masks - max)      row by row; 1 / sum of each row is kept
        y = (s v) / sum               register tiles, each row multiplied when it is stored

There is no matrix of all scores. Sums are in another order than in separate layers, and the factor of a row is applied after the
second product: results agree within the rounding of f32 (tests: 2e-6 of the largest value).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio.ir.sizes import Size, larger, largest, most
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.fma import Fma
from intaglio.kernels.contraction.micro import Column, Sums
from intaglio.kernels.contraction.packing import Right, pack_right
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.contraction.tile import Block, Tile, candidates, cycles, parse_tile, possible_tiles
from intaglio.kernels.contraction.tiles import Tiles
from intaglio.kernels.epilogue import Epilogue
from intaglio.kernels.estimate import micros
from intaglio.kernels.job import Job, Lowered, stem
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Operand, Type, Var, idx, imax, imin
from intaglio.kernels.reduce import across, start_value
from intaglio.ops.attention import Attention
from intaglio.targets import Target

SOFTMAX_CYCLES = 12.0  # per vector of scores
_NOTHING = Epilogue((), ())
_WAYS = 4  # vectors in which the largest score is searched at the same time: the latency of a maximum


@dataclass(frozen=True, slots=True)
class Weighted(Fma):
    """Sums whose rows are multiplied by a factor each."""

    factors: Buffer

    def finish(self, k: Builder, sums: Sums, block: Block, at: Column, places: list[Expr]) -> None:
        for r, row in enumerate(sums):
            factor = k.let(f"factor{r}", self.e.splat(Lanes.scalar().load(self.factors, at.row + r)))
            for acc in row:
                k.assign(acc, self.e.mul(acc, factor))
        Fma.finish(self, k, sums, block, at, places)


@dataclass(frozen=True, slots=True)
class _Operands:
    q: Buffer
    k: Buffer
    v: Buffer
    masks: tuple[Buffer, ...]
    y: Buffer
    keys: Buffer  # packed
    values: Buffer  # packed
    scores: Buffer
    factors: Buffer
    lanes: int
    tail: Buffer | None  # 0 in lanes of the last vector that have a key, minus infinity in the others


def attention(job: Job) -> Lowered:
    op, k, e = job.node.op, job.k, job.vector
    assert isinstance(op, Attention)
    batch, heads, rows, keys, depth, width = op.sizes
    tile = parse_tile(job.asked) or _choose(job.target, op, e.lanes)
    stored = -(-keys // e.lanes) * e.lanes
    fit = job.target.l1_bytes // 2 // (most(stored) * 4) // tile.rows
    band = min(most(rows), max(1, fit) * tile.rows)
    o = _operands(job, op, band, stored)
    head = _Head(job, op, o, tile, band, stored)
    if job.target.threads == 1 or any(isinstance(size, Size) for size in op.sizes):
        with k.loops(["b", "h"], [batch, heads]) as (b, h):
            head.write(b, h, idx(0), rows // band, rows % band != 0)
    else:
        _shares(job, op, head)
    about = (
        f"attention of {batch} x {heads} heads: {rows} rows, {keys} keys, depth {depth}, width {width}"
        f"{f', {len(op.masks)} masks' if len(op.masks) > 1 else ', a mask' if op.masks else ''}\n"
        f"{band} rows at a time; {tile.about(band, 'row', e.lanes, 'columns')}, keys and values packed into scratch"
    )
    return job.done(stem("attention", rows, keys, depth), about, f"attention(tile={tile})")


def _shares(job: Job, op: Attention, head: _Head) -> None:
    """Bands of all heads, divided among threads. A thread packs the heads that it has bands of, and no others."""
    k, (batch, heads, rows) = job.k, op.sizes[:3]
    whole, bands = rows // head.band, -(-rows // head.band)
    low, high = job.share("bands", batch * heads * bands, 1)
    with k.loop("head", low // bands, (high + (bands - 1)) // bands) as n:
        first = k.let("first", imax(0, low - n * bands))
        last = k.let("last", imin(bands, high - n * bands))
        rest = last.compare("eq", bands) if bands > whole else False
        head.write(k.let("b", n // heads), k.let("h", n % heads), first, imin(last, whole) if bands > whole else last, rest)


@dataclass(frozen=True, slots=True)
class _Head:
    """What computes a head: its keys and values are packed, then `band` rows at a time."""

    job: Job
    op: Attention
    o: _Operands
    tile: Tile
    band: int
    stored: int

    def write(self, b: Expr, h: Expr, first: Expr, last: Operand, rest: bool | Expr) -> None:
        """Bands from `first` to `last`, and the rows that are left if `rest` says so."""
        job, op, o, k, e = self.job, self.op, self.o, self.job.k, self.job.vector
        _, heads, rows, keys, depth, width = op.sizes
        q_at, k_at, v_at = (k.let(f"{name}_at", _start(w, b, h)) for name, w in (("q", op.q), ("k", op.k), ("v", op.v)))
        masks = [k.let(f"mask{n}_at", _start(w, b, h)) for n, w in enumerate(op.masks)]
        y_at = k.let("y_at", b * (rows * heads * width) + h * (width if op.joined else rows * width))
        scores = Tiles(k, Problem.matrix(self.band, depth, self.stored), self.tile, Fma(e, o.keys, None, o.scores, _NOTHING))
        pack_right(job, scores, Right(o.k, k_at, op.k[4], op.k[3], keys, op.scale))
        context = Tiles(k, Problem.matrix(self.band, keys, width), self.tile, Fma(e, o.values, None, o.y, _NOTHING))
        pack_right(job, context, Right(o.v, v_at, op.v[3], 1, width))

        def some(m: Expr, count: int) -> None:
            _band(job, op, o, self.tile, m, count, self.stored, q_at, masks, y_at)

        with k.loop("m", first * self.band, idx(last) * self.band, self.band) as m:
            some(m, self.band)
        if rest is not False:
            with k.block() if rest is True else k.when(rest):
                some(idx(rows // self.band * self.band), rows % self.band)


def _cycles(target: Target, op: Attention, tile: Tile, lanes: int) -> float:
    """Of both products of a head."""
    _, _, rows, keys, depth, width = op.sizes
    return cycles(target, tile, rows, keys, depth, lanes) + cycles(target, tile, rows, width, keys, lanes)


def _choose(target: Target, op: Attention, lanes: int) -> Tile:
    """One tile for both products."""
    return min(candidates(target), key=lambda t: (round(_cycles(target, op, t, lanes), 3), -t.rows))


def attention_ways(job: Job) -> list[str]:
    op, target, lanes = job.node.op, job.target, job.vector.lanes
    assert isinstance(op, Attention)
    _, _, rows, keys, _, width = op.sizes
    tiles = possible_tiles(target, rows, larger(keys, width), lanes, _choose(target, op, lanes))
    return [f"attention(tile={tile})" for tile in tiles]


def attention_estimate(job: Job) -> float:
    """Both products, and the exponentials between them."""
    op, target, lanes = job.node.op, job.target, job.vector.lanes
    assert isinstance(op, Attention)
    batch, heads, rows, keys, _, _ = largest(op.sizes)
    steps = _cycles(target, op, parse_tile(job.asked) or _choose(target, op, lanes), lanes) + SOFTMAX_CYCLES * rows * keys / lanes
    return micros(target, lanes, batch * heads * steps, 0)


def _operands(job: Job, op: Attention, band: int, stored: int) -> _Operands:
    _, _, _, keys, depth, width = op.sizes
    lanes = job.isa.lanes
    q, k, v = (job.operand(n, name) for n, name in enumerate("qkv"))
    masks = tuple(job.operand(3 + n, f"mask{n}") for n in range(len(op.masks)))
    tail = None
    if keys % lanes != 0 and not isinstance(keys, Size):
        there = np.arange(lanes) < keys % lanes
        tail = job.packed(np.where(there, 0.0, -np.inf).astype(np.float32), "tail")
    packed = -(-width // lanes) * lanes * keys
    y = job.writes()
    sizes = {"keys": stored * depth, "values": packed, "scores": band * stored, "factors": band}
    scratch = [job.scratch(size, name, own=True) for name, size in sizes.items()]
    return _Operands(q, k, v, masks, y, scratch[0], scratch[1], scratch[2], scratch[3], lanes, tail)


def _start(walk: tuple[int, ...], b: Expr, h: Expr) -> Expr:
    return b * walk[1] + h * walk[2] + walk[0]


def _band(
    job: Job, op: Attention, o: _Operands, tile: Tile, m: Expr, rows: int, stored: int, q_at: Expr, masks: list[Expr], y_at: Expr
) -> None:  # fmt: skip
    """The rows from `m` on."""
    k, e = job.k, job.vector
    _, heads, _, keys, depth, width = op.sizes
    scores = Tiles(k, Problem.matrix(rows, depth, stored), tile, Fma(e, o.keys, None, o.scores, _NOTHING))
    scores.x_base, scores.x_pitch = k.let("from", q_at + m * op.q[3]), op.q[3]
    with k.block():
        scores.matrix(o.q, job.target.l2_bytes)
    with k.loop("r", 0, rows) as r:
        places = [k.let(f"mask{n}_row", at + (m + r) * walk[3]) for n, (at, walk) in enumerate(zip(masks, op.masks, strict=True))]
        _softmax(job, op, o, k.let("row", r * stored), r, places)
    context = Tiles(k, Problem.matrix(rows, keys, width), tile, Weighted(e, o.values, None, o.y, _NOTHING, o.factors))
    pitch = heads * width if op.joined else width
    context.x_pitch, context.y_base, context.y_pitch = stored, k.let("to", y_at + m * pitch), pitch
    with k.block():
        context.matrix(o.scores, job.target.l2_bytes)


def _softmax(job: Job, op: Attention, o: _Operands, row: Expr, r: Expr, masks: list[Expr]) -> None:
    """exp(score - largest) of one row in place, 1 / their sum beside it."""
    k, e, one, keys = job.k, job.vector, Lanes.scalar(), op.sizes[3]
    whole = keys // e.lanes * e.lanes
    if isinstance(keys, Size):
        _finish_row(k, o, row, masks, op, whole)
    held = [
        k.let(f"held{n}", e.splat(one.load(mask, at))) if walk[4] == 0 else None
        for n, (mask, at, walk) in enumerate(zip(o.masks, masks, op.masks, strict=True))
    ]

    def masked(j: Expr, count: int) -> Expr:
        """The scores of `count` keys from `j` on with what is added to them, written back where that is anything."""
        value = k.let("s", e.load(o.scores, row + j))
        for mask, at, every in zip(o.masks, masks, held, strict=True):
            value = k.let("s", e.add(value, every if every is not None else e.load(mask, at + j, count if e.vector else 0)))
        if count < e.lanes and o.tail is not None:
            value = k.let("s", e.add(value, e.load(o.tail, 0)))
        if masks or count < e.lanes:
            k.store(o.scores, row + j, value)
        return value

    ways = min(_WAYS, max(1, most(whole) // e.lanes))
    tops = [k.var(f"top{n}", start_value(e, "max"), e.type) for n in range(ways)]
    unrolled = whole // (ways * e.lanes) * (ways * e.lanes)
    with k.loop("j", 0, unrolled, ways * e.lanes) as j:
        for n, top in enumerate(tops):
            k.assign(top, e.highest(top, masked(j + n * e.lanes, e.lanes)))
    with k.loop("j", unrolled, whole, e.lanes) as j:
        k.assign(tops[0], e.highest(tops[0], masked(j, e.lanes)))
    if isinstance(keys, Size):  # the rest is complete
        with k.loop("j", whole, -(-keys // e.lanes) * e.lanes, e.lanes) as j:
            k.assign(tops[0], e.highest(tops[0], e.load(o.scores, row + j)))
    elif keys > whole:
        k.assign(tops[0], e.highest(tops[0], masked(idx(whole), keys - whole)))
    best = _joined(k, e, "max", tops)
    if op.hidden_zero:  # every weight is exp(-inf - 0) then
        best = k.let("best", one.choose(one.compare("eq", best, one.const(-math.inf)), one.const(0.0), best))
    largest = k.let("largest", e.splat(best))
    total = k.var("total", e.const(0.0))
    with k.loop("j", 0, -(-keys // e.lanes) * e.lanes, e.lanes) as j:
        value = k.let("weight", e.call("exp", e.sub(e.load(o.scores, row + j), largest)))
        k.store(o.scores, row + j, value)
        k.assign(total, e.add(total, value))
    whole_sum = _joined(k, e, "sum", [total])
    factor = one.div(one.const(1.0), whole_sum)
    if op.hidden_zero:
        factor = one.choose(one.compare("eq", whole_sum, one.const(0.0)), one.const(0.0), k.let("factor", factor))
    k.store(o.factors, r, factor)


def _finish_row(k: Builder, o: _Operands, row: Expr, masks: list[Expr], op: Attention, whole: int) -> None:
    """Where the caller gives the number of keys: masks are added to those behind the whole vectors one by one, and lanes without a
    key are minus infinity."""
    one, keys = Lanes.scalar(), op.sizes[3]
    with k.loop("j", whole, keys) as j:
        value: Expr = one.load(o.scores, row + j)
        for mask, at, walk in zip(o.masks, masks, op.masks, strict=True):
            value = one.add(value, one.load(mask, at + j * walk[4]))
        k.store(o.scores, row + j, value)
    with k.loop("j", keys, -(-keys // o.lanes) * o.lanes) as j:
        k.store(o.scores, row + j, one.const(-math.inf))


def _joined(k: Builder, e: Lanes, kind: str, parts: list[Var]) -> Expr:
    """One number out of several vectors."""
    value: Expr = parts[0]
    for part in parts[1:]:
        value = k.let("joined", e.highest(value, part) if kind == "max" else e.add(value, part))
    return k.let("whole", across(k, e, kind, value), Type("f32")) if e.vector else value
