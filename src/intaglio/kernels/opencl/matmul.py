"""Matrix products on a device: register tiles, and the classic with local memory.

    registers   an item computes rows x columns of the result and reads both sides from global memory (or its cache)
    local       a group of 8 x 8 items fills tiles of both sides, 16 deep, in local memory and shares them

A constant right side is packed in blocks of columns; a computed one is read where it is, its rows in vectors when they are rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio.ir.types import DType
from intaglio.kernels.contraction.products import with_bias
from intaglio.kernels.elementwise import broadcast_strides, offset_of
from intaglio.kernels.epilogue import Epilogue, epilogue_of, operand_kind
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Array, Barrier, Buffer, Builder, Expr, Op, both, idx, imin
from intaglio.kernels.opencl.isa import vector
from intaglio.kernels.opencl.launch import Launch, Size, Variant, global_id, group_for, local_id
from intaglio.kernels.opencl.registry import device_kernel, launch_of, on_device
from intaglio.kernels.opencl.tiles import Accumulators, Tile, block_width, loaded, pack_blocks, pad_to, store_tile, tiles_for
from intaglio.ops.matmul import MatMul

FLOATS = (DType.F32, DType.F16)
SIDE, DEEP = 8, 16  # items of a group along both axes, reduction indices in local memory at once


@dataclass(frozen=True, slots=True)
class Product:
    """y[rows, columns] = x[rows, depth] * w, several times where there are batches."""

    rows: int
    depth: int
    columns: int
    x: Buffer
    w: Buffer
    b: Buffer | None
    y: Buffer
    epilogue: Epilogue
    batch: tuple[int, ...] = ()
    x_walk: tuple[int, ...] = ()  # elements from one batch to the next
    w_walk: tuple[int, ...] = ()
    raw: bool = False  # the right side is not packed: [depth, columns]
    turned: bool = False  # or [columns, depth]

    @property
    def batches(self) -> int:
        return math.prod(self.batch)


def product_variants(job: Job, p: Product, about: str) -> list[Variant]:
    found = []
    for tile in tiles_for(p.rows, p.columns):
        made = _in_registers(job, p, tile, f"{about}\n{tile.rows} rows x {tile.width} columns in registers")
        found.append(Variant(str(tile), (made,), tile.cpu))
    if not p.raw and p.batches == 1 and p.rows >= 64 and p.columns >= 32 and p.depth % DEEP == 0:
        found.append(Variant("local", (_in_local(job, p, f"{about}\ntiles of both sides in local memory"),)))
    return found


def _bases(k: Builder, p: Product, batch: Expr) -> tuple[Expr, Expr, Expr]:
    """Where this batch starts in x, w and y."""
    if p.batches == 1:
        return idx(0), idx(0), idx(0)
    at: list[Expr] = []
    left = batch
    for n in reversed(p.batch[1:]):
        at.insert(0, left % n)
        left = left // n
    at.insert(0, left)
    return (
        k.let("x_at", offset_of(at, list(p.x_walk))),
        k.let("w_at", offset_of(at, list(p.w_walk))),
        k.let("y_at", batch * (p.rows * p.columns)),
    )


def _in_registers(job: Job, p: Product, tile: Tile, about: str) -> Launch:
    k = Builder()
    k.reserve(*(q.name for q in job.params))
    wide = block_width(p.columns)
    tiles, blocks = -(-p.rows // tile.rows), -(-p.columns // tile.width)
    size: Size = (tiles, blocks, p.batches) if tile.cpu else (blocks, tiles, p.batches)
    first, second, third = (global_id(d) for d in range(3))
    t, block = (k.let("tile", first), k.let("block", second)) if tile.cpu else (k.let("tile", second), k.let("block", first))
    batch = k.let("batch", third) if p.batches > 1 else idx(0)
    inside = both(t.compare("lt", tiles), block.compare("lt", blocks))
    with k.when(both(inside, batch.compare("lt", p.batches)) if p.batches > 1 else inside):
        x_at, w_at, y_at = _bases(k, p, batch)
        m, column = k.let("m", t * tile.rows), k.let("column", block * tile.width)
        acc = Accumulators(k, tile, p.b, column)
        ragged = p.rows % tile.rows != 0
        rows = [k.let(f"row{r}", (imin(m + r, p.rows - 1) if ragged else m + r) * p.depth + x_at) for r in range(tile.rows)]
        lanes = 4 if p.depth % 4 == 0 and not tile.cpu else 1
        if p.raw:
            _raw(k, p, tile, acc, rows, lanes, w_at, column)
        else:
            panel = k.let("panel", w_at + (column // wide) * (wide * p.depth) + column % wide)
            with k.loop("j", 0, p.depth, lanes) as j:
                values = loaded(k, p.x, [row + j for row in rows], lanes, [None] * tile.rows)
                acc.step(p.w, panel + j * wide, values, wide)
        real: list[Expr | None] = [(m + r).compare("lt", p.rows) if ragged and r else None for r in range(tile.rows)]
        out = k.let("out", y_at + m * p.columns + column)
        places = [out + r * p.columns for r in range(tile.rows)]
        store_tile(k, acc, p.epilogue, p.y, p.columns, column, column, places, real)
    size = size if p.batches > 1 else size[:2]
    cpu = (min(8, tiles), *[1] * (len(size) - 1)) if tile.cpu else group_for(size, 64, 16)
    return launch_of(k, f"matmul_{tile}", list(job.params), size, group_for(size, 64, 16), cpu, about=about)


def _raw(k: Builder, p: Product, tile: Tile, acc: Accumulators, rows: list[Expr], lanes: int, w_at: Expr, column: Expr) -> None:
    """The right side as it is: rows in vectors; or its columns one by one."""
    e, one = vector(tile.lanes), Lanes.scalar()
    rest = p.columns % tile.width

    def columns_at(j: Expr, width: int) -> list[Expr]:
        out = []
        for v in range(tile.vectors):
            count = max(0, min(tile.lanes, width - v * tile.lanes))
            if p.turned or 0 < count < tile.lanes:
                first = column + v * tile.lanes
                each = [
                    one.load(p.w, w_at + ((first + n) * p.depth + j if p.turned else j * p.columns + first + n))
                    for n in range(count)
                ]
                out.append(k.let("w", Op("vector", (*each, *[one.const(0.0)] * (tile.lanes - count)), e.type)))
            elif count == 0:
                out.append(e.const(0.0))
            else:
                out.append(k.let("w", e.load(p.w, w_at + j * p.columns + column + v * tile.lanes)))
        return out

    def loop(width: int) -> None:
        with k.loop("j", 0, p.depth) as j:
            weights = columns_at(j, width)
            values = loaded(k, p.x, [row + j for row in rows], 1, [None] * tile.rows)
            for r, value in enumerate(values):
                for v, weight in enumerate(weights):
                    k.assign(acc.at[r][v], e.fma(e.splat(value), weight, acc.at[r][v]))

    if not rest:
        loop(tile.width)
    elif p.columns < tile.width:
        loop(rest)
    else:
        with k.when(column.compare("le", p.columns - tile.width)):
            loop(tile.width)
        with k.otherwise():
            loop(rest)


def _in_local(job: Job, p: Product, about: str) -> Launch:
    """Groups of SIDE x SIDE items, 4 rows x 4 columns each: 32 x 32 results from tiles of 32 x DEEP and DEEP x 32."""
    k = Builder()
    k.reserve(*(q.name for q in job.params))
    wide, tile = block_width(p.columns), Tile(4, 4, 1)
    side = SIDE * 4
    left, right = Buffer("left", DType.F32, False, "local"), Buffer("right", DType.F32, False, "local")
    k.reserve("left", "right")
    k.emit(Array(left, side * DEEP))
    k.emit(Array(right, DEEP * side))
    lx, ly = k.let("lx", local_id(0)), k.let("ly", local_id(1))
    item = k.let("item", ly * SIDE + lx)
    column, m = k.let("column", global_id(0) * 4), k.let("m", global_id(1) * 4)
    group_column, group_row = k.let("group_column", column - lx * 4), k.let("group_row", m - ly * 4)
    stored = -(-p.columns // wide) * wide
    acc = Accumulators(k, tile, None, idx(0))
    e, one = vector(4), Lanes.scalar()
    with k.loop("first", 0, p.depth, DEEP) as first:
        with k.loop("part", 0, side * DEEP // (SIDE * SIDE * 4)) as part:  # four neighbours at a time
            slot = k.let("slot", part * (SIDE * SIDE) + item)
            row = imin(group_row + slot // (DEEP // 4), p.rows - 1)
            k.store(left, slot * 4, k.let("v", e.load(p.x, row * p.depth + first + (slot % (DEEP // 4)) * 4)))
        with k.loop("part", 0, side * DEEP // (SIDE * SIDE * 4)) as part:
            slot = k.let("slot", part * (SIDE * SIDE) + item)
            c = k.let("c", imin(group_column + (slot % (side // 4)) * 4, stored - 4))
            place = (c // wide) * (wide * p.depth) + (first + slot // (side // 4)) * wide + c % wide
            k.store(right, slot * 4, k.let("v", e.load(p.w, place)))
        k.emit(Barrier())
        with k.loop("j", 0, DEEP) as j:
            weight = k.let("w", e.load(right, j * side + lx * 4))
            for r in range(4):
                value = k.let("a", one.load(left, (ly * 4 + r) * DEEP + j))
                k.assign(acc.at[r][0], e.fma(e.splat(value), weight, acc.at[r][0]))
        k.emit(Barrier())
    with k.when(both(column.compare("lt", p.columns), m.compare("lt", p.rows))):
        if p.b is not None:
            bias = k.let("bias", e.load(p.b, column))
            for r in range(4):
                k.assign(acc.at[r][0], e.add(acc.at[r][0], bias))
        real: list[Expr | None] = [(m + r).compare("lt", p.rows) if p.rows % 4 and r else None for r in range(4)]
        out = k.let("out", m * p.columns + column)
        store_tile(k, acc, p.epilogue, p.y, p.columns, column, column, [out + r * p.columns for r in range(4)], real)
    size = (-(-p.columns // side) * SIDE, -(-p.rows // side) * SIDE)
    return launch_of(k, "matmul_local", list(job.params), size, (SIDE, SIDE), (SIDE, SIDE), fixed=True, about=about)


@on_device(MatMul)
def matmul(job: Job) -> Lowered | None:
    op, node = job.node.op, job.node
    assert isinstance(op, MatMul)
    left, right, out = job.type(0), job.type(1), node.output
    if op.transpose_a or out.type.elements == 0 or any(t not in FLOATS for t in (left.dtype, right.dtype, out.dtype)):
        return None
    depth, columns = left.shape[-1], out.shape[-1]
    weights = node.inputs[1]
    assert weights is not None
    if depth == 0:
        return None
    batch = out.shape[:-2]
    shared = math.prod(right.shape[:-2]) == 1
    rows = math.prod(out.shape[:-1]) if shared else out.shape[-2]
    if shared and math.prod(left.shape[:-1]) != rows:
        return None
    wide = block_width(columns)
    extras = [v for v in node.inputs[3:] if v is not None]
    bias, steps = job.optional(2), op.epilogue
    if bias is not None and (bias.data is None or operand_kind(bias.shape, out.shape) != "channel"):
        extras, steps, bias = [bias, *extras], with_bias(steps, len(extras)), None
    if any(operand_kind(v.shape, out.shape) is None for v in extras):
        return None
    x = job.operand(0, "x")
    constant = weights.data is not None
    if weights.data is not None:
        data = weights.data.swapaxes(-1, -2) if op.transpose_b else weights.data
        packed = [pack_blocks(m, wide) for m in data.reshape(-1, depth, columns)]
        w = job.packed(np.concatenate(packed), "w", weights.dtype)
        stored = packed[0].size
    else:
        w, stored = job.operand(1, "w"), depth * columns
    b = None
    if bias is not None and bias.data is not None:
        b = job.packed(pad_to(bias.data.astype(np.float32), wide), "b")
    epilogue = epilogue_of(job, steps, extras, out.shape)
    y = job.writes()
    about = f"matmul {list(left.shape)} x {list(right.shape)} -> {list(out.shape)}" + "".join(
        f" + {s.op.NAME}" for s in op.epilogue
    )
    if shared:
        product = Product(rows, depth, columns, x, w, b, y, epilogue, raw=not constant, turned=op.transpose_b and not constant)
    else:
        x_walk = tuple(s * rows * depth for s in broadcast_strides(left.shape[:-2], batch))
        w_walk = tuple(s * stored for s in broadcast_strides(right.shape[:-2], batch))
        product = Product(
            rows,
            depth,
            columns,
            x,
            w,
            b,
            y,
            epilogue,
            batch,
            x_walk,
            w_walk,
            raw=not constant,
            turned=op.transpose_b and not constant,
        )
    variants = product_variants(job, product, about)
    return device_kernel(job, f"matmul_{rows}_{depth}_{columns}", about, variants, epilogue.over if shared else None, halves=True)
