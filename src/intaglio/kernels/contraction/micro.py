"""What an instruction set does in the middle of a contraction: the protocol of micro-kernels.

    sums = start(rows, block)                        rows x block.vectors variables, from the bias
    for each run, for each step:  step(sums, ...)    `group` reduction indices of every row times a row of packed weights
    finish(sums, ...)                                scaled or activated, stored

`pack` happens when a micro-kernel is made: `w` holds the weights block by block, in a block run by run, step by step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.tile import Block
from intaglio.kernels.loop import Buffer, Expr, Var

Sums = list[list[Var]]  # by row and vector


@dataclass(frozen=True, slots=True)
class Column:
    """The first output column of a block: which of the packed ones it is, groups padded to whole vectors, and which channel. `row`
    is the first row of the tile in a matrix."""

    packed: Expr
    channel: Expr
    row: Expr


class MicroKernel(Protocol):
    @property
    def lanes(self) -> int:
        """Output columns of one vector."""

    @property
    def group(self) -> int:
        """Reduction indices that one step takes."""

    @property
    def w(self) -> Buffer: ...

    def start(self, k: Builder, rows: int, block: Block, at: Column) -> Sums: ...

    def step(self, k: Builder, sums: Sums, w_at: Expr, x: Buffer, places: Mapping[int, Expr]) -> None:
        """Rows without a place do not take part."""

    def finish(self, k: Builder, sums: Sums, block: Block, at: Column, places: list[Expr]) -> None: ...


class Reduction(Protocol):
    """How a tile adds its steps where they do not follow each other in memory."""

    def reduce(self, k: Builder, sums: Sums, first: Expr, across: int, at: Expr, where: Column, x: Buffer) -> None:
        """Add all steps of a tile whose windows start at `first`, `across` numbers from one row to the next."""
