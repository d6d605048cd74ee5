"""Elementwise operators that change the element type: cast, quantize, dequantize."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.base import BadOperator, Elementwise
from intaglio.ops.numeric import int_range


@dataclass(frozen=True, slots=True)
class Cast(Elementwise):
    """To another element type. Floating point to integer truncates and saturates (NaN gives 0), where C and ONNX
    leave the result undefined; integer to integer wraps; to bool is `!= 0`."""

    NAME: ClassVar[str] = "cast"
    to: DType = DType.F32
    saturate: bool = True

    def result(self, *dtypes: DType) -> DType:
        return self.to

    def compute(self, *arrays: Array) -> Array:
        x = arrays[0]
        if self.to is DType.BOOL:
            return np.not_equal(x, 0)
        if self.to in (DType.F16, DType.BF16):
            return x.astype(np.float32)  # stored types: `narrow` rounds
        if self.to.is_int and np.issubdtype(x.dtype, np.floating):
            return float_to_int(x, self.to)
        return x.astype(self.to.numpy)


def float_to_int(x: Array, to: DType) -> Array:
    low, high = int_range(to)
    wide = np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    inside = np.logical_and(wide >= float(low), wide < float(high + 1))
    safe = np.where(inside, wide, 0.0).astype(to.numpy)
    edge = np.where(wide > 0, to.numpy.type(high), to.numpy.type(low))
    return np.where(inside, safe, edge).astype(to.numpy)


@dataclass(frozen=True, slots=True)
class Quantize(Elementwise):
    """clip(round(x / scale) + zero_point, low, high), rounding half to even; NaN gives `low`.

    `low` and `high` are the range of the stored integers, which may be narrower than the type (int4 in i8)."""

    NAME: ClassVar[str] = "quantize"
    ARITY: ClassVar[int] = 3
    to: DType = DType.U8
    low: int = 0
    high: int = 255
    half_away: bool = False  # TFLite's rounding; ONNX rounds half to even

    def result(self, *dtypes: DType) -> DType:
        if not self.to.is_int:
            raise BadOperator(f"`quantize` gives integers, not {self.to.value}")
        return self.to

    def compute(self, *arrays: Array) -> Array:
        x, scale, zero_point = arrays
        scaled = np.divide(x.astype(scale.dtype), scale)
        rounded = np.sign(scaled) * np.floor(np.abs(scaled) + scale.dtype.type(0.5)) if self.half_away else np.rint(scaled)
        steps = rounded.astype(np.float64)
        moved = np.add(steps, zero_point.astype(np.float64))
        return np.asarray(np.fmin(np.fmax(moved, self.low), self.high)).astype(self.to.numpy)


@dataclass(frozen=True, slots=True)
class Dequantize(Elementwise):
    """(x - zero_point) * scale."""

    NAME: ClassVar[str] = "dequantize"
    ARITY: ClassVar[int] = 3
    to: DType = DType.F32

    def result(self, *dtypes: DType) -> DType:
        if not self.to.is_float:
            raise BadOperator(f"`dequantize` gives floating point, not {self.to.value}")
        return self.to

    def compute(self, *arrays: Array) -> Array:
        x, scale, zero_point = arrays
        kind = np.float64 if self.to is DType.F64 else np.float32
        steps = np.subtract(x.astype(np.int64), zero_point.astype(np.int64)).astype(kind)
        real: Array = np.multiply(steps, scale.astype(kind))
        return real
