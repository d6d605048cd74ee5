"""Gathers, scatters and what else takes indices: the same for floats and for integers of one quantisation."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import cast, reshape
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import LARGEST, TFLiteCall, axis_of, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, Less, Max, Min, Where
from intaglio.ops.convert import Cast, Dequantize
from intaglio.ops.found import NonZero, Unique
from intaglio.ops.index import Gather, GatherNd, OneHot, ScatterNd
from intaglio.ops.move import Concat, Reshape, ReverseSequence, Transpose
from intaglio.ops.reduce import Cumsum, TopK  # fmt: skip


@importer("GATHER")
def gather(call: TFLiteCall) -> None:
    x, indices = call.value(0), call.value(1)
    axis = axis_of(call.options.Axis(), x.type.rank)
    batch = getattr(call.options, "BatchDims", int)()
    batch = batch + indices.type.rank if batch < 0 else batch
    if not 0 <= batch <= min(axis, indices.type.rank) or x.shape[:batch] != indices.shape[:batch]:
        raise Fault("shape-mismatch", f"{batch} batch axes do not fit {list(x.shape)}, {list(indices.shape)} and axis {axis}")
    call.give(call.emit(Gather(axis), x, indices) if batch == 0 else _gather_in_batches(call, x, indices, axis, batch))


def _gather_in_batches(call: TFLiteCall, x: Value, indices: Value, axis: int, batch: int) -> Value:
    """As one gather of rows: entry n of batch b is row b * size + n."""
    size, count = x.shape[axis], math.prod(x.shape[:batch])
    middle, rest = list(range(batch, axis)), list(range(axis + 1, x.type.rank))
    if middle:
        x = call.emit(Transpose((*range(batch), axis, *middle, *rest)), x)
    rows = call.emit(Reshape((count * size, *x.shape[batch + 1 :])), x)
    start = (np.arange(count) * size).reshape(*indices.shape[:batch], *[1] * (indices.type.rank - batch))
    if indices.dtype.is_float or indices.dtype is DType.BOOL:
        raise Fault("bad-tensor", "its indices are not integers")
    y = call.emit(Gather(0), rows, call.emit(Add(), indices, constant(start.astype(indices.dtype.numpy))))
    if not middle:
        return y
    asked = indices.type.rank  # [batch, indices..., middle, rest] -> [batch, middle, indices..., rest]
    moved = list(range(asked, asked + len(middle)))
    return call.emit(Transpose((*range(batch), *moved, *range(batch, asked), *range(asked + len(middle), y.type.rank))), y)


@importer("GATHER_ND")
def gather_nd(call: TFLiteCall) -> None:
    call.give(call.emit(GatherNd(), call.value(0), call.value(1)))


@importer("SCATTER_ND")
def scatter_nd(call: TFLiteCall) -> None:
    shape = tuple(int(d) for d in call.known(2, "shape").reshape(-1))
    updates = call.value(1)
    if min(shape, default=0) < 0 or math.prod(shape) > LARGEST:
        raise Fault("bad-attribute", f"a result of {list(shape)} is not valid")
    zeros = constant(np.zeros(shape, updates.dtype.numpy))
    call.give(call.emit(ScatterNd("none" if updates.dtype is DType.BOOL else "add"), zeros, call.value(0), updates))


@importer("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(call: TFLiteCall) -> None:
    """The update moved as far as it has to be to lie inside."""
    x, update, start = call.value(0), call.value(1), call.value(2)
    if update.type.rank != x.type.rank or any(u > d for u, d in zip(update.shape, x.shape, strict=True)):
        raise Fault("shape-mismatch", f"an update of {list(update.shape)} in {list(x.shape)} is not valid")
    wide = call.emit(Cast(DType.I64), start) if start.dtype is not DType.I64 else start
    most = constant(np.asarray([d - u for d, u in zip(x.shape, update.shape, strict=True)], np.int64))
    first = call.emit(Max(), call.emit(Min(), wide, most), constant(np.zeros(x.type.rank, np.int64)))
    grid = np.stack(np.meshgrid(*[np.arange(u) for u in update.shape], indexing="ij"), -1).astype(np.int64)
    call.give(call.emit(ScatterNd(), x, call.emit(Add(), constant(grid), first), update))


@importer("EMBEDDING_LOOKUP")
def embedding_lookup(call: TFLiteCall) -> None:
    rows = call.emit(Gather(0), call.value(1), call.value(0))
    table, out = call.tensor(1), call.out()
    if rows.dtype is DType.I8 and out.dtype is DType.F32:
        if table.quant is None or table.quant.scale.size not in (1, table.shape[0]):
            raise Fault("bad-quantisation", "the table has no quantisation parameters")
        scale = constant(np.broadcast_to(table.quant.scale.astype(np.float32), (table.shape[0],)).copy())
        picked = call.emit(Gather(0), scale, call.value(0))
        shaped = call.emit(Reshape((*picked.shape, *[1] * (rows.type.rank - picked.type.rank))), picked)
        rows = call.emit(Dequantize(), rows, shaped, constant(np.asarray(0, np.int32)))
    call.give(rows)


@importer("REVERSE_SEQUENCE")
def reverse_sequence(call: TFLiteCall) -> None:
    o, lens = call.options, call.value(1)
    wide = call.emit(Cast(DType.I64), lens) if lens.dtype is not DType.I64 else lens
    call.give(call.emit(ReverseSequence(batch_axis=o.BatchDim(), time_axis=o.SeqDim()), call.value(0), wide))


@importer("ONE_HOT")
def one_hot(call: TFLiteCall) -> None:
    depth = int(call.known(1, "depth").reshape(-1)[0])
    on, off = call.value(2), call.value(3)
    indices, axis = call.value(0), call.options.Axis()
    values = call.emit(Concat(0), call.emit(Reshape((1,)), off), call.emit(Reshape((1,)), on))
    # an index from the end is none here: one that is too large takes its place
    wide = call.emit(Cast(DType.I64), indices) if indices.dtype is not DType.I64 else indices
    negative = call.emit(Less(), wide, constant(np.asarray(0, np.int64)))
    outside = call.emit(Where(), negative, constant(np.asarray(depth, np.int64)), wide)
    call.give(call.emit(OneHot(depth, axis), outside, values))


@importer("WHERE")
def where(call: TFLiteCall) -> None:
    """The places of what is true, a row each. There is room for as many as there are elements."""
    x = call.value(0)
    if not x.type.rank:
        raise Fault("shape-mismatch", "its condition has no axes")
    places, _ = call.found("places", 0, x.type.elements, NonZero, x)
    found = cast(call, call.emit(Transpose((1, 0)), places), call.out().dtype or DType.I64)
    found.origin = call.out().name if found.data is None else found.origin
    call.give(found)


@importer("UNIQUE")
def unique(call: TFLiteCall) -> None:
    """Each number once, in order of first appearance, and which of them each one is. There is room for as many as there are."""
    x = call.value(0)
    if x.type.rank != 1:
        raise Fault("shape-mismatch", f"it takes a list of numbers, got {list(x.shape)}")
    rows = reshape(call, x, (x.shape[0], 1))
    values, _, places, *_ = call.found("unique", min(1, x.shape[0]), x.shape[0], lambda count: Unique(count, False), rows)
    flat = reshape(call, values, values.shape[:1])
    for n, value in enumerate((flat, cast(call, places, call.out(1).dtype or DType.I32))):
        value.origin = call.out(n).name if value.data is None else value.origin
        call.keep(value, n)


@importer("TOPK_V2")
def topk(call: TFLiteCall) -> None:
    x = call.value(0)
    values, indices = call.emit_all(TopK(call.size(1, "k", x.shape[-1] if x.shape else 1)), x)
    call.give(values)
    call.give(call.emit(Cast(call.out(1).dtype or DType.I32), indices), 1)


@importer("CUMSUM")
def cumsum(call: TFLiteCall) -> None:
    o = call.options
    axis = axis_of(int(call.known(1, "axis").reshape(-1)[0]), call.value(0).type.rank)
    call.give(call.emit(Cumsum(axis, bool(o.Exclusive()), bool(o.Reverse())), call.value(0)))
