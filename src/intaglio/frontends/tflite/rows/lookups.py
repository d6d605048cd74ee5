"""Rows of a table by their keys, and sums of rows that a sparse tensor names."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import cast, reshape
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import LARGEST, TFLiteCall, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Div, Equal, Mul, Where
from intaglio.ops.index import Gather, ScatterNd
from intaglio.ops.move import Slice
from intaglio.ops.reduce import ArgReduce, Reduce
from intaglio.ops.unary import Sqrt

_SUM, _MEAN, _SQRTN = range(3)  # CombinerType


@importer("HASHTABLE_LOOKUP")
def hashtable_lookup(call: TFLiteCall) -> None:
    """(row of the key, or zeros; 1 where there is such a key)."""
    asked, keys, rows = (call.value(n) for n in range(3))
    if asked.type.rank != 1 or keys.type.rank != 1 or keys.shape[0] < 1 or rows.shape[:1] != keys.shape:
        raise Fault("shape-mismatch", f"keys of {list(keys.shape)} do not fit a table of {list(rows.shape)}")
    if keys.data is not None and not np.all(np.diff(keys.data.astype(np.int64)) > 0):
        raise Fault("unsupported-operator", "its keys are not in order, so which of them is found is not defined")
    same = call.emit(Equal(), reshape(call, asked, (*asked.shape, 1)), keys)
    place = call.emit(ArgReduce("max", 1, False), cast(call, same, DType.I32))
    hit = call.emit(Reduce("any", (1,), False), same)
    found = call.emit(Gather(0), rows, place)
    wide = reshape(call, hit, (*hit.shape, *[1] * (rows.type.rank - 1)))
    call.give(call.emit(Where(), wide, found, call.like(0, found)), 0)
    call.give(cast(call, hit, DType.U8), 1)


@importer("EMBEDDING_LOOKUP_SPARSE")
def embedding_lookup_sparse(call: TFLiteCall) -> None:
    """Rows of a table times their weights, added up where their index says; then the sum, the mean, or by the root of squares."""
    ids, indices, weights, rows = (call.value(n) for n in (0, 1, 3, 4))
    shape = [int(n) for n in call.known(2, "shape").reshape(-1)]
    fits = ids.type.rank == weights.type.rank == 1 and indices.shape == (ids.shape[0], len(shape)) and ids.shape == weights.shape
    if not fits or rows.type.rank < 2 or min(shape, default=0) < 1 or not {rows.dtype, weights.dtype} == {DType.F32}:
        raise Fault("shape-mismatch", f"{list(ids.shape)} rows at {list(indices.shape)} do not fit a shape of {shape}")
    outer, width = shape[:-1], math.prod(rows.shape[1:])
    count = math.prod(outer)
    if count * width > LARGEST:
        raise Fault("bad-tensor", f"its result would be {[*outer, *rows.shape[1:]]}, which is too large")
    strides = np.array([math.prod(outer[n + 1 :]) for n in range(len(outer))], np.int64)
    inner = cast(call, call.emit(Slice((0, 0), (1, 1), (ids.shape[0], len(outer))), indices), DType.I64)
    bucket = call.emit(Reduce("sum", (1,), True), call.emit(Mul(), inner, constant(strides)))
    taken = call.emit(Gather(0), reshape(call, rows, (rows.shape[0], width)), ids)
    column = reshape(call, weights, (*weights.shape, 1))
    total = _added(call, bucket, call.emit(Mul(), taken, column), count)
    combiner = int(call.options.Combiner())
    if combiner != _SUM:
        factors = column if combiner == _MEAN else call.emit(Mul(), column, column)
        by = _added(call, bucket, factors, count)
        some = call.emit(Equal(), _added(call, bucket, constant(np.ones((ids.shape[0], 1), np.float32)), count), call.like(0, by))
        by = by if combiner == _MEAN else call.emit(Sqrt(), by)
        total = call.emit(Div(), total, call.emit(Where(), some, call.like(1, by), by))
    call.give(reshape(call, total, (*outer, *rows.shape[1:])))


def _added(call: TFLiteCall, bucket: Value, values: Value, count: int) -> Value:
    return call.emit(ScatterNd("add"), constant(np.zeros((count, values.shape[1]), np.float32)), bucket, values)
