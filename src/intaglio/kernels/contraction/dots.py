"""Convolutions and products of bytes by register tiles: the micro-kernel of instruction sets with integer dot products.

    for j in 0..K/2:                                       AVX2, 6 pixels x 16 channels
      w0 = widen(w[j*32..])  w1 = widen(w[j*32+16..])      weights packed [K/2][channel][2]
      a = repeat(x[row0 + 2j], x[row0 + 2j+1]);  acc0_0 = dot2(acc0_0, a, w0);  acc0_1 = dot2(acc0_1, a, w1)
      a = repeat(x[row1 + 2j], ...)

Rows of x wait in a stage (`stage.py`) in the type of the dot product, padding included, so no tile has borders. A matrix is an
image whose rows are chunks of its rows.

Which dot product is taken depends on the weights: products of u8 and i8 are twice as many per instruction, where they are exact
(`Dot.takes`). Matrix products (`Matrices`) take two rows at a time. Does not apply to weights that are computed, to 16-bit numbers,
or to sums that might not fit 32 bits: `plain.py` takes these. Depthwise convolutions are in `taps.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.sizes import most
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.micro import Column, Sums
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.quantised import Quantised, not_bytes, quantised_of
from intaglio.kernels.contraction.scaling import Bytes, Factor, Scaling, factor_of, i32, scaling_of
from intaglio.kernels.contraction.stage import offset_of_type, stage_bytes, stage_of
from intaglio.kernels.contraction.tile import Block, Tile, blocks_of, parse_tile
from intaglio.kernels.contraction.tiles import Tiles, far_weights
from intaglio.kernels.estimate import micros
from intaglio.kernels.isa import Dot, Isa
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Buffer, Expr, Load, Op, Type
from intaglio.ops.quantised import QConv

MOST_SIZES = 16  # of a range, that estimates look at
STAGE_CYCLES = 2.0  # per vector of x that is written to the stage
Rows = Sequence[Sequence[Expr]]  # sums by row and vector


class Ends(Protocol):
    """Where sums start, and what becomes of them."""

    def first(self, k: Builder, rows: int, block: Block, at: Column) -> list[list[Expr]]:
        """By row and vector."""

    def finish(self, k: Builder, sums: Rows, block: Block, at: Column, places: list[Expr]) -> None: ...


@dataclass(frozen=True, slots=True)
class Dots:
    """Sums of i32, `dot.group` neighbouring numbers at a time."""

    isa: Isa
    dot: Dot
    w: Buffer
    ends: Ends

    @property
    def lanes(self) -> int:
        return self.isa.lanes

    @property
    def group(self) -> int:
        return self.dot.group

    def start(self, k: Builder, rows: int, block: Block, at: Column) -> Sums:
        k.reload()
        firsts = self.ends.first(k, rows, block, at)
        return [[k.var(f"acc{r}_{v}", first) for v, first in enumerate(row)] for r, row in enumerate(firsts)]

    def step(self, k: Builder, sums: Sums, w_at: Expr, x: Buffer, places: Mapping[int, Expr]) -> None:
        dot, wide = self.dot, self.lanes * self.dot.group
        weights = []
        for v in range(len(sums[0])):
            loaded: Expr = Load(self.w, w_at + v * wide, Type(self.w.dtype.value, wide))
            if self.w.dtype is not dot.w:
                loaded = Op("vwiden_i8", (loaded,), Type(dot.w.value, wide))
            weights.append(k.let(f"w{v}", loaded))
        repeat = "vrepeat_bytes" if dot.group == 4 else "vrepeat"
        for r, at in places.items():
            few = Load(x, at, Type(dot.x.value, dot.group))
            a = k.let(f"a{r}", Op(repeat, (few,), Type(dot.x.value, wide)))
            for acc, weight in zip(sums[r], weights, strict=True):
                k.assign(acc, Op(dot.name, (acc, a, weight), i32(self.isa)))

    def finish(self, k: Builder, sums: Sums, block: Block, at: Column, places: list[Expr]) -> None:
        self.ends.finish(k, sums, block, at, places)


@dataclass(frozen=True, slots=True)
class Matrices(Dots):
    """Two rows at a time: a vector of sums is 2 rows x 2 columns, so a vector of columns of two rows is two of them.

        acc0_0, acc1_0    rows 0 and 1 times columns 0, 1; and times columns 2, 3
        a = join(x[row0 + 8j ..], x[row1 + 8j ..]);  acc0_0 = mmla(acc0_0, a, w0);  acc1_0 = mmla(acc1_0, a, w1)

    Rows and pairs of rows are turned into each other by two instructions. A row without a partner is joined with itself."""

    def start(self, k: Builder, rows: int, block: Block, at: Column) -> Sums:
        firsts = self.ends.first(k, rows, block, at)
        sums: Sums = []
        for r in range(0, rows, 2):
            pair = list(zip(firsts[r], firsts[min(r + 1, rows - 1)], strict=True))
            for part, name in enumerate(("vjoin_low", "vjoin_high")):
                sums.append([k.var(f"acc{r + part}_{v}", Op(name, both, i32(self.isa))) for v, both in enumerate(pair)])
        return sums

    def step(self, k: Builder, sums: Sums, w_at: Expr, x: Buffer, places: Mapping[int, Expr]) -> None:
        half = Type(self.dot.x.value, self.group)
        whole = Type(self.dot.x.value, 2 * self.group)
        wide = self.lanes * self.group
        weights = [
            [k.let(f"w{v}_{part}", Load(self.w, w_at + (v * wide + part * 2 * self.group), whole)) for part in (0, 1)]
            for v in range(len(sums[0]))
        ]
        for r in range(0, len(sums), 2):
            rows = [Load(x, places[r], half), Load(x, places.get(r + 1, places[r]), half)]
            a = k.let(f"a{r}", Op("vjoin_bytes", tuple(rows), whole))
            for v, columns in enumerate(weights):
                for part, weight in enumerate(columns):
                    acc = sums[r + part][v]
                    k.assign(acc, Op(self.dot.name, (acc, a, weight), i32(self.isa)))

    def finish(self, k: Builder, sums: Sums, block: Block, at: Column, places: list[Expr]) -> None:
        rows: list[list[Expr]] = []
        for r in range(len(places)):
            name, (left, right) = ("vjoin_low", "vjoin_high")[r % 2], sums[r - r % 2 : r - r % 2 + 2]
            row = [Op(name, both, i32(self.isa)) for both in zip(left, right, strict=True)]
            rows.append([k.let(f"total{r}_{v}", value) for v, value in enumerate(row)])
        self.ends.finish(k, rows, block, at, places)


def micro_of(isa: Isa, dot: Dot, w: Buffer, ends: Ends) -> Dots:
    return (Matrices if dot.rows > 1 else Dots)(isa, dot, w, ends)


@dataclass(frozen=True, slots=True)
class ToBytes:
    """Sums start from the bias; they are scaled and stored as bytes."""

    bias: Buffer
    factor: Factor
    bytes: Bytes
    y: Buffer

    def first(self, k: Builder, rows: int, block: Block, at: Column) -> list[list[Expr]]:
        isa = self.bytes.isa
        places = [at.packed + v * isa.lanes for v in range(block.vectors)]
        return [[k.let(f"bias{v}", Load(self.bias, place, i32(isa))) for v, place in enumerate(places)]] * rows

    def finish(self, k: Builder, sums: Rows, block: Block, at: Column, places: list[Expr]) -> None:
        lanes, factor = self.bytes.isa.lanes, self.factor
        for first in range(0, block.vectors, 2):
            pair = range(first, min(first + 2, block.vectors))
            constants = [factor.constants(k, at.packed + v * lanes, str(v)) for v in pair]
            count = min(block.width - first * lanes, lanes * len(pair))
            for row, place in zip(sums, places, strict=True):
                values = [factor.apply(k, row[v], c) for v, c in zip(pair, constants, strict=True)]
                self.bytes.store(k, self.y, place + first * lanes, count, values)


# What is known before anything is built ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Facts:
    """A problem with the dot product that is exact for its weights [groups, columns, runs, steps, group]."""

    problem: Problem
    numbers: Quantised
    dot: Dot
    grouped: Array
    scaling: Scaling

    @property
    def steps(self) -> int:
        return int(np.prod(self.grouped.shape[2:4]))

    def most(self) -> Facts:
        """For the largest size."""
        return replace(self, problem=self.problem.most()) if self.problem.moves else self

    def some(self) -> list[Facts]:
        """For some of the sizes that a caller may give; where it gives none, these."""
        return [replace(self, problem=p) for p in self.problem.some(MOST_SIZES)] if self.problem.moves else [self]


def choose_dot(isa: Isa, runs: Array, rows: int) -> tuple[Dot, Array] | None:
    """The first dot product of the target that is exact for weights [..., run]; and these, [..., steps, group]. A matrix
    product needs as many rows: where tiles have fewer, a part of it would be wasted."""
    for dot in isa.integers.dots:
        if dot.rows > rows:
            continue
        length = runs.shape[-1]
        steps = -(-length // dot.group)
        padded = np.zeros((*runs.shape[:-1], steps * dot.group), np.int64)
        padded[..., :length] = runs
        grouped = padded.reshape(*runs.shape[:-1], steps, dot.group)
        if dot.takes(grouped):
            return dot, grouped
    return None


def along_rows(problem: Problem, weights: Array) -> tuple[Problem, Array]:
    """A convolution as tiles take it: an image one pixel wide as a row, one of windows of one pixel as a matrix."""
    upright = problem.upright()
    weights = weights if upright is problem else weights.transpose(0, 1, 3, 2)
    if upright.pointwise:
        upright = Problem.matrix(upright.rows, upright.channels, upright.out_channels)
    return upright, weights


@fact
def dots_of(job: Job) -> Facts | str:
    """What a kernel of dot products needs, or why there is none."""
    op = job.node.op
    if not job.isa.integers.dots:
        return "the target has no integer dot products"
    if reason := not_bytes(job):
        return reason
    if isinstance(op, QConv) and op.epilogue:
        return "another layer is fused into it"
    numbers = quantised_of(job)
    if isinstance(numbers, str):
        return numbers
    if isinstance(op, QConv):
        problem, weights = along_rows(problem_of(job), numbers.weights)
        numbers = replace(numbers, weights=weights)
    else:
        outs, depth = numbers.weights.shape[:2]
        problem = Problem.matrix(job.node.output.type.elements // outs, depth, outs)
    chosen = choose_dot(job.isa, numbers.runs(problem.group, problem.joined), most(problem.out_width))
    if chosen is None:
        return "no dot product of the target is exact for these weights"
    scaling = scaling_of(numbers, job.isa)
    return scaling if isinstance(scaling, str) else Facts(problem, numbers, *chosen, scaling)


def _facts(job: Job) -> Facts:
    found = dots_of(job)
    assert not isinstance(found, str)
    return found


def cycles(rows: int, vectors: int) -> float:
    """Measured on Zen 3, per step of dot2: 6x2 8.7, 4x2 5.9, 3x3 6.4, 1x8 6.9, 1x4 3.8, 1x2 2.2, 2x2 3.5."""
    return 0.62 * rows * vectors + 0.12 * rows + 0.2 * vectors + 0.2


@dataclass(frozen=True, slots=True)
class Runs:
    """What a tile is chosen for: `count` runs of `length` results side by side, each of `steps` dot products, `together` results at
    a time."""

    length: int
    count: int
    columns: int
    steps: int
    lanes: int
    together: int

    def cycles(self, tile: Tile) -> float:
        """Each tile pays for its start and its scaling too."""
        time = 0.0
        full, rest = divmod(self.length, tile.rows)
        for block in blocks_of(self.columns, tile.vectors, self.lanes):
            start = 1.5 * block.vectors + 5
            for count, some in ((full, tile.rows), (1 if rest else 0, rest)):
                rows = -(-some // self.together) * self.together
                time += count * (cycles(rows, block.vectors) * self.steps + 4.0 * rows * block.vectors + start)
        return time * self.count


def _runs(known: Facts, lanes: int) -> Runs:
    p = known.problem
    return Runs(p.out_width, p.out_height, p.columns, known.steps, lanes, known.dot.rows)


def ranked(runs: Runs, registers: int) -> list[Tile]:
    """Tiles that fit the registers, by their estimated time."""
    wide, high = -(-runs.columns // runs.lanes), runs.together
    shapes = [Tile(r, v) for v in (1, 2, 3, 4, 6, 8) for r in range(high, min(8, runs.length) + 1, high)]
    fit = [t for t in shapes if (t.rows + high) * t.vectors + 2 <= registers and (t.vectors <= wide or t.vectors == 1)]
    return sorted(fit, key=lambda t: (round(runs.cycles(t), 2), -t.rows, t.vectors))


def _ranked(job: Job) -> list[Tile]:
    """Of the largest size, so that a range needs its memory."""
    return ranked(_runs(_facts(job).most(), job.isa.lanes), job.target.registers)


def _tile(job: Job) -> Tile:
    return parse_tile(job.asked) or _ranked(job)[0]


def dots_ways(job: Job) -> list[str]:
    name = "qconv_tiles" if isinstance(job.node.op, QConv) else "qmatmul_tiles"
    return [f"{name}(tile={tile})" for tile in _ranked(job)]


def dots_estimate(job: Job) -> float:
    return dots_us(job, _facts(job).most(), _tile(job))


def dots_us(job: Job, known: Facts, tile: Tile | None = None) -> float:
    """With a pass over the rows of x, which wait in the stage. Of one size, with the best tile for it if none is given."""
    p, lanes = known.problem, job.isa.lanes
    runs = _runs(known, lanes)
    steps = runs.cycles(tile or ranked(runs, job.target.registers)[0]) * p.batch * p.group
    staged = p.batch * p.height * p.width * p.channels / (2 * lanes) * STAGE_CYCLES
    return micros(job.target, lanes, steps + staged, known.grouped.size)


# Kernels ----------------------------------------------------------------------------------------------------------------


def arranged(values: Array, groups: int, columns: int, lanes: int) -> Array:
    """A number per channel: groups apart, each padded to whole vectors."""
    out = np.zeros((groups, -(-columns // lanes) * lanes), values.dtype)
    out[:, :columns] = np.broadcast_to(values, (groups * columns,)).reshape(groups, columns)
    return out.reshape(-1)


def pack_weights(job: Job, dot: Dot, grouped: Array, tile: Tile) -> Buffer:
    """Weights [groups, columns, runs, steps, group] as tiles read them: [block][run][step][channel][group]."""
    lanes = job.isa.lanes
    narrow = dot.narrow_weights and int(grouped.min()) >= -128 and int(grouped.max()) <= 127
    storage = DType.I8 if narrow else dot.w
    panels = []
    for group in grouped:
        for block in blocks_of(grouped.shape[1], tile.vectors, lanes):
            panel = np.zeros((block.vectors * lanes, *group.shape[1:]), storage.numpy)
            panel[: block.width] = group[block.first : block.first + block.width]
            panels.append(panel.transpose(1, 2, 0, 3).reshape(-1))
    return job.packed(np.concatenate(panels), "w", storage)


def dots_for(job: Job, known: Facts, tile: Tile, x_zero: int) -> Dots:
    """The micro-kernel. `x_zero`: of x as it is multiplied."""
    numbers, (groups, columns) = known.numbers, known.grouped.shape[:2]

    def arrange(values: Array) -> Array:
        return arranged(values, groups, columns, job.isa.lanes)

    w = pack_weights(job, known.dot, known.grouped, tile)
    first = job.packed(arrange(numbers.starts(x_zero)), "b")
    factor = factor_of(job, known.scaling, arrange)
    out = Bytes(job.isa, numbers.y_zero, numbers.low, numbers.high, numbers.to)
    return micro_of(job.isa, known.dot, w, ToBytes(first, factor, out, job.writes()))


def packing_text(micro: Dots, tile: Tile, most: int, runs: str = "") -> str:
    group, wide = micro.group, tile.vectors * micro.lanes
    packed = f"weights packed [block]{runs}[k/{group}][{wide}][{group}]"
    return f"{tile.about(most, 'pixel', micro.lanes, 'channels')}, {packed}, {micro.dot.name}"


def qconv_tiles(job: Job) -> Lowered:
    known, original = _facts(job), problem_of(job)
    p = known.problem
    if original.pointwise:
        return _matrix(job, "qconv1x1", "qconv_tiles")
    tile = _tile(job)
    x = job.operand(0, "x")
    zero = known.numbers.x_zero + offset_of_type(x.dtype, known.dot.x)
    micro = dots_for(job, known, tile, zero)
    length = p.taps // known.grouped.shape[2]
    direct = known.dot.x is x.dtype and not p.padded and length % micro.group == 0
    far = far_weights(job.target, known.grouped.size)
    Tiles(job.k, p, tile, micro, far=far).image(stage_of(job, p, x, known.dot.x, zero, direct))
    packing = packing_text(micro, tile, p.out_width, f"[kh]{'' if p.joined else '[kw]'}")
    return job.done(original.stem("qconv"), f"{original.title('qconv')}, {x.dtype.value}\n{packing}", f"qconv_tiles(tile={tile})")


def qmatmul_tiles(job: Job) -> Lowered:
    return _matrix(job, "qmatmul", "qmatmul_tiles")


def _matrix(job: Job, stem: str, name: str) -> Lowered:
    """Rows of x in chunks of whole tiles that fit a cache: see `stage_bytes`."""
    known = _facts(job)
    p, dot = known.problem, known.dot
    rows, depth, columns = p.out_width, p.channels, p.out_channels
    tile = _tile(job)
    x = job.operand(0, "x")
    zero = known.numbers.x_zero + offset_of_type(x.dtype, dot.x)
    micro = dots_for(job, known, tile, zero)
    direct = dot.x is x.dtype and depth % dot.group == 0
    chunk = most(rows) if direct else _chunk(most(rows), tile.rows, stage_bytes(job.target, depth) // (depth * dot.x.bytes))
    chunk = rows if chunk == most(rows) else chunk
    height, rest = divmod(rows, chunk)
    shape = Problem.matrix(chunk, depth, columns, height)
    stage = stage_of(job, shape, x, dot.x, zero, direct)
    Tiles(job.k, shape, tile, micro, far=far_weights(job.target, known.grouped.size)).image(stage)
    if most(rest):
        small = Problem.matrix(rest, depth, columns)
        with job.k.block():
            tiles = Tiles(job.k, small, tile, micro)
            tiles.x_base, tiles.y_base = tiles.x_base + height * chunk * depth, tiles.y_base + height * chunk * columns
            tiles.image(replace(stage, problem=small, stripe=1))
    about = f"{stem} [{rows}, {depth}] x [{depth}, {columns}], {x.dtype.value}\n" + packing_text(micro, tile, rows)
    return job.done(f"{stem}_{depth}_{columns}", about, f"{name}(tile={tile})")


def _chunk(rows: int, high: int, room: int) -> int:
    """Rows at a time: all of them, or even chunks of whole tiles of `high` rows of which `room` rows fit."""
    most = max(1, room // high) * high
    if rows <= most:
        return rows
    return max(1, -(-rows // -(-rows // most)) // high) * high
