"""Small steps that many rows of many front ends take. Each returns its operand when there is nothing to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from intaglio.frontends.emitting import Emits
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Array, Value
from intaglio.ir.sizes import Size, Values, larger, least, most, moves, values_of
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, Div, Equal, Less, LogicalAnd, LogicalOr, Mul, Sub, Where
from intaglio.ops.convert import Cast
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Concat, Expand, Pad, Reshape, Slice, Transpose
from intaglio.ops.reduce import Reduce
from intaglio.ops.resize import Resize
from intaglio.ops.unary import Atan, Reciprocal, Sqrt


def reshape(call: Emits, x: Value, shape: Sequence[int]) -> Value:
    target = tuple(shape)
    return x if x.shape == target else call.emit(Reshape(target), x)


def transpose(call: Emits, x: Value, perm: Sequence[int]) -> Value:
    return x if list(perm) == list(range(len(x.shape))) else call.emit(Transpose(tuple(perm)), x)


def cast(call: Emits, x: Value, to: DType) -> Value:
    return x if x.dtype is to else call.emit(Cast(to), x)


def expand(call: Emits, x: Value, shape: Sequence[int]) -> Value:
    target = tuple(shape)
    return x if x.shape == target else call.emit(Expand(target), x)


def concat(call: Emits, values: Sequence[Value], axis: int) -> Value:
    return values[0] if len(values) == 1 else call.emit(Concat(axis), *values)


def part(call: Emits, x: Value, axis: int, start: int, count: int) -> Value:
    """`count` elements along one axis."""
    if start == 0 and count == x.shape[axis]:
        return x
    starts = [0] * len(x.shape)
    starts[axis] = start
    shape = list(x.shape)
    shape[axis] = count
    return call.emit(Slice(tuple(starts), (1,) * len(shape), tuple(shape)), x)


def unsqueeze(call: Emits, x: Value, axis: int) -> Value:
    return reshape(call, x, (*x.shape[:axis], 1, *x.shape[axis:]))


def resolved_shape(call: Emits, x: Value, wanted: Sequence[int], allow_zero: bool) -> tuple[int, ...]:
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


def padded(call: Emits, x: Value, pads: list[int], mode: str = "constant", value: float = 0.0) -> Value:
    """Pads that may be negative: those cut. Where they follow from a size, they may do either."""
    rank = len(x.shape)
    if any(abs(most(p)) > 2**31 for p in pads):
        raise Fault("bad-attribute", f"pads {pads} are out of range")
    if any(least(n) < 0 for n in pads):
        starts = [larger(0, -pads[i]) for i in range(rank)]
        shape = [n - starts[i] - larger(0, -pads[i + rank]) for i, n in enumerate(x.shape)]
        if any(least(n) < 0 for n in shape):
            raise Fault("bad-attribute", f"pads {pads} remove more than {list(x.shape)} has")
        x = call.emit(Slice(tuple(starts), (1,) * rank, tuple(shape)), x)
        pads = [larger(0, p) for p in pads]
    return x if all(n == 0 for n in pads) else call.emit(Pad(tuple(pads), mode, value), x)


def scaled_size(size: Size, scale: float, rounded: Values) -> int:
    """A size times a factor, rounded down: a formula that gives what a runtime gets with floats (`rounded`), for every size."""
    exact = Fraction(scale)
    found = size * exact.numerator // exact.denominator
    if not np.array_equal(rounded, np.broadcast_to(values_of(found), rounded.shape)):
        raise unsupported(f"`{size}` times {scale} is rounded in several ways", "use a scale such as 2 or 0.5")
    return found


def one_factor(size: int, before: int) -> float | None:
    """One number, also where both have a range, as in networks that go down by 2 and up again."""
    after, first = np.broadcast_arrays(values_of(size), values_of(before))
    found = int(after.flat[0]) / int(first.flat[0])
    return found if np.array_equal(after, first * found) else None


def matmul(call: Emits, a: Value, b: Value) -> Value:
    """numpy's rule for vectors: a missing axis is added and taken away again."""
    if not a.shape or not b.shape:
        raise Fault("shape-mismatch", "`MatMul` of a scalar is not valid")
    left = reshape(call, a, (1, *a.shape)) if len(a.shape) == 1 else a
    right = reshape(call, b, (*b.shape, 1)) if len(b.shape) == 1 else b
    y = call.emit(MatMul(), left, right)
    shape = list(y.shape)
    if len(b.shape) == 1:
        del shape[-1]
    if len(a.shape) == 1:
        del shape[-1 if len(b.shape) == 1 else -2]
    return reshape(call, y, shape)


def rms_norm(call: Emits, x: Value, scale: Value | None, axis: int, epsilon: float) -> Value:
    axes = tuple(range(axis, len(x.shape)))
    wide = cast(call, x, DType.F32) if x.dtype in (DType.F16, DType.BF16) else x
    square = call.emit(Reduce("mean", axes, True), call.emit(Mul(), wide, wide))
    root = call.emit(Sqrt(), call.emit(Add(), square, call.like(epsilon, square)))
    y = cast(call, call.emit(Div(), wide, root), x.dtype)
    return y if scale is None else call.emit(Mul(), y, cast(call, scale, x.dtype))


def per_channel(call: Emits, y: Value, scale: Value, bias: Value) -> Value:
    tail = (1,) * (len(y.shape) - 2)
    y = call.emit(Mul(), y, reshape(call, scale, (*scale.shape, *tail)))
    return call.emit(Add(), y, reshape(call, bias, (*bias.shape, *tail)))


def other_elements(x: Value, op: Resize, factors: Mapping[int, float], start: float, *, rounds: bool = False) -> dict[int, Array]:
    """By axis, the elements at (i + start) * factor, computed in single precision as runtimes do that multiply instead of dividing;
    nothing where `op` takes the same ones, or sizes move. `rounds`: to the nearest, not down."""
    if moves((*x.shape, *op.shape)):
        return {}
    tables = {}
    for axis, factor in factors.items():
        places = (np.arange(op.shape[axis], dtype=np.float32) + np.float32(start)) * np.float32(factor)
        whole = np.floor(places + np.float32(0.5)) if rounds else np.floor(places)
        tables[axis] = np.clip(whole.astype(np.int64), 0, x.shape[axis] - 1)
    same = all([at[0] for at in op.taps(axis, x.shape[axis]).indices] == table.tolist() for axis, table in tables.items())
    return {} if same else tables


def atan2(call: Emits, y: Value, x: Value) -> Value:
    """The arc tangent of the quotient, turned by half a circle on the left side, the other way where y is below 0 or -0."""
    zero, half = call.like(0.0, x), call.like(math.pi, x)
    below = call.emit(LogicalOr(), call.emit(Less(), y, zero), call.emit(Less(), call.emit(Reciprocal(), y), zero))
    angle = call.emit(Atan(), call.emit(Div(), y, x))
    turned = call.emit(Where(), below, call.emit(Sub(), angle, half), call.emit(Add(), angle, half))
    still = call.emit(LogicalAnd(), call.emit(Equal(), x, zero), call.emit(Equal(), y, zero))
    return call.emit(Where(), still, zero, call.emit(Where(), call.emit(Less(), x, zero), turned, angle))
