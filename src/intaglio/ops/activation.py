"""Elementwise operators of one operand that networks use as activations."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.base import BadOperator, Elementwise
from intaglio.ops.numeric import int_range
from intaglio.ops.unary import FloatUnary, erf


@dataclass(frozen=True, slots=True)
class Relu(Elementwise):
    NAME: ClassVar[str] = "relu"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.maximum(arrays[0], 0)


def sigmoid(x: Array) -> Array:
    """By the exponential of a number that is never positive: nothing overflows, both tails keep their precision."""
    e = np.exp(np.negative(np.absolute(x)))
    return np.where(np.signbit(x), np.divide(e, np.add(1, e)), np.divide(1, np.add(1, e)))


def softplus(x: Array) -> Array:
    return np.add(np.log1p(np.exp(np.negative(np.absolute(x)))), np.maximum(x, 0))


@dataclass(frozen=True, slots=True)
class Sigmoid(FloatUnary):
    NAME: ClassVar[str] = "sigmoid"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return sigmoid(arrays[0])


@dataclass(frozen=True, slots=True)
class Tanh(FloatUnary):
    NAME: ClassVar[str] = "tanh"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.tanh(arrays[0])


@dataclass(frozen=True, slots=True)
class Softplus(FloatUnary):
    """log(1 + exp(x))."""

    NAME: ClassVar[str] = "softplus"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return softplus(arrays[0])


@dataclass(frozen=True, slots=True)
class Softsign(FloatUnary):
    """x / (1 + |x|)."""

    NAME: ClassVar[str] = "softsign"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.divide(arrays[0], np.add(1, np.absolute(arrays[0])))


@dataclass(frozen=True, slots=True)
class Mish(FloatUnary):
    """x * tanh(softplus(x))."""

    NAME: ClassVar[str] = "mish"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.multiply(arrays[0], np.tanh(softplus(arrays[0])))


@dataclass(frozen=True, slots=True)
class Silu(FloatUnary):
    """x * sigmoid(x)."""

    NAME: ClassVar[str] = "silu"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        return np.multiply(arrays[0], sigmoid(arrays[0]))


@dataclass(frozen=True, slots=True)
class LeakyRelu(FloatUnary):
    NAME: ClassVar[str] = "leaky_relu"
    VECTOR: ClassVar[bool] = True
    alpha: float = 0.01

    def compute(self, *arrays: Array) -> Array:
        x = arrays[0]
        return np.where(np.less(x, 0), np.multiply(x, self.alpha), x)


@dataclass(frozen=True, slots=True)
class Elu(FloatUnary):
    NAME: ClassVar[str] = "elu"
    VECTOR: ClassVar[bool] = True
    alpha: float = 1.0

    def compute(self, *arrays: Array) -> Array:
        x = arrays[0]
        return np.where(np.less(x, 0), np.multiply(np.expm1(x), self.alpha), x)


@dataclass(frozen=True, slots=True)
class Selu(FloatUnary):
    NAME: ClassVar[str] = "selu"
    VECTOR: ClassVar[bool] = True
    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875

    def compute(self, *arrays: Array) -> Array:
        x = arrays[0]
        return np.multiply(np.where(np.less(x, 0), np.multiply(np.expm1(x), self.alpha), x), self.gamma)


@dataclass(frozen=True, slots=True)
class Celu(FloatUnary):
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1))."""

    NAME: ClassVar[str] = "celu"
    VECTOR: ClassVar[bool] = True
    alpha: float = 1.0

    def compute(self, *arrays: Array) -> Array:
        x = arrays[0]
        low = np.multiply(np.expm1(np.divide(x, self.alpha)), self.alpha)
        return np.add(np.maximum(x, 0), np.minimum(low, 0))


