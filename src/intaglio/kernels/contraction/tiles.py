"""The loops around register tiles, for any gather and micro-kernel.

    image     for each stripe of output rows whose input stays in the cache, for each block of channels, for each row: tiles
    matrix    for each chunk of rows that stays in L2, for each block of columns, whose weights stay in L1: tiles
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from intaglio.ir.sizes import Size, larger, least, most, possible
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.gather import Gather, Line
from intaglio.kernels.contraction.micro import Column, MicroKernel, Reduction, Sums
from intaglio.kernels.contraction.pieces import pieces
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.contraction.tile import Block, Tile, all_blocks
from intaglio.kernels.loop import Buffer, Expr, Operand, both, idx, imin, select
from intaglio.targets import Target

ABREAST = 8  # sums of vectors that hide the latency of their additions
MOST_TAPS = 64  # of a row of all narrow images over a range that have code of their own
LINE_BYTES = 64
FAR_BYTES = 65536  # weights of this size and more are not in a near cache when a layer starts
FEWER = 8  # of the most rows that there can be, the part for which all weights are asked for ahead of time. Zen 4, AVX2, a BERT of
# 1 to 128 tokens: 17 take 3.9 ms, and 4.4 ms where only tiles of half of the rows ask for all of them; 128 take the same time
SPREAD = 16  # steps of a tile between two requests for memory
MOST_LINES = 24  # of them at a time: more than a core has under way
BlockBody = Callable[[Block, Expr, Expr], None]  # the block, where its weights start, its first column


@dataclass(frozen=True, slots=True)
class Ahead:
    """What a tile asks for of the weights of the next block: `lines` of memory after each `SPREAD` steps, from element `first` on.

    All tiles of a block share this, so that memory and arithmetic are busy at the same time. A core's own prefetching begins when
    the first tile reads the block, and stops at the end of each page. Behind the last block are the weights of the next layer."""

    first: Expr
    lines: int


class Tiles:
    """`x_base`, `w_base` and `y_base` are where this problem starts when a kernel computes several; `x_pitch` and `y_pitch` are
    the numbers from one row of a matrix to the next. `most_taps` is for `pieces.py`: 0 where code is short."""

    def __init__(
        self, k: Builder, problem: Problem, tile: Tile, micro: MicroKernel, steps: Reduction | None = None, far: bool = False
    ) -> None:
        self.k, self.problem, self.tile, self.micro, self.steps, self.far = k, problem, tile, micro, steps, far
        self.x_base = self.w_base = self.y_base = idx(0)
        self.x_pitch, self.y_pitch = problem.channels, problem.out_channels
        self.most_taps = MOST_TAPS
        self.blocks = all_blocks(problem.columns, tile.vectors, micro.lanes)
        self.stored = -(-problem.columns // micro.lanes) * micro.lanes

    # Image ----------------------------------------------------------------------------------------------------------

    def image(self, gather: Gather) -> None:
        p, k = self.problem, self.k
        gather.prepare(k)
        with k.loop("n", 0, p.batch) as n, k.steps("stripe", p.out_height, gather.stripe) as first:
            base = gather.load(k, n, first, self.x_base)
            with k.loop("g", 0, p.group) as g:

                def span(low: Expr, high: Expr, edges: list[int]) -> None:
                    def block_rows(block: Block, at: Expr, column: Expr) -> None:
                        with k.loop("oh", first, imin(first + gather.stripe, p.out_height)) as oh:
                            line = gather.line(k, n, oh, first, base, g)
                            row = (n * p.out_height + oh) * (p.out_width * p.out_channels)
                            out = k.let("out", self.y_base + row + g * p.columns + column)
                            where = Column(g * self.stored + column, g * p.columns + column, oh)
                            self._row(gather, line, low, high, edges, block, at, where, out, oh - first)

                    self._each_block(self._packed_depth(), block_rows, g)

                gather.spans(k, self.tile.rows, span)

    def _runs(self) -> tuple[int, int]:
        """Runs of memory in a row of a window, and steps of each."""
        p = self.problem
        across, length = (1, p.kernel[1] * p.depth) if p.joined else (p.kernel[1], p.depth)
        return across, -(-length // self.micro.group)

    def _packed_depth(self) -> int:
        """Packed numbers of one output column."""
        across, steps = self._runs()
        return self.problem.kernel[0] * across * steps * self.micro.group

    def _row(
        self, gather: Gather, line: Line, low: Expr, high: Expr, edges: list[int], block: Block, at: Expr, where: Column, out: Expr,
        down: Expr,
    ) -> None:  # fmt: skip
        """`down`: which row of the stripe it is."""
        p, k, rows = self.problem, self.k, self.tile.rows
        abreast = -(-most(p.out_width) // rows)
        if isinstance(p.out_width, Size):
            for piece in pieces(gather.image, k, rows, self.most_taps):
                if piece.side:
                    self._side(gather, line, piece.column, block, at, where, out)
                    continue
                whole = piece.whole and piece.count == rows
                ahead = self._ahead(block, at, gather.stripe * abreast, down * abreast + piece.column // rows) if whole else None
                self._tile(gather, line, piece.column, piece.count, piece.inside, block, at, where, out, ahead)
            return
        with k.loop("ow", low, high, rows) as ow:
            ahead = self._ahead(block, at, most(gather.stripe) * abreast, down * abreast + ow // rows)
            self._tile(gather, line, ow, rows, None, block, at, where, out, ahead)
        for c in edges:
            with k.block():
                count = min(rows, p.out_width - c)
                ahead = self._ahead(block, at, most(gather.stripe) * abreast, down * abreast + c // rows)
                self._tile(gather, line, idx(c), count, gather.taps_inside(c, count), block, at, where, out, ahead)

    def _tile(
        self, gather: Gather, line: Line, ow: Expr, rows: int, inside: list[list[int]] | None, block: Block, at: Expr,
        where: Column, out: Expr, ahead: Ahead | None = None,
    ) -> None:  # fmt: skip
        """One tile. `inside` is None where all of its taps are inside the image."""
        p, k, micro = self.problem, self.k, self.micro
        across, steps = self._runs()
        width = block.vectors * micro.lanes * micro.group
        sums = micro.start(k, rows, block, where)
        left = (ow * p.strides[1] - gather.left) * p.channels
        if self.steps is not None:
            first = k.let("start", line.start + left)
            self.steps.reduce(k, sums, first, p.strides[1] * p.channels, at, where, gather.buffer)
            micro.finish(k, sums, block, where, [out + (ow + r) * p.out_channels for r in range(rows)])
            return
        with k.loop("kh", line.low, line.high) as kh:
            start = k.let("start", line.start + kh * (p.dilations[0] * gather.pitch) + left)
            panel = k.let("panel", at + kh * (across * steps * width))
            if inside is not None:
                self._edge(gather.buffer, sums, inside, start, panel, width, ahead, kh)
            else:
                with k.loop("kw", 0, across) as kw:
                    tap = k.let("tap", start + kw * (p.dilations[1] * p.channels))

                    def step(j: Expr) -> None:
                        places = self._places(tap + j * micro.group, range(rows))
                        micro.step(k, sums, panel + (kw * steps + j) * width, gather.buffer, places)

                    self._steps(steps, step, ahead, kh * across + kw)
        micro.finish(k, sums, block, where, [out + (ow + r) * p.out_channels for r in range(rows)])

    def _side(self, gather: Gather, line: Line, ow: Expr, block: Block, at: Expr, where: Column, out: Expr) -> None:
        """One pixel, of whose window only the running program knows what is inside the image."""
        p, k, micro = self.problem, self.k, self.micro
        across, steps = self._runs()
        each, width = steps if across > 1 else p.depth, block.vectors * micro.lanes  # steps of a tap
        sums = micro.start(k, 1, block, where)
        left = k.let("left", ow * p.strides[1] - gather.left)
        low, high = p.columns_inside(k, left)
        with k.loop("kh", line.low, line.high) as kh:
            start = k.let("start", line.start + kh * (p.dilations[0] * gather.pitch) + left * p.channels)
            panel = k.let("panel", at + kh * (p.kernel[1] * each * width))
            with k.loop("kw", low, high) as kw:
                tap = k.let("tap", start + kw * (p.dilations[1] * p.channels))
                with k.loop("j", 0, each) as j:
                    micro.step(k, sums, panel + (kw * each + j) * width, gather.buffer, {0: tap + j})
        micro.finish(k, sums, block, where, [out + ow * p.out_channels])

    def _ahead(self, block: Block, at: Expr, tiles: int, number: Expr) -> Ahead | None:
        """For tile `number` of the `tiles` that the block has, whose weights start at `at`."""
        across, steps = self._runs()
        times = self.problem.kernel[0] * across * (most(steps) // SPREAD)
        if not self.far or not times * tiles:
            return None
        panel, line = block.vectors * self.micro.lanes * self._packed_depth(), LINE_BYTES // self.micro.w.dtype.bytes
        lines = min(MOST_LINES, -(-panel // (line * times * tiles)))
        return Ahead(self.k.let("ahead", at + panel + number * (times * lines * line)), lines)

    def _steps(self, count: int, step: Callable[[Expr], None], ahead: Ahead | None, run: Operand = 0) -> None:
        """`step(j)` for all steps of a run of memory, which is number `run` of its tile."""
        k, spans = self.k, count // SPREAD
        if ahead is None or isinstance(count, Size):
            with k.loop("j", 0, count) as j:
                step(j)
            return
        line = LINE_BYTES // self.micro.w.dtype.bytes
        with k.loop("span", 0, spans) as span:
            for n in range(ahead.lines):
                k.prefetch(self.micro.w, ahead.first + (idx(run) * spans + span) * (ahead.lines * line) + n * line)
            with k.loop("j", span * SPREAD, span * SPREAD + SPREAD) as j:
                step(j)
        with k.loop("j", spans * SPREAD, count) as j:
            step(j)

    def _places(self, first: Expr, rows: range | list[int]) -> dict[int, Expr]:
        step = self.problem.strides[1] * self.problem.channels
        return {r: first + r * step for r in rows}

    def _edge(
        self, x: Buffer, sums: Sums, inside: list[list[int]], start: Expr, panel: Expr, width: int, ahead: Ahead | None, kh: Expr
    ) -> None:
        """Neighbouring taps with the same rows inside share a loop."""
        p = self.problem
        kw = 0
        while kw < p.kernel[1]:
            last = kw + 1
            while p.joined and last < p.kernel[1] and inside[last] == inside[kw]:
                last += 1
            if inside[kw]:
                self._edge_taps(x, sums, inside[kw], start, panel, width, ahead, kh, range(kw, last))
            kw = last

    def _edge_taps(
        self, x: Buffer, sums: Sums, rows: list[int], start: Expr, panel: Expr, width: int, ahead: Ahead | None, kh: Expr,
        taps: range,
    ) -> None:  # fmt: skip
        p, kw = self.problem, taps.start
        tap = start + kw * p.dilations[1] * p.channels

        def step(j: Expr) -> None:
            self.micro.step(self.k, sums, panel + (j + kw * p.depth) * width, x, self._places(tap + j, rows))

        self._steps(len(taps) * p.depth, step, ahead, kh * self._runs()[0] + (0 if p.joined else kw))

    # Matrix: 1x1 convolutions and everything that is one ------------------------------------------------------------

    def matrix(self, x: Buffer, l2_bytes: int) -> None:
        """All rows of x where they are."""
        p, k, high = self.problem, self.k, self.tile.rows
        rows = p.rows
        tall, packed = rows // high * high, self._packed_depth()
        per_chunk = self._chunk(most(rows), most(p.channels) * x.dtype.bytes, l2_bytes)
        if isinstance(rows, Size) and most(rows) <= per_chunk:
            self._matrix_of_some(x, rows)
            return

        once = not isinstance(rows, Size) and tall <= per_chunk  # rows that are left come while the weights of a block are there

        def whole(block: Block, at: Expr, column: Expr) -> None:
            with k.loop("m", chunk, imin(chunk + per_chunk, tall), high) as m:
                ahead = self._ahead(block, at, per_chunk // high, (m - chunk) // high)
                self._matrix_tile(x, m, high, block, at, column, ahead)
            if once and rows > tall:
                with k.block():
                    self._matrix_tile(x, idx(tall), rows - tall, block, at, column)

        with k.loop("chunk", 0, max(1, tall) if once else tall, per_chunk) as chunk:
            self._each_block(packed, whole)

        def last(count: int) -> None:
            with k.block():
                self._each_block(packed, lambda block, at, col: self._matrix_tile(x, idx(tall), count, block, at, col))

        if not once:
            k.one_of(rows - tall, last)

    def _chunk(self, rows: int, row_bytes: int, l2_bytes: int) -> int:
        """Rows of x that are multiplied by all weights before the next ones are: all of them where they stay in L2 beside the
        weights of a block, else as many as fill half of it, evened out."""
        high, panel = self.tile.rows, self.blocks.wide.width * self._packed_depth() * self.micro.w.dtype.bytes
        tiles = -(-rows // high)
        if rows * row_bytes + panel <= l2_bytes:
            return tiles * high
        chunks = -(-tiles // max(1, l2_bytes // 2 // row_bytes // high))
        return -(-tiles // chunks) * high

    def _matrix_of_some(self, x: Buffer, rows: int) -> None:
        """As many rows as the caller says, which stay in L2: weights of a block serve them all while they are in L1.

        A tile of one row takes as long as one of three, so rows that are left are evened out: 17 are 4+4+3+3+3, not 4+4+4+4+1.
        Only few rows cannot be: 5 are 4+1."""
        k, high = self.k, self.tile.rows
        abreast = -(-ABREAST // self.tile.vectors)
        if least(rows) == 1 and high > 1 and abreast > 1 and not isinstance(self.blocks.whole, Size):
            with k.when(idx(rows).compare("eq", 1)):
                self._one_row(x, abreast)
            with k.otherwise():
                self._evened_rows(x, rows)
            return
        self._evened_rows(x, rows)

    def _one_row(self, x: Buffer, abreast: int) -> None:
        """A single row: several blocks of columns at the same time, so that enough sums are under way."""
        k, blocks, depth = self.k, self.blocks, self._packed_depth()
        wide = blocks.wide.width
        groups = blocks.whole // abreast

        def panels(first: Expr, count: int) -> None:
            columns = [k.let("col", (first + n) * wide) for n in range(count)]
            places = [k.let("wat", self.w_base + column * depth) for column in columns]
            self._matrix_tiles(x, idx(0), 1, blocks.wide, list(zip(places, columns, strict=True)))

        with k.loop("group", 0, groups) as n:
            panels(n * abreast, abreast)
        if blocks.whole % abreast:
            with k.block():
                panels(idx(groups * abreast), blocks.whole % abreast)
        for block in blocks.last:
            with k.block():
                at = k.let("wat", self.w_base + block.first * depth)
                self._matrix_tile(x, idx(0), 1, block, at, idx(block.first))

    def _evened_rows(self, x: Buffer, rows: int) -> None:
        k, high = self.k, self.tile.rows
        lower = (high - rows % high) % high  # tiles that have one row less
        whole = (rows + high - 1) // high - lower  # the others; negative where that does not work out
        few = sorted({n % high for n in possible(rows) if -(-n // high) < (high - n % high) % high})
        tall = k.let("tall", larger(whole, 0) * high)
        if few:
            uneven = idx(whole).compare("lt", 0)
            tall = k.let("tall", select(uneven, idx(rows // high * high), tall))

        usual = max(1, most(rows) // high // FEWER)  # tiles that ask for a block; where there are more, they ask for what is behind

        def body(block: Block, at: Expr, column: Expr) -> None:
            with k.loop("m", 0, tall, high) as m:
                self._matrix_tile(x, m, high, block, at, column, self._ahead(block, at, usual, m // high))

            def evened() -> None:
                if most(lower):
                    with k.loop("m", tall, rows, high - 1) as m:
                        self._matrix_tile(x, m, high - 1, block, at, column, self._ahead(block, at, usual, m // high))

            if not few:
                evened()
                return
            for count in few:
                with k.when(both(uneven, idx(rows % high).compare("eq", count))):
                    self._matrix_tile(x, tall, count, block, at, column, self._ahead(block, at, usual, tall // high))
            with k.when(idx(whole).compare("ge", 0)):
                evened()

        self._each_block(self._packed_depth(), body)

    def first_rows(self, x: Buffer, count: Expr, rest: int) -> None:
        """The first `count` rows of x, which the running program knows: whole tiles, or whole tiles and `rest` rows."""
        p, k, high = self.problem, self.k, self.tile.rows
        tall = k.let("tall", count // high * high) if rest != 0 else count

        def body(block: Block, at: Expr, column: Expr) -> None:
            with k.loop("m", 0, tall, high) as m:
                ahead = self._ahead(block, at, p.rows // high, m // high)
                self._matrix_tile(x, m, high, block, at, column, ahead)
            if rest != 0:
                with k.when(tall.compare("lt", count)):
                    k.one_of(rest, lambda rows: self._matrix_tile(x, tall, rows, block, at, column))

        self._each_block(self._packed_depth(), body)

    def _matrix_tile(
        self, x: Buffer, m: Expr, rows: int, block: Block, at: Expr, column: Expr, ahead: Ahead | None = None
    ) -> None:
        self._matrix_tiles(x, m, rows, block, [(at, column)], ahead)

    def _matrix_tiles(
        self, x: Buffer, m: Expr, rows: int, block: Block, panels: list[tuple[Expr, Expr]], ahead: Ahead | None = None
    ) -> None:
        """Tiles of the same rows side by side: where the weights of each start, and its first column."""
        p, k, micro = self.problem, self.k, self.micro
        wheres = [Column(column, column, m) for _, column in panels]
        sums = [micro.start(k, rows, block, where) for where in wheres]
        base = k.let("row", self.x_base + m * self.x_pitch)

        def step(j: Expr) -> None:
            places = {r: base + r * self.x_pitch + j * micro.group for r in range(rows)}
            for (at, _), each in zip(panels, sums, strict=True):
                micro.step(k, each, at + j * (block.vectors * micro.lanes * micro.group), x, places)

        self._steps(-(-p.channels // micro.group), step, ahead)
        for (_, column), each, where in zip(panels, sums, wheres, strict=True):
            outs = [k.let(f"to{r}", self.y_base + (m + r) * self.y_pitch + column) for r in range(rows)]
            micro.finish(k, each, block, where, outs)

    # Both -----------------------------------------------------------------------------------------------------------

    def _each_block(self, depth: int, body: BlockBody, group: Expr | None = None) -> None:
        """Call `body` for every block of columns, each `depth` packed numbers long; equal ones in one loop."""
        k, wide, blocks = self.k, self.blocks.wide.width, self.blocks
        base = self.w_base + (group or idx(0)) * (self.stored * depth)
        if most(blocks.whole):
            with k.loop("block", 0, blocks.whole) as n:
                body(blocks.wide, k.let("wat", base + n * (wide * depth)), k.let("col", n * wide))
        for block in blocks.last:
            with k.block():
                body(block, k.let("wat", base + block.first * depth), idx(block.first))

        def rest(vectors: int) -> None:
            first = k.let("col", blocks.whole * wide)
            body(Block(0, vectors * self.micro.lanes, vectors), k.let("wat", base + first * depth), first)

        k.one_of(blocks.rest, rest)


def far_weights(target: Target, size_bytes: int) -> bool:
    """Are weights of this size worth asking for ahead of time?"""
    return not target.bare and not target.wasm and size_bytes >= FAR_BYTES
