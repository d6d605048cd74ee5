"""Arithmetic, activations, comparisons, conversions. An 8-bit function of one 8-bit number is a table, made here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.container import Tensor
from intaglio.frontends.tflite.rows.activation import activate, bounds
from intaglio.frontends.tflite.rows.tables import TABLES, leaky_table
from intaglio.frontends.tflite.walk import Call, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops import (
    Abs,
    Add,
    Cast,
    Ceil,
    Clip,
    Cos,
    Div,
    Elu,
    Equal,
    Exp,
    Floor,
    Gelu,
    Greater,
    GreaterEqual,
    HardSwish,
    LeakyRelu,
    Less,
    LessEqual,
    Log,
    LogicalAnd,
    LogicalNot,
    LogicalOr,
    LogSoftmax,
    Max,
    Min,
    Mod,
    Mul,
    Neg,
    Pow,
    Prelu,
    Reciprocal,
    Reduce,
    Relu,
    Round,
    Sigmoid,
    Sign,
    Sin,
    Softmax,
    Sqrt,
    Sub,
    Tanh,
    Where,
)  # fmt: skip
from intaglio.ops.base import Elementwise
from intaglio.ops.convert import Dequantize, Quantize
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.quantised import Lookup, QAdd, QMul, Requantize
from intaglio.ops.quantised_rows import QSoftmax

_QUANTISED = (DType.I8, DType.U8, DType.I16)
_UNARY: dict[str, Callable[[], Elementwise]] = {
    "RELU": Relu,
    "RELU6": lambda: Clip(0.0, 6.0), "RELU_N1_TO_1": lambda: Clip(-1.0, 1.0), "RELU_0_TO_1": lambda: Clip(0.0, 1.0),
    "LOGISTIC": Sigmoid, "TANH": Tanh, "EXP": Exp, "LOG": Log, "SQRT": Sqrt, "FLOOR": Floor, "CEIL": Ceil, "ROUND": Round,
    "ABS": Abs, "NEG": Neg, "SIN": Sin, "COS": Cos, "ELU": lambda: Elu(1.0), "HARD_SWISH": HardSwish, "SIGN": Sign,
    "LOGICAL_NOT": LogicalNot,
}  # fmt: skip
_BINARY: dict[str, Callable[[], Elementwise]] = {
    "MAXIMUM": Max, "MINIMUM": Min, "POW": Pow, "EQUAL": Equal, "LESS": Less, "LESS_EQUAL": LessEqual, "GREATER": Greater,
    "GREATER_EQUAL": GreaterEqual, "LOGICAL_AND": LogicalAnd, "LOGICAL_OR": LogicalOr,
}  # fmt: skip


@importer(*_UNARY)
def unary(call: Call) -> None:
    name, x = call.operator.op, call.value(0)
    if x.dtype in _QUANTISED and name != "LOGICAL_NOT" and call.tensor(0).quant is not None:
        if name in ("RELU", "RELU6", "RELU_N1_TO_1"):
            _quantised_relu(call, x, {"RELU": 1, "RELU_N1_TO_1": 2, "RELU6": 3}[name])
            return
        _table(call, x, name)
        return
    call.give(call.emit(_UNARY[name](), x))


def _quantised_relu(call: Call, x: Value, kind: int) -> None:
    """Rescaled to the result's quantisation, then clamped."""
    x_scale, x_zero = call.quant(call.tensor(0))
    y_scale, y_zero = call.quant(call.out())
    multiplier, shift = quantize_multiplier(float(np.float32(x_scale) / np.float32(y_scale)))
    low, high = bounds(call, kind, call.out())
    call.give(call.emit(Requantize(x_zero, multiplier, shift, y_zero, low, high, x.dtype), x))


def _table(call: Call, x: Value, name: str) -> None:
    if x.dtype is DType.I16:
        raise Fault("unsupported-operator", "this function of 16-bit integers is not supported yet")
    if name not in TABLES:
        raise Fault("unsupported-operator", "this function of integers is not supported yet")
    table = TABLES[name](x.dtype, call.quant(call.tensor(0)), call.quant(call.out()))
    call.give(call.emit(Lookup(), x, constant(table)))


@importer("LEAKY_RELU")
def leaky_relu(call: Call) -> None:
    x, alpha = call.value(0), call.options.Alpha()
    if x.dtype in (DType.I8, DType.U8):
        table = leaky_table(x.dtype, call.quant(call.tensor(0)), call.quant(call.out()), alpha)
        call.give(call.emit(Lookup(), x, constant(table)))
        return
    if x.dtype is DType.I16:
        _leaky16(call, x, alpha)
        return
    call.give(call.emit(LeakyRelu(alpha), x))


