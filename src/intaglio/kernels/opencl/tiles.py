"""Register tiles of one work-item: neighbouring pixels (or rows) times vectors of output columns.

Columns are packed in blocks of 16 (8 or 4 where there are fewer), so that every tile reads the same weights: which one is best
is for the device to say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.kernels.builder import Builder
from intaglio.kernels.epilogue import Epilogue
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Num, Op, Type, Var
from intaglio.kernels.opencl.isa import vector


@dataclass(frozen=True, slots=True)
class Tile:
    rows: int
    lanes: int
    vectors: int
    cpu: bool = False  # neighbouring items are neighbouring rows, so that weights stay in the cache; else columns

    @property
    def width(self) -> int:
        return self.lanes * self.vectors

    def __str__(self) -> str:
        return f"{self.rows}x{self.width}{'c' if self.cpu else ''}"


def block_width(columns: int) -> int:
    return 16 if columns > 8 else 8 if columns > 4 else 4


def tiles_for(rows: int, columns: int) -> list[Tile]:
    """The first is what a GPU starts with, the first with `cpu` what a CPU does."""
    wide = block_width(columns)
    high = 4 if rows >= 4 else 1
    found = [Tile(high, 4, 1)]
    if wide >= 8:
        found.append(Tile(high, 4, 2))
    if wide == 16 and rows >= 8:
        found.append(Tile(8, 4, 1))
    most = 6 if wide == 16 else 8  # with the weights, 15 registers of 8 floats
    even = -(-rows // -(-rows // most))  # tiles of about the same height
    found.append(Tile(most if rows > 8 * most else even, min(8, wide), 2 if wide == 16 else 1, cpu=True))
    if rows > 2:
        found.append(Tile(2, min(8, wide), 2 if wide == 16 else 1, cpu=True))
    return found


def pack_blocks(matrix: Array, wide: int) -> Array:
    """[K, N] -> [N / wide][K][wide], zeros in columns that are too many."""
    depth, columns = matrix.shape
    blocks = -(-columns // wide)
    padded = np.zeros((depth, blocks * wide), matrix.dtype)
    padded[:, :columns] = matrix
    return np.ascontiguousarray(padded.reshape(depth, blocks, wide).transpose(1, 0, 2)).reshape(-1)


def pad_to(vector_: Array, wide: int) -> Array:
    out = np.zeros(-(-vector_.size // wide) * wide, vector_.dtype)
    out[: vector_.size] = vector_.reshape(-1)
    return out


def lane(value: Expr, n: int) -> Expr:
    return Op("lane", (value, Num(n)), Type(value.type.kind))


class Accumulators:
    """The named variables of a tile, from the bias on."""

    def __init__(self, k: Builder, tile: Tile, bias: Buffer | None, at: Expr) -> None:
        self.k, self.tile, self.e = k, tile, vector(tile.lanes)
        e = self.e
        firsts = [
            k.let(f"bias{v}", e.load(bias, at + v * tile.lanes)) if bias is not None else e.const(0.0) for v in range(tile.vectors)
        ]
        self.at: list[list[Var]] = [[k.var(f"acc{r}_{v}", firsts[v]) for v in range(tile.vectors)] for r in range(tile.rows)]

    def step(self, weights: Buffer, w_at: Expr, values: list[Expr], wide: int) -> None:
        """acc += value of the row * weights, for `values` of one or four reduction indices per row."""
        k, e, tile = self.k, self.e, self.tile
        count = max(v.type.lanes for v in values)
        for c in range(count):
            columns = [k.let("w", e.load(weights, w_at + (c * wide + v * tile.lanes))) for v in range(tile.vectors)]
            for r, value in enumerate(values):
                one = lane(value, c) if count > 1 else value
                for v, column in enumerate(columns):
                    k.assign(self.at[r][v], e.fma(e.splat(one), column, self.at[r][v]))


def loaded(k: Builder, x: Buffer, at: list[Expr], lanes: int, inside: list[Expr | None]) -> list[Expr]:
    """One or four neighbours of every row; zeros where it is outside."""
    e = vector(lanes) if lanes > 1 else Lanes.scalar()
    out = []
    for place, cond in zip(at, inside, strict=True):
        value = e.load(x, place)
        if cond is not None:
            value = Op("select", (cond, value, e.const(0.0)), value.type)
        out.append(k.let("a", value))
    return out


def store_tile(
    k: Builder, acc: Accumulators, epilogue: Epilogue, y: Buffer, columns: int, column: Expr, channel: Expr, places: list[Expr],
    inside: list[Expr | None],
) -> None:  # fmt: skip
    """`column` is the tile's first of `columns`; rows that are not inside are left out."""
    tile = acc.tile
    rest = columns % tile.width

    def write(width: int) -> None:
        for r, place in enumerate(places):
            cond = inside[r]
            if cond is None:
                _row(k, acc, epilogue, y, r, place, channel, width)
            else:
                with k.when(cond):
                    _row(k, acc, epilogue, y, r, place, channel, width)

    if not rest:
        write(tile.width)
    elif columns < tile.width:
        write(rest)
    else:
        with k.when(column.compare("le", columns - tile.width)):
            write(tile.width)
        with k.otherwise(), k.when(column.compare("lt", columns)):
            write(rest)


def _row(k: Builder, acc: Accumulators, epilogue: Epilogue, y: Buffer, r: int, place: Expr, channel: Expr, width: int) -> None:
    tile, e = acc.tile, acc.e
    for v in range(tile.vectors):
        count = min(tile.lanes, width - v * tile.lanes)
        if count <= 0:
            break
        at = k.let("to", place + v * tile.lanes)
        value = epilogue.finish(k, e, acc.at[r][v], channel + v * tile.lanes, at, count) if epilogue.steps else acc.at[r][v]
        store_part(k, y, at, value, count)


def store_part(k: Builder, y: Buffer, at: Expr, value: Expr, count: int) -> None:
    """All lanes or the first `count`; these go one by one, from a name in a scope of its own."""
    if count == value.type.lanes or not count:
        k.store(y, at, value)
        return
    with k.block():
        k.store(y, at, value, count)
