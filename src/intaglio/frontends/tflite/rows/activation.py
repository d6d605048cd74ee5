"""Fused activations: a node for floats, a range of the stored integers for quantised operators."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.container import Tensor
from intaglio.frontends.tflite.walk import TFLiteCall
from intaglio.ir.graph import Value
from intaglio.ops.activation import Clip, Relu, Tanh

NONE, RELU, RELU_N1_TO_1, RELU6, TANH = range(5)


def activate(call: TFLiteCall, value: Value, kind: int) -> Value:
    match kind:
        case 0:
            return value
        case 1:
            return call.emit(Relu(), value)
        case 2:
            return call.emit(Clip(-1.0, 1.0), value)
        case 3:
            return call.emit(Clip(0.0, 6.0), value)
        case 4:
            return call.emit(Tanh(), value)
    raise Fault("unsupported-operator", f"the fused activation {kind} is not supported")


def round_away(x: float) -> int:
    """C's round: half away from zero."""
    return math.floor(x + 0.5) if x >= 0 else math.ceil(x - 0.5)


def bounds(call: TFLiteCall, kind: int, out: Tensor) -> tuple[int, int]:
    """The range of the stored integers that a fused activation leaves."""
    if out.dtype is None or not out.dtype.is_int:
        raise Fault("bad-tensor", "its result is not of integers")
    info = np.iinfo(out.dtype.numpy)
    low, high = int(info.min), int(info.max)
    if kind == NONE:
        return low, high
    scale, zero = call.quant(out)

    def stored(real: float) -> int:
        return zero + round_away(float(np.float32(real) / np.float32(scale)))

    match kind:
        case 1:
            return max(low, stored(0.0)), high
        case 2:
            return max(low, stored(-1.0)), min(high, stored(1.0))
        case 3:
            return max(low, stored(0.0)), min(high, stored(6.0))
    raise Fault("unsupported-operator", f"the fused activation {kind} of a quantised operator is not supported")
