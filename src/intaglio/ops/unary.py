"""Elementwise operators of one operand that are plain mathematics. Integers wrap, as in C with `-fwrapv`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.base import BadOperator, Elementwise


@dataclass(frozen=True, slots=True)
class FloatUnary(Elementwise):
    """Only meaningful on floating point."""

    def result(self, *dtypes: DType) -> DType:
        if not dtypes[0].is_float:
            raise BadOperator(f"`{self.NAME}` is for floating point, got {dtypes[0].value}")
        return dtypes[0]


@dataclass(frozen=True, slots=True)
class Neg(Elementwise):
    NAME: ClassVar[str] = "neg"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.negative(arrays[0])


@dataclass(frozen=True, slots=True)
class Abs(Elementwise):
    NAME: ClassVar[str] = "abs"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.absolute(arrays[0])


@dataclass(frozen=True, slots=True)
class Exp(FloatUnary):
    NAME: ClassVar[str] = "exp"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.exp(arrays[0])


@dataclass(frozen=True, slots=True)
class Log(FloatUnary):
    NAME: ClassVar[str] = "log"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.log(arrays[0])


@dataclass(frozen=True, slots=True)
class Expm1(FloatUnary):
    """exp(x) - 1, as exact near zero as elsewhere."""

    NAME: ClassVar[str] = "expm1"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.expm1(arrays[0])


@dataclass(frozen=True, slots=True)
class Log1p(FloatUnary):
    """log(1 + x), as exact near zero as elsewhere."""

    NAME: ClassVar[str] = "log1p"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.log1p(arrays[0])


@dataclass(frozen=True, slots=True)
class Sqrt(FloatUnary):
    NAME: ClassVar[str] = "sqrt"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.sqrt(arrays[0])


@dataclass(frozen=True, slots=True)
class Reciprocal(FloatUnary):
    NAME: ClassVar[str] = "reciprocal"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.reciprocal(arrays[0])


@dataclass(frozen=True, slots=True)
class Floor(FloatUnary):
    NAME: ClassVar[str] = "floor"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.floor(arrays[0])


@dataclass(frozen=True, slots=True)
class Ceil(FloatUnary):
    NAME: ClassVar[str] = "ceil"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.ceil(arrays[0])


@dataclass(frozen=True, slots=True)
class Round(FloatUnary):
    """Half to even, as `rint` does in the default rounding mode."""

    NAME: ClassVar[str] = "round"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.rint(arrays[0])


@dataclass(frozen=True, slots=True)
class Sign(Elementwise):
    NAME: ClassVar[str] = "sign"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.sign(arrays[0])


@dataclass(frozen=True, slots=True)
class Sin(FloatUnary):
    NAME: ClassVar[str] = "sin"

    def compute(self, *arrays: Array) -> Array:
        return np.sin(arrays[0])


@dataclass(frozen=True, slots=True)
class Cos(FloatUnary):
    NAME: ClassVar[str] = "cos"

    def compute(self, *arrays: Array) -> Array:
        return np.cos(arrays[0])


@dataclass(frozen=True, slots=True)
class Tan(FloatUnary):
    NAME: ClassVar[str] = "tan"

    def compute(self, *arrays: Array) -> Array:
        return np.tan(arrays[0])


@dataclass(frozen=True, slots=True)
class Asin(FloatUnary):
    NAME: ClassVar[str] = "asin"

    def compute(self, *arrays: Array) -> Array:
        return np.arcsin(arrays[0])


@dataclass(frozen=True, slots=True)
class Acos(FloatUnary):
    NAME: ClassVar[str] = "acos"

    def compute(self, *arrays: Array) -> Array:
        return np.arccos(arrays[0])


@dataclass(frozen=True, slots=True)
class Atan(FloatUnary):
    NAME: ClassVar[str] = "atan"

    def compute(self, *arrays: Array) -> Array:
        return np.arctan(arrays[0])


@dataclass(frozen=True, slots=True)
class Sinh(FloatUnary):
    NAME: ClassVar[str] = "sinh"

    def compute(self, *arrays: Array) -> Array:
        return np.sinh(arrays[0])


@dataclass(frozen=True, slots=True)
class Cosh(FloatUnary):
    NAME: ClassVar[str] = "cosh"

    def compute(self, *arrays: Array) -> Array:
        return np.cosh(arrays[0])


@dataclass(frozen=True, slots=True)
class Asinh(FloatUnary):
    NAME: ClassVar[str] = "asinh"

    def compute(self, *arrays: Array) -> Array:
        return np.arcsinh(arrays[0])


@dataclass(frozen=True, slots=True)
class Acosh(FloatUnary):
    NAME: ClassVar[str] = "acosh"

    def compute(self, *arrays: Array) -> Array:
        return np.arccosh(arrays[0])


@dataclass(frozen=True, slots=True)
class Atanh(FloatUnary):
    NAME: ClassVar[str] = "atanh"

    def compute(self, *arrays: Array) -> Array:
        return np.arctanh(arrays[0])


def erf(array: Array) -> Array:
    """numpy has no erf; the C library's, element by element, is exact to the last bit of a double."""
    return _of_library(math.erf, array)


