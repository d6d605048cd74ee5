"""Which rows of its operands an operator needs for some rows of its result, and the operator that makes just these.

Rows are the steps along one axis, in front of which every axis has size 1, so that they are runs of memory:

    conv 3x3, stride 2, one row of padding        rows 4..5 of the result need rows 7..11 of x
    qadd                                          rows 4..5 need rows 4..5 of both sides

    access_of(node, axis=1) -> (Access(3, 2, 1), None, None)       None: the operand is needed as it is (weights)
    cut(op, axis=1, rows=2, top=0, bottom=0)                       the same operator with the padding that these rows have
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from intaglio.ir.graph import Node, Value
from intaglio.ir.operator import Op
from intaglio.ir.sizes import names_of
from intaglio.ir.types import Layout, TensorType
from intaglio.ops.base import Elementwise, normal_axes, normal_axis
from intaglio.ops.control import Copy
from intaglio.ops.conv import Conv
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Concat, Pad, Slice
from intaglio.ops.pool import AveragePool, LpPool, MaxPool, Pool
from intaglio.ops.quantised import Lookup, QConv, QMatMul
from intaglio.ops.quantised_rows import QAveragePool, QMean, QSoftmax
from intaglio.ops.quantised_tables import Lookup16, QSoftmax16, Squash16
from intaglio.ops.reduce import LogSoftmax, Reduce, Softmax


class NoRows(Exception):
    """The operator cannot be made a few rows at a time. The text says why."""


@dataclass(frozen=True, slots=True)
class Access:
    """Rows o..o+n of the result need the rows from o * stride - before, as many as the windows of n results span."""

    extent: int = 1
    stride: int = 1
    before: int = 0
    after: int = 0  # padding behind the last row

    def span(self, first: int, count: int) -> tuple[int, int]:
        """The first row and the one behind the last; they may lie in the padding."""
        low = first * self.stride - self.before
        return low, low + (count - 1) * self.stride + self.extent


SAME = Access()


@dataclass(frozen=True, slots=True)
class Need:
    """Rows low..high of an operand, and how many rows of padding are above and below them."""

    low: int
    high: int
    top: int
    bottom: int


def rows_of(value: Value, axis: int) -> int:
    return value.shape[axis]


def row_bytes(value: Value, axis: int) -> int:
    return math.prod(value.shape[axis + 1 :]) * value.dtype.bytes


def need(access: Access, first: int, count: int, rows: int) -> Need:
    """What `count` rows of the result need of an operand that has `rows` of them."""
    low, high = access.span(first, count)
    inside = Need(max(low, 0), min(high, rows), max(-low, 0), max(high - rows, 0))
    if inside.low >= inside.high:
        raise NoRows("a row is made of padding alone")
    return inside


def access_of(node: Node, axis: int) -> tuple[Access | None, ...]:
    """For each operand; None where it is needed as a whole. Raises NoRows."""
    op, out = node.op, node.output
    if node.when is not None:
        raise NoRows("it is made under a condition only")
    if len(node.outputs) != 1:
        raise NoRows("it has several results")
    if out.type.rank <= axis or math.prod(out.shape[:axis]) != 1:
        raise NoRows("rows of its result are not runs of memory")
    found = _accesses(op, node, axis)
    for value, access in zip(node.inputs, found, strict=True):
        if access is None:
            continue
        if value is None or value.is_const or value.type.rank <= axis or math.prod(value.shape[:axis]) != 1:
            raise NoRows("rows of its operand are not runs of memory")
    if not any(found):
        raise NoRows("it reads no rows")
    if names := names_of(found):
        raise NoRows(f"its padding depends on {', '.join(sorted(names))}")
    ways: dict[Value, Access | None] = {}
    for value, access in zip(node.inputs, found, strict=True):
        if value is not None and ways.setdefault(value, access) != access:
            raise NoRows(f"it reads `{value.name}` in two ways")
    return found


def _accesses(op: Op, node: Node, axis: int) -> tuple[Access | None, ...]:
    inputs = node.inputs
    match op:
        case QConv() | Conv():
            if axis != 1 or (isinstance(op, Conv) and op.layout is not Layout.NHWC):
                raise NoRows("its rows are not runs of memory")
            weights = inputs[1]
            assert weights is not None
            first = _window(weights.shape[2], op.strides, op.pads, op.dilations)
            operands = 5 if isinstance(op, QConv) else 3
            rest = [_same_rows(v, node.output, axis) for v in inputs[operands:]]
            return (first, *[None] * (min(len(inputs), operands) - 1), *rest)
        case MaxPool() | AveragePool() | LpPool() | QAveragePool():
            if axis != 1 or (isinstance(op, Pool) and op.layout is not Layout.NHWC):
                raise NoRows("its rows are not runs of memory")
            dilations = op.dilations if isinstance(op, Pool) else (1, 1)
            found = _window(op.kernel[0], op.strides, op.pads, dilations)
            if isinstance(op, AveragePool) and op.count_include_pad and (found.before or found.after):
                raise NoRows("its mean counts the padding")
            return (found,)
        case Elementwise():
            return tuple(_same_rows(v, node.output, axis) for v in inputs)
        case Copy() | Lookup() | Lookup16() | Squash16():
            return (SAME, *[None] * (len(inputs) - 1))
        case Concat() if normal_axis(op.axis, node.output.type.rank) > axis:
            return tuple(SAME for _ in inputs)
        case Softmax() | LogSoftmax() | QSoftmax() | QSoftmax16():
            along = getattr(op, "axis", -1)
            if normal_axis(along, node.output.type.rank) <= axis:
                raise NoRows("it needs all rows at once")
            return (SAME,)
        case Reduce() | QMean():
            x = _first(inputs)
            if any(a <= axis for a in normal_axes(op.axes, x.type.rank)):
                raise NoRows("it needs all rows at once")
            return (SAME,)
        case Pad():
            rank = node.output.type.rank
            if any(n != 0 for n in (*op.pads[: axis + 1], *op.pads[rank : rank + axis + 1])):
                raise NoRows("it adds rows")
            return (SAME,)
        case Slice():
            x = _first(inputs)
            if x.shape[: axis + 1] != node.output.shape[: axis + 1]:
                raise NoRows("it takes some of the rows")
            return (SAME,)
        case MatMul() | QMatMul():
            return _product(op, node, axis)
    raise NoRows(f"it is a `{op.NAME}`, whose rows are made together")


def _first(inputs: list[Value | None]) -> Value:
    assert inputs[0] is not None
    return inputs[0]


def _window(size: int, strides: tuple[int, ...], pads: tuple[int, ...], dilations: tuple[int, ...]) -> Access:
    return Access((size - 1) * dilations[0] + 1, strides[0], pads[0], pads[len(pads) // 2])


def _same_rows(value: Value | None, out: Value, axis: int) -> Access | None:
    """An operand of an elementwise operator: the same rows, or broadcast along them."""
    if value is None:
        return None
    lead = out.type.rank - value.type.rank
    if lead > axis or value.shape[axis - lead] == 1:
        return None if out.shape[axis] != 1 or value.is_const else SAME
    if value.is_const or lead:
        raise NoRows("a constant has rows of its own")
    return SAME


def _product(op: MatMul | QMatMul, node: Node, axis: int) -> tuple[Access | None, ...]:
    a, b = node.inputs[0], node.inputs[1]
    assert a is not None and b is not None
    if not b.is_const or a.type.rank < axis + 2 or a.type.rank != node.output.type.rank or b.type.rank != 2:
        raise NoRows("it is a dense layer over all of its input, or a product of two tensors")
    if getattr(op, "transpose_a", False):
        raise NoRows("it needs all rows at once")
    first = 5 if isinstance(op, QMatMul) else 3
    rest = [_same_rows(v, node.output, axis) for v in node.inputs[first:]]
    return (SAME, *[None] * (min(len(node.inputs), first) - 1), *rest)


def cut(op: Op, axis: int, rows: int, top: int, bottom: int) -> Op:
    """The operator that makes `rows` rows, with this padding above and below what it reads."""
    if isinstance(op, (QConv, Conv, Pool, QAveragePool)):
        half = len(op.pads) // 2
        pads = (top, *op.pads[1:half], bottom, *op.pads[half + 1 :])
        op = replace(op, pads=pads, counted_pads=()) if isinstance(op, AveragePool) else replace(op, pads=pads)
    if isinstance(op, Slice):
        op = replace(op, shape=(*op.shape[:axis], rows, *op.shape[axis + 1 :]))
    return op


def with_rows(type: TensorType, axis: int, rows: int) -> TensorType:
    return replace(type, shape=(*type.shape[:axis], rows, *type.shape[axis + 1 :]))
