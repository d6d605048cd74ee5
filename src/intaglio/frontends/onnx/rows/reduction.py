"""Reductions, softmax, running sums."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import concat, part, reshape
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Value
from intaglio.ir.sizes import least, moves
from intaglio.ops.binary import Equal, Mul, Where
from intaglio.ops.move import Expand
from intaglio.ops.reduce import ArgReduce, Cumsum, LogSoftmax, Reduce, Softmax

KINDS = {
    "ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod",
    "ReduceL1": "l1", "ReduceL2": "l2", "ReduceSumSquare": "sum_square", "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
}  # fmt: skip


@importer(*KINDS)
def reduce(call: OnnxCall) -> Answer:
    x = call.value(0)
    axes = call.axes(1, len(x.shape))
    keep = bool(call.integer("keepdims", 1))
    if not axes:
        if call.integer("noop_with_empty_axes"):
            return call.emit(Reduce(KINDS[call.op], (), keep), x) if KINDS[call.op] not in _PLAIN else x
        axes = tuple(range(len(x.shape)))
    y = call.emit(Reduce(KINDS[call.op], tuple(sorted(axes)), keep), x)
    return _mean_of_none(call, math.prod(x.shape[a] for a in axes), y) if call.op == "ReduceMean" else y


def _mean_of_none(call: OnnxCall, count: int, y: Value) -> Value:
    """ONNX Runtime gives 0 for the mean of no elements, which a range from 0 on allows; the quotient is NaN."""
    if least(count) > 0 or not y.dtype.is_float:
        return y
    none = call.constant(np.asarray(True))
    if moves((count,)):
        number = call.walk.at_run_time(call.walk.sizes_as_data([count], ()))
        none = call.emit(Equal(), number, call.constant(np.asarray(0)))
    return call.emit(Where(), none, call.like(0, y), y)


_PLAIN = ("sum", "mean", "max", "min", "prod")


@importer("ArgMax", "ArgMin")
def arg_reduce(call: OnnxCall) -> Answer:
    x = call.value(0)
    kind = "max" if call.op == "ArgMax" else "min"
    axis = call.axis(len(x.shape), 0)
    op = ArgReduce(kind, axis, bool(call.integer("keepdims", 1)), bool(call.integer("select_last_index")))
    return call.emit(op, x)


@importer("Softmax", "LogSoftmax")
def softmax(call: OnnxCall) -> Answer:
    """Until opset 12 everything from the axis on was one long axis."""
    x = call.value(0)
    axis = call.axis(len(x.shape), -1 if call.version >= 13 else 1)
    kind = Softmax if call.op == "Softmax" else LogSoftmax
    return call.emit(kind(axis), x) if call.version >= 13 else softmax_from(call, x, axis, kind)


def softmax_from(call: OnnxCall, x: Value, axis: int, kind: type[Softmax] | type[LogSoftmax] = Softmax) -> Value:
    """Everything from the axis on is one long axis."""
    if axis == len(x.shape) - 1:
        return call.emit(kind(axis), x)
    flat = reshape(call, x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    return reshape(call, call.emit(kind(1), flat), x.shape)


@importer("CumSum")
def cumsum(call: OnnxCall) -> Answer:
    x = call.value(0)
    axis = call.checked_axis(int(call.numbers(1, "axis").reshape(-1)[0]), len(x.shape))
    return call.emit(Cumsum(axis, bool(call.integer("exclusive")), bool(call.integer("reverse"))), x)


@importer("CumProd")
def cumprod(call: OnnxCall) -> Answer:
    """Rare enough to be spelt out: a product after the other."""
    x = call.value(0)
    axis = call.checked_axis(int(call.numbers(1, "axis").reshape(-1)[0]), len(x.shape))
    size = x.shape[axis]
    if size > 512:
        raise unsupported(f"`CumProd` over {size} elements is not supported")
    order = list(range(size))[:: -1 if call.integer("reverse") else 1]
    one = call.emit(Expand(tuple(1 if i == axis else n for i, n in enumerate(x.shape))), call.like(1, x))
    running: Value | None = None
    results: dict[int, Value] = {}
    for i in order:
        item = part(call, x, axis, i, 1)
        if call.integer("exclusive"):
            results[i] = one if running is None else running
            running = item if running is None else call.emit(Mul(), running, item)
        else:
            running = item if running is None else call.emit(Mul(), running, item)
            results[i] = running
    if not results:
        raise Fault("bad-tensor", "`CumProd` over an empty axis is not valid")
    return concat(call, [results[i] for i in range(size)], axis)
