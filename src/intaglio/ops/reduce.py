"""Reductions along axes, softmax, and running sums."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.sizes import least, most
from intaglio.ir.types import DType, Shape, TensorType
from intaglio.ops.base import BadOperator, Op, normal_axes, normal_axis
from intaglio.ops.control import need
from intaglio.ops.numeric import int_range, numeric

KINDS = (
    "sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp", "any", "all",
)  # fmt: skip


def reduced_shape(shape: Shape, axes: Shape, keepdims: bool) -> Shape:
    if keepdims:
        return tuple(1 if i in axes else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in axes)


@dataclass(frozen=True, slots=True)
class Reduce(Op):
    """One number out of all along `axes`. Over nothing: sum 0, product 1, maximum -inf, minimum inf."""

    NAME: ClassVar[str] = "reduce"
    kind: str = "sum"
    axes: tuple[int, ...] = ()
    keepdims: bool = True

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if self.kind not in KINDS:
            raise BadOperator(f"`reduce` does not know the kind `{self.kind}`")
        if self.kind in ("any", "all") and x.dtype is not DType.BOOL:
            raise BadOperator(f"`reduce` of kind `{self.kind}` is for bool, got {x.dtype.value}")
        axes = normal_axes(self.axes, x.rank)
        return (TensorType(x.dtype, reduced_shape(x.shape, axes, self.keepdims)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        axes = normal_axes(self.axes, x.ndim)
        y = np.asarray(reduce_array(self.kind, x, axes)).astype(x.dtype)
        return (y if self.keepdims else y.reshape(reduced_shape(x.shape, axes, False)),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return 0 if types[0] is None else types[0].elements


def reduce_array(kind: str, values: Array, axes: Shape) -> Array:
    """With the reduced axes kept as 1."""
    x = numeric(values)
    floating = np.issubdtype(x.dtype, np.floating)
    wide = x if floating else numeric(x.astype(np.float64))
    result: Array
    match kind:
        case "sum":
            result = np.add.reduce(x, axis=axes, keepdims=True, dtype=x.dtype)
        case "mean":
            count = math.prod(x.shape[axis] for axis in axes)
            total = np.add.reduce(x, axis=axes, keepdims=True, dtype=x.dtype)
            result = np.divide(total, x.dtype.type(count)) if floating else np.trunc(np.divide(total, max(count, 1)))
        case "prod":
            result = np.multiply.reduce(x, axis=axes, keepdims=True, dtype=x.dtype)
        case "max" | "min" if x.dtype == np.bool_:
            result = (np.logical_or if kind == "max" else np.logical_and).reduce(x, axis=axes, keepdims=True)
        case "max" | "min":
            low, high = (-math.inf, math.inf) if floating else int_range(DType.of(x))
            if kind == "max":
                result = np.maximum.reduce(x, axis=axes, keepdims=True, initial=low)
            else:
                result = np.minimum.reduce(x, axis=axes, keepdims=True, initial=high)
        case "l1":
            result = np.add.reduce(np.absolute(x), axis=axes, keepdims=True, dtype=x.dtype)
        case "l2":
            result = np.sqrt(np.add.reduce(np.multiply(wide, wide), axis=axes, keepdims=True))
        case "sum_square":
            result = np.add.reduce(np.multiply(x, x), axis=axes, keepdims=True, dtype=x.dtype)
        case "log_sum":
            result = np.log(np.add.reduce(wide, axis=axes, keepdims=True))
        case "log_sum_exp":
            top = np.maximum.reduce(wide, axis=axes, keepdims=True, initial=-np.inf)
            top = np.where(np.isfinite(top), top, 0).astype(wide.dtype)
            total = np.add.reduce(np.exp(np.subtract(wide, top)), axis=axes, keepdims=True)
            result = np.add(np.log(total), top)
        case "any":
            result = np.logical_or.reduce(x, axis=axes, keepdims=True)
        case _:
            result = np.logical_and.reduce(x, axis=axes, keepdims=True)
    return result


@dataclass(frozen=True, slots=True)
class ArgReduce(Op):
    """The i64 index of the largest or smallest along an axis; of several, the first, or the last on request."""

    NAME: ClassVar[str] = "arg_reduce"
    kind: str = "max"
    axis: int = 0
    keepdims: bool = True
    select_last: bool = False

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if self.kind not in ("max", "min"):
            raise BadOperator(f"`arg_reduce` does not know the kind `{self.kind}`")
        axis = normal_axis(self.axis, x.rank)
        if x.rank and x.shape[axis] == 0:
            raise BadOperator("`arg_reduce` over an empty axis")
        return (TensorType(DType.I64, reduced_shape(x.shape, (axis,), self.keepdims)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        axis = normal_axis(self.axis, x.ndim)
        pick = np.argmax if self.kind == "max" else np.argmin
        if self.select_last:
            index = np.subtract(x.shape[axis] - 1, pick(np.flip(x, axis), axis=axis, keepdims=self.keepdims))
        else:
            index = pick(x, axis=axis, keepdims=self.keepdims)
        return (np.asarray(index, np.int64),)


@dataclass(frozen=True, slots=True)
class Softmax(Op):
    NAME: ClassVar[str] = "softmax"
    axis: int = -1

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        normal_axis(self.axis, x.rank)
        if not x.dtype.is_float:
            raise BadOperator(f"`{self.NAME}` is for floating point, got {x.dtype.value}")
        return (x,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        if x.ndim == 0:
            return (np.ones_like(x),)
        e = np.exp(np.subtract(x, np.max(x, axis=self.axis, keepdims=True, initial=-np.inf)))
        return (np.divide(e, np.sum(e, axis=self.axis, keepdims=True)),)


@dataclass(frozen=True, slots=True)
class LogSoftmax(Op):
    NAME: ClassVar[str] = "log_softmax"
    axis: int = -1

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        normal_axis(self.axis, x.rank)
        if not x.dtype.is_float:
            raise BadOperator(f"`{self.NAME}` is for floating point, got {x.dtype.value}")
        return (x,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        if x.ndim == 0:
            return (np.zeros_like(x),)
        moved = np.subtract(x, np.max(x, axis=self.axis, keepdims=True, initial=-np.inf))
        total = np.sum(np.exp(moved), axis=self.axis, keepdims=True)
        return (np.subtract(moved, np.log(total)),)


@dataclass(frozen=True, slots=True)
class Cumsum(Op):
    NAME: ClassVar[str] = "cumsum"
    axis: int = 0
    exclusive: bool = False
    reverse: bool = False

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        normal_axis(self.axis, x.rank)
        return (x,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        if x.size == 0:
            return (x,)
        ordered = np.flip(x, self.axis) if self.reverse else x
        y = np.add.accumulate(ordered, axis=self.axis, dtype=x.dtype)
        if self.exclusive:
            y = np.roll(y, 1, axis=self.axis)
            np.moveaxis(y, self.axis, 0)[0] = 0
        return (np.flip(y, self.axis) if self.reverse else y,)


@dataclass(frozen=True, slots=True)
class TopK(Op):
    """(values, i64 indices) of the `k` largest or smallest along an axis. Equal ones: the lower index first. NaN is above all
    numbers, as in numpy, PyTorch and JAX (ONNX Runtime puts it anywhere). The order is always sorted: `sorted` only says whether
    the model relies on it."""

    NAME: ClassVar[str] = "topk"
    k: int = 1
    axis: int = -1
    largest: bool = True
    sorted: bool = True

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        axis = normal_axis(self.axis, x.rank)
        if x.rank == 0 or least(self.k) < 0 or least(self.k) > most(x.shape[axis]):  # one that moves is checked before
            raise BadOperator(f"`topk` of {self.k} elements out of {list(x.shape)} along axis {axis}")
        shape = (*x.shape[:axis], self.k, *x.shape[axis + 1 :])
        return (TensorType(x.dtype, shape), TensorType(DType.I64, shape))

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        axis = normal_axis(self.axis, x.ndim)
        if self.largest:  # a stable ascending sort of the reversed axis, read backwards, keeps lower indices first
            ascending = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
            order = np.subtract(x.shape[axis] - 1, np.flip(ascending, axis))
        else:
            order = np.argsort(x, axis=axis, kind="stable")
        index = np.take(order, np.arange(self.k), axis=axis).astype(np.int64)
        return np.take_along_axis(x, index, axis), index
