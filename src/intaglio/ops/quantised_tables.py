"""Functions of 16-bit integers by tables with interpolation, and bilinear resizing of bytes, as TFLite's reference kernels compute
them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need
from intaglio.ops.fixed_point import quantize_multiplier, scale32
from intaglio.ops.quantised_functions import interpolate, leading_zeros, sigmoid_table, table16


@dataclass(frozen=True, slots=True)
class Lookup16(Op):
    """lookup16(x, table): 513 entries, the numbers between them by interpolation."""

    NAME: ClassVar[str] = "lookup16"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, table = need(self.NAME, types, 2, 2)
        if x.dtype is not DType.I16 or table.shape != (513,) or table.dtype is not DType.I16:
            raise BadOperator(f"`lookup16` takes 16-bit numbers and a table of 513, got {x} and {table}")
        return (TensorType(DType.I16, x.shape, x.layout),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, table = arrays
        assert x is not None and table is not None
        return (interpolate(x, table).astype(np.int16),)


@dataclass(frozen=True, slots=True)
class Squash16(Op):
    """The logistic function or tanh of 16-bit numbers. x * multiplier / 2^shift has the step 1 / (3 * 4096), the result 1/32768."""

    NAME: ClassVar[str] = "squash16"
    kind: str = "logistic"
    multiplier: int = 3
    shift: int = 0

    @property
    def bits(self) -> int:
        """Those below the place in the table of sigmoid(n / 24): tanh(x) is 2 sigmoid(2 x) - 1, so it has one less."""
        return 9 if self.kind == "logistic" else 8

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.dtype is not DType.I16 or self.kind not in ("logistic", "tanh"):
            raise BadOperator(f"`squash16` of {x} by `{self.kind}`")
        return (TensorType(DType.I16, x.shape, x.layout),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        table, bits = sigmoid_table(), self.bits
        value = (x.astype(np.int64) * self.multiplier + (1 << self.shift >> 1)) >> self.shift
        size = np.abs(value)
        place = np.minimum(size >> bits, 254)
        inside = (table[place] << bits) + (size & ((1 << bits) - 1)) * (table[place + 1] - table[place])
        top = 0x7FFF << 10 if self.kind == "logistic" else 0xFFFF << 8
        result = np.where(size >> bits >= 255, top, inside)
        if self.kind == "logistic":
            result = np.where(value >= 0, result + 512, (1 << 25) - result + 511) >> 10
        else:
            result = np.where(value >= 0, result - (1 << 23) + 128, (1 << 23) - result + 127) >> 8
        return (result.astype(np.int16),)


@dataclass(frozen=True, slots=True)
class QSoftmax16(Op):
    """Softmax of 16-bit numbers along the last axis: exp over [-10, 0] and 1 / (1 + x) by tables. The result is in 1/32768."""

    NAME: ClassVar[str] = "qsoftmax16"
    scale: float = 1.0
    beta: float = 1.0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.dtype is not DType.I16 or x.rank == 0:
            raise BadOperator(f"`qsoftmax16` of {x}")
        return (TensorType(DType.I16, x.shape),)

    def factor(self) -> tuple[int, int]:
        """Of differences, so that 65535 steps are 10."""
        return quantize_multiplier(self.scale * self.beta / (10.0 / 65535.0))

    def tables(self) -> tuple[Array, Array]:
        exps = table16(math.exp, (10.0 / 65535, 32767), (2.0 / 65535, 0), np.float64)
        return exps, table16(lambda x: 1.0 / (1.0 + x), (1.0 / 65535, -32768), (2.0 / 65535, 0), np.float64)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        exp_table, inverse_table = self.tables()
        multiplier, shift = self.factor()
        wide = x.astype(np.int64)
        difference = wide - wide.max(axis=-1, keepdims=True)
        places = np.clip(scale32(difference, np.asarray(multiplier), np.asarray(shift)) + 32767, -32768, 32767)
        exps = interpolate(places, exp_table)
        total = exps.sum(axis=-1, keepdims=True)
        zeros = leading_zeros(total)
        shifted = ((total << (zeros - 1)) + (1 << 13)) >> 14
        inverse = interpolate(np.clip(shifted - (1 << 15) - (1 << 16), -32768, 32767), inverse_table)
        right = 31 - zeros
        return (np.clip((exps * inverse + (np.int64(1) << (right - 1))) >> right, 0, 32767).astype(np.int16),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements


@dataclass(frozen=True, slots=True)
class ResizeBytes(Op):
    """Bilinear resizing of u8 in f32, a half added and cut off. NHWC."""

    NAME: ClassVar[str] = "resize_bytes"
    shape: tuple[int, ...] = ()
    align_corners: bool = False
    half_pixel: bool = False

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.rank != 4 or len(self.shape) != 4 or any(n < 1 for n in self.shape) or x.dtype is not DType.U8:
            raise BadOperator(f"`resize_bytes` of {x} to {list(self.shape)}")
        return (TensorType(DType.U8, self.shape, Layout.NHWC),)

    def places(self, axis: int, size: int) -> tuple[Array, Array, Array]:
        """Along an axis of `size`: lower and upper source, and the weight of the upper one."""
        out = self.shape[axis]
        scale = np.float32(size) / np.float32(out)
        if self.align_corners and out > 1:
            scale = np.float32(size - 1) / np.float32(out - 1)
        at = np.arange(out, dtype=np.float32)
        at = (at + np.float32(0.5)) * scale - np.float32(0.5) if self.half_pixel else at * scale
        lower = np.maximum(np.floor(at).astype(np.int64), 0)
        upper = np.maximum(np.minimum(np.ceil(at).astype(np.int64), size - 1), 0)
        lower = np.minimum(lower, size - 1)
        return lower, upper, (at - lower.astype(np.float32)).astype(np.float32)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        (y0, y1, wy), (x0, x1, wx) = self.places(1, x.shape[1]), self.places(2, x.shape[2])
        real, one = x.astype(np.float32), np.float32(1.0)
        down, over = wy[:, None, None], wx[None, :, None]
        total = real[:, y0][:, :, x0] * (one - down) * (one - over)
        total = total + real[:, y1][:, :, x0] * down * (one - over)
        total = total + real[:, y0][:, :, x1] * (one - down) * over
        total = total + real[:, y1][:, :, x1] * down * over
        return (np.trunc(total + np.float32(0.5)).astype(np.uint8),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * 4
