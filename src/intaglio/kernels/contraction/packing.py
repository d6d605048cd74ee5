"""A computed right side of a product, brought into the order in which register tiles read it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio.ir.sizes import Size
from intaglio.kernels.contraction.tile import Block
from intaglio.kernels.contraction.tiles import Tiles
from intaglio.kernels.job import Job
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Num, Type, idx, imin


@dataclass(frozen=True, slots=True)
class Right:
    """Where element [j, column] of the right side is: `base + j * down + column * across`. `columns` of them are there; the tiles
    may have more, which become zeros. Each number is multiplied by `scale`."""

    source: Buffer
    base: Expr
    down: int
    across: int
    columns: int
    scale: float = 1.0


def pack_right(job: Job, tiles: Tiles, right: Right) -> None:
    """scratch[block][j][lane] = right[j][column] * scale, zeros in lanes without a column."""
    k, e, depth = job.k, job.vector, tiles.problem.channels
    if isinstance(right.columns, Size):
        _pack_some(job, tiles, right)
        return
    place, wide = 0, tiles.blocks.wide.width
    all_of_them = [replace(tiles.blocks.wide, first=n * wide) for n in range(tiles.blocks.whole)]
    blocks = [replace(b, width=min(b.width, right.columns - b.first)) for b in (*all_of_them, *tiles.blocks.last)]
    whole = [b for b in blocks if b.width == wide]
    groups = [(whole[0], len(whole))] if whole else []
    groups += [(b, 1) for b in blocks[len(whole) :]]
    for block, count in groups:
        width = block.vectors * e.lanes
        with k.loop("block", 0, count) as n:
            to = k.let("to", n * (width * depth) + place)
            first = k.let("first", right.base + (n * width + block.first) * right.across)
            _pack_block(job, tiles, right, first, to, block)
        place += count * width * depth


def _pack_some(job: Job, tiles: Tiles, right: Right) -> None:
    """The same where the caller says how many columns there are: each block has as many as are left for it. One that is not full
    is zeros first: whole vectors, not lanes with a stride."""
    k, e, one, w = job.k, job.vector, Lanes.scalar(), tiles.micro.w
    depth, wide, blocks = tiles.problem.channels, tiles.blocks.wide.width, tiles.blocks

    def pack(first: Expr, width: int) -> None:
        to, there = k.let("to", first * depth), k.let("there", imin(width, idx(right.columns) - first))
        with k.when(there.compare("lt", width)), k.loop("i", 0, depth * width, e.lanes) as i:
            k.store(w, to + i, e.const(0.0))
        with k.loop("column", 0, there) as c, k.loop("j", 0, depth) as j:
            value = one.load(right.source, right.base + (first + c) * right.across + j * right.down)
            k.store(w, to + j * width + c, value if right.scale == 1.0 else one.mul(value, one.const(right.scale)))

    with k.loop("block", 0, blocks.whole) as n:
        pack(k.let("first", n * wide), wide)
    for block in blocks.last:  # the number of vectors is the same for all sizes
        with k.block():
            pack(idx(block.first), block.vectors * job.isa.lanes)
    k.one_of(blocks.rest, lambda vectors: pack(k.let("first", blocks.whole * wide), vectors * job.isa.lanes))


def _pack_block(job: Job, tiles: Tiles, right: Right, first: Expr, to: Expr, block: Block) -> None:
    k, e, w, one = job.k, job.vector, tiles.micro.w, Lanes.scalar()
    depth, width = tiles.problem.channels, block.vectors * e.lanes
    if right.across != 1:
        with k.loop("column", 0, block.width) as c, k.loop("j", 0, depth) as j:
            value = one.load(right.source, first + c * right.across + j * right.down)
            k.store(w, to + j * width + c, value if right.scale == 1.0 else one.mul(value, one.const(right.scale)))
        with k.loop("column", block.width, width) as c, k.loop("j", 0, depth) as j:
            k.store(w, to + j * width + c, Num(0.0, Type("f32")))
        return
    with k.loop("j", 0, depth) as j:
        for v in range(block.vectors):
            part = block.lanes_of(v, e.lanes)
            at = first + j * right.down + v * e.lanes
            value = e.load(right.source, at, part if e.vector else 0)
            k.store(w, to + j * width + v * e.lanes, value if right.scale == 1.0 else e.mul(value, e.const(right.scale)))
