"""Operators that only move numbers, or choose among them, do so with integers as well."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Node, Value
from intaglio.ir.types import DType
from intaglio.ops.convert import Dequantize, Quantize
from intaglio.ops.index import Gather
from intaglio.ops.move import Concat, Expand, Pad, Reshape, Slice, Tile, Transpose
from intaglio.ops.pool import MaxPool
from intaglio.ops.reduce import Reduce
from intaglio.ops.resize import Resize
from intaglio.passes.absorb.real import Absorber, Grid, Real
from intaglio.passes.absorb.tables import table_between

_MOVERS = (Reshape, Transpose, Slice, Expand, Tile, Gather, MaxPool)


def moved(work: Absorber, node: Node) -> Value | None:
    """reshape(dequantize(x)) is dequantize(reshape(x)): the Dequantize moves down, towards the Quantize that undoes it."""
    op = node.op
    if not node.inputs or node.inputs[0] is None:
        return None
    first = work.real(node.inputs[0])
    if first is None or not first.single or first.stored.data is not None:
        return None
    if isinstance(op, Concat):
        parts = [work.real(v) for v in node.inputs]
        if any(p is None or not p.like(first) or p.stored.dtype is not first.stored.dtype for p in parts):
            return None
        return _down(work, node, first, [p.stored for p in parts if p is not None])
    if isinstance(op, Pad):
        return _padded(work, node, op, first)
    nearest = isinstance(op, Resize) and op.mode == "nearest"
    highest = isinstance(op, Reduce) and op.kind in ("max", "min")
    if isinstance(op, _MOVERS) or nearest or highest:
        return _down(work, node, first, [first.stored, *node.inputs[1:]])
    return None


def _down(work: Absorber, node: Node, real: Real, inputs: list[Value | None] | list[Value]) -> Value:
    stored = work.emit(node.op, list(inputs), node)
    stored.type = replace(stored.type, quant=None, layout=node.output.type.layout)
    return work.dequantised(stored, real, node)


def _padded(work: Absorber, node: Node, op: Pad, real: Real) -> Value | None:
    """A constant that lies on the grid of the integers; edges and reflections always do."""
    if op.mode == "constant":
        exact = op.value / float(real.step) + real.origin
        info = np.iinfo(real.stored.dtype.numpy)
        number = round(exact)
        if abs(exact - number) > 1e-6 or not info.min <= number <= info.max:
            return None
        op = replace(op, value=float(number))
    stored = work.emit(op, [real.stored, *node.inputs[1:]], node)
    return work.dequantised(stored, real, node)


def requantised_concat(work: Absorber, node: Node, grid: Grid) -> Value | None:
    """Parts on different grids: each is brought to the grid of the whole."""
    core = work.producer(node.inputs[0], node)
    if core is None or not isinstance(core.op, Concat):
        return None
    parts = [work.real(v) for v in core.inputs]
    if any(p is None or not p.single or p.stored.dtype not in (DType.I8, DType.U8, DType.I16) for p in parts):
        return None
    stored: list[Value | None] = [_on_grid(work, node, p, grid) for p in parts if p is not None]
    return work.emit(core.op, stored, node)


def _on_grid(work: Absorber, node: Node, part: Real, grid: Grid) -> Value:
    info = np.iinfo(part.stored.dtype.numpy)
    if part.like(grid) and part.stored.dtype is grid.to and grid.low <= info.min and grid.high >= info.max:
        return part.stored
    by_table = table_between(work, node, part, grid)
    if by_table is not None:
        return by_table
    real = work.emit(Dequantize(DType.F32), [part.stored, *_parameters(work, part.step, part.origin, part.stored.dtype)], node)
    op = Quantize(grid.to, grid.low, grid.high, grid.half_away)
    return work.emit(op, [real, *_parameters(work, grid.step, grid.origin, grid.to)], node)


def _parameters(work: Absorber, step: np.float32, origin: int, dtype: DType) -> list[Value]:
    return [work.constant(np.asarray(step, np.float32), "scale"), work.constant(np.asarray(origin, dtype.numpy), "zero")]
