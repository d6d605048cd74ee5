"""Matrix products with register tiles: `matmul(a, b)`, batched and broadcast as numpy does.

A constant right side is packed at compile time and all leading axes of the left side become rows. A right side that is computed
(attention) is packed into scratch first, matrix by matrix: reading it once in order costs less than striding through it for
every tile. One row (a vector times a matrix) is the same code with a tile one row high and many columns wide.
"""

from __future__ import annotations

import math

import numpy as np

from intaglio.ir.graph import Value
from intaglio.ir.types import DType, Shape, strides_of
from intaglio.kernels.conv import Geometry, TileWriter
from intaglio.kernels.elementwise import broadcast_strides, offset_of
from intaglio.kernels.epilogue import Epilogue, Extra, epilogue_of, operand_kind
from intaglio.kernels.expressions import apply, computed_in
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Type, cast, idx
from intaglio.kernels.tiles import blocks_of, choose_tile, pack_columns, pad_vector, parse_tile
from intaglio.ops.base import Step
from intaglio.ops.binary import Add
from intaglio.ops.matmul import MatMul


def matrix_geometry(rows: int, depth: int, columns: int) -> Geometry:
    return Geometry(1, 1, rows, depth, 1, rows, columns, (1, 1), (1, 1), (0, 0), (1, 1), 1)


def _with_bias(steps: tuple[Step, ...], extras: int) -> tuple[Step, ...]:
    """Prepend an addition of a new operand 1, so that a bias of any shape is a step like the others."""
    moved = [Step(s.op, tuple(0 if a < 0 else _moved(a, extras) for a in s.args)) for s in steps]
    return (Step(Add(), (0, 1)), *moved)


def _moved(arg: int, extras: int) -> int:
    """Where an operand or an earlier step is once the bias stands at 1 and its sum is the first step."""
    if arg == 0:
        return extras + 2  # the accumulator with its bias
    return arg + 1 if arg <= extras else arg + 2


def _rows_first(batch: Shape) -> int:
    return math.prod(batch)


def matmul_tiled(job: Job) -> Lowered | None:
    op, node = job.node.op, job.node
    assert isinstance(op, MatMul)
    left, right = job.type(0), job.type(1)
    if any(t.dtype is not DType.F32 for t in (left, node.output.type)) or op.transpose_a or node.output.type.elements == 0:
        return None
    depth, columns = left.shape[-1], node.output.shape[-1]
    if depth == 0:
        return None
    weights = node.inputs[1]
    assert weights is not None
    if right.dtype is not DType.F32 and weights.data is None:
        return None
    batch = node.output.shape[:-2]
    shared = math.prod(right.shape[:-2]) == 1  # one matrix for all rows
    rows = math.prod(node.output.shape[:-1]) if shared else node.output.shape[-2]
    if shared and math.prod(left.shape[:-1]) != rows:
        return None
    e = job.vector
    tile = parse_tile(job.asked) or choose_tile(job.target, rows, columns, e.lanes)
    blocks = blocks_of(columns, tile.vectors, e.lanes)
    stored = sum(b.vectors * e.lanes for b in blocks) * depth

    a = job.operand(0, "x")
    extras = [v for v in node.inputs[3:] if v is not None]
    bias, steps = job.optional(2), op.epilogue
    if bias is not None and (bias.data is None or operand_kind(bias.shape, node.output.shape) != "channel"):
        extras, steps, bias = [bias, *extras], _with_bias(steps, len(extras)), None
    if any(operand_kind(v.shape, node.output.shape) is None for v in extras):
        job.k, job.params, job.arguments = type(job.k)(), [], []
        return None
    packed_now = weights.data is not None
    if weights.data is not None:
        data = weights.data.swapaxes(-1, -2) if op.transpose_b else weights.data
        matrices = data.reshape(-1, depth, columns)
        w = job.packed(np.concatenate([pack_columns(m, tile.vectors, e.lanes) for m in matrices]), "w")
        source: Buffer | None = None
    else:
        source = job.operand(1, "b")
        w = job.scratch(stored, "w")
    b = (
        job.packed(pad_vector(bias.data.astype(np.float32).reshape(-1), tile.vectors, e.lanes), "c")
        if bias is not None and bias.data is not None
        else None
    )
    epilogue = epilogue_of(job, steps, extras, node.output.shape)
    y = job.writes()
    writer = TileWriter(job, matrix_geometry(rows, depth, columns), tile, a, w, b, y, epilogue)
    if shared:
        if source is not None:
            _pack(job, writer, source, idx(0), depth, columns, op.transpose_b)
        writer.matrix(rows, depth)
    else:
        left_walk = broadcast_strides(left.shape[:-2], batch)
        right_walk = broadcast_strides(right.shape[:-2], batch)
        with job.k.loops([f"b{n}" for n in range(len(batch))], list(batch)) as at:
            writer.x_base = job.k.let("x_at", offset_of(at, [s * rows * depth for s in left_walk]))
            writer.y_base = job.k.let("y_at", offset_of(at, [s * rows * columns for s in strides_of(batch)]))
            which = offset_of(at, list(right_walk))
            if source is None:
                writer.w_base = job.k.let("w_at", which * stored)
            else:
                _pack(job, writer, source, job.k.let("b_at", which * (depth * columns)), depth, columns, op.transpose_b)
            writer.matrix(rows, depth)
    about = (
        f"matmul {list(left.shape)} x {list(right.shape)}{' transposed' if op.transpose_b else ''} -> {list(node.output.shape)}"
        + "".join(f" + {s.op.NAME}" for s in op.epilogue)
        + f"\ntile {tile.rows} rows x {tile.vectors * e.lanes} columns, "
        + f"right side packed {'at compile time' if packed_now else 'into scratch'}"
    )
    return job.done(f"matmul_{rows}_{depth}_{columns}", about, f"matmul(tile={tile})", over=epilogue.over)


