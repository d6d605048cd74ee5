"""Elementwise operators of two and three operands. Integers wrap; integer division truncates, and by zero gives 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.base import BadOperator, Elementwise, same_dtype


@dataclass(frozen=True, slots=True)
class Binary(Elementwise):
    ARITY: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class Comparison(Binary):
    VECTOR: ClassVar[bool] = True

    def result(self, *dtypes: DType) -> DType:
        same_dtype(self.NAME, *dtypes)
        return DType.BOOL


@dataclass(frozen=True, slots=True)
class Logical(Binary):
    def result(self, *dtypes: DType) -> DType:
        if same_dtype(self.NAME, *dtypes) is not DType.BOOL:
            raise BadOperator(f"`{self.NAME}` is for bool, got {dtypes[0].value}")
        return DType.BOOL


@dataclass(frozen=True, slots=True)
class Bitwise(Binary):
    def result(self, *dtypes: DType) -> DType:
        if not same_dtype(self.NAME, *dtypes).is_int:
            raise BadOperator(f"`{self.NAME}` is for integers, got {dtypes[0].value}")
        return dtypes[0]


@dataclass(frozen=True, slots=True)
class Add(Binary):
    NAME: ClassVar[str] = "add"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.add(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class Sub(Binary):
    NAME: ClassVar[str] = "sub"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.subtract(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class Mul(Binary):
    NAME: ClassVar[str] = "mul"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.multiply(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class Div(Binary):
    NAME: ClassVar[str] = "div"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        a, b = arrays
        if np.issubdtype(a.dtype, np.floating):
            return np.divide(a, b)
        floor = np.floor_divide(a, b)  # 0 where b is 0, and wraps for INT_MIN / -1
        rest = np.not_equal(np.subtract(a, np.multiply(floor, b)), 0)
        up = np.logical_and(rest, np.not_equal(np.less(a, 0), np.less(b, 0)))
        return np.where(np.equal(b, 0), np.zeros_like(floor), np.add(floor, up.astype(floor.dtype)))


@dataclass(frozen=True, slots=True)
class Pow(Binary):
    """The result has the type of the base. With an integer on either side that is not a plain power, by doubles."""

    NAME: ClassVar[str] = "pow"

    def result(self, *dtypes: DType) -> DType:
        return dtypes[0]

    def compute(self, *arrays: Array) -> Array:
        a, b = arrays
        if a.dtype == b.dtype and np.issubdtype(a.dtype, np.floating):
            return np.power(a, b)
        if np.issubdtype(a.dtype, np.integer) and np.issubdtype(b.dtype, np.integer) and not np.less(b, 0).any():
            return np.asarray(np.power(a, b.astype(a.dtype)))
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


@dataclass(frozen=True, slots=True)
class Mod(Binary):
    """The remainder with the sign of the divisor, or with the sign of the dividend when `fmod`."""

    NAME: ClassVar[str] = "mod"
    fmod: bool = False

    def compute(self, *arrays: Array) -> Array:
        return np.fmod(arrays[0], arrays[1]) if self.fmod else np.mod(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class Min(Binary):
    """NaN wins."""

    NAME: ClassVar[str] = "min"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.minimum(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class Max(Binary):
    """NaN wins."""

    NAME: ClassVar[str] = "max"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.maximum(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class Prelu(Binary):
    """x, or slope * x below zero."""

    NAME: ClassVar[str] = "prelu"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        x, slope = arrays
        return np.where(np.less(x, 0), np.multiply(x, slope), x)


@dataclass(frozen=True, slots=True)
class Equal(Comparison):
    NAME: ClassVar[str] = "equal"

    def compute(self, *arrays: Array) -> Array:
        return np.equal(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class Less(Comparison):
    NAME: ClassVar[str] = "less"

    def compute(self, *arrays: Array) -> Array:
        return np.less(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class LessEqual(Comparison):
    NAME: ClassVar[str] = "less_equal"

    def compute(self, *arrays: Array) -> Array:
        return np.less_equal(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class Greater(Comparison):
    NAME: ClassVar[str] = "greater"

    def compute(self, *arrays: Array) -> Array:
        return np.greater(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class GreaterEqual(Comparison):
    NAME: ClassVar[str] = "greater_equal"

    def compute(self, *arrays: Array) -> Array:
        return np.greater_equal(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class LogicalAnd(Logical):
    NAME: ClassVar[str] = "logical_and"

    def compute(self, *arrays: Array) -> Array:
        return np.logical_and(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class LogicalOr(Logical):
    NAME: ClassVar[str] = "logical_or"

    def compute(self, *arrays: Array) -> Array:
        return np.logical_or(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class LogicalXor(Logical):
    NAME: ClassVar[str] = "logical_xor"

    def compute(self, *arrays: Array) -> Array:
        return np.logical_xor(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class BitwiseAnd(Bitwise):
    NAME: ClassVar[str] = "bitwise_and"

    def compute(self, *arrays: Array) -> Array:
        return np.bitwise_and(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class BitwiseOr(Bitwise):
    NAME: ClassVar[str] = "bitwise_or"

    def compute(self, *arrays: Array) -> Array:
        return np.bitwise_or(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class BitwiseXor(Bitwise):
    NAME: ClassVar[str] = "bitwise_xor"

    def compute(self, *arrays: Array) -> Array:
        return np.bitwise_xor(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class ShiftLeft(Bitwise):
    """A shift by the width of the type or more gives 0 (C leaves it undefined)."""

    NAME: ClassVar[str] = "shift_left"

    def compute(self, *arrays: Array) -> Array:
        return np.left_shift(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class ShiftRight(Bitwise):
    """A shift by the width of the type or more gives 0, or -1 for a negative number."""

    NAME: ClassVar[str] = "shift_right"

    def compute(self, *arrays: Array) -> Array:
        return np.right_shift(arrays[0], arrays[1])


@dataclass(frozen=True, slots=True)
class Where(Elementwise):
    NAME: ClassVar[str] = "where"
    VECTOR: ClassVar[bool] = True
    ARITY: ClassVar[int] = 3

    def result(self, *dtypes: DType) -> DType:
        if dtypes[0] is not DType.BOOL:
            raise BadOperator(f"the condition of `where` must be bool, got {dtypes[0].value}")
        return same_dtype("where", *dtypes[1:])

    def compute(self, *arrays: Array) -> Array:
        condition, a, b = arrays
        return np.where(condition.astype(np.bool_), a, b)
