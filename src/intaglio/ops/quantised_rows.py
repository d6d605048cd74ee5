"""Softmax, mean and sum of integers, average pooling and bilinear resizing, as TFLite's reference kernels compute them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.ops.base import BadOperator, Op, normal_axes
from intaglio.ops.control import need
from intaglio.ops.conv import window_output
from intaglio.ops.fixed_point import clamp, doubling_high_multiply, quantize_multiplier, rounding_shift, scale32, scale_once, wrap32
from intaglio.ops.gemmlowp import exp_on_negative_values, one_over_one_plus
from intaglio.ops.reduce import reduced_shape


@dataclass(frozen=True, slots=True)
class QSoftmax(Op):
    """Softmax along the last axis in fixed point: exp of differences with 5 integer bits, their sum with 12, one reciprocal.

    The result has the step 1/256 and its lowest number for 0."""

    NAME: ClassVar[str] = "qsoftmax"
    scale: float = 1.0
    beta: float = 1.0
    to: DType = DType.I8

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.dtype not in (DType.I8, DType.U8) or self.to not in (DType.I8, DType.U8, DType.I16) or x.rank == 0:
            raise BadOperator(f"`qsoftmax` of {x} to {self.to.value}")
        return (TensorType(self.to, x.shape),)

    def factors(self) -> tuple[int, int, int]:
        """Multiplier and shift of a difference, and the lowest difference that counts."""
        real = min(self.beta * self.scale * (1 << 26), float((1 << 31) - 1))
        multiplier, shift = quantize_multiplier(real)
        radius = math.floor(((1 << 5) - 1) * (1 << 26) / (1 << shift))
        return multiplier, shift, -radius

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        multiplier, shift, lowest = self.factors()
        wide = x.astype(np.int64)
        difference = wide - wide.max(axis=-1, keepdims=True)
        counts = difference >= lowest
        lifted = wrap32(np.where(counts, difference, 0) << shift)
        exps = exp_on_negative_values(doubling_high_multiply(lifted, np.asarray(multiplier, np.int64)), 5)
        total = np.sum(np.where(counts, rounding_shift(exps, np.asarray(12)), 0), axis=-1, keepdims=True)
        zeros = 32 - np.asarray([int(t).bit_length() for t in total.reshape(-1)], np.int64).reshape(total.shape)
        reciprocal = one_over_one_plus((total << zeros) - (1 << 31))
        info = np.iinfo(self.to.numpy)
        bits = self.to.bytes * 8
        raw = rounding_shift(doubling_high_multiply(reciprocal, exps), 12 - zeros + 31 - bits)
        return (clamp(np.where(counts, raw + int(info.min), int(info.min)), int(info.min), int(info.max), self.to.numpy),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements


@dataclass(frozen=True, slots=True)
class QMean(Op):
    """The sum of x - x_zero along axes, scaled, plus y_zero; for a mean the factor has the count in it (`mean_factor`). `scaling`:
    rounded "twice", as LiteRT's reference kernels do it, or "once"."""

    NAME: ClassVar[str] = "qmean"
    axes: tuple[int, ...] = ()
    keepdims: bool = True
    x_zero: int = 0
    multiplier: int = 0
    shift: int = 0
    y_zero: int = 0
    low: int = -128
    high: int = 127
    scaling: str = "twice"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        return (TensorType(x.dtype, reduced_shape(x.shape, normal_axes(self.axes, x.rank), self.keepdims)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        axes = normal_axes(self.axes, x.ndim)
        total = np.sum(x.astype(np.int64) - self.x_zero, axis=axes, keepdims=self.keepdims)
        scale = scale_once if self.scaling == "once" else scale32
        scaled = scale(np.asarray(total), np.asarray(self.multiplier), np.asarray(self.shift))
        return (clamp(scaled + self.y_zero, self.low, self.high, x.dtype),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return types[0].elements if types[0] is not None else 0


def mean_factor(real: float, count: int) -> tuple[int, int]:
    """A factor divided by a count: the multiplier is lifted before it is divided, so that it keeps its bits."""
    multiplier, shift = quantize_multiplier(real)
    lift = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << lift) // count, shift - lift


@dataclass(frozen=True, slots=True)
class QAveragePool(Op):
    """The mean of what lies inside of a window, rounded half away from zero. NHWC."""

    NAME: ClassVar[str] = "qaverage_pool"
    kernel: tuple[int, ...] = (1, 1)
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    low: int = -128
    high: int = 127

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.rank != 4:
            raise BadOperator(f"`qaverage_pool` of {x}")
        out = window_output(self.NAME, x.shape[1:3], self.kernel, self.strides, self.pads, (1, 1))
        return (TensorType(x.dtype, (x.shape[0], *out, x.shape[3]), Layout.NHWC),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        oh, ow = window_output(self.NAME, x.shape[1:3], self.kernel, self.strides, self.pads, (1, 1))
        y = np.zeros((x.shape[0], oh, ow, x.shape[3]), np.int64)
        for i in range(oh):
            top = i * self.strides[0] - self.pads[0]
            rows = slice(max(top, 0), min(top + self.kernel[0], x.shape[1]))
            for j in range(ow):
                left = j * self.strides[1] - self.pads[1]
                cols = slice(max(left, 0), min(left + self.kernel[1], x.shape[2]))
                part = x[:, rows, cols].astype(np.int64)
                count = part.shape[1] * part.shape[2]
                total = part.sum(axis=(1, 2))
                lifted = total + np.where(total > 0, count // 2, -(count // 2))
                y[:, i, j] = np.sign(lifted) * (np.abs(lifted) // max(count, 1))
        return (clamp(y, self.low, self.high, x.dtype),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * math.prod(self.kernel)


@dataclass(frozen=True, slots=True)
class QResize(Op):
    """Bilinear resizing of integers with weights of 10 bits. NHWC."""

    NAME: ClassVar[str] = "qresize"
    shape: tuple[int, ...] = ()
    align_corners: bool = False
    half_pixel: bool = False

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.rank != 4 or len(self.shape) != 4 or any(n < 1 for n in self.shape):
            raise BadOperator(f"`qresize` of {x} to {list(self.shape)}")
        return (TensorType(x.dtype, self.shape, Layout.NHWC),)

    def places(self, axis: int, size: int) -> tuple[Array, Array, Array]:
        """Along an axis of `size`: lower and upper source, and the weight of the upper one in 1/1024."""
        out = self.shape[axis]
        scale = ((1 << 10) * size + out // 2) // out
        if self.align_corners and out > 1:
            scale = ((1 << 10) * (size - 1) + (out - 1) // 2) // (out - 1)
        at = np.arange(out, dtype=np.int64) * scale
        if self.half_pixel:
            at = at + scale // 2 - (1 << 9)
        toward_zero = np.sign(at) * (np.abs(at) // (1 << 10))
        lower = np.maximum(toward_zero, 0)
        up = at + (1 << 10) - 1
        upper = np.minimum(np.sign(up) * (np.abs(up) // (1 << 10)), size - 1)
        return lower, np.maximum(upper, 0), at - (1 << 10) * lower

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        y0, y1, wy = self.places(1, x.shape[1])
        x0, x1, wx = self.places(2, x.shape[2])
        wide = x.astype(np.int64)
        wy, wx = wy[:, None, None], wx[None, :, None]
        total = (
            wide[:, y0][:, :, x0] * ((1 << 10) - wy) * ((1 << 10) - wx)
            + wide[:, y1][:, :, x0] * wy * ((1 << 10) - wx)
            + wide[:, y0][:, :, x1] * ((1 << 10) - wy) * wx
            + wide[:, y1][:, :, x1] * wy * wx
        )
        lifted = total + np.where(total > 0, 1 << 19, -(1 << 19))
        return ((np.sign(lifted) * (np.abs(lifted) >> 20)).astype(x.dtype),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * 4
