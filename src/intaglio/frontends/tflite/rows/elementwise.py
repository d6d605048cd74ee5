"""Arithmetic, activations, comparisons, conversions. An 8-bit function of one 8-bit number is a table, made here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from intaglio.frontends import building
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.container import Quantisation
from intaglio.frontends.tflite.rows.activation import activate, bounds
from intaglio.frontends.tflite.rows.functions import quantised_function
from intaglio.frontends.tflite.rows.spectrum import is_complex, part_of
from intaglio.frontends.tflite.rows.tables import leaky_table
from intaglio.frontends.tflite.walk import TFLiteCall, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Clip, Elu, Gelu, HardSwish, LeakyRelu, Relu, Sigmoid, Tanh
from intaglio.ops.base import Elementwise
from intaglio.ops.binary import (
    Add,
    BitwiseXor,
    Div,
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
    LogicalAnd,
    LogicalOr,
    Max,
    Min,
    Mod,
    Mul,
    Pow,
    Prelu,
    ShiftRight,
    Sub,
    Where,
)
from intaglio.ops.convert import Cast, Dequantize, Quantize
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Reshape
from intaglio.ops.quantised import Lookup, QAdd, QMul, Requantize, sum_factors
from intaglio.ops.quantised_elementwise import Lift, QDiv
from intaglio.ops.quantised_norms import QL2Norm, QLogSoftmax
from intaglio.ops.quantised_rows import QSoftmax
from intaglio.ops.quantised_tables import QSoftmax16
from intaglio.ops.reduce import LogSoftmax, Reduce, Softmax
from intaglio.ops.unary import (  # fmt: skip
    Abs,
    Ceil,
    Cos,
    Exp,
    Floor,
    Log,
    LogicalNot,
    Neg,
    Reciprocal,
    Round,
    Sign,
    Sin,
    Sqrt,
)

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
    "BITWISE_XOR": BitwiseXor, "RIGHT_SHIFT": ShiftRight,
}  # fmt: skip


@importer(*_UNARY)
def unary(call: TFLiteCall) -> None:
    name, x = call.operator.op, call.value(0)
    if x.dtype in _QUANTISED and name != "LOGICAL_NOT" and call.tensor(0).quant is not None:
        quantised_function(call, x, name)
        return
    call.give(call.emit(_UNARY[name](), x))


@importer("LEAKY_RELU")
def leaky_relu(call: TFLiteCall) -> None:
    x, alpha = call.value(0), call.options.Alpha()
    if x.dtype in (DType.I8, DType.U8):
        table = leaky_table(x.dtype, call.quant(call.tensor(0)), call.quant(call.out()), alpha)
        call.give(call.emit(Lookup(), x, constant(table)))
        return
    if x.dtype is DType.I16:
        _leaky16(call, x, alpha)
        return
    call.give(call.emit(LeakyRelu(alpha), x))


def _leaky16(call: TFLiteCall, x: Value, alpha: float) -> None:
    x_scale, x_zero = call.quant(call.tensor(0))
    y_scale, y_zero = call.quant(call.out())
    identity = quantize_multiplier(float(np.float32(x_scale) / np.float32(y_scale)))
    slope = quantize_multiplier(float(np.float32(x_scale) * np.float32(alpha) / np.float32(y_scale)))
    straight = call.emit(Requantize(x_zero, identity[0], identity[1], y_zero, -32768, 32767, DType.I16), x)
    bent = call.emit(Requantize(x_zero, slope[0], slope[1], y_zero, -32768, 32767, DType.I16), x)
    positive = call.emit(GreaterEqual(), x, constant(np.asarray(x_zero, np.int16)))
    call.give(call.emit(Where(), positive, straight, bent))


@importer("GELU")
def gelu(call: TFLiteCall) -> None:
    x, approximate = call.value(0), bool(call.options.Approximate())
    if x.dtype in _QUANTISED:
        quantised_function(call, x, "GELU_TANH" if approximate else "GELU")
        return
    call.give(call.emit(Gelu(approximate), x))


@importer("RSQRT")
def rsqrt(call: TFLiteCall) -> None:
    x = call.value(0)
    if x.dtype in _QUANTISED:
        quantised_function(call, x, "RSQRT")
        return
    call.give(call.emit(Reciprocal(), call.emit(Sqrt(), x)))


@importer("SQUARE")
def square(call: TFLiteCall) -> None:
    x = call.value(0)
    if x.dtype in _QUANTISED:
        raise Fault("unsupported-operator", "squares of integers are not supported yet")
    call.give(call.emit(Mul(), x, x))


@importer("PRELU")
def prelu(call: TFLiteCall) -> None:
    x, slope = call.value(0), call.value(1)
    if x.dtype in _QUANTISED:
        _quantised_prelu(call, x, slope)
        return
    call.give(call.emit(Prelu(), x, slope))


def _quantised_prelu(call: TFLiteCall, x: Value, slope: Value) -> None:
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
def addition(call: TFLiteCall) -> None:
    a, b = call.value(0), call.value(1)
    minus = call.operator.op == "SUB"
    act = call.operator.options.FusedActivationFunction() if call.operator.options is not None else 0
    if a.dtype not in _QUANTISED or call.tensor(0).quant is None:
        call.give(activate(call, call.emit(Sub() if minus else Add(), a, b), act))
        return
    a_scale, a_zero = call.quant(call.tensor(0))
    b_scale, b_zero = call.quant(call.tensor(1))
    y_scale, y_zero = call.quant(call.out())
    left, right, lift, whole = sum_factors(a_scale, b_scale, y_scale, a.dtype)
    low, high = bounds(call, act, call.out())
    op = QAdd(a_zero, *left, b_zero, *right, lift, minus, *whole, y_zero, low, high, a.dtype)
    call.give(call.emit(op, a, b))


@importer("MUL")
def multiplication(call: TFLiteCall) -> None:
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
def division(call: TFLiteCall) -> None:
    a, b = call.value(0), call.value(1)
    act = call.options.FusedActivationFunction()
    if a.dtype in _QUANTISED:
        tensors = (call.tensor(0), call.tensor(1), call.out())
        (a_scale, a_zero), (b_scale, b_zero), (y_scale, y_zero) = (call.quant(t) for t in tensors)
        factor = quantize_multiplier(float(np.float32(a_scale) / (np.float32(b_scale) * np.float32(y_scale))))
        call.give(call.emit(QDiv(a_zero, b_zero, *factor, y_zero, *bounds(call, act, call.out()), a.dtype), a, b))
        return
    call.give(activate(call, call.emit(Div(), a, b), act))


@importer("SQUARED_DIFFERENCE")
def squared_difference(call: TFLiteCall) -> None:
    a, b = call.value(0), call.value(1)
    if a.dtype in _QUANTISED:
        _quantised_squared_difference(call, a, b)
        return
    difference = call.emit(Sub(), a, b)
    call.give(call.emit(Mul(), difference, difference))


def _quantised_squared_difference(call: TFLiteCall, a: Value, b: Value) -> None:
    """Both sides on a common scale, 7 bits finer; the square is rescaled."""
    (a_scale, a_zero), (b_scale, b_zero), (y_scale, y_zero) = (call.quant(t) for t in (call.tensor(0), call.tensor(1), call.out()))
    if a.dtype is not DType.I8:
        raise Fault("unsupported-operator", f"LiteRT has no squared difference of {a.dtype.value}", "use 8-bit signed integers")
    twice = 2.0 * max(a_scale, b_scale)
    left = call.emit(Lift(a_zero, 7, *quantize_multiplier(a_scale / twice)), a)
    right = call.emit(Lift(b_zero, 7, *quantize_multiplier(b_scale / twice)), b)
    difference = call.emit(Sub(), left, right)
    factor = quantize_multiplier(twice * twice / ((1 << 14) * y_scale))
    square = call.emit(Mul(), difference, difference)
    call.give(call.emit(Requantize(0, *factor, y_zero, -128, 127, DType.I8), square))


@importer("FLOOR_DIV", "FLOOR_MOD")
def floor_division(call: TFLiteCall) -> None:
    a, b = call.value(0), call.value(1)
    if call.operator.op == "FLOOR_MOD":
        call.give(call.emit(Mod(), a, b))
    elif a.dtype.is_float:
        call.give(call.emit(Floor(), call.emit(Div(), a, b)))
    else:  # in more bits: what is left of -128 - 127 fits nowhere
        wide = DType.I64 if a.dtype is DType.I32 else DType.I32
        above, below = (call.emit(Cast(wide), v) if v.dtype is not DType.I64 else v for v in (a, b))
        whole = call.emit(Div(), call.emit(Sub(), above, call.emit(Mod(), above, below)), below)
        call.give(call.emit(Cast(a.dtype), whole) if whole.dtype is not a.dtype else whole)


@importer(*_BINARY, "NOT_EQUAL")
def binary(call: TFLiteCall) -> None:
    a, b = call.value(0), call.value(1)
    name = call.operator.op
    if name in _COMPARED and a.dtype in _SCALED.get(name, _SCALED_ORDER) and call.tensor(0).quant is not None:
        a, b = _on_one_scale(call, a, b)
    if name == "NOT_EQUAL":
        call.give(call.emit(LogicalNot(), call.emit(Equal(), a, b)))
    else:
        call.give(call.emit(_BINARY[name](), a, b))


_COMPARED = {"EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"}
_SCALED_ORDER = (DType.I8, DType.U8)
_SCALED = {"EQUAL": _QUANTISED, "NOT_EQUAL": _QUANTISED}


def _on_one_scale(call: TFLiteCall, a: Value, b: Value) -> tuple[Value, Value]:
    """LiteRT compares integers in 1/256: what is equal there may differ in steps that are smaller."""
    (a_scale, a_zero), (b_scale, b_zero) = call.quant(call.tensor(0)), call.quant(call.tensor(1))
    if (a_scale, a_zero) == (b_scale, b_zero) and a_scale * 256 >= 1.0:
        return a, b
    left = call.emit(Lift(a_zero, 8, *quantize_multiplier(a_scale)), a)
    return left, call.emit(Lift(b_zero, 8, *quantize_multiplier(b_scale)), b)


@importer("SELECT", "SELECT_V2")
def select(call: TFLiteCall) -> None:
    condition, a, b = call.value(0), call.value(1), call.value(2)
    if call.operator.op == "SELECT" and condition.type.rank == 1 and a.type.rank > 1:  # a row each
        condition = call.emit(Reshape((condition.shape[0], *[1] * (a.type.rank - 1))), condition)
    call.give(call.emit(Where(), condition, a, b))


@importer("CAST")
def cast(call: TFLiteCall) -> None:
    to = call.out().dtype
    if is_complex(call) and to is DType.F32:
        call.give(part_of(call, call.value(0), 0))
        return
    if to is None:
        raise Fault("unsupported-type", "a cast to this type is not supported")
    call.give(call.emit(Cast(to), call.value(0)))


@importer("DEQUANTIZE")
def dequantize(call: TFLiteCall) -> None:
    x, tensor = call.value(0), call.tensor(0)
    if x.dtype is DType.F16:
        call.give(call.emit(Cast(DType.F32), x))
        return
    q = tensor.quant
    if q is None:
        raise Fault("bad-quantisation", "its input has no quantisation parameters")
    call.give(call.emit(Dequantize(), x, *along_axis(q, x.type.rank)))


def along_axis(quant: Quantisation, rank: int) -> tuple[Value, Value]:
    """Scales and zero points, shaped so that they broadcast."""
    shape = [-1 if n == quant.axis else 1 for n in range(rank)] if quant.scale.size > 1 else []
    scale, zero = quant.scale.astype(np.float32), quant.zero_point.astype(np.int32)
    return constant(scale.reshape(shape)), constant(zero.reshape(shape))


@importer("QUANTIZE")
def quantize(call: TFLiteCall) -> None:
    x, out = call.value(0), call.out()
    if out.dtype is None or not out.dtype.is_int:
        raise Fault("bad-tensor", "its result is not of integers")
    if x.dtype is DType.F32 and out.quant is not None and out.quant.scale.size > 1:
        info, scales = np.iinfo(out.dtype.numpy), along_axis(out.quant, x.type.rank)
        call.give(call.emit(Quantize(out.dtype, int(info.min), int(info.max), True), x, *scales))
        return
    y_scale, y_zero = call.quant(out)
    info = np.iinfo(out.dtype.numpy)
    if x.dtype is DType.F32:
        scale, zero = constant(np.asarray(y_scale, np.float32)), constant(np.asarray(y_zero, np.int32))
        call.give(call.emit(Quantize(out.dtype, int(info.min), int(info.max), True), x, scale, zero))
        return
    x_scale, x_zero = call.quant(call.tensor(0))
    multiplier, shift = quantize_multiplier(x_scale / y_scale)
    call.give(call.emit(Requantize(x_zero, multiplier, shift, y_zero, int(info.min), int(info.max), out.dtype), x))


@importer("SOFTMAX")
def softmax(call: TFLiteCall) -> None:
    x, beta, out = call.value(0), call.options.Beta(), call.out()
    if x.dtype in (DType.I8, DType.U8):
        if out.dtype is None:
            raise Fault("bad-tensor", "its result is not of integers")
        call.give(call.emit(QSoftmax(call.quant(call.tensor(0))[0], beta, out.dtype), x))
        return
    if x.dtype is DType.I16:
        call.give(call.emit(QSoftmax16(call.quant(call.tensor(0))[0], beta), x))
        return
    scaled = x if beta == 1.0 else call.emit(Mul(), x, constant(np.asarray(beta, np.float32)))
    call.give(call.emit(Softmax(-1), scaled))


@importer("LOG_SOFTMAX")
def log_softmax(call: TFLiteCall) -> None:
    x = call.value(0)
    if x.dtype in _QUANTISED:
        call.give(call.emit(QLogSoftmax(call.quant(call.tensor(0))[0]), x))
        return
    call.give(call.emit(LogSoftmax(-1), x))


@importer("L2_NORMALIZATION")
def l2_normalization(call: TFLiteCall) -> None:
    x = call.value(0)
    if x.dtype in _QUANTISED:
        call.give(call.emit(QL2Norm(call.quant(call.tensor(0))[1]), x))
        return
    total = call.emit(Reduce("sum_square", (x.type.rank - 1,), True), x)
    root = call.emit(Max(), call.emit(Sqrt(), total), constant(np.asarray(1e-6, np.float32)))
    call.give(activate(call, call.emit(Div(), x, root), call.options.FusedActivationFunction()))


@importer("ADD_N")
def add_n(call: TFLiteCall) -> None:
    total = call.value(0)
    if total.dtype in _QUANTISED:
        raise Fault("unsupported-operator", "LiteRT adds floats and 32-bit integers only", "use ADD")
    for n in range(1, len(call.operator.inputs)):
        total = call.emit(Add(), total, call.value(n))
    call.give(total)


@importer("ATAN2")
def atan2(call: TFLiteCall) -> None:
    call.give(building.atan2(call, call.value(0), call.value(1)))


@importer("LOCAL_RESPONSE_NORMALIZATION")
def local_response_normalization(call: TFLiteCall) -> None:
    o, x = call.options, call.value(0)
    if x.dtype is not DType.F32 or x.type.rank == 0 or not 0 <= o.Radius() <= 1 << 16:
        raise Fault("bad-attribute", f"radius {o.Radius()} over {x.dtype.value}{list(x.shape)} is not valid")
    place = np.arange(x.shape[-1])
    apart = place[:, None] - place[None, :]  # of the one that is summed up from the one that is divided
    band = constant(((apart >= -o.Radius()) & (apart < o.Radius())).astype(np.float32))  # the last one is left out
    flat = call.emit(Reshape((x.type.elements // x.shape[-1], x.shape[-1])), call.emit(Mul(), x, x))
    sums = call.emit(Reshape(x.shape), call.emit(MatMul(), flat, band))
    scaled = call.emit(Mul(), sums, constant(np.asarray(o.Alpha(), np.float32)))
    base = call.emit(Add(), scaled, constant(np.asarray(o.Bias(), np.float32)))
    call.give(call.emit(Mul(), x, call.emit(Pow(), base, constant(np.asarray(-o.Beta(), np.float32)))))


@importer("MATRIX_DIAG", "MATRIX_SET_DIAG")
def matrix_diag(call: TFLiteCall) -> None:
    """The diagonal of a matrix of zeros, or of one that is given."""
    if call.operator.op == "MATRIX_DIAG":
        diagonal = call.value(0)
        rows = columns = diagonal.shape[-1] if diagonal.shape else 0
        matrix = constant(np.zeros((), diagonal.dtype.numpy))
    else:
        matrix, diagonal = call.value(0), call.value(1)
        rows, columns = matrix.shape[-2:] if matrix.type.rank > 1 else (0, 0)
    if diagonal.type.rank == 0 or diagonal.shape[-1] != min(rows, columns):
        raise Fault("shape-mismatch", f"a diagonal of {list(diagonal.shape)} in {rows}x{columns} is not valid")
    wide = call.emit(Reshape((*diagonal.shape, 1)), diagonal)
    if rows > columns:
        wide = call.emit(Reshape((*diagonal.shape[:-1], 1, columns)), diagonal)
    call.give(call.emit(Where(), constant(np.eye(rows, columns, dtype=np.bool_)), wide, matrix))
