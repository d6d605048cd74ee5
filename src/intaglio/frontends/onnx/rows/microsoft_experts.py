"""Mixtures of experts of com.microsoft. All experts compute all rows, and the results of those that were not chosen count 0.

    scores [t, e] -> the k largest probabilities of each row -> weights [e, t, 1], 0 for the others
    x [1, t, h] times weights [e, f, h] -> activation -> times weights [e, h, f] -> sum over e of weight times result
"""

from __future__ import annotations

import numpy as np

from intaglio.frontends.building import expand, part, reshape, transpose, unsqueeze
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.microsoft_weights import constant_of, unpacked
from intaglio.frontends.onnx.rows.products import scaled
from intaglio.ir.graph import Array, Value
from intaglio.ops.activation import Clip, Gelu, Relu, Sigmoid, Silu
from intaglio.ops.base import Elementwise, widen
from intaglio.ops.binary import Add, Div, Mul
from intaglio.ops.index import GatherElements, ScatterElements
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Slice
from intaglio.ops.reduce import Reduce, Softmax, TopK

MS = "com.microsoft"
ACTIVATIONS: dict[str, Elementwise | None] = {"relu": Relu(), "gelu": Gelu(True), "silu": Silu(), "identity": None}


@importer("MoE", domain=MS)
def mixture(call: OnnxCall) -> Answer:
    if call.has(6):
        raise unsupported("`MoE` with a third product is not supported", "export it with `swiglu_fusion` 1")
    return _mixed(call, (call.value(2), call.maybe(3)), (call.value(4), call.maybe(5)))


@importer("QMoE", domain=MS)
def quantised_mixture(call: OnnxCall) -> Answer:
    """Weights of 4 or 8 bits become floats."""
    if call.has(8) or call.text("quant_type", "int") != "int" or call.integer("weights_prepacked") > 0:
        raise unsupported("`QMoE` with a third product, prepacked weights or weights that are floats is not supported")
    first, second = (_weights(call, n, at) for n, at in ((1, 2), (2, 5)))
    return _mixed(call, (first, call.maybe(4)), (second, call.maybe(7)))


