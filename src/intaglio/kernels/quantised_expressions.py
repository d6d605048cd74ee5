"""Rows of the operators between real numbers and integers, and of the elementwise integer operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Expr, Num, Op, Type, cast, select
from intaglio.ops.base import Elementwise
from intaglio.ops.convert import Dequantize, Quantize
from intaglio.ops.quantised import QAdd, QMul, Requantize
from intaglio.ops.quantised_elementwise import Lift, QDiv

_I32 = Type("i32")


def _scaled(value: Expr, multiplier: int, shift: int) -> Expr:
    return Op("fn_scale32", (value, Num(multiplier, _I32), Num(shift, _I32)), _I32)


def _centred(value: Expr, zero: int) -> Expr:
    wide = cast(value, _I32)
    return Op("sub", (wide, Num(zero, _I32)), _I32) if zero else wide


def _stored(k: Builder, value: Expr, op: Requantize | QAdd | QMul | QDiv) -> Expr:
    shifted = k.let("v", Op("add", (value, Num(op.y_zero, _I32)), _I32))
    low = Op("max", (shifted, Num(op.low, _I32)), _I32)
    return cast(Op("min", (low, Num(op.high, _I32)), _I32), Type(op.to.value))


def _quantize(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Quantize)
    wide = Lanes.scalar("f64")
    scaled: Expr = Op("div", (cast(a[0], a[1].type), a[1]), a[1].type)
    if not op.half_away and scaled.type == Type("f32") and op.to.bytes <= 2:
        nearest = Op("add", (Op("fn_nearest", (scaled,), _I32), cast(a[2], _I32)), _I32)
        low = Op("max", (k.let("v", nearest), Num(op.low, _I32)), _I32)
        return cast(Op("min", (low, Num(op.high, _I32)), _I32), Type(op.to.value))
    if op.half_away:
        scaled = k.let("scaled", scaled)
        half = Num(0.5, scaled.type)
        away = select(
            scaled.compare("lt", Num(0.0, scaled.type)),
            Op("sub", (scaled, half), scaled.type),
            Op("add", (scaled, half), scaled.type),
        )
        rounded = Op("fn_trunc", (away,), scaled.type)
    else:
        rounded = Op("fn_round", (scaled,), scaled.type)
    steps = cast(rounded, wide.type)
    moved = wide.add(steps, cast(a[2], wide.type))
    bounded = wide.lowest(wide.highest(moved, wide.const(op.low)), wide.const(op.high))
    return cast(bounded, Type(op.to.value))


def _dequantize(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Dequantize)
    real = Type("f64" if op.to is DType.F64 else "f32")
    narrow = all(v.type.kind in ("i8", "u8", "i16", "u16") for v in (a[0], a[2]))
    whole = _I32 if narrow else Type("i64")
    steps = Op("sub", (cast(a[0], whole), cast(a[2], whole)), whole)
    return Op("mul", (cast(steps, real), cast(a[1], real)), real)


def _requantize(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Requantize)
    return _stored(k, _scaled(_centred(a[0], op.x_zero), op.multiplier, op.shift), op)


def _qadd(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, QAdd)
    lift = Num(1 << op.lift, _I32)
    left = _scaled(Op("mul", (_centred(a[0], op.a_zero), lift), _I32), op.a_multiplier, op.a_shift)
    right = _scaled(Op("mul", (_centred(a[1], op.b_zero), lift), _I32), op.b_multiplier, op.b_shift)
    total = k.let("sum", Op("sub" if op.subtract else "add", (left, right), _I32))
    return _stored(k, _scaled(total, op.multiplier, op.shift), op)


def _qmul(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, QMul)
    product = Op("mul", (_centred(a[0], op.a_zero), _centred(a[1], op.b_zero)), _I32)
    return _stored(k, _scaled(product, op.multiplier, op.shift), op)


def _lift(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, Lift)
    lifted = Op("mul", (_centred(a[0], op.zero), Num(1 << op.bits, _I32)), _I32)
    return _scaled(lifted, op.multiplier, op.shift)


def _qdiv(k: Builder, e: Lanes, op: Elementwise, a: Sequence[Expr]) -> Expr:
    assert isinstance(op, QDiv)
    factor = (Num(op.multiplier, _I32), Num(op.shift, _I32))
    quotient = Op("fn_quotient", (_centred(a[0], op.a_zero), _centred(a[1], op.b_zero), *factor), _I32)
    return _stored(k, quotient, op)


QUANTISED: Mapping[str, Callable[[Builder, Lanes, Elementwise, Sequence[Expr]], Expr]] = {
    "quantize": _quantize,
    "dequantize": _dequantize,
    "requantize": _requantize,
    "qadd": _qadd,
    "qmul": _qmul,
    "lift": _lift,
    "qdiv": _qdiv,
}
