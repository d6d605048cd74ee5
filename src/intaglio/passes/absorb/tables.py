"""A function of one 8-bit number is a table of 256 numbers, however it is written down."""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Array, Node, Value
from intaglio.ir.types import DType
from intaglio.ops.base import Elementwise
from intaglio.ops.convert import Quantize
from intaglio.ops.quantised import Lookup
from intaglio.passes.absorb.real import Absorber, Grid, Real

_MOST_STEPS = 24


def lookup(work: Absorber, node: Node, grid: Grid) -> Value | None:
    """Elementwise operators on one quantised tensor and single constants, up to the Quantize."""
    source = node.inputs[0]
    if source is None or grid.to not in (DType.I8, DType.U8, DType.I16):
        return None
    tracer = _Tracer(work)
    floats = tracer.values(source)
    if floats is None or tracer.root is None or source.shape != tracer.root.stored.shape:
        return None
    return _looked_up(work, node, tracer.root, _placed(floats, grid))


def table_between(work: Absorber, node: Node, part: Real, grid: Grid) -> Value | None:
    """From one grid to another."""
    if part.stored.dtype not in (DType.I8, DType.U8) or grid.to not in (DType.I8, DType.U8, DType.I16):
        return None
    return _looked_up(work, node, part, _placed(_reals(part), grid))


def _looked_up(work: Absorber, node: Node, root: Real, table: Array) -> Value:
    return work.emit(Lookup(), [root.stored, work.constant(table, "table")], node)


def _reals(root: Real) -> Array:
    """The 256 numbers that the integers stand for."""
    info = np.iinfo(root.stored.dtype.numpy)
    steps = np.arange(info.min, info.max + 1, dtype=np.int64) - root.origin
    return steps.astype(np.float32) * root.step


def _placed(floats: Array, grid: Grid) -> Array:
    op = Quantize(grid.to, grid.low, grid.high, grid.half_away)
    return op.compute(floats, np.asarray(grid.step, np.float32), np.asarray(grid.origin, np.int64))


class _Tracer:
    """Evaluates what leads to a value on all 256 numbers of the one tensor it depends on."""

    def __init__(self, work: Absorber) -> None:
        self.work = work
        self.root: Real | None = None
        self.known: dict[Value, Array] = {}
        self.steps = 0

    def values(self, value: Value) -> Array | None:
        if value in self.known:
            return self.known[value]
        if value.data is not None:
            return value.data.reshape(-1)[:1] if value.type.elements == 1 else None
        real = self.work.real(value)
        if real is not None:
            return self._root(value, real)
        node = self.work.edit.made.get(value)
        self.steps += 1
        if node is None or not isinstance(node.op, Elementwise) or node.when is not None or self.steps > _MOST_STEPS:
            return None
        if value.name in self.work.floats:
            return None
        arrays: list[Array] = []
        for operand in node.inputs:
            array = None if operand is None else self.values(operand)
            if array is None:
                return None
            arrays.append(array)
        with np.errstate(all="ignore"):
            self.known[value] = np.broadcast_to(node.op.compute(*arrays), (256,))
        return self.known[value]

    def _root(self, value: Value, real: Real) -> Array | None:
        if self.root is None:
            self.root = real
        same = real.stored is self.root.stored and real.like(self.root)
        if not same or real.stored.dtype not in (DType.I8, DType.U8) or real.stored.data is not None:
            return None
        self.known[value] = _reals(real)
        return self.known[value]
