"""Attention to few keys, whose number the caller gives: nothing is packed.

    for each row:  s[j] = sum(q * k[j])          lanes along the depth, then a sum over them
                   s = exp(s + masks - max)      one vector
                   y = sum(s[j] * v[j]) / sum    lanes along the width

Keys are not transposed for one or two uses, and all scores of a row are in one vector. Does not apply to keys whose numbers are not
neighbours, and to sizes that are known: static layers of few rows stay separate (`fuse_attention`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from intaglio.ir.sizes import Size, least, values_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.job import Job
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Type, idx
from intaglio.kernels.reduce import across
from intaglio.ops.attention import Attention

MOST_DEPTH = 8  # vectors of a row of q that stay in registers
SCORE, PACK, START = 15.0, 3.5, 400.0  # instructions: a score beside its products, a packed number of a key, tiles of a head
MOST_SUMS = 4  # vectors of a result at a time


@dataclass(frozen=True, slots=True)
class Starts:
    """Where a head starts."""

    q: Expr
    k: Expr
    v: Expr
    masks: tuple[Expr, ...]
    y: Expr


@dataclass(frozen=True, slots=True)
class Few:
    q: Buffer
    k: Buffer
    v: Buffer
    masks: tuple[Buffer, ...]
    y: Buffer
    weights: Buffer  # a vector
    lanes: Buffer  # 0, 1, 2 ...


def most_few_keys(op: Attention, lanes: int) -> int:
    """The number of keys up to which this costs less than packing them, for all rows that there can be. 0: for none."""
    _, _, rows, keys, depth, width = op.sizes
    if not isinstance(keys, Size) or isinstance(depth, Size) or isinstance(width, Size) or lanes == 1 or op.k[4] != 1:
        return 0
    deep, wide = -(-depth // lanes), -(-width // lanes)
    if deep > MOST_DEPTH:
        return 0
    r, n = np.broadcast_arrays(np.asarray(values_of(rows)), np.asarray(values_of(keys)))
    direct = r * n * (2 * deep + 2 * wide + SCORE)
    packed = n * depth * PACK + r * -(-n // lanes) * depth * 2 + r * n * 2 * wide + START
    dear = n[(direct > packed) | (n > lanes)]
    few = n[n < dear.min()] if dear.size else n
    return int(few.max()) if few.size else 0


def few_keys(job: Job, op: Attention, o: Few, at: Starts) -> None:
    """One head."""
    k, e, keys = job.k, job.vector, op.sizes[3]
    pitch = op.sizes[1] * op.sizes[5] if op.joined else op.sizes[5]

    def rows(body: Callable[[_Row], None]) -> None:
        with k.loop("r", 0, op.sizes[2]) as r:
            start, scale = k.let("from", at.q + r * op.q[3]), e.const(op.scale)
            parts = parts_of(0, op.sizes[4], e.lanes)
            q = [k.let(f"q{n}", e.mul(e.load(o.q, start + first, count), scale)) for n, (first, count) in enumerate(parts)]
            body(_Row(k, e, op, o, at, q, mask_rows(k, op, at, r), k.let("to", at.y + r * pitch)))

    if least(keys) > 1:
        rows(_Row.write)
        return
    with k.when(idx(keys).compare("eq", 1)):
        rows(_Row.write_one)
    with k.otherwise():
        rows(_Row.write)


def parts_of(first: int, last: int, lanes: int) -> list[tuple[int, int]]:
    """Vectors of numbers side by side: the first number of each, and how many there are."""
    return [(n, min(lanes, last - n)) for n in range(first, last, lanes)]


@dataclass(frozen=True, slots=True)
class _Row:
    k: Builder
    e: Lanes
    op: Attention
    o: Few
    at: Starts
    q: list[Expr]  # scaled
    masks: list[Expr]
    to: Expr

    def write(self) -> None:
        k, e, op, width = self.k, self.e, self.op, self.op.sizes[5]
        scores = self._scores()
        largest = k.let("largest", e.splat(largest_of(k, e, op, [scores])))
        weights = k.let("weight", e.call("exp", e.sub(scores, largest)))
        k.store(self.o.weights, 0, weights)
        factor = k.let("scale", e.splat(factor_of(k, e, op, weights)))
        for first in range(0, width, MOST_SUMS * e.lanes):
            with k.block():
                self._weighted(factor, parts_of(first, min(width, first + MOST_SUMS * e.lanes), e.lanes))

    def write_one(self) -> None:
        """A single key has the weight exp(s - s): 1, or not a number where the score is none or infinite."""
        k, e, one = self.k, self.e, Lanes.scalar()
        score = k.let("s", self._score(idx(0)), Type("f32"))
        weight = k.let("weight", one.add(one.sub(score, score), one.const(1.0)), Type("f32"))
        if self.op.hidden_zero:
            weight = one.choose(one.compare("eq", score, one.const(-math.inf)), one.const(0.0), weight)
        each = k.let("a", e.splat(weight))
        for column, count in parts_of(0, self.op.sizes[5], e.lanes):
            k.store(self.o.y, self.to + column, e.mul(each, e.load(self.o.v, self.at.v + column, count)), count)

    def _score(self, j: Expr) -> Expr:
        """Of one key."""
        k, e, op, one = self.k, self.e, self.op, Lanes.scalar()
        key = k.let("key", self.at.k + j * op.k[3])
        products: Expr = e.const(0.0)
        for n, (first, count) in enumerate(parts_of(0, op.sizes[4], e.lanes)):
            value = e.load(self.o.k, key + first, count)
            products = k.let("products", e.mul(self.q[n], value) if n == 0 else e.fma(self.q[n], value, products))
        score = across(k, e, "sum", products)
        for mask, place, walk in zip(self.o.masks, self.masks, op.masks, strict=True):
            score = one.add(score, one.load(mask, place + j * walk[4]))
        return score

    def _scores(self) -> Expr:
        """Of all keys, minus infinity in lanes without one. Each is put into its lane: a vector that is loaded from where scores
        were just stored one by one has to wait for them."""
        k, e = self.k, self.e
        numbers = k.let("lane", e.load(self.o.lanes, 0))
        scores, which = k.var("s", e.const(-math.inf)), k.var("which", e.const(0.0))
        with k.loop("j", 0, self.op.sizes[3]) as j:
            k.assign(scores, e.choose(e.compare("eq", numbers, which), e.splat(self._score(j)), scores))
            k.assign(which, e.add(which, e.const(1.0)))
        return scores

    def _weighted(self, factor: Expr, parts: list[tuple[int, int]]) -> None:
        """Some columns of the result."""
        k, e, o, op = self.k, self.e, self.o, self.op
        sums = [k.var(f"acc{n}", e.const(0.0)) for n in range(len(parts))]
        with k.loop("j", 0, op.sizes[3]) as j:
            weight = k.let("a", e.splat(Lanes.scalar().load(o.weights, j)))
            value = k.let("value", self.at.v + j * op.v[3])
            for acc, (column, count) in zip(sums, parts, strict=True):
                k.assign(acc, e.fma(weight, e.load(o.v, value + column, count), acc))
        for acc, (column, count) in zip(sums, parts, strict=True):
            k.store(o.y, self.to + column, e.mul(acc, factor), count)


def mask_rows(k: Builder, op: Attention, at: Starts, row: Expr) -> list[Expr]:
    """Where this row of each mask starts."""
    return [k.let(f"mask{n}_row", at.masks[n] + row * walk[3]) for n, walk in enumerate(op.masks)]


def largest_of(k: Builder, e: Lanes, op: Attention, tops: Sequence[Expr]) -> Expr:
    """What is subtracted from the scores of a row: the largest of them."""
    one, best = Lanes.scalar(), _joined(k, e, "max", tops)
    if op.hidden_zero:  # every weight is exp(-inf - 0) then
        best = k.let("best", one.choose(one.compare("eq", best, one.const(-math.inf)), one.const(0.0), best))
    return best


def factor_of(k: Builder, e: Lanes, op: Attention, total: Expr) -> Expr:
    """1 / sum of the weights of a row."""
    one, whole = Lanes.scalar(), _joined(k, e, "sum", [total])
    factor = one.div(one.const(1.0), whole)
    if op.hidden_zero:
        factor = one.choose(one.compare("eq", whole, one.const(0.0)), one.const(0.0), k.let("factor", factor))
    return factor


def _joined(k: Builder, e: Lanes, kind: str, parts: Sequence[Expr]) -> Expr:
    """One number out of several vectors."""
    value: Expr = parts[0]
    for part in parts[1:]:
        value = k.let("joined", e.highest(value, part) if kind == "max" else e.add(value, part))
    return k.let("whole", across(k, e, kind, value), Type("f32")) if e.vector else value
