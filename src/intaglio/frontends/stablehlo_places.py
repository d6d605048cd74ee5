"""Operators of StableHLO that take or put parts, sort, and convolve, for every front end that meets them.

gather            rows where it can, else every element by its place in the flat operand
dynamic_slice     the start along each axis, within bounds; axes that are taken whole have none
scatter           every element of the updates by its place in the flat operand; those outside go to one place behind it
sort              all of the largest or smallest along an axis, and what belongs to them
convolution       as [batch, features, spatial...] and [out, in, spatial...]; zeros between elements of the input are put in
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intaglio.frontends.building import cast, concat, expand, reshape, transpose
from intaglio.frontends.emitting import Emits
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.stablehlo import Ints, pad, rows_of
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, GreaterEqual, Less, LogicalAnd, Max, Min, Mul, Sub, Where
from intaglio.ops.conv import Conv
from intaglio.ops.index import Gather, GatherElements, ScatterNd
from intaglio.ops.move import Slice
from intaglio.ops.reduce import TopK
from intaglio.ops.unary import LogicalNot

UPDATES = {"add": "add", "multiply": "mul", "maximum": "max", "minimum": "min", "": "none"}  # "": the update itself


def _start(call: Emits, start: Value, most: int) -> Value:
    """Within bounds."""
    wide = cast(call, reshape(call, start, (1,)), DType.I64)
    return call.emit(Min(), call.emit(Max(), wide, call.like(0, wide)), call.like(most, wide))


def dynamic_slice(call: Emits, x: Value, starts: Sequence[Value], sizes: Ints) -> Value:
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        most = x.shape[axis] - size
        if most:
            inside = _start(call, start, most)
            x = call.emit(Gather(axis), x, call.emit(Add(), inside, call.constant(np.arange(size, dtype=np.int64))))
    return x


def dynamic_update_slice(call: Emits, x: Value, update: Value, starts: Sequence[Value]) -> Value:
    """Along each axis the rows that the update has, put where they belong, and which those are."""
    inside: Value | None = None
    for axis, start in enumerate(starts):
        size, most = update.shape[axis], x.shape[axis] - update.shape[axis]
        if most == 0:
            continue
        first = _start(call, start, most)
        places = call.emit(Sub(), call.constant(np.arange(x.shape[axis], dtype=np.int64)), first)
        below = call.emit(Less(), places, call.like(0, places))
        mine = call.emit(LogicalAnd(), call.emit(LogicalNot(), below), call.emit(Less(), places, call.like(size, places)))
        mine = reshape(call, mine, [size_ if n == axis else 1 for n, size_ in enumerate(x.shape)])
        inside = mine if inside is None else call.emit(LogicalAnd(), inside, mine)
        near = call.emit(Min(), call.emit(Max(), places, call.like(0, places)), call.like(size - 1, places))
        update = call.emit(Gather(axis), update, near)
    return update if inside is None else call.emit(Where(), expand(call, inside, x.shape), update, x)


def scatter(
    call: Emits, x: Value, indices: Value, updates: Value, windows: Ints, inserted: Ints, axes: Ints, vector_axis: int, kind: str,
    *, entire: bool = False,
) -> Value:  # fmt: skip
    """`windows`: axes of the updates that are parts of x; `inserted`: axes of x that those parts do not have; `axes`: of x, that
    the numbers of an index count along. `entire`: a part that does not fit is left out, not only what is outside of it."""
    rank, outer = len(x.shape), [n for n in range(len(updates.shape)) if n not in windows]
    kept = [n for n in range(rank) if n not in inserted]
    if len(kept) != len(windows) or vector_axis > len(indices.shape):
        raise Fault("shape-mismatch", f"updates of {list(updates.shape)} do not fit {list(x.shape)}")
    if vector_axis == len(indices.shape):
        indices = reshape(call, indices, (*indices.shape, 1))
    order = [n for n in range(len(indices.shape)) if n != vector_axis]
    count, depth = math.prod(indices.shape[n] for n in order), indices.shape[vector_axis]
    starts = cast(call, reshape(call, transpose(call, indices, [*order, vector_axis]), (count, depth)), DType.I64)
    shape = [updates.shape[n] for n in windows]
    size = math.prod(shape)
    if depth != len(axes) or count * size != math.prod(updates.shape):
        raise Fault("shape-mismatch", f"{count} indices do not fit updates of {list(updates.shape)}")
    flat = reshape(call, transpose(call, updates, [*outer, *windows]), (count * size,))
    offsets = dict(zip(kept, np.indices(shape).reshape(len(shape), size), strict=True))
    strides = [math.prod(x.shape[n + 1 :]) for n in range(rank)]
    fixed = sum((offsets[n] * strides[n] for n in kept if n not in axes), np.zeros(size, np.int64))
    place: Value = call.constant(np.broadcast_to(fixed, (count, size)).astype(np.int64))
    inside: Value | None = None
    for column, axis in enumerate(axes):
        own = call.constant(offsets.get(axis, np.zeros(size, np.int64)).reshape(1, -1).astype(np.int64))
        at = call.emit(Add(), call.emit(Slice((0, column), (1, 1), (count, 1)), starts), own)
        first, size_there = (call.emit(Sub(), at, own), shape[kept.index(axis)]) if entire and axis in kept else (at, 1)
        low = call.emit(GreaterEqual(), first, call.like(0, at))
        high = call.emit(Less(), first, call.like(x.shape[axis] - size_there + 1, at))
        fits = call.emit(LogicalAnd(), low, high)
        inside = fits if inside is None else call.emit(LogicalAnd(), inside, fits)
        place = call.emit(Add(), place, call.emit(Mul(), at, call.like(strides[axis], at)))
    total = math.prod(x.shape)
    if inside is not None:
        place = call.emit(Where(), inside, place, call.like(total, place))
    longer = concat(call, [reshape(call, x, (total,)), call.constant(np.zeros(1, x.dtype.numpy), x.dtype)], 0)
    made = call.emit(ScatterNd(kind), longer, reshape(call, place, (count * size, 1)), flat)
    return reshape(call, call.emit(Slice((0,), (1,), (total,)), made), x.shape)


def with_batch(call: Emits, indices: Value, vector_axis: int, batch: Sequence[int]) -> tuple[Value, int]:
    """Indices that say their own place along axes that they share with what is indexed, and which axis their numbers are along."""
    if not batch:
        return indices, vector_axis
    if vector_axis == len(indices.shape):
        indices = reshape(call, indices, (*indices.shape, 1))
    wide = cast(call, indices, DType.I64)
    shape = [1 if n == vector_axis else size for n, size in enumerate(indices.shape)]
    own = []
    for axis in batch:
        line = np.arange(shape[axis], dtype=np.int64).reshape([-1 if n == axis else 1 for n in range(len(shape))])
        own.append(call.constant(np.ascontiguousarray(np.broadcast_to(line, shape))))
    return concat(call, [wide, *own], vector_axis), vector_axis


def gather(
    call: Emits, x: Value, indices: Value, offset: Ints, collapsed: Ints, axes: Ints, vector_axis: int, sizes: Ints
) -> Value:
    """Parts of the size `sizes` from anywhere, by the place of each element in the flat operand. A part that would go beyond the
    edge starts earlier. Rows that are whole are taken as rows."""
    if (rows := rows_of(call, x, indices, offset, collapsed, axes, vector_axis, sizes)) is not None:
        return rows
    rank = len(x.shape)
    if vector_axis == len(indices.shape):
        indices = reshape(call, indices, (*indices.shape, 1))
    order = [n for n in range(len(indices.shape)) if n != vector_axis]
    outer = [indices.shape[n] for n in order]
    count, depth = math.prod(outer), indices.shape[vector_axis]
    if depth != len(axes) or len(sizes) != rank:
        raise Fault("shape-mismatch", f"indices of {list(indices.shape)} do not fit {list(x.shape)}")
    starts = cast(call, reshape(call, transpose(call, indices, [*order, vector_axis]), (count, depth)), DType.I64)
    strides = [math.prod(x.shape[n + 1 :]) for n in range(rank)]
    offsets = np.indices(tuple(sizes)).reshape(rank, math.prod(sizes))
    place: Value = call.constant((offsets * np.asarray(strides, np.int64).reshape(rank, 1)).sum(0, dtype=np.int64).reshape(1, -1))
    for column, axis in enumerate(axes):
        at = call.emit(Slice((0, column), (1, 1), (count, 1)), starts)
        at = call.emit(Min(), call.emit(Max(), at, call.like(0, at)), call.like(x.shape[axis] - sizes[axis], at))
        place = call.emit(Add(), place, call.emit(Mul(), at, call.like(strides[axis], at)))
    made = call.emit(Gather(0), reshape(call, x, (math.prod(x.shape),)), place)
    made = reshape(call, made, [*outer, *(size for n, size in enumerate(sizes) if n not in collapsed)])
    spot = [n for n in range(len(made.shape)) if n not in offset]
    back = [spot.index(n) if n in spot else len(spot) + list(offset).index(n) for n in range(len(made.shape))]
    return transpose(call, made, back)


def sort(call: Emits, values: Sequence[Value], axis: int, largest: bool) -> list[Value]:
    """By the first of them; equal ones stay in their order."""
    first, axis = values[0], axis % len(values[0].shape)
    made, places = call.emit_all(TopK(first.shape[axis], axis, largest, True), first)
    return [made, *(call.emit(GatherElements(axis), value, places) for value in values[1:])]


@dataclass(frozen=True, slots=True)
class Axes:
    """Where the batch (or what is made), the features and the spatial axes are."""

    batch: int
    features: int
    spatial: tuple[int, ...]

    @property
    def order(self) -> list[int]:
        return [self.batch, self.features, *self.spatial]


def convolution(
    call: Emits, x: Value, w: Value, axes: tuple[Axes, Axes, Axes], strides: Ints, pads: Sequence[Ints], apart: Ints,
    dilations: Ints, groups: int,
) -> Value:  # fmt: skip
    """`axes`: of the input, of the kernel (what it makes, what it takes) and of the result."""
    if not 1 <= len(axes[0].spatial) <= 3:
        raise Fault("unsupported-operator", "this form of `convolution` is not supported")
    x, w = transpose(call, x, axes[0].order), transpose(call, w, axes[1].order)
    low, high = [p[0] for p in pads], [p[1] for p in pads]
    if any(n > 1 for n in apart) or any(n < 0 for n in (*low, *high)):
        x = pad(call, x, 0.0, [0, 0, *low], [0, 0, *high], [0, 0, *(n - 1 for n in apart)])
        low, high = [0] * len(low), [0] * len(high)
    y = call.emit(Conv(tuple(strides), (*low, *high), tuple(dilations), groups), x, w)
    order = axes[2].order
    return transpose(call, y, [order.index(n) for n in range(len(order))])
