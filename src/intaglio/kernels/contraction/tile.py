"""Register tiles: `rows` results side by side times `vectors` of output columns, kept in named variables over the whole reduction.

Columns are packed at compile time: blocks of `vectors` * lanes columns, inside a block reduction index by reduction index.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Array
from intaglio.ir.sizes import Size, Undecided, largest, most, possible
from intaglio.targets import Target

MOST_SIZES = 128  # of a range, that a tile is judged by
END_CYCLES = 4.0  # of each sum whose end is not hidden
L2_BYTES_PER_CYCLE = 36.0  # of weights of a block that does not stay in L1
RANGE_L2_BYTES_PER_CYCLE = 26.0  # the same where the tile of a range is chosen, by vectors shorter than a line. Zen 4, AVX2, 3x3,
# 32 channels: blocks of 36 KB for 2 pixels take 1.37 of the time of 18 KB for 6, and 36 bytes per cycle would make that 1.04
LINE = 16  # numbers of f32 in a line of the cache


@dataclass(frozen=True, slots=True)
class Tile:
    rows: int
    vectors: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.vectors}"

    def about(self, there: int, row: str, lanes: int, columns: str) -> str:
        """For the comment of a kernel with `there` rows: a tile is not higher than the image is wide."""
        rows = min(self.rows, most(there))
        return f"tile {rows} {row}{'' if rows == 1 else 's'} x {self.vectors * lanes} {columns}"


@dataclass(frozen=True, slots=True)
class Block:
    """Neighbouring output columns computed together. `width` counts the real ones; the last vector may have fewer."""

    first: int
    width: int
    vectors: int

    def lanes_of(self, v: int, lanes: int) -> int:
        return min(lanes, self.width - v * lanes)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The columns of a result: `whole` blocks as wide as the tile, and what is left of them. Where the number of columns is a
    size of the caller, `rest` are the vectors that are left then, and blocks are full to the last lane."""

    whole: int
    wide: Block
    last: tuple[Block, ...] = ()
    rest: int = 0


