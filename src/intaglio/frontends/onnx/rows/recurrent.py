"""LSTM, GRU, RNN: activations with their parameters spelt out."""

from __future__ import annotations

import math

from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.ops.recurrent import ACTIVATIONS, Gru, Lstm, Rnn

ALPHA = {"Affine": 1.0, "LeakyRelu": 0.01, "ThresholdedRelu": 1.0, "ScaledTanh": 1.0, "HardSigmoid": 0.2, "Elu": 1.0}
BETA = {"Affine": 0.0, "ScaledTanh": 1.0, "HardSigmoid": 0.5}
DEFAULT = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


@importer("LSTM", "GRU", "RNN")
def recurrent(call: OnnxCall) -> Answer:
    direction = call.text("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise Fault("bad-attribute", f"`{call.op}` in the direction `{direction}` is not valid")
    count = 2 if direction == "bidirectional" else 1
    names = call.texts("activations") or DEFAULT[call.op] * count
    if len(names) != len(DEFAULT[call.op]) * count:
        raise Fault("bad-attribute", f"`{call.op}` has {len(names)} activations, which is not valid")
    known = {name.lower(): name for name in ACTIVATIONS}
    for name in names:
        if name.lower() not in known:
            raise Fault("bad-attribute", f"`{call.op}` has the unknown activation `{name}`")
    names = [known[n.lower()] for n in names]
    alphas, betas = iter(call.floats("activation_alpha") or []), iter(call.floats("activation_beta") or [])
    alpha = tuple(next(alphas, ALPHA[n]) if n in ALPHA else 0.0 for n in names)
    beta = tuple(next(betas, BETA[n]) if n in BETA else 0.0 for n in names)
    r = call.value(2)
    hidden = call.integer("hidden_size", r.shape[-1] if r.shape else 0)
    clip = call.real("clip", math.inf) if "clip" in call.attributes else math.inf
    if hidden < 1 or not clip > 0:
        raise Fault("bad-attribute", f"`{call.op}` with hidden size {hidden} and clip {clip} is not valid")
    fields = (hidden, direction, tuple(names), alpha, beta, clip, bool(call.integer("layout")))
    operands = [call.maybe(i) for i in range(8 if call.op == "LSTM" else 6)]
    while operands and operands[-1] is None:
        operands.pop()
    match call.op:
        case "LSTM":
            return list(call.emit_all(Lstm(*fields, input_forget=bool(call.integer("input_forget"))), *operands))
        case "GRU":
            op = Gru(*fields, linear_before_reset=bool(call.integer("linear_before_reset")))
            return list(call.emit_all(op, *operands))
        case _:
            return list(call.emit_all(Rnn(*fields), *operands))
