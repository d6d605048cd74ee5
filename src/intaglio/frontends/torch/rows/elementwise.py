"""Element by element: functions of one tensor, arithmetic of two with torch's type promotion, comparisons, casts."""

from __future__ import annotations

import math

from intaglio.frontends import building
from intaglio.frontends.building import cast, expand, part, reshape
from intaglio.frontends.fourier import Complex
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import Answer, TorchCall, row
from intaglio.frontends.torch.program import COMPLEX, Kind
from intaglio.frontends.torch.rows.found import found_axes
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
)
from intaglio.ops.base import Op
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
    Erfc,
    Exp,
    Expm1,
    Floor,
    IsInf,
    IsNan,
    Log,
    Log1p,
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

FUNCTIONS: dict[str, type[Op]] = {
    "exp": Exp, "log": Log, "sqrt": Sqrt, "reciprocal": Reciprocal, "sin": Sin, "cos": Cos, "tan": Tan,
    "asin": Asin, "arcsin": Asin, "acos": Acos, "arccos": Acos, "atan": Atan, "arctan": Atan,
    "sinh": Sinh, "cosh": Cosh, "asinh": Asinh, "acosh": Acosh, "atanh": Atanh, "erf": Erf,
    "special_erf": Erf, "erfc": Erfc, "special_erfc": Erfc, "sigmoid": Sigmoid, "special_expit": Sigmoid, "tanh": Tanh,
    "silu": Silu, "mish": Mish, "hardswish": HardSwish, "expm1": Expm1, "special_expm1": Expm1, "log1p": Log1p,
    "special_log1p": Log1p,
}  # fmt: skip
WHOLE: dict[str, type[Op]] = {"floor": Floor, "ceil": Ceil, "round": Round}
ANY: dict[str, type[Op]] = {
    "relu": Relu, "abs": Abs, "absolute": Abs, "neg": Neg, "negative": Neg, "sign": Sign, "sgn": Sign,
}  # fmt: skip


@row(*FUNCTIONS)
def function(call: TorchCall) -> Answer:
    return call.emit(FUNCTIONS[call.op](), call.floats(call.first()))


@row(*ANY)
def of_any(call: TorchCall) -> Answer:
    return call.emit(ANY[call.op](), call.first())


@row(*WHOLE)
def whole(call: TorchCall) -> Answer:
    x = call.first()
    if not x.dtype.is_float:
        return x
    if call.op == "round" and (decimals := call.integer("decimals", 0)):
        scale = call.like(10.0**decimals, x)
        return call.emit(Div(), call.emit(Round(), call.emit(Mul(), x, scale)), scale)
    return call.emit(WHOLE[call.op](), x)


def trunc(call: TorchCall, x: Value) -> Value:
    if not x.dtype.is_float:
        return x
    below = call.emit(Less(), x, call.like(0, x))
    return call.emit(Where(), below, call.emit(Ceil(), x), call.emit(Floor(), x))


@row("trunc", "fix", "frac")
def trunc_row(call: TorchCall) -> Answer:
    x = call.first()
    return call.emit(Sub(), x, trunc(call, x)) if call.op == "frac" else trunc(call, x)


@row("rsqrt", "square", "log2", "log10", "exp2", "sinc", "deg2rad", "rad2deg", "logit")
def derived(call: TorchCall) -> Answer:
    x = call.first()
    if call.op == "square":
        return call.emit(Mul(), x, x)
    x = call.floats(x)
    one = call.like(1, x)
    match call.op:
        case "rsqrt":
            return call.emit(Reciprocal(), call.emit(Sqrt(), x))
        case "log2" | "log10":
            return call.emit(Mul(), call.emit(Log(), x), call.like(1 / math.log(2 if call.op == "log2" else 10), x))
        case "exp2":
            return call.emit(Exp(), call.emit(Mul(), x, call.like(math.log(2), x)))
        case "deg2rad" | "rad2deg":
            return call.emit(Mul(), x, call.like(math.pi / 180 if call.op == "deg2rad" else 180 / math.pi, x))
        case "logit":
            if call.get("eps") is not None:
                eps = call.real("eps")
                x = call.emit(Clip(eps, 1 - eps), x)
            return call.emit(Log(), call.emit(Div(), x, call.emit(Sub(), one, x)))
        case _:
            angle = call.emit(Mul(), x, call.like(math.pi, x))
            ratio = call.emit(Div(), call.emit(Sin(), angle), angle)
            return call.emit(Where(), call.emit(Equal(), x, call.like(0, x)), one, ratio)


# Activations ----------------------------------------------------------------------------------------------------------


