"""Variable tensors of recurrent layers: they live on from run to run, as TFLite's do."""

from __future__ import annotations

import math

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import TFLiteCall, Variable, type_quant
from intaglio.ir.graph import Value
from intaglio.ir.types import DType, TensorType


def variable_state(call: TFLiteCall, i: int, shape: tuple[int, ...], dtype: DType = DType.F32) -> Variable:
    """The variable tensor at operand `i`, as an input of the graph. LiteRT fills 8-bit ones with their zero point."""
    tensor = call.tensor(i)
    if not tensor.is_variable:
        raise Fault("unsupported-operator", f"its state {quoted(tensor.name)} is computed", "make the state a variable tensor")
    if tensor.dtype is not dtype or math.prod(tensor.shape) != math.prod(shape):
        raise Fault("bad-tensor", f"its state {quoted(tensor.name)} is {tensor.dtype and tensor.dtype.value}{list(tensor.shape)}")
    key = f"tensor:{id(call.graph)}:{tensor.index}"
    if key in call.walk.variables:
        raise Fault("bad-graph", f"its state {quoted(tensor.name)} belongs to another operator too")
    state = Variable(tensor.name or f"state_{tensor.index}")
    if dtype is DType.I8:
        state.start = np.full(shape, call.quant(tensor)[1], np.int8)
    state.entry = state.now = Value("", TensorType(dtype, shape, quant=type_quant(tensor.quant)), state.name)
    call.walk.variables[key] = state
    call.walk.extra_inputs.append(state.entry)
    return state