def _weights(call: OnnxCall, number: int, at: int) -> Value:
    bits = call.integer(f"fc{number}_expert_weight_bits") or call.integer("expert_weight_bits", 4)
    if bits not in (2, 4, 8):
        raise unsupported(f"`QMoE` with weights of {bits} bits is not supported", "there are 2, 4 and 8")
    codes = unpacked(constant_of(call, at, "weights"), bits).astype(np.float32)
    experts, rows, columns = codes.shape
    scales = widen(constant_of(call, at + 1, "scales"), call.value(at + 1).dtype).astype(np.float32).reshape(experts, rows, -1)
    zero: Array = np.asarray(2 ** (bits - 1), np.float32)
    if call.has(10 + number):
        points = unpacked(constant_of(call, 10 + number, "zero points"), bits)
        points = points[:, :, : scales.shape[2]] if points.ndim == 3 else points[:, :rows, None]
        zero = np.repeat(points.astype(np.float32), columns // points.shape[2], axis=2)
    if columns % scales.shape[2]:
        raise Fault("shape-mismatch", f"`QMoE` has {scales.shape[2]} scales for {columns} columns")
    wide, x = (codes - zero) * np.repeat(scales, columns // scales.shape[2], axis=2), call.value(0)
    return call.constant(wide.astype(x.dtype.numpy), x.dtype)


def _mixed(call: OnnxCall, first: tuple[Value, Value | None], second: tuple[Value, Value | None]) -> Value:
    x, scores = call.value(0), call.value(1)
    if call.integer("use_sparse_mixer"):
        raise unsupported(f"`{call.op}` with a sparse mixer is not supported")
    rows = reshape(call, x, (1, x.type.elements // x.shape[-1], x.shape[-1]))
    weights = _routed(call, scores)
    inner = _activated(call, _product(call, rows, *first))
    y = call.emit(Mul(), _product(call, inner, *second), weights)
    return reshape(call, call.emit(Reduce("sum", (0,), False), y), x.shape)


def _product(call: OnnxCall, x: Value, weights: Value, bias: Value | None) -> Value:
    experts, rows, columns = weights.shape
    if columns != x.shape[2]:
        raise Fault("shape-mismatch", f"`{call.op}` has weights of {list(weights.shape)} for rows of {x.shape[2]}")
    y = call.emit(MatMul(False, True), expand(call, x, (experts, *x.shape[1:])), weights)
    return y if bias is None else call.emit(Add(), y, reshape(call, bias, (experts, 1, rows)))


def _activated(call: OnnxCall, x: Value) -> Value:
    kind = call.text("activation_type", "relu")
    if kind == "swiglu":
        return _swiglu(call, x)
    if kind not in ACTIVATIONS:
        raise Fault("bad-attribute", f"`{call.op}` has the activation `{kind}`", f"there are {', '.join(ACTIVATIONS)} and swiglu")
    op = ACTIVATIONS[kind]
    return x if op is None else call.emit(op, x)


def _swiglu(call: OnnxCall, x: Value) -> Value:
    """Of two halves, in turn or one behind the other."""
    fusion, (experts, count, size) = call.integer("swiglu_fusion"), x.shape
    if fusion not in (1, 2) or size % 2:
        raise unsupported(f"`{call.op}` whose gate is a product of its own is not supported", "export it with `swiglu_fusion` 1")
    if fusion == 1:
        pairs = transpose(call, reshape(call, x, (experts, count, size // 2, 2)), (3, 0, 1, 2))
        gate, linear = (reshape(call, part(call, pairs, 0, n, 1), pairs.shape[1:]) for n in (0, 1))
    else:
        gate, linear = (part(call, x, 2, n * size // 2, size // 2) for n in (0, 1))
    if "swiglu_limit" in call.attributes:
        limit = call.real("swiglu_limit")
        gate, linear = call.emit(Clip(high=limit), gate), call.emit(Clip(-limit, limit), linear)
    opened = call.emit(Sigmoid(), scaled(call, gate, call.real("activation_alpha", 1.0)))
    more = call.emit(Add(), linear, call.like(call.real("activation_beta", 0.0), linear))
    return call.emit(Mul(), call.emit(Mul(), gate, opened), more)


def _routed(call: OnnxCall, scores: Value) -> Value:
    """f[experts, rows, 1]: how much each expert counts. Of equal ones, the last is chosen first."""
    count, experts = scores.shape
    chosen, k = call.emit(Softmax(1), scores), call.integer("k", 1)
    if not 1 <= k <= experts:
        raise Fault("bad-attribute", f"`{call.op}` of {k} out of {experts} experts is not valid")
    turned = call.emit(Slice((0, experts - 1), (1, -1), (count, experts)), chosen)
    values, places = call.emit_all(TopK(k, 1), turned)
    own = call.maybe(14) if call.op == "QMoE" else None
    if own is not None:  # ONNX Runtime leaves out experts whose weight is not above 0
        values = call.emit(GatherElements(1), call.emit(Slice((0, experts - 1), (1, -1), (count, experts)), own), places)
    if call.integer("normalize_routing_weights") or (call.op == "QMoE" and own is None):  # as its kernel always does
        values = call.emit(Div(), values, call.emit(Reduce("sum", (1,), True), values))
    values = values if own is None else call.emit(Relu(), values)
    zeros = call.constant(np.zeros((count, experts), scores.dtype.numpy), scores.dtype)
    spread = call.emit(ScatterElements(1), zeros, places, values)
    back = call.emit(Slice((0, experts - 1), (1, -1), (count, experts)), spread)
    return unsqueeze(call, transpose(call, back, (1, 0)), 2)
