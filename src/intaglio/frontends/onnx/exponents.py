"""FLOAT8E8M0: powers of two, as the exponent of a float with nothing else. Made from the bits of f32 by ordinary operators."""

from __future__ import annotations

import numpy as np

from intaglio.frontends.building import cast
from intaglio.frontends.onnx.call import OnnxCall
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, BitwiseAnd, Equal, Greater, LogicalAnd, LogicalOr, Min, ShiftRight, Where
from intaglio.ops.small import BitCast

CODE = 24  # of the type in ONNX
NAN = 255


def exponent_table() -> Array:
    """The number of every code: 2**-127 to 2**127, and NaN."""
    with np.errstate(over="ignore"):
        table = np.ldexp(np.float32(1), np.arange(256) - 127).astype(np.float32)
    table[NAN] = np.nan
    return table


def exponent_code(call: OnnxCall, x: Value, saturate: bool) -> Value:
    """The nearest power of two, or the next above or below, as `round_mode` says. Infinity and NaN are NaN; the sign is lost."""
    mode = call.text("round_mode", "up")
    bits = call.emit(BitCast(DType.U32), cast(call, x, DType.F32))

    def number(n: int) -> Value:
        return call.like(n, bits)

    exponent = call.emit(BitwiseAnd(), call.emit(ShiftRight(), bits, number(23)), number(255))
    rest = call.emit(BitwiseAnd(), bits, number(0x7FFFFF))
    match mode:
        case "up":
            more = call.emit(Greater(), rest, number(0))
        case "nearest":
            half = call.emit(LogicalAnd(), call.emit(Equal(), rest, number(0x400000)), call.emit(Greater(), exponent, number(0)))
            more = call.emit(LogicalOr(), call.emit(Greater(), rest, number(0x400000)), half)
        case "down":
            more = call.emit(Greater(), number(0), rest)
        case _:
            raise Fault("bad-attribute", f"`{call.op}` has the rounding mode `{mode}`", "there are up, down and nearest")
    rounded = call.emit(Add(), exponent, cast(call, more, DType.U32))
    limited = call.emit(Min(), rounded, number(NAN - 1 if saturate else NAN))
    special = call.emit(Equal(), exponent, number(NAN))
    return cast(call, call.emit(Where(), special, number(NAN), limited), DType.U8)
