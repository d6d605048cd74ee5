"""Rows of 8-bit integers: log-softmax and division by the norm, in fixed point; and 16-bit matrix products scaled in doubles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need
from intaglio.ops.fixed_point import INT32_MIN, clamp, quantize_multiplier, rounding_shift, scale32
from intaglio.ops.gemmlowp import exp_on_negative_values
from intaglio.ops.quantised_functions import inv_sqrt, log_of_sum


@dataclass(frozen=True, slots=True)
class QLogSoftmax(Op):
    """Along the last axis. The result has the step 1/16 and its highest number for 0."""

    NAME: ClassVar[str] = "qlog_softmax"
    scale: float = 1.0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.dtype not in (DType.I8, DType.U8) or x.rank == 0:
            raise BadOperator(f"`qlog_softmax` of {x}")
        return (TensorType(x.dtype, x.shape),)

    def factors(self) -> tuple[int, int, int]:
        """Multiplier and shift of a difference to 5 integer bits, and the lowest difference that counts."""
        multiplier, shift = quantize_multiplier(min(self.scale * (1 << 26), float((1 << 31) - 1)))
        return multiplier, shift, -math.floor(((1 << 5) - 1) * (1 << 26) / (1 << shift))

    def back(self) -> tuple[int, int]:
        multiplier, shift, _ = self.factors()
        return quantize_multiplier(float(1 << (31 - shift)) / multiplier)

    def differences(self) -> tuple[Array, Array]:
        """0, -1, ... -255 with 5 integer bits, and their exps with 12; an exp that does not count is 0."""
        multiplier, shift, lowest = self.factors()
        all_of_them = -np.arange(256, dtype=np.int64)
        counts = all_of_them >= lowest
        scaled = scale32(np.where(counts, all_of_them, 0), np.asarray(multiplier), np.asarray(shift))
        exps = rounding_shift(exp_on_negative_values(scaled, 5), np.asarray(12))
        return np.where(counts, scaled, 0), np.where(counts, exps, 0)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        scaled, exps = self.differences()
        below = x.max(axis=-1, keepdims=True).astype(np.int64) - x
        log_sum = log_of_sum(exps[below].sum(axis=-1, keepdims=True))
        back, shift = self.back()
        lowest = np.maximum(self.factors()[2] - 1, scale32(log_sum + INT32_MIN, np.asarray(back), np.asarray(shift)))
        info = np.iinfo(x.dtype)
        value = rounding_shift(scaled[below] - log_sum, np.asarray(22)) + int(info.max)
        return (clamp(np.where(-below > lowest, value, int(info.min)), int(info.min), int(info.max), x.dtype),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements


@dataclass(frozen=True, slots=True)
class QL2Norm(Op):
    """x - x_zero divided by its norm along the last axis. The result has the step 1/128 and 0 (unsigned: 128) for 0."""

    NAME: ClassVar[str] = "ql2_norm"
    x_zero: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.dtype not in (DType.I8, DType.U8) or x.rank == 0:
            raise BadOperator(f"`ql2_norm` of {x}")
        return (TensorType(x.dtype, x.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        wide = x.astype(np.int64) - self.x_zero
        multiplier, shift = inv_sqrt((wide * wide).sum(axis=-1, keepdims=True))
        if x.dtype == np.uint8:
            return (clamp(scale32(wide * 128, multiplier, shift) + 128, 0, 255, x.dtype),)
        return (clamp(scale32(wide, multiplier, shift + 7), -128, 127, x.dtype),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements


@dataclass(frozen=True, slots=True)
class QDense(Op):
    """qdense(x i16 [M,K], w i8 [N,K], bias?, scale f64 [N]): 64-bit sums times a double, rounded half away from zero."""

    NAME: ClassVar[str] = "qdense"
    low: int = -32768
    high: int = 32767

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        if len(types) != 4 or types[0] is None or types[1] is None or types[3] is None:
            raise BadOperator("`qdense` takes an input, weights, a bias and scales")
        x, w, scale = types[0], types[1], types[3]
        if x.rank != 2 or w.rank != 2 or x.shape[1] != w.shape[1] or scale.shape != (w.shape[0],):
            raise BadOperator(f"`qdense` of {x} and {w}, scaled by {scale}")
        if x.dtype is not DType.I16 or scale.dtype is not DType.F64:
            raise BadOperator(f"`qdense` takes 16-bit numbers and doubles, got {x.dtype.value} and {scale.dtype.value}")
        return (TensorType(DType.I16, (x.shape[0], w.shape[0])),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, w, bias, scale = arrays
        assert x is not None and w is not None and scale is not None
        sums = x.astype(np.int64) @ w.astype(np.int64).T
        real = (sums if bias is None else sums + bias.astype(np.int64)).astype(np.float64) * scale
        rounded = np.trunc(np.where(real < 0, real - 0.5, real + 0.5))
        return (np.clip(rounded, self.low, self.high).astype(np.int16),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * types[1].shape[1] if types[1] is not None else 0
