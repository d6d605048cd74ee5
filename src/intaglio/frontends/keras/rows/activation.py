"""Activations: the functions by their names, the layers, and those of `keras.ops`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import cast, part
from intaglio.frontends.keras.config import Config
from intaglio.frontends.keras.walk import KerasCall, Result, function, layer
from intaglio.frontends.onnx.faults import Fault, unsupported
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
from intaglio.ops.base import Op, normal_axis
from intaglio.ops.binary import Add, Div, Greater, GreaterEqual, Mul, Prelu, Sub, Where
from intaglio.ops.reduce import Cumsum, LogSoftmax, Reduce, Softmax, TopK
from intaglio.ops.unary import Exp, Neg, Sqrt

_PLAIN: dict[str, Op] = {
    "relu": Relu(), "relu6": Clip(0.0, 6.0), "selu": Selu(), "softplus": Softplus(), "softsign": Softsign(),
    "silu": Silu(), "swish": Silu(), "tanh": Tanh(), "sigmoid": Sigmoid(), "exponential": Exp(),
    "hard_silu": HardSwish(), "hard_swish": HardSwish(), "hard_tanh": Clip(-1.0, 1.0), "mish": Mish(),
    "sparse_sigmoid": HardSigmoid(0.5, 0.5),
}  # fmt: skip


def hard_sigmoid(call: KerasCall) -> tuple[float, float]:
    """Slope and offset. Keras 3 took those of PyTorch; files of Keras 2 were trained with the old ones."""
    if call.walk.version >= (3,):
        return 1 / 6, 0.5
    call.walk.differences.append("`hard_sigmoid` has different slopes in Keras 2 and Keras 3")
    return 0.2, 0.5


def activation_name(told: Any) -> tuple[str, Config]:
    """A function as a file names it: a text, or an object with the text inside. Nothing is looked up by module."""
    if told is None:
        return "linear", {}
    if isinstance(told, str):
        return told.rpartition(">")[2] if told.startswith("keras") else told, {}
    if isinstance(told, dict):
        kind, config = told.get("class_name"), told.get("config")
        if kind == "function" and isinstance(config, str):
            module = told.get("module")
            if module in (None, "builtins", "keras.activations") or str(module).startswith("keras.src.activations"):
                return config, {}
            raise unsupported(f"its activation {quoted(config)} is of the module {quoted(str(module))}, which is not Keras's")
        if isinstance(kind, str) and isinstance(config, dict):
            return kind, config
    raise unsupported(f"its activation {quoted(str(told))} is not one of Keras's", "use an activation that Keras has")


def activate(call: KerasCall, x: Value, told: Any) -> Value:
    """The activation that the options of a layer name."""
    name, config = activation_name(told)
    layers = {"ReLU": relu_layer, "LeakyReLU": leaky, "ELU": elu, "Softmax": softmax}
    if name in layers:
        return _inner(call, name, config, x, layers[name])
    return by_name(call, x, name, config)


def _inner(call: KerasCall, name: str, config: Config, x: Value, row: Any) -> Value:
    """A layer that is given as an activation."""
    inner = KerasCall(call.walk, call.layer, [x], {})
    inner.config = config
    result = row(inner)
    assert isinstance(result, Value), name
    return result


def by_name(call: KerasCall, x: Value, name: str, config: Config | None = None) -> Value:
    """An activation function with its arguments, or their defaults."""
    given = config or {}

    def told(key: str, default: float) -> float:
        value = given.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Fault("bad-attribute", f"`{key}` is {quoted(str(value))}, not a number")
        return float(value)

    if name == "linear":
        return x
    if not x.dtype.is_float and name != "relu":
        x = cast(call, x, DType.F32)
    if name in _PLAIN:
        return call.emit(_PLAIN[name], x)
    axis = given.get("axis", -1)
    match name:
        case "hard_sigmoid":
            return call.emit(HardSigmoid(*hard_sigmoid(call)), x)
        case "softmax":
            return call.emit(Softmax(normal_axis(int(axis), x.type.rank)), x)
        case "log_softmax":
            return call.emit(LogSoftmax(normal_axis(int(axis), x.type.rank)), x)
        case "leaky_relu":
            return call.emit(LeakyRelu(told("negative_slope", 0.2)), x)
        case "elu":
            return call.emit(Elu(told("alpha", 1.0)), x)
        case "celu":
            return call.emit(Celu(told("alpha", 1.0)), x)
        case "gelu":
            return call.emit(Gelu(bool(given.get("approximate", False))), x)
        case "soft_shrink":
            limit = told("threshold", 0.5)
            return call.emit(Shrink(limit, limit), x)
        case "hard_shrink":
            return call.emit(Shrink(0.0, told("threshold", 0.5)), x)
        case "tanh_shrink":
            return call.emit(Sub(), x, call.emit(Tanh(), x))
        case "log_sigmoid":
            return call.emit(Neg(), call.emit(Softplus(), call.emit(Neg(), x)))
        case "squareplus":
            square = call.emit(Add(), call.emit(Mul(), x, x), call.like(told("b", 4.0), x))
            return call.emit(Mul(), call.emit(Add(), x, call.emit(Sqrt(), square)), call.like(0.5, x))
        case "sparse_plus":
            near = call.emit(Add(), call.emit(Clip(-1.0, 1.0), x), call.like(1.0, x))
            curve = call.emit(Mul(), call.emit(Mul(), near, near), call.like(0.25, x))
            return call.emit(Add(), curve, call.emit(Relu(), call.emit(Sub(), x, call.like(1.0, x))))
        case "threshold":
            over = call.emit(Greater(), x, call.like(told("threshold", math.nan), x))
            return call.emit(Where(), over, x, call.like(told("default_value", math.nan), x))
        case "glu":
            return _glu(call, x, normal_axis(int(axis), x.type.rank))
        case "sparsemax":
            return _sparsemax(call, x, normal_axis(int(axis), x.type.rank))
    raise unsupported(f"its activation {quoted(name)} is not one of Keras's", "use an activation that Keras has")


def _glu(call: KerasCall, x: Value, axis: int) -> Value:
    half = x.shape[axis] // 2
    if half * 2 != x.shape[axis]:
        raise Fault("shape-mismatch", f"`glu` cannot halve an axis of {x.shape[axis]}")
    return call.emit(Mul(), part(call, x, axis, 0, half), call.emit(Sigmoid(), part(call, x, axis, half, half)))


def _sparsemax(call: KerasCall, x: Value, axis: int) -> Value:
    """As Keras computes it: with the sum of the running sums, where Martins and Astudillo (2016) have the last of them."""
    count = x.shape[axis]
    ordered, _ = call.emit_all(TopK(count, axis, True, True), x)
    sums = call.emit(Cumsum(axis), ordered)
    shape = [1] * x.type.rank
    shape[axis] = count
    ranks = call.constant(np.arange(1, count + 1, dtype=np.float32).reshape(shape), x.dtype)
    inside = call.emit(Greater(), call.emit(Add(), call.emit(Mul(), ordered, ranks), call.like(1.0, x)), sums)
    kept = cast(call, inside, x.dtype)
    number = call.emit(Reduce("sum", (axis,), True), kept)
    total = call.emit(Reduce("sum", (axis,), True), call.emit(Mul(), sums, kept))
    tau = call.emit(Div(), call.emit(Sub(), total, call.like(1.0, x)), number)
    return call.emit(Relu(), call.emit(Sub(), x, tau))


@layer("Activation")
def activation_layer(call: KerasCall) -> Result:
    return activate(call, call.x, call.option("activation"))


@layer("ReLU", "ThresholdedReLU")
@function("ReLU")
def relu_layer(call: KerasCall) -> Value:
    """max(x, 0) up to `max_value`; below `threshold`, `negative_slope` times the distance to it."""
    x = call.x
    if call.layer.kind == "ThresholdedReLU":
        return call.emit(ThresholdedRelu(call.number("theta", 1.0)), x)
    slope = 0.0 if call.option("negative_slope") is None else call.number("negative_slope", 0.0)
    threshold = 0.0 if call.option("threshold") is None else call.number("threshold", 0.0)
    highest = math.inf if call.option("max_value") is None else call.number("max_value", math.inf)
    if threshold == 0.0:
        y = call.emit(LeakyRelu(slope), x) if slope else x
        if slope:
            return y if highest == math.inf else call.emit(Clip(-math.inf, highest), y)
        return call.emit(Relu(), x) if highest == math.inf else call.emit(Clip(0.0, highest), x)
    limit = call.like(threshold, x)
    low = call.emit(Mul(), call.emit(Sub(), x, limit), call.like(slope, x))
    y = call.emit(Where(), call.emit(GreaterEqual(), x, limit), x, low)
    return y if highest == math.inf else call.emit(Clip(-math.inf, highest), y)


@layer("LeakyReLU")
def leaky(call: KerasCall) -> Value:
    old = call.number("alpha", 0.3)
    return call.emit(LeakyRelu(call.number("negative_slope", old)), call.x)


@layer("ELU")
def elu(call: KerasCall) -> Value:
    return call.emit(Elu(call.number("alpha", 1.0)), call.x)


@layer("PReLU")
def prelu(call: KerasCall) -> Value:
    x = call.x
    shape = list(x.shape[1:])
    shared = call.option("shared_axes") or []
    for axis in shared if isinstance(shared, list) else [shared]:
        shape[int(axis) - 1] = 1
    return call.emit(Prelu(), x, call.weight("alpha", *shape))


@layer("Softmax")
def softmax(call: KerasCall) -> Result:
    """Of what a mask leaves out, the result is 0; before Keras 3.10, all are equal where it leaves nothing."""
    x, axis = call.x, call.option("axis", -1)
    axes = [axis] if isinstance(axis, int) else axis
    if len(axes) != 1:
        raise unsupported(f"`axis` is {quoted(str(axis))}: over several axes it is not supported")
    given = call.tensors()
    mask = given[1] if len(given) > 1 else call.mask(x)
    if mask is None:
        return call.emit(Softmax(normal_axis(int(axes[0]), x.type.rank)), x)
    if mask.type.rank > x.type.rank or any(m not in (1, n) for m, n in zip(mask.shape[::-1], x.shape[::-1], strict=False)):
        raise unsupported(f"its mask of {list(mask.shape)} does not fit its input of {list(x.shape)}", "give it another `mask`")
    if mask.dtype is not DType.BOOL:
        mask = call.emit(Greater(), mask, call.like(0.5, mask)) if mask.dtype.is_float else cast(call, mask, DType.BOOL)
    far = call.like(-3e4 if x.dtype is DType.F16 else -1e9, x)
    y = call.emit(Softmax(normal_axis(int(axes[0]), x.type.rank)), call.emit(Where(), mask, x, far))
    if call.walk.version < (3, 10):
        call.walk.masking.differs("where a mask leaves nothing, the results of `Softmax` are equal")
        return y
    return call.emit(Where(), mask, y, call.like(0, y))


_FUNCTIONS = {
    "Relu": "relu", "Relu6": "relu6", "Sigmoid": "sigmoid", "SparseSigmoid": "sparse_sigmoid", "Softplus": "softplus",
    "Softsign": "softsign", "SoftShrink": "soft_shrink", "SparsePlus": "sparse_plus", "Silu": "silu", "Squareplus": "squareplus",
    "LogSigmoid": "log_sigmoid", "LeakyRelu": "leaky_relu", "HardSigmoid": "hard_sigmoid", "HardSilu": "hard_silu", "Elu": "elu",
    "Selu": "selu", "Gelu": "gelu", "Celu": "celu", "Glu": "glu", "TanhShrink": "tanh_shrink", "HardTanh": "hard_tanh",
    "HardShrink": "hard_shrink", "Threshold": "threshold", "Softmax": "softmax", "LogSoftmax": "log_softmax",
    "Sparsemax": "sparsemax", "Mish": "mish", "Tanh": "tanh", "Exp": "exponential",
}  # fmt: skip


@function(*_FUNCTIONS)
def activation_function(call: KerasCall) -> Result:
    return by_name(call, call.x, _FUNCTIONS[call.layer.kind], call.config)
