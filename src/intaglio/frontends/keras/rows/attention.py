"""Attention layers, written out: products, scaling, masks, softmax."""

from __future__ import annotations

import math

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import cast, expand, reshape, transpose
from intaglio.frontends.keras.walk import KerasCall, Result, layer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Value
from intaglio.ir.sizes import moves
from intaglio.ir.types import DType
from intaglio.ops.activation import Sigmoid, Tanh
from intaglio.ops.binary import Add, GreaterEqual, Less, LogicalAnd, Mul, Sub, Where
from intaglio.ops.matmul import MatMul
from intaglio.ops.reduce import Reduce, Softmax
from intaglio.ops.sizes import Iota
from intaglio.ops.unary import Abs

_FAR = -1e9  # what Keras adds where attention may not look; less than a half can hold
_FAR_HALF = -3e4


def _hidden(call: KerasCall, scores: Value, causal: bool, window: int | None, mask: Value | None) -> Value:
    """Scores that may not be looked at become very small."""
    far = _FAR_HALF if scores.dtype is DType.F16 else _FAR
    rows, columns = scores.shape[-2:]
    if causal or window is not None:
        if moves((rows, columns)):
            hidden = call.emit(Where(), _seen(call, rows, columns, causal, window), call.like(0, scores), call.like(far, scores))
            return _masked(call, call.emit(Add(), scores, hidden), far, mask)
        at = np.arange(rows)[:, None] - np.arange(columns)[None]
        seen = np.ones((rows, columns), np.bool_)
        if causal:
            seen &= at >= 0
        if window is not None:
            seen &= np.abs(at) < window
        scores = call.emit(Add(), scores, call.constant(np.where(seen, 0.0, far).astype(np.float32), scores.dtype))
    return _masked(call, scores, far, mask)


def _seen(call: KerasCall, rows: int, columns: int, causal: bool, window: int | None) -> Value:
    """Which keys a query may look at, where only the caller knows how many there are."""
    at = call.emit(Sub(), reshape(call, call.emit(Iota(rows)), (rows, 1)), call.emit(Iota(columns)))
    near = None if window is None else call.emit(Less(), call.emit(Abs(), at), call.constant(np.asarray(window, np.int64)))
    before = call.emit(GreaterEqual(), at, call.constant(np.asarray(0, np.int64))) if causal else near
    assert before is not None
    return before if near is None or near is before else call.emit(LogicalAnd(), before, near)


def _masked(call: KerasCall, scores: Value, far: float, mask: Value | None) -> Value:
    if mask is not None:
        seen_there = mask if mask.dtype is DType.BOOL else cast(call, mask, DType.BOOL)
        if scores.type.rank == 4 and mask.type.rank == 3:  # a mask for all heads
            seen_there = reshape(call, seen_there, (mask.shape[0], 1, *mask.shape[1:]))
        scores = call.emit(Where(), seen_there, scores, call.like(far, scores))
    return scores


