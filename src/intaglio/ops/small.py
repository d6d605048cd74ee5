"""Floats of 8 and 4 bits: their codes are stored in bytes. `FORMATS` has what each format is; numbers of a code are a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Elementwise, Op
from intaglio.ops.control import need


@dataclass(frozen=True, slots=True)
class Format:
    """A sign, then the exponent and `mantissa` bits; `least` is the exponent of the smallest normal number. `most`, `over` and
    `nan` are codes without a sign: of the largest number, of what is beyond it where that does not saturate, and of NaN.
    `one_zero`: there is no negative zero, whose code is NaN's."""

    bits: int
    mantissa: int
    least: int
    most: int
    over: int
    nan: int
    one_zero: bool = False

    @property
    def sign(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def ladder(self) -> list[float]:
        """Powers of two above the smallest normal number, up to the largest."""
        return [2.0 ** (self.least + n) for n in range(1, (self.most >> self.mantissa))]

    def table(self) -> Array:
        """The number of every code."""
        codes = np.arange(1 << self.bits)
        plain = codes & (self.sign - 1)
        exponent, fraction = plain >> self.mantissa, plain & ((1 << self.mantissa) - 1)
        unit = 2.0**self.least / (1 << self.mantissa)
        steps = np.where(exponent == 0, fraction, fraction + (1 << self.mantissa))
        value = steps * unit * 2.0 ** np.maximum(exponent - 1, 0)
        beyond = plain > self.most
        value = np.where(beyond, np.where(plain == self.over if self.over != self.nan else False, np.inf, np.nan), value)
        value = np.where(codes >= self.sign, -value, value)
        if self.one_zero:
            value[self.sign] = np.nan
        return value.astype(np.float32)


FORMATS = {
    "f8e4m3fn": Format(8, 3, -6, 0x7E, 0x7F, 0x7F),
    "f8e4m3fnuz": Format(8, 3, -7, 0x7F, 0x80, 0x80, one_zero=True),
    "f8e5m2": Format(8, 2, -14, 0x7B, 0x7C, 0x7F),
    "f8e5m2fnuz": Format(8, 2, -15, 0x7F, 0x80, 0x80, one_zero=True),
    "f4e2m1": Format(4, 1, 0, 0x7, 0x7, 0x8),
}


@dataclass(frozen=True, slots=True)
class NarrowFloat(Elementwise):
    """The code of the nearest number, ties to the even code; what is beyond the largest is that, unless it must not `saturate`."""

    NAME: ClassVar[str] = "narrow_float"
    format: str = "f8e4m3fn"
    saturate: bool = True

    def result(self, *dtypes: DType) -> DType:
        if dtypes != (DType.F32,) or self.format not in FORMATS:
            raise BadOperator(f"`narrow_float` takes f32 to one of {', '.join(FORMATS)}, got {dtypes[0].value} to {self.format}")
        return DType.U8

    def compute(self, *arrays: Array) -> Array:
        x, f = arrays[0].astype(np.float32), FORMATS[self.format]
        size = np.abs(x)
        scale = np.full(x.shape, 2.0 ** (f.mantissa - f.least), np.float32)
        base = np.zeros(x.shape, np.float32)
        for power in f.ladder:
            scale = np.where(size >= np.float32(power), scale * np.float32(0.5), scale)
            base = np.where(size >= np.float32(power), base + np.float32(1 << f.mantissa), base)
        code = base + np.rint(np.minimum(size * scale, np.float32(1 << 20)))
        beyond = ~(code <= f.most)
        code = np.where(beyond, np.float32(f.most if self.saturate else f.over), code)
        negative = np.signbit(x) & ~((code == 0) & f.one_zero) & ~(beyond & (not self.saturate) & f.one_zero)
        code = np.where(negative, code + np.float32(f.sign), code)
        return np.where(np.isnan(x), np.float32(f.nan), code).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class BitCast(Op):
    """The same bits as another type of the same size."""

    NAME: ClassVar[str] = "bit_cast"
    to: DType = DType.F32

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.dtype.bytes != self.to.bytes:
            raise BadOperator(f"`bit_cast` from {x.dtype.value} to {self.to.value}, which has another size")
        return (TensorType(self.to, x.shape),)

    def evaluate(self, arrays: list[Array | None], types: list[TensorType | None]) -> tuple[Array, ...]:
        assert arrays[0] is not None
        return (np.ascontiguousarray(arrays[0]).view(self.to.numpy).reshape(arrays[0].shape),)
