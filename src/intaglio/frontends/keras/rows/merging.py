"""Layers of several tensors."""

from __future__ import annotations

from intaglio.frontends.building import cast, concat, reshape, transpose
from intaglio.frontends.keras.walk import KerasCall, Result, layer
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value
from intaglio.ops.base import normal_axis
from intaglio.ops.binary import Add, Div, Max, Min, Mul, Sub
from intaglio.ops.matmul import MatMul
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Sqrt

_PAIRS = {
    "Add": Add(),
    "Subtract": Sub(),
    "Multiply": Mul(),
    "Maximum": Max(),
    "Minimum": Min(),
    "Average": Add(),
}


def _alike(call: KerasCall) -> list[Value]:
    """Whole numbers become floats beside floats."""
    values = call.tensors()
    to = next((v.dtype for v in values if v.dtype.is_float), None)
    return values if to is None else [v if v.dtype.is_float else cast(call, v, to) for v in values]


def _aligned(call: KerasCall, values: list[Value]) -> list[Value]:
    """Tensors of fewer axes get theirs after the batch, as Keras does it."""
    rank = max(v.type.rank for v in values)
    return [reshape(call, v, (*v.shape[:1], *(1,) * (rank - v.type.rank), *v.shape[1:])) for v in values]


@layer(*_PAIRS)
def merge(call: KerasCall) -> Result:
    values = _aligned(call, _alike(call))
    kind = call.layer.kind
    if len(values) < 2 or (kind == "Subtract" and len(values) != 2):
        raise Fault("bad-graph", f"it is called with {len(values)} tensors")
    y = values[0]
    for value in values[1:]:
        y = call.emit(_PAIRS[kind], y, value)
    return call.emit(Mul(), y, call.like(1 / len(values), y)) if kind == "Average" else y


@layer("Concatenate")
def concatenate(call: KerasCall) -> Result:
    values = _alike(call)
    return concat(call, values, normal_axis(call.whole("axis", -1), values[0].type.rank))


@layer("Dot")
def dot(call: KerasCall) -> Result:
    """A product of matrices for each sample, over one axis of both."""
    x, y = call.tensors()
    told = call.option("axes")
    axes = [told, told] if type(told) is int else told
    if not isinstance(axes, list) or len(axes) != 2 or min(x.type.rank, y.type.rank) < 2:
        raise Fault("bad-attribute", f"`axes` is {told}, which is not valid")
    a, b = normal_axis(int(axes[0]), x.type.rank), normal_axis(int(axes[1]), y.type.rank)
    if 0 in (a, b):
        raise Fault("bad-attribute", "the axis of the batch cannot be summed over")
    if call.flag("normalize"):
        x, y = unit(call, x, (a,)), unit(call, y, (b,))
    left = [n for n in range(1, x.type.rank) if n != a]
    right = [n for n in range(1, y.type.rank) if n != b]
    rows = transpose(call, x, [0, *left, a])
    columns = transpose(call, y, [0, b, *right])
    first = reshape(call, rows, (x.shape[0], _size(x, left), x.shape[a]))
    second = reshape(call, columns, (y.shape[0], y.shape[b], _size(y, right)))
    z = call.emit(MatMul(), first, second)
    shape = (x.shape[0], *[x.shape[n] for n in left], *[y.shape[n] for n in right])
    return reshape(call, z, shape if len(shape) > 1 else (x.shape[0], 1))


def _size(x: Value, axes: list[int]) -> int:
    size = 1
    for axis in axes:
        size *= x.shape[axis]
    return size


def unit(call: KerasCall, x: Value, axes: tuple[int, ...], epsilon: float = 1e-12) -> Value:
    """Divided by its length along the axes."""
    square = call.emit(Reduce("sum", axes, True), call.emit(Mul(), x, x))
    length = call.emit(Sqrt(), call.emit(Max(), square, call.like(epsilon, square)))
    return call.emit(Div(), x, length)
