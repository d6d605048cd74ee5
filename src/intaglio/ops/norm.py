"""Normalisations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import TensorType, broadcast_shapes
from intaglio.ops.base import BadOperator, Op, normal_axis
from intaglio.ops.control import need
from intaglio.ops.numeric import numeric


@dataclass(frozen=True, slots=True)
class LayerNorm(Op):
    """layer_norm(x, scale?, bias?): zero mean and unit variance over the axes from `axis` on, then scale and bias. Where it
    is not `centred` it is RMS norm: the mean is not subtracted, and the mean square becomes 1."""

    NAME: ClassVar[str] = "layer_norm"
    axis: int = -1
    epsilon: float = 1e-5
    centred: bool = True

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 3)[0]
        axis = normal_axis(self.axis, x.rank)
        if not x.dtype.is_float:
            raise BadOperator(f"`layer_norm` is for floating point, got {x.dtype.value}")
        for extra in types[1:]:
            if extra is None:
                continue
            try:
                if broadcast_shapes(x.shape[axis:], extra.shape) != x.shape[axis:]:
                    raise ValueError("too large")
            except ValueError:
                raise BadOperator(f"a scale or bias of {list(extra.shape)} does not fit {list(x.shape)}") from None
        return (x,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        axes = tuple(range(normal_axis(self.axis, x.ndim), x.ndim))
        centred = np.subtract(x, np.mean(numeric(x), axis=axes, keepdims=True)) if self.centred else x
        variance = np.mean(np.multiply(centred, centred), axis=axes, keepdims=True)
        y = np.divide(centred, np.sqrt(np.add(variance, self.epsilon)))
        if len(arrays) > 1 and arrays[1] is not None:
            y = np.multiply(y, arrays[1])
        if len(arrays) > 2 and arrays[2] is not None:
            y = np.add(y, arrays[2])
        return (y.astype(x.dtype),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * 2


@dataclass(frozen=True, slots=True)
class BatchNorm(Op):
    """(x - mean) / sqrt(var + epsilon) * scale + bias, one of each per channel."""

    NAME: ClassVar[str] = "batch_norm"
    epsilon: float = 1e-5
    axis: int = 1

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, *channel = need(self.NAME, types, 5, 5)
        if x.rank < 1 or not x.dtype.is_float:
            raise BadOperator(f"`batch_norm` is for floating point with channels, got {x}")
        size = x.shape[normal_axis(self.axis, x.rank)]
        for given in channel:
            if given.shape != (size,):
                raise BadOperator(f"`batch_norm` has {size} channels and a parameter of {list(given.shape)}")
        return (x,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, scale, bias, mean, var = arrays
        assert x is not None
        assert scale is not None
        assert bias is not None
        assert mean is not None
        assert var is not None
        shape = [1] * x.ndim
        shape[self.axis] = -1
        kind = x.dtype
        factor = np.divide(scale, np.sqrt(np.add(var, self.epsilon))).reshape(shape)
        y = np.add(np.multiply(np.subtract(x, mean.reshape(shape)), factor), bias.reshape(shape))
        return (y.astype(kind),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements


@dataclass(frozen=True, slots=True)
class Lrn(Op):
    """x / (bias + alpha / size * sum of squares of `size` neighbours along `axis`) ** beta."""

    NAME: ClassVar[str] = "lrn"
    size: int = 1
    alpha: float = 0.0001
    beta: float = 0.75
    bias: float = 1.0
    axis: int = 1

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        normal_axis(self.axis, x.rank)
        if self.size < 1 or not x.dtype.is_float:
            raise BadOperator(f"`lrn` over {self.size} elements of {x.dtype.value}")
        return (x,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        count = x.shape[self.axis]
        squares = np.moveaxis(np.multiply(x, x), self.axis, 0)
        total = np.zeros_like(squares)
        before, after = (self.size - 1) // 2, self.size // 2
        for c in range(count):
            total[c] = np.sum(squares[max(0, c - before) : min(count, c + after + 1)], axis=0)
        total = np.moveaxis(total, 0, self.axis)
        return (np.divide(x, np.power(np.add(self.bias, np.multiply(total, self.alpha / self.size)), self.beta)),)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return out.elements * self.size
