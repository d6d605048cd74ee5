"""Convolutions and products of bytes where most sums of two products fit 16 bits: half as many instructions for these.

    for s in 0..safe:       off = list[s];  a = repeat(x[row0 + off], 4 bytes);   acc0_0 = dot4_pairs(acc0_0, a, w0);  ...
    for s in safe..all:     off = list[s];  a = repeat(x16[row0 + off], 2 of 16); acc0_0 = dot2(acc0_0, a, w0);  ...

`vdot4_pairs` (u8 times i8, two products added in 16 bits) is exact where two weights of the same sign are at most 128 together.
That is known when the model is compiled. Of four neighbouring weights there are three ways to make pairs; every block of channels
takes, step by step, the first way that is exact for all of its channels. For that, x waits in three orders:

    0 1 2 3 | ...      as it is             pairs 0 1, 2 3
    0 2 1 3 | ...                           pairs 0 2, 1 3
    0 3 1 2 | ...                           pairs 0 3, 1 2

and the list of a block says where each of its steps starts, the order included. Steps for which no way is exact come last, by
products of 16 bits. Sums are the same numbers as those of `dots.py`, added in another order: bit for bit the same.

Does not apply to groups, to numbers of channels that are no multiple of four, to weights of more than 8 bits, where all pairs fit
(`dots.py` needs no lists then), or where an estimate says that too few do.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import geometric_mean

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.sizes import Size, most
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.dots import Dots, Facts, ToBytes, arranged, cycles, dots_of, dots_us
from intaglio.kernels.contraction.gather import Line, Span
from intaglio.kernels.contraction.micro import Column, Sums
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.scaling import Bytes, factor_of
from intaglio.kernels.contraction.stage import SLACK, Stage, offset_of_type
from intaglio.kernels.contraction.tile import Block, Tile, blocks_of, parse_tile
from intaglio.kernels.contraction.tiles import Tiles
from intaglio.kernels.estimate import micros
from intaglio.kernels.isa import Dot
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import IDX, Buffer, Expr, Load, Op, Type, cast, idx
from intaglio.kernels.whole_numbers import I32
from intaglio.ops.quantised import QConv

ORDERS = ((0, 1, 2, 3), (0, 2, 1, 3), (0, 3, 1, 2))
SWAPS = ("vswap_middle", "vswap_last")  # the second and the third order, from the first
VECTORS = (1, 2, 3, 4)  # of a tile
MOST_PAIR = 128  # times 255 fits 16 bits
START_CYCLES = 25  # of a tile: its two loops end where no processor expects it
KEPT_CYCLES = 10.8  # of a step of two where a sum is in memory, not in a register: it waits for what the step before stored
STAGE_CYCLES = 0.25  # per number: three orders and 16 bits are written
GAIN = 0.83  # of the estimate without lists, which is a fifth above what is measured: what one with them has to be below


def unfit(weights: Array) -> Array:
    """Weights of 8 bits [columns, steps, 4]: for each order, column and step, whether two products of a pair may not fit 16 bits.
    Weights of different signs always do."""
    small = weights.astype(np.int16)
    found = []
    for order in ORDERS:
        sums = [small[..., order[n]] + small[..., order[n + 1]] for n in (0, 2)]
        found.append((np.abs(sums[0]) > MOST_PAIR) | (np.abs(sums[1]) > MOST_PAIR))
    return np.stack(found)


@dataclass(frozen=True, slots=True)
class Possible:
    """A problem with its weights [columns, steps, 4] in the order of windows, and what `unfit` says of them."""

    facts: Facts
    pairs: Dot
    shorts: Dot
    weights: Array
    unfit: Array
    counted: dict[int, list[int]] = field(default_factory=dict)  # what `apart` found

    def most(self) -> Possible:
        """For the largest size."""
        return replace(self, facts=self.facts.most())

    def some(self) -> list[Possible]:
        """For some of the sizes that a caller may give; where it gives none, this one."""
        return [replace(self, facts=facts) for facts in self.facts.some()]

    def apart(self, vectors: int, lanes: int) -> list[int]:
        """For each block of so many vectors, how many of its steps have no order."""
        if vectors not in self.counted:
            firsts = [block.first for block in blocks_of(len(self.weights), vectors, lanes)]
            self.counted[vectors] = np.logical_or.reduceat(self.unfit, firsts, axis=1).all(axis=0).sum(axis=1).tolist()
        return self.counted[vectors]

    def orders(self, block: Block) -> Array:
        """For each step of a block, the first order that is exact; -1 where none is."""
        bad = self.unfit[:, block.first : block.first + block.width].any(axis=1)
        return np.where(bad.all(axis=0), -1, np.argmin(bad, axis=0))

    def cycles(self, tile: Tile, lanes: int, registers: int) -> float:
        """Fitted to 19 layers of resnet50 on Zen 3, within 10 %, per step of four: 6x2 12.0, 5x2 10.2, 4x2 8.2, 3x3 9.3, 3x2 6.4,
        8x1 10.4; per step of two: 6x2 10.8, 5x2 5.9, 4x2 4.7, 3x3 4.8, 3x2 3.6, 8x1 4.8. Sums, weights, a broadcast, a product and
        the ones that add pairs are a register more than 6x2 has: gcc keeps a sum in memory then, in both loops."""
        p, time = self.facts.problem, 0.0
        full, rest = divmod(p.out_width, tile.rows)
        for block, apart in zip(blocks_of(p.out_channels, tile.vectors, lanes), self.apart(tile.vectors, lanes), strict=True):
            whole = self.weights.shape[1] - apart
            alone, scaling = (0.27, 6.0) if block.vectors == 1 else (0.0, 3.0)
            for count, rows in ((full, tile.rows), (1 if rest else 0, rest)):
                kept = (rows + 1) * block.vectors + 3 > registers
                two = max(KEPT_CYCLES if kept else 0.0, 0.8 * cycles(rows, block.vectors))
                step = whole * (rows * (1.01 * block.vectors + alone) + 0.1) + 2 * apart * two
                time += count * (step + scaling * rows * block.vectors + 1.5 * block.vectors + START_CYCLES)
        return time * p.out_height * p.batch


@fact
def possible(job: Job) -> Possible | str:
    """What a kernel needs, or why there is none."""
    known = dots_of(job)
    if isinstance(known, str):
        return known
    dots = job.isa.integers.dots
    pairs, shorts = next((d for d in dots if d.pairs), None), next((d for d in dots if d.narrow_weights and d.group == 2), None)
    if pairs is None or shorts is None or known.dot is not shorts:
        return "products of 16 bits are not needed"
    p = known.problem
    if p.group > 1 or p.channels % 4:
        return "channels do not come in whole steps of four"
    runs = known.numbers.runs(1, p.joined)[0]
    if int(runs.min()) < -128 or int(runs.max()) > 127:
        return "the weights do not fit 8 bits"
    weights = runs.reshape(len(runs), -1, 4)
    return Possible(known, pairs, shorts, weights, unfit(weights))


def _possible(job: Job) -> Possible:
    found = possible(job)
    assert not isinstance(found, str)
    return found


def _name(job: Job) -> str:
    return "qconv_listed" if isinstance(job.node.op, QConv) else "qmatmul_listed"


def _ranked(job: Job, known: Possible) -> list[Tile]:
    """Best first, for one size."""
    lanes, registers = job.isa.lanes, job.target.registers
    p = known.facts.problem
    wide = -(-p.out_channels // lanes)
    shapes = [Tile(r, v) for v in VECTORS if v <= wide for r in range(1, min(8, p.out_width) + 1)]
    fit = [t for t in shapes if t.rows * t.vectors + t.vectors + 2 <= registers]
    return sorted(fit, key=lambda t: (round(known.cycles(t, lanes, registers), 2), -t.rows, t.vectors))


@fact
def _best(job: Job) -> Tile:
    """Of the largest size, so that a range needs its memory."""
    return _ranked(job, _possible(job).most())[0]


def listed_ways(job: Job) -> list[str]:
    return [f"{_name(job)}(tile={tile})" for tile in _ranked(job, _possible(job).most())]


def listed_estimate(job: Job) -> float:
    return listed_us(job, _possible(job).most(), parse_tile(job.asked) or _best(job))


def listed_us(job: Job, known: Possible, tile: Tile | None = None) -> float:
    """Of one size, with the best tile for it if none is given."""
    p, lanes = known.facts.problem, job.isa.lanes
    staged = p.batch * p.height * p.width * p.channels * STAGE_CYCLES
    steps = known.cycles(tile or _ranked(job, known)[0], lanes, job.target.registers)
    return micros(job.target, lanes, steps + staged, known.weights.size)


def listed_applies(job: Job) -> str | None:
    """Where it is asked for by name, or where an estimate says that it is faster."""
    found = possible(job)
    if isinstance(found, str):
        return found
    if job.asked.partition("(")[0] == _name(job):
        return None
    parts = geometric_mean(listed_us(job, one) / dots_us(job, one.facts) for one in found.some())
    return None if parts < GAIN else "an estimate says that it is not faster"


# Operands ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Orders:
    """Rows as bytes in three orders, `apart` numbers from one to the next, and as 16 bits beside them. All have one geometry."""

    bytes: Stage
    shorts: Stage
    apart: int

    @property
    def buffer(self) -> Buffer:
        return self.bytes.buffer

    @property
    def pitch(self) -> int:
        return self.bytes.pitch

    @property
    def left(self) -> int:
        return 0

    @property
    def stripe(self) -> int:
        return self.bytes.stripe

    @property
    def image(self) -> Problem:
        return self.bytes.image

    def prepare(self, k: Builder) -> None:
        self.bytes.prepare(k)
        self.shorts.prepare(k)

    def load(self, k: Builder, n: Expr, first: Expr, x_base: Expr) -> Expr:
        with k.block():
            self.shorts.load(k, n, first, x_base)
        base = self.bytes.load(k, n, first, x_base)
        rows, numbers = self.bytes.rows(), self.bytes.columns * self.bytes.problem.channels
        if numbers == self.pitch:
            self._swap(k, idx(0), rows * self.pitch)
        else:
            with k.loop("r", 0, self.bytes.needed(first)) as r:
                self._swap(k, k.let("at", r * self.pitch), numbers)
        return base

    def _swap(self, k: Builder, at: Expr, count: int) -> None:
        """The other orders, of so many numbers and those behind them that fill a vector."""
        wide = 4 * self.bytes.isa.lanes
        to = Type("u8", wide)
        with k.loop("i", 0, count, wide) as i:
            row = k.let("four", Load(self.buffer, at + i, to))
            for n, swap in enumerate(SWAPS, 1):
                k.store(self.buffer, at + i + n * self.apart, Op(swap, (row,), to))

    def line(self, k: Builder, n: Expr, oh: Expr, first: Expr, base: Expr, g: Expr) -> Line:
        return self.bytes.line(k, n, oh, first, base, g)

    def spans(self, k: Builder, rows: int, write: Span) -> None:
        self.bytes.spans(k, rows, write)

    def taps_inside(self, column: int, rows: int) -> list[list[int]] | None:
        return None


def _even(count: int, most: int, threads: int) -> int:
    """How many of `count` rows at a time, at most so many: as few as possible for the thread that has most, then all alike."""

    def longest(size: int) -> int:
        parts = -(-count // size)
        return max(min(count, (n + 1) * parts // threads * size) - n * parts // threads * size for n in range(threads))

    return min(range(1, most + 1), key=lambda size: (longest(size), -(-count // size), size))


def _orders(job: Job, p: Problem, x: Buffer, zeros: tuple[int, int]) -> Orders:
    """Stripes that fit a quarter of the L2 cache: a tile reads few numbers of x for each of its weights."""
    one = Stage(job.isa, p, x, x, False, 1, zeros[0])
    if p.kernel[0] > 1 and isinstance(one.pitch, Size):  # lists have offsets from row to row
        one = replace(one, apart=most(one.pitch))
    height, pitch = most(p.out_height), most(one.pitch)
    rows = max(1, job.target.l2_bytes // 4 // (5 * pitch))
    stripe = max(1, min(height, (rows - one.rows()) // p.strides[0] + 1))
    stripe = _even(height, stripe, 1 if p.moves else job.target.threads)
    apart = -(-(replace(one, stripe=stripe).rows() * pitch + SLACK) // SLACK) * SLACK
    both = [
        replace(one, buffer=job.scratch(size, name, dtype, own=True), stripe=stripe, zero=zero)
        for size, name, dtype, zero in ((3 * apart, "bytes", DType.U8, zeros[0]), (apart, "shorts", DType.I16, zeros[1]))
    ]
    return Orders(both[0], both[1], apart)


# Sums -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lists:
    """The steps of every block: `counts` has how many are of four numbers, and how many there are; `offsets` where each starts,
    `most` per block."""

    pairs: Dots
    shorts: Dots
    x16: Buffer
    counts: Buffer
    offsets: Buffer
    most: int
    wide: int  # columns of a whole block

    def reduce(self, k: Builder, sums: Sums, first: Expr, across: int, at: Expr, where: Column, x: Buffer) -> None:
        """Add all steps of a tile whose windows start at `first`, `across` numbers from one row to the next."""
        rows, width = range(len(sums)), len(sums[0]) * self.pairs.lanes
        which = k.let("which", where.packed // self.wide)
        safe, end = (k.let(name, cast(Load(self.counts, which * 2 + n, I32), IDX)) for n, name in enumerate(("safe", "end")))
        entries = k.let("entries", which * self.most)

        def places(s: Expr) -> dict[int, Expr]:
            off = k.let("off", first + cast(Load(self.offsets, entries + s, I32), IDX))
            return {r: off + r * across for r in rows}

        with k.loop("s", 0, safe) as s:
            self.pairs.step(k, sums, at + s * (4 * width), x, places(s))
        late = k.let("late", at + safe * (2 * width))
        with k.loop("s", safe, end) as s:
            self.shorts.step(k, sums, late + s * (2 * width), self.x16, places(s))


@dataclass(frozen=True, slots=True)
class Panels:
    """Packed weights, and the lists that go with them."""

    weights: Array
    counts: Array
    offsets: Array
    late: Array  # by column, the sum of the weights that are multiplied in 16 bits


def panels_of(known: Possible, tile: Tile, lanes: int, starts: Array, apart: int) -> Panels:
    """`starts`: where each step lies in a window; `apart`: from one order to the next."""
    panels, counts, lists = [], [], []
    late = np.zeros(len(known.weights), np.int64)
    for block in blocks_of(len(known.weights), tile.vectors, lanes):
        part = np.zeros((block.vectors * lanes, *known.weights.shape[1:]), np.int8)
        part[: block.width] = known.weights[block.first : block.first + block.width]
        orders = known.orders(block)
        safe, unsafe = np.flatnonzero(orders >= 0), np.flatnonzero(orders < 0)
        swapped = np.take_along_axis(part[:, safe], np.array(ORDERS)[orders[safe]][None], axis=2)
        panels += [swapped.transpose(1, 0, 2).reshape(-1)]
        panels += [part[:, unsafe].reshape(len(part), -1, 2).transpose(1, 0, 2).reshape(-1)]
        ends = (starts[unsafe][:, None] + np.array([0, 2])).reshape(-1)
        lists.append(np.concatenate([starts[safe] + orders[safe] * apart, ends]))
        counts += [len(safe), len(lists[-1])]
        late[block.first : block.first + block.width] = part[: block.width, unsafe].astype(np.int64).sum(axis=(1, 2))
    most = max(len(entries) for entries in lists)
    offsets = np.stack([np.pad(entries, (0, most - len(entries))) for entries in lists])
    return Panels(np.concatenate(panels), np.array(counts, np.int32), offsets.astype(np.int32), late)


def _starts(p: Problem, pitch: int) -> Array:
    """Where the steps of a window lie, from its first number on."""
    runs = 1 if p.joined else p.kernel[1]
    length = p.kernel[1] * p.channels if p.joined else p.channels
    down = np.arange(p.kernel[0])[:, None, None] * (p.dilations[0] * pitch)
    right = np.arange(runs)[None, :, None] * (p.dilations[1] * p.channels)
    return np.asarray((down + right + np.arange(0, length, 4)).reshape(-1))


# Kernels ----------------------------------------------------------------------------------------------------------------


def listed(job: Job) -> Lowered:
    known = _possible(job)
    facts, tile, lanes = known.facts, parse_tile(job.asked) or _best(job), job.isa.lanes
    p, numbers = facts.problem, facts.numbers
    x = job.operand(0, "x")
    zeros = numbers.x_zero + offset_of_type(x.dtype, DType.U8), numbers.x_zero
    shape, rest = _chunks(job, p, tile) if p.pointwise else (p, 0)
    gather = _orders(job, shape, x, zeros)
    panels = panels_of(known, tile, lanes, _starts(shape, most(gather.pitch)), gather.apart)

    def arrange(values: Array) -> Array:
        return arranged(values, 1, p.out_channels, lanes)

    w = job.packed(panels.weights, "w", DType.I8)
    first = job.packed(arrange((numbers.starts(zeros[0]) + (zeros[0] - zeros[1]) * panels.late).astype(np.int32)), "b")
    out = Bytes(job.isa, numbers.y_zero, numbers.low, numbers.high, numbers.to)
    ends = ToBytes(first, factor_of(job, facts.scaling, arrange), out, job.writes())
    pairs, shorts = (Dots(job.isa, dot, w, ends) for dot in (known.pairs, known.shorts))
    counts, offsets = job.packed(panels.counts, "counts"), job.packed(panels.offsets.reshape(-1), "offsets")
    lists = Lists(pairs, shorts, gather.shorts.buffer, counts, offsets, panels.offsets.shape[1], tile.vectors * lanes)
    Tiles(job.k, shape, tile, pairs, lists).image(gather)
    if most(rest):
        small = Problem.matrix(rest, p.channels, p.out_channels)
        done = p.out_width - rest
        with job.k.block():
            tiles = Tiles(job.k, small, tile, pairs, lists)
            tiles.x_base, tiles.y_base = tiles.x_base + done * p.channels, tiles.y_base + done * p.out_channels
            stages = [replace(stage, problem=small, stripe=1) for stage in (gather.bytes, gather.shorts)]
            tiles.image(Orders(stages[0], stages[1], gather.apart))
    return _named(job, known, tile, x)


def _chunks(job: Job, p: Problem, tile: Tile) -> tuple[Problem, int]:
    """A matrix as an image whose rows are chunks of its rows, and how many rows are left over."""
    tiles, threads = most(p.out_width) // tile.rows, 1 if p.moves else job.target.threads
    room = job.target.l2_bytes // 4 // (5 * p.channels * tile.rows)
    chunk = most(p.out_width) if tiles < 2 else _even(tiles, max(1, min(room, tiles)), threads) * tile.rows
    height, rest = divmod(p.out_width, chunk)
    return Problem.matrix(chunk, p.channels, p.out_channels, height), rest


def _named(job: Job, known: Possible, tile: Tile, x: Buffer) -> Lowered:
    facts, lanes, apart = known.facts, job.isa.lanes, known.apart(tile.vectors, job.isa.lanes)
    share = sum(apart) / (len(apart) * known.weights.shape[1])
    how = f"{tile.about(facts.problem.out_width, 'pixel', lanes, 'channels')}, {known.pairs.name}; {share:.0%} {known.shorts.name}"
    using = f"{_name(job)}(tile={tile})"
    if isinstance(job.node.op, QConv):
        original = problem_of(job)
        return job.done(original.stem("qconv"), f"{original.title('qconv')}, {x.dtype.value}\n{how}", using)
    p = facts.problem
    about = f"qmatmul [{p.out_width}, {p.channels}] x [{p.channels}, {p.out_channels}], {x.dtype.value}\n{how}"
    return job.done(f"qmatmul_{p.channels}_{p.out_channels}", about, using)
