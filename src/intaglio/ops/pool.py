"""Pooling over windows. ONNX's `ceil_mode` and `auto_pad` are explicit pads here: the front ends resolve them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need
from intaglio.ops.conv import (
    channels_first,
    from_channels_first,
    from_first,
    pad_spatial,
    to_first,
    window_output,
    windows,
)
from intaglio.ops.numeric import int_range


@dataclass(frozen=True, slots=True)
class Pool(Op):
    """What all poolings share: the window."""

    kernel: tuple[int, ...] = (1, 1)
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)
    layout: Layout = Layout.NCHW

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if not 3 <= x.rank <= 5:
            raise BadOperator(f"`{self.NAME}` is for 1 to 3 spatial axes, got rank {x.rank}")
        n, c, *spatial = channels_first(x.shape, self.layout)
        out = window_output(self.NAME, tuple(spatial), self.kernel, self.strides, self.pads, self.dilations)
        return (TensorType(x.dtype, from_channels_first((n, c, *out), self.layout), x.layout),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * math.prod(self.kernel)


def pool_windows(pool: Pool, x: Array, outside: float) -> Array:
    """The windows [N, C, out..., k...] of an array that is [N, C, spatial...]."""
    out = window_output(pool.NAME, x.shape[2:], pool.kernel, pool.strides, pool.pads, pool.dilations)
    return windows(pad_spatial(x, pool.pads, outside), pool.kernel, pool.strides, pool.dilations, out)


def lowest(dtype: np.dtype[np.generic]) -> float | int:
    return -math.inf if np.issubdtype(dtype, np.floating) else int_range(DType.of(np.zeros(0, dtype)))[0]


@dataclass(frozen=True, slots=True)
class MaxPool(Pool):
    """Reads outside of the input are lower than everything."""

    NAME: ClassVar[str] = "max_pool"

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        x = to_first(arrays[0], self.layout)
        view = pool_windows(self, x, lowest(x.dtype))
        rank = len(self.kernel)
        return (from_first(np.max(view, axis=tuple(range(-rank, 0))), self.layout),)


@dataclass(frozen=True, slots=True)
class MaxPoolIndices(Pool):
    """(y, i64 indices): where each maximum lies in the flattened input, with the last axis fastest, or the first
    spatial axis fastest when `storage_order` is 1. The first maximum of a window wins."""

    NAME: ClassVar[str] = "max_pool_indices"
    storage_order: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        y = Pool.infer(self, *types)[0]
        return (y, TensorType(DType.I64, y.shape, y.layout))

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        x = to_first(arrays[0], self.layout)
        rank = len(self.kernel)
        spatial = x.shape[2:]
        view = pool_windows(self, x, lowest(x.dtype))
        flat = view.reshape((*view.shape[:-rank], -1))
        places = np.arange(math.prod(spatial), dtype=np.int64)
        order = "F" if self.storage_order else "C"
        plane = places.reshape(spatial, order="F" if order == "F" else "C")
        index = np.broadcast_to(plane, (1, 1, *spatial))
        out = view.shape[2 : 2 + rank]
        where = windows(pad_spatial(index, self.pads, -1), self.kernel, self.strides, self.dilations, out)
        # A read outside never wins, not even against -inf.
        inside = np.broadcast_to(np.greater_equal(where, 0), view.shape).reshape(flat.shape)
        best = np.argmax(np.where(inside, flat, lowest(x.dtype)), axis=-1)
        first_inside = np.argmax(inside, axis=-1)
        hit = np.take_along_axis(inside, best[..., None], -1)[..., 0]
        best = np.where(hit, best, first_inside)
        y = np.take_along_axis(flat, best[..., None], -1)[..., 0]
        at = np.take_along_axis(np.broadcast_to(where, view.shape).reshape(flat.shape), best[..., None], -1)[..., 0]
        image = np.arange(x.shape[0] * x.shape[1], dtype=np.int64).reshape(x.shape[:2] + (1,) * rank)
        at = np.add(at, image * math.prod(spatial))
        return from_first(y, self.layout), from_first(at, self.layout)


@dataclass(frozen=True, slots=True)
class AveragePool(Pool):
    """The mean of a window. With `count_include_pad` the divisor counts the elements inside of input + `counted_pads`
    (the pads the model declares; `pads` may be larger at the end because of ceil_mode, and that part never counts);
    without it, only elements of the input count. Empty `counted_pads` means: the same as `pads`.

    `columns_first` is for quantised models alone: in which order the model's runtime adds (see quantised_real.py)."""

    NAME: ClassVar[str] = "average_pool"
    count_include_pad: bool = False
    counted_pads: tuple[int, ...] = ()
    columns_first: bool = False

    def counts(self, spatial: tuple[int, ...]) -> Array:
        """The divisor of each window, [out...]."""
        rank = len(spatial)
        counted = (self.counted_pads or self.pads) if self.count_include_pad else (0,) * (2 * rank)
        total: Array = np.ones((1,) * rank, np.int64)
        out = window_output(self.NAME, spatial, self.kernel, self.strides, self.pads, self.dilations)
        for i in range(rank):
            low, high = -counted[i], spatial[i] + counted[i + rank]
            at = np.arange(out[i])[:, None] * self.strides[i] - self.pads[i]
            at = at + np.arange(self.kernel[i])[None, :] * self.dilations[i]
            number = ((at >= low) & (at < high)).sum(axis=1)
            total = np.multiply(total, number.reshape((1,) * i + (-1,) + (1,) * (rank - 1 - i)))
        return total

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        x = to_first(arrays[0], self.layout)
        view = pool_windows(self, x, 0)
        rank = len(self.kernel)
        y = np.divide(np.sum(view, axis=tuple(range(-rank, 0))), self.counts(x.shape[2:])).astype(x.dtype)
        return (from_first(y, self.layout),)


@dataclass(frozen=True, slots=True)
class LpPool(Pool):
    NAME: ClassVar[str] = "lp_pool"
    p: int = 2

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        x = to_first(arrays[0], self.layout)
        view = pool_windows(self, x, 0)
        rank = len(self.kernel)
        total = np.sum(np.power(np.absolute(view), self.p), axis=tuple(range(-rank, 0)))
        return (from_first(np.power(total, 1.0 / self.p).astype(x.dtype), self.layout),)
