"""Gather, scatter and their kin. Constant indices are checked here, by folding the reference on the indices."""

from __future__ import annotations

import numpy as np

from intaglio.frontends.building import cast, part, reshape
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Value
from intaglio.ir.sizes import Size, array_of, least, most, whole
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, Mod
from intaglio.ops.index import Gather, GatherElements, GatherNd, OneHot, ScatterElements, ScatterNd
from intaglio.ops.move import Expand
from intaglio.ops.reduce import TopK
from intaglio.ops.sizes import Dimensions


def checked(call: OnnxCall, indices: Value, size: int) -> Value:
    """Constant indices must be in range; they are made non-negative, which saves the kernel a test."""
    if indices.data is None:
        return indices
    if isinstance(size, Size):
        return _checked_later(call, indices, size)
    wide = indices.data.astype(np.int64)
    if wide.size and (int(wide.min()) < -size or int(wide.max()) >= size):
        bad = int(wide.max()) if int(wide.max()) >= size else int(wide.min())
        raise Fault("bad-attribute", f"index {bad} of `{call.op}` is out of range for {size} elements")
    if wide.size and int(wide.min()) < 0:
        return call.constant(np.where(wide < 0, wide + size, wide).astype(indices.data.dtype))
    return indices


def _checked_later(call: OnnxCall, indices: Value, size: int) -> Value:
    """Indices along an axis whose size moves: those that are there for every size are known, others are tested when it runs."""
    assert indices.data is not None
    items = [whole(n) for n in indices.data.reshape(-1).tolist()]
    if all(-least(size) <= n < least(size) for n in items):
        if not any(n < 0 for n in items):
            return indices
        items = [n + size if n < 0 else n for n in items]
    return call.emit(Dimensions(tuple(items), indices.shape, indices.dtype))


@importer("Gather")
def gather(call: OnnxCall) -> Answer:
    x, indices = call.value(0), call.value(1)
    axis = call.axis(len(x.shape), 0)
    if not x.shape:
        raise Fault("shape-mismatch", "`Gather` from a scalar is not valid")
    last = indices.data
    if isinstance(x.shape[axis], Size) and last is not None and last.size == 1 and x.data is None:
        n = whole(last.reshape(-1)[0])
        if not isinstance(n, Size) and -least(x.shape[axis]) <= n < 0:  # counted from the end
            cut = part(call, x, axis, x.shape[axis] + n, 1)
            return reshape(call, cut, x.shape[:axis] + indices.shape + x.shape[axis + 1 :])
    indices = checked(call, indices, x.shape[axis])
    if indices.data is not None and indices.data.size == 1 and x.data is None:
        cut = part(call, x, axis, int(indices.data.reshape(-1)[0]), 1)
        return reshape(call, cut, x.shape[:axis] + indices.shape + x.shape[axis + 1 :])
    return call.emit(Gather(axis), x, indices)


@importer("GatherElements")
def gather_elements(call: OnnxCall) -> Answer:
    x, indices = call.value(0), call.value(1)
    axis = call.axis(len(x.shape), 0)
    return call.emit(GatherElements(axis), x, checked(call, indices, x.shape[axis] if x.shape else 0))


@importer("GatherND")
def gather_nd(call: OnnxCall) -> Answer:
    x, indices = call.value(0), call.value(1)
    batch = call.integer("batch_dims")
    _check_tuples(call, indices, x.shape[max(batch, 0) :])
    return call.emit(GatherNd(batch), x, indices)


def _check_tuples(call: OnnxCall, indices: Value, sizes: tuple[int, ...]) -> None:
    if indices.data is None or not indices.shape or not indices.data.size:
        return
    for i, size in enumerate(sizes[: indices.shape[-1]]):
        column = indices.data[..., i].astype(np.int64)
        if int(column.min()) < -size or int(column.max()) >= size:
            raise Fault("bad-attribute", f"an index of `{call.op}` is out of range for {size} elements")


@importer("ScatterElements", "Scatter")
def scatter_elements(call: OnnxCall) -> Answer:
    x, indices, updates = (call.value(i) for i in range(3))
    axis = call.axis(len(x.shape), 0)
    op = ScatterElements(axis, call.text("reduction", "none"))
    return call.emit(op, x, checked(call, indices, x.shape[axis] if x.shape else 0), updates)


@importer("ScatterND")
def scatter_nd(call: OnnxCall) -> Answer:
    x, indices, updates = (call.value(i) for i in range(3))
    _check_tuples(call, indices, x.shape)
    return call.emit(ScatterNd(call.text("reduction", "none")), x, indices, updates)


@importer("OneHot")
def one_hot(call: OnnxCall) -> Answer:
    indices = call.value(0)
    (depth,) = call.sizes(1, "depth", least=1)
    if indices.dtype.is_float:
        indices = cast(call, indices, DType.I64)
    return call.emit(OneHot(depth, call.integer("axis", -1)), indices, call.value(2))


def _not_above(call: OnnxCall, k: int, size: int) -> int:
    """A number of results that depends on sizes: checked when it runs where it may be more than there are."""
    if least(size - k) >= 0:
        return k
    if most(size - k) < 0:
        told = f"{k} of at most {most(size)}" if not isinstance(k, Size) else f"`{k}` of `{size}`"
        hint = "give a range that reaches that far" if isinstance(size, Size) else "give other sizes"
        raise Fault("bad-attribute", f"`{call.op}` takes {told} elements, for every size of the range", hint)
    number = call.walk.at_run_time(call.constant(array_of([k]), DType.I64))
    number = number if number.data is None else call.emit(Dimensions((k,), (1,)))
    return call.size(number, "k", least(k), min(most(k), most(size)), size)


@importer("TopK")
def top_k(call: OnnxCall) -> Answer:
    x = call.value(0)
    axis = call.axis(len(x.shape), -1)
    if call.version < 10:
        k = call.integer("k")
    elif call.value(1).data is None:
        k = call.size(call.value(1), "k", 0, most(x.shape[axis]), x.shape[axis])
    else:
        k = whole(call.numbers(1, "k").reshape(-1)[0])
        if isinstance(k, Size) or isinstance(x.shape[axis], Size):
            k = _not_above(call, k, x.shape[axis])
    op = TopK(k, axis, bool(call.integer("largest", 1)), bool(call.integer("sorted", 1)))
    return list(call.emit_all(op, x))


@importer("TensorScatter")
def tensor_scatter(call: OnnxCall) -> Answer:
    """past_cache, update, write_indices: rows of the update go to write_indices[b] + i along an axis."""
    cache, update, at = call.value(0), call.value(1), call.maybe(2)
    rank = len(cache.shape)
    axis = call.axis(rank, -2)
    mode = call.text("mode", "linear")
    size, count = cache.shape[axis], update.shape[axis]
    if axis == 0:
        raise Fault("bad-attribute", "`TensorScatter` along the batch axis is not valid")
    batch = cache.shape[0]
    start = at if at is not None else call.constant(np.zeros(batch, np.int64))
    steps = call.constant(np.arange(count, dtype=np.int64).reshape(1, count))
    places = call.emit(Add(), reshape(call, start, (batch, 1)), steps)
    if mode == "circular":
        places = call.emit(Mod(), places, call.constant(np.asarray(size, np.int64)))
    elif mode != "linear":
        raise unsupported(f"`TensorScatter` in the mode `{mode}` is not supported")
    shape = [1] * rank
    shape[0], shape[axis] = batch, count
    places = call.emit(Expand(update.shape), reshape(call, places, shape))
    return call.emit(ScatterElements(axis), cache, places, update)