@layer("MultiHeadAttention", "GroupQueryAttention")
def multi_head(call: KerasCall) -> Result:
    named = [call.kwargs.get(n) for n in ("query", "value", "key")]
    placed = call.tensors()
    given = {n: v for n, v in zip(("query", "value", "key"), [*placed, None, None, None], strict=False) if v is not None}
    given |= {n: v for n, v in zip(("query", "value", "key"), named, strict=True) if isinstance(v, Value)}
    if "query" not in given or "value" not in given:
        raise Fault("bad-graph", "it is called without a query or a value")
    query, value = given["query"], given["value"]
    key = given.get("key", value)
    mask = call.kwargs.get("attention_mask")
    if any(call.kwargs.get(n) is not None for n in ("query_mask", "value_mask", "key_mask")) or len(placed) > 3:
        raise unsupported("masks of the query, the key or the value are not supported", "give it an `attention_mask`")
    axes = call.option("attention_axes")
    if not (query.type.rank == value.type.rank == key.type.rank == 3) or axes not in (None, [1], 1):
        raise unsupported(f"attention over axes {axes} of {list(query.shape)} is not supported", "flatten to one axis")
    grouped = call.layer.kind == "GroupQueryAttention"
    heads, width = (call.whole(n) for n in (("num_query_heads", "head_dim") if grouped else ("num_heads", "key_dim")))
    groups = call.whole("num_key_value_heads") if grouped else heads
    if groups < 1 or heads % groups:
        raise Fault("bad-attribute", f"{heads} heads of the query are not a multiple of {groups}")
    wide = width if grouped or call.option("value_dim") is None else call.whole("value_dim")
    window = None if call.option("sliding_window") is None else call.whole("sliding_window")
    q = _heads(call, query, "query", heads, width)
    k = _repeated(call, _heads(call, key, "key", groups, width), heads)
    v = _repeated(call, _heads(call, value, "value", groups, wide), heads)
    scores = call.emit(MatMul(transpose_b=True), call.emit(Mul(), q, call.like(1 / math.sqrt(width), q)), k)
    scores = _hidden(call, scores, bool(call.kwargs.get("use_causal_mask")), window, mask if isinstance(mask, Value) else None)
    shares = call.emit(Softmax(3), scores)
    mixed = transpose(call, call.emit(MatMul(), shares, v), (0, 2, 1, 3))
    flat = reshape(call, mixed, (*query.shape[:2], heads * wide))
    if call.flag("use_gate"):
        gate = call.emit(Sigmoid(), _heads(call, query, "gate", heads, wide))
        flat = call.emit(Mul(), flat, reshape(call, transpose(call, gate, (0, 2, 1, 3)), flat.shape))
    told = None if grouped else call.option("output_shape")
    shape = [query.shape[-1]] if not told else [told] if type(told) is int else told
    if len(shape) != 1 or type(shape[0]) is not int:
        raise unsupported(f"`output_shape` is {quoted(str(told))}: only one axis is supported")
    w = reshape(call, call.weight("output_kernel", heads, wide, shape[0]), (heads * wide, shape[0]))
    bias = call.weight("output_bias", shape[0]) if call.flag("use_bias", True) else None
    y = call.emit(MatMul(), flat, w, bias)
    return [y, shares] if call.kwargs.get("return_attention_scores") else y


def _heads(call: KerasCall, x: Value, role: str, heads: int, width: int) -> Value:
    """[batch, heads, time, width]."""
    w = reshape(call, call.weight(f"{role}_kernel", x.shape[-1], heads, width), (x.shape[-1], heads * width))
    bias = call.weight(f"{role}_bias", heads, width) if call.flag("use_bias", True) else None
    bias = None if bias is None else reshape(call, bias, (heads * width,))
    y = call.emit(MatMul(), x, w, bias)
    return transpose(call, reshape(call, y, (*x.shape[:2], heads, width)), (0, 2, 1, 3))


def _repeated(call: KerasCall, x: Value, heads: int) -> Value:
    """Each head for so many of the query that there are `heads`."""
    b, groups, t, width = x.shape
    if groups == heads:
        return x
    wider = expand(call, reshape(call, x, (b, groups, 1, t, width)), (b, groups, heads // groups, t, width))
    return reshape(call, wider, (b, heads, t, width))


@layer("Attention", "AdditiveAttention")
def attention(call: KerasCall) -> Result:
    query, value, *rest = call.tensors()
    key = rest[0] if rest else value
    told = call.kwargs.get("mask")
    if told is not None and any(m is not None for m in (told if isinstance(told, list) else [told])):
        raise unsupported("a mask is not supported")
    if query.type.rank != 3 or key.type.rank != 3:
        raise Fault("shape-mismatch", f"it takes [batch, time, features], got {list(query.shape)} and {list(key.shape)}")
    additive = call.layer.kind == "AdditiveAttention"
    if not additive and call.option("score_mode", "dot") == "dot":
        scores = call.emit(MatMul(transpose_b=True), query, key)
        if call.flag("use_scale"):
            scores = call.emit(Mul(), scores, call.weight("scale"))
    else:
        scores = _added(call, query, key, additive)
    scores = _hidden(call, scores, bool(call.kwargs.get("use_causal_mask")), None, None)
    shares = call.emit(Softmax(2), scores)
    y = call.emit(MatMul(), shares, value)
    return [y, shares] if call.kwargs.get("return_attention_scores") else y


def _added(call: KerasCall, query: Value, key: Value, additive: bool) -> Value:
    """The sum over features of tanh(query + key)."""
    b, t, d = query.shape
    sums = call.emit(Add(), reshape(call, query, (b, t, 1, d)), reshape(call, key, (b, 1, *key.shape[1:])))
    if not additive and call.flag("use_scale"):
        sums = call.emit(Mul(), sums, call.weight("scale"))
    bent = call.emit(Tanh(), sums)
    if additive and call.flag("use_scale", True):
        bent = call.emit(Mul(), bent, call.weight("scale", d))
    total = call.emit(Reduce("sum", (3,), False), bent)
    return total if additive else call.emit(Mul(), total, call.weight("concat_score_weight"))
