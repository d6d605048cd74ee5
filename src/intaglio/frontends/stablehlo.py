"""Operators of StableHLO as nodes, for every front end that meets them (github.com/openxla/stablehlo, docs/spec.md).

reduce_window    gather the windows of one axis after the other, and reduce: sums, products and extremes are separable
dot_general      transpose both sides to [batch, free, contracted], one product, reshape
rows_of          rows of a table that are whole along all axes but one, which is what `x[i]` and embeddings are
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from intaglio.frontends.building import atan2, cast, expand, reshape, transpose
from intaglio.frontends.emitting import Emits
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Sigmoid, Tanh
from intaglio.ops.base import Op
from intaglio.ops.binary import (
    Add,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    Div,
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    Max,
    Min,
    Mod,
    Mul,
    Pow,
    ShiftLeft,
    ShiftRight,
    Sub,
    Where,
)
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Pad, Slice
from intaglio.ops.reduce import Reduce
from intaglio.ops.small import BitCast
from intaglio.ops.unary import (
    Abs,
    BitwiseNot,
    Ceil,
    Cos,
    Erf,
    Exp,
    Expm1,
    Floor,
    IsInf,
    IsNan,
    Log,
    Log1p,
    LogicalNot,
    Neg,
    Reciprocal,
    Round,
    Sign,
    Sin,
    Sqrt,
    Tan,
)

Ints = Sequence[int]
UNARY: Mapping[str, Callable[[], Op]] = {
    "abs": Abs, "ceil": Ceil, "cosine": Cos, "exponential": Exp, "floor": Floor, "log": Log, "logistic": Sigmoid, "negate": Neg,
    "round_nearest_even": Round, "sign": Sign, "sine": Sin, "sqrt": Sqrt, "tan": Tan, "tanh": Tanh, "erf": Erf,
    "exponential_minus_one": Expm1, "log_plus_one": Log1p,
}  # fmt: skip
BINARY: Mapping[str, Callable[[], Op]] = {
    "add": Add, "divide": Div, "maximum": Max, "minimum": Min, "multiply": Mul, "power": Pow, "remainder": lambda: Mod(fmod=True),
    "shift_left": ShiftLeft, "shift_right_arithmetic": ShiftRight, "subtract": Sub,
}  # fmt: skip
_LOGIC: Mapping[str, tuple[Callable[[], Op], Callable[[], Op]]] = {  # of bool, of whole numbers
    "and": (LogicalAnd, BitwiseAnd), "or": (LogicalOr, BitwiseOr), "xor": (LogicalXor, BitwiseXor),
}  # fmt: skip
# Of one operand, by several operators.
WRITTEN_OUT = (
    "rsqrt", "cbrt", "is_finite", "round_nearest_afz", "popcnt", "count_leading_zeros",
)  # fmt: skip
_OF_TWO = ("atan2", "shift_right_logical")
_COMPARE: Mapping[str, Callable[[], Op]] = {"EQ": Equal, "GE": GreaterEqual, "GT": Greater, "LE": LessEqual, "LT": Less}
REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "or": "any", "and": "all"}
_START = {"sum": 0, "prod": 1, "any": 0, "all": 1}


def unary(call: Emits, name: str, x: Value) -> Value:
    if name == "not" and x.dtype is DType.BOOL:
        return call.emit(LogicalNot(), x)
    match name:
        case "rsqrt":
            return call.emit(Reciprocal(), call.emit(Sqrt(), x))
        case "cbrt":
            root = call.emit(Pow(), call.emit(Abs(), x), call.like(1 / 3, x))
            return call.emit(Mul(), root, call.emit(Sign(), x))
        case "is_finite":
            gone = call.emit(LogicalOr(), call.emit(IsNan(), x), call.emit(IsInf(), x))
            return call.emit(LogicalNot(), gone)
        case "round_nearest_afz":
            return _to_nearest(call, x)
        case "popcnt":
            return _by_bits(call, x, lambda bits: _ones_in(call, bits))
        case "count_leading_zeros":
            return _by_bits(call, x, lambda bits: _leading(call, bits))
    if name not in UNARY:
        raise Fault("unsupported-operator", f"`{name}` of {x.dtype.value} is not supported")
    return call.emit(UNARY[name](), x)


def binary(call: Emits, name: str, a: Value, b: Value) -> Value:
    if name in _LOGIC:
        return call.emit(_LOGIC[name][0 if a.dtype is DType.BOOL else 1](), a, b)
    if name == "atan2":
        return atan2(call, a, b)
    if name == "shift_right_logical":
        plain = DType[f"U{8 * a.dtype.bytes}"]
        return _by_bits(call, a, lambda bits: call.emit(ShiftRight(), bits, cast(call, b, plain)))
    if a.dtype is DType.BOOL and name in ("add", "maximum", "multiply", "minimum"):
        return call.emit(LogicalOr() if name in ("add", "maximum") else LogicalAnd(), a, b)
    return call.emit(BINARY[name](), a, b)


def is_binary(name: str) -> bool:
    return name in BINARY or name in _LOGIC or name in _OF_TWO


def _by_bits(call: Emits, x: Value, made: Callable[[Value], Value]) -> Value:
    """Of a whole number, as bits without a sign."""
    if not x.dtype.is_int:
        raise Fault("unsupported-operator", f"bits of {x.dtype.value} are not supported")
    plain = DType[f"U{8 * x.dtype.bytes}"]
    y = made(x if x.dtype is plain else call.emit(BitCast(plain), x))
    return y if x.dtype is plain else call.emit(BitCast(x.dtype), y)


def _ones_in(call: Emits, x: Value) -> Value:
    """How many bits are set: in pairs, in fours, in bytes, and in all (Hacker's Delight, 5-1)."""
    width = 8 * x.dtype.bytes

    def mask(byte: int) -> Value:
        return call.constant(np.asarray(int.from_bytes(bytes([byte] * (width // 8)), "little"), x.dtype.numpy))

    def moved(y: Value, count: int) -> Value:
        return call.emit(ShiftRight(), y, call.constant(np.asarray(count, x.dtype.numpy)))

    x = call.emit(Sub(), x, call.emit(BitwiseAnd(), moved(x, 1), mask(0x55)))
    x = call.emit(Add(), call.emit(BitwiseAnd(), x, mask(0x33)), call.emit(BitwiseAnd(), moved(x, 2), mask(0x33)))
    x = call.emit(BitwiseAnd(), call.emit(Add(), x, moved(x, 4)), mask(0x0F))
    for count in (8, 16, 32):
        if count < width:
            x = call.emit(Add(), x, moved(x, count))
    return call.emit(BitwiseAnd(), x, call.constant(np.asarray(127, x.dtype.numpy)))


def _leading(call: Emits, x: Value) -> Value:
    """How many bits lie above the first that is set: of those that are clear when all below it are set."""
    for count in (1, 2, 4, 8, 16, 32):
        if count < 8 * x.dtype.bytes:
            shifted = call.emit(ShiftRight(), x, call.constant(np.asarray(count, x.dtype.numpy)))
            x = call.emit(BitwiseOr(), x, shifted)
    return _ones_in(call, call.emit(BitwiseNot(), x))


def _to_nearest(call: Emits, x: Value) -> Value:
    """Halves go away from zero. x + 0.5 would round 0.49999997 up."""
    size = call.emit(Abs(), x)
    below = call.emit(Floor(), size)
    more = call.emit(GreaterEqual(), call.emit(Sub(), size, below), call.like(0.5, x))
    return call.emit(Mul(), call.emit(Sign(), x), call.emit(Add(), below, cast(call, more, x.dtype)))


def compare(call: Emits, direction: str, a: Value, b: Value) -> Value:
    if direction == "NE":
        return call.emit(LogicalNot(), call.emit(Equal(), a, b))
    return call.emit(_COMPARE[direction](), a, b)


def clamp(call: Emits, low: Value, x: Value, high: Value) -> Value:
    return call.emit(Min(), call.emit(Max(), x, low), high)


def choose(call: Emits, condition: Value, a: Value, b: Value) -> Value:
    return call.emit(Where(), condition, a, b)


def broadcast_in_dim(call: Emits, x: Value, axes: Ints, shape: Ints) -> Value:
    spread = [1] * len(shape)
    for axis, size in zip(axes, x.shape, strict=True):
        spread[axis] = size
    return expand(call, reshape(call, x, spread), shape)


def iota(call: Emits, axis: int, shape: Ints, dtype: DType) -> Value:
    line = np.arange(shape[axis]).reshape([-1 if n == axis else 1 for n in range(len(shape))])
    whole = np.ascontiguousarray(np.broadcast_to(line, shape))
    if dtype in (DType.F16, DType.BF16):
        return cast(call, call.constant(whole.astype(np.float32), DType.F32), dtype)
    return call.constant(whole.astype(dtype.numpy), dtype)


def slice_(call: Emits, x: Value, starts: Ints, limits: Ints, strides: Ints) -> Value:
    counts = tuple(max(0, -(-(limit - start) // step)) for start, limit, step in zip(starts, limits, strides, strict=True))
    return call.emit(Slice(tuple(starts), tuple(strides), counts), x)


def pad(call: Emits, x: Value, value: float, low: Ints, high: Ints, interior: Ints) -> Value:
    """`value` between elements and around them; below 0 an edge is cut."""
    if any(n < 0 for n in interior):
        raise Fault("bad-attribute", "padding between elements is below 0")
    if any(interior):
        wide = reshape(call, x, [n for size in x.shape for n in (size, 1)])
        wide = call.emit(Pad((0,) * (2 * len(x.shape)) + tuple(n for gap in interior for n in (0, gap)), "constant", value), wide)
        apart = reshape(call, wide, [size * (1 + gap) for size, gap in zip(x.shape, interior, strict=True)])
        sizes = tuple(size + max(size - 1, 0) * gap for size, gap in zip(x.shape, interior, strict=True))
        x = call.emit(Slice((0,) * len(sizes), (1,) * len(sizes), sizes), apart)
    around = tuple(max(n, 0) for n in (*low, *high))
    if any(around):
        x = call.emit(Pad(around, "constant", value), x)
    if any(n < 0 for n in (*low, *high)):
        starts = [max(-n, 0) for n in low]
        limits = [size - max(-n, 0) for size, n in zip(x.shape, high, strict=True)]
        x = slice_(call, x, starts, limits, [1] * len(starts))
    return x


def start_of(kind: str, dtype: DType) -> float:
    """What a reduction starts with where that changes nothing."""
    if kind in _START:
        return _START[kind]
    if dtype.is_float:
        return -math.inf if kind == "max" else math.inf
    if dtype is DType.BOOL:
        return 0 if kind == "max" else 1
    info = np.iinfo(dtype.numpy)
    return int(info.min) if kind == "max" else int(info.max)


def _started(call: Emits, kind: str, y: Value, start: Value) -> Value:
    """With the number that the reduction starts with, where it counts."""
    if start.data is not None and start.data.size == 1:
        number = start.data.reshape(()).item()
        none = start_of(kind, y.dtype)
        lowest = y.dtype.is_float and kind in ("max", "min") and abs(number) >= float(np.finfo(y.dtype.numpy).max)
        if number == none or lowest:
            return y
    names = {kind_: name for name, kind_ in REDUCTIONS.items()}
    return binary(call, names[kind], y, reshape(call, start, [1] * len(y.shape)))


def reduce(call: Emits, kind: str, x: Value, start: Value, axes: Ints) -> Value:
    kind = {"max": "any", "min": "all", "sum": "any", "prod": "all"}.get(kind, kind) if x.dtype is DType.BOOL else kind
    return _started(call, kind, call.emit(Reduce(kind, tuple(axes), False), x), start)


def reduce_window(
    call: Emits, kind: str, x: Value, start: Value, sizes: Ints, strides: Ints, base: Ints, dilations: Ints, pads: Sequence[Ints]
) -> Value:
    if start.data is None:
        raise Fault("unsupported-operator", "its first value is computed")
    x = pad(call, x, start.data.reshape(()).item(), [p[0] for p in pads], [p[1] for p in pads], [n - 1 for n in base])
    for axis, (size, stride, dilation) in enumerate(zip(sizes, strides, dilations, strict=True)):
        count = max(0, (x.shape[axis] - ((size - 1) * dilation + 1)) // stride + 1)
        if size == 1 and stride == 1:
            continue
        places = np.add.outer(np.arange(count) * stride, np.arange(size) * dilation)
        taken = call.emit(Gather(axis), x, call.constant(places.reshape(-1).astype(np.int64)))
        wide = reshape(call, taken, [*x.shape[:axis], count, size, *x.shape[axis + 1 :]])
        x = call.emit(Reduce(kind, (axis + 1,), False), wide)
    return _started(call, kind, x, start)


def dot_general(call: Emits, a: Value, b: Value, batch: tuple[Ints, Ints], contract: tuple[Ints, Ints]) -> Value:
    sides, frees = [], []
    for side, (value, together, summed) in enumerate(zip((a, b), batch, contract, strict=True)):
        free = [n for n in range(len(value.shape)) if n not in (*together, *summed)]
        frees.append([value.shape[n] for n in free])
        order = [*together, *free, *summed] if side == 0 else [*together, *summed, *free]
        depth, wide = math.prod(value.shape[n] for n in summed), math.prod(frees[-1])
        many = math.prod(value.shape[n] for n in together)
        sides.append(reshape(call, transpose(call, value, order), (many, wide, depth) if side == 0 else (many, depth, wide)))
    shape = [*[a.shape[n] for n in batch[0]], *frees[0], *frees[1]]
    if a.dtype.is_float:
        return reshape(call, call.emit(MatMul(), *sides), shape)
    left = reshape(call, sides[0], (*sides[0].shape, 1))
    right = reshape(call, sides[1], (sides[1].shape[0], 1, *sides[1].shape[1:]))
    return reshape(call, call.emit(Reduce("sum", (2,), False), call.emit(Mul(), left, right)), shape)


def rows_of(
    call: Emits, x: Value, indices: Value, offset: Ints, collapsed: Ints, start_map: Ints, vector_axis: int, sizes: Ints
) -> Value | None:
    """Rows: one axis is indexed, and all others are taken whole. None: it is something else (`stablehlo_places.gather`)."""
    rank = len(x.shape)
    rows = vector_axis == len(indices.shape) or indices.shape[vector_axis] == 1
    whole = all(size == x.shape[n] for n, size in enumerate(sizes) if n not in start_map)
    if len(start_map) != 1 or not rows or not whole or sizes[start_map[0]] != 1 or list(collapsed) not in ([], list(start_map)):
        return None
    axis = start_map[0]
    outer = [n for i, n in enumerate(indices.shape) if i != vector_axis]
    wide = cast(call, reshape(call, indices, outer), DType.I64)
    top = x.shape[axis] - 1
    inside = call.emit(Min(), call.emit(Max(), wide, call.like(0, wide)), call.like(top, wide))
    made = call.emit(Gather(0), transpose(call, x, [axis, *[n for n in range(rank) if n != axis]]), inside)
    if not collapsed:  # the axis stays, with one element
        kept = [1 if n == axis else x.shape[n] for n in range(rank)]
        made = reshape(call, made, [*outer, *kept])
    spot = [n for n in range(len(made.shape)) if n not in offset]
    order = [spot.index(n) if n in spot else len(spot) + list(offset).index(n) for n in range(len(made.shape))]
    return transpose(call, made, order)
