"""LSTM, GRU and RNN: layers and directions one by one, gates in the order of the IR."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.frontends.building import cast, concat, part, reshape, transpose
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.torch.call import Answer, TorchCall, row
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.base import Op
from intaglio.ops.move import Slice
from intaglio.ops.recurrent import Gru, Lstm, Rnn


@dataclass(frozen=True, slots=True)
class Kind:
    order: tuple[int, ...]  # torch's gates, in the order of the IR
    functions: tuple[str, ...]

    def op(self, hidden: int, direction: str = "forward") -> Op:
        zeros = (0.0,) * len(self.functions)
        fields = (hidden, direction, self.functions, zeros, zeros)
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


def _direction(
    call: TorchCall, kind: Kind, x: Value, weights: list[Value], states: list[Value], reverse: bool, lengths: Value | None = None
) -> list[Value]:
    """y [time, batch, hidden] and the last states [batch, hidden] of x [time, batch, features]. `lengths`: i32, by sequence."""
    w, r = (_gates(call, v, kind) for v in weights[:2])
    hidden = r.shape[1]
    bias = None
    if len(weights) > 2:
        both = concat(call, [_gates(call, b, kind) for b in weights[2:4]], 0)
        bias = reshape(call, both, (1, *both.shape))
    op = kind.op(hidden, "reverse" if reverse and lengths is not None else "forward")
    turn = reverse and lengths is None
    if turn:
        x = _reversed(call, x)
    first = [reshape(call, s, (1, *s.shape)) for s in states]
    made = call.emit_all(op, x, reshape(call, w, (1, *w.shape)), reshape(call, r, (1, *r.shape)), bias, lengths, *first)
    y = reshape(call, made[0], (x.shape[0], x.shape[1], hidden))
    return [_reversed(call, y) if turn else y, *[reshape(call, s, (x.shape[1], hidden)) for s in made[1:]]]


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
    x, last = _stack(call, kind, x, weights, hx, each, directions)
    if call.flag("batch_first"):
        x = transpose(call, x, (1, 0, 2))
    return [x, *last]


def _stack(
    call: TorchCall, kind: Kind, x: Value, weights: list[Value], hx: list[Value], each: int, directions: int,
    lengths: Value | None = None,
) -> tuple[Value, list[Value]]:  # fmt: skip
    """Layer by layer, with `each` weights for a direction."""
    last: list[list[Value]] = [[] for _ in hx]
    for layer in range(len(weights) // (each * directions)):
        sides = []
        for direction in range(directions):
            at = layer * directions + direction
            states = [reshape(call, part(call, h, 0, at, 1), h.shape[1:]) for h in hx]
            y, *after = _direction(call, kind, x, weights[at * each : (at + 1) * each], states, direction == 1, lengths)
            sides.append(y)
            for kept, state in zip(last, after, strict=True):
                kept.append(reshape(call, state, (1, *state.shape)))
        x = concat(call, sides, 2)
    return x, [concat(call, kept, 0) for kept in last]


@row("packed_rnn", namespace="intaglio")
def packed(call: TorchCall) -> Answer:
    """What stands for a recurrent layer of a packed sequence: see `packed.py`."""
    kind = KINDS.get(call.text("kind"))
    each, directions = 4 if call.flag("has_biases") else 2, 2 if call.flag("bidirectional") else 1
    weights, lengths, hx = call.tensors("params"), call.tensor("lengths"), call.tensors("hx")
    states = 2 if call.text("kind") == "lstm" else 1
    if kind is None or len(hx) != states or len(weights) != call.integer("num_layers") * directions * each:
        raise Fault("bad-graph", "`packed_rnn` has other weights and states than its options ask for", "export the model again")
    y, last = _stack(call, kind, call.tensor("input"), weights, hx, each, directions, cast(call, lengths, DType.I32))
    return [y, last[0], last[-1]]


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