def _pack(job: Job, writer: TileWriter, source: Buffer, base: Expr, depth: int, columns: int, transposed: bool) -> None:
    """scratch[block][k][lane] = b[k][column], zeros in lanes without a column."""
    k, e = job.k, job.vector
    place = 0
    wide = writer.tile.vectors * e.lanes
    whole = [b for b in writer.blocks if b.width == wide]
    groups = [(whole[0], len(whole))] if whole else []
    groups += [(b, 1) for b in writer.blocks[len(whole) :]]
    for block, count in groups:
        width = block.vectors * e.lanes
        with k.loop("block", 0, count) as n:
            to = k.let("to", n * (width * depth) + place)
            first = k.let("first", base + (n * width + block.first) * (depth if transposed else 1))
            if transposed:
                with k.loop("column", 0, block.width) as c, k.loop("j", 0, depth) as j:
                    k.store(writer.w, to + j * width + c, Load(source, first + c * depth + j, Type("f32")))
                with k.loop("column", block.width, width) as c, k.loop("j", 0, depth) as j:
                    k.store(writer.w, to + j * width + c, Num(0.0, Type("f32")))
            else:
                with k.loop("j", 0, depth) as j:
                    for v in range(block.vectors):
                        part = block.lanes_of(v, e.lanes) if e.vector else 0
                        k.store(
                            writer.w,
                            to + j * width + v * e.lanes,
                            e.load(source, first + j * columns + v * e.lanes, part),
                        )
        place += count * width * depth


def matmul_general(job: Job) -> Lowered:
    """Any type, any transposition: three loops around one sum."""
    op, node, k = job.node.op, job.node, job.k
    assert isinstance(op, MatMul)
    left, right, out = job.type(0), job.type(1), node.output
    kind = computed_in(out.dtype)
    e = Lanes.scalar(kind)
    a, b = job.operand(0, "a"), job.operand(1, "b")
    bias = job.optional(2)
    extras: list[Value] = [v for v in node.inputs[3:] if v is not None]
    steps = op.epilogue
    if bias is not None:
        steps, extras = _with_bias(steps, len(extras)), [bias, *extras]
    found = [Extra(job.reads(v, f"e{n}"), "") for n, v in enumerate(extras)]
    y = job.writes()
    batch = out.shape[:-2]
    m_size, n_size = out.shape[-2:]
    depth = left.shape[-2] if op.transpose_a else left.shape[-1]
    a_row, a_col = (1, left.shape[-1]) if op.transpose_a else (left.shape[-1], 1)
    b_row, b_col = (1, right.shape[-1]) if op.transpose_b else (right.shape[-1], 1)
    names = [f"b{n}" for n in range(len(batch))]
    with k.loops([*names, "m", "n"], [*batch, m_size, n_size]) as at:
        *outer, m, n = at
        a_size, b_size = math.prod(left.shape[-2:]), math.prod(right.shape[-2:])
        a_at = k.let("a_at", offset_of(outer, [s * a_size for s in broadcast_strides(left.shape[:-2], batch)]) + m * a_row)
        b_at = k.let("b_at", offset_of(outer, [s * b_size for s in broadcast_strides(right.shape[:-2], batch)]) + n * b_col)
        total = k.var("total", e.const(0))
        with k.loop("j", 0, depth) as j:
            product = e.mul(cast(e.load(a, a_at + j * a_col), e.type), cast(e.load(b, b_at + j * b_row), e.type))
            k.assign(total, e.add(total, product))
        operands: list[Expr] = [total]
        for extra, value in zip(found, extras, strict=True):
            operands.append(k.let("s", e.load(extra.buffer, offset_of(at, list(broadcast_strides(value.shape, out.shape))))))
        result = apply(k, e, steps, operands) if steps else total
        k.store(y, offset_of(at, list(strides_of(out.shape))), cast(result, Type(y.dtype.value)))
    about = f"matmul {list(left.shape)} x {list(right.shape)} -> {list(out.shape)}, {out.dtype.value}"
    return job.done(f"matmul_{out.dtype.value}", about, "matmul_general")


__all__ = ["Epilogue", "matmul_general", "matmul_tiled"]
