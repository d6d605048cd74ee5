"""Matrix products on a device: register tiles, and the classic with local memory.

    registers   an item computes rows x columns of the result and reads both sides from global memory (or its cache)
    local       a group of 8 x 8 items fills tiles of both sides, 16 deep, in local memory and shares them

A constant right side is packed in blocks of columns; a computed one is read where it is, its rows in vectors when they are rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.products import with_bias
from intaglio.kernels.elementwise import broadcast_strides, offset_of
from intaglio.kernels.epilogue import Epilogue, epilogue_of, operand_kind
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Array, Barrier, Buffer, Expr, Op, both, idx, imin
from intaglio.kernels.opencl.isa import vector
from intaglio.kernels.opencl.launch import Launch, Size, Variant, device_kernel, global_id, group_for, launch_of, local_id
from intaglio.kernels.opencl.tiles import Accumulators, Tile, block_width, loaded, pack_blocks, pad_to, store_tile, tiles_for
from intaglio.ops.base import Step
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


@dataclass(frozen=True, slots=True)
class _Sides:
    """The sizes of a product. `shared`: all batches have the same right side, and are one matrix on the left."""

    rows: int
    depth: int
    columns: int
    batch: tuple[int, ...]
    shared: bool


@fact
def _sides(job: Job) -> _Sides:
    left, right, out = job.type(0), job.type(1), job.node.output
    shared = math.prod(right.shape[:-2]) == 1
    rows = math.prod(out.shape[:-1]) if shared else out.shape[-2]
    return _Sides(rows, left.shape[-1], out.shape[-1], out.shape[:-2], shared)


@fact
def _added(job: Job) -> tuple[Value | None, tuple[Step, ...], list[Value]]:
    """The bias of columns, the steps after the product, and their operands: another bias is the first of them."""
    op, out = job.node.op, job.node.output
    assert isinstance(op, MatMul)
    extras, bias = [v for v in job.node.inputs[3:] if v is not None], job.optional(2)
    if bias is not None and (bias.data is None or operand_kind(bias.shape, out.shape) != "channel"):
        return None, with_bias(op.epilogue, len(extras)), [bias, *extras]
    return bias, op.epilogue, extras


def matmul_applies(job: Job) -> str | None:
    op, left, right, out = job.node.op, job.type(0), job.type(1), job.node.output
    assert isinstance(op, MatMul)
    if op.transpose_a:
        return "the left side is transposed"
    if wrong := [t.value for t in (left.dtype, right.dtype, out.dtype) if t not in FLOATS]:
        return f"the type is {wrong[0]}, not f32 or f16"
    sides = _sides(job)
    if out.type.elements == 0 or sides.depth == 0:
        return "a tensor is empty"
    if sides.shared and math.prod(left.shape[:-1]) != sides.rows:
        return "the left side is repeated for batches of the right side"
    if any(operand_kind(v.shape, out.shape) is None for v in _added(job)[2]):
        return "an operand of the fused steps is neither a number, a channel's nor as large as the result"
    return None


def matmul(job: Job) -> Lowered:
    op, node, sides = job.node.op, job.node, _sides(job)
    assert isinstance(op, MatMul)
    bias, steps, extras = _added(job)
    x = job.operand(0, "x")
    w, stored = _right(job, sides)
    b = None
    if bias is not None and bias.data is not None:
        b = job.packed(pad_to(bias.data.astype(np.float32), block_width(sides.columns)), "b")
    epilogue = epilogue_of(job, steps, extras, node.output.shape)
    y = job.writes()
    left, right = job.type(0).shape, job.type(1).shape
    about = f"matmul {list(left)} x {list(right)} -> {list(node.output.shape)}" + "".join(f" + {s.op.NAME}" for s in op.epilogue)
    raw = node.inputs[1] is not None and node.inputs[1].data is None
    product = Product(
        sides.rows, sides.depth, sides.columns, x, w, b, y, epilogue, raw=raw, turned=op.transpose_b and raw
    )  # fmt: skip
    if not sides.shared:
        x_walk = tuple(s * sides.rows * sides.depth for s in broadcast_strides(left[:-2], sides.batch))
        w_walk = tuple(s * stored for s in broadcast_strides(right[:-2], sides.batch))
        product = replace(product, batch=sides.batch, x_walk=x_walk, w_walk=w_walk)
    stem = f"matmul_{sides.rows}_{sides.depth}_{sides.columns}"
    over = epilogue.over if sides.shared else None
    return device_kernel(job, stem, about, product_variants(job, product, about), over, halves=True)


def _right(job: Job, sides: _Sides) -> tuple[Buffer, int]:
    """The right side, packed where it is constant, and its elements in one batch."""
    op, weights = job.node.op, job.node.inputs[1]
    assert isinstance(op, MatMul) and weights is not None
    if weights.data is None:
        return job.operand(1, "w"), sides.depth * sides.columns
    data = weights.data.swapaxes(-1, -2) if op.transpose_b else weights.data
    packed = [pack_blocks(m, block_width(sides.columns)) for m in data.reshape(-1, sides.depth, sides.columns)]
    return job.packed(np.concatenate(packed), "w", weights.dtype), packed[0].size
