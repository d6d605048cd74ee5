"""Operators whose result is known at compile time: constants, shapes, ranges, and what folds only."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import cast, reshape, transpose
from intaglio.frontends.emitting import FOLDING_BYTES, MAX_FOLDED_BYTES
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.names import identifier
from intaglio.frontends.onnx.tensors import STRING, dtype_of, tensor_value
from intaglio.ir.graph import Value
from intaglio.ir.sizes import array_of, larger, least, most, moves, whole
from intaglio.ir.types import DType
from intaglio.ops.base import narrow
from intaglio.ops.binary import Add, Div, Equal, Greater, Less, LogicalOr, Max, Min, Mul, Sub, Where
from intaglio.ops.found import NonMaxSuppression
from intaglio.ops.found import Unique as UniqueRows
from intaglio.ops.index import Gather
from intaglio.ops.move import Expand
from intaglio.ops.sizes import Iota
from intaglio.ops.unary import Ceil, Cos, IsNan


@importer("Constant")
def constant(call: OnnxCall) -> Answer:
    if len(call.attributes) != 1:
        raise Fault("bad-attribute", f"`Constant` has {len(call.attributes)} values instead of one")
    name = next(iter(call.attributes))
    match name:
        case "value":
            tensor = call.attributes[name].t
            return call.walk.strings(tensor, "the attribute `value`") if tensor.data_type == STRING else call.tensor(name)
        case "value_string":
            return call.words([call.text(name)], ())
        case "value_strings":
            return call.words(call.texts(name) or [])
        case "value_float":
            return call.constant(np.asarray(call.real(name), np.float32))
        case "value_floats":
            return call.constant(np.asarray(call.floats(name), np.float32))
        case "value_int":
            return call.constant(np.asarray(call.integer(name), np.int64))
        case "value_ints":
            return call.constant(np.asarray(call.ints(name), np.int64))
        case "sparse_value":
            return call.walk._sparse(call.attributes[name].sparse_tensor)
        case _:
            raise Fault("unsupported-type", f"a `Constant` with `{name}` is not supported", "export the model again")


@importer("Shape")
def shape(call: OnnxCall) -> Answer:
    x = call.value(0)
    start = call.integer("start", 0)
    end = call.integer("end", len(x.shape)) if "end" in call.attributes else None
    return call.constant(array_of(x.shape[slice(start, end)]), DType.I64)


@importer("Size")
def size(call: OnnxCall) -> Answer:
    return call.constant(array_of([call.value(0).type.elements]).reshape(()), DType.I64)


@importer("ConstantOfShape")
def constant_of_shape(call: OnnxCall) -> Answer:
    wanted = tuple(call.sizes(0, "shape"))
    value = call.tensor("value")
    if any(d < 0 for d in wanted):
        raise Fault("bad-attribute", f"`ConstantOfShape` of {list(wanted)} is not valid")
    fill = np.zeros((), np.float32) if value is None or value.data is None else value.data.reshape(-1)[0]
    dtype = DType.F32 if value is None else value.dtype
    if moves(wanted):
        return call.emit(Expand(wanted), call.constant(np.asarray(fill, dtype.numpy), dtype))
    _limit(call, math.prod(wanted) * dtype.bytes)
    return call.constant(np.full(wanted, fill, dtype.numpy), dtype)


def _limit(call: OnnxCall, size_bytes: int) -> None:
    if size_bytes > MAX_FOLDED_BYTES:
        raise Fault("too-large", f"`{call.op}` makes a constant of {size_bytes} bytes")
    call.walk.folded_bytes += size_bytes
    if call.walk.folded_bytes > FOLDING_BYTES + 3 * call.walk.weight_bytes:
        raise Fault("too-large", f"the constants that the model computes take more than {FOLDING_BYTES >> 20} MB")


@importer("Range")
def range_row(call: OnnxCall) -> Answer:
    if any(call.value(i).data is None for i in (0, 1, 2)):
        return _computed_range(call)
    start, limit, delta = (call.numbers(i, w).reshape(-1)[0] for i, w in enumerate(("start", "limit", "delta")))
    dtype = call.value(0).dtype
    if delta == 0:
        raise Fault("bad-attribute", "the delta of `Range` is 0")
    if moves((start, limit, delta)):
        count = larger(0, whole(limit - start) if delta == 1 else -(whole(start - limit) // whole(delta)))
        return call.emit(Iota(count, whole(start), whole(delta), dtype))
    count = (
        max(0, math.ceil((float(limit) - float(start)) / float(delta)))
        if dtype.is_float
        else max(0, -((int(start) - int(limit)) // int(delta)))
    )
    _limit(call, count * 8)
    steps = np.arange(count, dtype=np.int64 if dtype.is_int else np.float64)
    kind = np.int64 if dtype.is_int else np.float64
    values = np.add(np.asarray(start).astype(kind), np.multiply(steps, np.asarray(delta).astype(kind)))
    return call.constant(narrow(values, dtype), dtype)


def _computed_range(call: OnnxCall) -> Value:
    """start + i * delta, as many as the running program finds, at most `--max`."""
    start, limit, delta = (call.value(i) for i in range(3))
    name = call.walk.origins[0] if call.walk.origins else call.op
    if name not in call.walk.most:
        hint = f"give the largest length with `--max {name}=N`, or make it a constant"
        raise unsupported("the length of `Range` depends on data", hint)
    call.walk.most_used.add(name)
    if delta.data is not None and not delta.data.any():
        raise Fault("bad-attribute", "the delta of `Range` is 0")
    count = (_real_steps if start.dtype.is_float else _whole_steps)(call, start, limit, delta, call.walk.most[name] + 1)
    size = call.size(count, "length", 0, call.walk.most[name])
    steps = call.emit(Iota(size, 0, 1, start.dtype))
    return call.emit(Add(), call.emit(Mul(), steps, delta), start)


def _real_steps(call: OnnxCall, start: Value, limit: Value, delta: Value, cap: int) -> Value:
    """How many steps reach the limit, at most `cap`; -1, which is no size, for a delta of 0 and for NaN."""
    first, last, step = (cast(call, v, DType.F64) for v in (start, limit, delta))  # as ONNX Runtime does it
    zero, top, none = (call.constant(np.asarray(n, np.float64)) for n in (0, cap, -1))
    number = call.emit(Ceil(), call.emit(Div(), call.emit(Sub(), last, first), step))
    bad = call.emit(LogicalOr(), call.emit(IsNan(), number), call.emit(Equal(), step, zero))
    within = call.emit(Min(), call.emit(Max(), number, zero), top)
    return cast(call, call.emit(Where(), bad, none, within), DType.I64)


def _whole_steps(call: OnnxCall, start: Value, limit: Value, delta: Value, cap: int) -> Value:
    """The same for whole numbers: their distance is one without a sign, since it may not fit into one with a sign."""
    start, limit, delta = (cast(call, v, DType.I64) for v in (start, limit, delta))
    zero, none = (call.constant(np.asarray(n, np.int64)) for n in (0, -1))
    one, top = (call.constant(np.asarray(n, np.uint64)) for n in (1, cap))
    up = call.emit(Greater(), delta, zero)
    low, high = call.emit(Where(), up, start, limit), call.emit(Where(), up, limit, start)
    distance = call.emit(Sub(), cast(call, high, DType.U64), cast(call, low, DType.U64))
    step = cast(call, call.emit(Where(), up, delta, call.emit(Sub(), zero, delta)), DType.U64)
    number = call.emit(Add(), call.emit(Div(), call.emit(Sub(), distance, one), call.emit(Max(), step, one)), one)
    count = cast(call, call.emit(Min(), number, top), DType.I64)
    count = call.emit(Where(), call.emit(Less(), low, high), count, zero)
    return call.emit(Where(), call.emit(Equal(), delta, zero), none, count)


@importer("EyeLike")
def eye_like(call: OnnxCall) -> Answer:
    x = call.value(0)
    if len(x.shape) != 2:
        raise Fault("bad-attribute", "`EyeLike` is for matrices")
    dtype = dtype_of(call.integer("dtype"), "the result of `EyeLike`") if "dtype" in call.attributes else x.dtype
    _limit(call, x.type.elements * 8)
    if moves(x.shape):
        rows, columns = x.shape
        down = reshape(call, call.emit(Iota(rows, call.integer("k"))), (rows, 1))
        return cast(call, call.emit(Equal(), down, call.emit(Iota(columns))), dtype)
    return call.constant(narrow(np.eye(*x.shape, k=call.integer("k")), dtype), dtype)


def _folding(call: OnnxCall, index: int) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    value = call.value(index)
    if value.data is None:
        raise unsupported(
            f"the shape of the result of `{call.op}` depends on data",
            "shapes must be static; remove this part of the model and do it in the application",
        )
    return value.data


@importer("NonZero")
def non_zero(call: OnnxCall) -> Answer:
    x = call.value(0)
    if x.data is None:
        return call.walk.places(count_name(call), x)
    return call.constant(np.array(np.nonzero(np.atleast_1d(x.data)), np.int64).reshape(max(x.data.ndim, 1), -1))


def count_name(call: OnnxCall) -> str:
    """What a size that follows from data is called: after the first result of the node."""
    return identifier(call.walk.origins[0] if call.walk.origins else call.op, "found") + "_count"


@importer("Unique")
def unique(call: OnnxCall) -> Answer:
    if call.value(0).data is None:
        return _computed_unique(call)
    data = _folding(call, 0)
    axis = call.axis(data.ndim, 0) if "axis" in call.attributes else None
    values, first, inverse, counts = np.unique(data, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not call.integer("sorted", 1):
        order = np.argsort(first, kind="stable")
        values = np.take(values, order, axis=axis or 0)
        place = np.argsort(order, kind="stable")
        first, counts, inverse = first[order], counts[order], place[inverse]
    rest = [call.constant(a.astype(np.int64)) for a in (first, inverse, counts)]
    return [call.constant(values, call.value(0).dtype), *rest]


def _computed_unique(call: OnnxCall) -> Answer:
    x = call.value(0)
    axis = call.axis(len(x.shape), 0) if "axis" in call.attributes else None
    order = [] if axis is None else [axis, *(a for a in range(len(x.shape)) if a != axis)]
    moved = x if axis is None else transpose(call, x, order)
    n = x.type.elements if axis is None else x.shape[axis]
    rows = reshape(call, moved, (n, 1 if axis is None else math.prod(moved.shape[1:])))
    ordered = bool(call.integer("sorted", 1))
    bounds = call.walk.narrowed(count_name(call), min(1, least(n)), most(n))
    made = call.walk.found(count_name(call), *bounds, lambda count: UniqueRows(count, ordered), [rows])
    y = made[0]
    if axis is None:
        y = reshape(call, y, y.shape[:1])
    else:
        back = [order.index(a) for a in range(len(order))]
        y = transpose(call, reshape(call, y, (y.shape[0], *moved.shape[1:])), back)
    return [y, *made[1:4]]


@importer("Compress")
def compress(call: OnnxCall) -> Answer:
    x = call.value(0)
    if call.value(1).data is None:
        return _compressed(call, x, call.value(1))
    chosen = np.nonzero(call.numbers(1, "condition").reshape(-1))[0].astype(np.int64)
    if "axis" not in call.attributes:
        x, axis = reshape(call, x, (x.type.elements,)), 0
    else:
        axis = call.axis(len(x.shape), 0)
    if chosen.size and int(chosen[-1]) >= x.shape[axis]:
        raise Fault("bad-attribute", f"the condition of `Compress` chooses {int(chosen[-1])} of {x.shape[axis]} elements")
    return call.emit(Gather(axis), x, call.constant(chosen))


def _compressed(call: OnnxCall, x: Value, condition: Value) -> Value:
    """The places where the condition holds are found when it runs."""
    if "axis" not in call.attributes:
        x, axis = reshape(call, x, (x.type.elements,)), 0
    else:
        axis = call.axis(len(x.shape), 0)
    if len(condition.shape) != 1 or condition.shape[0] > x.shape[axis]:
        raise Fault("bad-attribute", f"`Compress` of {list(x.shape)} by a condition of {list(condition.shape)} is not valid")
    places = call.walk.places(count_name(call), condition)
    return call.emit(Gather(axis), x, reshape(call, places, places.shape[1:]))


@importer("ImageDecoder")
def files(call: OnnxCall) -> Answer:
    raise unsupported(f"`{call.op}` reads files, and generated code has no decoder", "decode it before the model")


@importer("NonMaxSuppression")
def non_max_suppression(call: OnnxCall) -> Answer:
    boxes, scores = call.value(0), call.value(1)
    asked = call.maybe(2)
    limits = [call.maybe(i) for i in (3, 4)]
    overlap, least_score = (None if n is None or n.data is None or not n.data.size else n.data.reshape(-1)[0] for n in limits)
    computed = asked if asked is not None and asked.data is None and asked.type.elements == 1 else None
    known = None if asked is None or computed is not None else call.numbers(2, "number of boxes")
    most_boxes = most(boxes.shape[1]) if computed is not None else None if known is None or not known.size else known.reshape(-1)[0]
    if boxes.type.rank != 3 or scores.type.rank != 3:
        raise Fault("shape-mismatch", f"`NonMaxSuppression` of {list(boxes.shape)} and {list(scores.shape)} is not valid")
    each = min(max(int(most_boxes or 0), 0), most(boxes.shape[1]))
    if not each:
        return call.constant(np.zeros((0, 3), np.int64))
    least_number = -np.inf if least_score is None else float(least_score)
    centred = bool(call.integer("center_point_box"))

    def made(count: int) -> NonMaxSuppression:
        return NonMaxSuppression(count, each, float(overlap or 0.0), least_number, centred)

    high = most(scores.shape[0]) * most(scores.shape[1]) * each
    at_run = ((computed, DType.I64), *((n if n is not None and n.data is None else None, DType.F32) for n in limits))
    rest = [None if n is None else reshape(call, cast(call, n, dtype), ()) for n, dtype in at_run]
    while rest and rest[-1] is None:
        rest.pop()
    return call.walk.found(count_name(call), *call.walk.narrowed(count_name(call), 0, high), made, [boxes, scores, *rest])[0]


@importer("HannWindow", "HammingWindow", "BlackmanWindow")
def window(call: OnnxCall) -> Answer:
    if call.value(0).data is None:
        return _computed_window(call)
    size = int(call.numbers(0, "size").reshape(-1)[0])
    dtype = dtype_of(call.integer("output_datatype", 1), f"the result of `{call.op}`")
    _limit(call, size * 8)
    n = np.arange(max(size, 0), dtype=np.float64)
    length = size if call.integer("periodic", 1) else size - 1
    angle = 2 * np.pi * n / max(length, 1)
    match call.op:
        case "HannWindow":
            values = 0.5 - 0.5 * np.cos(angle)
        case "HammingWindow":
            values = 25 / 46 - 21 / 46 * np.cos(angle)
        case _:
            values = 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle)
    return call.constant(narrow(values, dtype), dtype)


WINDOWS = {"HannWindow": (0.5, 0.5, 0.0), "HammingWindow": (25 / 46, 21 / 46, 0.0), "BlackmanWindow": (0.42, 0.5, 0.08)}


def _computed_window(call: OnnxCall) -> Value:
    """a - b cos(angle) + c cos(2 angle), as long as the running program says, at most `--max`."""
    (length,) = call.sizes(0, "size")
    number = cast(call, reshape(call, call.value(0), ()), DType.F32)
    if not call.integer("periodic", 1):
        number = call.emit(Sub(), number, call.like(1.0, number))
    turns = call.emit(Div(), call.emit(Iota(length, 0, 1, DType.F32)), number)
    angle = call.emit(Mul(), turns, call.like(2 * np.pi, turns))
    a, b, c = WINDOWS[call.op]
    made = call.emit(Sub(), call.like(a, angle), call.emit(Mul(), call.emit(Cos(), angle), call.like(b, angle)))
    if c:
        twice = call.emit(Cos(), call.emit(Mul(), angle, call.like(2.0, angle)))
        made = call.emit(Add(), made, call.emit(Mul(), twice, call.like(c, angle)))
    return cast(call, made, dtype_of(call.integer("output_datatype", 1), f"the result of `{call.op}`"))


def constant_tensor(call: OnnxCall, name: str) -> Value | None:
    """A tensor attribute, for rows of other families."""
    attribute = call.attributes.get(name)
    if attribute is None:
        return None
    data, dtype = tensor_value(attribute.t, call.walk.folder, f"the attribute `{name}`")
    return call.constant(data, dtype)


REFUSED = (files,)  # rows that only say why not
