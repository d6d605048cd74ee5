"""Recurrent layers step by step: LSTMs with 8-bit weights, projection, peepholes, layer norm or coupled gates, and simple RNNs.

    g = x[t] W + h R + b        every row of x and h quantised for itself when the weights are 8-bit
    c = f * c + i * tanh(g)
    h = o * tanh(c)             and through the projection, where there is one

The product with x is one for all steps; the rest is written out once per step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.rows.activation import activate
from intaglio.frontends.tflite.walk import TFLiteCall, constant
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Clip, Sigmoid, Tanh
from intaglio.ops.binary import Add, Mul, Sub
from intaglio.ops.hybrid import HybridMatMul
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Concat, Reshape, Slice
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Reciprocal, Sqrt

MOST_STEPS = 1024


@dataclass(slots=True)
class _Weights:
    """Rows of one or more operands, one below the other; `scale` of a row where they are 8-bit."""

    data: Array
    scale: Array | None

    def times(self, call: TFLiteCall, x: Value, bias: Value | None, asymmetric: bool) -> Value:
        if self.scale is None:
            return call.emit(MatMul(transpose_b=True), x, constant(self.data), bias)
        return call.emit(HybridMatMul(asymmetric), x, constant(self.data), constant(self.scale), bias)


def weights_of(call: TFLiteCall, operands: list[int]) -> _Weights:
    parts, scales = [], []
    for n in operands:
        part, tensor = call.known(n, "weights"), call.tensor(n)
        if part.ndim != 2 or tensor.dtype not in (DType.F32, DType.I8, DType.U8):
            raise Fault(
                "unsupported-operator", f"weights of {tensor.dtype and tensor.dtype.value}{list(part.shape)} are not supported"
            )
        parts.append(part.view(np.int8) if tensor.dtype is DType.U8 else part)  # LiteRT reads the bytes as signed ones
        scales.append(np.full(len(part), 1.0 if tensor.dtype is DType.F32 else call.quant(tensor)[0], np.float32))
    if len({(p.shape, p.dtype) for p in parts}) != 1:
        raise Fault("shape-mismatch", "the weights of its gates differ in type or shape")
    data = np.concatenate(parts)
    return _Weights(data, None if data.dtype == np.float32 else np.concatenate(scales))


def steps_of(call: TFLiteCall, x: Value, time_major: bool) -> tuple[int, int]:
    time, batch = (x.shape[0], x.shape[1]) if time_major else (x.shape[1], x.shape[0])
    if time > MOST_STEPS:
        hint = "feed it step by step; its state is kept"
        raise Fault("unsupported-operator", f"{time} steps are too many to unroll for this kind of layer", hint)
    return time, batch


def part_of(call: TFLiteCall, x: Value, first: int, size: int) -> Value:
    """Columns of a matrix."""
    return call.emit(Slice((0, first), (1, 1), (x.shape[0], size)), x)


def step_of(call: TFLiteCall, projected: Value, t: int, time: int, batch: int, time_major: bool) -> Value:
    """Rows of step t: those of all steps stand in the order of the input."""
    if time == 1:
        return projected
    starts, steps = ((t * batch, 0), (1, 1)) if time_major else ((t, 0), (time, 1))
    return call.emit(Slice(starts, steps, (batch, projected.shape[1])), projected)


def _normal(call: TFLiteCall, x: Value, coefficients: Value, bias: Value) -> Value:
    mean = call.emit(Reduce("mean", (1,), True), x)
    apart = call.emit(Sub(), x, mean)
    variance = call.emit(Reduce("mean", (1,), True), call.emit(Mul(), apart, apart))
    guarded = call.emit(Add(), variance, constant(np.asarray(1e-8, np.float32)))
    scaled = call.emit(Mul(), apart, call.emit(Reciprocal(), call.emit(Sqrt(), guarded)))
    return call.emit(Add(), call.emit(Mul(), scaled, coefficients), bias)


def _real(call: TFLiteCall, n: int) -> Value:
    """A vector of floats; 8-bit ones are few, so they are widened here."""
    data, tensor = call.known(n, "weights"), call.tensor(n)
    return constant(data if data.dtype == np.float32 else data.astype(np.float32) * np.float32(call.quant(tensor)[0]))


def _projected(
    call: TFLiteCall, w: _Weights, x: Value, bias: Value | None, asymmetric: bool, other: int, operands: list[int]
) -> Value:
    """What the input adds to all steps, and another one at operand `other` by its own weights, where there is one."""
    flat = call.emit(Reshape((x.shape[0] * x.shape[1], x.shape[2])), x)
    made = w.times(call, flat, bias, asymmetric)
    if not call.has(other):
        return made
    y = call.value(other)
    beside = weights_of(call, operands).times(
        call, call.emit(Reshape((y.shape[0] * y.shape[1], y.shape[2])), y), None, asymmetric
    )
    return call.emit(Add(), made, beside)


def _in_order(time: int, backward: bool) -> range:
    return range(time - 1, -1, -1) if backward else range(time)


def unrolled_lstm(
    call: TFLiteCall, x: Value, h: Value, c: Value, time_major: bool, backward: bool = False
) -> tuple[Value, Value, Value]:
    """(y, h, c). `h` is [batch, outputs], `c` [batch, units]."""
    o = call.options
    gates = [0, 1, 2, 3] if call.has(1) else [1, 2, 3]
    normed, asymmetric = call.has(21), bool(getattr(o, "AsymmetricQuantizeInputs", bool)())
    time, batch = steps_of(call, x, time_major)
    w, r = weights_of(call, [1 + g for g in gates]), weights_of(call, [5 + g for g in gates])
    size = len(w.data) // len(gates)
    bias = None if normed else constant(np.concatenate([call.known(12 + g, "bias") for g in gates]).astype(np.float32))
    projected = _projected(call, w, x, bias, asymmetric, 24, [25 + g for g in gates])
    act = o.FusedActivationFunction()
    rows = []
    for t in _in_order(time, backward):
        total = call.emit(Add(), step_of(call, projected, t, time, batch, time_major), r.times(call, h, None, asymmetric))
        parts = {g: part_of(call, total, n * size, size) for n, g in enumerate(gates)}

        def gate(g: int, peephole: int, cell: Value, parts: dict[int, Value] = parts) -> Value:
            value = parts[g]
            if peephole and call.has(peephole):
                value = call.emit(Add(), value, call.emit(Mul(), cell, _real(call, peephole)))
            if normed:
                value = _normal(call, value, _real(call, 20 + g), _real(call, 12 + g))
            return activate(call, value, act) if g == 2 else call.emit(Sigmoid(), value)

        forget, update = gate(1, 10, c), gate(2, 0, c)
        enter = gate(0, 9, c) if 0 in parts else call.emit(Sub(), constant(np.asarray(1.0, np.float32)), forget)
        c = call.emit(Add(), call.emit(Mul(), forget, c), call.emit(Mul(), enter, update))
        if o.CellClip() > 0:
            c = call.emit(Clip(-o.CellClip(), o.CellClip()), c)
        h = call.emit(Mul(), gate(3, 11, c), activate(call, c, act))
        if call.has(16):
            h = weights_of(call, [16]).times(call, h, _real(call, 17) if call.has(17) else None, asymmetric)
            h = call.emit(Clip(-o.ProjClip(), o.ProjClip()), h) if o.ProjClip() > 0 else h
        rows.append(h)
    return _stacked(call, rows[::-1] if backward else rows, time_major), h, c


def _stacked(call: TFLiteCall, rows: list[Value], time_major: bool) -> Value:
    batch, size = rows[0].shape
    shape = (1, batch, size) if time_major else (batch, 1, size)
    shaped = [call.emit(Reshape(shape), row) for row in rows]
    return call.emit(Concat(0 if time_major else 1), *shaped) if len(shaped) > 1 else shaped[0]


def unrolled_rnn(call: TFLiteCall, x: Value, h: Value, time_major: bool, backward: bool = False) -> tuple[Value, Value]:
    o = call.options
    asymmetric, act = bool(getattr(o, "AsymmetricQuantizeInputs", bool)()), o.FusedActivationFunction()
    time, batch = steps_of(call, x, time_major)
    w, r = weights_of(call, [1]), weights_of(call, [2])
    projected = _projected(call, w, x, call.value(3), asymmetric, 5, [6])
    rows = []
    for t in _in_order(time, backward):
        now = step_of(call, projected, t, time, batch, time_major)
        total = call.emit(Add(), now, r.times(call, h, None, asymmetric))
        h = call.emit(Tanh(), total) if act == 4 else activate(call, total, act)
        rows.append(h)
    return _stacked(call, rows[::-1] if backward else rows, time_major), h
