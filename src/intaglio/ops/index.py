"""Operators that read or write at places given by data: gather, scatter, one_hot. Negative indices count from the
end; an index out of range is an error here and is checked in the generated code."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op, normal_axis, same_dtype
from intaglio.ops.control import need

Places = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
REDUCTIONS = ("none", "add", "mul", "max", "min")


def wrapped(indices: Array, size: int) -> Places:
    """Indices from 0 on, all of them checked."""
    wide = indices.astype(np.int64)
    if wide.size:
        low, high = int(wide.min()), int(wide.max())
        if low < -size or high >= size:
            raise BadOperator(f"index {high if high >= size else low} is out of range for {size} elements")
    return np.where(wide < 0, wide + size, wide)


def need_index(name: str, indices: TensorType) -> None:
    if indices.dtype not in (DType.I32, DType.I64):
        raise BadOperator(f"the indices of `{name}` must be i32 or i64, got {indices.dtype.value}")


@dataclass(frozen=True, slots=True)
class Gather(Op):
    NAME: ClassVar[str] = "gather"
    axis: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, indices = need(self.NAME, types, 2, 2)
        need_index(self.NAME, indices)
        if x.rank == 0:
            raise BadOperator("`gather` from a scalar")
        axis = normal_axis(self.axis, x.rank)
        return (TensorType(x.dtype, x.shape[:axis] + indices.shape + x.shape[axis + 1 :]),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, indices = arrays
        assert x is not None
        assert indices is not None
        return (np.take(x, wrapped(indices, x.shape[self.axis]), axis=self.axis),)


@dataclass(frozen=True, slots=True)
class GatherElements(Op):
    NAME: ClassVar[str] = "gather_elements"
    axis: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, indices = need(self.NAME, types, 2, 2)
        need_index(self.NAME, indices)
        axis = normal_axis(self.axis, x.rank)
        fits = x.rank == indices.rank > 0 and all(indices.shape[i] <= x.shape[i] for i in range(x.rank) if i != axis)
        if not fits:
            raise BadOperator(f"`gather_elements` of {list(x.shape)} with indices of {list(indices.shape)}")
        return (TensorType(x.dtype, indices.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, indices = arrays
        assert x is not None
        assert indices is not None
        axis = normal_axis(self.axis, x.ndim)
        cut = tuple(slice(None) if i == axis else slice(0, n) for i, n in enumerate(indices.shape))
        return (np.take_along_axis(x[cut], wrapped(indices, x.shape[axis]), axis),)


@dataclass(frozen=True, slots=True)
class GatherNd(Op):
    NAME: ClassVar[str] = "gather_nd"
    batch_dims: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, indices = need(self.NAME, types, 2, 2)
        need_index(self.NAME, indices)
        b = self.batch_dims
        if not 0 <= b < min(x.rank, indices.rank) or x.shape[:b] != indices.shape[:b]:
            raise BadOperator(f"`gather_nd` of {list(x.shape)} and {list(indices.shape)} with {b} batch axes")
        depth = indices.shape[-1]
        if not 1 <= depth <= x.rank - b:
            raise BadOperator(f"`gather_nd` has indices of {depth} numbers for {list(x.shape)}")
        return (TensorType(x.dtype, indices.shape[:-1] + x.shape[b + depth :]),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, indices = arrays
        assert x is not None
        assert indices is not None
        b, depth = self.batch_dims, indices.shape[-1]
        batch = math.prod(x.shape[:b])
        flat = x.reshape((batch, *x.shape[b:]))
        at = indices.reshape(batch, -1, depth)
        rows = np.arange(batch)[:, None]
        places = tuple(wrapped(at[..., i], x.shape[b + i]) for i in range(depth))
        return (flat[(rows, *places)].reshape(indices.shape[:-1] + x.shape[b + depth :]),)


def put(y: Array, places: tuple[Places, ...], updates: Array, reduction: str) -> None:
    match reduction:
        case "add":
            np.add.at(y, places, updates)
        case "mul":
            np.multiply.at(y, places, updates)
        case "max":
            np.maximum.at(y, places, updates)
        case "min":
            np.minimum.at(y, places, updates)
        case _:
            y[places] = updates


@dataclass(frozen=True, slots=True)
class ScatterElements(Op):
    NAME: ClassVar[str] = "scatter_elements"
    axis: int = 0
    reduction: str = "none"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, indices, updates = need(self.NAME, types, 3, 3)
        need_index(self.NAME, indices)
        same_dtype(self.NAME, x.dtype, updates.dtype)
        axis = normal_axis(self.axis, x.rank)
        fits = x.rank == indices.rank > 0 and indices.shape == updates.shape
        if not fits or any(indices.shape[i] > x.shape[i] for i in range(x.rank) if i != axis):
            raise BadOperator(
                f"`scatter_elements` into {list(x.shape)} with indices of {list(indices.shape)} and updates of "
                f"{list(updates.shape)}"
            )
        if self.reduction not in REDUCTIONS:
            raise BadOperator(f"`scatter_elements` does not know the reduction `{self.reduction}`")
        return (TensorType(x.dtype, x.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, indices, updates = arrays
        assert x is not None
        assert indices is not None
        assert updates is not None
        axis = normal_axis(self.axis, x.ndim)
        y = np.array(x)
        grid = list(np.indices(indices.shape, sparse=True))
        grid[axis] = wrapped(indices, x.shape[axis])
        put(y, tuple(np.broadcast_to(g, indices.shape) for g in grid), updates, self.reduction)
        return (y,)


@dataclass(frozen=True, slots=True)
class ScatterNd(Op):
    NAME: ClassVar[str] = "scatter_nd"
    reduction: str = "none"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, indices, updates = need(self.NAME, types, 3, 3)
        need_index(self.NAME, indices)
        same_dtype(self.NAME, x.dtype, updates.dtype)
        depth = indices.shape[-1] if indices.rank else 0
        if not 1 <= depth <= x.rank or updates.shape != indices.shape[:-1] + x.shape[depth:]:
            raise BadOperator(
                f"`scatter_nd` into {list(x.shape)} with indices of {list(indices.shape)} and updates of {list(updates.shape)}"
            )
        if self.reduction not in REDUCTIONS:
            raise BadOperator(f"`scatter_nd` does not know the reduction `{self.reduction}`")
        return (TensorType(x.dtype, x.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, indices, updates = arrays
        assert x is not None
        assert indices is not None
        assert updates is not None
        y = np.array(x)
        places = tuple(wrapped(indices[..., i], x.shape[i]) for i in range(indices.shape[-1]))
        put(y, places, updates, self.reduction)
        return (y,)


@dataclass(frozen=True, slots=True)
class OneHot(Op):
    """one_hot(indices, values): values[1] at the index along a new axis, values[0] elsewhere; an index outside of
    -depth..depth-1 gives values[0] everywhere."""

    NAME: ClassVar[str] = "one_hot"
    depth: int = 1
    axis: int = -1

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        indices, values = need(self.NAME, types, 2, 2)
        axis = normal_axis(self.axis, indices.rank + 1)
        if values.shape != (2,) or self.depth < 1:
            raise BadOperator(f"`one_hot` of depth {self.depth} with values of {list(values.shape)}")
        return (TensorType(values.dtype, (*indices.shape[:axis], self.depth, *indices.shape[axis:])),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        indices, values = arrays
        assert indices is not None
        assert values is not None
        axis = normal_axis(self.axis, indices.ndim + 1)
        wide = indices.astype(np.int64)
        wide = np.where(wide < 0, wide + self.depth, wide)
        shape = [1] * (indices.ndim + 1)
        shape[axis] = self.depth
        hot = np.equal(np.expand_dims(wide, axis), np.arange(self.depth).reshape(shape))
        return (np.where(hot, values[1], values[0]),)
