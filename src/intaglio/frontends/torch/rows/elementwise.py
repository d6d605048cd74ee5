"""Element by element: functions of one tensor, arithmetic of two with torch's type promotion, comparisons, casts."""

from __future__ import annotations

import math

from intaglio import ops
from intaglio.frontends.building import cast, expand, part, reshape
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import Answer, Call, row
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.base import Op

FUNCTIONS: dict[str, type[Op]] = {
    "exp": ops.Exp, "log": ops.Log, "sqrt": ops.Sqrt, "reciprocal": ops.Reciprocal, "sin": ops.Sin, "cos": ops.Cos, "tan": ops.Tan,
    "asin": ops.Asin, "arcsin": ops.Asin, "acos": ops.Acos, "arccos": ops.Acos, "atan": ops.Atan, "arctan": ops.Atan,
    "sinh": ops.Sinh, "cosh": ops.Cosh, "asinh": ops.Asinh, "acosh": ops.Acosh, "atanh": ops.Atanh, "erf": ops.Erf,
    "special_erf": ops.Erf, "sigmoid": ops.Sigmoid, "special_expit": ops.Sigmoid, "tanh": ops.Tanh, "silu": ops.Silu,
    "mish": ops.Mish, "hardswish": ops.HardSwish,
}  # fmt: skip
WHOLE: dict[str, type[Op]] = {"floor": ops.Floor, "ceil": ops.Ceil, "round": ops.Round}
ANY: dict[str, type[Op]] = {
    "relu": ops.Relu, "abs": ops.Abs, "absolute": ops.Abs, "neg": ops.Neg, "negative": ops.Neg, "sign": ops.Sign, "sgn": ops.Sign,
}  # fmt: skip


@row(*FUNCTIONS)
def function(call: Call) -> Answer:
    return call.emit(FUNCTIONS[call.op](), call.floats(call.first()))


@row(*ANY)
def of_any(call: Call) -> Answer:
    return call.emit(ANY[call.op](), call.first())


@row(*WHOLE)
def whole(call: Call) -> Answer:
    x = call.first()
    if not x.dtype.is_float:
        return x
    if call.op == "round" and (decimals := call.integer("decimals", 0)):
        scale = call.like(10.0**decimals, x)
        return call.emit(ops.Div(), call.emit(ops.Round(), call.emit(ops.Mul(), x, scale)), scale)
    return call.emit(WHOLE[call.op](), x)


def trunc(call: Call, x: Value) -> Value:
    if not x.dtype.is_float:
        return x
    below = call.emit(ops.Less(), x, call.like(0, x))
    return call.emit(ops.Where(), below, call.emit(ops.Ceil(), x), call.emit(ops.Floor(), x))


@row("trunc", "fix", "frac")
def trunc_row(call: Call) -> Answer:
    x = call.first()
    return call.emit(ops.Sub(), x, trunc(call, x)) if call.op == "frac" else trunc(call, x)


@row("rsqrt", "square", "expm1", "log1p", "log2", "log10", "exp2", "erfc", "sinc", "deg2rad", "rad2deg", "logit")
def derived(call: Call) -> Answer:
    x = call.first()
    if call.op == "square":
        return call.emit(ops.Mul(), x, x)
    x = call.floats(x)
    one = call.like(1, x)
    match call.op:
        case "rsqrt":
            return call.emit(ops.Reciprocal(), call.emit(ops.Sqrt(), x))
        case "expm1":
            return call.emit(ops.Sub(), call.emit(ops.Exp(), x), one)
        case "log1p":
            return call.emit(ops.Log(), call.emit(ops.Add(), x, one))
        case "log2" | "log10":
            return call.emit(ops.Mul(), call.emit(ops.Log(), x), call.like(1 / math.log(2 if call.op == "log2" else 10), x))
        case "exp2":
            return call.emit(ops.Exp(), call.emit(ops.Mul(), x, call.like(math.log(2), x)))
        case "erfc":
            return call.emit(ops.Sub(), one, call.emit(ops.Erf(), x))
        case "deg2rad" | "rad2deg":
            return call.emit(ops.Mul(), x, call.like(math.pi / 180 if call.op == "deg2rad" else 180 / math.pi, x))
        case "logit":
            if call.get("eps") is not None:
                eps = call.real("eps")
                x = call.emit(ops.Clip(eps, 1 - eps), x)
            return call.emit(ops.Log(), call.emit(ops.Div(), x, call.emit(ops.Sub(), one, x)))
        case _:
            angle = call.emit(ops.Mul(), x, call.like(math.pi, x))
            ratio = call.emit(ops.Div(), call.emit(ops.Sin(), angle), angle)
            return call.emit(ops.Where(), call.emit(ops.Equal(), x, call.like(0, x)), one, ratio)


