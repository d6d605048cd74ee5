"""Sampling and re-assembling of images: grid_sample, roi_align, max_unpool, col2im."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op, same_dtype
from intaglio.ops.control import need
from intaglio.ops.index import need_index

Real = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
CUBIC = -0.75


@dataclass(frozen=True, slots=True)
class GridSample(Op):
    """grid_sample(x [N,C,spatial...], grid [N,out...,d]): reads x at the places of the grid, which run from -1 to 1
    and name the last axis first."""

    NAME: ClassVar[str] = "grid_sample"
    mode: str = "linear"
    padding_mode: str = "zeros"
    align_corners: bool = False

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, grid = need(self.NAME, types, 2, 2)
        known = self.mode in ("nearest", "linear", "cubic") and self.padding_mode in ("zeros", "border", "reflection")
        if not known:
            raise BadOperator(f"`grid_sample` does not know `{self.mode}` with `{self.padding_mode}`")
        d = x.rank - 2
        if d < 1 or grid.rank != x.rank or grid.shape[-1] != d or grid.shape[0] != x.shape[0]:
            raise BadOperator(f"`grid_sample` of {list(x.shape)} at a grid of {list(grid.shape)}")
        if self.mode == "cubic" and d != 2:
            raise BadOperator("`grid_sample` by cubic interpolation is for two spatial axes")
        return (TensorType(x.dtype, x.shape[:2] + grid.shape[1:-1]),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, grid = arrays
        assert x is not None
        assert grid is not None
        d = x.ndim - 2
        spatial = x.shape[2:]
        out = np.zeros(x.shape[:2] + grid.shape[1:-1], np.float64)
        reach = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[self.mode]
        for n in range(x.shape[0]):
            at = [self._place(grid[n, ..., d - 1 - i].astype(np.float64), spatial[i]) for i in range(d)]
            bases = [np.rint(p) if self.mode == "nearest" else np.floor(p) for p in at]
            parts = [p - b for p, b in zip(at, bases, strict=True)]
            for offsets in itertools.product(reach, repeat=d):
                weight: Real = np.ones(grid.shape[1:-1], np.float64)
                valid = np.ones(grid.shape[1:-1], np.bool_)
                index = []
                for i, k in enumerate(offsets):
                    if self.mode == "linear":
                        weight = weight * (parts[i] if k else 1 - parts[i])
                    elif self.mode == "cubic":
                        weight = weight * cubic_weight(parts[i] - k)
                    j = self._inside(bases[i] + k, spatial[i])
                    valid &= (j >= 0) & (j < spatial[i])
                    index.append(np.clip(np.nan_to_num(j), 0, spatial[i] - 1).astype(np.int64))
                pixel = x[n][(slice(None), *index)]
                out[n] += np.where(valid, pixel, 0) * weight
        return (out.astype(x.dtype),)

    def _place(self, g: Real, size: int) -> Real:
        """From -1..1 to a position along an axis; for linear and nearest the border is applied here already."""
        p: Real = (g + 1) / 2 * (size - 1) if self.align_corners else ((g + 1) * size - 1) / 2
        if self.mode == "cubic":
            return p
        return self._inside(p, size)

    def _inside(self, p: Real, size: int) -> Real:
        match self.padding_mode:
            case "border":
                return np.clip(p, 0, size - 1)
            case "reflection":
                low, high = (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)
                return reflect(p, low, high)
            case _:
                return p


def reflect(p: Real, low: float, high: float) -> Real:
    span = high - low
    if span <= 0:
        return np.zeros_like(p)
    folded = np.mod(p - low, 2 * span)
    return low + np.where(folded > span, 2 * span - folded, folded)


def cubic_weight(x: Real) -> Real:
    x = np.absolute(x)
    near = ((CUBIC + 2) * x - (CUBIC + 3)) * x * x + 1
    far = ((CUBIC * x - 5 * CUBIC) * x + 8 * CUBIC) * x - 4 * CUBIC
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


@dataclass(frozen=True, slots=True)
class RoiAlign(Op):
    """roi_align(x [N,C,H,W], rois [R,4] as x1 y1 x2 y2, batch_indices [R]) -> [R,C,h,w]."""

    NAME: ClassVar[str] = "roi_align"
    output_height: int = 1
    output_width: int = 1
    sampling_ratio: int = 0
    spatial_scale: float = 1.0
    mode: str = "avg"
    half_pixel: bool = True

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, rois, batch = need(self.NAME, types, 3, 3)
        need_index(self.NAME, batch)
        same_dtype(self.NAME, x.dtype, rois.dtype)
        if x.rank != 4 or rois.rank != 2 or rois.shape[1] != 4 or batch.shape != rois.shape[:1]:
            raise BadOperator(f"`roi_align` of {list(x.shape)} with regions {list(rois.shape)} of {list(batch.shape)}")
        if self.mode not in ("avg", "max") or min(self.output_height, self.output_width) < 1 or self.sampling_ratio < 0:
            raise BadOperator("`roi_align` has attributes out of range")
        return (TensorType(x.dtype, (rois.shape[0], x.shape[1], self.output_height, self.output_width)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, rois, batch = arrays
        assert x is not None
        assert rois is not None
        assert batch is not None
        height, width = x.shape[2:]
        out = np.zeros((rois.shape[0], x.shape[1], self.output_height, self.output_width), x.dtype)
        shift = 0.5 if self.half_pixel else 0.0
        for r in range(rois.shape[0]):
            b = int(batch.tolist()[r])
            if not 0 <= b < x.shape[0]:
                raise BadOperator(f"batch index {b} is out of range for {x.shape[0]}")
            x1, y1, x2, y2 = (float(v) * self.spatial_scale - shift for v in rois[r].tolist())
            roi_w, roi_h = x2 - x1, y2 - y1
            if not self.half_pixel:
                roi_w, roi_h = max(roi_w, 1.0), max(roi_h, 1.0)
            bin_h, bin_w = roi_h / self.output_height, roi_w / self.output_width
            grid_h = self.sampling_ratio or math.ceil(bin_h)
            grid_w = self.sampling_ratio or math.ceil(bin_w)
            for i, j in np.ndindex(self.output_height, self.output_width):
                terms = []
                for p, q in np.ndindex(max(grid_h, 0), max(grid_w, 0)):
                    y = y1 + i * bin_h + (p + 0.5) * bin_h / grid_h
                    z = x1 + j * bin_w + (q + 0.5) * bin_w / grid_w
                    terms.append(bilinear_terms(x[b], y, z, height, width))
                if self.mode == "avg":
                    total = np.zeros(x.shape[1], np.float64)
                    for term in terms:
                        total = total + term.sum(axis=0)
                    out[r, :, i, j] = total / max(len(terms), 1)
                elif terms:
                    out[r, :, i, j] = np.max([t.max(axis=0) for t in terms], axis=0)
        return (out,)


def bilinear_terms(image: Array, y: float, x: float, height: int, width: int) -> Real:
    """The four weighted neighbours [4, C] of a place. ONNX's maximum is over these products, not over their sum."""
    if y < -1.0 or y > height or x < -1.0 or x > width:
        return np.zeros((4, image.shape[0]), np.float64)
    y, x = max(y, 0.0), max(x, 0.0)
    top, left = min(int(y), height - 1), min(int(x), width - 1)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    dy = y - top if int(y) < height - 1 else 0.0
    dx = x - left if int(x) < width - 1 else 0.0
    places = ((top, left, (1 - dy) * (1 - dx)), (top, right, (1 - dy) * dx),
              (bottom, left, dy * (1 - dx)), (bottom, right, dy * dx))  # fmt: skip
    return np.stack([image[:, i, j].astype(np.float64) * w for i, j, w in places])


