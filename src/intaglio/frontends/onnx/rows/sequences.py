"""Sequences and optionals, which exist only during the import: lists whose length is known."""

from __future__ import annotations

import numpy as np

from intaglio.frontends.building import concat, part, reshape, transpose, unsqueeze
from intaglio.frontends.onnx.call import Absent, Answer, Items, OnnxCall, Rows, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.tensors import dtype_of
from intaglio.ir.graph import Array, Value
from intaglio.ir.sizes import Size, settled, whole
from intaglio.ir.types import DType


@importer("SequenceConstruct")
def construct(call: OnnxCall) -> Answer:
    return Items([v for v in call.inputs if v is not None])


@importer("SequenceEmpty")
def empty(call: OnnxCall) -> Answer:
    return Items([], dtype_of(call.integer("dtype", 1), "a sequence"))


def _position(call: OnnxCall, index: int, size: int) -> int:
    at = int(call.numbers(index, "position").reshape(-1)[0])
    if not -size <= at < size:
        raise Fault("bad-attribute", f"position {at} of `{call.op}` is out of range for {size} elements")
    return at % size


@importer("SequenceAt")
def at(call: OnnxCall) -> Answer:
    if isinstance(rows := call.item(0), Rows):
        return call.call("Gather", rows.tensor, call.value(1))
    items = call.sequence(0)
    return items.values[_position(call, 1, len(items.values))]


@importer("SequenceInsert")
def insert(call: OnnxCall) -> Answer:
    items = call.sequence(0)
    values = list(items.values)
    where = len(values)
    if call.has(2):
        where = int(call.numbers(2, "position").reshape(-1)[0])
        if not -len(values) <= where <= len(values):
            raise Fault("bad-attribute", f"position {where} of `SequenceInsert` is out of range")
        where = where + len(values) if where < 0 else where
    values.insert(where, call.value(1))
    return Items(values, items.dtype)


@importer("SequenceErase")
def erase(call: OnnxCall) -> Answer:
    items = call.sequence(0)
    values = list(items.values)
    del values[_position(call, 1, len(values)) if call.has(1) else -1]
    return Items(values, items.dtype)


@importer("SequenceLength")
def length(call: OnnxCall) -> Answer:
    if isinstance(rows := call.item(0), Rows):
        size = np.empty((), object)
        size[()] = rows.tensor.shape[0]
        return call.constant(settled(size, np.int64), DType.I64)
    return call.constant(np.asarray(len(call.sequence(0).values), np.int64))


@importer("SplitToSequence")
def split_to_sequence(call: OnnxCall) -> Answer:
    x = call.value(0)
    axis = call.axis(len(x.shape), 0)
    size = x.shape[axis]
    split = call.maybe_numbers(1, "split sizes")
    if isinstance(size, Size):
        return _split_range(call, x, axis, split)
    if split is None:
        sizes = [1] * size
    elif split.ndim == 0:
        each = int(split.reshape(-1)[0])
        if each < 1:
            raise Fault("bad-attribute", f"`SplitToSequence` into parts of {each} is not valid")
        sizes = [min(each, size - i) for i in range(0, size, each)]
    else:
        sizes = [int(v) for v in split.tolist()]
    if sum(sizes) != size or any(n < 0 for n in sizes):
        raise Fault("bad-attribute", f"{size} elements cannot be split into parts of {sizes}")
    parts, start = [], 0
    for count in sizes:
        piece = part(call, x, axis, start, count)
        if split is None and not call.integer("keepdims", 1):
            piece = reshape(call, piece, x.shape[:axis] + x.shape[axis + 1 :])
        parts.append(piece)
        start += count
    return Items(list(parts))


def _split_range(call: OnnxCall, x: Value, axis: int, split: Array | None) -> Rows:
    """As many parts as the caller says, all alike: the rows of a tensor."""
    size = x.shape[axis]
    each = 1 if split is None else whole(split.reshape(-1)[0]) if split.ndim == 0 else 0
    if isinstance(each, Size) or each < 1:
        raise unsupported(f"`SplitToSequence` of `{size}` elements into parts that are not alike is not supported",
                          "split into equal parts, give one size (`--dim NAME=N`), or use `Slice`")  # fmt: skip
    if each > 1 and size % each != 0:  # which may depend on the size: then it says so
        what = f"`{size}` elements cannot be split into parts of {each} that are alike"
        raise unsupported(what, "split into parts of 1, give one size (`--dim NAME=N`), or use `Slice`")
    order = [axis, *[a for a in range(len(x.shape) + 1) if a != axis]]
    if split is None and not call.integer("keepdims", 1):
        return Rows(transpose(call, x, [axis, *(a for a in range(len(x.shape)) if a != axis)]))
    parts = reshape(call, x, (*x.shape[:axis], size // each, each, *x.shape[axis + 1 :]))
    return Rows(transpose(call, parts, order))


@importer("ConcatFromSequence")
def concat_from_sequence(call: OnnxCall) -> Answer:
    if isinstance(rows := call.item(0), Rows):
        return _concat_rows(call, rows.tensor)
    values = [v for v in call.sequence(0).values if isinstance(v, Value)]
    if not values or len(values) != len(call.sequence(0).values):
        raise unsupported("`ConcatFromSequence` of an empty sequence is not supported")
    rank = len(values[0].shape)
    if call.integer("new_axis"):
        axis = call.checked_axis(call.integer("axis"), rank + 1)
        return concat(call, [unsqueeze(call, v, axis) for v in values], axis)
    return concat(call, values, call.checked_axis(call.integer("axis"), rank))


def _concat_rows(call: OnnxCall, rows: Value) -> Value:
    rank = len(rows.shape) - 1
    new = call.integer("new_axis")
    axis = call.checked_axis(call.integer("axis"), rank + 1 if new else rank)
    order = list(range(1, rank + 1))
    turned = transpose(call, rows, [*order[:axis], 0, *order[axis:]])
    if new:
        return turned
    return reshape(call, turned, (*turned.shape[:axis], turned.shape[axis] * turned.shape[axis + 1], *turned.shape[axis + 2 :]))


@importer("Optional")
def optional(call: OnnxCall) -> Answer:
    return call.item(0) or Absent()


@importer("OptionalHasElement")
def has_element(call: OnnxCall) -> Answer:
    item = call.item(0)
    return call.constant(np.asarray(item is not None and not isinstance(item, Absent)), DType.BOOL)


@importer("OptionalGetElement")
def get_element(call: OnnxCall) -> Answer:
    item = call.item(0)
    if item is None or isinstance(item, Absent):
        raise Fault("bad-graph", "`OptionalGetElement` of nothing is not valid")
    return item
