"""UNIDIRECTIONAL_SEQUENCE_LSTM in float. Its two variable tensors live on from run to run, as TFLite's do: they are state."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import Call, Variable, constant, importer
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType, TensorType
from intaglio.ops import Lstm, Reshape

_ACTIVATIONS = {1: "Relu", 4: "Tanh"}


def _state(call: Call, i: int, shape: tuple[int, ...]) -> Variable:
    """The variable tensor at operand `i`, as an input of the graph."""
    tensor = call.tensor(i)
    if not tensor.is_variable:
        raise Fault("unsupported-operator", "a state that is computed is not supported yet")
    state = Variable(tensor.name)
    state.entry = state.now = Value("", TensorType(DType.F32, shape), tensor.name)
    call.walk.variables[f"tensor:{id(call.graph)}:{tensor.index}"] = state
    call.walk.extra_inputs.append(state.entry)
    return state


@importer("UNIDIRECTIONAL_SEQUENCE_LSTM")
def sequence_lstm(call: Call) -> None:
    o, x = call.options, call.value(0)
    if x.dtype is not DType.F32:
        raise Fault("unsupported-operator", "an LSTM of integers is not supported yet")
    if not call.has(1):
        raise Fault("unsupported-operator", "an LSTM without an input gate is not supported yet")
    if call.has(16) or any(call.has(n) for n in range(20, 24)) or any(call.has(n) for n in range(9, 12)):
        raise Fault("unsupported-operator", "an LSTM with projection, peepholes or layer norm is not supported yet")
    if o.FusedActivationFunction() not in _ACTIVATIONS:
        raise Fault("unsupported-operator", "an LSTM with this activation is not supported yet")
    if call.tensor(2).dtype is not DType.F32:
        raise Fault("unsupported-operator", "an LSTM with integer weights is not supported yet")

    def joined(i: int, f: int, c: int, out: int) -> Array:
        return np.concatenate([call.known(n, "weights") for n in (i, out, f, c)])  # gates in the order of the operator

    w, r = joined(1, 2, 3, 4)[None], joined(5, 6, 7, 8)[None]
    bias = joined(12, 13, 14, 15)
    both = np.concatenate([bias, np.zeros_like(bias)])[None]
    hidden = r.shape[-1]
    batch_first = not o.TimeMajor()
    names = ("Sigmoid", _ACTIVATIONS[o.FusedActivationFunction()], _ACTIVATIONS[o.FusedActivationFunction()])
    op = Lstm(hidden, "forward", names, (0.0,) * 3, (0.0,) * 3, math.inf, batch_first, cell_clip=o.CellClip() or math.inf)
    batch = x.shape[0] if batch_first else x.shape[1]
    shape = (batch, 1, hidden) if batch_first else (1, batch, hidden)
    states = [_state(call, n, (batch, hidden)) for n in (18, 19)]
    starts = [call.emit(Reshape(shape), s.now) for s in states]
    y, *ends = call.emit_all(op, x, constant(w), constant(r), constant(both), None, *starts, None)
    for state, end in zip(states, ends, strict=True):
        state.now = call.emit(Reshape((batch, hidden)), end)
    call.give(call.emit(Reshape((*x.shape[:2], hidden)), y))