@dataclass(frozen=True, slots=True)
class MaxUnpool(Op):
    """max_unpool(x, indices): zeros of `shape`, with x at the flat indices."""

    NAME: ClassVar[str] = "max_unpool"
    shape: tuple[int, ...] = ()

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, indices = need(self.NAME, types, 2, 2)
        if indices.dtype is not DType.I64 or indices.shape != x.shape or any(n < 0 for n in self.shape):
            raise BadOperator(f"`max_unpool` of {list(x.shape)} at {indices}")
        return (TensorType(x.dtype, self.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, indices = arrays
        assert x is not None
        assert indices is not None
        y = np.zeros(math.prod(self.shape), x.dtype)
        at = indices.ravel().astype(np.int64)
        if at.size and (int(at.min()) < 0 or int(at.max()) >= y.size):
            raise BadOperator(f"an index of `max_unpool` is out of range for {y.size} elements")
        y[at] = x.ravel()
        return (y.reshape(self.shape),)


@dataclass(frozen=True, slots=True)
class Col2Im(Op):
    """col2im(x [N, C*k, L]): overlapping blocks, one per column, added up into an image."""

    NAME: ClassVar[str] = "col2im"
    image: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()

    def steps(self) -> tuple[int, ...]:
        """How many blocks there are along each axis."""
        rank = len(self.image)
        out = []
        for i in range(rank):
            padded = self.image[i] + self.pads[i] + self.pads[i + rank]
            out.append((padded - self.dilations[i] * (self.block[i] - 1) - 1) // self.strides[i] + 1)
        return tuple(out)

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        rank = len(self.image)
        if not len(self.block) == len(self.strides) == len(self.dilations) == rank or len(self.pads) != 2 * rank:
            raise BadOperator("`col2im` has attributes for another number of axes")
        if min(self.image + self.block + self.strides + self.dilations, default=1) < 1 or min(self.pads) < 0:
            raise BadOperator("`col2im` has attributes out of range")
        block = math.prod(self.block)
        if x.rank != 3 or x.shape[1] % block or x.shape[2] != math.prod(self.steps()):
            raise BadOperator(f"`col2im` of {list(x.shape)} with blocks {list(self.block)} to {list(self.image)}")
        return (TensorType(x.dtype, (x.shape[0], x.shape[1] // block, *self.image)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        rank = len(self.image)
        steps = self.steps()
        channels = x.shape[1] // math.prod(self.block)
        parts = x.reshape((x.shape[0], channels, *self.block, *steps))
        full = [n + self.pads[i] + self.pads[i + rank] for i, n in enumerate(self.image)]
        y = np.zeros((x.shape[0], channels, *full), x.dtype)
        for place in np.ndindex(*self.block):
            cut = [slice(None), slice(None)]
            for i, k in enumerate(place):
                first = k * self.dilations[i]
                cut.append(slice(first, first + (steps[i] - 1) * self.strides[i] + 1, self.strides[i]))
            y[tuple(cut)] = np.add(y[tuple(cut)], parts[(slice(None), slice(None), *place)])
        crop = [slice(None), slice(None)] + [slice(self.pads[i], self.pads[i] + n) for i, n in enumerate(self.image)]
        return (y[tuple(crop)],)
