"""Functions of `keras.ops` in a functional model, such as `x + y` or `ops.mean(x, axis=1)`."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import cast, concat, expand, matmul, part, reshape, resolved_shape, transpose, unsqueeze
from intaglio.frontends.einsum import einsum as einsum_of
from intaglio.frontends.keras.rows.merging import unit
from intaglio.frontends.keras.walk import DTYPES, KerasCall, Result, function
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Clip
from intaglio.ops.base import Op, normal_axes, normal_axis
from intaglio.ops.binary import (
    Add,
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
    Sub,
    Where,
)
from intaglio.ops.index import Gather, OneHot
from intaglio.ops.move import Pad, Slice, Tile
from intaglio.ops.reduce import ArgReduce, Reduce
from intaglio.ops.unary import (
    Abs,
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    Ceil,
    Cos,
    Cosh,
    Erf,
    Exp,
    Expm1,
    Floor,
    Log,
    Log1p,
    LogicalNot,
    Neg,
    Reciprocal,
    Round,
    Sign,
    Sin,
    Sinh,
    Sqrt,
    Tan,
)

_PAIRS: dict[str, Op] = {
    "Add": Add(), "Subtract": Sub(), "Multiply": Mul(), "Maximum": Max(), "Minimum": Min(), "Power": Pow(),
    "Mod": Mod(), "Equal": Equal(), "Greater": Greater(), "GreaterEqual": GreaterEqual(), "Less": Less(),
    "LessEqual": LessEqual(), "LogicalAnd": LogicalAnd(), "LogicalOr": LogicalOr(), "LogicalXor": LogicalXor(),
}  # fmt: skip
_ONES: dict[str, Op] = {
    "Log": Log(), "Sqrt": Sqrt(), "Sin": Sin(), "Cos": Cos(), "Tan": Tan(), "Arcsin": Asin(),
    "Arccos": Acos(), "Arctan": Atan(), "Sinh": Sinh(), "Cosh": Cosh(), "Arcsinh": Asinh(),
    "Arccosh": Acosh(), "Arctanh": Atanh(), "Reciprocal": Reciprocal(), "Erf": Erf(), "Floor": Floor(),
    "Ceil": Ceil(), "Expm1": Expm1(), "Log1p": Log1p(),
}  # fmt: skip
_ANY: dict[str, Op] = {
    "Absolute": Abs(),
    "Abs": Abs(),
    "Negative": Neg(),
    "Sign": Sign(),
    "LogicalNot": LogicalNot(),
}
_ORDER = [DType.F32, DType.F64]


def _argument(call: KerasCall, place: int, *names: str) -> Any:
    if place < len(call.args):
        return call.args[place]
    return next((call.kwargs[n] for n in names if n in call.kwargs), None)


def common(call: KerasCall, items: list[Any]) -> list[Value]:
    """Tensors and numbers in one element type, by the rules of Keras."""
    values = [i for i in items if isinstance(i, Value)]
    if not values:
        raise Fault("bad-graph", "it is called without a tensor")
    floats = [v.dtype for v in values if v.dtype.is_float]
    if floats:
        to = floats[0] if len(set(floats)) == 1 else DType.F64 if DType.F64 in floats else DType.F32
    else:
        kinds = {v.dtype for v in values}
        to = values[0].dtype if len(kinds) == 1 else max((v.dtype for v in values), key=lambda d: (d.is_int, d.bytes, d.is_signed))
        if any(isinstance(i, float) for i in items):
            to = DType.F32
        elif to is DType.BOOL and any(type(i) is int for i in items):
            to = DType.I32
    out = []
    for item in items:
        if isinstance(item, Value):
            out.append(cast(call, item, to))
        elif isinstance(item, (bool, int, float, list)):
            out.append(call.constant(np.asarray(item, np.float64 if to.is_float else None).astype(_wide(to)), to))
        else:
            raise unsupported(f"an operand is {quoted(str(item))}, not a tensor or a number")
    return out


def _wide(dtype: DType) -> Any:
    return np.float32 if dtype in (DType.F16, DType.BF16) else dtype.numpy


@function(*_PAIRS, "NotEqual", "Divide", "TrueDivide", "FloorDivide")
def pair(call: KerasCall) -> Result:
    kind = call.layer.kind
    items = [_argument(call, 0, "x1", "x"), _argument(call, 1, "x2", "y")]
    a, b = common(call, items)
    if kind.startswith("Logical"):
        a, b = cast(call, a, DType.BOOL), cast(call, b, DType.BOOL)
    if kind == "NotEqual":
        return call.emit(LogicalNot(), call.emit(Equal(), a, b))
    if kind in ("Divide", "TrueDivide", "FloorDivide"):
        if not a.dtype.is_float:
            if kind == "FloorDivide":
                raise unsupported("integer division is not supported", "cast to float first")
            a, b = cast(call, a, DType.F32), cast(call, b, DType.F32)
        y = call.emit(Div(), a, b)
        return call.emit(Floor(), y) if kind == "FloorDivide" else y
    return call.emit(_PAIRS[kind], a, b)


def real(call: KerasCall, x: Value) -> Value:
    return x if x.dtype.is_float else cast(call, x, DType.F32)


@function(*_ONES)
def one(call: KerasCall) -> Result:
    return call.emit(_ONES[call.layer.kind], real(call, call.x))


@function(*_ANY)
def one_of_any(call: KerasCall) -> Result:
    return call.emit(_ANY[call.layer.kind], call.x)


@function("Square", "Rsqrt", "Log2", "Log10", "Round", "StopGradient", "Copy", "Trunc")
def few(call: KerasCall) -> Result:
    x, kind = call.x, call.layer.kind
    if kind in ("StopGradient", "Copy"):
        return x
    if kind == "Square":
        return call.emit(Mul(), x, x)
    x = real(call, x)
    match kind:
        case "Rsqrt":
            return call.emit(Reciprocal(), call.emit(Sqrt(), x))
        case "Log2" | "Log10":
            return call.emit(Mul(), call.emit(Log(), x), call.like(1 / math.log(2 if kind == "Log2" else 10), x))
        case "Round" if call.option("decimals", 0) == 0:
            return call.emit(Round(), x)
    raise unsupported("this function is not supported")


@function("Clip")
def clip(call: KerasCall) -> Result:
    bounds = [call.option(n, _argument(call, p, n)) for p, n in ((1, "x_min"), (2, "x_max"))]
    low, high = (math.inf * s if b is None else b for b, s in zip(bounds, (-1, 1), strict=True))
    if isinstance(low, Value) or isinstance(high, Value):
        raise unsupported("bounds that are tensors are not supported")
    return call.emit(Clip(float(low), float(high)), call.x)


def axes_of(call: KerasCall, rank: int) -> tuple[int, ...]:
    told = call.option("axis")
    if told is None:
        return tuple(range(rank))
    listed = [told] if type(told) is int else told
    if not isinstance(listed, list) or not all(type(a) is int for a in listed):
        raise Fault("bad-attribute", f"`axis` is {quoted(str(told))}, which is not valid")
    return normal_axes(tuple(listed), rank)


@function("Mean", "Sum", "Max", "Min", "Prod", "Amax", "Amin", "Var", "Std", "Logsumexp", "Any", "All")
def reduction(call: KerasCall) -> Result:
    x, kind = call.x, call.layer.kind
    axes, keep = axes_of(call, x.type.rank), call.flag("keepdims")
    if call.option("initial") is not None or call.option("dtype") is not None:
        raise unsupported("`initial` and `dtype` are not supported")
    if kind in ("Any", "All"):
        y = call.emit(Reduce("max" if kind == "Any" else "min", axes, keep), cast(call, cast(call, x, DType.BOOL), DType.I32))
        return cast(call, y, DType.BOOL)
    if kind in ("Max", "Min", "Amax", "Amin"):
        return call.emit(Reduce(kind.lower().removeprefix("a"), axes, keep), x)
    if kind in ("Sum", "Prod"):
        return call.emit(Reduce(kind.lower(), axes, keep), x if x.dtype is not DType.BOOL else cast(call, x, DType.I32))
    x = real(call, x)
    if kind == "Mean":
        return call.emit(Reduce("mean", axes, keep), x)
    if kind == "Logsumexp":
        top = call.emit(Reduce("max", axes, True), x)
        total = call.emit(Reduce("sum", axes, True), call.emit(Exp(), call.emit(Sub(), x, top)))
        y = call.emit(Add(), call.emit(Log(), total), top)
        return y if keep else _dropped(call, y, axes)
    away = call.emit(Sub(), x, call.emit(Reduce("mean", axes, True), x))
    variance = call.emit(Reduce("mean", axes, keep), call.emit(Mul(), away, away))
    return variance if kind == "Var" else call.emit(Sqrt(), variance)


def _dropped(call: KerasCall, x: Value, axes: tuple[int, ...]) -> Value:
    return reshape(call, x, [n for a, n in enumerate(x.shape) if a not in axes])


@function("Argmax", "Argmin")
def place(call: KerasCall) -> Result:
    x, axis = call.x, call.option("axis")
    x = reshape(call, x, (x.type.elements,)) if axis is None else x
    where = normal_axis(0 if axis is None else call.whole("axis"), x.type.rank)
    y = call.emit(ArgReduce(call.layer.kind[-3:], where, call.flag("keepdims")), x)
    return cast(call, y, DType.I32)


@function("Reshape", "Ravel")
def reshape_function(call: KerasCall) -> Result:
    x = call.x
    target = [-1] if call.layer.kind == "Ravel" else call.option("newshape", _argument(call, 1, "newshape"))
    target = [target] if type(target) is int else target
    if not isinstance(target, list) or not all(type(n) is int or n is None for n in target):
        raise unsupported(f"the shape {quoted(str(target))} is not known before the model runs")
    wanted = [-1 if n is None else n for n in target]
    if wanted.count(-1) > 1 and wanted[0] == -1:  # the batch, and one that is computed
        wanted[0] = x.shape[0]
    return reshape(call, x, resolved_shape(call, x, wanted, True))


@function("Transpose", "Swapaxes", "Moveaxis")
def transpose_function(call: KerasCall) -> Result:
    x = call.x
    rank = x.type.rank
    order = list(range(rank))
    match call.layer.kind:
        case "Transpose":
            axes = call.option("axes")
            order = order[::-1] if axes is None else [normal_axis(int(a), rank) for a in axes]
        case "Swapaxes":
            a, b = normal_axis(call.whole("axis1"), rank), normal_axis(call.whole("axis2"), rank)
            order[a], order[b] = b, a
        case _:
            moved = np.moveaxis(np.empty(tuple(range(rank))), call.option("source"), call.option("destination"))
            order = list(moved.shape)
    if sorted(order) != list(range(rank)):
        raise Fault("bad-attribute", f"{order} is not an order of {rank} axes")
    return transpose(call, x, list(order))


@function("Concatenate", "Stack", "Append")
def join(call: KerasCall) -> Result:
    items = call.args[0] if isinstance(call.args[0], list) else call.tensors()
    values = common(call, items)
    rank = values[0].type.rank
    axis = normal_axis(call.whole("axis", 0), rank + (call.layer.kind == "Stack"))
    if call.layer.kind == "Stack":
        values = [unsqueeze(call, v, axis) for v in values]
    return concat(call, values, axis)


@function("Split", "Unstack", "ArraySplit")
def split(call: KerasCall) -> Result:
    x, kind = call.x, call.layer.kind
    axis = normal_axis(call.whole("axis", 0), x.type.rank)
    size = x.shape[axis]
    told: Any = size if kind == "Unstack" else call.option("indices_or_sections")
    if type(told) is int:
        if told < 1 or size % told:
            raise Fault("bad-attribute", f"an axis of {size} cannot be split into {told} parts")
        edges = [n * (size // told) for n in range(told + 1)]
    else:
        edges = [0, *[int(n) for n in told], size]
    if edges != sorted(edges) or len(edges) > 10_000:
        raise Fault("bad-attribute", f"the split points {edges[:20]} do not fit an axis of {size}")
    parts = [part(call, x, axis, a, b - a) for a, b in pairwise(edges)]
    return [_dropped(call, p, (axis,)) for p in parts] if kind == "Unstack" else parts


@function("ExpandDims", "Squeeze")
def more_or_less(call: KerasCall) -> Result:
    x, told = call.x, call.option("axis")
    if call.layer.kind == "ExpandDims":
        axes = normal_axes(tuple([told] if type(told) is int else told), x.type.rank + 1)
        for axis in axes:
            x = unsqueeze(call, x, axis)
        return x
    axes = tuple(a for a, n in enumerate(x.shape) if n == 1) if told is None else axes_of(call, x.type.rank)
    if any(x.shape[a] != 1 for a in axes):
        raise Fault("shape-mismatch", f"axes {list(axes)} of {list(x.shape)} are not 1")
    return _dropped(call, x, axes)


@function("Cast", "ConvertToTensor")
def cast_function(call: KerasCall) -> Result:
    told = call.option("dtype")
    if told is None and call.layer.kind == "ConvertToTensor":
        return call.x
    if told not in DTYPES:
        raise Fault("unsupported-type", f"a cast to {quoted(str(told))} is not supported")
    return cast(call, call.x, DTYPES[told])


@function("Matmul", "Dot")
def matmul_function(call: KerasCall) -> Result:
    a, b = common(call, [_argument(call, 0, "x1"), _argument(call, 1, "x2")])
    if call.layer.kind == "Dot" and b.type.rank > 2:
        raise unsupported(f"`dot` of {list(a.shape)} and {list(b.shape)} is not supported", "use `matmul`")
    return matmul(call, a, b)


@function("Einsum")
def einsum_function(call: KerasCall) -> Result:
    equation = call.option("subscripts")
    if not isinstance(equation, str):
        raise Fault("bad-attribute", "it has no equation")
    return einsum_of(call, equation, common(call, list(call.args)))


@function("Where")
def where(call: KerasCall) -> Result:
    condition = cast(call, call.x, DType.BOOL)
    a, b = common(call, [_argument(call, 1, "x1"), _argument(call, 2, "x2")])
    return call.emit(Where(), condition, a, b)


@function("Normalize")
def normalize(call: KerasCall) -> Result:
    x = real(call, call.x)
    if call.option("order", 2) != 2:
        raise unsupported("only the norm of order 2 is supported")
    epsilon = call.option("epsilon")
    return unit(call, x, axes_of(call, x.type.rank), 1e-7 if epsilon is None else float(epsilon))


@function("Flip", "Repeat", "Tile", "BroadcastTo", "Pad", "Take", "OneHot", "ZerosLike", "OnesLike")
def moved(call: KerasCall) -> Result:
    x = call.x
    rank = x.type.rank
    match call.layer.kind:
        case "Flip":
            axes = axes_of(call, rank)
            starts = tuple(n - 1 if a in axes else 0 for a, n in enumerate(x.shape))
            return call.emit(Slice(starts, tuple(-1 if a in axes else 1 for a in range(rank)), x.shape), x)
        case "Repeat":
            axis, times = normal_axis(call.whole("axis"), rank), call.whole("repeats")
            wide = expand(call, unsqueeze(call, x, axis + 1), (*x.shape[: axis + 1], times, *x.shape[axis + 1 :]))
            return reshape(call, wide, (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]))
        case "Tile":
            told = call.option("repeats")
            repeats = [told] if type(told) is int else told
            rows = reshape(call, x, ((1,) * (len(repeats) - rank) + x.shape))
            return call.emit(Tile((1,) * (rank - len(repeats)) + tuple(int(n) for n in repeats)), rows)
        case "BroadcastTo":
            return expand(call, x, tuple(int(n) for n in call.option("shape")))
        case "Pad":
            if call.option("mode", "constant") != "constant":
                raise unsupported("only padding by a constant is supported")
            widths = np.broadcast_to(np.asarray(call.option("pad_width"), np.int64), (rank, 2))
            value = _argument(call, 1, "constant_values")
            return call.emit(Pad((*map(int, widths[:, 0]), *map(int, widths[:, 1])), "constant", float(value or 0)), x)
        case "Take":
            index = _argument(call, 1, "indices")
            at = index if isinstance(index, Value) else call.constant(np.asarray(index, np.int32))
            at = at if at.dtype in (DType.I32, DType.I64) else cast(call, at, DType.I32)
            source = reshape(call, x, (x.type.elements,)) if call.option("axis") is None else x
            return call.emit(Gather(normal_axis(call.option("axis") or 0, source.type.rank)), source, at)
        case "OneHot":
            to = DTYPES.get(call.option("dtype") or "float32", DType.F32)
            values = call.constant(np.asarray([0, 1], _wide(to)), to)
            return call.emit(OneHot(call.whole("num_classes"), call.whole("axis", -1)), x, values)
        case kind:
            return expand(call, call.like(1.0 if kind == "OnesLike" else 0.0, x), x.shape)


@function("GetItem")
def get_item(call: KerasCall) -> Result:
    """`x[:, 1:, ::2, None]` with numbers that are known."""
    x, key = call.x, _argument(call, 1, "key")
    keys = key if isinstance(key, list) else [key]
    taken = sum(k is not None and k is not Ellipsis for k in keys)
    if keys.count(Ellipsis) == 0:
        keys = [*keys, Ellipsis]
    at = keys.index(Ellipsis)
    keys = [*keys[:at], *[slice(None)] * (x.type.rank - taken), *keys[at + 1 :]]
    starts, steps, shape, final = [], [], [], []
    axis = 0
    for item in keys:
        if item is None:
            final.append(1)
            continue
        if axis >= x.type.rank:
            raise Fault("bad-attribute", f"there are too many indices for {list(x.shape)}")
        size = x.shape[axis]
        if type(item) is int:
            if not -size <= item < size:
                raise Fault("bad-attribute", f"index {item} is out of range for an axis of {size}")
            starts.append(item % size)
            steps.append(1)
            shape.append(1)
        elif isinstance(item, slice):
            places = range(*item.indices(size))
            starts.append(places.start if len(places) else 0)
            steps.append(places.step)
            shape.append(len(places))
            final.append(len(places))
        else:
            raise unsupported(f"an index that is {quoted(str(item))} is not supported")
        axis += 1
    if tuple(shape) != x.shape or any(s != 1 for s in steps):
        x = call.emit(Slice(tuple(starts), tuple(steps), tuple(shape)), x)
    return reshape(call, x, final)
