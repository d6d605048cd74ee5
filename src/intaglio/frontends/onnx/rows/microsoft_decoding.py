"""Attention of com.microsoft for one word after the other, biases by distance, and recurrences that ONNX took over."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import cast, padded, part, reshape, unsqueeze
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.container import newest_opset
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.microsoft_attention import Scores, attend, joined_heads, padding_bias, split_heads
from intaglio.ir.graph import Array, Value
from intaglio.ops.activation import Sigmoid
from intaglio.ops.binary import Add, Equal, LessEqual, Mul, Sub, Where
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Cos, Sin

MS = "com.microsoft"


@importer("DecoderMaskedMultiHeadAttention", domain=MS)
def decoder_masked_attention(call: OnnxCall) -> Answer:
    """One query. Its key goes into the cache behind those that are there; or keys and values are all there (cross attention)."""
    query, key, value, heads, bias = call.value(0), call.maybe(1), call.maybe(2), call.integer("num_heads"), call.maybe(10)
    if call.has(9) or call.integer("output_qk"):
        raise unsupported(f"`{call.op}` with beams, or with scores as a result, is not supported", "export without them")
    if key is None or value is None:
        size = query.shape[2] // 3
        query, key, value = (part(call, query, 2, n * size, size) for n in range(3))
    across, hidden = len(key.shape) == 4, query.shape[2]
    if bias is not None:
        terms = [part(call, bias, 0, n * hidden, hidden) for n in range(1 if across else 3)]
        sides = [call.emit(Add(), side, term) for side, term in zip((query, key, value), terms, strict=False)]
        query, key, value = [*sides, *(key, value)[len(sides) - 1 :]]
    q = split_heads(call, query, heads)
    scale = call.real("scale", 0.0) or 1 / math.sqrt(q.shape[3])
    if across:
        how = Scores(scale, 0.0, _mask(call, q, key.shape[2]))
        return joined_heads(call, attend(call, q, key, value, how))
    if not call.integer("past_present_share_buffer") or not all(call.has(n) for n in (5, 6, 7)):
        what = f"`{call.op}` without a cache and the length of the past is not supported"
        raise unsupported(what, "export it with `past_present_share_buffer`")
    past = reshape(call, call.value(7), (1, 1, 1, 1))
    places = call.constant(np.arange(call.value(5).shape[2], dtype=past.dtype.numpy).reshape(1, 1, -1, 1))
    here = call.emit(Equal(), places, past)
    k, v = (call.emit(Where(), here, split_heads(call, new, heads), call.value(at)) for new, at in ((key, 5), (value, 6)))
    seen = reshape(call, call.emit(LessEqual(), places, past), (1, 1, 1, k.shape[2]))
    y = joined_heads(call, attend(call, q, k, v, Scores(scale, 0.0, _mask(call, q, k.shape[2]), seen)))
    return [y, k, v][: max(call.outputs, 1)]


def _mask(call: OnnxCall, q: Value, total: int) -> Value | None:
    """What is added to scores. Behind the keys that count there may be less than the cache has."""
    bias, mask = call.maybe(4), call.maybe(3)
    if bias is not None and bias.shape[3] < total:
        bias = padded(call, bias, [0] * 7 + [total - bias.shape[3]])
    if mask is None:
        return bias
    if len(mask.shape) == 2 and mask.shape[1] < total:
        mask = padded(call, mask, [0] * 3 + [total - mask.shape[1]])
    more = padding_bias(call, mask, q.shape[0], total, q)
    return more if bias is None else call.emit(Add(), bias, more)


# Biases by distance ---------------------------------------------------------------------------------------------------------


@importer("RelativePositionBias", domain=MS)
def relative_position_bias(call: OnnxCall) -> Answer:
    """T5's: distances fall into buckets, near ones alone, far ones together. The table is stored a head after the other."""
    table, length, total = call.value(0), *(int(call.numbers(n, "length").reshape(-1)[0]) for n in (1, 2))
    buckets, heads = table.shape
    both, farthest = bool(call.integer("is_bidirectional")), call.integer("max_distance")
    if not 1 <= length <= total or buckets < 4 or farthest <= buckets // (4 if both else 2):
        raise Fault("bad-attribute", f"`{call.op}` of {length} and {total} in {buckets} buckets up to {farthest} is not valid")
    which = _buckets(length, total, buckets, farthest, both)
    found = call.emit(Gather(1), reshape(call, table, (heads, buckets)), call.constant(which))
    return reshape(call, found, (1, heads, length, total))


