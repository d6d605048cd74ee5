"""Sums and their like, softmax, cumulative sums."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import cast, concat, expand, part, reshape
from intaglio.frontends.onnx.faults import unsupported
from intaglio.frontends.torch.call import Answer, TorchCall, row
from intaglio.ir.graph import Value
from intaglio.ir.sizes import Size, least, moves
from intaglio.ir.types import DType, Shape
from intaglio.ops.binary import Div, Equal, GreaterEqual, LessEqual, LogicalAnd, LogicalOr, Max, Min, Mul, Pow, Sub, Where
from intaglio.ops.reduce import ArgReduce, Cumsum, LogSoftmax, Reduce, Softmax
from intaglio.ops.unary import Abs, IsNan, LogicalNot, Sqrt

KINDS = {"sum": "sum", "nansum": "sum", "mean": "mean", "prod": "prod", "amax": "max", "amin": "min", "logsumexp": "log_sum_exp",
         "special_logsumexp": "log_sum_exp"}  # fmt: skip


def reduced(call: TorchCall, kind: str, x: Value, axes: Shape, keep: bool) -> Value:
    return call.emit(Reduce(kind, axes, keep), x) if x.shape else x


@row(*KINDS)
def reduce(call: TorchCall) -> Answer:
    x = call.first()
    dtype = call.dtype()
    if dtype is None and call.op in ("sum", "prod") and not x.dtype.is_float:
        dtype = DType.I64
    x = x if dtype is None else cast(call, x, dtype)
    if call.op in ("logsumexp", "mean"):
        x = call.floats(x)
    return reduced(call, KINDS[call.op], x, call.dims("dim", len(x.shape)), call.flag("keepdim"))


@row("max", "min")
def extreme(call: TorchCall) -> Answer:
    x = call.first()
    if "other" in call.arguments:
        return call.emit(Max() if call.op == "max" else Min(), *call.operands("self", "other"))
    if "dim" not in call.arguments:
        return reduced(call, call.op, x, tuple(range(len(x.shape))), False)
    axis, keep = call.dim("dim", len(x.shape)), call.flag("keepdim")
    if not x.shape:
        return [x, call.constant(0, DType.I64)]
    return [reduced(call, call.op, x, (axis,), keep), call.emit(ArgReduce(call.op, axis, keep), x)]


@row("aminmax")
def aminmax(call: TorchCall) -> Answer:
    x = call.first()
    axes = call.dims("dim", len(x.shape))
    return [reduced(call, kind, x, axes, call.flag("keepdim")) for kind in ("min", "max")]


@row("argmax", "argmin")
def arg(call: TorchCall) -> Answer:
    x = call.first()
    keep, rank = call.flag("keepdim"), len(x.shape)
    kind = call.op[3:]
    if call.get("dim") is None:
        flat = reshape(call, x, (x.type.elements,))
        return reshape(call, call.emit(ArgReduce(kind, 0, False), flat), (1,) * rank if keep else ())
    return call.emit(ArgReduce(kind, call.dim("dim", rank), keep), x)


@row("any", "all")
def truth(call: TorchCall) -> Answer:
    x = cast(call, call.first(), DType.BOOL)
    return reduced(call, call.op, x, call.dims("dim", len(x.shape)), call.flag("keepdim"))


@row("count_nonzero")
def count_nonzero(call: TorchCall) -> Answer:
    x = cast(call, cast(call, call.first(), DType.BOOL), DType.I64)
    return reduced(call, "sum", x, call.dims("dim", len(x.shape)), False)


@row("var", "std", "var_mean", "std_mean")
def variance(call: TorchCall) -> Answer:
    x = call.first()
    axes = call.dims("dim", len(x.shape))
    keep = call.flag("keepdim")
    less = call.number("correction", 1 if call.flag("unbiased", True) else 0)
    mean = reduced(call, "mean", x, axes, True)
    centred = call.emit(Sub(), x, mean)
    square = call.emit(Mul(), centred, centred)
    count = math.prod(x.shape[a] for a in axes)
    if less == 0:
        y = reduced(call, "mean", square, axes, keep)
    else:
        total = reduced(call, "sum", square, axes, keep)
        y = call.emit(Div(), total, _freedoms(call, count, less, x))
    y = call.emit(Sqrt(), y) if call.op.startswith("std") else y
    if not call.op.endswith("mean"):
        return y
    return [y, mean if keep else reshape(call, mean, y.shape)]


def _freedoms(call: TorchCall, count: int, less: float, x: Value) -> Value:
    """What a sum of squares is divided by: `count - less`, and at least 0."""
    if not moves((count,)):
        return call.like(max(count - less, 0), x)
    left = call.emit(Sub(), call.typed(count, x.dtype), call.like(less, x))
    return left if least(count) >= less else call.emit(Max(), left, call.like(0, x))


@row("norm", "linalg_vector_norm", "frobenius_norm")
def norm(call: TorchCall) -> Answer:
    x = call.floats(call.first())
    dtype = call.dtype()
    x = x if dtype is None else cast(call, x, dtype)
    name = "ord" if call.op == "linalg_vector_norm" else "p"
    p = call.get(name, 2)
    if isinstance(p, str) and p != "fro":
        raise unsupported(f"`{call.op}` of the order {p!r} is not supported")
    p = 2.0 if p is None or isinstance(p, str) else call.real(name, 2)
    axes, keep = call.dims("dim", len(x.shape)), call.flag("keepdim")
    if p in (1.0, 2.0):
        return reduced(call, "l1" if p == 1 else "l2", x, axes, keep)
    size = call.emit(Abs(), x)
    if math.isinf(p):
        return reduced(call, "max" if p > 0 else "min", size, axes, keep)
    if p == 0:
        return reduced(call, "sum", cast(call, cast(call, x, DType.BOOL), x.dtype), axes, keep)
    powered = reduced(call, "sum", call.emit(Pow(), size, call.like(p, x)), axes, keep)
    return call.emit(Pow(), powered, call.like(1 / p, x))


@row("softmax", "_softmax", "special_softmax", "log_softmax", "_log_softmax", "_safe_softmax", "softmin")
def softmax(call: TorchCall) -> Answer:
    x = call.first()
    dtype = call.dtype() or (DType.F32 if call.flag("half_to_float") else None)
    x = call.floats(x) if dtype is None else cast(call, x, dtype)
    if not x.shape:
        return call.like(0 if "log" in call.op else 1, x)
    axis = call.dim("dim", len(x.shape))
    made = call.emit(LogSoftmax(axis) if "log" in call.op else Softmax(axis), x)
    return zeros_if_hidden(call, made, x, axis) if call.op == "_safe_softmax" else made


def zeros_if_hidden(call: TorchCall, weights: Value, mask: Value, axis: int) -> Value:
    """Zeros where the mask, or the scores, are all minus infinity along an axis."""
    largest = call.emit(Reduce("max", (axis,), True), mask)
    return call.emit(Where(), call.emit(Equal(), largest, call.like(-math.inf, mask)), call.like(0, weights), weights)


@row("cummax", "cummin")
def running(call: TorchCall) -> Answer:
    """(the largest up to each element, where it is): of two that are equal the later one, and NaN before all numbers. Each turn
    compares with what is twice as far away."""
    x = call.first()
    if not x.shape:
        return [x, call.constant(np.zeros((), np.int64))]
    axis = call.dim("dim", len(x.shape))
    size = x.shape[axis]
    if isinstance(size, Size):
        raise unsupported(f"`{call.op}` along a dimension that has a range is not supported", "give it one size, with `--shape`")
    shape = tuple(size if n == axis else 1 for n in range(len(x.shape)))
    places = expand(call, call.constant(np.arange(size, dtype=np.int64).reshape(shape)), x.shape)
    order = GreaterEqual() if call.op == "cummax" else LessEqual()
    step = 1
    while step < size:
        rest = size - step
        before, at_before = (part(call, v, axis, 0, rest) for v in (x, places))
        now, at_now = (part(call, v, axis, step, rest) for v in (x, places))
        takes = call.emit(order, now, before)
        if x.dtype.is_float:
            gone, was_gone = (call.emit(IsNan(), v) for v in (now, before))
            takes = call.emit(LogicalOr(), gone, call.emit(LogicalAnd(), takes, call.emit(LogicalNot(), was_gone)))
        made, at = (call.emit(Where(), takes, a, b) for a, b in ((now, before), (at_now, at_before)))
        x = concat(call, [part(call, x, axis, 0, step), made], axis)
        places = concat(call, [part(call, places, axis, 0, step), at], axis)
        step *= 2
    return [x, places]


@row("cumsum", "cumprod", "logcumsumexp")
def cumulative(call: TorchCall) -> Answer:
    x = call.first()
    dtype = call.dtype() or (DType.I64 if not x.dtype.is_float and call.op in ("cumsum", "cumprod") else None)
    x = x if dtype is None else cast(call, x, dtype)
    axis = call.dim("dim", len(x.shape))
    if call.op == "cumsum":
        return call.emit(Cumsum(axis), x) if x.shape else x
    size = x.shape[axis] if x.shape else 1
    if call.op != "cumprod" or size > 256:
        raise unsupported(f"`{call.op}` of {size} elements is not supported")
    steps = [part(call, x, axis, 0, 1)]
    for n in range(1, size):
        steps.append(call.emit(Mul(), steps[-1], part(call, x, axis, n, 1)))
    return concat(call, steps, axis)


@row("diff")
def diff(call: TorchCall) -> Answer:
    x = call.first()
    axis = call.dim("dim", len(x.shape), -1)
    for _ in range(call.integer("n", 1)):
        n = x.shape[axis]
        x = call.emit(Sub(), part(call, x, axis, 1, n - 1), part(call, x, axis, 0, n - 1))
    return x


@row("median", "nanmedian")
def median(call: TorchCall) -> Answer:
    """The lower of the two in the middle."""
    x = call.first()
    if "dim" not in call.arguments:
        flat = reshape(call, x, (x.type.elements,))
        return reshape(call, call.again("kthvalue", self=flat, k=(x.type.elements + 1) // 2, dim=0)[0], ())
    axis = call.dim("dim", len(x.shape))
    return call.again("kthvalue", self=x, k=(x.shape[axis] + 1) // 2, dim=axis, keepdim=call.flag("keepdim"))
