"""LSTMs and simple RNNs. Their variable tensors live on from run to run, as TFLite's do: they are state."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.rows.integer_lstm import integer_lstm
from intaglio.frontends.tflite.rows.unrolled import unrolled_lstm, unrolled_rnn
from intaglio.frontends.tflite.rows.variable_state import variable_state
from intaglio.frontends.tflite.walk import TFLiteCall, constant, importer
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.move import Reshape
from intaglio.ops.recurrent import Lstm

_ACTIVATIONS = {1: "Relu", 4: "Tanh"}
_PLAIN = "convert from a plain `keras.layers.LSTM`"


@importer("UNIDIRECTIONAL_SEQUENCE_LSTM")
def sequence_lstm(call: TFLiteCall) -> None:
    x = call.value(0)
    if x.type.rank != 3:
        raise Fault("shape-mismatch", f"an LSTM takes three axes, got {list(x.shape)}")
    if x.dtype is DType.I8:
        call.give(integer_lstm(call, x, bool(call.options.TimeMajor())))
        return
    call.give(float_lstm(call, x, bool(call.options.TimeMajor())))


def float_lstm(call: TFLiteCall, x: Value, time_major: bool, backward: bool = False) -> Value:
    """Over a sequence, from its end on where it is `backward`; operands 24 to 28 are another input and its weights."""
    o = call.options
    plain = not any(call.has(n) for n in (9, 10, 11, 16, 20, 21, 22, 23, 24))
    if x.dtype is not DType.F32:
        raise Fault("unsupported-operator", f"an LSTM of {x.dtype.value} is not supported", "use float or 8-bit activations")
    if not plain or not call.has(1) or call.tensor(2).dtype is not DType.F32:
        return _step_by_step(call, x, time_major, backward)
    if o.FusedActivationFunction() not in _ACTIVATIONS:
        raise Fault("unsupported-operator", "an LSTM with this activation is not supported yet")

    def joined(i: int, f: int, c: int, out: int) -> Array:
        return np.concatenate([call.known(n, "weights") for n in (i, out, f, c)])  # gates in the order of the operator

    w, r = joined(1, 2, 3, 4)[None], joined(5, 6, 7, 8)[None]
    bias = joined(12, 13, 14, 15)
    both = np.concatenate([bias, np.zeros_like(bias)])[None]
    hidden = r.shape[-1]
    batch_first = not time_major
    names = ("Sigmoid", _ACTIVATIONS[o.FusedActivationFunction()], _ACTIVATIONS[o.FusedActivationFunction()])
    way = "reverse" if backward else "forward"
    op = Lstm(hidden, way, names, (0.0,) * 3, (0.0,) * 3, math.inf, batch_first, cell_clip=o.CellClip() or math.inf)
    batch = x.shape[0] if batch_first else x.shape[1]
    shape = (batch, 1, hidden) if batch_first else (1, batch, hidden)
    states = [variable_state(call, n, (batch, hidden)) for n in (18, 19)]
    starts = [call.emit(Reshape(shape), s.now) for s in states]
    y, *ends = call.emit_all(op, x, constant(w), constant(r), constant(both), None, *starts, None)
    for state, end in zip(states, ends, strict=True):
        state.now = call.emit(Reshape((batch, hidden)), end)
    return call.emit(Reshape((*x.shape[:2], hidden)), y)


def _step_by_step(call: TFLiteCall, x: Value, time_major: bool, backward: bool = False) -> Value:
    batch = x.shape[1] if time_major else x.shape[0]
    size, outputs = call.tensor(2).shape[0], call.tensor(6).shape[-1]
    states = [variable_state(call, n, (batch, count)) for n, count in ((18, outputs), (19, size))]
    y, *ends = unrolled_lstm(call, x, states[0].held(), states[1].held(), time_major, backward)
    for state, end in zip(states, ends, strict=True):
        state.now = end
    return y


@importer("LSTM")
def lstm(call: TFLiteCall) -> None:
    """One step of the same; the older kernel with one matrix for all is not here."""
    x = call.value(0)
    if getattr(call.options, "KernelType", int)() != 0 or len(call.operator.inputs) < 20:
        raise Fault("unsupported-operator", "an LSTM with its weights in one matrix is not supported", _PLAIN)
    if x.dtype not in (DType.F32, DType.I8) or x.type.rank != 2:
        raise Fault("unsupported-operator", f"an LSTM of {x.dtype.value}{list(x.shape)} is not supported", _PLAIN)
    if x.dtype is DType.I8:
        y = integer_lstm(call, call.emit(Reshape((1, *x.shape)), x), True)
        call.give(call.emit(Reshape(y.shape[1:]), y))
        return
    call.give(_step_by_step(call, call.emit(Reshape((1, *x.shape)), x), True))


@importer("UNIDIRECTIONAL_SEQUENCE_RNN", "RNN")
def simple_rnn(call: TFLiteCall) -> None:
    x, single = call.value(0), call.operator.op == "RNN"
    if x.dtype is not DType.F32 or x.type.rank != (2 if single else 3):
        raise Fault("unsupported-operator", f"an RNN of {x.dtype.value}{list(x.shape)} is not supported", "use float activations")
    rows = call.emit(Reshape((1, *x.shape)), x) if single else x
    call.give(float_rnn(call, rows, single or bool(call.options.TimeMajor())))


def float_rnn(call: TFLiteCall, x: Value, time_major: bool, backward: bool = False) -> Value:
    """Over a sequence; operands 5 and 6 are another input and its weights."""
    state = variable_state(call, 4, (x.shape[1 if time_major else 0], call.tensor(1).shape[0]))
    y, state.now = unrolled_rnn(call, x, state.held(), time_major, backward)
    return y