@row("leaky_relu", "elu", "selu", "celu", "gelu", "hardsigmoid", "softplus", "softsign", "relu6", "hardtanh", "log_sigmoid",
     "log_sigmoid_forward", "softshrink", "hardshrink", "tanhshrink", "threshold", "rrelu", "rrelu_with_noise",
     "rrelu_with_noise_functional")  # fmt: skip
def activation(call: TorchCall) -> Answer:
    x = call.first()
    match call.op:
        case "leaky_relu":
            return call.emit(LeakyRelu(call.real("negative_slope", 0.01)), x)
        case "rrelu" | "rrelu_with_noise" | "rrelu_with_noise_functional":
            if call.flag("training"):
                raise unsupported("`rrelu` in training is not supported", "export with `model.eval()`")
            y = call.emit(LeakyRelu((call.real("lower", 0.125) + call.real("upper", 1 / 3)) / 2), x)
            return [y, None] if call.op.endswith("functional") else y
        case "elu":
            return _elu(call, x)
        case "selu":
            return call.emit(Selu(), x)
        case "celu":
            return call.emit(Celu(call.real("alpha", 1.0)), x)
        case "gelu":
            return call.emit(Gelu(call.text("approximate", "none") == "tanh"), x)
        case "hardsigmoid":
            return call.emit(HardSigmoid(1 / 6, 0.5), x)
        case "relu6":
            return call.emit(Clip(0.0, 6.0), x)
        case "hardtanh":
            return call.emit(Clip(call.real("min_val", -1.0), call.real("max_val", 1.0)), x)
        case "softsign":
            return call.emit(Softsign(), x)
        case "softplus":
            beta = call.real("beta", 1.0)
            if beta == 1.0:
                return call.emit(Softplus(), x)
            return call.emit(Div(), call.emit(Softplus(), call.emit(Mul(), x, call.like(beta, x))), call.like(beta, x))
        case "log_sigmoid" | "log_sigmoid_forward":
            y = call.emit(Neg(), call.emit(Softplus(), call.emit(Neg(), x)))
            return [y, None] if call.op == "log_sigmoid_forward" else y
        case "softshrink":
            lambd = call.real("lambd", 0.5)
            return call.emit(Shrink(lambd, lambd), x)
        case "hardshrink":
            return call.emit(Shrink(0.0, call.real("lambd", 0.5)), x)
        case "tanhshrink":
            return call.emit(Sub(), x, call.emit(Tanh(), x))
        case _:
            above = call.emit(Greater(), x, call.like(call.real("threshold"), x))
            return call.emit(Where(), above, x, call.like(call.real("value"), x))


def _elu(call: TorchCall, x: Value) -> Value:
    alpha, scale, inner = call.real("alpha", 1.0), call.real("scale", 1.0), call.real("input_scale", 1.0)
    if scale == inner == 1.0:
        return call.emit(Elu(alpha), x)
    bent = call.emit(Elu(alpha), call.emit(Mul(), x, call.like(inner, x)))
    y = call.emit(Where(), call.emit(Greater(), x, call.like(0, x)), x, bent)
    return call.emit(Mul(), y, call.like(scale, x))


@row("prelu", "_prelu_kernel")
def prelu(call: TorchCall) -> Answer:
    x, slope = call.first(), call.tensor("weight")
    if call.op == "prelu" and slope.type.elements > 1:
        slope = reshape(call, slope, (1, slope.type.elements, *(1,) * (len(x.shape) - 2)))
    elif call.op == "prelu":
        slope = reshape(call, slope, ())
    return call.emit(Prelu(), x, slope)


@row("glu")
def glu(call: TorchCall) -> Answer:
    x = call.first()
    axis = call.dim("dim", len(x.shape), -1)
    half = x.shape[axis] // 2
    gate = call.emit(Sigmoid(), part(call, x, axis, half, half))
    return call.emit(Mul(), part(call, x, axis, 0, half), gate)


@row("clamp", "clip", "clamp_min", "clamp_max")
def clamp(call: TorchCall) -> Answer:
    x = call.first()
    low, high = call.get("min"), call.get("max")
    if not isinstance(low, Value) and not isinstance(high, Value):
        small, large = (-math.inf if low is None else float(low)), (math.inf if high is None else float(high))
        if not x.dtype.is_float and any(isinstance(b, float) for b in (low, high)):
            x = cast(call, x, DType.F32)
        return call.emit(Clip(small, large), x)
    for bound, op, name in ((low, Max(), "min"), (high, Min(), "max")):
        if bound is not None:
            x = call.emit(op, *_pair(call, x, call.tensor(name)))
    return x


