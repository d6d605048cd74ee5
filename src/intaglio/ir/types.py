"""Types of values: element type, shape, layout, quantisation. All of it is static, but for dimensions with a bound (`sizes.py`).

A `TensorType` prints as `f32[1,16,8,8] NCHW` and parses back; `DType` knows its numpy and its C type.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from intaglio.ir.apart import apart
from intaglio.ir.sizes import most, moves

Shape = tuple[int, ...]
MAX_RANK = 8


class DType(Enum):
    """Element types by the name they have in IR text."""

    F32 = "f32"
    F64 = "f64"
    F16 = "f16"
    BF16 = "bf16"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    BOOL = "bool"

    @property
    def bytes(self) -> int:
        return _BYTES[self]

    @property
    def numpy(self) -> np.dtype[Any]:
        """The array type that holds values of this type. bf16 has none in numpy: its bits live in uint16."""
        return np.dtype(_NUMPY[self])

    @property
    def is_float(self) -> bool:
        return self in (DType.F32, DType.F64, DType.F16, DType.BF16)

    @property
    def is_int(self) -> bool:
        return not self.is_float and self is not DType.BOOL

    @property
    def is_signed(self) -> bool:
        return self in (DType.I8, DType.I16, DType.I32, DType.I64)

    @staticmethod
    def of(array: np.ndarray[tuple[int, ...], np.dtype[Any]]) -> DType:
        """The type of an array. An array of uint16 is u16: bf16 values need their type told."""
        return _FROM_NUMPY[array.dtype]


_BYTES = {
    DType.F32: 4, DType.F64: 8, DType.F16: 2, DType.BF16: 2, DType.I8: 1, DType.I16: 2, DType.I32: 4,
    DType.I64: 8, DType.U8: 1, DType.U16: 2, DType.U32: 4, DType.U64: 8, DType.BOOL: 1,
}  # fmt: skip
_NUMPY = {
    DType.F32: "float32", DType.F64: "float64", DType.F16: "float16", DType.BF16: "uint16", DType.I8: "int8",
    DType.I16: "int16", DType.I32: "int32", DType.I64: "int64", DType.U8: "uint8", DType.U16: "uint16",
    DType.U32: "uint32", DType.U64: "uint64", DType.BOOL: "bool",
}  # fmt: skip
_FROM_NUMPY = {np.dtype(name): dtype for dtype, name in _NUMPY.items() if dtype is not DType.BF16}


class Layout(Enum):
    """What the axes mean. `NONE` where nobody cares; an operator that cares has its own `layout` field,
    so this tag on a type is for people and tools that look, and nothing computes differently because of it."""

    NONE = ""
    NCHW = "NCHW"
    NHWC = "NHWC"
    TEXT = "TEXT"  # the last axis has the bytes of a string (`strings.py`)


@dataclass(frozen=True, slots=True)
class Quant:
    """real = scale * (stored - zero_point), per tensor (one entry) or along `axis`."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    def __str__(self) -> str:
        if self.axis is None:
            return f"q({self.scale[0]!r},{self.zero_point[0]})"
        scales = ";".join(repr(s) for s in self.scale)
        zeros = ";".join(str(z) for z in self.zero_point)
        return f"q({scales},{zeros},axis={self.axis})"


@dataclass(frozen=True, slots=True)
class TensorType:
    dtype: DType
    shape: Shape
    layout: Layout = field(default=Layout.NONE, compare=False)
    quant: Quant | None = None

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The room that it needs: where a dimension has a bound, that of the largest."""
        return most(self.elements) * self.dtype.bytes

    @property
    def moves(self) -> bool:
        """Does the shape depend on sizes that the caller gives?"""
        return moves(self.shape)

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        text = f"{self.dtype.value}[{','.join(map(repr, self.shape))}]"
        if self.layout is not Layout.NONE:
            text += f" {self.layout.value}"
        if self.quant is not None:
            text += f" {self.quant}"
        return text


def strides_of(shape: Shape) -> Shape:
    """Row-major strides in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


def broadcast_shapes(*shapes: Shape) -> Shape:
    """numpy's rule. Raises ValueError when the shapes do not fit."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[int] = []
    for axis in range(rank):
        size = 1
        for shape in shapes:
            i = axis - (rank - len(shape))
            if i < 0 or shape[i] == 1:
                continue
            if size not in (1, shape[i]):
                told = " and ".join(str(list(s)) for s in shapes)
                raise ValueError(f"shapes {told} do not broadcast{apart([size], [shape[i]])}")
            size = shape[i]
        out.append(size)
    return tuple(out)
