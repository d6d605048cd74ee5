"""Recurrent layers and the wrappers around layers. Gates come in another order than in ONNX, which the operators have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import cast, part, reshape
from intaglio.frontends.keras.config import Layer
from intaglio.frontends.keras.masking import HINT
from intaglio.frontends.keras.rows.activation import activation_name, hard_sigmoid
from intaglio.frontends.keras.rows.conv_lstm import CONVOLUTIONS, conv_lstm
from intaglio.frontends.keras.rows.masks import packed, unpacked
from intaglio.frontends.keras.walk import KerasCall, Result, layer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Array, Value
from intaglio.ir.sizes import most
from intaglio.ops.binary import Add, Mul
from intaglio.ops.move import Concat, Slice
from intaglio.ops.recurrent import Gru, Lstm, Recurrent, Rnn

_NAMES = {
    "tanh": ("Tanh", 0.0, 0.0), "sigmoid": ("Sigmoid", 0.0, 0.0), "relu": ("Relu", 0.0, 0.0), "linear": ("Affine", 1.0, 0.0),
    "softsign": ("Softsign", 0.0, 0.0), "softplus": ("Softplus", 0.0, 0.0), "elu": ("Elu", 1.0, 0.0),
    "leaky_relu": ("LeakyRelu", 0.2, 0.0),
}  # fmt: skip
_LSTM_GATES = (0, 3, 1, 2)  # Keras has input, forget, cell, output; the operator input, output, forget, cell


def _activation(call: KerasCall, option: str, default: str) -> tuple[str, float, float]:
    name, config = activation_name(call.option(option, default))
    if name == "hard_sigmoid":
        return ("HardSigmoid", *hard_sigmoid(call))
    if name not in _NAMES or config:
        reason = f"`{option}` is {quoted(name)}, which is not supported in recurrent layers"
        raise unsupported(reason, f"use one of {', '.join(sorted(_NAMES))}")
    return _NAMES[name]


def _weights(call: KerasCall, gates: int, features: int, order: tuple[int, ...]) -> tuple[Array, Array, Array]:
    """[gates*units, features], [gates*units, units] and both biases, one after the other."""
    units = call.whole("units")
    if units < 1:
        raise Fault("bad-attribute", f"it has {units} units")

    def turned(array: Array) -> Array:
        blocks = array.T.reshape(gates, units, -1)
        return blocks[list(order)].reshape(gates * units, -1)

    kernel = turned(call.array("kernel", features, gates * units))
    recurrent = turned(call.array("recurrent_kernel", units, gates * units))
    both = np.zeros((2, gates * units), kernel.dtype)
    if call.flag("use_bias", True):
        double = _kind(call) == "GRU" and _reset_after(call)
        bias = call.array("bias", 2, gates * units) if double else call.array("bias", gates * units)[None]
        for n, row in enumerate(bias):
            both[n] = row.reshape(gates, units)[list(order)].reshape(-1)
    return kernel, recurrent, both.reshape(-1)


def _kind(call: KerasCall) -> str:
    return call.layer.kind.removesuffix("Cell")


def _reset_after(call: KerasCall) -> bool:
    return call.flag("reset_after", call.walk.version >= (3,))


def _operator(call: KerasCall, direction: str) -> tuple[Recurrent, int, tuple[int, ...]]:
    """The operator of one direction, the number of its gates and their order."""
    units = call.whole("units")
    main = _activation(call, "activation", "tanh")
    gate = _activation(call, "recurrent_activation", "sigmoid") if _kind(call) != "SimpleRNN" else main
    match _kind(call):
        case "LSTM":
            return _made(Lstm, units, direction, (gate, main, main)), 4, _LSTM_GATES
        case "GRU":
            op = _made(Gru, units, direction, (gate, main), linear_before_reset=_reset_after(call))
            return op, 3, (0, 1, 2)
        case _:
            return _made(Rnn, units, direction, (main,)), 1, (0,)


def _made(kind: Any, units: int, direction: str, acts: tuple[tuple[str, float, float], ...], **more: Any) -> Recurrent:
    names, alphas, betas = (tuple(a[n] for a in acts) for n in range(3))
    op: Recurrent = kind(units, direction, names, alphas, betas, math.inf, True, **more)
    return op


def _starts(call: KerasCall, x: Value, units: int, count: int) -> tuple[list[Value | None], list[Value]]:
    """The first states: given, kept from the run before, or none (zeros). Kept ones come a second time, as entries."""
    told = call.kwargs.get("initial_state")
    told = told if isinstance(told, list) else [told] if isinstance(told, Value) else []
    given = call.tensors()[1:] + [v for v in told if isinstance(v, Value)]
    shape = (x.shape[0], units)
    entries: list[Value] = []
    if not given and call.flag("stateful"):
        if call.layer in call.walk.stateful:
            raise unsupported("a stateful layer that is called twice is not supported")
        call.walk.stateful.add(call.layer)
        given = entries = [call.state(("h", "c")[n], shape) for n in range(count)]
    if given and (len(given) != count or any(v.shape != shape for v in given)):
        raise Fault("shape-mismatch", f"it has {count} states of {list(shape)}, got {[list(v.shape) for v in given]}")
    return [reshape(call, v, (x.shape[0], 1, units)) for v in given] or [None] * count, entries


def run_one(call: KerasCall, *, in_order: bool, zeros: bool = False) -> tuple[Value, list[Value]]:
    """[batch, time, units] and the last states. `in_order`: a layer that runs backwards gives its results by time all the same.
    `zeros`: results of steps that a mask leaves out are 0."""
    x = call.x
    if call.option("time_major"):
        raise unsupported("`time_major` is not supported", "put the batch first")
    if x.type.rank != 3:
        raise Fault("shape-mismatch", f"it takes [batch, time, features], got {list(x.shape)}")
    backwards = call.flag("go_backwards")
    op, gates, order = _operator(call, "reverse" if backwards else "forward")
    w, r, b = _weights(call, gates, x.shape[2], order)
    starts, entries = _starts(call, x, op.hidden, op.STATES)
    weights = [call.constant(a[None], call.dtype, n) for a, n in ((w, "kernel"), (r, "recurrent_kernel"), (b, "bias"))]
    mask = call.mask(x)
    some = None if mask is None else packed(call, x, mask)
    given = (x, None) if some is None else (some.x, some.lengths)
    y, *ends = call.emit_all(op, given[0], *weights, given[1], *starts)
    states = [reshape(call, end, (x.shape[0], op.hidden)) for end in ends]
    for entry, after in zip(entries, states, strict=False):
        call.keep(entry, after)
    y = reshape(call, y, (x.shape[0], x.shape[1], op.hidden))
    if some is not None and call.flag("return_sequences"):
        y = unpacked(call, y, some, backwards, zeros or call.flag("zero_output_for_mask"))
    if backwards and not in_order and call.flag("return_sequences") and most(x.shape[1]) > 1:
        y = call.emit(Slice((0, x.shape[1] - 1, 0), (1, -1, 1), y.shape), y)
    return y, states


@layer("LSTM", "GRU", "SimpleRNN")
def recurrent(call: KerasCall) -> Result:
    y, states = run_one(call, in_order=False)
    first = y if call.flag("return_sequences") else states[0]
    mask = call.mask(call.x)
    if mask is not None and call.flag("return_sequences"):
        call.walk.masks[first] = mask
    if mask is not None and call.flag("zero_output_for_mask") and not call.flag("return_sequences"):
        raise unsupported("`zero_output_for_mask` without `return_sequences` is not supported")
    return [first, *states] if call.flag("return_state") else first


@layer("LSTMCell", "GRUCell", "SimpleRNNCell")
def one_step(call: KerasCall) -> Result:
    """A cell that is called itself: one step, from states that it is given."""
    x, *states = call.tensors()
    if x.type.rank != 2:
        raise Fault("shape-mismatch", f"it takes [batch, features], got {list(x.shape)}")
    told = call.kwargs.get("states") or []
    states += [v for v in (told if isinstance(told, list) else [told]) if isinstance(v, Value)]
    given = [reshape(call, x, (x.shape[0], 1, x.shape[1])), *states]
    _, ends = run_one(KerasCall(call.walk, call.layer, given, {}), in_order=True)
    return [ends[0], *ends]


@layer("RNN")
def stacked(call: KerasCall) -> Result:
    """Cells one above the other: each runs over the whole sequence that the one below gives."""
    if not call.layer.inner:
        raise unsupported("it runs a cell that is not one of Keras's own", "use `LSTMCell`, `GRUCell` or `SimpleRNNCell`")
    ends: list[Value] = []
    given = [*call.tensors()[1:], *_flat(call.kwargs.get("initial_state"))]
    y, states = call.x, list[Value]()
    for cell in call.layer.inner:
        if cell.foreign or not cell.kind.endswith("Cell"):
            raise unsupported(cell.foreign or f"a stacked cell of class {quoted(cell.kind)} is not supported")
        count = 2 if cell.kind == "LSTMCell" else 1
        own, given = given[:count], given[count:]
        y, ends = run_one(KerasCall(call.walk, cell, [y, *own], {}), in_order=False)
        states += ends
    if given:
        raise Fault("shape-mismatch", f"it is given {len(given)} states too many")
    first = y if call.flag("return_sequences") else ends[0]
    return [first, *states] if call.flag("return_state") else first


def _flat(item: Any) -> list[Value]:
    """Tensors of nested lists."""
    if isinstance(item, Value):
        return [item]
    return [v for part_ in item for v in _flat(part_)] if isinstance(item, list) else []


@layer("SpectralNormalization")
def spectral(call: KerasCall) -> Result:
    """Only training changes the kernel of the layer inside."""
    if call.kwargs.get("training") is True:
        raise unsupported("it is called with `training=True`, which changes its kernel", "call it without `training`")
    made = call.walk.apply(call.layer.inner[0], [call.x], {}, call.walk.emitter.source)
    if made is None:
        raise unsupported("the layer inside it is not supported")
    results = [cast(call, y, call.x.dtype) for y in made]
    for y in results:  # what becomes of a mask depends on the version of Keras
        if call.walk.masks.pop(y, None) is not None:
            call.walk.masking.unclear.add(y)
    return results


@layer("Bidirectional")
def bidirectional(call: KerasCall) -> Result:
    forward, backward = call.layer.inner
    if not forward.foreign and forward.kind == backward.kind and forward.kind in CONVOLUTIONS:
        return _both_ways(call, forward, backward)
    for side in (forward, backward):
        if side.foreign or side.kind not in ("LSTM", "GRU", "SimpleRNN"):
            raise unsupported(side.foreign or f"a layer of class {quoted(side.kind)} in both directions is not supported")
    merge = call.option("merge_mode", "concat")
    calls = [KerasCall(call.walk, side, call.args, {}) for side in (forward, backward)]
    for one in calls:
        one.told = call.told
    given = call.kwargs.get("initial_state") or call.tensors()[1:]
    if given:
        half = len(given) // 2
        for n, one in enumerate(calls):
            one.args, one.kwargs = [call.x], {"initial_state": given[n * half : (n + 1) * half]}
    x, whole = call.x, calls[0].flag("return_sequences")
    alike = forward.kind == backward.kind and forward.config.get("units") == backward.config.get("units")
    stateful = any(one.flag("stateful") for one in calls)
    straight = not calls[0].flag("go_backwards") and calls[1].flag("go_backwards")
    mask = call.mask(x)
    if alike and straight and not given and not stateful and x.type.rank == 3 and mask is None:
        y, *last = _together(call, calls, x)
        h = y.shape[-1]
        if merge == "concat" and not calls[0].flag("return_state"):  # as they lie
            return reshape(call, y if whole else last[0], (*x.shape[: 1 + whole], 2 * h))
        sides = [reshape(call, part(call, y, 2, n, 1), (*x.shape[:2], h)) for n in (0, 1)]
        ends = [[reshape(call, part(call, end, 1, n, 1), (x.shape[0], h)) for end in last] for n in (0, 1)]
    else:
        runs = [run_one(one, in_order=True, zeros=True) for one in calls]
        sides, ends = [r[0] for r in runs], [r[1] for r in runs]
    if not whole:
        sides = [e[0] for e in ends]
    states = [s for e in ends for s in e] if calls[0].flag("return_state") else []
    merged = _merged(call, sides)
    if mask is not None and whole:
        call.walk.masks |= dict.fromkeys(merged, mask)
    return [*merged, *states]


def _merged(call: KerasCall, sides: list[Value]) -> list[Value]:
    """Both directions, as `merge_mode` says."""
    merge = call.option("merge_mode", "concat")
    match merge:
        case "concat":
            return [call.emit(Concat(sides[0].type.rank - 1), *sides)]
        case "sum":
            return [call.emit(Add(), *sides)]
        case "mul":
            return [call.emit(Mul(), *sides)]
        case "ave":
            total = call.emit(Add(), *sides)
            return [call.emit(Mul(), total, call.like(0.5, total))]
        case None:
            return sides
        case _:
            raise Fault("bad-attribute", f"`merge_mode` is {quoted(str(merge))}, which is not valid")


def _both_ways(call: KerasCall, forward: Layer, backward: Layer) -> Result:
    """Of layers whose products are convolutions: they turn results of sequences round here."""
    if call.mask(call.x) is not None:
        raise unsupported("it reads a mask, which is not supported in this layer", HINT)
    sides: list[Value] = []
    states: list[Value] = []
    for n, side in enumerate((forward, backward)):
        made = conv_lstm(KerasCall(call.walk, side, call.args, call.kwargs))
        y, *ends = made if isinstance(made, list) else [made]
        if n and side.config.get("return_sequences"):
            starts = (0, y.shape[1] - 1, *[0] * (y.type.rank - 2))
            y = call.emit(Slice(starts, tuple(-1 if axis == 1 else 1 for axis in range(y.type.rank)), y.shape), y)
        sides.append(y)
        states += ends
    return [*_merged(call, sides), *states]


def _together(call: KerasCall, calls: list[KerasCall], x: Value) -> tuple[Value, ...]:
    """Both directions by one operator: [batch, time, 2, units], and the last states, [batch, 2, units]."""
    ops_made = [_operator(one, "bidirectional") for one in calls]
    op, gates, order = ops_made[0]
    second = ops_made[1][0]
    both = (op.activations + second.activations, op.alphas + second.alphas, op.betas + second.betas)
    flags = {"linear_before_reset": op.linear_before_reset} if isinstance(op, Gru) else {}
    if isinstance(op, Gru) and isinstance(second, Gru) and op.linear_before_reset != second.linear_before_reset:
        raise unsupported("`reset_after` differs between the directions")
    kind: Any = type(op)
    joined: Recurrent = kind(op.hidden, "bidirectional", *both, math.inf, True, **flags)
    found = [_weights(one, gates, x.shape[2], order) for one in calls]
    names = ("kernel", "recurrent_kernel", "bias")
    weights = [call.constant(np.stack([f[n] for f in found]), call.dtype, name) for n, name in enumerate(names)]
    return call.emit_all(joined, x, *weights, None, *[None] * op.STATES)


@layer("TimeDistributed")
def time_distributed(call: KerasCall) -> Result:
    """Time becomes part of the batch."""
    inner: Layer = call.layer.inner[0]
    x = call.x
    if x.type.rank < 3:
        raise Fault("shape-mismatch", f"it takes at least three axes, got {list(x.shape)}")
    batch, time = x.shape[:2]
    source = call.walk.emitter.source
    results = call.walk.apply(inner, [reshape(call, x, (batch * time, *x.shape[2:]))], {}, source)
    if results is None:
        raise unsupported("the layer inside it is not supported")
    return [reshape(call, y, (batch, time, *y.shape[1:])) for y in results]