def all_blocks(columns: int, vectors: int, lanes: int) -> Blocks:
    wide = vectors * lanes
    full = Block(0, wide, vectors)
    if isinstance(columns, Size):
        if (columns % lanes) != 0:
            raise Undecided(f"`{columns}` columns are not whole vectors for all sizes")
        return Blocks(columns // wide, full, (), (columns - columns // wide * wide) // lanes)
    whole, rest = divmod(columns, wide)
    return Blocks(whole, full, (Block(columns - rest, rest, -(-rest // lanes)),) if rest else ())


def blocks_of(columns: int, vectors: int, lanes: int) -> list[Block]:
    out: list[Block] = []
    first = 0
    while first < columns:
        width = min(vectors * lanes, columns - first)
        out.append(Block(first, width, -(-width // lanes)))
        first += width
    return out


def candidates(target: Target) -> list[Tile]:
    """Every tile that fits the registers: accumulators, one row of weights, one broadcast."""
    fit = [Tile(r, v) for v in (1, 2, 3, 4, 6, 8) for r in range(1, 17) if r * v + v + 1 <= target.registers]
    best: dict[int, Tile] = {}
    for tile in fit:  # per width, the tallest, and all smaller ones that even out a remainder
        best[tile.vectors] = max(best.get(tile.vectors, tile), tile, key=lambda t: t.rows)
    return sorted({t for t in fit if t.rows >= best[t.vectors].rows // 2 or t.rows == 1}, key=lambda t: (t.rows, t.vectors))


def cycles(
    target: Target, tile: Tile, rows: int, columns: int, depth: int, lanes: int, l2_rate: float = L2_BYTES_PER_CYCLE
) -> float:
    """Estimated cycles of a product [rows, depth] x [depth, columns] on a core with two FMA and two load ports and a latency of 4.

    The end of a tile is hidden behind the start of the next one if its sums need at most half of the registers. Measured on Zen 3
    with 16 to 32 numbers per sum: 4x2 takes 7 to 23 % less time than 6x2 and 4x3, which are faster from about 64 on. Results
    that do not stay in L2 are written faster in long pieces of a row (`piece_cycles` of the target)."""
    hidden = target.registers if target.bare else target.registers // 2
    rows, columns, depth = largest((rows, columns, depth))

    def of(r: int, v: int) -> float:
        bytes_of_step = v * lanes * 4
        streamed = bytes_of_step / l2_rate if bytes_of_step * depth > target.l1_bytes else 0.0
        return depth * (max(r * v / 2, (r + v) / 2, 4.0, streamed) + 0.6) + END_CYCLES * max(0, r * v - hidden)

    full, rest = divmod(rows, tile.rows)

    def of_block(vectors: int) -> float:
        return full * of(tile.rows, vectors) + (of(rest, vectors) if rest else 0.0)

    def written(vectors: int) -> float:
        return rows * target.piece_cycles * LINE / (vectors * lanes) if rows * columns * 4 > target.l2_bytes // 2 else 0.0

    wide, last = divmod(columns, tile.vectors * lanes)
    total = wide * (of_block(tile.vectors) + written(tile.vectors))
    return total + (of_block(-(-last // lanes)) + written(-(-last // lanes)) if last else 0.0)


def choose_tile(target: Target, rows: int, columns: int, depth: int, lanes: int) -> Tile:
    """The cheapest tile, no larger than the layer. Where rows have a range, the one that is nearest to the cheapest over all of it:
    a tile that evens out the largest number of rows may leave a rest of every other one."""
    sizes = spread_out(possible(rows), MOST_SIZES)
    rows, columns, depth = largest((rows, columns, depth))
    deep = max(1, depth)
    if len(sizes) > 1:
        best = _over_range(target, tuple(sizes), columns, deep, lanes)
    else:
        best = min(candidates(target), key=lambda t: (round(cycles(target, t, rows, columns, deep, lanes) / deep, 3), -t.rows))
    return Tile(max(1, min(best.rows, rows)), max(1, min(best.vectors, -(-columns // lanes))))


@lru_cache(256)
def _over_range(target: Target, sizes: tuple[int, ...], columns: int, depth: int, lanes: int) -> Tile:
    """The tile whose cost, as a multiple of what the cheapest for each size costs, is least on average."""
    rate = RANGE_L2_BYTES_PER_CYCLE if lanes < LINE else L2_BYTES_PER_CYCLE
    costs = {tile: [cycles(target, tile, n, columns, depth, lanes, rate) for n in sizes] for tile in candidates(target)}
    cheapest = [min(each) for each in zip(*costs.values(), strict=True)]

    def mean(tile: Tile) -> float:
        ratios = [cost / least for cost, least in zip(costs[tile], cheapest, strict=True)]
        return float(sum(ratios)) / len(sizes)

    return min(costs, key=lambda tile: (round(mean(tile), 3), -tile.rows))


def spread_out(sizes: list[int], count: int) -> list[int]:
    """So many of them, from the least to the largest, at distances that are not all the same."""
    some = [n for n in sizes if n > 0] or sizes[:1]
    if len(some) <= count:
        return some
    return [some[round(i * (len(some) - 1) / (count - 1))] for i in range(count)]


def possible_tiles(target: Target, rows: int, columns: int, lanes: int, chosen: Tile) -> list[Tile]:
    """The chosen one first. A tile that is higher or wider than the result is the same as one of its size."""
    rows, columns = largest((rows, columns))

    def within(tile: Tile) -> Tile:
        return Tile(min(tile.rows, rows), min(tile.vectors, -(-columns // lanes)))

    others = dict.fromkeys(within(tile) for tile in candidates(target))
    return [chosen, *(tile for tile in others if tile != within(chosen))]


MOST_ROWS, MOST_VECTORS = 32, 8
AT_ONCE = 1 << 16  # numbers that are packed by one call


def parse_tile(using: str) -> Tile | None:
    """The tile of an edited `using conv_nhwc(tile=4x3)`."""
    if "tile=" not in using:
        return None
    text = using.split("tile=")[1].rstrip(")").split(",")[0]
    match = re.fullmatch(r"(\d{1,3})x(\d{1,3})", text)
    tile = Tile(int(match[1]), int(match[2])) if match else Tile(0, 0)
    if not (1 <= tile.rows <= MOST_ROWS and 1 <= tile.vectors <= MOST_VECTORS):
        hint = f"a tile is ROWSxVECTORS, such as `tile=6x2`: 1 to {MOST_ROWS} rows, 1 to {MOST_VECTORS} vectors"
        raise UserError("bad-tile", f"{quoted(text)} in {quoted(using)} is not a tile", hint=hint)
    return tile


def parse_pixels(using: str, possible: Sequence[int]) -> int | None:
    """The number of an edited `using depthwise_nhwc(pixels=3)`, if it is possible."""
    match = re.search(r"\(pixels=(\d{1,3})\)$", using)
    return int(match[1]) if match and int(match[1]) in possible else None


def pack_columns(matrix: Array, vectors: int, lanes: int) -> Array:
    """[..., N] -> blocks of columns one after the other, each [..., vectors * lanes], zeros in the lanes that are too many. A view
    of weights in another order is read block by block, which stays in the cache."""
    *rows, columns = matrix.shape
    depth, wide = math.prod(rows), vectors * lanes
    whole, rest = divmod(columns, wide)
    packed = np.zeros(depth * (whole * wide + -(-rest // lanes) * lanes), matrix.dtype)
    at_once = max(1, AT_ONCE // max(1, depth * wide))  # blocks of few rows: Python would take longer for each than for its numbers
    for first in range(0, whole, at_once):
        last = min(whole, first + at_once)
        panel = packed[first * depth * wide : last * depth * wide].reshape(last - first, *rows, wide)
        panel[:] = np.moveaxis(matrix[..., first * wide : last * wide].reshape(*rows, last - first, wide), -2, 0)
    if rest:
        panel = packed[whole * depth * wide :].reshape(*rows, -(-rest // lanes) * lanes)
        panel[..., :rest] = matrix[..., whole * wide :]
    return packed
