"""Normalisations and gates of com.microsoft: of diffusion models, of dropout, of networks with several streams."""

from __future__ import annotations

import math
from dataclasses import replace

from intaglio.frontends.building import cast, part, per_channel, reshape, rms_norm, transpose, unsqueeze
from intaglio.frontends.onnx.call import TABLE, Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.normalise import in_groups
from intaglio.frontends.onnx.rows.products import scaled
from intaglio.frontends.onnx.rows.reduction import softmax_from
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Gelu, Sigmoid, Silu, Softplus
from intaglio.ops.binary import Add, Max, Mul
from intaglio.ops.matmul import MatMul
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Abs, Sign, Sqrt

MS = "com.microsoft"


@importer("GroupNorm", "SkipGroupNorm", domain=MS)
def group_norm(call: OnnxCall) -> Answer:
    """Pictures have their channels last, unless the model says otherwise. What is skipped, and a bias, are added first."""
    x, skip, bias, last = call.value(0), None, None, bool(call.integer("channels_last", 1))
    if call.op == "SkipGroupNorm":
        skip, bias = call.value(3), call.maybe(4)
    channel = len(x.shape) - 1 if last else 1
    for more in (skip, bias):
        if more is not None and len(more.shape) < len(x.shape):
            one = [1] * len(x.shape)
            one[channel], one[0] = more.shape[-1], more.shape[0] if len(more.shape) > 1 else 1
            more = reshape(call, more, one)
        x = x if more is None else call.emit(Add(), x, more)
    wide = cast(call, x, DType.F32)
    first = transpose(call, wide, (0, channel, *range(1, channel))) if last else wide
    scale, shift = (cast(call, call.value(n), DType.F32) for n in (1, 2))
    y = per_channel(call, in_groups(call, first, call.integer("groups")), scale, shift)
    y = transpose(call, y, (0, *range(2, len(x.shape)), 1)) if last else y
    y = cast(call, call.emit(Silu(), y) if call.integer("activation") else y, x.dtype)
    return y if call.outputs < 2 else [y, x]


@importer("BiasAdd", domain=MS)
def bias_add(call: OnnxCall) -> Answer:
    return call.emit(Add(), call.emit(Add(), call.value(0), call.value(1)), call.value(2))


@importer("BiasSplitGelu", domain=MS)
def bias_split_gelu(call: OnnxCall) -> Answer:
    """The first half of the columns, times the Gelu of the second."""
    x = call.emit(Add(), call.value(0), call.value(1))
    axis = len(x.shape) - 1
    if x.shape[axis] % 2:
        raise Fault("shape-mismatch", f"`BiasSplitGelu` of {list(x.shape)} has no two halves")
    half = x.shape[axis] // 2
    return call.emit(Mul(), part(call, x, axis, 0, half), call.emit(Gelu(), part(call, x, axis, half, half)))


@importer("BiasSoftmax", domain=MS)
def bias_softmax(call: OnnxCall) -> Answer:
    x = call.emit(Add(), call.value(0), call.value(1))
    return softmax_from(call, x, call.axis(len(x.shape), 1))


@importer("BiasDropout", "BitmaskBiasDropout", "BitmaskDropout", domain=MS)
def bias_dropout(call: OnnxCall) -> Answer:
    """As ONNX's Dropout, of a sum. A mask of bits is not there."""
    x, first = call.value(0), 1 if call.op == "BitmaskDropout" else 3
    if first == 3:
        x = call.emit(Add(), x, call.value(1))
    inner = replace(call, op="Dropout", domain="", version=13, inputs=[x, call.item(first), call.item(first + 1)], outputs=2)
    answer = TABLE["", "Dropout"](inner)
    assert isinstance(answer, (list, tuple))
    y, mask = answer
    assert isinstance(y, Value)
    if first == 3 and (residual := call.maybe(2)) is not None:
        y = call.emit(Add(), y, residual)
    return y if call.outputs < 2 else [y, mask if call.op == "BiasDropout" else None]


# Gates ----------------------------------------------------------------------------------------------------------------------


@importer("ScaledSiLU", domain=MS)
def scaled_silu(call: OnnxCall) -> Answer:
    x, scale = call.value(0), call.maybe(1)
    if scale is None:
        z = scaled(call, x, call.real("alpha", 1.0))
    else:
        z = cast(call, call.emit(Mul(), cast(call, x, DType.F32), cast(call, reshape(call, scale, ()), DType.F32)), x.dtype)
    return call.emit(Mul(), z, call.emit(Sigmoid(), z))


@importer("GatedAdd", domain=MS)
def gated_add(call: OnnxCall) -> Answer:
    return call.emit(Add(), call.value(0), call.emit(Mul(), call.value(1), call.value(2)))


