"""The loops around micro-kernels that are routines in C: windows are gathered as columns, several at a time, then multiplied by
all channels.

    for each image, group and output row:
        for at in steps of 4:                          what is left of the row in steps of 2, then 1
            gather(the windows of at .. at + 3)
            multiply(these columns, results of at)

A matrix product is an image one pixel high.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeVar

from intaglio.ir.sizes import Size, most
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.job import Job
from intaglio.kernels.loop import Expr, Operand, idx

EVEN = 1.08  # the work of the part that does most, of the mean
LEAST_COLUMNS = 32  # channels: with fewer, gathering takes too large a share
T = TypeVar("T")  # where gathered columns are


@dataclass(frozen=True, slots=True)
class Row:
    """An output row of a group: where the group's image starts in x, and the top of its windows."""

    base: Expr
    top: Expr


class ColumnKernel(Protocol[T]):
    @property
    def widths(self) -> tuple[int, ...]:
        """Columns at a time: the most first, 1 last."""

    def gather(self, k: Builder, row: Row, first: Expr, count: int) -> T:
        """Bring the windows of `count` output columns from `first` on; returns where they are."""

    def multiply(self, k: Builder, columns: T, count: int, g: Expr, out: Expr) -> None:
        """Results of all channels of group `g`; those of the first column start at `out`."""


def by_outs(job: Job, tiles: int, columns: int) -> bool:
    """Do parts have channels, not tiles, which do not divide well? Then each of them gathers all windows."""
    threads = job.target.threads
    return job.is_shared(columns, 2) and -(-tiles // threads) * threads > EVEN * tiles and columns >= LEAST_COLUMNS


def write_columns(job: Job, p: Problem, micro: ColumnKernel[T], *, shared: bool = False) -> None:
    """`shared`: several cores may compute it. Parts have rows of the image; of one that is a pixel high, tiles; the last part has
    what is left over. Not of an image of any size in a range."""
    shared = shared and not p.moves
    k, widest = job.k, micro.widths[0]
    rows: tuple[Operand, Operand] = (0, p.out_height)
    tiles: tuple[Operand, Operand] = (0, p.out_width // widest * widest)
    if shared and p.out_height > 1:
        rows = job.share("oh", p.out_height, 1)
    elif shared and p.out_width >= 2 * widest:
        tiles = job.share("at", p.out_width // widest * widest, widest)
    rest = job.last_part if shared and p.out_height == 1 else None
    with k.loop("n", 0, p.batch) as n, k.loop("g", 0, p.group) as g, k.loop("oh", *rows) as oh:
        base = k.let("base", n * (p.height * p.width * p.channels) + g * p.depth)
        row = Row(base, k.let("top", oh * p.strides[0] - p.pads[0]))

        def tile(first: Expr, count: int) -> None:
            columns = micro.gather(k, row, first, count)
            out = k.let("out", ((n * p.out_height + oh) * p.out_width + first) * p.out_channels + g * p.columns)
            micro.multiply(k, columns, count, g, out)

        if isinstance(p.out_width, Size):
            _some_columns(k, p.out_width, micro.widths, tile)
            return
        done = 0
        for count in micro.widths:
            stop = done + (p.out_width - done) // count * count
            if stop - done > count:
                with k.loop("at", *(tiles if count == widest else (done, stop)), count) as at:
                    tile(at, count)
            elif stop > done:
                with k.when(rest) if rest is not None else nullcontext() if count == p.out_width else k.block():
                    tile(idx(done), count)
            done = stop


def _some_columns(k: Builder, width: int, widths: tuple[int, ...], tile: Callable[[Expr, int], None]) -> None:
    """As many as the caller says."""
    done = 0
    for count in widths:
        stop = done + (width - done) // count * count
        most_tiles = most((stop - done) // count)
        if most_tiles > 1:
            with k.loop("at", done, stop, count) as at:
                tile(at, count)
        elif most_tiles:
            with k.when(idx(stop - done).compare("ne", 0)):
                tile(idx(done), count)
        done = stop