def _pair(call: TorchCall, a: Value, b: Value) -> list[Value]:
    from intaglio.frontends.torch.call import promoted

    dtype = promoted(a, b)
    return [cast(call, a, dtype), cast(call, b, dtype)]


# Two operands ---------------------------------------------------------------------------------------------------------


@row("add", "sub", "subtract", "rsub")
def add(call: TorchCall) -> Answer:
    a, b = call.operands("self", "other")
    if a.dtype is DType.BOOL and call.op == "add":
        return call.emit(LogicalOr(), a, b)
    alpha = call.number("alpha", 1)
    a, b = (b, a) if call.op == "rsub" else (a, b)
    if alpha != 1:
        b = call.emit(Mul(), b, call.like(alpha, b))
    return call.emit(Add() if call.op == "add" else Sub(), a, b)


@row("mul", "multiply")
def mul(call: TorchCall) -> Answer:
    a, b = call.operands("self", "other")
    return call.emit(LogicalAnd() if a.dtype is DType.BOOL else Mul(), a, b)


@row("div", "divide", "true_divide", "floor_divide")
def div(call: TorchCall) -> Answer:
    a, b = call.operands("self", "other")
    mode = "floor" if call.op == "floor_divide" else call.text("rounding_mode")
    if not mode:
        return call.emit(Div(), call.floats(a), call.floats(b))
    if a.dtype.is_float:
        y = call.emit(Div(), a, b)
        return call.emit(Floor(), y) if mode == "floor" else trunc(call, y)
    if mode == "floor":
        a = call.emit(Sub(), a, call.emit(Mod(), a, b))
    return call.emit(Div(), a, b)


BINARY: dict[str, Op] = {
    "remainder": Mod(), "fmod": Mod(fmod=True), "maximum": Max(), "minimum": Min(), "fmax": Max(),
    "fmin": Min(), "eq": Equal(), "lt": Less(), "less": Less(), "le": LessEqual(),
    "less_equal": LessEqual(),
    "gt": Greater(), "greater": Greater(), "ge": GreaterEqual(), "greater_equal": GreaterEqual(),
}  # fmt: skip


@row(*BINARY)
def binary(call: TorchCall) -> Answer:
    return call.emit(BINARY[call.op], *call.operands("self", "other"))


@row("ne", "not_equal")
def not_equal(call: TorchCall) -> Answer:
    return call.emit(LogicalNot(), call.emit(Equal(), *call.operands("self", "other")))


@row("pow", "float_power")
def power(call: TorchCall) -> Answer:
    a, b = call.operands("self", "exponent")
    exponent = call.get("exponent")
    if call.op == "float_power":
        a, b = cast(call, a, DType.F64), cast(call, b, DType.F64)
    if not isinstance(exponent, Value):
        if exponent == 1:
            return a
        if exponent == 2:
            return call.emit(Mul(), a, a)
        if exponent in (0.5, -0.5):
            root = call.emit(Sqrt(), a)
            return root if exponent > 0 else call.emit(Reciprocal(), root)
        if exponent == -1:
            return call.emit(Reciprocal(), a)
    return call.emit(Pow(), a, b)


@row("atan2", "arctan2")
def atan2(call: TorchCall) -> Answer:
    y, x = (call.floats(v) for v in call.operands("self", "other"))
    return building.atan2(call, y, x)


@row("hypot")
def hypot(call: TorchCall) -> Answer:
    a, b = call.operands("self", "other")
    return call.emit(Sqrt(), call.emit(Add(), call.emit(Mul(), a, a), call.emit(Mul(), b, b)))


@row("addcmul", "addcdiv")
def addcmul(call: TorchCall) -> Answer:
    x, a, b = call.tensor("self"), call.tensor("tensor1"), call.tensor("tensor2")
    y = call.emit(Mul() if call.op == "addcmul" else Div(), a, b)
    value = call.number("value", 1)
    y = y if value == 1 else call.emit(Mul(), y, call.like(value, y))
    return call.emit(Add(), x, y)


@row("lerp")
def lerp(call: TorchCall) -> Answer:
    a, b = call.tensor("self"), call.tensor("end")
    weight = call.typed(call.get("weight"), a.dtype)
    return call.emit(Add(), a, call.emit(Mul(), weight, call.emit(Sub(), b, a)))


# Bits and truth ---------------------------------------------------------------------------------------------------------


BITS: dict[str, tuple[Op, Op]] = {
    "and": (LogicalAnd(), BitwiseAnd()), "or": (LogicalOr(), BitwiseOr()),
    "xor": (LogicalXor(), BitwiseXor()),
}  # fmt: skip