def _buckets(length: int, total: int, buckets: int, farthest: int, both: bool) -> Array:
    apart = np.arange(total)[None] - np.arange(length)[:, None]
    first = np.zeros(apart.shape, np.int64)
    if both:
        buckets //= 2
        first = np.where(apart > 0, buckets, 0)
    far = np.abs(apart) if both else np.maximum(-apart, 0)
    exact = buckets // 2
    with np.errstate(divide="ignore"):
        logs = np.log(far.astype(np.float32) / np.float32(exact)) / np.log(np.float32(farthest) / np.float32(exact))
    large = exact + np.where(far < exact, 0, logs * np.float32(buckets - exact)).astype(np.int64)
    return np.asarray(first + np.where(far < exact, far, np.minimum(large, buckets - 1)), np.int64)


@importer("GatedRelativePositionBias", domain=MS)
def gated_relative_position_bias(call: OnnxCall) -> Answer:
    """WavLM's: the bias of each query times a number that follows from the query."""
    query, bias, distances, weights, offsets, eco = (call.value(n) for n in range(6))
    if call.has(6) or len(query.shape) != 3 or weights.shape[1] % 2:
        raise unsupported(f"`{call.op}` without padding, or of {list(weights.shape)} weights, is not supported")
    q = split_heads(call, call.emit(Add(), query, bias), call.integer("num_heads"))
    sums = call.emit(Add(), call.emit(MatMul(), q, weights), offsets)
    halves = reshape(call, sums, (*q.shape[:3], 2, weights.shape[1] // 2))
    gates = call.emit(Sigmoid(), call.emit(Reduce("sum", (4,), False), halves))
    u, r = (part(call, gates, 3, n, 1) for n in (0, 1))
    inner = call.emit(Sub(), call.emit(Mul(), r, eco), call.like(1.0, r))
    return call.emit(Mul(), call.emit(Add(), call.emit(Mul(), u, inner), call.like(2.0, u)), distances)


@importer("GemmaRotaryEmbedding", domain=MS)
def gemma_rotary_embedding(call: OnnxCall) -> Answer:
    angle = call.value(0)
    sin, cos = (unsqueeze(call, cast(call, call.emit(op, angle), call.value(1).dtype), 1) for op in (Sin(), Cos()))
    sides = [(call.value(at), call.value(at + 1)) for at in (1, 3)]
    return [call.emit(Add(), call.emit(Mul(), x, cos), call.emit(Mul(), turned, sin)) for x, turned in sides]


# Recurrences ----------------------------------------------------------------------------------------------------------------

OWN = {"state_window": 0, "channels_last": 0, "ndim": 1, "dilation": 1}  # attributes that ONNX's do not have, and what it means


@importer("LinearAttention", "CausalConvWithState", domain=MS)
def as_onnx_has_it(call: OnnxCall) -> Answer:
    if any(call.integer(name, usual) != usual for name, usual in OWN.items()):
        told = ", ".join(f"`{name}`" for name in OWN if name in call.attributes)
        raise unsupported(f"`{call.op}` with {told} is not supported", "export it as ONNX's operator of that name")
    import onnx

    node = onnx.helper.make_node(call.op, ["x"], [f"y{n}" for n in range(call.outputs)])
    kept = {name: value for name, value in call.attributes.items() if name not in OWN}
    return call.walk.by_function_body(node, "", newest_opset(""), call.inputs, kept, call.scope)