# Activations ----------------------------------------------------------------------------------------------------------


@row("leaky_relu", "elu", "selu", "celu", "gelu", "hardsigmoid", "softplus", "softsign", "relu6", "hardtanh", "log_sigmoid",
     "log_sigmoid_forward", "softshrink", "hardshrink", "tanhshrink", "threshold", "rrelu", "rrelu_with_noise",
     "rrelu_with_noise_functional")  # fmt: skip
def activation(call: Call) -> Answer:
    x = call.first()
    match call.op:
        case "leaky_relu":
            return call.emit(ops.LeakyRelu(call.real("negative_slope", 0.01)), x)
        case "rrelu" | "rrelu_with_noise" | "rrelu_with_noise_functional":
            if call.flag("training"):
                raise unsupported("`rrelu` in training", "export with `model.eval()`")
            y = call.emit(ops.LeakyRelu((call.real("lower", 0.125) + call.real("upper", 1 / 3)) / 2), x)
            return [y, None] if call.op.endswith("functional") else y
        case "elu":
            return _elu(call, x)
        case "selu":
            return call.emit(ops.Selu(), x)
        case "celu":
            return call.emit(ops.Celu(call.real("alpha", 1.0)), x)
        case "gelu":
            return call.emit(ops.Gelu(call.text("approximate", "none") == "tanh"), x)
        case "hardsigmoid":
            return call.emit(ops.HardSigmoid(1 / 6, 0.5), x)
        case "relu6":
            return call.emit(ops.Clip(0.0, 6.0), x)
        case "hardtanh":
            return call.emit(ops.Clip(call.real("min_val", -1.0), call.real("max_val", 1.0)), x)
        case "softsign":
            return call.emit(ops.Softsign(), x)
        case "softplus":
            beta = call.real("beta", 1.0)
            if beta == 1.0:
                return call.emit(ops.Softplus(), x)
            return call.emit(ops.Div(), call.emit(ops.Softplus(), call.emit(ops.Mul(), x, call.like(beta, x))), call.like(beta, x))
        case "log_sigmoid" | "log_sigmoid_forward":
            y = call.emit(ops.Neg(), call.emit(ops.Softplus(), call.emit(ops.Neg(), x)))
            return [y, None] if call.op == "log_sigmoid_forward" else y
        case "softshrink":
            lambd = call.real("lambd", 0.5)
            return call.emit(ops.Shrink(lambd, lambd), x)
        case "hardshrink":
            return call.emit(ops.Shrink(0.0, call.real("lambd", 0.5)), x)
        case "tanhshrink":
            return call.emit(ops.Sub(), x, call.emit(ops.Tanh(), x))
        case _:
            above = call.emit(ops.Greater(), x, call.like(call.real("threshold"), x))
            return call.emit(ops.Where(), above, x, call.like(call.real("value"), x))