def _leaky16(call: Call, x: Value, alpha: float) -> None:
    x_scale, x_zero = call.quant(call.tensor(0))
    y_scale, y_zero = call.quant(call.out())
    identity = quantize_multiplier(float(np.float32(x_scale) / np.float32(y_scale)))
    slope = quantize_multiplier(float(np.float32(x_scale) * np.float32(alpha) / np.float32(y_scale)))
    straight = call.emit(Requantize(x_zero, identity[0], identity[1], y_zero, -32768, 32767, DType.I16), x)
    bent = call.emit(Requantize(x_zero, slope[0], slope[1], y_zero, -32768, 32767, DType.I16), x)
    positive = call.emit(GreaterEqual(), x, constant(np.asarray(x_zero, np.int16)))
    call.give(call.emit(Where(), positive, straight, bent))


@importer("GELU")
def gelu(call: Call) -> None:
    x, approximate = call.value(0), bool(call.options.Approximate())
    if x.dtype in _QUANTISED:
        _table(call, x, "GELU_TANH" if approximate else "GELU")
        return
    call.give(call.emit(Gelu(approximate), x))


@importer("RSQRT")
def rsqrt(call: Call) -> None:
    x = call.value(0)
    if x.dtype in _QUANTISED:
        _table(call, x, "RSQRT")
        return
    call.give(call.emit(Reciprocal(), call.emit(Sqrt(), x)))


@importer("SQUARE")
def square(call: Call) -> None:
    x = call.value(0)
    if x.dtype in _QUANTISED:
        raise Fault("unsupported-operator", "squares of integers are not supported yet")
    call.give(call.emit(Mul(), x, x))


@importer("PRELU")
def prelu(call: Call) -> None:
    x, slope = call.value(0), call.value(1)
    if x.dtype in _QUANTISED:
        _quantised_prelu(call, x, slope)
        return
    call.give(call.emit(Prelu(), x, slope))


def _quantised_prelu(call: Call, x: Value, slope: Value) -> None:
    x_scale, x_zero = call.quant(call.tensor(0))
    a_scale, a_zero = call.quant(call.tensor(1))
    y_scale, y_zero = call.quant(call.out())
    info = np.iinfo(x.dtype.numpy)
    low, high = int(info.min), int(info.max)
    straight = quantize_multiplier(float(np.float32(x_scale) / np.float32(y_scale)))
    bent = quantize_multiplier(float(np.float32(x_scale) * np.float32(a_scale) / np.float32(y_scale)))
    above = call.emit(Requantize(x_zero, *straight, y_zero, low, high, x.dtype), x)
    below = call.emit(QMul(x_zero, a_zero, *bent, y_zero, low, high, x.dtype), x, slope)
    call.give(call.emit(Where(), call.emit(GreaterEqual(), x, constant(np.asarray(x_zero, x.dtype.numpy))), above, below))


@importer("ADD", "SUB")
def addition(call: Call) -> None:
    a, b = call.value(0), call.value(1)
    minus = call.operator.op == "SUB"
    act = call.operator.options.FusedActivationFunction() if call.operator.options is not None else 0
    if a.dtype not in _QUANTISED or call.tensor(0).quant is None:
        call.give(activate(call, call.emit(Sub() if minus else Add(), a, b), act))
        return
    a_scale, a_zero = call.quant(call.tensor(0))
    b_scale, b_zero = call.quant(call.tensor(1))
    y_scale, y_zero = call.quant(call.out())
    lift = 15 if a.dtype is DType.I16 else 20
    twice = 2.0 * max(a_scale, b_scale)
    left, right = quantize_multiplier(a_scale / twice), quantize_multiplier(b_scale / twice)
    whole = quantize_multiplier(twice / ((1 << lift) * y_scale))
    low, high = bounds(call, act, call.out())
    op = QAdd(a_zero, *left, b_zero, *right, lift, minus, *whole, y_zero, low, high, a.dtype)
    call.give(call.emit(op, a, b))


@importer("MUL")
def multiplication(call: Call) -> None:
    a, b = call.value(0), call.value(1)
    act = call.operator.options.FusedActivationFunction() if call.operator.options is not None else 0
    if a.dtype not in _QUANTISED or call.tensor(0).quant is None:
        call.give(activate(call, call.emit(Mul(), a, b), act))
        return
    a_scale, a_zero = call.quant(call.tensor(0))
    b_scale, b_zero = call.quant(call.tensor(1))
    y_scale, y_zero = call.quant(call.out())
    real = np.float32(a_scale) * np.float32(b_scale) / np.float32(y_scale)
    low, high = bounds(call, act, call.out())
    call.give(call.emit(QMul(a_zero, b_zero, *quantize_multiplier(float(real)), y_zero, low, high, a.dtype), a, b))


@importer("DIV")
def division(call: Call) -> None:
    a, b = call.value(0), call.value(1)
    if a.dtype in _QUANTISED:
        raise Fault("unsupported-operator", "division of quantised integers is not supported yet")
    call.give(activate(call, call.emit(Div(), a, b), call.options.FusedActivationFunction()))


@importer("SQUARED_DIFFERENCE")
def squared_difference(call: Call) -> None:
    a, b = call.value(0), call.value(1)
    if a.dtype in _QUANTISED:
        raise Fault("unsupported-operator", "squared differences of integers are not supported yet")
    difference = call.emit(Sub(), a, b)
    call.give(call.emit(Mul(), difference, difference))


