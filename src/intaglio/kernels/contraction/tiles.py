"""The loops around register tiles, for any gather and micro-kernel.

    image     for each stripe of output rows whose input stays in the cache, for each block of channels, for each row: tiles
    matrix    for each chunk of rows that stays in L2, for each block of columns, whose weights stay in L1: tiles
"""

from __future__ import annotations

from collections.abc import Callable

from intaglio.kernels.contraction.gather import Gather, Line
from intaglio.kernels.contraction.micro import Column, MicroKernel, Reduction, Sums
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.contraction.tile import Block, Tile, blocks_of
from intaglio.kernels.loop import Buffer, Builder, Expr, idx, imin

BlockBody = Callable[[Block, Expr, Expr], None]  # the block, where its weights start, its first column


class Tiles:
    """`x_base`, `w_base` and `y_base` are where this problem starts when a kernel computes several; `x_pitch` and `y_pitch` are
    the numbers from one row of a matrix to the next."""

    def __init__(self, k: Builder, problem: Problem, tile: Tile, micro: MicroKernel, steps: Reduction | None = None) -> None:
        self.k, self.problem, self.tile, self.micro, self.steps = k, problem, tile, micro, steps
        self.x_base = self.w_base = self.y_base = idx(0)
        self.x_pitch, self.y_pitch = problem.channels, problem.out_channels
        self.blocks = blocks_of(problem.columns, tile.vectors, micro.lanes)
        self.stored = sum(b.vectors for b in self.blocks) * micro.lanes

    # Image ----------------------------------------------------------------------------------------------------------

    def image(self, gather: Gather) -> None:
        p, k = self.problem, self.k
        gather.prepare(k)
        with k.loop("n", 0, p.batch) as n, k.loop("stripe", 0, p.out_height, gather.stripe) as first:
            base = gather.load(k, n, first, self.x_base)
            with k.loop("g", 0, p.group) as g:

                def span(low: Expr, high: Expr, edges: list[int]) -> None:
                    def block_rows(block: Block, at: Expr, column: Expr) -> None:
                        with k.loop("oh", first, imin(first + gather.stripe, p.out_height)) as oh:
                            line = gather.line(k, n, oh, first, base, g)
                            row = (n * p.out_height + oh) * (p.out_width * p.out_channels)
                            out = k.let("out", self.y_base + row + g * p.columns + column)
                            where = Column(g * self.stored + column, g * p.columns + column, oh)
                            self._row(gather, line, low, high, edges, block, at, where, out)

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
        self, gather: Gather, line: Line, low: Expr, high: Expr, edges: list[int], block: Block, at: Expr, where: Column, out: Expr
    ) -> None:
        p, k, rows = self.problem, self.k, self.tile.rows
        with k.loop("ow", low, high, rows) as ow:
            self._tile(gather, line, ow, rows, None, block, at, where, out)
        for c in edges:
            with k.block():
                count = min(rows, p.out_width - c)
                self._tile(gather, line, idx(c), count, gather.taps_inside(c, count), block, at, where, out)

    def _tile(
        self, gather: Gather, line: Line, ow: Expr, rows: int, inside: list[list[int]] | None, block: Block, at: Expr,
        where: Column, out: Expr,
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
                self._edge(gather.buffer, sums, inside, start, panel, width)
            else:
                with k.loop("kw", 0, across) as kw:
                    tap = k.let("tap", start + kw * (p.dilations[1] * p.channels))
                    with k.loop("j", 0, steps) as j:
                        places = self._places(tap + j * micro.group, range(rows))
                        micro.step(k, sums, panel + (kw * steps + j) * width, gather.buffer, places)
        micro.finish(k, sums, block, where, [out + (ow + r) * p.out_channels for r in range(rows)])

    def _places(self, first: Expr, rows: range | list[int]) -> dict[int, Expr]:
        step = self.problem.strides[1] * self.problem.channels
        return {r: first + r * step for r in rows}

    def _edge(self, x: Buffer, sums: Sums, inside: list[list[int]], start: Expr, panel: Expr, width: int) -> None:
        """Neighbouring taps with the same rows inside share a loop."""
        p, k = self.problem, self.k
        kw = 0
        while kw < p.kernel[1]:
            last = kw + 1
            while p.joined and last < p.kernel[1] and inside[last] == inside[kw]:
                last += 1
            if inside[kw]:
                tap = start + kw * p.dilations[1] * p.channels
                with k.loop("j", 0, (last - kw) * p.depth) as j:
                    self.micro.step(k, sums, panel + (j + kw * p.depth) * width, x, self._places(tap + j, inside[kw]))
            kw = last

    # Matrix: 1x1 convolutions and everything that is one ------------------------------------------------------------

    def matrix(self, x: Buffer, l2_bytes: int) -> None:
        """All rows of x where they are."""
        p, k, high = self.problem, self.k, self.tile.rows
        rows, depth = p.rows, p.channels
        tall, packed = rows // high * high, self._packed_depth()
        per_chunk = max(1, l2_bytes // 2 // (depth * x.dtype.bytes) // high) * high
        with k.loop("chunk", 0, tall, per_chunk) as chunk:

            def whole(block: Block, at: Expr, column: Expr) -> None:
                with k.loop("m", chunk, imin(chunk + per_chunk, tall), high) as m:
                    self._matrix_tile(x, m, high, block, at, column)

            self._each_block(packed, whole)
        if rows > tall:
            with k.block():
                self._each_block(packed, lambda block, at, col: self._matrix_tile(x, idx(tall), rows - tall, block, at, col))

    def first_rows(self, x: Buffer, count: Expr, rest: int) -> None:
        """The first `count` rows of x, which the running program knows: whole tiles, or whole tiles and `rest` rows."""
        k, high = self.k, self.tile.rows
        tall = k.let("tall", count // high * high) if rest else count

        def body(block: Block, at: Expr, column: Expr) -> None:
            with k.loop("m", 0, tall, high) as m:
                self._matrix_tile(x, m, high, block, at, column)
            if rest:
                with k.when(tall.compare("lt", count)):
                    self._matrix_tile(x, tall, rest, block, at, column)

        self._each_block(self._packed_depth(), body)

    def _matrix_tile(self, x: Buffer, m: Expr, rows: int, block: Block, at: Expr, column: Expr) -> None:
        p, k, micro = self.problem, self.k, self.micro
        where = Column(column, column, m)
        sums = micro.start(k, rows, block, where)
        base = k.let("row", self.x_base + m * self.x_pitch)
        with k.loop("j", 0, -(-p.channels // micro.group)) as j:
            places = {r: base + r * self.x_pitch + j * micro.group for r in range(rows)}
            micro.step(k, sums, at + j * (block.vectors * micro.lanes * micro.group), x, places)
        outs = [k.let(f"to{r}", self.y_base + (m + r) * self.y_pitch + column) for r in range(rows)]
        micro.finish(k, sums, block, where, outs)

    # Both -----------------------------------------------------------------------------------------------------------

    def _each_block(self, depth: int, body: BlockBody, group: Expr | None = None) -> None:
        """Call `body` for every block of columns, each `depth` packed numbers long; equal ones in one loop."""
        k, wide = self.k, self.tile.vectors * self.micro.lanes
        whole = [b for b in self.blocks if b.width == wide]
        base = self.w_base + (group or idx(0)) * (self.stored * depth)
        if whole:
            with k.loop("block", 0, len(whole)) as n:
                body(whole[0], k.let("wat", base + n * (wide * depth)), k.let("col", n * wide))
        for block in self.blocks[len(whole) :]:
            with k.block():
                body(block, k.let("wat", base + block.first * depth), idx(block.first))
