"""LSTM, GRU and RNN: layers and directions one by one, gates in the order of the IR."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.frontends.building import concat, part, reshape, transpose
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import Answer, TorchCall, row
from intaglio.ir.graph import Value
from intaglio.ops.base import Op
from intaglio.ops.move import Slice
from intaglio.ops.recurrent import Gru, Lstm, Rnn


@dataclass(frozen=True, slots=True)
class Kind:
    order: tuple[int, ...]  # torch's gates, in the order of the IR
    functions: tuple[str, ...]

    def op(self, hidden: int) -> Op:
        zeros = (0.0,) * len(self.functions)
        fields = (hidden, "forward", self.functions, zeros, zeros)
        if len(self.order) == 4:
            return Lstm(*fields)
        return Gru(*fields, linear_before_reset=True) if len(self.order) == 3 else Rnn(*fields)


KINDS = {
    "lstm": Kind((0, 3, 1, 2), ("Sigmoid", "Tanh", "Tanh")),  # torch: i f g o; here: i o f c
    "gru": Kind((1, 0, 2), ("Sigmoid", "Tanh")),  # torch: r z n; here: z r h
    "rnn_tanh": Kind((0,), ("Tanh",)),
    "rnn_relu": Kind((0,), ("Relu",)),
}


def _gates(call: TorchCall, x: Value, kind: Kind) -> Value:
    size = x.shape[0] // len(kind.order)
    return concat(call, [part(call, x, 0, gate * size, size) for gate in kind.order], 0)


def _direction(call: TorchCall, kind: Kind, x: Value, weights: list[Value], states: list[Value], reverse: bool) -> list[Value]:
    """y [time, batch, hidden] and the last states [batch, hidden] of x [time, batch, features]."""
    w, r = (_gates(call, v, kind) for v in weights[:2])
    hidden = r.shape[1]
    bias = None
    if len(weights) > 2:
        both = concat(call, [_gates(call, b, kind) for b in weights[2:4]], 0)
        bias = reshape(call, both, (1, *both.shape))
    op = kind.op(hidden)
    if reverse:
        x = _reversed(call, x)
    first = [reshape(call, s, (1, *s.shape)) for s in states]
    made = call.emit_all(op, x, reshape(call, w, (1, *w.shape)), reshape(call, r, (1, *r.shape)), bias, None, *first)
    y = reshape(call, made[0], (x.shape[0], x.shape[1], hidden))
    return [_reversed(call, y) if reverse else y, *[reshape(call, s, (x.shape[1], hidden)) for s in made[1:]]]


def _reversed(call: TorchCall, x: Value) -> Value:
    return call.emit(Slice((x.shape[0] - 1, 0, 0), (-1, 1, 1), x.shape), x)


@row("lstm", "gru", "rnn_tanh", "rnn_relu")
def recurrent(call: TorchCall) -> Answer:
    kind, x = KINDS[call.op], call.tensor("input")
    if call.overload == "data" or len(x.shape) != 3:
        raise unsupported(f"`{call.op}` of a packed sequence is not supported", "give a padded batch of one length")
    if call.flag("train") and call.real("dropout", 0) > 0:
        raise unsupported(f"`{call.op}` in training is not supported", "export with `model.eval()`")
    layers, directions = call.integer("num_layers"), 2 if call.flag("bidirectional") else 1
    each = 4 if call.flag("has_biases", True) else 2
    weights = call.tensors("params")
    hx = call.tensors("hx") if isinstance(call.get("hx"), list) else [call.tensor("hx")]
    if layers * directions * each != len(weights):
        raise unsupported(
            f"`{call.op}` with {len(weights)} weights (a projection?) is not supported", "export with `.run_decompositions()`"
        )
    if call.flag("batch_first"):
        x = transpose(call, x, (1, 0, 2))
    last: list[list[Value]] = [[] for _ in hx]
    for layer in range(layers):
        sides = []
        for direction in range(directions):
            at = layer * directions + direction
            states = [reshape(call, part(call, h, 0, at, 1), h.shape[1:]) for h in hx]
            y, *after = _direction(call, kind, x, weights[at * each : (at + 1) * each], states, direction == 1)
            sides.append(y)
            for kept, state in zip(last, after, strict=True):
                kept.append(reshape(call, state, (1, *state.shape)))
        x = concat(call, sides, 2)
    if call.flag("batch_first"):
        x = transpose(call, x, (1, 0, 2))
    return [x, *[concat(call, kept, 0) for kept in last]]


@row("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell")
def cell(call: TorchCall) -> Answer:
    kind, x = KINDS[call.op.removesuffix("_cell")], call.tensor("input")
    states = call.tensors("hx") if isinstance(call.get("hx"), list) else [call.tensor("hx")]
    weights = [call.tensor("w_ih"), call.tensor("w_hh"), *[b for n in ("b_ih", "b_hh") if (b := call.maybe(n)) is not None]]
    _, *after = _direction(call, kind, reshape(call, x, (1, *x.shape)), weights, states, False)
    return after if call.op == "lstm_cell" else after[0]


@row("mkldnn_rnn_layer")
def mkldnn_rnn_layer(call: TorchCall) -> Answer:
    if call.integer("mode", 2) != 2:
        raise unsupported("`mkldnn_rnn_layer` that is not an LSTM")
    names = ("weight0", "weight1", "weight2", "weight3")
    weights = [call.tensor(name) for name in (names if call.flag("has_biases", True) else names[:2])]
    states = [call.tensor("hx_"), call.tensor("cx_")]
    states = [reshape(call, s, s.shape[-2:]) for s in states]
    y, h, c = _direction(call, KINDS["lstm"], call.tensor("input"), weights, states, call.flag("reverse"))
    shape = call.tensor("hx_").shape
    return [y, reshape(call, h, shape), reshape(call, c, shape), call.constant(np.zeros(0, np.uint8))]


@row("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")
def fused(call: TorchCall) -> Answer:
    raise Fault("unsupported-operator", f"`{call.op}` is for a GPU", "export on a CPU")
