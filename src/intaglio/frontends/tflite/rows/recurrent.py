"""UNIDIRECTIONAL_SEQUENCE_LSTM. Its two variable tensors live on from run to run, as TFLite's do: they are state."""

from __future__ import annotations

import math

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.rows.unrolled import unrolled_lstm, unrolled_rnn
from intaglio.frontends.tflite.walk import TFLiteCall, Variable, constant, importer, type_quant
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType, TensorType
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.move import Reshape
from intaglio.ops.quantised_recurrent import QLstm
from intaglio.ops.recurrent import Lstm

_ACTIVATIONS = {1: "Relu", 4: "Tanh"}
_PLAIN = "convert from a plain `keras.layers.LSTM`"


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
    state = Variable(tensor.name)
    if dtype is DType.I8:
        state.start = np.full(shape, call.quant(tensor)[1], np.int8)
    state.entry = state.now = Value("", TensorType(dtype, shape, quant=type_quant(tensor.quant)), tensor.name)
    call.walk.variables[key] = state
    call.walk.extra_inputs.append(state.entry)
    return state


@importer("UNIDIRECTIONAL_SEQUENCE_LSTM")
def sequence_lstm(call: TFLiteCall) -> None:
    o, x = call.options, call.value(0)
    if x.type.rank != 3:
        raise Fault("shape-mismatch", f"an LSTM takes three axes, got {list(x.shape)}")
    plain = not any(call.has(n) for n in (9, 10, 11, 16, 20, 21, 22, 23))
    if x.dtype is DType.I8:
        if not plain:
            reason = "an LSTM of integers with projection, peepholes or layer norm is not supported"
            raise Fault("unsupported-operator", reason, _PLAIN)
        _integer_lstm(call, x)
        return
    if x.dtype is not DType.F32:
        raise Fault("unsupported-operator", f"an LSTM of {x.dtype.value} is not supported", "use float or 8-bit activations")
    if not plain or not call.has(1) or call.tensor(2).dtype is not DType.F32:
        _step_by_step(call, x, bool(o.TimeMajor()))
        return
    if o.FusedActivationFunction() not in _ACTIVATIONS:
        raise Fault("unsupported-operator", "an LSTM with this activation is not supported yet")

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
    states = [variable_state(call, n, (batch, hidden)) for n in (18, 19)]
    starts = [call.emit(Reshape(shape), s.now) for s in states]
    y, *ends = call.emit_all(op, x, constant(w), constant(r), constant(both), None, *starts, None)
    for state, end in zip(states, ends, strict=True):
        state.now = call.emit(Reshape((batch, hidden)), end)
    call.give(call.emit(Reshape((*x.shape[:2], hidden)), y))


def _step_by_step(call: TFLiteCall, x: Value, time_major: bool) -> None:
    batch = x.shape[1] if time_major else x.shape[0]
    size, outputs = call.tensor(2).shape[0], call.tensor(6).shape[-1]
    states = [variable_state(call, n, (batch, count)) for n, count in ((18, outputs), (19, size))]
    y, *ends = unrolled_lstm(call, x, states[0].held(), states[1].held(), time_major)
    for state, end in zip(states, ends, strict=True):
        state.now = end
    call.give(y)


@importer("LSTM")
def lstm(call: TFLiteCall) -> None:
    """One step of the same; the older kernel with one matrix for all is not here."""
    x = call.value(0)
    if getattr(call.options, "KernelType", int)() != 0 or len(call.operator.inputs) < 20:
        raise Fault("unsupported-operator", "an LSTM with its weights in one matrix is not supported", _PLAIN)
    if x.dtype is not DType.F32 or x.type.rank != 2:
        raise Fault("unsupported-operator", f"an LSTM of {x.dtype.value}{list(x.shape)} is not supported", _PLAIN)
    _step_by_step(call, call.emit(Reshape((1, *x.shape)), x), True)


@importer("UNIDIRECTIONAL_SEQUENCE_RNN", "RNN")
def simple_rnn(call: TFLiteCall) -> None:
    x, single = call.value(0), call.operator.op == "RNN"
    if x.dtype is not DType.F32 or x.type.rank != (2 if single else 3):
        raise Fault("unsupported-operator", f"an RNN of {x.dtype.value}{list(x.shape)} is not supported", "use float activations")
    time_major = single or bool(call.options.TimeMajor())
    rows = call.emit(Reshape((1, *x.shape)), x) if single else x
    state = variable_state(call, 4, (rows.shape[1 if time_major else 0], call.tensor(1).shape[0]))
    y, state.now = unrolled_rnn(call, rows, state.held(), time_major)
    call.give(y)


def _integer_lstm(call: TFLiteCall, x: Value) -> None:
    """Zero points of input and hidden state go into the biases: what is left is a product of stored integers."""
    o = call.options
    if o.FusedActivationFunction() != 4:
        raise Fault("unsupported-operator", "an LSTM of integers supports only tanh as its activation")
    if len(call.operator.intermediates) < 5:
        raise Fault("bad-quantisation", "its hidden state has no quantisation parameters")
    gates = (0, 1, 2, 3) if call.has(1) else (1, 2, 3)
    weights, recurrents = [call.known(1 + g, "weights") for g in gates], [call.known(5 + g, "weights") for g in gates]
    biases = [call.known(12 + g, "bias") for g in gates]
    (x_scale, x_zero), (h_scale, h_zero) = call.quant(call.tensor(0)), call.quant(call.tensor(18))
    c_scale, _ = call.quant(call.tensor(19))
    out_scale, out_zero = call.quant(call.graph.tensors[call.operator.intermediates[4]])
    cell_bits = round(math.log2(c_scale))
    if abs(math.log2(c_scale) - cell_bits) > 1e-3:
        raise Fault("bad-quantisation", f"the step {c_scale} of its cell state is not a power of two")

    def factors(first: int, scale: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
        reals = [np.float32(call.quant(call.tensor(first + g))[0]) * np.float32(scale) / np.float32(2**-12) for g in gates]
        pairs = [quantize_multiplier(float(real)) for real in reals]
        return tuple(m for m, _ in pairs), tuple(s for _, s in pairs)

    w, r = np.concatenate(weights), np.concatenate(recurrents)
    bw = np.concatenate(biases).astype(np.int64) - x_zero * w.astype(np.int64).sum(axis=1)
    br = -h_zero * r.astype(np.int64).sum(axis=1)
    h_multiplier, h_shift = quantize_multiplier(float(np.float32(2.0**-15 / out_scale * 2.0**-15)))
    clip = int(min(float(np.float32(o.CellClip()) / np.float32(c_scale)), 32767.0)) if o.CellClip() > 0 else 0
    op = QLstm(
        *factors(1, x_scale), *factors(5, h_scale), h_multiplier, h_shift, out_zero, cell_bits, clip, len(gates) == 3,
        bool(o.TimeMajor()),
    )  # fmt: skip
    shape = (x.shape[1] if o.TimeMajor() else x.shape[0], r.shape[1])
    states = [variable_state(call, 18, shape, DType.I8), variable_state(call, 19, shape, DType.I16)]
    known = [constant(a) for a in (w, r, bw.astype(np.int32), br.astype(np.int32))]
    y, *ends = call.emit_all(op, x, *known, *[s.now for s in states])
    for state, end in zip(states, ends, strict=True):
        state.now = end
    call.give(y)
