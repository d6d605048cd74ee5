"""Rows of the elementwise integer operators that need a function of their own."""

from __future__ import annotations

from collections.abc import Sequence

from intaglio.kernels.expressions import row
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Builder, Expr, Num, Op, Type, cast
from intaglio.ops.base import Elementwise
from intaglio.ops.quantised_elementwise import Lift, QDiv

_I32 = Type("i32")


def _number(value: int) -> Expr:
    return Num(value, _I32)


def _centred(value: Expr, zero: int) -> Expr:
    wide = cast(value, _I32)
    return Op("sub", (wide, _number(zero)), _I32) if zero else wide


@row("lift")
def _lift(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Lift)
    lifted = Op("mul", (_centred(a[0], op.zero), _number(1 << op.bits)), _I32)
    return Op("fn_scale32", (lifted, _number(op.multiplier), _number(op.shift)), _I32)


@row("qdiv")
def _qdiv(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, QDiv)
    operands = (_centred(a[0], op.a_zero), _centred(a[1], op.b_zero), _number(op.multiplier), _number(op.shift))
    value = k.let("v", Op("add", (Op("fn_quotient", operands, _I32), _number(op.y_zero)), _I32))
    low = Op("max", (value, _number(op.low)), _I32)
    return cast(Op("min", (low, _number(op.high)), _I32), Type(op.to.value))
