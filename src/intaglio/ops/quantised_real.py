"""Means of integers by floats, in the order in which ONNX Runtime adds them up.

A mean of few numbers on the grid of its operands lies half-way between two grid points often, and then the last bit of a float
decides. So the floats are added as ONNX Runtime does: row by row since opset 19; before, each column of a window, then the columns;
all of an image in four lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need
from intaglio.ops.conv import window_output


@dataclass(frozen=True, slots=True)
class QRealMean(Op):
    """The mean of windows of an NHWC image of 8-bit numbers, rounded half to even.

    (x - x_zero) * x_scale is added up and divided by the number of elements inside (or all, with `count_include_pad`), the result
    divided by y_scale. `order`: `rows`, `columns`, or `lanes`: one window that is the whole image, added in four lanes."""

    NAME: ClassVar[str] = "qreal_mean"
    kernel: tuple[int, ...] = (1, 1)
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    count_include_pad: bool = False
    order: str = "rows"
    x_scale: float = 1.0
    x_zero: int = 0
    y_scale: float = 1.0
    y_zero: int = 0
    low: int = -128
    high: int = 127
    to: DType = DType.I8

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.rank != 4 or x.dtype not in (DType.I8, DType.U8):
            raise BadOperator(f"`{self.NAME}` is for NHWC images of 8 bits, got {x}")
        if self.order not in ("rows", "columns", "lanes"):
            raise BadOperator(f"`{self.NAME}` has no order `{self.order}`")
        if self.order == "lanes" and self.kernel != x.shape[1:3]:
            raise BadOperator(f"`{self.NAME}` of {x} is not over the whole image")
        out = window_output(self.NAME, x.shape[1:3], self.kernel, self.strides, self.pads, (1, 1))
        return (TensorType(self.to, (x.shape[0], *out, x.shape[3]), x.layout),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        real = (x.astype(np.int32) - self.x_zero).astype(np.float32) * np.float32(self.x_scale)
        mean = self._whole(real) if self.order == "lanes" else self._windows(real)
        steps = np.rint(mean / np.float32(self.y_scale)).astype(np.int64) + self.y_zero
        return (np.clip(steps, self.low, self.high).astype(self.to.numpy),)

    def _whole(self, real: Array) -> Array:
        n, h, w, c = real.shape
        flat = real.reshape(n, h * w, c)
        lanes = np.zeros((n, 4, c), np.float32)
        full = h * w // 4 * 4
        for i in range(0, full, 4):
            lanes = lanes + flat[:, i : i + 4]
        total = (lanes[:, 0] + lanes[:, 2]) + (lanes[:, 1] + lanes[:, 3])
        for i in range(full, h * w):
            total = total + flat[:, i]
        return (total / np.float32(h * w)).reshape(n, 1, 1, c)

    def _windows(self, real: Array) -> Array:
        n, h, w, c = real.shape
        oh, ow = window_output(self.NAME, (h, w), self.kernel, self.strides, self.pads, (1, 1))
        top, left, bottom, right = self.pads
        padded = np.pad(real, ((0, 0), (top, bottom), (left, right), (0, 0)))
        inside = np.pad(np.ones((h, w), np.float32), ((top, bottom), (left, right)))
        total, count = np.zeros((n, oh, ow, c), np.float32), np.zeros((oh, ow), np.float32)
        by_column = self.order == "columns"
        for a in range(self.kernel[1] if by_column else self.kernel[0]):
            part = np.zeros_like(total)
            for b in range(self.kernel[0] if by_column else self.kernel[1]):
                i, j = (b, a) if by_column else (a, b)
                rows = slice(i, i + (oh - 1) * self.strides[0] + 1, self.strides[0])
                cols = slice(j, j + (ow - 1) * self.strides[1] + 1, self.strides[1])
                count = count + inside[rows, cols]
                if by_column:
                    part = part + padded[:, rows, cols]
                else:
                    total = total + padded[:, rows, cols]
            total = total + part
        if self.count_include_pad:
            count = np.full_like(count, np.float32(self.kernel[0] * self.kernel[1]))
        return total / count[None, :, :, None]

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * self.kernel[0] * self.kernel[1]
