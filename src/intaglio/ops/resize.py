"""Resizing by interpolation. It is separable: along each axis, output element i is a weighted sum of a few input
elements. `Resize.taps` is that table, so a kernel needs no arithmetic on coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need
from intaglio.ops.numeric import int_range, numeric

COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize",
    "tf_half_pixel_for_nn",
)  # fmt: skip
HALF = 1e-6  # so near, ONNX Runtime takes a coordinate to be half-way
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")


@dataclass(frozen=True, slots=True)
class Taps:
    """Along one axis: output element i is the sum over j of weights[i][j] * x[indices[i][j]], or the extrapolation
    value where `inside[i]` is false."""

    indices: tuple[tuple[int, ...], ...]
    weights: tuple[tuple[float, ...], ...]
    inside: tuple[bool, ...]

    @property
    def is_identity(self) -> bool:
        """Element i is element i, for an axis that keeps its size."""
        return all(self.inside) and all(
            sum(w for j, w in zip(at, weights, strict=True) if j == i) == 1.0 == sum(map(abs, weights))
            for i, (at, weights) in enumerate(zip(self.indices, self.weights, strict=True))
        )


@dataclass(frozen=True, slots=True)
class Resize(Op):
    """To `shape`, with `scales` (output over input) as the model states them, which may differ from the quotient of
    the sizes. `roi` is (starts..., ends...) for tf_crop_and_resize, else empty. `simple` nearest rounds down, or up
    when the axis shrinks (Resize of opset 10)."""

    NAME: ClassVar[str] = "resize"
    shape: tuple[int, ...] = ()
    scales: tuple[float, ...] = ()
    roi: tuple[float, ...] = ()
    mode: str = "nearest"
    coordinate_mode: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_coeff_a: float = -0.75
    exclude_outside: bool = False
    extrapolation_value: float = 0.0
    antialias: bool = False

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if not len(self.shape) == len(self.scales) == x.rank or any(n < 0 for n in self.shape):
            raise BadOperator(f"`resize` of {list(x.shape)} to {list(self.shape)}")
        if not all(math.isfinite(s) and s > 0 for s in self.scales):
            raise BadOperator(f"`resize` by the scales {list(self.scales)}")
        if self.mode not in ("nearest", "linear", "cubic") or self.coordinate_mode not in COORDINATES:
            raise BadOperator(f"`resize` does not know `{self.mode}` with `{self.coordinate_mode}`")
        if self.nearest_mode not in NEAREST:
            raise BadOperator(f"`resize` does not know the nearest mode `{self.nearest_mode}`")
        if self.coordinate_mode == "tf_crop_and_resize" and len(self.roi) != 2 * x.rank:
            raise BadOperator("`resize` by crop needs a region with a start and an end for each axis")
        if x.elements == 0 and math.prod(self.shape) != 0:
            raise BadOperator("`resize` of an empty tensor to one that is not")
        return (TensorType(x.dtype, self.shape, x.layout),)

    def coordinate(self, axis: int, i: int, size: int) -> float:
        """Where output element i lies in the input, which has `size` elements along this axis."""
        out, scale = self.shape[axis], self.scales[axis]
        exact = scale * size
        length = out if abs(exact - out) < 1e-3 else exact
        match self.coordinate_mode:
            case "half_pixel":
                return (i + 0.5) / scale - 0.5
            case "half_pixel_symmetric":
                return size / 2 * (1 - out / length) + (i + 0.5) / scale - 0.5
            case "pytorch_half_pixel":
                return (i + 0.5) / scale - 0.5 if out > 1 else 0.0
            case "align_corners":
                return 0.0 if length == 1 else i * (size - 1) / (length - 1)
            case "asymmetric":
                return i / scale
            case "tf_half_pixel_for_nn":
                return (i + 0.5) / scale
            case _:
                start, end = self.roi[axis], self.roi[axis + len(self.shape)]
                if out > 1:
                    return start * (size - 1) + i * (end - start) * (size - 1) / (out - 1)
                return 0.5 * (start + end) * (size - 1)

    def taps(self, axis: int, size: int) -> Taps:
        indices: list[tuple[int, ...]] = []
        weights: list[tuple[float, ...]] = []
        inside: list[bool] = []
        for i in range(self.shape[axis]):
            x = self._single(axis, i, size) if self.mode == "nearest" else self.coordinate(axis, i, size)
            inside.append(self.coordinate_mode != "tf_crop_and_resize" or 0 <= x <= size - 1)
            if self.mode == "nearest":
                at: list[int] = [self._nearest(x, self.scales[axis])]
                factor = [1.0]
            else:
                at, factor = self._weights(x, self.scales[axis])
            if self.exclude_outside and self.mode != "nearest":
                factor = [w if 0 <= j < size else 0.0 for j, w in zip(at, factor, strict=True)]
                total = sum(factor)
                factor = [w / total for w in factor]
            indices.append(tuple(min(max(j, 0), size - 1) for j in at))
            weights.append(tuple(factor))
        return Taps(tuple(indices), tuple(weights), tuple(inside))

    def _single(self, axis: int, i: int, size: int) -> float:
        """The coordinate as runtimes compute it, rounded to f32 at every step: a quotient that is a whole number may be just below
        one, and the nearest element another."""
        one, scale = np.float32(i), np.float32(self.scales[axis])
        match self.coordinate_mode:
            case "asymmetric":
                return float(one / scale)
            case "tf_half_pixel_for_nn":
                return float((one + np.float32(0.5)) / scale)
            case "half_pixel" | "pytorch_half_pixel" if self.coordinate_mode == "half_pixel" or self.shape[axis] > 1:
                return float((one + np.float32(0.5)) / scale - np.float32(0.5))
            case _:
                return self.coordinate(axis, i, size)

    def _nearest(self, x: float, scale: float) -> int:
        match self.nearest_mode:
            case "round_prefer_floor" | "round_prefer_ceil":
                half = abs(x - math.floor(x) - 0.5) <= HALF
                up = self.nearest_mode == "round_prefer_ceil" if half else x - math.floor(x) > 0.5
                return math.floor(x) + up
            case "ceil":
                return math.ceil(x)
            case "simple" if scale < 1:
                return math.ceil(x)
            case _:
                return math.floor(x)

    def _weights(self, x: float, scale: float) -> tuple[list[int], list[float]]:
        reach = 1 if self.mode == "linear" else 2
        shrink = min(scale, 1.0) if self.antialias else 1.0
        base = math.floor(x)
        ratio = x - base
        first = math.floor(-reach / shrink) + 1
        offsets = range(first, 2 - first)
        factor = [self._filter((k - ratio) * shrink) for k in offsets]
        total = sum(factor)
        return [base + k for k in offsets], [w / total for w in factor]

    def _filter(self, x: float) -> float:
        x = abs(x)
        if self.mode == "linear":
            return max(0.0, 1.0 - x)
        a = self.cubic_coeff_a
        if x <= 1:
            return ((a + 2) * x - (a + 3)) * x * x + 1
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a if x < 2 else 0.0

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        kind = x.dtype
        floating = np.issubdtype(kind, np.floating)
        y = x if self.mode == "nearest" or floating else x.astype(np.float64)
        outside = np.zeros(self.shape, np.bool_)
        for axis, size in enumerate(x.shape):
            if self.shape[axis] == 0 or size == 0:
                return (np.zeros(self.shape, kind),)
            taps = self.taps(axis, size)
            if self.shape[axis] != size or not taps.is_identity:
                index = np.array(taps.indices)
                if self.mode == "nearest":
                    y = np.take(y, index[:, 0], axis=axis)
                else:
                    matrix = np.zeros((self.shape[axis], size), np.float64)
                    np.add.at(matrix, (np.arange(self.shape[axis])[:, None], index), np.array(taps.weights))
                    moved = np.tensordot(numeric(y), numeric(matrix.astype(y.dtype)), axes=((axis,), (1,)))
                    y = np.moveaxis(moved, -1, axis)
            if not all(taps.inside):
                shape = [1] * x.ndim
                shape[axis] = -1
                outside = np.logical_or(outside, np.logical_not(np.array(taps.inside)).reshape(shape))
        if outside.any():
            y = np.where(outside, np.asarray(self.extrapolation_value, y.dtype), y)
        if not floating and self.mode != "nearest":
            low, high = int_range(DType.of(x))
            y = np.minimum(np.maximum(np.trunc(y), float(low)), float(high))
        return (y.astype(kind),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * {"nearest": 0, "linear": 2, "cubic": 4}[self.mode] * 2