def _elu(call: Call, x: Value) -> Value:
    alpha, scale, inner = call.real("alpha", 1.0), call.real("scale", 1.0), call.real("input_scale", 1.0)
    if scale == inner == 1.0:
        return call.emit(ops.Elu(alpha), x)
    bent = call.emit(ops.Elu(alpha), call.emit(ops.Mul(), x, call.like(inner, x)))
    y = call.emit(ops.Where(), call.emit(ops.Greater(), x, call.like(0, x)), x, bent)
    return call.emit(ops.Mul(), y, call.like(scale, x))


@row("prelu", "_prelu_kernel")
def prelu(call: Call) -> Answer:
    x, slope = call.first(), call.tensor("weight")
    if call.op == "prelu" and slope.type.elements > 1:
        slope = reshape(call, slope, (1, slope.type.elements, *(1,) * (len(x.shape) - 2)))
    elif call.op == "prelu":
        slope = reshape(call, slope, ())
    return call.emit(ops.Prelu(), x, slope)


@row("glu")
def glu(call: Call) -> Answer:
    x = call.first()
    axis = call.dim("dim", len(x.shape), -1)
    half = x.shape[axis] // 2
    gate = call.emit(ops.Sigmoid(), part(call, x, axis, half, half))
    return call.emit(ops.Mul(), part(call, x, axis, 0, half), gate)


@row("clamp", "clip", "clamp_min", "clamp_max")
def clamp(call: Call) -> Answer:
    x = call.first()
    low, high = call.get("min"), call.get("max")
    if not isinstance(low, Value) and not isinstance(high, Value):
        small, large = (-math.inf if low is None else float(low)), (math.inf if high is None else float(high))
        if not x.dtype.is_float and any(isinstance(b, float) for b in (low, high)):
            x = cast(call, x, DType.F32)
        return call.emit(ops.Clip(small, large), x)
    for bound, op, name in ((low, ops.Max(), "min"), (high, ops.Min(), "max")):
        if bound is not None:
            x = call.emit(op, *_pair(call, x, call.tensor(name)))
    return x


def _pair(call: Call, a: Value, b: Value) -> list[Value]:
    from intaglio.frontends.torch.call import promoted

    dtype = promoted(a, b)
    return [cast(call, a, dtype), cast(call, b, dtype)]


# Two operands ---------------------------------------------------------------------------------------------------------


@row("add", "sub", "subtract", "rsub")
def add(call: Call) -> Answer:
    a, b = call.operands("self", "other")
    if a.dtype is DType.BOOL and call.op == "add":
        return call.emit(ops.LogicalOr(), a, b)
    alpha = call.number("alpha", 1)
    a, b = (b, a) if call.op == "rsub" else (a, b)
    if alpha != 1:
        b = call.emit(ops.Mul(), b, call.like(alpha, b))
    return call.emit(ops.Add() if call.op == "add" else ops.Sub(), a, b)


@row("mul", "multiply")
def mul(call: Call) -> Answer:
    a, b = call.operands("self", "other")
    return call.emit(ops.LogicalAnd() if a.dtype is DType.BOOL else ops.Mul(), a, b)


@row("div", "divide", "true_divide", "floor_divide")
def div(call: Call) -> Answer:
    a, b = call.operands("self", "other")
    mode = "floor" if call.op == "floor_divide" else call.text("rounding_mode")
    if not mode:
        return call.emit(ops.Div(), call.floats(a), call.floats(b))
    if a.dtype.is_float:
        y = call.emit(ops.Div(), a, b)
        return call.emit(ops.Floor(), y) if mode == "floor" else trunc(call, y)
    if mode == "floor":
        a = call.emit(ops.Sub(), a, call.emit(ops.Mod(), a, b))
    return call.emit(ops.Div(), a, b)


BINARY: dict[str, Op] = {
    "remainder": ops.Mod(), "fmod": ops.Mod(fmod=True), "maximum": ops.Max(), "minimum": ops.Min(), "fmax": ops.Max(),
    "fmin": ops.Min(), "eq": ops.Equal(), "lt": ops.Less(), "less": ops.Less(), "le": ops.LessEqual(),
    "less_equal": ops.LessEqual(),
    "gt": ops.Greater(), "greater": ops.Greater(), "ge": ops.GreaterEqual(), "greater_equal": ops.GreaterEqual(),
}  # fmt: skip


