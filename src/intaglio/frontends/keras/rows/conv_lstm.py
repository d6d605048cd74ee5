"""ConvLSTM: an LSTM whose products are convolutions. Time is unrolled; the convolution of the inputs is one for all steps."""

from __future__ import annotations

import numpy as np

from intaglio.frontends.building import concat, part, reshape
from intaglio.frontends.keras.rows.activation import activate
from intaglio.frontends.keras.rows.convolution import bias_of, convolve, window_pads
from intaglio.frontends.keras.walk import KerasCall, Result, layer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.tflite.rows.convolution import same_pads
from intaglio.ir.graph import Array, Value
from intaglio.ops.binary import Add, Mul

MOST_STEPS = 256
CONVOLUTIONS = ("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D")


@layer(*CONVOLUTIONS)
def conv_lstm(call: KerasCall) -> Result:
    """[batch, time, ..., channels]. Gates are input, forget, cell, output."""
    count, x = int(call.layer.kind[-2]), call.x
    if x.type.rank != count + 3 or call.channels_first:
        raise unsupported(f"it takes [batch, time, ..., channels] here, got {list(x.shape)}", "use `channels_last`")
    if call.flag("stateful") or len(call.tensors()) > 1 or call.kwargs.get("initial_state"):
        raise unsupported("a first state and `stateful` are not supported", "use it without them")
    batch, time, *sizes, depth = x.shape
    if not 1 <= time <= MOST_STEPS:
        raise Fault("too-large", f"{time} steps are unrolled; at most {MOST_STEPS} are possible")
    filters = call.whole("filters")
    kernel, strides, dilations = (call.wholes(n, count) for n in ("kernel_size", "strides", "dilation_rate"))
    pads = window_pads(call, tuple(sizes), kernel, strides, dilations)
    w, r = (_turned(call, role, kernel, n, 4 * filters) for role, n in (("kernel", depth), ("recurrent_kernel", filters)))
    flat = reshape(call, x, (batch * time, *sizes, depth))
    entered = convolve(call, flat, w, bias_of(call, 4 * filters), strides, pads, dilations, 1, "kernel")
    entered = reshape(call, entered, (batch, time, *entered.shape[1:]))
    inner = entered.shape[2:-1]
    sides = [same_pads(n, k, 1, 1) for n, k in zip(inner, kernel, strict=True)]
    around = (*[a for a, _ in sides], *[b for _, b in sides])
    h: Value | None = None
    c: Value | None = None
    results = []
    for t in reversed(range(time)) if call.flag("go_backwards") else range(time):
        now = reshape(call, part(call, entered, 1, t, 1), (batch, *inner, 4 * filters))
        if h is not None:
            ones = (1,) * count
            now = call.emit(Add(), now, convolve(call, h, r, None, ones, around, ones, 1, "recurrent_kernel"))
        h, c = _step(call, now, c, filters)
        results.append(h)
    assert h is not None and c is not None
    first = h
    if call.flag("return_sequences"):
        first = concat(call, [reshape(call, y, (batch, 1, *y.shape[1:])) for y in results], 1)
    return [first, h, c] if call.flag("return_state") else first


def _turned(call: KerasCall, role: str, kernel: tuple[int, ...], depth: int, made: int) -> Array:
    return np.ascontiguousarray(np.moveaxis(call.array(role, *kernel, depth, made), (-1, -2), (0, 1)))


def _step(call: KerasCall, now: Value, c: Value | None, filters: int) -> tuple[Value, Value]:
    last = now.type.rank - 1
    gates = [part(call, now, last, n * filters, filters) for n in range(4)]
    usual = "sigmoid" if call.walk.version >= (3,) else "hard_sigmoid"
    i, f, o = (activate(call, gates[n], call.option("recurrent_activation", usual)) for n in (0, 1, 3))
    new = call.emit(Mul(), i, activate(call, gates[2], call.option("activation", "tanh")))
    after = new if c is None else call.emit(Add(), call.emit(Mul(), f, c), new)
    return call.emit(Mul(), o, activate(call, after, call.option("activation", "tanh"))), after
