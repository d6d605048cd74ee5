"""From sums to bytes: the epilogue of every integer kernel that computes in vectors.

    v = high(acc, m)                  (acc * m + 2^30) >> 31
    v = shift_away(v, n)              rounded half away from zero            "twice"
    v = scale_once(acc, m, t)                                                "once"
    v = toint(min(tofloat(acc) * f))                                         "float"
    y = bytes(adds(narrow(v, v'), zero))      two vectors at a time; saturation is the clamp where the range is that of the type

Numbers per channel are constants, so what they need is known here: shifts to the left, roundings whose sum cannot overflow, a range
narrower than the type's. `scaling_by` gives the reason where 32 bits would not do; a plain kernel takes over then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.quantised import Quantised
from intaglio.kernels.isa import Isa
from intaglio.kernels.job import Job
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Op, Type
from intaglio.ops.fixed_point import FLOAT_LIMIT

Arrange = Callable[[Array], Array]  # numbers per channel in the order of the vectors


def i32(isa: Isa) -> Type:
    return Type("i32", isa.lanes)


def i16(isa: Isa) -> Type:
    return Type("i16", 2 * isa.lanes)


def vector(name: str, to: Type, *args: Expr) -> Expr:
    return Op(name, args, to)


def splat(isa: Isa, value: int) -> Expr:
    return Op("visplat", (Num(value, Type("i32")),), i32(isa))


def nearest(e: Lanes, real: Expr, small: bool = False) -> Expr:
    """A vector of floats as the nearest whole numbers, half to even; what is not a number is the lowest. `small` ones are known to
    be numbers that fit 32 bits."""
    inside = real if small else e.lowest(e.highest(real, e.const(-FLOAT_LIMIT)), e.const(FLOAT_LIMIT))
    return Op("vtoint", (inside,), i32(e.isa))


@dataclass(frozen=True, slots=True)
class Factor:
    """How sums are scaled: the constants as buffers (one vector per vector of channels), or splat when all channels share them."""

    isa: Isa
    how: str  # twice, once, float
    multiplier: Buffer | int | float
    left: Buffer | int | float | None = None  # shift before the product
    right: Buffer | int | float | None = None  # and after it; for `once` the whole shift
    half: Buffer | int | float | None = None  # half of 2^right, where adding it cannot overflow
    bias: Buffer | int | float | None = None  # of floats, added after the product
    small: bool = False  # scaled sums are known to fit 32 bits

    def constants(self, k: Builder, at: Expr, name: str = "") -> list[Expr | None]:
        """The constants of the vector of channels at `at`."""

        def one(stem: str, source: Buffer | int | float | None) -> Expr | None:
            if source is None:
                return None
            if isinstance(source, Buffer):
                kind = "f32" if source.dtype is DType.F32 else "i32"
                return k.let(f"{stem}{name}", Load(source, at, Type(kind, self.isa.lanes)))
            if isinstance(source, float):
                return Op("vsplat", (Num(source, Type("f32")),), Type("f32", self.isa.lanes))
            return splat(self.isa, source)

        sources = (self.multiplier, self.left, self.right, self.half, self.bias)
        return [one(stem, source) for stem, source in zip(("m", "left", "right", "half", "real"), sources, strict=True)]

    def apply(self, k: Builder, acc: Expr, constants: list[Expr | None]) -> Expr:
        """A vector of sums, scaled."""
        multiplier, left, right, half, bias = constants
        to = i32(self.isa)
        assert multiplier is not None
        if self.how == "float":
            real_type = Type("f32", self.isa.lanes)
            real: Expr = Op("vmul", (Op("vtofloat", (acc,), real_type), multiplier), real_type)
            real = Op("vadd", (real, bias), real_type) if bias is not None else real
            return k.let("v", nearest(Lanes(self.isa, self.isa.lanes), real, self.small))
        if self.how == "once":
            assert right is not None
            return k.let("v", vector("vscale_once", to, acc, multiplier, right))
        if left is not None:
            acc = k.let("lifted", vector("vishift_left", to, acc, left))
        value = k.let("high", vector("vhigh", to, acc, multiplier))
        if right is None:
            return value
        if half is not None:
            return k.let("v", vector("vshift_away_quick", to, value, right, half))
        return k.let("v", vector("vshift_away", to, value, right))


@dataclass(frozen=True, slots=True)
class Bytes:
    """How scaled sums become bytes of the result."""

    isa: Isa
    zero: int
    low: int
    high: int
    to: DType

    def store(self, k: Builder, y: Buffer, place: Expr, count: int, values: list[Expr], zipped: bool = False) -> None:
        """Two vectors as neighbouring bytes, or one alone; `count` of them are real."""
        isa = self.isa
        narrow = "vnarrow_zipped" if zipped else "vnarrow"
        v: Expr = vector(narrow, i16(isa), values[0], values[-1])
        if self.zero:
            v = vector("vadds_i16", i16(isa), v, self._splat(self.zero))
        limits = np.iinfo(self.to.numpy)
        if self.low > limits.min:
            v = vector("vmax_i16", i16(isa), v, self._splat(self.low))
        if self.high < limits.max:
            v = vector("vmin_i16", i16(isa), v, self._splat(self.high))
        to = Type(self.to.value, 2 * isa.lanes)
        k.store(y, place, vector(f"vbytes_{self.to.value}", to, v), count)

    def _splat(self, value: int) -> Expr:
        return Op("vsplat_i16", (Num(value, Type("i16")),), i16(self.isa))


@dataclass(frozen=True, slots=True)
class Scaling:
    """The numbers of a `Factor`, one per channel or one for all, known to be exact in steps of 32 bits."""

    how: str
    multiplier: Array
    left: Array | None = None
    right: Array | None = None
    half: Array | None = None
    bias: Array | None = None
    small: bool = False


def scaling_by(
    isa: Isa, how: str, multiplier: Array, shift: Array | None, bound: int, bias: Array | None = None
) -> Scaling | str:
    """The scaling of sums that are at most `bound` in size, or why steps of 32 bits would not be exact."""
    if bound >= 2**31:
        return "sums may not fit 32 bits"
    if how == "float":
        real, added = multiplier.astype(np.float32), None if bias is None else bias.astype(np.float32)
        largest = bound * float(np.abs(real).max(initial=0.0)) + (0.0 if added is None else float(np.abs(added).max(initial=0.0)))
        return Scaling(how, real, bias=added, small=largest < 2.0**30)
    assert shift is not None and bias is None
    m, s = multiplier.astype(np.int64), shift.astype(np.int64)
    if m.size == 0 or m.min() < 0 or s.max() > 30 or s.min() < -31:
        return "a multiplier is negative or a shift is out of range"
    if how == "once":
        total = 31 - s
        if any((bound * int(a) + (1 << int(t))) >> int(t) >= 2**31 for a, t in zip(m.flat, total.flat, strict=True)):
            return "scaled sums may not fit 32 bits"
        return Scaling(how, m, right=total)
    left, right = np.maximum(s, 0), np.maximum(-s, 0)
    if any(bound << int(n) >= 2**31 for n in left.flat):
        return "sums that are shifted to the left may not fit 32 bits"
    half = (1 << right) >> 1
    quick = "vshift_away_quick" in isa.table and bool((right > 0).all()) and bound + 1 + int(half.max()) < 2**31
    return Scaling(how, m, left if left.any() else None, right if right.any() else None, half if quick else None)


def scaling_of(numbers: Quantised, isa: Isa) -> Scaling | str:
    """The scaling of a contraction's sums."""
    bound = int(numbers.reach.max(initial=0))
    return scaling_by(isa, numbers.scaling, numbers.multiplier, numbers.shift, bound, numbers.real_bias)


def factor_of(job: Job, scaling: Scaling, arrange: Arrange = lambda values: values) -> Factor:
    """Constants in the kernel where all channels share them, packed ones where they do not."""

    def one(values: Array | None, name: str) -> Buffer | int | float | None:
        if values is None:
            return None
        real = values.dtype == np.float32
        if values.size and (values == values.flat[0]).all():
            return float(values.flat[0]) if real else int(values.flat[0])
        return job.packed(arrange(values if real else values.astype(np.int32)), name)

    multiplier = one(scaling.multiplier, "multiplier")
    assert multiplier is not None
    shift = "shift" if scaling.how == "once" else "right"
    rest = ((scaling.left, "left"), (scaling.right, shift), (scaling.half, "half"), (scaling.bias, "real_bias"))
    left, right, half, bias = (one(values, name) for values, name in rest)
    return Factor(job.isa, scaling.how, multiplier, left, right, half, bias, scaling.small)
