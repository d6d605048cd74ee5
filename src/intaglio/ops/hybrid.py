"""Float activations, 8-bit weights: the input is quantised as it comes, the sum is exact, the result is float again."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import Layout, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.conv import window_output
from intaglio.ops.quantised import QConv


def round_half_away(x: Array) -> Array:
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def quantize_row(row: Array, asymmetric: bool) -> tuple[Array, float, int]:
    """8-bit numbers, their step and zero point, for one row of floats."""
    low, high = float(row.min(initial=0.0)), float(row.max(initial=0.0))
    if not asymmetric:
        size = np.float32(max(abs(low), abs(high)))
        if size == 0.0:
            return np.zeros(row.shape, np.int64), 1.0, 0
        inverse = np.float32(127.0) / size
        scaled = round_half_away((row.astype(np.float32) * inverse).astype(np.float64))
        return np.clip(scaled, -127, 127).astype(np.int64), float(size / np.float32(127.0)), 0
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        return np.zeros(row.shape, np.int64), 1.0, 0
    scale = (high - low) / 255.0
    from_low, from_high = -128.0 - low / scale, 127.0 - high / scale
    error_low, error_high = 128.0 + abs(low / scale), 127.0 + abs(high / scale)
    start = from_low if error_low < error_high else from_high
    zero = int(np.clip(round_half_away(np.asarray(start)), -128, 127))
    inverse = np.float32(1.0 / scale)
    scaled = round_half_away((np.float32(zero) + row.astype(np.float32) * inverse).astype(np.float64))
    return np.clip(scaled, -128, 127).astype(np.int64), float(np.float32(scale)), zero


@dataclass(frozen=True, slots=True)
class HybridMatMul(Op):
    """hybrid_matmul(x [M,K] f32, w [N,K] i8, scale [N], bias?): each row of x quantised for itself."""

    NAME: ClassVar[str] = "hybrid_matmul"
    asymmetric: bool = False

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, w = types[0], types[1]
        if x is None or w is None or x.rank != 2 or w.rank != 2 or x.shape[1] != w.shape[1]:
            raise BadOperator(f"`hybrid_matmul` of {x} and {w}")
        return (TensorType(x.dtype, (x.shape[0], w.shape[0])),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, w, scale, bias = arrays
        assert x is not None and w is not None and scale is not None
        out = np.zeros((x.shape[0], w.shape[0]), np.float32)
        for m, row in enumerate(x):
            stored, step, zero = quantize_row(row, self.asymmetric)
            sums = w.astype(np.int64) @ (stored - zero)
            out[m] = sums.astype(np.float32) * (np.float32(step) * scale.astype(np.float32))
        return (out if bias is None else out + bias.astype(np.float32),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * types[1].shape[1] if types[1] is not None else 0


@dataclass(frozen=True, slots=True)
class HybridConv(Op):
    """hybrid_conv(x NHWC f32, w [O,I/group,kh,kw] i8, scale [O], bias?): each image quantised for itself, with a zero point when
    `asymmetric` (TFLite: when the weights have a scale per channel)."""

    NAME: ClassVar[str] = "hybrid_conv"
    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    dilations: tuple[int, ...] = (1, 1)
    group: int = 1
    asymmetric: bool = True

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, w = types[0], types[1]
        if x is None or w is None or x.rank != 4 or w.rank != 4 or w.shape[1] * self.group != x.shape[3]:
            raise BadOperator(f"`hybrid_conv` of {x} and {w}")
        out = window_output(self.NAME, x.shape[1:3], w.shape[2:], self.strides, self.pads, self.dilations)
        return (TensorType(x.dtype, (x.shape[0], *out, w.shape[0]), Layout.NHWC),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, w, scale, bias = arrays
        assert x is not None and w is not None and scale is not None
        window = QConv(self.strides, self.pads, self.dilations, self.group)
        images = []
        for image in x:
            stored, step, zero = quantize_row(image.reshape(-1), self.asymmetric)
            sums = window.sums((stored - zero).reshape(1, *image.shape), w.astype(np.int64))
            images.append(sums.astype(np.float32) * scale.astype(np.float32) * np.float32(step))
        out = np.concatenate(images)
        return (out if bias is None else out + bias.astype(np.float32),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * math.prod(types[1].shape[1:]) if types[1] is not None else 0
