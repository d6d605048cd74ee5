"""How the operands of a window come to a micro-kernel.

    Direct    where they are; tiles at the border leave out the taps that are outside
    Stage     as rows in the type and with the padding that the micro-kernel wants (`stage.py`)

A gather says which input rows and columns a tile reads; `tiles.py` writes the loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from intaglio.ir.sizes import Size, most
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.loop import Buffer, Expr, idx, imin

Span = Callable[[Expr, Expr, list[int]], None]  # first and last column of whole tiles, first columns of the others


@dataclass(frozen=True, slots=True)
class Line:
    """The input of an output row: where it starts, and the rows of the window that are there."""

    start: Expr
    low: Expr
    high: Expr


class Gather(Protocol):
    @property
    def buffer(self) -> Buffer: ...

    @property
    def pitch(self) -> int:
        """Elements from one row to the next."""

    @property
    def left(self) -> int:
        """Columns of padding that are not stored."""

    @property
    def stripe(self) -> int:
        """Output rows at a time."""

    @property
    def image(self) -> Problem:
        """The problem, with the borders that tiles meet."""

    def prepare(self, k: Builder) -> None: ...

    def load(self, k: Builder, n: Expr, first: Expr, x_base: Expr) -> Expr:
        """What the stripe from output row `first` of image `n` on needs; returns where that image starts in x."""

    def line(self, k: Builder, n: Expr, oh: Expr, first: Expr, base: Expr, g: Expr) -> Line: ...

    def spans(self, k: Builder, rows: int, write: Span) -> None:
        """Call `write` for the columns of an output row, in tiles of `rows` pixels."""

    def taps_inside(self, column: int, rows: int) -> list[list[int]] | None:
        """For each column of the window, the rows of the tile whose tap is there; None where all are."""


@dataclass(frozen=True, slots=True)
class Direct:
    """x as it is. Stripes of output rows are as high as half of the L2 cache allows."""

    problem: Problem
    x: Buffer
    l2_bytes: int

    @property
    def buffer(self) -> Buffer:
        return self.x

    @property
    def pitch(self) -> int:
        return self.problem.width * self.problem.channels

    @property
    def left(self) -> int:
        return self.problem.pads[1]

    @property
    def image(self) -> Problem:
        return self.problem

    @property
    def _row_bytes(self) -> int:
        return self.pitch * 4 * self.problem.strides[0]

    @property
    def stripe(self) -> int:
        return max(1, min(most(self.problem.out_height), self.l2_bytes // 2 // most(self._row_bytes)))

    def prepare(self, k: Builder) -> None:
        pass

    def load(self, k: Builder, n: Expr, first: Expr, x_base: Expr) -> Expr:
        return x_base

    def line(self, k: Builder, n: Expr, oh: Expr, first: Expr, base: Expr, g: Expr) -> Line:
        p = self.problem
        top, low, high = p.window_rows(k, oh)
        return Line(k.let("line", base + (n * p.height + top) * self.pitch + g * p.depth), low, high)

    def spans(self, k: Builder, rows: int, write: Span) -> None:
        """Where a single row is too long for the cache, its inner tiles go in chunks and those at the borders come after them."""
        p = self.problem
        if isinstance(p.out_width, Size):  # `pieces.py` divides it
            write(idx(0), idx(p.out_width), [])
            return
        inner, edges = p.inner_and_edges(rows)
        start, stop = (inner[0], inner[-1] + rows) if inner else (0, 0)
        budget = self.l2_bytes // 2
        pixel_bytes = p.channels * 4 * p.strides[1] * p.kernel[0]
        chunk = max(rows, budget // 2 // pixel_bytes // rows * rows)
        if not inner or self._row_bytes * p.kernel[0] <= budget or len(inner) * rows <= 2 * chunk:
            write(idx(start), idx(stop), edges)
            return
        with k.loop("chunk", start, stop, chunk) as at:
            write(at, k.let("chunk_end", imin(at + chunk, stop)), [])
        write(idx(0), idx(0), edges)

    def taps_inside(self, column: int, rows: int) -> list[list[int]] | None:
        return [self.problem.valid_rows(column, rows, kw) for kw in range(self.problem.kernel[1])]