def _of_library(function: Callable[[float], float], array: Array) -> Array:
    flat = array.ravel().tolist()
    return np.fromiter(map(function, flat), np.float64, len(flat)).reshape(array.shape).astype(array.dtype)


@dataclass(frozen=True, slots=True)
class Erf(FloatUnary):
    NAME: ClassVar[str] = "erf"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return erf(arrays[0])


@dataclass(frozen=True, slots=True)
class Erfc(FloatUnary):
    """1 - erf(x), also where that is nearly 0."""

    NAME: ClassVar[str] = "erfc"

    def compute(self, *arrays: Array) -> Array:
        return _of_library(math.erfc, arrays[0])


@dataclass(frozen=True, slots=True)
class LogicalNot(Elementwise):
    NAME: ClassVar[str] = "logical_not"

    def result(self, *dtypes: DType) -> DType:
        if dtypes[0] is not DType.BOOL:
            raise BadOperator(f"`logical_not` is for bool, got {dtypes[0].value}")
        return DType.BOOL

    def compute(self, *arrays: Array) -> Array:
        return np.logical_not(arrays[0])


@dataclass(frozen=True, slots=True)
class BitwiseNot(Elementwise):
    NAME: ClassVar[str] = "bitwise_not"

    def result(self, *dtypes: DType) -> DType:
        if not dtypes[0].is_int:
            raise BadOperator(f"`bitwise_not` is for integers, got {dtypes[0].value}")
        return dtypes[0]

    def compute(self, *arrays: Array) -> Array:
        return np.bitwise_not(arrays[0])


@dataclass(frozen=True, slots=True)
class IsNan(Elementwise):
    NAME: ClassVar[str] = "is_nan"

    def result(self, *dtypes: DType) -> DType:
        if not dtypes[0].is_float:
            raise BadOperator(f"`is_nan` is for floating point, got {dtypes[0].value}")
        return DType.BOOL

    def compute(self, *arrays: Array) -> Array:
        return np.isnan(arrays[0])


@dataclass(frozen=True, slots=True)
class IsInf(Elementwise):
    NAME: ClassVar[str] = "is_inf"
    negative: bool = True
    positive: bool = True

    def result(self, *dtypes: DType) -> DType:
        if not dtypes[0].is_float:
            raise BadOperator(f"`is_inf` is for floating point, got {dtypes[0].value}")
        return DType.BOOL

    def compute(self, *arrays: Array) -> Array:
        low = np.logical_and(np.equal(arrays[0], -np.inf), self.negative)
        return np.logical_or(low, np.logical_and(np.equal(arrays[0], np.inf), self.positive))