@importer("GatedRMSNorm", domain=MS)
def gated_rms_norm(call: OnnxCall) -> Answer:
    """Over groups of columns, as many as there are scales; times the activation of a gate."""
    x, scale, gate = (cast(call, call.value(n), DType.F32) for n in range(3))
    kind, columns = call.text("activation", "silu"), scale.type.elements
    if kind not in ("silu", "swish", "sigmoid") or x.shape[-1] % max(columns, 1):
        raise Fault("bad-attribute", f"`GatedRMSNorm` of {list(x.shape)} by {columns} scales with the gate `{kind}` is not valid")
    grouped = reshape(call, x, (*x.shape[:-1], x.shape[-1] // columns, columns))
    y = rms_norm(call, grouped, scale, len(x.shape), call.real("epsilon", 1e-5))
    opened = call.emit(Sigmoid() if kind == "sigmoid" else Silu(), gate)
    return cast(call, call.emit(Mul(), reshape(call, y, x.shape), opened), call.value(0).dtype)


@importer("LinearAttentionGate", domain=MS)
def linear_attention_gate(call: OnnxCall) -> Answer:
    a, b = call.value(0), call.maybe(3)
    opened = call.emit(Softplus(), call.emit(Add(), cast(call, a, DType.F32), call.value(1)))
    decay = cast(call, call.emit(Mul(), opened, call.value(2)), a.dtype)
    return decay if b is None else [decay, call.emit(Sigmoid(), b)]


@importer("EngramGate", domain=MS)
def engram_gate(call: OnnxCall) -> Answer:
    """One gate for each stream, from how alike keys and queries are; the values are shared."""
    key, query, value = (cast(call, call.value(n), DType.F32) for n in range(3))
    epsilon, last = call.real("epsilon", 1e-5), len(key.shape) - 1
    k, q = (rms_norm(call, x, call.value(n), last, epsilon) for x, n in ((key, 3), (query, 4)))
    dot = scaled(call, call.emit(Reduce("sum", (last,), True), call.emit(Mul(), k, q)), 1 / math.sqrt(key.shape[last]))
    root = call.emit(Sqrt(), call.emit(Max(), call.emit(Abs(), dot), call.like(1e-6, dot)))
    gate = call.emit(Sigmoid(), call.emit(Mul(), call.emit(Sign(), dot), root))
    y = call.emit(Mul(), gate, unsqueeze(call, value, 2))
    results = [y] if call.outputs < 2 else [y, rms_norm(call, y, call.value(5), last, epsilon)]
    return [cast(call, x, call.value(0).dtype) for x in results]


# Streams --------------------------------------------------------------------------------------------------------------------


def _streams(call: OnnxCall, x: Value) -> Value:
    """[..., streams, columns], which may lie one behind the other."""
    count = call.integer("num_branches")
    if not count:
        return x
    if count < 1 or x.shape[-1] % count:
        raise Fault("bad-attribute", f"`{call.op}` of {list(x.shape)} in {count} streams is not valid")
    return reshape(call, x, (*x.shape[:-1], count, x.shape[-1] // count))


def _gates(call: OnnxCall, gates: Value, x: Value) -> Value:
    """For every stream, or every number of it."""
    if gates.shape == x.shape[:-1]:
        return unsqueeze(call, gates, len(gates.shape))
    if len(gates.shape) == len(x.shape):
        return gates
    if gates.type.elements == x.type.elements:
        return reshape(call, gates, x.shape)
    raise unsupported(f"`{call.op}` of {list(x.shape)} with gates of {list(gates.shape)} is not supported")


@importer("BranchwiseRMSNorm", domain=MS)
def branchwise_rms_norm(call: OnnxCall) -> Answer:
    x, scale = call.value(0), call.maybe(1)
    streams = _streams(call, cast(call, x, DType.F32))
    y = rms_norm(call, streams, None, len(streams.shape) - 1, call.real("epsilon", 1e-5))
    if scale is not None:
        wide = cast(call, scale, DType.F32)
        shape = streams.shape[-2:] if wide.type.elements == math.prod(streams.shape[-2:]) else streams.shape[-1:]
        y = call.emit(Mul(), y, reshape(call, wide, shape))
    return cast(call, reshape(call, y, x.shape), x.dtype)


@importer("HyperConnectionPreMix", domain=MS)
def pre_mix(call: OnnxCall) -> Answer:
    """The sum of the streams, each through its gate."""
    streams = _streams(call, cast(call, call.value(0), DType.F32))
    gates = _gates(call, cast(call, call.value(1), DType.F32), streams)
    total = call.emit(Reduce("sum", (len(streams.shape) - 2,), False), call.emit(Mul(), streams, gates))
    return cast(call, scaled(call, total, call.real("reduction_scale", 1.0)), call.value(0).dtype)


@importer("HyperConnectionPostMix", domain=MS)
def post_mix(call: OnnxCall) -> Answer:
    """The streams mixed with each other, and one output put into each through its gate."""
    x, mix = call.value(0), call.maybe(3)
    streams = _streams(call, cast(call, x, DType.F32))
    block = cast(call, call.value(1), DType.F32)
    gates = _gates(call, cast(call, call.value(2), DType.F32), streams)
    if mix is not None:
        streams = call.emit(MatMul(True, False), cast(call, mix, DType.F32), streams)
    added = call.emit(Mul(), gates, unsqueeze(call, block, len(block.shape) - 1))
    return cast(call, reshape(call, call.emit(Add(), streams, added), x.shape), x.dtype)
