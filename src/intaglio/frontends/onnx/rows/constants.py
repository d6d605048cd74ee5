"""Operators whose result is known at compile time: constants, shapes, ranges, and what folds only."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.emitting import FOLDING_BYTES, MAX_FOLDED_BYTES
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.tensors import dtype_of, tensor_value
from intaglio.ir.graph import Value
from intaglio.ir.sizes import array_of, larger, moves, whole
from intaglio.ir.types import DType
from intaglio.ops.base import narrow
from intaglio.ops.move import Expand
from intaglio.ops.sizes import Iota


@importer("Constant")
def constant(call: OnnxCall) -> Answer:
    if len(call.attributes) != 1:
        raise Fault("bad-attribute", f"`Constant` has {len(call.attributes)} values instead of one")
    name = next(iter(call.attributes))
    match name:
        case "value":
            return call.tensor("value")
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
            raise Fault("unsupported-type", f"a `Constant` with `{name}` is not supported", "do not use tensors of strings")


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
    wanted = tuple(call.int_list(0, "shape"))
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


@importer("EyeLike")
def eye_like(call: OnnxCall) -> Answer:
    x = call.value(0)
    if len(x.shape) != 2:
        raise Fault("bad-attribute", "`EyeLike` is for matrices")
    dtype = dtype_of(call.integer("dtype"), "the result of `EyeLike`") if "dtype" in call.attributes else x.dtype
    _limit(call, x.type.elements * 8)
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
    data = _folding(call, 0)
    return call.constant(np.array(np.nonzero(np.atleast_1d(data)), np.int64).reshape(max(data.ndim, 1), -1))


@importer("Unique")
def unique(call: OnnxCall) -> Answer:
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


@importer("Compress")
def compress(call: OnnxCall) -> Answer:
    from intaglio.frontends.building import reshape
    from intaglio.ops.index import Gather

    x = call.value(0)
    chosen = np.nonzero(call.numbers(1, "condition").reshape(-1))[0].astype(np.int64)
    if "axis" not in call.attributes:
        x, axis = reshape(call, x, (x.type.elements,)), 0
    else:
        axis = call.axis(len(x.shape), 0)
    if chosen.size and int(chosen[-1]) >= x.shape[axis]:
        raise Fault("bad-attribute", f"the condition of `Compress` chooses {int(chosen[-1])} of {x.shape[axis]} elements")
    return call.emit(Gather(axis), x, call.constant(chosen))


@importer("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
def random(call: OnnxCall) -> Answer:
    raise unsupported(f"`{call.op}` is random", "make the random numbers an input of the model")


@importer(
    "StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "TfIdfVectorizer", "ImageDecoder",
)  # fmt: skip
def strings(call: OnnxCall) -> Answer:
    raise unsupported(
        f"`{call.op}` works on strings or files, which is not supported", "do this in the application, before the model"
    )


@importer("NonMaxSuppression")
def non_max_suppression(call: OnnxCall) -> Answer:
    raise unsupported(
        "the number of boxes that `NonMaxSuppression` keeps depends on data",
        "export the model without it and select boxes in the application",
    )


@importer("HannWindow", "HammingWindow", "BlackmanWindow")
def window(call: OnnxCall) -> Answer:
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


def constant_tensor(call: OnnxCall, name: str) -> Value | None:
    """A tensor attribute, for rows of other families."""
    attribute = call.attributes.get(name)
    if attribute is None:
        return None
    data, dtype = tensor_value(attribute.t, call.walk.folder, f"the attribute `{name}`")
    return call.constant(data, dtype)


REFUSED = (random, strings)  # rows that only say why not
