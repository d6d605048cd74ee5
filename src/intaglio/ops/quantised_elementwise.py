"""Elementwise operators of integers beside add and mul: a common scale for comparisons and squares, and division."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.base import Elementwise
from intaglio.ops.fixed_point import clamp, scale32
from intaglio.ops.quantised_functions import quotient


@dataclass(frozen=True, slots=True)
class Lift(Elementwise):
    """scale((x - zero) * 2^bits), an i32: two tensors of different quantisation can be compared or subtracted then."""

    NAME: ClassVar[str] = "lift"
    zero: int = 0
    bits: int = 8
    multiplier: int = 0
    shift: int = 0

    def result(self, *dtypes: DType) -> DType:
        return DType.I32

    def compute(self, *arrays: Array) -> Array:
        lifted = (arrays[0].astype(np.int64) - self.zero) << self.bits
        return scale32(lifted, np.asarray(self.multiplier), np.asarray(self.shift)).astype(np.int32)


@dataclass(frozen=True, slots=True)
class QDiv(Elementwise):
    """scale((a - a_zero) / (b - b_zero)) + y_zero, clamped."""

    NAME: ClassVar[str] = "qdiv"
    ARITY: ClassVar[int] = 2
    a_zero: int = 0
    b_zero: int = 0
    multiplier: int = 0
    shift: int = 0
    y_zero: int = 0
    low: int = -128
    high: int = 127
    to: DType = DType.I8

    def result(self, *dtypes: DType) -> DType:
        return self.to

    def compute(self, *arrays: Array) -> Array:
        a, b = (x.astype(np.int64) - zero for x, zero in zip(arrays, (self.a_zero, self.b_zero), strict=True))
        a, b = np.broadcast_arrays(a, b)
        scaled = quotient(a, b, np.asarray(self.multiplier), np.asarray(self.shift))
        return clamp(scaled + self.y_zero, self.low, self.high, self.to.numpy)
