"""SVDF: features of the newest input, and a filter along time over those that are remembered.

    state[f] = (state[f][1:], w_feature[f] . x)          y[u] = act(bias[u] + sum over its filters of w_time[f] . state[f])

It is written with operators that exist already: the state is a variable tensor, as of an LSTM.
"""

from __future__ import annotations

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.rows.activation import activate
from intaglio.frontends.tflite.rows.variable_state import variable_state
from intaglio.frontends.tflite.walk import TFLiteCall, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, Mul
from intaglio.ops.convert import Cast
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.hybrid import HybridMatMul
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Concat, Reshape, Slice
from intaglio.ops.quantised import QMatMul, Requantize
from intaglio.ops.reduce import Reduce


@importer("SVDF")
def svdf(call: TFLiteCall) -> None:
    o, x = call.options, call.value(0)
    features, times = call.known(1, "weights"), call.known(2, "weights")
    rank = o.Rank()
    if x.type.rank != 2 or features.ndim != 2 or times.ndim != 2 or rank < 1 or len(features) % rank:
        raise Fault(
            "shape-mismatch", f"an input of {list(x.shape)}, weights of {list(features.shape)} and rank {rank} do not fit together"
        )
    if len(times) != len(features) or x.shape[1] != features.shape[1]:
        raise Fault("shape-mismatch", f"weights of {list(features.shape)} and {list(times.shape)} do not fit together")
    integer = x.dtype is DType.I8
    batch, filters, memory = x.shape[0], len(features), times.shape[1]
    stored = call.tensor(4).dtype if integer else DType.F32
    if stored not in (DType.I16, DType.I8, DType.F32):  # 8-bit states are TensorFlow Lite for Microcontrollers' own
        raise Fault("bad-tensor", "its state is not of 16-bit or 8-bit integers")
    state = variable_state(call, 4, (batch, filters * memory), stored)
    newest = _features(call, x, stored, bool(o.AsymmetricQuantizeInputs()))
    before = call.emit(Reshape((batch, filters, memory)), state.now)
    kept = call.emit(Slice((0, 0, 1), (1, 1, 1), (batch, filters, memory - 1)), before)
    now = call.emit(Concat(2), kept, call.emit(Reshape((batch, filters, 1)), newest))
    state.now = call.emit(Reshape((batch, filters * memory)), now)
    if integer:
        wide = call.emit(Mul(), call.emit(Cast(DType.I32), now), constant(times.astype(np.int32)))
    else:
        real = times if times.dtype == np.float32 else times.astype(np.float32) * np.float32(call.quant(call.tensor(2))[0])
        wide = call.emit(Mul(), now, constant(real))
    parts = call.emit(Reshape((batch, filters // rank, rank * memory)), wide)
    total = call.emit(Reduce("sum", (2,), False), parts)
    total = call.emit(Add(), total, call.value(3)) if call.has(3) else total
    if not integer:
        call.give(activate(call, total, o.FusedActivationFunction()))
        return
    scales = [np.float32(call.quant(t)[0]) for t in (call.tensor(4), call.tensor(2), call.out())]
    factor = quantize_multiplier(float(scales[0] * scales[1] / scales[2]))
    call.give(call.emit(Requantize(0, *factor, call.quant(call.out())[1], -128, 127, DType.I8), total))


def _features(call: TFLiteCall, x: Value, stored: DType, asymmetric: bool) -> Value:
    """w_feature . x of every filter: [batch, filters]."""
    weights = call.value(1)
    if x.dtype is DType.I8:
        scales = [np.float32(call.quant(call.tensor(n))[0]) for n in (0, 1, 4)]
        factor = quantize_multiplier(float(scales[0] * scales[1] / scales[2]))
        multiplier, shift = (constant(np.full(weights.shape[0], n, np.int32)) for n in factor)
        info = np.iinfo(stored.numpy)
        op = QMatMul(True, call.quant(call.tensor(0))[1], 0, 0, int(info.min), int(info.max), stored)
        return call.emit(op, x, weights, None, multiplier, shift)
    if x.dtype is not DType.F32:
        raise Fault("unsupported-operator", f"an SVDF of {x.dtype.value} is not supported", "use float or 8-bit activations")
    if weights.dtype is DType.I8:
        scale = np.full(weights.shape[0], call.quant(call.tensor(1))[0], np.float32)
        return call.emit(HybridMatMul(asymmetric), x, weights, constant(scale), None)
    return call.emit(MatMul(transpose_b=True), x, weights, None)
