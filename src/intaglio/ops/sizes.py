"""Sizes that the caller gives, as data: for models that compute with a length, or count up to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op


@dataclass(frozen=True, slots=True)
class Dimensions(Op):
    """y = dimensions(sizes=(T*2,64)): the numbers themselves, in the shape that is given."""

    NAME: ClassVar[str] = "dimensions"
    sizes: tuple[int, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: DType = DType.I64

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        if types or int(np.prod(self.shape, dtype=np.int64)) != len(self.sizes):
            raise BadOperator(f"`dimensions` has {len(self.sizes)} sizes for the shape {list(self.shape)}")
        return (TensorType(self.dtype, self.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        return (np.array(self.sizes, self.dtype.numpy).reshape(self.shape),)


@dataclass(frozen=True, slots=True)
class Iota(Op):
    """y[i] = start + i * step, `count` of them."""

    NAME: ClassVar[str] = "iota"
    count: int = 0
    start: float = 0
    step: float = 1
    dtype: DType = DType.I64

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        if types or self.count < 0:
            raise BadOperator(f"`iota` of {self.count} elements")
        return (TensorType(self.dtype, (self.count,)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        kind = np.float64 if self.dtype.is_float else np.int64
        return (np.add(kind(self.start), np.multiply(np.arange(self.count, dtype=kind), kind(self.step))),)