@row(*[name.format(k) for k in BITS for name in ("bitwise_{}", "__{}__", "__i{}__")])
def bitwise(call: TorchCall) -> Answer:
    a, b = call.operands("self", "other")
    logical, bits = BITS[call.op.removeprefix("bitwise_").strip("_").removeprefix("i")]
    return call.emit(logical if a.dtype is DType.BOOL else bits, a, b)


@row("logical_and", "logical_or", "logical_xor")
def logical(call: TorchCall) -> Answer:
    a, b = (cast(call, call.tensor(name), DType.BOOL) for name in ("self", "other"))
    return call.emit(BITS[call.op.removeprefix("logical_")][0], a, b)


@row("logical_not", "bitwise_not")
def invert(call: TorchCall) -> Answer:
    x = call.first()
    if call.op == "bitwise_not" and x.dtype is not DType.BOOL:
        return call.emit(BitwiseNot(), x)
    return call.emit(LogicalNot(), cast(call, x, DType.BOOL))


@row("bitwise_left_shift", "__lshift__", "bitwise_right_shift", "__rshift__")
def shift(call: TorchCall) -> Answer:
    left = call.op in ("bitwise_left_shift", "__lshift__")
    return call.emit(ShiftLeft() if left else ShiftRight(), *call.operands("self", "other"))


@row("isnan", "isinf", "isfinite", "signbit")
def told(call: TorchCall) -> Answer:
    x = call.first()
    if call.op == "signbit":
        return call.emit(Less(), x, call.like(0, x))
    if not x.dtype.is_float:
        return expand(call, call.constant(call.op == "isfinite"), x.shape)
    if call.op == "isnan":
        return call.emit(IsNan(), x)
    if call.op == "isinf":
        return call.emit(IsInf(), x)
    return call.emit(LogicalNot(), call.emit(LogicalOr(), call.emit(IsNan(), x), call.emit(IsInf(), x)))


LARGEST = {DType.F16: 65504.0, DType.BF16: 3.3895313892515355e38, DType.F64: 1.7976931348623157e308}


@row("nan_to_num")
def nan_to_num(call: TorchCall) -> Answer:
    x = call.first()
    if not x.dtype.is_float:
        return x
    most = LARGEST.get(x.dtype, 3.4028234663852886e38)
    for test, name, default in (
        (IsNan(), "nan", 0.0), (IsInf(negative=False), "posinf", most), (IsInf(positive=False), "neginf", -most),
    ):  # fmt: skip
        x = call.emit(Where(), call.emit(test, x), call.like(call.real(name, default), x), x)
    return x


@row("where")
def where(call: TorchCall) -> Answer:
    if call.get("self") is None:
        return found_axes(call, call.tensor("condition"))
    a, b = call.operands("self", "other")
    return call.emit(Where(), cast(call, call.tensor("condition"), DType.BOOL), a, b)


@row("masked_fill")
def masked_fill(call: TorchCall) -> Answer:
    x, mask = call.tensor("self"), call.tensor("mask")
    y = call.emit(Where(), cast(call, mask, DType.BOOL), call.typed(call.get("value"), x.dtype), x)
    return expand(call, y, y.shape)


# Types ------------------------------------------------------------------------------------------------------------------


@row("to", "_to_copy", "type_as", "float", "double", "half", "int", "long", "bool")
def to(call: TorchCall) -> Answer:
    x, kind = call.first(), call.get("dtype")
    if isinstance(kind, Kind) and kind.code in COMPLEX:
        wide = cast(call, x, COMPLEX[kind.code])
        return Complex(wide, call.emit(Mul(), wide, call.like(0.0, wide)))
    dtype = call.dtype() if call.op in ("to", "_to_copy") else call.tensor("other").dtype if call.op == "type_as" else None
    if dtype is None and isinstance(call.get("other"), Value):
        dtype = call.tensor("other").dtype
    return x if dtype is None else cast(call, x, dtype)


@row("_autocast_to_full_precision", "_autocast_to_reduced_precision", "_conj", "conj", "resolve_conj", "resolve_neg", "real")
def same(call: TorchCall) -> Answer:
    return call.first()


@row("copy")
def copy(call: TorchCall) -> Answer:
    x = call.tensor("self")
    return expand(call, cast(call, call.tensor("src"), x.dtype), x.shape)


@row("fill", "zero")
def fill(call: TorchCall) -> Answer:
    x = call.first()
    value = call.get("value") if call.op == "fill" else 0
    if value is None:
        raise Fault("bad-attribute", "`fill` has no value")
    return expand(call, call.typed(value, x.dtype), x.shape)
