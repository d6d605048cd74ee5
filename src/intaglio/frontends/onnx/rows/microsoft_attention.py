"""Attention as ONNX Runtime's optimiser and model builder write it: heads, caches of keys and values, rotary embedding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio.frontends.building import cast, concat, expand, part, reshape, transpose
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.products import scaled
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Tanh
from intaglio.ops.binary import Add, Equal, Less, LessEqual, Mul, Sub, Where
from intaglio.ops.control import AssertTrue
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.reduce import Reduce, Softmax

MS = "com.microsoft"
LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class Scores:
    """What is done to the scores before they are weights."""

    scale: float
    softcap: float = 0.0
    bias: Value | None = None  # added
    allowed: Value | None = None  # where weights may be


def split_heads(call: OnnxCall, x: Value, heads: int) -> Value:
    """[batch, length, heads * size] -> [batch, heads, length, size]"""
    batch, length, hidden = x.shape
    if heads < 1 or hidden % heads:
        raise Fault("bad-attribute", f"`{call.op}` with {heads} heads over {hidden} numbers is not valid")
    return transpose(call, reshape(call, x, (batch, length, heads, hidden // heads)), (0, 2, 1, 3))


def joined_heads(call: OnnxCall, x: Value) -> Value:
    batch, heads, length, size = x.shape
    return reshape(call, transpose(call, x, (0, 2, 1, 3)), (batch, length, heads * size))


def attend(call: OnnxCall, q: Value, k: Value, v: Value, how: Scores) -> Value:
    """Softmax of the products of queries and keys, as weights of the values; all [batch, heads, length, size]."""
    scores = scaled(call, call.emit(MatMul(False, True), q, k), how.scale)
    if how.softcap:
        scores = scaled(call, call.emit(Tanh(), scaled(call, scores, 1 / how.softcap)), how.softcap)
    if how.bias is not None:
        scores = call.emit(Add(), scores, how.bias)
    if how.allowed is not None:
        scores = call.emit(Where(), how.allowed, scores, call.like(LOWEST if scores.dtype is DType.F32 else -65504.0, scores))
    return call.emit(MatMul(), call.emit(Softmax(-1), scores), v)


def causal(call: OnnxCall, length: int, total: int, window: int = -1) -> Value:
    """bool[length, total]: which keys a query may look at. The last query is beside the last key."""
    at = np.arange(length)[:, None] + (total - length)
    keys = np.arange(total)[None]
    seen = (keys <= at) & ((keys > at - window) if window > 0 else True)
    return call.constant(np.asarray(seen))


# MultiHeadAttention ---------------------------------------------------------------------------------------------------------


def _projections(call: OnnxCall, heads: int) -> tuple[Value, Value, Value]:
    """Queries, keys and values as heads, biases added; they may be packed in one operand."""
    query, key, value, bias = call.value(0), call.maybe(1), call.maybe(2), call.maybe(3)
    if len(query.shape) == 5:  # [batch, length, heads, 3, size]
        if bias is not None:
            raise unsupported("`MultiHeadAttention` with packed operands and a bias is not supported")
        return _unpacked(call, query, 3)  # type: ignore[return-value]
    if bias is not None:
        hidden = query.shape[2]
        query = call.emit(Add(), query, part(call, bias, 0, 0, hidden))
        if key is not None and len(key.shape) == 3:
            key = call.emit(Add(), key, part(call, bias, 0, hidden, hidden))
        if value is not None and len(value.shape) == 3:
            value = call.emit(Add(), value, part(call, bias, 0, 2 * hidden, bias.shape[0] - 2 * hidden))
    if key is None:
        raise unsupported("`MultiHeadAttention` without keys is not supported")
    q = split_heads(call, query, heads)
    if len(key.shape) == 5:
        k, v = _unpacked(call, key, 2)
        return q, k, v
    if value is None:
        raise unsupported("`MultiHeadAttention` without values is not supported")
    k, v = (split_heads(call, x, heads) if len(x.shape) == 3 else x for x in (key, value))
    return q, k, v


def _unpacked(call: OnnxCall, x: Value, count: int) -> tuple[Value, ...]:
    if x.shape[3] != count:
        raise Fault("shape-mismatch", f"`{call.op}` has packed operands of {list(x.shape)}")
    parts = [reshape(call, part(call, x, 3, n, 1), (*x.shape[:3], x.shape[4])) for n in range(count)]
    return tuple(transpose(call, p, (0, 2, 1, 3)) for p in parts)


def with_past(call: OnnxCall, k: Value, v: Value, key_at: int, value_at: int) -> tuple[Value, Value]:
    past = [call.maybe(key_at), call.maybe(value_at)]
    if past[0] is None or past[1] is None:
        return k, v
    return concat(call, [past[0], k], 2), concat(call, [past[1], v], 2)


def padding_bias(call: OnnxCall, mask: Value, batch: int, total: int, like: Value) -> Value:
    """A mask of keys as something to add: 0, or the filter value."""
    if mask.shape == (batch,):
        steps = call.constant(np.arange(total, dtype=mask.dtype.numpy).reshape(1, total))
        seen = call.emit(Less(), steps, reshape(call, mask, (batch, 1)))
    elif mask.shape in ((batch, total), (batch, like.shape[2], total)):
        seen = call.emit(Less(), call.like(0, mask), mask)
    else:
        raise unsupported(f"`{call.op}` with a mask of {list(mask.shape)} is not supported")
    shape = (batch, 1, 1, total) if len(seen.shape) == 2 else (batch, 1, *seen.shape[1:])
    lowest = call.real("mask_filter_value", -10000.0)
    return call.emit(Where(), reshape(call, seen, shape), call.like(0.0, like), call.like(lowest, like))


@importer("MultiHeadAttention", domain=MS)
def multi_head_attention(call: OnnxCall) -> Answer:
    heads = call.integer("num_heads")
    q, k, v = _projections(call, heads)
    if call.has(8) or call.has(9):
        raise unsupported("`MultiHeadAttention` with a cache in place or of beams is not supported", "export without it")
    k, v = with_past(call, k, v, 6, 7)
    total = k.shape[2]
    bias = call.maybe(5)
    if (mask := call.maybe(4)) is not None:
        more = padding_bias(call, mask, q.shape[0], total, q)
        bias = more if bias is None else call.emit(Add(), bias, more)
    allowed = causal(call, q.shape[2], total) if call.integer("unidirectional") else None
    scale = call.real("scale", 0.0) or 1 / math.sqrt(q.shape[3])
    y = joined_heads(call, attend(call, q, k, v, Scores(scale, 0.0, bias, allowed)))
    return [y, k, v][: max(call.outputs, 1)]


# Rotary embedding -----------------------------------------------------------------------------------------------------------


def rotated(call: OnnxCall, x: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """x [batch, heads, length, size] turned by angles whose cosines are [batch or 1, length, half]."""
    half = cos.shape[-1]
    size = x.shape[3]
    if 2 * half > size:
        raise Fault("shape-mismatch", f"`{call.op}` turns {2 * half} numbers of {size}")
    turn = [reshape(call, t, (t.shape[0], 1, *t.shape[1:])) for t in (cos, sin)]
    head = part(call, x, 3, 0, 2 * half)
    if interleaved:
        pairs = reshape(call, head, (*x.shape[:3], half, 2))
        first, second = (reshape(call, part(call, pairs, 4, n, 1), (*x.shape[:3], half)) for n in (0, 1))
    else:
        first, second = part(call, head, 3, 0, half), part(call, head, 3, half, half)
    a = call.emit(Sub(), call.emit(Mul(), first, turn[0]), call.emit(Mul(), second, turn[1]))
    b = call.emit(Add(), call.emit(Mul(), second, turn[0]), call.emit(Mul(), first, turn[1]))
    if interleaved:
        parts = [reshape(call, v, (*x.shape[:3], half, 1)) for v in (a, b)]
        made = reshape(call, concat(call, parts, 4), (*x.shape[:3], 2 * half))
    else:
        made = concat(call, [a, b], 3)
    return made if 2 * half == size else concat(call, [made, part(call, x, 3, 2 * half, size - 2 * half)], 3)


def angles(call: OnnxCall, table: Value, positions: Value, length: int) -> Value:
    """Rows of a cache: by positions [batch, length], or from the one that is given on."""
    if positions.type.elements == 1 and positions.shape != (1, length):
        steps = call.constant(np.arange(length, dtype=np.int64).reshape(1, length))
        positions = call.emit(Add(), cast(call, reshape(call, positions, (1, 1)), DType.I64), steps)
    return call.emit(Gather(0), table, positions)


@importer("RotaryEmbedding", "MRotaryEmbedding", domain=MS)
def rotary_embedding(call: OnnxCall) -> Answer:
    x, positions, cos, sin = (call.value(n) for n in range(4))
    if call.integer("is_packed_batching") or (call.op == "MRotaryEmbedding" and call.real("scale", 1.0) != 1.0):
        raise unsupported(f"`{call.op}` of packed batches, or with a scale, is not supported")
    size = call.integer("rotary_embedding_dim")
    flat = len(x.shape) == 3
    if flat:
        heads = call.integer("num_heads") or x.shape[2] // (2 * cos.shape[1])
        if size and not call.integer("num_heads"):
            raise Fault("bad-attribute", f"`{call.op}` of a part of each head has no `num_heads`")
        wide = split_heads(call, x, heads)
    else:
        wide = x
    if call.op == "MRotaryEmbedding":
        found = [_in_sections(call, t, positions) for t in (cos, sin)]
    else:
        found = [angles(call, t, positions, wide.shape[2]) for t in (cos, sin)]
    made = rotated(call, wide, found[0], found[1], bool(call.integer("interleaved")))
    return joined_heads(call, made) if flat else made


def _in_sections(call: OnnxCall, table: Value, positions: Value) -> Value:
    """Each angle by one of three positions, which are time, height and width."""
    sections, half = call.ints("mrope_section") or [], table.shape[1]
    if len(sections) != 3 or min(sections) < 0 or sum(sections) != half or len(positions.shape) != 3 or positions.shape[0] != 3:
        what = f"`{call.op}` with the sections {sections} of {half} angles, at positions {list(positions.shape)}, is not valid"
        raise Fault("bad-attribute", what)
    if call.integer("mrope_layout"):
        which = np.zeros(half, np.int64)
        for n in (1, 2):
            which[n : 3 * sections[n] : 3] = n
    else:
        which = np.repeat(np.arange(3), sections)
    places = (reshape(call, part(call, positions, 0, n, 1), positions.shape[1:]) for n in range(3))
    first, *others = (call.emit(Gather(0), table, place) for place in places)
    for n, other in enumerate(others, 1):
        first = call.emit(Where(), call.constant(which == n), other, first)
    return first


# GroupQueryAttention --------------------------------------------------------------------------------------------------------


def grouped(call: OnnxCall, heads: int, groups: int) -> tuple[Value, Value, Value]:
    query, key, value = call.value(0), call.maybe(1), call.maybe(2)
    if key is None or value is None:  # all in one
        size = query.shape[2] // (heads + 2 * groups)
        ends = (0, heads * size, (heads + groups) * size)
        counts = (heads * size, groups * size, groups * size)
        query, key, value = (part(call, query, 2, start, count) for start, count in zip(ends, counts, strict=True))
    return split_heads(call, query, heads), split_heads(call, key, groups), split_heads(call, value, groups)


def _checked_lengths(call: OnnxCall, past: int, length: int) -> Value | None:
    """bool[batch, 1, 1, total] of keys that count. A past that is not full is an error: its place in memory would be another."""
    last, total = call.value(5), past + length
    batch = last.type.elements
    if past:
        full = call.emit(Equal(), reshape(call, last, (batch,)), call.like(total - 1, last))
        if full.data is None:
            every = call.emit(Reduce("all", (0,), True), full)
            call.emit(AssertTrue("the cache of keys is not as long as it was compiled for"), every)
        elif not full.data.all():
            raise unsupported(f"`GroupQueryAttention` with a cache of {past} of which a part counts", "give a cache that is full")
        return None
    steps = call.constant(np.arange(total, dtype=last.dtype.numpy).reshape(1, 1, 1, total))
    return call.emit(LessEqual(), steps, reshape(call, last, (batch, 1, 1, 1)))


@importer("GroupQueryAttention", domain=MS)
def group_query_attention(call: OnnxCall) -> Answer:
    heads, groups = call.integer("num_heads"), call.integer("kv_num_heads")
    if groups < 1 or heads % max(groups, 1):
        raise Fault("bad-attribute", f"`GroupQueryAttention` has {heads} heads in {groups} groups")
    if call.integer("smooth_softmax", -1) > 0 or call.has(11) or call.text("k_quant_type", "NONE") != "NONE":
        raise unsupported("`GroupQueryAttention` with a smooth softmax, a sink or a quantised cache is not supported")
    q, k, v = grouped(call, heads, groups)
    past = call.value(3).shape[2] if call.has(3) else 0
    length = q.shape[2]
    if call.integer("do_rotary"):
        steps = call.constant(np.arange(past, past + length, dtype=np.int64).reshape(1, length))
        found = [call.emit(Gather(0), call.value(n), call.maybe(9) or steps) for n in (7, 8)]
        q, k = (rotated(call, x, found[0], found[1], bool(call.integer("rotary_interleaved"))) for x in (q, k))
    k, v = with_past(call, k, v, 3, 4) if past else (k, v)
    total = k.shape[2]
    allowed = causal(call, length, total, call.integer("local_window_size", -1))
    if (counted := _checked_lengths(call, past, length)) is not None:
        allowed = call.emit(Where(), counted, allowed, call.constant(np.asarray(False)))
    scale = call.real("scale", 0.0) or 1 / math.sqrt(q.shape[3])
    keys, values = (repeated(call, x, heads // groups) for x in (k, v))
    y = joined_heads(call, attend(call, q, keys, values, Scores(scale, call.real("softcap", 0.0), call.maybe(10), allowed)))
    return [y, k, v][: max(call.outputs, 1)]


def repeated(call: OnnxCall, x: Value, times: int) -> Value:
    """Each head of keys for several heads of queries."""
    if times == 1:
        return x
    batch, heads, length, size = x.shape
    wide = expand(call, reshape(call, x, (batch, heads, 1, length, size)), (batch, heads, times, length, size))
    return reshape(call, wide, (batch, heads * times, length, size))


# Attention, of one packed projection ----------------------------------------------------------------------------------------


def packed_attention(call: OnnxCall, packed: Value, sizes: list[int], mask: Value | None) -> Answer:
    """From x W + b: queries, keys and values of every head. A past has keys and values in one."""
    heads = call.integer("num_heads")
    if heads < 1 or any(s % heads for s in sizes) or sum(sizes) != packed.shape[2]:
        raise Fault("bad-attribute", f"`{call.op}` with {heads} heads over {sizes} is not valid")
    starts = (0, sizes[0], sizes[0] + sizes[1])
    q, k, v = (split_heads(call, part(call, packed, 2, at, n), heads) for at, n in zip(starts, sizes, strict=True))
    past = call.maybe(4 if call.op == "Attention" else 8)
    if past is not None:
        before = [reshape(call, part(call, past, 0, n, 1), past.shape[1:]) for n in (0, 1)]
        k, v = concat(call, [before[0], k], 2), concat(call, [before[1], v], 2)
    if call.integer("do_rotary") or call.integer("past_present_share_buffer"):
        raise unsupported(f"`{call.op}` with rotary embedding or a cache in place is not supported")
    bias = call.maybe(5) if call.op == "Attention" else None
    if mask is not None:
        more = padding_bias(call, mask, q.shape[0], k.shape[2], q)
        bias = more if bias is None else call.emit(Add(), bias, more)
    allowed = causal(call, q.shape[2], k.shape[2]) if call.integer("unidirectional") else None
    scale = call.real("scale", 0.0) or 1 / math.sqrt(sizes[0] // heads)
    y = joined_heads(call, attend(call, q, k, v, Scores(scale, 0.0, bias, allowed)))
    if call.outputs < 2:
        return y
    return [y, concat(call, [reshape(call, p, (1, *p.shape)) for p in (k, v)], 0)]


@importer("Attention", domain=MS)
def attention(call: OnnxCall) -> Answer:
    x, w = call.value(0), call.value(1)
    sizes = call.ints("qkv_hidden_sizes") or [w.shape[1] // 3] * 3
    return packed_attention(call, call.emit(MatMul(), x, w, call.maybe(2)), sizes, call.maybe(3))