@row(*BINARY)
def binary(call: Call) -> Answer:
    return call.emit(BINARY[call.op], *call.operands("self", "other"))


@row("ne", "not_equal")
def not_equal(call: Call) -> Answer:
    return call.emit(ops.LogicalNot(), call.emit(ops.Equal(), *call.operands("self", "other")))


@row("pow", "float_power")
def power(call: Call) -> Answer:
    a, b = call.operands("self", "exponent")
    exponent = call.get("exponent")
    if call.op == "float_power":
        a, b = cast(call, a, DType.F64), cast(call, b, DType.F64)
    if not isinstance(exponent, Value):
        if exponent == 1:
            return a
        if exponent == 2:
            return call.emit(ops.Mul(), a, a)
        if exponent in (0.5, -0.5):
            root = call.emit(ops.Sqrt(), a)
            return root if exponent > 0 else call.emit(ops.Reciprocal(), root)
        if exponent == -1:
            return call.emit(ops.Reciprocal(), a)
    return call.emit(ops.Pow(), a, b)


@row("atan2", "arctan2")
def atan2(call: Call) -> Answer:
    y, x = (call.floats(v) for v in call.operands("self", "other"))
    zero, pi = call.like(0, x), call.like(math.pi, x)
    angle = call.emit(ops.Atan(), call.emit(ops.Div(), y, x))
    below = call.emit(ops.Less(), y, zero)
    turned = call.emit(ops.Where(), below, call.emit(ops.Sub(), angle, pi), call.emit(ops.Add(), angle, pi))
    angle = call.emit(ops.Where(), call.emit(ops.Less(), x, zero), turned, angle)
    still = call.emit(ops.LogicalAnd(), call.emit(ops.Equal(), x, zero), call.emit(ops.Equal(), y, zero))
    return call.emit(ops.Where(), still, zero, angle)


@row("hypot")
def hypot(call: Call) -> Answer:
    a, b = call.operands("self", "other")
    return call.emit(ops.Sqrt(), call.emit(ops.Add(), call.emit(ops.Mul(), a, a), call.emit(ops.Mul(), b, b)))


@row("addcmul", "addcdiv")
def addcmul(call: Call) -> Answer:
    x, a, b = call.tensor("self"), call.tensor("tensor1"), call.tensor("tensor2")
    y = call.emit(ops.Mul() if call.op == "addcmul" else ops.Div(), a, b)
    value = call.number("value", 1)
    y = y if value == 1 else call.emit(ops.Mul(), y, call.like(value, y))
    return call.emit(ops.Add(), x, y)


@row("lerp")
def lerp(call: Call) -> Answer:
    a, b = call.tensor("self"), call.tensor("end")
    weight = call.typed(call.get("weight"), a.dtype)
    return call.emit(ops.Add(), a, call.emit(ops.Mul(), weight, call.emit(ops.Sub(), b, a)))


# Bits and truth ---------------------------------------------------------------------------------------------------------


BITS: dict[str, tuple[Op, Op]] = {
    "and": (ops.LogicalAnd(), ops.BitwiseAnd()), "or": (ops.LogicalOr(), ops.BitwiseOr()),
    "xor": (ops.LogicalXor(), ops.BitwiseXor()),
}  # fmt: skip


@row(*[name.format(k) for k in BITS for name in ("bitwise_{}", "__{}__", "__i{}__")])
def bitwise(call: Call) -> Answer:
    a, b = call.operands("self", "other")
    logical, bits = BITS[call.op.removeprefix("bitwise_").strip("_").removeprefix("i")]
    return call.emit(logical if a.dtype is DType.BOOL else bits, a, b)


