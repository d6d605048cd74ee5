"""What an instruction set is: a value with the C text of each instruction.

With L lanes of 32 bits (16 with AVX-512, 8 with AVX2, 4 with NEON), sums are `i32xL`; activations and taps wait as vectors of 2L
numbers of 16 bits; results leave as 2L bytes. A `Dot` multiplies groups of neighbouring numbers and adds each group into one sum:

    vdot2(acc, a, w)    acc[i] + a[2i] * w[2i] + a[2i+1] * w[2i+1]                         16 bits, exact
    vdot4_pairs         the same of four, u8 times i8, where a pair must fit 16 bits       a check of the weights at compile time
    vdot4_u8, vdot4_i8  four, exact: VNNI, NEON's dot product
    vmmla_i8            eight, of two rows and two columns at once: acc[2r+c] + sum of a[8r+i] * w[8c+i]     Arm's i8mm
    vdot1               one, 16 bits: NEON without
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType


@dataclass(frozen=True, slots=True)
class Dot:
    """A dot product: `group` numbers of type `x` (plus those of `w`) end in one sum. `pairs`: two products must fit 16 bits."""

    name: str
    group: int
    x: DType
    w: DType
    pairs: bool = False
    narrow_weights: bool = False  # 16-bit weights that fit 8 bits are stored in 8 and widened when loaded
    rows: int = 1  # of x that one instruction takes: 2 rows times 2 columns in a vector of sums

    def takes(self, weights: Array) -> bool:
        """Are the products of these weights, laid out [..., groups, group], exact?"""
        info = np.iinfo(self.w.numpy)
        if weights.size == 0 or int(weights.min()) < info.min or int(weights.max()) > info.max:
            return False
        if not self.pairs:
            return True
        pairs = weights.reshape(-1, 2).astype(np.int64)
        high = np.maximum(pairs, 0).sum(axis=1).max() * 255
        low = np.minimum(pairs, 0).sum(axis=1).min() * 255
        return bool(high <= 32767 and low >= -32768)


@dataclass(frozen=True, slots=True)
class Integers:
    """What an instruction set has for integers. `taps` is how many taps a depthwise step takes: 2 zipped, or 1."""

    dots: tuple[Dot, ...] = ()
    taps: int = 0
    types: Mapping[str, str] | None = None
    loads: Mapping[str, str] | None = None
    stores: Mapping[str, str] | None = None
    table: Mapping[str, str] | None = None
    prelude: str = ""


NO_INTEGERS = Integers()


@dataclass(frozen=True, slots=True)
class Isa:
    name: str
    lanes: int
    float_type: str
    int_type: str
    mask_type: str
    load: str
    store: str
    table: Mapping[str, str]
    prelude: str
    integers: Integers = NO_INTEGERS
    narrow: Mapping[str, str] = field(default_factory=dict)  # functions that load i8 and f16 as f32
    dsp: bool = False  # pairs of 16-bit numbers in general registers: `kernels/dsp`
    fused: bool = False  # one lane: a * b + c is one instruction

    def with_integers(self, integers: Integers, name: str = "") -> Isa:
        return replace(self, name=name or self.name, integers=integers, table={**self.table, **(integers.table or {})})
