"""Functions of TensorFlow in models of Keras 2: `TFOpLambda` names them, the simple ones are written by those of `keras.ops`."""

from __future__ import annotations

from typing import Any

from intaglio.errors import quoted
from intaglio.frontends.keras.walk import FUNCTIONS, KerasCall, Result, layer
from intaglio.frontends.onnx.faults import unsupported

_NAMES = {
    "__operators__.add": "Add", "math.add": "Add", "__operators__.subtract": "Subtract", "math.subtract": "Subtract",
    "__operators__.multiply": "Multiply", "math.multiply": "Multiply", "math.truediv": "Divide", "math.divide": "Divide",
    "__operators__.truediv": "Divide", "__operators__.pow": "Power", "math.pow": "Power", "math.maximum": "Maximum",
    "math.minimum": "Minimum", "nn.relu": "Relu", "nn.relu6": "Relu6", "math.sigmoid": "Sigmoid", "nn.sigmoid": "Sigmoid",
    "math.tanh": "Tanh", "nn.tanh": "Tanh", "nn.silu": "Silu", "nn.swish": "Silu", "nn.softmax": "Softmax", "math.exp": "Exp",
    "math.log": "Log", "math.sqrt": "Sqrt", "math.rsqrt": "Rsqrt", "math.square": "Square", "math.abs": "Absolute",
    "math.negative": "Negative", "nn.elu": "Elu", "nn.selu": "Selu", "nn.softplus": "Softplus", "math.reduce_mean": "Mean",
    "math.reduce_sum": "Sum", "math.reduce_max": "Max", "math.reduce_min": "Min", "cast": "Cast", "expand_dims": "ExpandDims",
    "squeeze": "Squeeze", "reshape": "Reshape", "transpose": "Transpose", "concat": "Concatenate", "linalg.matmul": "Matmul",
    "clip_by_value": "Clip", "identity": "Copy", "stop_gradient": "StopGradient",
}  # fmt: skip
_OPTIONS = {"perm": "axes", "shape": "newshape", "clip_value_min": "x_min", "clip_value_max": "x_max", "y": "x2", "x": "x1"}


@layer("TFOpLambda", "SlicingOpLambda")
def tensorflow_function(call: KerasCall) -> Result:
    told = call.option("function")
    if not isinstance(told, str) or told not in _NAMES:
        hint = "write it with layers, or convert the model to TFLite and compile that"
        raise unsupported(f"the TensorFlow function {quoted(str(told))} is not supported", hint)
    options: dict[str, Any] = {_OPTIONS.get(k, k): v for k, v in call.kwargs.items() if k != "name"}
    operands = [options.pop("x1"), *call.args] if "x1" in options and "x2" not in options and call.args else list(call.args)
    if "x2" in options:
        operands.append(options.pop("x2"))
    if any(options.get(k) for k in ("transpose_a", "transpose_b", "adjoint_a", "adjoint_b")):
        raise unsupported("a product of transposed matrices is not supported")
    inner = KerasCall(call.walk, call.layer, operands, {})
    inner.layer = type(call.layer)(call.layer.name, _NAMES[told], options, is_op=True)
    inner.config = options
    return FUNCTIONS[inner.layer.kind](inner)
