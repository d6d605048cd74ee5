"""Small steps that many rows take. Each returns its operand when there is nothing to do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from intaglio.frontends.onnx.call import Call
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops import Cast, Concat, Expand, Reshape, Slice, Transpose


def reshape(call: Call, x: Value, shape: Sequence[int]) -> Value:
    target = tuple(shape)
    return x if x.shape == target else call.emit(Reshape(target), x)


def transpose(call: Call, x: Value, perm: Sequence[int]) -> Value:
    return x if list(perm) == list(range(len(x.shape))) else call.emit(Transpose(tuple(perm)), x)


def cast(call: Call, x: Value, to: DType) -> Value:
    return x if x.dtype is to else call.emit(Cast(to), x)


def expand(call: Call, x: Value, shape: Sequence[int]) -> Value:
    target = tuple(shape)
    return x if x.shape == target else call.emit(Expand(target), x)


def concat(call: Call, values: Sequence[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else call.emit(Concat(axis), *values)


def part(call: Call, x: Value, axis: int, start: int, count: int) -> Value:
    """`count` elements along one axis."""
    if start == 0 and count == x.shape[axis]:
        return x
    starts = [0] * len(x.shape)
    starts[axis] = start
    shape = list(x.shape)
    shape[axis] = count
    return call.emit(Slice(tuple(starts), (1,) * len(shape), tuple(shape)), x)


def unsqueeze(call: Call, x: Value, axis: int) -> Value:
    return reshape(call, x, (*x.shape[:axis], 1, *x.shape[axis:]))


def resolved_shape(call: Call, x: Value, wanted: Sequence[int], allow_zero: bool) -> tuple[int, ...]:
    """A Reshape target: 0 copies a dimension, one -1 is what is left."""
    shape = []
    for i, d in enumerate(wanted):
        if d == 0 and not allow_zero:
            if i >= len(x.shape):
                raise Fault("bad-attribute", f"the shape {list(wanted)} copies dimension {i} of {list(x.shape)}")
            d = x.shape[i]
        if d < -1:
            raise Fault("bad-attribute", f"the shape {list(wanted)} has a negative dimension")
        shape.append(d)
    if shape.count(-1) > 1:
        raise Fault("bad-attribute", f"the shape {list(wanted)} has two -1")
    if -1 in shape:
        rest = math.prod(d for d in shape if d != -1)
        if rest == 0 or x.type.elements % rest:
            if not (rest == 0 and x.type.elements == 0):
                raise Fault("shape-mismatch", f"cannot reshape {list(x.shape)} into {list(wanted)}")
            shape[shape.index(-1)] = 0
        else:
            shape[shape.index(-1)] = x.type.elements // rest
    return tuple(shape)
