"""DynamicQuantizeLSTM of com.microsoft, which ONNX Runtime's dynamic quantisation makes of an LSTM: byte weights; the input, and
the hidden state of each step, become bytes by their own range. It is unrolled into products and gates.

    gates(t) = q(x)(t) @ W + q(h(t - 1)) @ R + (Wb + Rb)        in the order i, o, f, c
    c(t) = f * c(t - 1) + i * c~,   h(t) = o * tanh(c(t))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.frontends.building import concat, reshape
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.microsoft_quantised import MS, dynamic_product
from intaglio.ir.graph import Array, Value
from intaglio.ops.activation import Sigmoid, Tanh
from intaglio.ops.binary import Add, Mul
from intaglio.ops.move import Slice

MOST_STEPS = 1000  # of all directions: each becomes some thirty nodes


@dataclass(frozen=True, slots=True)
class Product:
    """One of the two matrices of a direction, with its scale and zero point."""

    weights: Value
    scale: Value
    zero: Value | None

    def of(self, call: OnnxCall, x: Value) -> Value:
        return dynamic_product(call, x, self.weights, self.scale, self.zero)


@importer("DynamicQuantizeLSTM", domain=MS)
def dynamic_quantize_lstm(call: OnnxCall) -> Answer:
    x, hidden = call.value(0), call.integer("hidden_size", 0)
    direction = call.text("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional") or len(x.shape) != 3 or hidden < 1:
        raise Fault("bad-attribute", f"`{call.op}` of {list(x.shape)} in the direction `{direction}` is not valid")
    count = 2 if direction == "bidirectional" else 1
    names = [name.lower() for name in call.texts("activations") or []]
    other = names not in ([], ["sigmoid", "tanh", "tanh"] * count) or bool(call.integer("input_forget"))
    if other or call.maybe(7) is not None or "clip" in call.attributes:
        raise unsupported(f"`{call.op}` with peepholes, a clip, or other activations")
    steps, batch, _ = x.shape
    _check_lengths(call, steps)
    turns = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
    if steps * len(turns) > MOST_STEPS:
        raise unsupported(f"`{call.op}` over more than {MOST_STEPS} steps, because it is unrolled")
    made = [_direction(call, n, turned, hidden, batch) for n, turned in enumerate(turns)]
    y = concat(call, [rows for rows, _, _ in made], 1)
    return [y, concat(call, [h for _, h, _ in made], 0), concat(call, [c for _, _, c in made], 0)]


def _check_lengths(call: OnnxCall, steps: int) -> None:
    lengths = call.maybe(4)
    if lengths is not None and (lengths.data is None or np.any(lengths.data != steps)):
        raise unsupported(f"`{call.op}` with sequences that are shorter than the input")


def _direction(call: OnnxCall, n: int, turned: bool, hidden: int, batch: int) -> tuple[Value, Value, Value]:
    """(results [T, 1, B, H], last hidden state [1, B, H], last cell state [1, B, H])."""
    x = call.value(0)
    steps = x.shape[0]
    left, right = _product(call, 1, 8, n, hidden), _product(call, 2, 10, n, hidden)
    sums = left.of(call, reshape(call, x, (steps * batch, x.shape[2])))
    bias = call.maybe(3)
    if bias is not None:
        if bias.data is None or bias.data.shape[1:] != (8 * hidden,):
            raise unsupported(f"`{call.op}` with a bias that is computed")
        whole = bias.data[n, : 4 * hidden] + bias.data[n, 4 * hidden :]
        bias = call.constant(np.ascontiguousarray(whole.astype(np.float32)))
    h, c = _start(call, 5, n, batch, hidden), _start(call, 6, n, batch, hidden)
    rows: list[Value] = [x] * steps
    for t in reversed(range(steps)) if turned else range(steps):
        gates = call.emit(Add(), _rows(call, sums, t * batch, batch), right.of(call, h))
        gates = gates if bias is None else call.emit(Add(), gates, bias)
        i, o, f = (call.emit(Sigmoid(), _gate(call, gates, at, hidden)) for at in range(3))
        new = call.emit(Tanh(), _gate(call, gates, 3, hidden))
        c = call.emit(Add(), call.emit(Mul(), f, c), call.emit(Mul(), i, new))
        h = call.emit(Mul(), o, call.emit(Tanh(), c))
        rows[t] = reshape(call, h, (1, 1, batch, hidden))
    return concat(call, rows, 0), reshape(call, h, (1, batch, hidden)), reshape(call, c, (1, batch, hidden))


def _product(call: OnnxCall, at: int, scale_at: int, n: int, hidden: int) -> Product:
    """Weights are [directions, K, 4 H]; scales and zero points [directions] or [directions, 4 H]."""
    weights, scale, zero = call.value(at), call.value(scale_at), call.maybe(scale_at + 1)
    if weights.data is None or scale.data is None or (zero is not None and zero.data is None):
        raise unsupported(f"`{call.op}` with weights that are computed")
    if weights.data.ndim != 3 or weights.data.shape[2] != 4 * hidden or n >= len(weights.data):
        raise Fault("shape-mismatch", f"`{call.op}` has weights of {list(weights.shape)} for {hidden} hidden numbers")

    directions = len(weights.data)

    def own(array: Array) -> Array:
        return np.ascontiguousarray(array.reshape(directions, -1)[n].squeeze() if array.size > 1 else array.reshape(()))

    stored = call.constant(np.ascontiguousarray(weights.data[n]), weights.dtype)
    zeros = None if zero is None or zero.data is None else call.constant(own(zero.data), zero.dtype)
    return Product(stored, call.constant(own(scale.data)), zeros)


def _start(call: OnnxCall, at: int, n: int, batch: int, hidden: int) -> Value:
    given = call.maybe(at)
    if given is None:
        return call.constant(np.zeros((batch, hidden), np.float32))
    return reshape(call, call.emit(Slice((n, 0, 0), (1, 1, 1), (1, batch, hidden)), given), (batch, hidden))


def _rows(call: OnnxCall, sums: Value, first: int, count: int) -> Value:
    return call.emit(Slice((first, 0), (1, 1), (count, sums.shape[1])), sums)


def _gate(call: OnnxCall, gates: Value, number: int, hidden: int) -> Value:
    return call.emit(Slice((0, number * hidden), (1, 1), (gates.shape[0], hidden)), gates)
