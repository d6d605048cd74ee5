"""Which variant of a routine: small frozen values. Their text is a part of names in C and of `using` in IR files.

    twice_i8, twice_i8_m100_90       how sums become results, and the range where it is smaller than the type's: Finish
    left_i8                          a sum of two tensors: Sum
    joined_twice_i8_sum_left_i8      a product of channels and columns, then a sum: Variant
    column_shared_joined_once_i8     ... with one column only
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from intaglio.ir.types import DType

C_TYPES = {DType.I8: "int8_t", DType.U8: "uint8_t", DType.I16: "int16_t", DType.F32: "float"}


class How(StrEnum):
    """Ways to scale a sum: the quick ones, the reference's step by step, ONNX Runtime's, and to floats (`dsp/scaling.py`)."""

    TWICE = "twice"
    CLIPPED = "clipped"
    ONCE = "once"
    SLOW = "slow"
    SLOWONCE = "slowonce"
    FLOAT = "float"
    REAL = "real"
    REALROW = "realrow"


class Side(StrEnum):
    """Of a sum: which one has the larger step."""

    LEFT = "left"
    RIGHT = "right"
    BOTH = "both"


class Layout(StrEnum):
    """How the weights of two channels are kept (`dsp/tiles.py`)."""

    JOINED = "joined"
    APART = "apart"
    WIDE = "wide"


@dataclass(frozen=True, slots=True)
class Range:
    """A type of results, and limits where they are tighter than the type's."""

    to: DType
    limits: tuple[int, int] | None = None

    def __str__(self) -> str:
        words = [] if self.limits is None else [str(n).replace("-", "m") for n in self.limits]
        return "_".join([self.to.value, *words])

    @property
    def bounds(self) -> tuple[int, int]:
        info = np.iinfo(self.to.numpy)
        return self.limits or (int(info.min), int(info.max))

    def macros(self) -> dict[str, str | int]:
        """For `clipped.h`."""
        return {"SATURATE": f"ig_sat_{self.to.value}", **self.limit_macros()}

    def limit_macros(self) -> dict[str, str | int]:
        (low, high), info = self.bounds, np.iinfo(self.to.numpy)
        return {"LOW": low, "HIGH": high, "CLIPS_LOW": low > info.min, "CLIPS_HIGH": high < info.max}


def range_of(to: DType, low: int, high: int) -> Range:
    info = np.iinfo(to.numpy)
    return Range(to, None if low <= info.min and high >= info.max else (low, high))


_NO_LIMITS: dict[str, str | int] = {"LOW": 0, "HIGH": 0, "CLIPS_LOW": 0, "CLIPS_HIGH": 0}


@dataclass(frozen=True, slots=True)
class Finish:
    """From sums to results."""

    how: How
    out: Range

    def __str__(self) -> str:
        return f"{self.how}_{self.out}"

    @property
    def real(self) -> bool:
        """Are results floats?"""
        return self.how in (How.REAL, How.REALROW)

    @property
    def doubled(self) -> bool:
        """Does the C take sums doubled?"""
        return self.how in (How.TWICE, How.CLIPPED, How.ONCE)

    def quick_macros(self) -> dict[str, str | int]:
        """For `quick.h`."""
        ways = {how.name: self.how is how for how in (How.TWICE, How.CLIPPED)}
        return {**ways, "SIGNED": self.out.to is DType.I8, **(self.out.limit_macros() if self.doubled else _NO_LIMITS)}

    def macros(self) -> dict[str, str | int]:
        """For routines that finish sums."""
        names = {"FINISH": f"ig_finish_{self}", "Y_TYPE": C_TYPES[self.out.to], "DOUBLE": "* 2" if self.doubled else ""}
        return {**names, "SHIFT": 7 if self.doubled else 8, "REAL": self.real}


@dataclass(frozen=True, slots=True)
class Sum:
    """Another tensor is added."""

    larger: Side
    out: Range

    def __str__(self) -> str:
        return f"{self.larger}_{self.out}"


@dataclass(frozen=True, slots=True)
class Variant:
    """Of a product. For one column: whether channels have one factor (`shared`), what the column is, pairs or bytes, and whether
    it is multiplied by six channels at a time."""

    layout: Layout
    finish: Finish
    sum: Sum | None = None
    shared: bool | None = None
    column: str = ""
    sixes: bool = False

    def __str__(self) -> str:
        scales = "" if self.shared is None else "shared_" if self.shared else "each_"
        column = f"{self.column}_" if self.column else ""
        column += "sixes_" if self.sixes else ""
        return f"{column}{scales}{self.layout}_{self.finish}" + (f"_sum_{self.sum}" if self.sum else "")


_RANGE = r"(i8|u8|f32)(?:_(m?\d+)_(m?\d+))?"
_VARIANT = re.compile(
    rf"(?:(column|i8|u8)_)?(?:(sixes)_)?(?:(shared|each)_)?({'|'.join(Layout)})_({'|'.join(How)})_{_RANGE}(?:_sum_({'|'.join(Side)})_{_RANGE})?"
)


def parse_variant(text: str) -> Variant | None:
    """The variant of a product in an IR file, `qconv_dsp(joined_twice_i8)`; None: this is not one."""
    found = _VARIANT.fullmatch(text.partition("(")[2].removesuffix(")"))
    if found is None:
        return None
    column, sixes, scales, layout, how, to, low, high, larger, *second = found.groups()
    finish = Finish(How(how), _range(to, low, high))
    added = Sum(Side(larger), _range(*second)) if larger else None
    return Variant(Layout(layout), finish, added, None if scales is None else scales == "shared", column or "", sixes is not None)


def _range(to: str, low: str | None, high: str | None) -> Range:
    limits = None if low is None or high is None else (int(low.replace("m", "-")), int(high.replace("m", "-")))
    return Range(DType(to), limits)