@dataclass(frozen=True, slots=True)
class ThresholdedRelu(FloatUnary):
    NAME: ClassVar[str] = "thresholded_relu"
    VECTOR: ClassVar[bool] = True
    alpha: float = 1.0

    def compute(self, *arrays: Array) -> Array:
        x = arrays[0]
        return np.where(np.greater(x, self.alpha), x, np.zeros_like(x))


@dataclass(frozen=True, slots=True)
class HardSigmoid(FloatUnary):
    """max(0, min(1, alpha * x + beta))."""

    NAME: ClassVar[str] = "hard_sigmoid"
    VECTOR: ClassVar[bool] = True
    alpha: float = 0.2
    beta: float = 0.5

    def compute(self, *arrays: Array) -> Array:
        return np.maximum(0, np.minimum(1, np.add(np.multiply(arrays[0], self.alpha), self.beta)))


@dataclass(frozen=True, slots=True)
class HardSwish(FloatUnary):
    """x * max(0, min(1, x / 6 + 0.5))."""

    NAME: ClassVar[str] = "hard_swish"
    VECTOR: ClassVar[bool] = True

    def compute(self, *arrays: Array) -> Array:
        x = arrays[0]
        return np.multiply(x, np.maximum(0, np.minimum(1, np.add(np.multiply(x, 1 / 6), 0.5))))


@dataclass(frozen=True, slots=True)
class Gelu(FloatUnary):
    """0.5 * x * (1 + erf(x / sqrt(2))), or the approximation by tanh."""

    NAME: ClassVar[str] = "gelu"
    VECTOR: ClassVar[bool] = True
    approximate: bool = False

    def compute(self, *arrays: Array) -> Array:
        x = arrays[0]
        if self.approximate:
            cube = np.multiply(np.multiply(x, x), np.multiply(x, 0.044715))
            inner = np.tanh(np.multiply(np.add(x, cube), math.sqrt(2 / math.pi)))
        else:
            inner = erf(np.multiply(x, math.sqrt(0.5)))
        return np.multiply(np.multiply(x, 0.5), np.add(inner, 1))


@dataclass(frozen=True, slots=True)
class Shrink(Elementwise):
    """x + bias below -lambd, x - bias above lambd, 0 between."""

    NAME: ClassVar[str] = "shrink"
    VECTOR: ClassVar[bool] = True
    bias: float = 0.0
    lambd: float = 0.5

    def compute(self, *arrays: Array) -> Array:
        x = arrays[0]
        wide = x if np.issubdtype(x.dtype, np.floating) else x.astype(np.float64)
        low = np.where(np.less(wide, -self.lambd), np.add(wide, self.bias), 0)
        return np.where(np.greater(wide, self.lambd), np.subtract(wide, self.bias), low).astype(x.dtype)


@dataclass(frozen=True, slots=True)
class Clip(Elementwise):
    """min(max(x, low), high) with fixed bounds. NaN stays NaN. For integers the bounds are rounded inwards."""

    NAME: ClassVar[str] = "clip"
    VECTOR: ClassVar[bool] = True
    low: float = -math.inf
    high: float = math.inf

    def result(self, *dtypes: DType) -> DType:
        if dtypes[0] is DType.BOOL:
            raise BadOperator("`clip` is for numbers, got bool")
        return dtypes[0]

    def compute(self, *arrays: Array) -> Array:
        x = arrays[0]
        if np.issubdtype(x.dtype, np.floating):
            return np.asarray(np.minimum(np.maximum(x, x.dtype.type(self.low)), x.dtype.type(self.high)))
        low, high = integer_bounds(self.low, self.high, DType.of(x))
        return np.minimum(np.maximum(x, low), high)


def integer_bounds(low: float, high: float, dtype: DType) -> tuple[int, int]:
    """The bounds of a `clip` as integers that the type can hold."""
    least, most = int_range(dtype)
    first = least if low == -math.inf else most if low == math.inf else min(max(math.ceil(low), least), most)
    last = most if high == math.inf else least if high == -math.inf else min(max(math.floor(high), least), most)
    return first, last
