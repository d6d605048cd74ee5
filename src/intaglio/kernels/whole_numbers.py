"""Expressions of integer kernels: constants, widened loads, results within a range, scaling of sums."""

from __future__ import annotations

from intaglio.ir.types import DType
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Op, Type, cast

I32, I64 = Type("i32"), Type("i64")


def number(value: int, kind: Type = I32) -> Expr:
    return Num(int(value), kind)


def whole(buffer: Buffer, at: Expr, kind: Type = I32) -> Expr:
    """An element widened to the type of the sums."""
    return cast(Load(buffer, at, Type(buffer.dtype.value)), kind)


def bounded(value: Expr, low: int, high: int, to: DType) -> Expr:
    kind = value.type
    inside = Op("min", (Op("max", (value, number(low, kind)), kind), number(high, kind)), kind)
    return cast(inside, Type(to.value))


def scaled(sum_: Expr, multiplier: Expr, shift: Expr, how: str) -> Expr:
    """How a sum becomes a number of the result: scale32, scale_once or scale64."""
    return Op(f"fn_{how}", (sum_, multiplier, shift), I32)