@row("logical_and", "logical_or", "logical_xor")
def logical(call: Call) -> Answer:
    a, b = (cast(call, call.tensor(name), DType.BOOL) for name in ("self", "other"))
    return call.emit(BITS[call.op.removeprefix("logical_")][0], a, b)


@row("logical_not", "bitwise_not")
def invert(call: Call) -> Answer:
    x = call.first()
    if call.op == "bitwise_not" and x.dtype is not DType.BOOL:
        return call.emit(ops.BitwiseNot(), x)
    return call.emit(ops.LogicalNot(), cast(call, x, DType.BOOL))


@row("bitwise_left_shift", "__lshift__", "bitwise_right_shift", "__rshift__")
def shift(call: Call) -> Answer:
    left = call.op in ("bitwise_left_shift", "__lshift__")
    return call.emit(ops.ShiftLeft() if left else ops.ShiftRight(), *call.operands("self", "other"))


@row("isnan", "isinf", "isfinite", "signbit")
def told(call: Call) -> Answer:
    x = call.first()
    if call.op == "signbit":
        return call.emit(ops.Less(), x, call.like(0, x))
    if not x.dtype.is_float:
        return expand(call, call.constant(call.op == "isfinite"), x.shape)
    if call.op == "isnan":
        return call.emit(ops.IsNan(), x)
    if call.op == "isinf":
        return call.emit(ops.IsInf(), x)
    return call.emit(ops.LogicalNot(), call.emit(ops.LogicalOr(), call.emit(ops.IsNan(), x), call.emit(ops.IsInf(), x)))


LARGEST = {DType.F16: 65504.0, DType.BF16: 3.3895313892515355e38, DType.F64: 1.7976931348623157e308}


@row("nan_to_num")
def nan_to_num(call: Call) -> Answer:
    x = call.first()
    if not x.dtype.is_float:
        return x
    most = LARGEST.get(x.dtype, 3.4028234663852886e38)
    for test, name, default in (
        (ops.IsNan(), "nan", 0.0), (ops.IsInf(negative=False), "posinf", most), (ops.IsInf(positive=False), "neginf", -most),
    ):  # fmt: skip
        x = call.emit(ops.Where(), call.emit(test, x), call.like(call.real(name, default), x), x)
    return x


@row("where")
def where(call: Call) -> Answer:
    if call.get("self") is None:
        raise unsupported("`where` without values gives a result whose size depends on data", "use `where(condition, a, b)`")
    a, b = call.operands("self", "other")
    return call.emit(ops.Where(), cast(call, call.tensor("condition"), DType.BOOL), a, b)


@row("masked_fill")
def masked_fill(call: Call) -> Answer:
    x, mask = call.tensor("self"), call.tensor("mask")
    y = call.emit(ops.Where(), cast(call, mask, DType.BOOL), call.typed(call.get("value"), x.dtype), x)
    return expand(call, y, y.shape)


# Types ------------------------------------------------------------------------------------------------------------------


@row("to", "_to_copy", "type_as", "float", "double", "half", "int", "long", "bool")
def to(call: Call) -> Answer:
    x = call.first()
    dtype = call.dtype() if call.op in ("to", "_to_copy") else call.tensor("other").dtype if call.op == "type_as" else None
    if dtype is None and isinstance(call.get("other"), Value):
        dtype = call.tensor("other").dtype
    return x if dtype is None else cast(call, x, dtype)


@row("_autocast_to_full_precision", "_autocast_to_reduced_precision", "_conj", "conj", "resolve_conj", "resolve_neg", "real")
def same(call: Call) -> Answer:
    return call.first()


@row("copy")
def copy(call: Call) -> Answer:
    x = call.tensor("self")
    return expand(call, cast(call, call.tensor("src"), x.dtype), x.shape)


@row("fill", "zero")
def fill(call: Call) -> Answer:
    x = call.first()
    value = call.get("value") if call.op == "fill" else 0
    if value is None:
        raise Fault("bad-attribute", "`fill` without a value")
    return expand(call, call.typed(value, x.dtype), x.shape)
