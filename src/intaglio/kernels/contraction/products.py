"""Matrix products of floats by register tiles: `matmul(a, b)`, batched and broadcast as numpy does.

A constant right side is packed at compile time and all leading axes of the left side become rows. A right side that is computed
(attention) is packed into scratch first, matrix by matrix: reading it once in order costs less than striding through it for
every tile. One row (a vector times a matrix) is the same code with a tile one row high and many columns wide.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from intaglio.ir.graph import Array, Value
from intaglio.ir.sizes import Size, largest, most
from intaglio.ir.types import DType, strides_of
from intaglio.kernels.contraction.fma import Fma, pack_bias, pack_panels
from intaglio.kernels.contraction.packing import Right, pack_right
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.contraction.tile import choose_tile, cycles, parse_tile, possible_tiles
from intaglio.kernels.contraction.tiles import Tiles, far_weights
from intaglio.kernels.elementwise import broadcast_strides, offset_of
from intaglio.kernels.epilogue import epilogue_of, operand_kind, steps_text
from intaglio.kernels.estimate import micros
from intaglio.kernels.expressions import apply, computed_in
from intaglio.kernels.job import Job, Lowered, fact, stem
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Type, cast, idx
from intaglio.ops.base import Step
from intaglio.ops.binary import Add
from intaglio.ops.matmul import MatMul

PACK_CYCLES = 2.0  # per vector of a right side that is packed when it is computed


@dataclass(frozen=True, slots=True)
class Product:
    """y[rows, columns] = x[rows, depth] * right, once for all leading axes (`shared`) or for each of them."""

    rows: int
    depth: int
    columns: int
    shared: bool
    bias: Array | None  # one number per column; any other bias is the first step
    steps: tuple[Step, ...]
    extras: tuple[Value, ...]


def with_bias(steps: tuple[Step, ...], extras: int) -> tuple[Step, ...]:
    """Prepend an addition of a new operand 1, so that a bias of any shape is a step like the others."""
    moved = [Step(s.op, tuple(0 if a < 0 else _moved(a, extras) for a in s.args)) for s in steps]
    return (Step(Add(), (0, 1)), *moved)


def _moved(arg: int, extras: int) -> int:
    """Where an operand or an earlier step is once the bias stands at 1 and its sum is the first step."""
    if arg == 0:
        return extras + 2  # the accumulator with its bias
    return arg + 1 if arg <= extras else arg + 2


@fact
def product_of(job: Job) -> Product:
    op, out = job.node.op, job.node.output
    assert isinstance(op, MatMul)
    left, right, bias = job.type(0), job.type(1), job.optional(2)
    shared = math.prod(right.shape[:-2]) == 1
    rows = math.prod(out.shape[:-1]) if shared else out.shape[-2]
    extras = tuple(v for v in job.node.inputs[3:] if v is not None)
    data, steps = None, op.epilogue
    if bias is not None and bias.data is not None and operand_kind(bias.shape, out.shape) == "channel":
        data = bias.data
    elif bias is not None:
        steps, extras = with_bias(steps, len(extras)), (bias, *extras)
    return Product(rows, left.shape[-1], out.shape[-1], shared, data, steps, extras)


def matmul_applies(job: Job) -> str | None:
    op, out, weights = job.node.op, job.node.output, job.node.inputs[1]
    assert isinstance(op, MatMul) and weights is not None
    left, p = job.type(0), product_of(job)
    if left.dtype is not DType.F32 or out.dtype is not DType.F32:
        return f"the types are {left.dtype.value} and {out.dtype.value}, not f32"
    if op.transpose_a:
        return "the left side is transposed"
    if out.type.elements == 0 or p.depth == 0:
        return "a tensor is empty"
    if isinstance(p.columns, Size):
        return f"the number of columns is a size of the caller, {p.columns}"
    if weights.dtype is not DType.F32 and weights.data is None:
        return "the right side is computed and not f32"
    if p.shared and math.prod(left.shape[:-1]) != p.rows:
        return "the left side is repeated"
    if any(operand_kind(v.shape, out.shape) is None for v in p.extras):
        return "an operand of the epilogue is neither one number, one per column nor one per result"
    return None


def matmul_ways(job: Job) -> list[str]:
    p, lanes = product_of(job), job.vector.lanes
    chosen = choose_tile(job.target, p.rows, p.columns, p.depth, lanes)
    return [f"matmul(tile={tile})" for tile in possible_tiles(job.target, p.rows, p.columns, lanes, chosen)]


def matmul_estimate(job: Job) -> float:
    """With the packing of a right side that is computed."""
    p, lanes = product_of(job), job.vector.lanes
    count = 1 if p.shared else math.prod(largest(job.node.output.shape[:-2]))
    tile = parse_tile(job.asked) or choose_tile(job.target, p.rows, p.columns, p.depth, lanes)
    steps = cycles(job.target, tile, p.rows, p.columns, p.depth, lanes) * count
    right = job.node.inputs[1]
    assert right is not None
    if right.data is None:
        steps += most(right.type.elements) / lanes * PACK_CYCLES
    return micros(job.target, lanes, steps, 0 if right.data is None else right.type.bytes)


def matmul_tiled(job: Job) -> Lowered:
    op, node, p = job.node.op, job.node, product_of(job)
    weights = node.inputs[1]
    assert isinstance(op, MatMul) and weights is not None
    left, right = job.type(0), job.type(1)
    e, problem = job.vector, Problem.matrix(p.rows, p.depth, p.columns)
    tile = parse_tile(job.asked) or choose_tile(job.target, p.rows, p.columns, p.depth, e.lanes)
    stored = -(-p.columns // e.lanes) * e.lanes * p.depth  # numbers of a packed right side
    a = job.operand(0, "x")
    source: Buffer | None = None
    if weights.data is not None:
        data = weights.data.swapaxes(-1, -2) if op.transpose_b else weights.data
        w = pack_panels(job, list(data.reshape(-1, p.depth, p.columns)), tile)
    else:
        source = job.operand(1, "b")
        w = job.scratch(stored, "w", own=not p.shared)
    b = pack_bias(job, p.bias, 1, tile, "c")
    epilogue = epilogue_of(job, p.steps, list(p.extras), node.output.shape)
    far = source is None and far_weights(job.target, weights.type.bytes)
    tiles = Tiles(job.k, problem, tile, Fma(e, w, b, job.writes(), epilogue), far=far)
    if p.shared:
        if source is not None:
            _pack(job, p, tiles, source, idx(0), op.transpose_b)
        tiles.matrix(a, job.target.l2_bytes)
    else:
        _batches(job, p, tiles, a, source, stored)
    about = (
        f"matmul {list(left.shape)} x {list(right.shape)}{' transposed' if op.transpose_b else ''} -> "
        f"{list(node.output.shape)}{steps_text(op.epilogue)}\n"
        f"{tile.about(p.rows, 'row', e.lanes, 'columns')}, "
        f"right side packed {'into scratch' if source is not None else 'at compile time'}"
    )
    return job.done(stem("matmul", p.rows, p.depth, p.columns), about, f"matmul(tile={tile})", over=epilogue.over)


def _batches(job: Job, p: Product, tiles: Tiles, a: Buffer, source: Buffer | None, stored: int) -> None:
    """A product for each of the leading axes; sides that are the same for several are read again."""
    op, k, batch = job.node.op, job.k, job.node.output.shape[:-2]
    assert isinstance(op, MatMul)
    left_walk, right_walk = (broadcast_strides(job.type(i).shape[:-2], batch) for i in (0, 1))
    with k.loops([f"b{n}" for n in range(len(batch))], list(batch)) as at:
        tiles.x_base = k.let("x_at", offset_of(at, [s * p.rows * p.depth for s in left_walk]))
        tiles.y_base = k.let("y_at", offset_of(at, [s * p.rows * p.columns for s in strides_of(batch)]))
        which = offset_of(at, list(right_walk))
        if source is None:
            tiles.w_base = k.let("w_at", which * stored)
        else:
            _pack(job, p, tiles, source, k.let("b_at", which * (p.depth * p.columns)), op.transpose_b)
        tiles.matrix(a, job.target.l2_bytes)


def _pack(job: Job, p: Product, tiles: Tiles, source: Buffer, base: Expr, transposed: bool) -> None:
    down, across = (1, p.depth) if transposed else (p.columns, 1)
    pack_right(job, tiles, Right(source, base, down, across, p.columns))


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
        steps, extras = with_bias(steps, len(extras)), [bias, *extras]
    found = [job.reads(v, f"e{n}") for n, v in enumerate(extras)]
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
        for buffer, value in zip(found, extras, strict=True):
            operands.append(k.let("s", e.load(buffer, offset_of(at, list(broadcast_strides(value.shape, out.shape))))))
        result = apply(k, e, steps, operands) if steps else total
        k.store(y, offset_of(at, list(strides_of(out.shape))), cast(result, Type(y.dtype.value)))
    about = f"matmul {list(left.shape)} x {list(right.shape)} -> {list(out.shape)}, {out.dtype.value}"
    return job.done(f"matmul_{out.dtype.value}", about, "matmul_general")