@importer("FLOOR_DIV", "FLOOR_MOD")
def floor_division(call: Call) -> None:
    a, b = call.value(0), call.value(1)
    if call.operator.op == "FLOOR_MOD":
        call.give(call.emit(Mod(), a, b))
    elif a.dtype.is_float:
        call.give(call.emit(Floor(), call.emit(Div(), a, b)))
    else:
        call.give(call.emit(Div(), call.emit(Sub(), a, call.emit(Mod(), a, b)), b))


@importer(*_BINARY, "NOT_EQUAL")
def binary(call: Call) -> None:
    a, b = call.value(0), call.value(1)
    name = call.operator.op
    qs = [call.tensor(n).quant for n in (0, 1)]
    if a.dtype in _QUANTISED and qs[0] is not None and qs[1] is not None and not _same(call.tensor(0), call.tensor(1)):
        raise Fault("unsupported-operator", "operands of different quantisation are not supported yet")
    if name == "NOT_EQUAL":
        call.give(call.emit(LogicalNot(), call.emit(Equal(), a, b)))
    else:
        call.give(call.emit(_BINARY[name](), a, b))


def _same(a: Tensor, b: Tensor) -> bool:
    return (
        a.quant is not None
        and b.quant is not None
        and np.array_equal(a.quant.scale, b.quant.scale)
        and np.array_equal(a.quant.zero_point, b.quant.zero_point)
    )


@importer("SELECT", "SELECT_V2")
def select(call: Call) -> None:
    call.give(call.emit(Where(), call.value(0), call.value(1), call.value(2)))


@importer("CAST")
def cast(call: Call) -> None:
    to = call.out().dtype
    if to is None:
        raise Fault("unsupported-type", "a cast to this type is not supported")
    call.give(call.emit(Cast(to), call.value(0)))


@importer("DEQUANTIZE")
def dequantize(call: Call) -> None:
    x, tensor = call.value(0), call.tensor(0)
    if x.dtype is DType.F16:
        call.give(call.emit(Cast(DType.F32), x))
        return
    q = tensor.quant
    if q is None:
        raise Fault("bad-quantisation", "its input has no quantisation parameters")
    shape = [1] * x.type.rank
    if q.scale.size > 1:
        shape[q.axis] = -1
    scale = constant(q.scale.astype(np.float32).reshape(shape if q.scale.size > 1 else ()))
    zero = constant(q.zero_point.astype(np.int32).reshape(shape if q.scale.size > 1 else ()))
    call.give(call.emit(Dequantize(), x, scale, zero))


@importer("QUANTIZE")
def quantize(call: Call) -> None:
    x, out = call.value(0), call.out()
    y_scale, y_zero = call.quant(out)
    if out.dtype is None or not out.dtype.is_int:
        raise Fault("bad-tensor", "its result is not of integers")
    info = np.iinfo(out.dtype.numpy)
    if x.dtype is DType.F32:
        scale, zero = constant(np.asarray(y_scale, np.float32)), constant(np.asarray(y_zero, np.int32))
        call.give(call.emit(Quantize(out.dtype, int(info.min), int(info.max), True), x, scale, zero))
        return
    x_scale, x_zero = call.quant(call.tensor(0))
    multiplier, shift = quantize_multiplier(x_scale / y_scale)
    call.give(call.emit(Requantize(x_zero, multiplier, shift, y_zero, int(info.min), int(info.max), out.dtype), x))


@importer("SOFTMAX")
def softmax(call: Call) -> None:
    x, beta, out = call.value(0), call.options.Beta(), call.out()
    if x.dtype in (DType.I8, DType.U8):
        if out.dtype is None:
            raise Fault("bad-tensor", "its result is not of integers")
        call.give(call.emit(QSoftmax(call.quant(call.tensor(0))[0], beta, out.dtype), x))
        return
    if x.dtype is DType.I16:
        raise Fault("unsupported-operator", "softmax of 16-bit integers is not supported yet")
    scaled = x if beta == 1.0 else call.emit(Mul(), x, constant(np.asarray(beta, np.float32)))
    call.give(call.emit(Softmax(-1), scaled))


@importer("LOG_SOFTMAX")
def log_softmax(call: Call) -> None:
    x = call.value(0)
    if x.dtype in _QUANTISED:
        raise Fault("unsupported-operator", "log-softmax of integers is not supported yet")
    call.give(call.emit(LogSoftmax(-1), x))


@importer("L2_NORMALIZATION")
def l2_normalization(call: Call) -> None:
    x = call.value(0)
    if x.dtype in _QUANTISED:
        raise Fault("unsupported-operator", "normalisation of integers is not supported yet")
    total = call.emit(Reduce("sum_square", (x.type.rank - 1,), True), x)
    root = call.emit(Max(), call.emit(Sqrt(), total), constant(np.asarray(1e-6, np.float32)))
    call.give(activate(call, call.emit(Div(), x, root), call.options.FusedActivationFunction()))
