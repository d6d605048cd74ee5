"""Arithmetic, comparison, logic, activations."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import cast, reshape
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.exponents import CODE as EXPONENTS
from intaglio.frontends.onnx.exponents import exponent_code, exponent_table
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.random import dropped
from intaglio.frontends.onnx.tensors import DTYPES, PACKED, SMALL, dtype_of
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import (
    Celu,
    Clip,
    Elu,
    Gelu,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    Mish,
    Relu,
    Selu,
    Shrink,
    Sigmoid,
    Silu,
    Softplus,
    Softsign,
    Tanh,
    ThresholdedRelu,
)
from intaglio.ops.base import Elementwise
from intaglio.ops.binary import (
    Add,
    BitwiseAnd,
    BitwiseOr,
    BitwiseXor,
    Div,
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalOr,
    LogicalXor,
    Max,
    Min,
    Mod,
    Mul,
    Pow,
    Prelu,
    ShiftLeft,
    ShiftRight,
    Sub,
    Where,
)
from intaglio.ops.convert import Cast
from intaglio.ops.index import Gather, OneHot
from intaglio.ops.reduce import ArgReduce
from intaglio.ops.small import FORMATS, BitCast, NarrowFloat
from intaglio.ops.unary import (
    Abs,
    Acos,
    Acosh,
    Asin,
    Asinh,
    Atan,
    Atanh,
    BitwiseNot,
    Ceil,
    Cos,
    Cosh,
    Erf,
    Exp,
    Floor,
    IsInf,
    IsNan,
    Log,
    LogicalNot,
    Neg,
    Reciprocal,
    Round,
    Sign,
    Sin,
    Sinh,
    Sqrt,
    Tan,
)

UNARY: dict[str, Elementwise] = {
    "Neg": Neg(), "Abs": Abs(), "Relu": Relu(), "Sigmoid": Sigmoid(), "Tanh": Tanh(),
    "Exp": Exp(), "Log": Log(), "Sqrt": Sqrt(), "Reciprocal": Reciprocal(), "Floor": Floor(),
    "Ceil": Ceil(), "Round": Round(), "Sign": Sign(), "Sin": Sin(), "Cos": Cos(),
    "Tan": Tan(), "Asin": Asin(), "Acos": Acos(), "Atan": Atan(), "Sinh": Sinh(),
    "Cosh": Cosh(), "Asinh": Asinh(), "Acosh": Acosh(), "Atanh": Atanh(), "Erf": Erf(),
    "Softplus": Softplus(), "Softsign": Softsign(), "Mish": Mish(), "Not": LogicalNot(),
    "BitwiseNot": BitwiseNot(), "IsNaN": IsNan(), "HardSwish": HardSwish(),
}  # fmt: skip
BINARY: dict[str, Elementwise] = {
    "Add": Add(), "Sub": Sub(), "Mul": Mul(), "Div": Div(), "Pow": Pow(), "PRelu": Prelu(),
    "Equal": Equal(), "Less": Less(), "LessOrEqual": LessEqual(), "Greater": Greater(),
    "GreaterOrEqual": GreaterEqual(), "And": LogicalAnd(), "Or": LogicalOr(), "Xor": LogicalXor(),
    "BitwiseAnd": BitwiseAnd(), "BitwiseOr": BitwiseOr(), "BitwiseXor": BitwiseXor(),
}  # fmt: skip
VARIADIC: dict[str, Elementwise] = {"Sum": Add(), "Min": Min(), "Max": Max()}


@importer(*UNARY)
def unary(call: OnnxCall) -> Answer:
    x = call.value(0)
    if call.op in ("Floor", "Ceil", "Round") and x.dtype.is_int:
        return x
    return call.emit(UNARY[call.op], x)


@importer(*BINARY)
def binary(call: OnnxCall) -> Answer:
    a, b = call.value(0), call.value(1)
    if call.version < 7 and call.op != "PRelu":
        b = _old_broadcast(call, a, b)
    elif call.op == "PRelu" and len(b.shape) == 1 and len(a.shape) > 2 and b.shape[0] != a.shape[-1]:
        b = reshape(call, b, (*b.shape, *[1] * (len(a.shape) - 2)))  # one slope per channel, as before opset 7
    if call.op == "Equal" and a.dtype is not b.dtype:
        raise Fault("unsupported-type", f"`Equal` of {a.dtype.value} and {b.dtype.value} is not supported")
    return call.emit(BINARY[call.op], a, b)


def _old_broadcast(call: OnnxCall, a: Value, b: Value) -> Value:
    """Before opset 7: `b` lines up with `a` from `axis` on, when `broadcast` is set."""
    if not call.integer("broadcast"):
        return b
    axis = call.integer("axis", len(a.shape) - len(b.shape))
    return reshape(call, b, b.shape + (1,) * (len(a.shape) - axis - len(b.shape)))


@importer(*VARIADIC)
def variadic(call: OnnxCall) -> Answer:
    result, *rest = call.values()
    for value in rest:
        result = call.emit(VARIADIC[call.op], result, value)
    return result


@importer("Mean")
def mean(call: OnnxCall) -> Answer:
    values = call.values()
    total = values[0]
    for value in values[1:]:
        total = call.emit(Add(), total, value)
    return call.emit(Div(), total, call.like(len(values), total))


@importer("Mod")
def mod(call: OnnxCall) -> Answer:
    return call.emit(Mod(bool(call.integer("fmod"))), call.value(0), call.value(1))


@importer("BitShift")
def bit_shift(call: OnnxCall) -> Answer:
    direction = call.text("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise Fault("bad-attribute", f"`BitShift` in the direction `{direction}` is not valid")
    return call.emit(ShiftLeft() if direction == "LEFT" else ShiftRight(), call.value(0), call.value(1))


@importer("IsInf")
def is_inf(call: OnnxCall) -> Answer:
    op = IsInf(bool(call.integer("detect_negative", 1)), bool(call.integer("detect_positive", 1)))
    return call.emit(op, call.value(0))


@importer("LeakyRelu")
def leaky_relu(call: OnnxCall) -> Answer:
    return call.emit(LeakyRelu(call.real("alpha", 0.01)), call.value(0))


@importer("Elu")
def elu(call: OnnxCall) -> Answer:
    return call.emit(Elu(call.real("alpha", 1.0)), call.value(0))


@importer("Celu")
def celu(call: OnnxCall) -> Answer:
    alpha = call.real("alpha", 1.0)
    if alpha == 0:
        raise Fault("bad-attribute", "`alpha` of `Celu` is 0")
    return call.emit(Celu(alpha), call.value(0))


@importer("Selu")
def selu(call: OnnxCall) -> Answer:
    standard = Selu()
    op = Selu(call.real("alpha", standard.alpha), call.real("gamma", standard.gamma))
    return call.emit(op, call.value(0))


@importer("ThresholdedRelu")
def thresholded_relu(call: OnnxCall) -> Answer:
    return call.emit(ThresholdedRelu(call.real("alpha", 1.0)), call.value(0))


@importer("HardSigmoid")
def hard_sigmoid(call: OnnxCall) -> Answer:
    return call.emit(HardSigmoid(call.real("alpha", 0.2), call.real("beta", 0.5)), call.value(0))


@importer("Gelu")
def gelu(call: OnnxCall) -> Answer:
    form = call.text("approximate", "none")
    if form not in ("none", "tanh"):
        raise Fault("bad-attribute", f"`Gelu` approximated by `{form}` is not valid")
    return call.emit(Gelu(form == "tanh"), call.value(0))


@importer("Swish")
def swish(call: OnnxCall) -> Answer:
    x, alpha = call.value(0), call.real("alpha", 1.0)
    if alpha == 1.0:
        return call.emit(Silu(), x)
    return call.emit(Mul(), x, call.emit(Sigmoid(), call.emit(Mul(), x, call.like(alpha, x))))


@importer("Shrink")
def shrink(call: OnnxCall) -> Answer:
    return call.emit(Shrink(call.real("bias", 0.0), call.real("lambd", 0.5)), call.value(0))


@importer("Clip")
def clip(call: OnnxCall) -> Answer:
    """Bounds were attributes until opset 11; as operands they may be data."""
    x = call.value(0)
    if call.version < 11:
        low, high = call.real("min", -math.inf), call.real("max", math.inf)
        return call.emit(Clip(low, high), x)
    bounds = [call.maybe(1), call.maybe(2)]
    if all(b is None or (b.data is not None and b.type.elements == 1 and _exact(b)) for b in bounds):
        low, high = (
            default if b is None else float(call.numbers(i + 1, "bounds").reshape(-1)[0])
            for i, (b, default) in enumerate(zip(bounds, (-math.inf, math.inf), strict=True))
        )
        if not (math.isnan(low) or math.isnan(high)):
            return call.emit(Clip(low, high), x)
    for bound, op in zip(bounds, (Max(), Min()), strict=True):
        if bound is not None:
            x = call.emit(op, x, reshape(call, bound, ()))
    return x


def _exact(bound: Value) -> bool:
    """Whether a bound survives the way through a double."""
    assert bound.data is not None
    return not bound.dtype.is_int or abs(int(bound.data.reshape(-1)[0])) <= 2**53


@importer("Cast")
def cast_row(call: OnnxCall) -> Answer:
    if "to" in call.attributes and call.attributes["to"].type == 3:  # a string before opset 6
        raise unsupported("`Cast` names its type by a string, as before opset 6", "convert it to opset 7 or newer")
    return cast_to(call, call.value(0), call.integer("to"))


@importer("CastLike")
def cast_like(call: OnnxCall) -> Answer:
    like = call.value(1)
    if like in call.walk.packed:
        return cast_to(call, call.value(0), call.walk.packed[like])
    return cast_to(call, call.value(0), next(code for code, dtype in DTYPES.items() if dtype is like.dtype))


def widened(call: OnnxCall, x: Value) -> Value:
    """The numbers of codes, by their table."""
    kind = call.walk.packed.get(x)
    if kind not in SMALL:
        return x
    table = call.constant(exponent_table() if kind == EXPONENTS else FORMATS[SMALL[kind]].table())
    return call.emit(Gather(0), table, cast(call, x, DType.I64))


def cast_to(call: OnnxCall, x: Value, code: int) -> Value:
    """To a type of ONNX, which may be smaller than a byte."""
    kind = call.walk.packed.get(x)
    if kind == code:
        return x
    x = widened(call, x)
    saturate = bool(call.integer("saturate", 1))
    if code == EXPONENTS:
        y = exponent_code(call, x, saturate)
    elif code in SMALL:
        y = call.emit(NarrowFloat(SMALL[code], saturate or SMALL[code] == "f4e2m1"), cast(call, x, DType.F32))
    elif code in PACKED:
        y = _wrapped(call, x, *PACKED[code])
    else:
        to = dtype_of(code, "the result of `Cast`")
        return x if x.dtype is to else call.emit(Cast(to, saturate), x)
    call.walk.packed[y] = code
    return y


def _wrapped(call: OnnxCall, x: Value, to: DType, bits: int) -> Value:
    """The low bits of a whole number."""
    wide = call.emit(BitwiseAnd(), cast(call, x, DType.I32), call.constant(np.asarray(2**bits - 1, np.int32)))
    if to is DType.I8:  # the highest bit is the sign
        half = call.constant(np.asarray(2 ** (bits - 1), np.int32))
        wide = call.emit(Sub(), call.emit(BitwiseXor(), wide, half), half)
    return cast(call, wide, to)


@importer("Where")
def where(call: OnnxCall) -> Answer:
    return call.emit(Where(), call.value(0), call.value(1), call.value(2))


@importer("Identity", "Dropout")
def identity(call: OnnxCall) -> Answer:
    x = call.item(0)
    if call.op == "Dropout":
        training = call.maybe_numbers(2, "training mode") if call.version >= 12 else None
        ratio = call.maybe_numbers(1, "ratio") if call.version >= 12 and training is not None else None
        value, share = call.value(0), 0.5 if ratio is None else float(ratio.reshape(-1)[0])
        if training is not None and bool(training.reshape(-1)[0]) and share:
            return list(dropped(call, value, share))
        kept = call.version >= 12  # before, ONNX Runtime's mask is false, or 0, where nothing is dropped
        kind = np.bool_ if call.version >= 10 else value.dtype.numpy
        return [value, call.constant(np.full(value.shape, kept, kind))] if call.outputs > 1 else value
    return x


@importer("BitCast")
def bit_cast(call: OnnxCall) -> Answer:
    x = call.value(0)
    to = dtype_of(call.integer("to"), "the result of `BitCast`")
    if to.bytes != x.dtype.bytes:
        raise unsupported("`BitCast` between types of different size is not supported")
    return x if to is x.dtype else call.emit(BitCast(to), x)


@importer("Hardmax")
def hardmax(call: OnnxCall) -> Answer:
    x = call.value(0)
    axis = call.axis(len(x.shape), -1 if call.version >= 13 else 1)
    shape = x.shape
    if call.version < 13:
        x = reshape(call, x, (math.prod(shape[:axis]), math.prod(shape[axis:])))
        axis = 1
    best = call.emit(ArgReduce("max", axis, False), x)
    values = call.constant(np.array([0, 1], np.float32))
    hot = call.emit(OneHot(x.shape[axis], axis), best, cast(call, values, x.dtype))
    return reshape(call, hot, shape)


def bool_constant(call: OnnxCall, flag: bool) -> Value:
    return call.constant(np.asarray(flag), DType.BOOL)
