"""Attention in bands of query rows: scores of a band, softmax of its rows, weighted sum of the values.

    for each batch and head:
      keys, transposed and scaled, and values are packed into scratch
      for each band of rows that keeps its scores in half of L1:
        s = q k^T                     register tiles (`tiles.py`), q read where it is
        s = exp(s + masks - max)      row by row; 1 / sum of each row is kept
        y = (s v) / sum               register tiles, each row multiplied when it is stored

Where the caller gives the number of keys, few of them are not packed (`few_keys.py`).

There is no matrix of all scores. Sums are in another order than in separate layers, and the factor of a row is applied after the
second product: results agree within the rounding of f32 (tests: 2e-6 of the largest value).
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from intaglio.ir.sizes import Size, larger, largest, most
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.few_keys import Few, Starts, factor_of, few_keys, largest_of, mask_rows, most_few_keys
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
from intaglio.kernels.loop import Buffer, Expr, Operand, idx, imax, imin
from intaglio.kernels.reduce import start_value
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
    tail: Buffer | None  # 0 in lanes of the last vector that have a key, minus infinity in the others; a vector of each for a range


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
        few = most_few_keys(op, e.lanes)
        numbers = job.packed(np.arange(e.lanes, dtype=np.float32), "lanes") if few else None
        with k.loops(["b", "h"], [batch, heads]) as (b, h):
            starts = _starts(k, op, b, h)
            if numbers is not None:
                with k.when(idx(keys).compare("le", few)) if few < most(keys) else k.block():
                    few_keys(job, op, Few(o.q, o.k, o.v, o.masks, o.y, o.scores, numbers), starts)
            if few < most(keys):
                with k.otherwise() if few else nullcontext():
                    head.write(starts, idx(0), rows // band, rows % band != 0)
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
        starts = _starts(k, op, k.let("b", n // heads), k.let("h", n % heads))
        head.write(starts, first, imin(last, whole) if bands > whole else last, rest)


@dataclass(frozen=True, slots=True)
class _Head:
    """What computes a head: its keys and values are packed, then `band` rows at a time."""

    job: Job
    op: Attention
    o: _Operands
    tile: Tile
    band: int
    stored: int

    def write(self, starts: Starts, first: Expr, last: Operand, rest: bool | Expr) -> None:
        """Bands from `first` to `last`, and the rows that are left if `rest` says so."""
        job, op, o, k, e = self.job, self.op, self.o, self.job.k, self.job.vector
        rows, keys, depth, width = op.sizes[2:]
        scores = Tiles(k, Problem.matrix(self.band, depth, self.stored), self.tile, Fma(e, o.keys, None, o.scores, _NOTHING))
        pack_right(job, scores, Right(o.k, starts.k, op.k[4], op.k[3], keys, op.scale))
        context = Tiles(k, Problem.matrix(self.band, keys, width), self.tile, Fma(e, o.values, None, o.y, _NOTHING))
        pack_right(job, context, Right(o.v, starts.v, op.v[3], 1, width))

        def some(m: Expr, count: int) -> None:
            _band(job, op, o, self.tile, m, count, self.stored, starts)

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
    elif keys % lanes != 0:  # the vector from lane `lanes - keys % lanes` on
        tail = job.packed(np.repeat(np.array([0.0, -np.inf], np.float32), lanes), "tail")
    packed = -(-width // lanes) * lanes * keys
    y = job.writes()
    sizes = {"keys": stored * depth, "values": packed, "scores": band * stored, "factors": band}
    scratch = [job.scratch(size, name, own=True) for name, size in sizes.items()]
    return _Operands(q, k, v, masks, y, scratch[0], scratch[1], scratch[2], scratch[3], lanes, tail)


def _starts(k: Builder, op: Attention, b: Expr, h: Expr) -> Starts:
    """Of head `h` in batch `b`."""

    def start(name: str, walk: tuple[int, ...]) -> Expr:
        return k.let(f"{name}_at", b * walk[1] + h * walk[2] + walk[0])

    _, heads, rows, _, _, width = op.sizes
    q, keys, values = (start(name, walk) for name, walk in (("q", op.q), ("k", op.k), ("v", op.v)))
    masks = tuple(start(f"mask{n}", walk) for n, walk in enumerate(op.masks))
    y = k.let("y_at", b * (rows * heads * width) + h * (width if op.joined else rows * width))
    return Starts(q, keys, values, masks, y)


def _band(job: Job, op: Attention, o: _Operands, tile: Tile, m: Expr, rows: int, stored: int, at: Starts) -> None:
    """The rows from `m` on."""
    k, e = job.k, job.vector
    _, heads, _, keys, depth, width = op.sizes
    scores = Tiles(k, Problem.matrix(rows, depth, stored), tile, Fma(e, o.keys, None, o.scores, _NOTHING))
    scores.x_base, scores.x_pitch = k.let("from", at.q + m * op.q[3]), op.q[3]
    with k.block():
        scores.matrix(o.q, job.target.l2_bytes)
    with k.loop("r", 0, rows) as r:
        places = mask_rows(k, op, at, m + r)
        _softmax(job, op, o, k.let("row", r * stored), r, places)
    context = Tiles(k, Problem.matrix(rows, keys, width), tile, Weighted(e, o.values, None, o.y, _NOTHING, o.factors))
    pitch = heads * width if op.joined else width
    context.x_pitch, context.y_base, context.y_pitch = stored, k.let("to", at.y + m * pitch), pitch
    with k.block():
        context.matrix(o.scores, job.target.l2_bytes)


def _softmax(job: Job, op: Attention, o: _Operands, row: Expr, r: Expr, masks: list[Expr]) -> None:
    """exp(score - largest) of one row in place, 1 / their sum beside it."""
    k, e, one, keys = job.k, job.vector, Lanes.scalar(), op.sizes[3]
    whole = keys // e.lanes * e.lanes
    if isinstance(keys, Size):
        _add_last_masks(k, o, row, masks, op, whole)
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

    def last(j: Expr) -> Expr:
        """The scores behind the whole vectors, where the caller gives the number of keys: masks with a number for each
        key are added by now."""
        value = k.let("s", e.load(o.scores, row + j))
        for every in held:
            value = value if every is None else k.let("s", e.add(value, every))
        if o.tail is not None:
            value = k.let("s", e.add(value, e.load(o.tail, e.lanes - keys % e.lanes)))
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
    if isinstance(keys, Size):
        with k.loop("j", whole, -(-keys // e.lanes) * e.lanes, e.lanes) as j:
            k.assign(tops[0], e.highest(tops[0], last(j)))
    elif keys > whole:
        k.assign(tops[0], e.highest(tops[0], masked(idx(whole), keys - whole)))
    largest = k.let("largest", e.splat(largest_of(k, e, op, tops)))
    total = k.var("total", e.const(0.0))
    with k.loop("j", 0, -(-keys // e.lanes) * e.lanes, e.lanes) as j:
        value = k.let("weight", e.call("exp", e.sub(e.load(o.scores, row + j), largest)))
        k.store(o.scores, row + j, value)
        k.assign(total, e.add(total, value))
    k.store(o.factors, r, factor_of(k, e, op, total))


def _add_last_masks(k: Builder, o: _Operands, row: Expr, masks: list[Expr], op: Attention, whole: int) -> None:
    """Where the caller gives the number of keys: masks that have a number for each key are added behind the whole vectors one by
    one. A vector would reach over the end of the mask."""
    one, keys = Lanes.scalar(), op.sizes[3]
    moving = [(mask, at) for mask, at, walk in zip(o.masks, masks, op.masks, strict=True) if walk[4] != 0]
    if not moving:
        return
    with k.loop("j", whole, keys) as j:
        value: Expr = one.load(o.scores, row + j)
        for mask, at in moving:
            value = one.add(value, one.load(mask, at + j))
        k.store(o.scores, row + j, value)
