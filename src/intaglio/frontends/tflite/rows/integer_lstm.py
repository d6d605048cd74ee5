"""LSTMs of integers, 8-bit with a 16-bit cell state: scales become factors as LiteRT computes them, in floats where it does.

Zero points of input and hidden state go into the biases: what is left is a product of stored integers. With a norm the biases are
added after it.
"""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.rows.variable_state import variable_state
from intaglio.frontends.tflite.walk import TFLiteCall, constant
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.quantised_recurrent import QLstm

_PEEPHOLES = (9, 10, None, 11)  # operands of the gates input, forget, update, output
_BETWEEN = 5  # intermediate tensors: the sums of four gates, then what goes into a projection
Factors = tuple[tuple[int, ...], tuple[int, ...]]


def integer_lstm(call: TFLiteCall, x: Value, time_major: bool) -> Value:
    """What it gives, and its states renewed. `x` has three axes."""
    _check(call)
    o, gates = call.options, (0, 1, 2, 3) if call.has(1) else (1, 2, 3)
    normed, projected = call.has(21), call.has(16)
    w, r = (np.concatenate([_weights(call, first + g) for g in gates]) for first in (1, 5))
    biases = np.concatenate([call.known(12 + g, "bias") for g in gates]).astype(np.int64)
    (x_scale, x_zero), (h_scale, h_zero) = call.quant(call.tensor(0)), call.quant(call.tensor(18))
    c_scale, out_scale = call.quant(call.tensor(19))[0], call.quant(call.out())[0]
    cell_bits = _cell_bits(c_scale)
    kept_scale, kept_zero = _between(call, 4)
    sums = [_between(call, g)[0] if normed else 2.0**-12 for g in gates]

    def of_gates(first: int, scale: float) -> Factors:
        reals = [np.float32(_scale(call, first + g)) * np.float32(scale) / np.float32(s) for g, s in zip(gates, sums, strict=True)]
        return _factors(reals)

    bw = (0 if normed else biases) - x_zero * w.astype(np.int64).sum(axis=1)
    known = [w, r, bw.astype(np.int32), (-h_zero * r.astype(np.int64).sum(axis=1)).astype(np.int32)]
    hidden = quantize_multiplier(float(np.float32(2.0**-15 / kept_scale * 2.0**-15)))
    op = QLstm(
        *of_gates(1, x_scale), *of_gates(5, h_scale), *hidden, -kept_zero if projected else kept_zero, cell_bits,
        _clip(o.CellClip(), c_scale, 32767), len(gates) == 3, time_major, *_peephole_factors(call, gates, sums, cell_bits),
        *_norm_factors(call, gates), *_projection_factors(call, kept_scale, h_scale, h_zero),
        _clip(o.ProjClip(), out_scale, 127) if projected else 0,
    )  # fmt: skip
    batch = x.shape[1] if time_major else x.shape[0]
    states = [
        variable_state(call, 18, (batch, r.shape[1]), DType.I8),
        variable_state(call, 19, (batch, len(w) // len(gates)), DType.I16),
    ]
    extras = _extras(call, gates, biases, kept_zero)
    y, *ends = call.emit_all(op, x, *[constant(a) for a in known], *[s.now for s in states], *extras)
    for state, end in zip(states, ends, strict=True):
        state.now = end
    return y


def _check(call: TFLiteCall) -> None:
    if call.options.FusedActivationFunction() != 4:
        raise Fault("unsupported-operator", "an LSTM of integers supports only tanh as its activation")
    if len(call.operator.intermediates) == 12:
        reason = "an LSTM of integers whose gates are computed in floats (12 intermediate tensors) is not supported"
        raise Fault("unsupported-operator", reason, "convert it again: the converter writes a 16-bit cell state")
    if len(call.operator.intermediates) < _BETWEEN:
        raise Fault("bad-quantisation", "its hidden state has no quantisation parameters")
    if call.tensor(4).dtype is not DType.I8:
        raise Fault("unsupported-operator", "an LSTM of integers takes 8-bit weights", "convert with full integer quantisation")
    peepholes, norms = [call.has(n) for n in (10, 11)], [call.has(n) for n in (21, 22, 23)]
    cifg = not call.has(1)
    fits = len(set(peepholes)) == 1 and call.has(9) is (peepholes[0] and not cifg)
    if not fits or len(set(norms)) != 1 or call.has(20) is not (norms[0] and not cifg) or call.has(5) is cifg:
        raise Fault("bad-graph", "some of its gates have peepholes or a norm, others have none")


def _weights(call: TFLiteCall, n: int) -> Array:
    data = call.known(n, "weights")
    if data.ndim != 2:
        raise Fault("unsupported-operator", f"weights of shape {list(data.shape)} are not supported: they are a diagonal")
    return data


def _scale(call: TFLiteCall, n: int) -> float:
    return call.quant(call.tensor(n))[0]


def _between(call: TFLiteCall, n: int) -> tuple[float, int]:
    return call.quant(call.graph.tensors[call.operator.intermediates[n]])


def _cell_bits(scale: float) -> int:
    bits = round(math.log2(scale))
    if abs(math.log2(scale) - bits) > 1e-3:
        raise Fault("bad-quantisation", f"the step {scale} of its cell state is not a power of two")
    return bits


def _clip(limit: float, scale: float, most: int) -> int:
    return int(min(float(np.float32(limit) / np.float32(scale)), float(most))) if limit > 0 else 0


def _factors(reals: list[np.float32]) -> Factors:
    pairs = [quantize_multiplier(float(real)) for real in reals]
    return tuple(m for m, _ in pairs), tuple(s for _, s in pairs)


def _peephole_factors(call: TFLiteCall, gates: tuple[int, ...], sums: list[float], cell_bits: int) -> Factors:
    found = [(_PEEPHOLES[g], s) for g, s in zip(gates, sums, strict=True)]
    reals = [np.float32(2.0**cell_bits * _scale(call, n) / s) for n, s in found if n is not None and call.has(n)]
    return _factors(reals)


def _norm_factors(call: TFLiteCall, gates: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    scales = [np.float32(_scale(call, 20 + g)) for g in gates if call.has(20 + g)]
    return *_factors(scales), tuple(max(1, int(np.float32(10000) * s)) for s in scales)


def _projection_factors(call: TFLiteCall, kept_scale: float, h_scale: float, h_zero: int) -> tuple[int, int, int]:
    if not call.has(16):
        return 0, 0, 0
    real = np.float32(_scale(call, 16)) * np.float32(kept_scale) / np.float32(h_scale)
    return *quantize_multiplier(float(real)), h_zero


def _extras(call: TFLiteCall, gates: tuple[int, ...], biases: Array, kept_zero: int) -> list[Value | None]:
    """Peepholes, norm and its bias, projection and its bias."""
    peepholes = [n for g in gates if (n := _PEEPHOLES[g]) is not None and call.has(n)]
    norms = [20 + g for g in gates if call.has(20 + g)]
    for n in (*peepholes, *norms):
        if call.tensor(n).dtype is not DType.I16:
            raise Fault("bad-tensor", "peepholes and norms of an LSTM of integers are 16-bit numbers")

    def joined(places: list[int]) -> Value | None:
        return constant(np.concatenate([call.known(n, "weights") for n in places])) if places else None

    found = [joined(peepholes), joined(norms), constant(biases.astype(np.int32)) if norms else None]
    if call.has(16):
        q = _weights(call, 16)
        bias = call.known(17, "bias").astype(np.int64) if call.has(17) else np.zeros(len(q), np.int64)
        found += [constant(q), constant((bias + kept_zero * q.astype(np.int64).sum(axis=1)).astype(np.int32))]
    while found and found[-1] is None:
        found.pop()
    return found
