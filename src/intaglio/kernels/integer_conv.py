"""Convolutions and matrix products of 8-bit numbers with register tiles: the integer twin of `conv.py`.

    for j in 0..K/2:                                       AVX2, 6 pixels x 16 channels
      w0 = widen(w[j*32..])  w1 = widen(w[j*32+16..])      weights packed [K/2][channel][2]
      a = repeat(x[row0 + 2j], x[row0 + 2j+1]);  acc0_0 = dot2(acc0_0, a, w0);  acc0_1 = dot2(acc0_1, a, w1)
      a = repeat(x[row1 + 2j], ...)

Rows of x wait in a stage (`integer_stage.py`) in the type of the dot product, padding included, so a window row is one run of
kw * channels numbers and no tile has borders. Zero points are folded: that of the weights is subtracted from them when they are
packed, that of x goes into the bias with the sum of the weights. A matrix is an image whose rows are chunks of its rows.

Which dot product is taken depends on the weights: products of u8 and i8 are twice as many per instruction, where they are exact
(`Dot.takes`). Does not apply to weights that are computed, to 16-bit numbers, or to sums that might not fit 32 bits:
`quantised.py` takes these. Depthwise convolutions are in `integer_window.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.conv import Geometry
from intaglio.kernels.integer_scaling import Bytes, Factor, factor_of, i32
from intaglio.kernels.integer_stage import Stage, offset_of_type, stage_of
from intaglio.kernels.isa_integer import Dot
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Buffer, Builder, Expr, Load, Op, Type, Var, idx, imin
from intaglio.kernels.tiles import Block, Tile, blocks_of, parse_tile
from intaglio.ops.quantised import QConv, QMatMul

BYTES = (DType.I8, DType.U8)


@dataclass(frozen=True, slots=True)
class Numbers:
    """Zero points and range of a product."""

    x_zero: int
    w_zero: int
    y_zero: int
    low: int
    high: int
    to: DType
    scaling: str


@dataclass(frozen=True, slots=True)
class Parts:
    """A product ready to be written: buffers, scaling, order of the packed weights."""

    dot: Dot
    x: Buffer
    w: Buffer
    bias: Buffer
    factor: Factor
    bytes: Bytes
    y: Buffer
    runs: int
    steps: int  # dot products per run
    zero: int  # of the stage


def size_of(x: DType, zero: int) -> int:
    """The largest |x - zero|."""
    info = np.iinfo(x.numpy)
    return max(int(info.max) - zero, zero - int(info.min))


def choose_dot(job: Job, runs: Array) -> tuple[Dot, Array] | None:
    """The first dot product of the target that is exact for weights [..., run]; and these, [..., steps, group]."""
    for dot in job.isa.integers.dots:
        length = runs.shape[-1]
        steps = -(-length // dot.group)
        padded = np.zeros((*runs.shape[:-1], steps * dot.group), np.int64)
        padded[..., :length] = runs
        grouped = padded.reshape(*runs.shape[:-1], steps, dot.group)
        if dot.takes(grouped):
            return dot, grouped
    return None


def cycles(rows: int, vectors: int) -> float:
    """Measured on Zen 3, per step of dot2: 6x2 8.7, 4x2 5.9, 3x3 6.4, 1x8 6.9, 1x4 3.8, 1x2 2.2, 2x2 3.5."""
    return 0.62 * rows * vectors + 0.12 * rows + 0.2 * vectors + 0.2


def choose_tile(job: Job, row_lengths: list[int], columns: int, steps: int) -> Tile:
    """The tile with the least estimated time for rows of these lengths; each tile pays for its start and its scaling too."""
    lanes, registers = job.isa.lanes, job.target.registers

    def total(tile: Tile) -> float:
        time = 0.0
        for block in blocks_of(columns, tile.vectors, lanes):
            for length in row_lengths:
                full, rest = divmod(length, tile.rows)
                for count, rows in ((full, tile.rows), (1 if rest else 0, rest)):
                    time += count * (cycles(rows, block.vectors) * steps + 4.0 * rows * block.vectors + 1.5 * block.vectors + 5)
        return time

    fit = [Tile(r, v) for v in (1, 2, 3, 4, 6, 8) for r in range(1, min(8, max(row_lengths)) + 1) if r * v + v + 2 <= registers]
    return min(fit, key=lambda t: (round(total(t), 2), -t.rows, t.vectors))


def parts_of(
    job: Job, x: Buffer, runs: Array, bias: Array | None, multiplier: Array, shift: Array | None, numbers: Numbers, tile: Tile,
    chosen: tuple[Dot, Array],
) -> Parts | None:  # fmt: skip
    """`runs` is [groups, columns, runs, length], zero point of the weights subtracted."""
    dot, grouped = chosen
    lanes = job.isa.lanes
    groups, columns = runs.shape[:2]
    outs = groups * columns
    zero = numbers.x_zero + offset_of_type(x.dtype, dot.x)
    sums = runs.reshape(outs, -1).sum(axis=1)
    real = bias if bias is not None and bias.dtype == np.float32 else None
    b = np.zeros(outs, np.int64) if bias is None or real is not None else bias.astype(np.int64)
    reach = np.abs(runs).reshape(outs, -1).sum(axis=1) * size_of(x.dtype, numbers.x_zero) + np.abs(b)
    stored = -(-columns // lanes) * lanes

    def arrange(values: Array) -> Array:
        """A number per channel: groups apart, each padded to whole vectors."""
        out = np.zeros((groups, stored), values.dtype)
        out[:, :columns] = np.broadcast_to(values, (outs,)).reshape(groups, columns)
        return out.reshape(-1)

    narrow = dot.narrow_weights and int(grouped.min()) >= -128 and int(grouped.max()) <= 127
    storage = DType.I8 if narrow else dot.w
    panels = []
    for group in grouped:
        for block in blocks_of(columns, tile.vectors, lanes):
            panel = np.zeros((block.vectors * lanes, *group.shape[1:]), storage.numpy)
            panel[: block.width] = group[block.first : block.first + block.width]
            panels.append(panel.transpose(1, 2, 0, 3).reshape(-1))  # [run][step][channel][group]
    w = job.packed(np.concatenate(panels), "w", storage)
    folded = (b - zero * sums).astype(np.int32)  # wraps as the sums do
    first = job.packed(arrange(folded), "b")
    factor = factor_of(job, numbers.scaling, multiplier, shift, int(reach.max(initial=0)), arrange, real)
    if factor is None:
        return None
    out = Bytes(job.isa, numbers.y_zero, numbers.low, numbers.high, numbers.to)
    return Parts(dot, x, w, first, factor, out, job.writes(), grouped.shape[2], grouped.shape[3], zero)


class TileWriter:
    """Writes the loops around tiles of one image shape."""

    def __init__(self, job: Job, geo: Geometry, tile: Tile, parts: Parts, stage: Stage, joined: bool) -> None:
        self.k: Builder = job.k
        self.isa = job.isa
        self.geo, self.tile, self.parts, self.stage, self.joined = geo, tile, parts, stage, joined
        self.blocks = blocks_of(geo.columns, tile.vectors, self.isa.lanes)
        self.stored = sum(b.vectors for b in self.blocks) * self.isa.lanes

    def image(self, x_base: int = 0, y_base: int = 0) -> None:
        geo, k, stage = self.geo, self.k, self.stage
        stage.prepare(k)
        with k.loop("n", 0, geo.batch) as n, k.loop("stripe", 0, geo.out_height, stage.stripe) as first:
            base = k.let("base", n * (geo.height * geo.width * geo.channels) + x_base)
            stage.load(k, base, first)
            with k.loop("g", 0, geo.group) as g:

                def body(block: Block, at: Expr, column: Expr) -> None:
                    with k.loop("oh", first, imin(first + stage.stripe, geo.out_height)) as oh:
                        line = k.let("line", stage.place(oh, first, base) + g * geo.depth)
                        row = (n * geo.out_height + oh) * (geo.out_width * geo.out_channels)
                        out = k.let("out", row + g * geo.columns + column + y_base)
                        self._row(line, out, block, at, column + g * self.stored)

                self._each_block(g, body)

    def _each_block(self, g: Expr, body: object) -> None:
        """Equal blocks of channels in one loop; weights of a block stay in L1 while the stripe is read."""
        assert callable(body)
        k, lanes = self.k, self.isa.lanes
        depth = self.parts.runs * self.parts.steps * self.parts.dot.group
        wide = self.tile.vectors * lanes
        whole = [b for b in self.blocks if b.vectors == self.tile.vectors and b.width == wide]
        base = g * (self.stored * depth)
        if whole:
            with k.loop("block", 0, len(whole)) as n:
                body(whole[0], k.let("wat", base + n * (wide * depth)), k.let("col", n * wide))
        for block in self.blocks[len(whole) :]:
            with k.block():
                body(block, k.let("wat", base + block.first * depth), idx(block.first))

    def _row(self, line: Expr, out: Expr, block: Block, at: Expr, column: Expr) -> None:
        geo, k, rows = self.geo, self.k, self.tile.rows
        full = geo.out_width // rows * rows
        with k.loop("ow", 0, full, rows) as ow:
            self._tile(ow, rows, line, out, block, at, column)
        if full < geo.out_width:
            with k.block():
                self._tile(idx(full), geo.out_width - full, line, out, block, at, column)

    def _tile(self, ow: Expr, rows: int, line: Expr, out: Expr, block: Block, at: Expr, column: Expr) -> None:
        geo, k, parts = self.geo, self.k, self.parts
        lanes, group = self.isa.lanes, parts.dot.group
        firsts = [k.let(f"bias{v}", Load(parts.bias, column + v * lanes, i32(self.isa))) for v in range(block.vectors)]
        acc = [[k.var(f"acc{r}_{v}", firsts[v]) for v in range(block.vectors)] for r in range(rows)]
        step = geo.strides[1] * geo.channels
        start = k.let("start", line + ow * step)
        size = parts.steps * block.vectors * lanes * group  # of a run's weights
        across = 1 if self.joined else geo.kernel[1]
        with k.loop("kh", 0, geo.kernel[0]) as kh, k.loop("kw", 0, across) as kw:
            run = k.let("run", start + kh * (geo.dilations[0] * self.stage.pitch) + kw * (geo.dilations[1] * geo.channels))
            panel = k.let("panel", at + (kh * across + kw) * size)
            with k.loop("j", 0, parts.steps) as j:
                self._step(acc, panel + j * (block.vectors * lanes * group), [run + r * step + j * group for r in range(rows)])
        self._finish(acc, block, [out + (ow + r) * geo.out_channels for r in range(rows)], column)

    def _step(self, acc: list[list[Var]], w_at: Expr, x_at: list[Expr]) -> None:
        k, parts = self.k, self.parts
        dot, lanes = parts.dot, self.isa.lanes
        wide = lanes * dot.group
        weights = []
        for v in range(len(acc[0])):
            loaded: Expr = Load(parts.w, w_at + v * wide, Type(parts.w.dtype.value, wide))
            if parts.w.dtype is not dot.w:
                loaded = Op("vwiden_i8", (loaded,), Type(dot.w.value, wide))
            weights.append(k.let(f"w{v}", loaded))
        repeat = "vrepeat_bytes" if dot.group == 4 else "vrepeat"
        for r, at in enumerate(x_at):
            few = Load(self.stage.buffer, at, Type(dot.x.value, dot.group))
            a = k.let(f"a{r}", Op(repeat, (few,), Type(dot.x.value, wide)))
            for v, weight in enumerate(weights):
                k.assign(acc[r][v], Op(dot.name, (acc[r][v], a, weight), i32(self.isa)))

    def _finish(self, acc: list[list[Var]], block: Block, places: list[Expr], column: Expr) -> None:
        k, lanes, factor = self.k, self.isa.lanes, self.parts.factor
        for first in range(0, block.vectors, 2):
            pair = range(first, min(first + 2, block.vectors))
            constants = [factor.constants(k, column + v * lanes, str(v)) for v in pair]
            count = min(block.width - first * lanes, lanes * len(pair))
            for r, place in enumerate(places):
                values = [factor.apply(k, acc[r][v], c) for v, c in zip(pair, constants, strict=True)]
                self.parts.bytes.store(k, self.parts.y, place + first * lanes, count, values)


def upright(geo: Geometry) -> Geometry:
    """An image one pixel wide is a row: the same memory, and tiles go along it."""
    if geo.width == geo.out_width == geo.kernel[1] == 1 and geo.pads[1] == 0:
        (kh, kw), (sh, sw), (dh, dw) = geo.kernel, geo.strides, geo.dilations
        return replace(
            geo, height=1, width=geo.height, out_height=1, out_width=geo.out_height, kernel=(kw, kh), strides=(sw, sh),
            pads=(0, geo.pads[0]), dilations=(dw, dh),
        )  # fmt: skip
    return geo


def constants_of(job: Job) -> tuple[Array, Array | None, Array, Array | None] | None:
    """Weights, bias, multipliers, shifts: all known, or None."""
    values = [job.optional(i) for i in (1, 2, 3, 4)]
    if any(v is not None and v.data is None for v in values) or values[0] is None or values[2] is None:
        return None
    data = [None if v is None else v.data for v in values]
    assert data[0] is not None and data[2] is not None
    return data[0], data[1], data[2], data[3]


def takes(job: Job, to: DType) -> bool:
    """Bytes in, bytes out, and a target with integer vectors."""
    weights = job.node.inputs[1]
    fits = job.type(0).dtype in BYTES and weights is not None and weights.dtype in BYTES and to in BYTES
    return fits and bool(job.isa.integers.dots) and job.node.output.type.elements > 0


def qgeometry(job: Job, op: QConv) -> Geometry:
    n, h, w, c = job.type(0).shape
    _, oh, ow, outs = job.node.output.shape
    kh, kw = job.type(1).shape[2:]
    return Geometry(
        n, h, w, c, oh, ow, outs, (kh, kw), (op.strides[0], op.strides[1]), (op.pads[0], op.pads[1]),
        (op.dilations[0], op.dilations[1]), op.group,
    )  # fmt: skip


def qconv_tiles(job: Job) -> Lowered | None:
    op = job.node.op
    assert isinstance(op, QConv)
    known = constants_of(job) if takes(job, op.to) and not op.epilogue else None
    if known is None:
        return None
    weights, bias, multiplier, shift = known
    numbers = Numbers(op.x_zero, op.w_zero, op.y_zero, op.low, op.high, op.to, op.scaling)
    original = qgeometry(job, op)
    centred = weights.astype(np.int64) - op.w_zero
    if original.kernel == (1, 1) and original.strides == (1, 1) and not any(op.pads) and op.group == 1:
        rows = original.batch * original.out_height * original.out_width
        return _matrix(job, rows, centred.reshape(1, original.out_channels, 1, -1), bias, multiplier, shift, numbers, "qconv1x1")
    geo = upright(original)
    if geo is not original:
        centred = centred.transpose(0, 1, 3, 2)
    joined = geo.dilations[1] == 1 and geo.group == 1
    runs = centred.transpose(0, 2, 3, 1)  # [O, kh, kw, I]
    runs = runs.reshape(geo.group, geo.columns, geo.kernel[0] * (1 if joined else geo.kernel[1]), -1)
    chosen = choose_dot(job, runs)
    if chosen is None:
        return None
    tile = parse_tile(job.asked) or choose_tile(job, [geo.out_width] * geo.out_height, geo.columns, math.prod(chosen[1].shape[2:4]))
    x = job.operand(0, "x")
    parts = parts_of(job, x, runs, bias, multiplier, shift, numbers, tile, chosen)
    if parts is None:
        return None
    padded = any(op.pads) or (geo.out_width - 1) * geo.strides[1] + (geo.kernel[1] - 1) * geo.dilations[1] >= geo.width
    direct = parts.dot.x is x.dtype and not padded and runs.shape[-1] % parts.dot.group == 0
    stage = stage_of(job, geo, x, parts.dot.x, parts.zero, direct)
    TileWriter(job, geo, tile, parts, stage, joined).image()
    kh, kw = original.kernel
    about = (
        f"qconv {kh}x{kw}, {geo.channels} -> {geo.out_channels} channels, {original.height}x{original.width} -> "
        f"{original.out_height}x{original.out_width}, stride {original.strides[0]}x{original.strides[1]}, group {geo.group}, "
        f"{x.dtype.value}\n" + _told(job, parts, tile, f"[kh]{'' if joined else '[kw]'}")
    )
    return job.done(f"qconv{kh}x{kw}_{geo.channels}_{geo.out_channels}", about, f"qconv_tiles(tile={tile})")


def _told(job: Job, parts: Parts, tile: Tile, runs: str = "") -> str:
    group, wide = parts.dot.group, tile.vectors * job.isa.lanes
    return f"tile {tile.rows} pixels x {wide} channels, weights packed [block]{runs}[k/{group}][{wide}][{group}], {parts.dot.name}"


def _matrix(
    job: Job, rows: int, runs: Array, bias: Array | None, multiplier: Array, shift: Array | None, numbers: Numbers, stem: str,
) -> Lowered | None:  # fmt: skip
    """x [rows, depth] times [1, columns, 1, depth]."""
    columns, depth = runs.shape[1], runs.shape[3]
    chosen = choose_dot(job, runs)
    if chosen is None:
        return None
    dot = chosen[0]
    tile = parse_tile(job.asked) or choose_tile(job, [rows], columns, chosen[1].shape[3])
    x = job.operand(0, "x")
    parts = parts_of(job, x, runs, bias, multiplier, shift, numbers, tile, chosen)
    if parts is None:
        return None
    direct = dot.x is x.dtype and depth % dot.group == 0
    most = max(1, job.target.l1_bytes // 2 // (depth * dot.x.bytes) // tile.rows) * tile.rows
    chunk = rows
    if rows > most and not direct:
        chunk = -(-rows // (-(-rows // most)) // -tile.rows) * -tile.rows  # even chunks of whole tiles
    height, rest = divmod(rows, chunk)
    shape = Geometry(1, height, chunk, depth, height, chunk, columns, (1, 1), (1, 1), (0, 0), (1, 1), 1)
    stage = stage_of(job, shape, x, dot.x, parts.zero, direct)
    TileWriter(job, shape, tile, parts, stage, True).image()
    if rest:
        small = replace(shape, height=1, out_height=1, width=rest, out_width=rest)
        with job.k.block():
            TileWriter(job, small, tile, parts, replace(stage, geo=small, stripe=1), True).image(
                height * chunk * depth, height * chunk * columns
            )
    about = f"{stem} [{rows}, {depth}] x [{depth}, {columns}], {x.dtype.value}\n" + _told(job, parts, tile)
    return job.done(f"{stem}_{depth}_{columns}", about, f"{'qconv' if stem != 'qmatmul' else stem}_tiles(tile={tile})")


def qmatmul_tiles(job: Job) -> Lowered | None:
    op, node = job.node.op, job.node
    assert isinstance(op, QMatMul)
    known = constants_of(job) if takes(job, op.to) else None
    if known is None or math.prod(job.type(1).shape[:-2]) != 1 or job.type(0).elements == 0:
        return None
    weights, bias, multiplier, shift = known
    flat = weights.reshape(weights.shape[-2:]).astype(np.int64) - op.b_zero
    matrix = flat if op.transpose_b else flat.T  # [columns, depth]
    numbers = Numbers(op.a_zero, op.b_zero, op.y_zero, op.low, op.high, op.to, op.scaling)
    if bias is not None and bias.size != matrix.shape[0]:
        return None
    rows = node.output.type.elements // matrix.shape[0]
    return _matrix(job, rows, matrix.reshape(1, matrix.shape[0], 1, -1), bias, multiplier, shift, numbers, "qmatmul")
