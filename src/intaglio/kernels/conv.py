"""Two-dimensional convolution in NHWC with register tiles.

Rows of a tile are neighbouring output pixels, columns are output channels. Where the whole window is inside the image, the taps
of a window row and their channels are one contiguous run of kw * channels numbers, so the reduction is one loop per window row.
Tiles that touch the left or right border are written out per tap, without the products that would read outside: no padding is
stored and nothing is tested in an inner loop. Window rows above and below the image are skipped by the bounds of their loop.

A 1x1 convolution with stride 1 is a matrix product over all pixels; so is a matmul (`matmul.py`), which shares the tiles.
Weights may be stored as i8 or f16: they are packed as they are and widened when they are loaded.
Does not apply to layout NCHW, to one or three spatial axes, or to activations other than f32: `window_general.py` takes these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.types import DType, Layout
from intaglio.kernels.epilogue import Epilogue, epilogue_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Builder, Expr, idx, imax, imin
from intaglio.kernels.tiles import (
    Accumulators,
    Block,
    Tile,
    blocks_of,
    choose_tile,
    pack_columns,
    pad_vector,
    parse_tile,
)
from intaglio.ops.conv import Conv


@dataclass(frozen=True, slots=True)
class Geometry:
    batch: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    out_channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int]  # top, left
    dilations: tuple[int, int]
    group: int

    @property
    def depth(self) -> int:
        """Input channels of a group."""
        return self.channels // self.group

    @property
    def columns(self) -> int:
        """Output channels of a group."""
        return self.out_channels // self.group

    def all_inside(self, first: int, rows: int) -> bool:
        """Do all taps of the tile that starts at output column `first` lie inside the image?"""
        low = first * self.strides[1] - self.pads[1]
        high = (first + rows - 1) * self.strides[1] - self.pads[1] + (self.kernel[1] - 1) * self.dilations[1]
        return low >= 0 and high < self.width

    def valid_rows(self, first: int, rows: int, kw: int) -> list[int]:
        """Rows of the tile that starts at output column `first` whose tap `kw` lies inside the image."""
        at = [(first + r) * self.strides[1] - self.pads[1] + kw * self.dilations[1] for r in range(rows)]
        return [r for r in range(rows) if 0 <= at[r] < self.width]


def geometry(job: Job, op: Conv) -> Geometry:
    n, h, w, c = job.type(0).shape
    _, oh, ow, oc = job.node.output.shape
    kernel = job.type(1).shape[2:]
    return Geometry(
        n, h, w, c, oh, ow, oc, (kernel[0], kernel[1]), (op.strides[0], op.strides[1]), (op.pads[0], op.pads[1]),
        (op.dilations[0], op.dilations[1]), op.group,
    )  # fmt: skip


def conv_nhwc(job: Job) -> Lowered | None:
    op, node = job.node.op, job.node
    assert isinstance(op, Conv)
    weights = node.inputs[1]
    bias = job.optional(2)
    if op.layout is not Layout.NHWC or job.type(0).rank != 4 or job.type(0).dtype is not DType.F32:
        return None
    if op.group > 1 and op.group == job.type(0).shape[-1] == node.output.shape[-1]:
        return None  # depthwise: `window.py`
    if weights is None or weights.data is None or (bias is not None and bias.data is None) or node.output.type.elements == 0:
        return None
    geo = geometry(job, op)
    e = job.vector
    flat = geo.kernel == (1, 1) and geo.strides == (1, 1) and not any(op.pads) and geo.group == 1
    run = geo.batch * geo.out_height * geo.out_width if flat else geo.out_width
    tile = parse_tile(job.asked) or choose_tile(job.target, run, geo.columns, e.lanes)
    x = job.operand(0, "x")
    matrices = [
        np.ascontiguousarray(part.transpose(2, 3, 1, 0)).reshape(-1, geo.columns) for part in np.split(weights.data, geo.group)
    ]
    w = job.packed(np.concatenate([pack_columns(m, tile.vectors, e.lanes) for m in matrices]), "w")
    b: Buffer | None = None
    if bias is not None and bias.data is not None:
        parts = [pad_vector(p, tile.vectors, e.lanes) for p in np.split(bias.data.astype(np.float32, copy=False), geo.group)]
        b = job.packed(np.concatenate(parts), "b")
    epilogue = epilogue_of(job, op.epilogue, [v for v in node.inputs[3:] if v is not None], node.output.shape)
    y = job.writes()
    writer = TileWriter(job, geo, tile, x, w, b, y, epilogue)
    if flat:
        writer.matrix(run, geo.channels)
    else:
        writer.image()
    kh, kw = geo.kernel
    steps = "".join(f" + {s.op.NAME}" for s in op.epilogue)
    about = (
        f"conv {kh}x{kw}, {geo.channels} -> {geo.out_channels} channels, {geo.height}x{geo.width} -> "
        f"{geo.out_height}x{geo.out_width}, stride {geo.strides[0]}x{geo.strides[1]}, group {geo.group}{steps}\n"
        f"NHWC, tile {tile.rows} pixels x {tile.vectors * e.lanes} channels, "
        f"weights packed [block][kh][kw][ic][{tile.vectors * e.lanes}]"
    )
    stem = f"conv{kh}x{kw}_{geo.channels}_{geo.out_channels}"
    return job.done(stem, about, f"conv_nhwc(tile={tile})", over=epilogue.over)


class TileWriter:
    """Writes the loops around tiles, for images and for plain matrices."""

    def __init__(
        self, job: Job, geo: Geometry, tile: Tile, x: Buffer, w: Buffer, b: Buffer | None, y: Buffer, epilogue: Epilogue
    ) -> None:
        self.k: Builder = job.k
        self.e: Lanes = job.vector
        self.job, self.geo, self.tile, self.epilogue = job, geo, tile, epilogue
        self.x, self.w, self.b, self.y = x, w, b, y
        self.x_base: Expr = idx(0)  # where this matrix starts in x, the weights and y, when there are several
        self.w_base: Expr = idx(0)
        self.y_base: Expr = idx(0)
        self.blocks = blocks_of(geo.columns, tile.vectors, self.e.lanes)

    # Matrix: 1x1 convolutions and everything that is one ------------------------------------------------------------

    def matrix(self, rows: int, depth: int) -> None:
        """Chunks of rows that stay in L2, for each all blocks of columns: weights of a block stay in L1 meanwhile."""
        tall = rows // self.tile.rows * self.tile.rows
        per_chunk = max(1, self.job.target.l2_bytes // 2 // (depth * 4) // self.tile.rows) * self.tile.rows
        with self.k.loop("chunk", 0, tall, per_chunk) as chunk:

            def body(block: Block, at: Expr, columns: Expr) -> None:
                with self.k.loop("m", chunk, imin(chunk + per_chunk, tall), self.tile.rows) as m:
                    self._matrix_tile(m, self.tile.rows, depth, block, at, columns)

            self._each_block(depth, body)
        if rows > tall:
            with self.k.block():
                self._each_block(depth, lambda block, at, col: self._matrix_tile(idx(tall), rows - tall, depth, block, at, col))

    def _each_block(self, depth: int, body: object, group: Expr | None = None) -> None:
        """Call `body(block, offset of its weights, first column)` for every block; equal ones in one loop."""
        assert callable(body)
        k, lanes = self.k, self.e.lanes
        wide = self.tile.vectors * lanes
        whole = [b for b in self.blocks if b.width == wide]
        stored = sum(b.vectors * lanes for b in self.blocks)
        base = self.w_base + (group or idx(0)) * (stored * depth)
        if whole:
            with k.loop("block", 0, len(whole)) as n:
                body(whole[0], k.let("wat", base + n * (wide * depth)), k.let("col", n * wide))
        for block in self.blocks[len(whole) :]:
            with k.block():
                body(block, k.let("wat", base + block.first * depth), idx(block.first))

    def _matrix_tile(self, m: Expr, rows: int, depth: int, block: Block, at: Expr, column: Expr) -> None:
        k, e = self.k, self.e
        acc = self._start(rows, block, column, idx(0))
        base = k.let("row", self.x_base + m * depth)
        with k.loop("j", 0, depth) as j:
            acc.step(self.w, at + j * (block.vectors * e.lanes), self.x, {r: base + r * depth + j for r in range(rows)})
        self._finish(
            acc,
            block,
            column,
            [k.let(f"to{r}", self.y_base + (m + r) * self.geo.out_channels + column) for r in range(rows)],
        )

    # Image ----------------------------------------------------------------------------------------------------------

    def image(self) -> None:
        """Stripes of output rows whose input stays in L2; inside, all blocks of channels; inside, the rows.

        Where a single row is too long for that, its inner tiles go in chunks and the tiles at the borders come after them."""
        geo, k = self.geo, self.k
        row_bytes = geo.width * geo.channels * 4 * geo.strides[0]
        budget = self.job.target.l2_bytes // 2
        stripe = max(1, min(geo.out_height, budget // row_bytes))
        taps = geo.kernel[0] * geo.kernel[1] * geo.depth
        inner, edges = self._tiles()
        pixel_bytes = geo.channels * 4 * geo.strides[1] * geo.kernel[0]
        chunk = max(self.tile.rows, budget // 2 // pixel_bytes // self.tile.rows * self.tile.rows)
        long = bool(inner) and row_bytes * geo.kernel[0] > budget and len(inner) * self.tile.rows > 2 * chunk
        with (
            k.loop("n", 0, geo.batch) as n,
            k.loop("stripe", 0, geo.out_height, stripe) as first,
            k.loop("g", 0, geo.group) as g,
        ):

            def rows(low: Expr, high: Expr, borders: list[int]) -> None:
                def body(block: Block, at: Expr, column: Expr) -> None:
                    with k.loop("oh", first, imin(first + stripe, geo.out_height)) as oh:
                        self._row(n, oh, g, block, at, column, low, high, borders)

                self._each_block(taps, body, g)

            start, stop = (inner[0], inner[-1] + self.tile.rows) if inner else (0, 0)
            if not long:
                rows(idx(start), idx(stop), edges)
            else:
                with k.loop("chunk", start, stop, chunk) as at:
                    rows(at, k.let("chunk_end", imin(at + chunk, stop)), [])
                rows(idx(0), idx(0), edges)

    def _tiles(self) -> tuple[list[int], list[int]]:
        """First columns of the tiles that lie inside with all their taps, and of those that do not."""
        geo, rows = self.geo, self.tile.rows
        inner = [c for c in range(0, geo.out_width - rows + 1, rows) if geo.all_inside(c, rows)]
        known = set(inner)
        return inner, [c for c in range(0, geo.out_width, rows) if c not in known]

    def _row(
        self,
        n: Expr,
        oh: Expr,
        g: Expr,
        block: Block,
        at: Expr,
        column: Expr,
        first: Expr,
        last: Expr,
        edges: list[int],
    ) -> None:
        geo, k = self.geo, self.k
        top = k.let("top", oh * geo.strides[0] - geo.pads[0])
        step = geo.dilations[0]
        low: Expr = idx(0)
        if geo.pads[0]:  # first window row inside the image
            low = k.let("kh_first", imax(0, (0 - top + (step - 1)) // step) if step > 1 else imax(0, 0 - top))
        high: Expr = idx(geo.kernel[0])
        if (geo.out_height - 1) * geo.strides[0] - geo.pads[0] + (geo.kernel[0] - 1) * step >= geo.height:
            inside = (idx(geo.height + step - 1) - top) // step
            high = k.let("kh_last", imin(geo.kernel[0], inside))
        line = k.let("line", (n * geo.height + top) * (geo.width * geo.channels) + g * geo.depth)
        out = k.let("out", (n * geo.out_height + oh) * (geo.out_width * geo.out_channels) + g * geo.columns + column)
        rows = self.tile.rows
        with k.loop("ow", first, last, rows) as ow:
            self._image_tile(ow, rows, None, low, high, line, out, block, at, column, g)
        for c in edges:
            with k.block():
                self._image_tile(idx(c), min(rows, geo.out_width - c), c, low, high, line, out, block, at, column, g)

    def _image_tile(
        self, ow: Expr, rows: int, edge: int | None, low: Expr, high: Expr, line: Expr, out: Expr, block: Block, at: Expr,
        column: Expr, g: Expr,
    ) -> None:  # fmt: skip
        """One tile. `edge` is its first column where taps may be outside, None where all are inside."""
        geo, k, e = self.geo, self.k, self.e
        kw_count, depth, width = geo.kernel[1], geo.depth, block.vectors * e.lanes
        acc = self._start(rows, block, column, g)
        step = geo.strides[1] * geo.channels
        with k.loop("kh", low, high) as kh:
            start = k.let(
                "start",
                line + kh * (geo.dilations[0] * geo.width * geo.channels) + (ow * geo.strides[1] - geo.pads[1]) * geo.channels,
            )
            panel = k.let("panel", at + kh * (kw_count * depth * width))
            joined = edge is None and geo.dilations[1] == 1 and geo.group == 1
            if joined:
                with k.loop("j", 0, kw_count * depth) as j:
                    acc.step(self.w, panel + j * width, self.x, {r: start + r * step + j for r in range(rows)})
            elif edge is None:
                with k.loop("kw", 0, kw_count) as kw:
                    tap = k.let("tap", start + kw * (geo.dilations[1] * geo.channels))
                    with k.loop("j", 0, depth) as j:
                        acc.step(
                            self.w,
                            panel + (kw * depth + j) * width,
                            self.x,
                            {r: tap + r * step + j for r in range(rows)},
                        )
            else:
                self._edge_taps(acc, edge, rows, start, panel, step, width)
        self._finish(acc, block, column, [out + (ow + r) * geo.out_channels for r in range(rows)], g)

    def _edge_taps(self, acc: Accumulators, edge: int, rows: int, start: Expr, panel: Expr, step: int, width: int) -> None:
        """Neighbouring taps with the same rows inside share a loop."""
        geo, k = self.geo, self.k
        valid = [geo.valid_rows(edge, rows, kw) for kw in range(geo.kernel[1])]
        kw = 0
        while kw < geo.kernel[1]:
            last = kw + 1
            if geo.dilations[1] == 1 and geo.group == 1:
                while last < geo.kernel[1] and valid[last] == valid[kw]:
                    last += 1
            if valid[kw]:
                tap = start + kw * geo.dilations[1] * geo.channels
                with k.loop("j", 0, (last - kw) * geo.depth) as j:
                    places = {r: tap + r * step + j for r in valid[kw]}
                    acc.step(self.w, panel + (j + kw * geo.depth) * width, self.x, places)
            kw = last

    # Both -----------------------------------------------------------------------------------------------------------

    def _start(self, rows: int, block: Block, column: Expr, g: Expr) -> Accumulators:
        e, b = self.e, self.b
        if b is None:
            return Accumulators(self.k, e, rows, block, lambda v: e.const(0.0))
        stored = sum(x.vectors * e.lanes for x in self.blocks)
        base = g * stored + column
        firsts = [self.k.let(f"bias{v}", e.load(b, base + v * e.lanes)) for v in range(block.vectors)]
        return Accumulators(self.k, e, rows, block, lambda v: firsts[v])

    def _finish(self, acc: Accumulators, block: Block, column: Expr, places: list[Expr], g: Expr | None = None) -> None:
        e, k = self.e, self.k
        channel = column + (g if g is not None else idx(0)) * self.geo.columns
        for r, place in enumerate(places):
            for v in range(block.vectors):
                count = block.lanes_of(v, e.lanes)
                at = place + v * e.lanes
                value = self.epilogue.finish(k, e, acc.at[r][v], channel + v * e.lanes, at, count)
                k.store(self.y, at, value, count if e.vector else 0)
