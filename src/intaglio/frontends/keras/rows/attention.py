"""Attention layers, written out: products, scaling, masks, softmax."""

from __future__ import annotations

import math
from functools import reduce

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
    """Scores that may not be looked at become very small. `mask`: bool, of the rank of the scores."""
    far = _FAR_HALF if scores.dtype is DType.F16 else _FAR
    if not causal and window is None:
        return scores if mask is None else call.emit(Where(), mask, scores, call.like(far, scores))
    rows, columns = scores.shape[-2:]
    if moves((rows, columns)):
        seen = _seen(call, rows, columns, causal, window)
        if mask is not None:
            return call.emit(Where(), call.emit(LogicalAnd(), mask, seen), scores, call.like(far, scores))
        return call.emit(Add(), scores, call.emit(Where(), seen, call.like(0, scores), call.like(far, scores)))
    at = np.arange(rows)[:, None] - np.arange(columns)[None]
    known = np.ones((rows, columns), np.bool_)
    if causal:
        known &= at >= 0
    if window is not None:
        known &= np.abs(at) < window
    if mask is not None:
        return call.emit(Where(), call.emit(LogicalAnd(), mask, call.constant(known)), scores, call.like(far, scores))
    return call.emit(Add(), scores, call.constant(np.where(known, 0.0, far).astype(np.float32), scores.dtype))


def _seen(call: KerasCall, rows: int, columns: int, causal: bool, window: int | None) -> Value:
    """Which keys a query may look at, where only the caller knows how many there are."""
    at = call.emit(Sub(), reshape(call, call.emit(Iota(rows)), (rows, 1)), call.emit(Iota(columns)))
    near = None if window is None else call.emit(Less(), call.emit(Abs(), at), call.constant(np.asarray(window, np.int64)))
    before = call.emit(GreaterEqual(), at, call.constant(np.asarray(0, np.int64))) if causal else near
    assert before is not None
    return before if near is None or near is before else call.emit(LogicalAnd(), before, near)


def _all(call: KerasCall, masks: list[Value | None]) -> Value | None:
    """What all of these masks leave."""
    found = [cast(call, m, DType.BOOL) for m in masks if m is not None]
    return None if not found else reduce(lambda a, b: call.emit(LogicalAnd(), a, b), found)


def _rows(call: KerasCall, mask: Value | None) -> Value | None:
    """[batch, queries] as [batch, queries, 1]."""
    return None if mask is None else reshape(call, mask, (*mask.shape, 1))


def _columns(call: KerasCall, mask: Value | None) -> Value | None:
    """[batch, keys] as [batch, 1, keys]."""
    return None if mask is None else reshape(call, mask, (mask.shape[0], 1, *mask.shape[1:]))


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
    if len(placed) > 3:
        raise unsupported("masks of the query, the key or the value by position are not supported", "give them by name")
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
    causal, own = bool(call.kwargs.get("use_causal_mask")), _mask_of_query(call, query)
    mask = _attention_mask(call, own, value, given.get("key"))
    shares = call.emit(Softmax(3), _hidden(call, scores, causal, window, mask))
    if mask is not None and _zeros_what_is_hidden(call):
        shares = call.emit(Where(), _mask_of_scores(call, shares, causal, window, mask), shares, call.like(0, shares))
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
    if not grouped:
        call.walk.masking.take_off([query, value, key], [y])
    if own is not None:
        call.walk.masks[y] = own
    return [y, shares] if call.kwargs.get("return_attention_scores") else y


def _mask_of_query(call: KerasCall, query: Value) -> Value | None:
    """Since 3.8, MultiHeadAttention reads the mask of the tensor, whatever it is called with."""
    told = call.kwargs.get("query_mask")
    ignored = call.layer.kind == "MultiHeadAttention" and call.walk.version >= (3, 8)
    return told if isinstance(told, Value) and not ignored else call.walk.masks.get(query)


def _attention_mask(call: KerasCall, query: Value | None, value: Value, key: Value | None) -> Value | None:
    """bool, [batch, 1 or heads, queries or 1, keys]."""
    told = call.kwargs.get("attention_mask")
    masks = [call.kwargs.get("value_mask"), call.kwargs.get("key_mask")]
    for n, (mask, tensor) in enumerate(zip(masks, (value, key), strict=True)):
        masks[n] = mask if isinstance(mask, Value) else None if tensor is None else call.walk.masks.get(tensor)
    whole = told if isinstance(told, Value) else None
    made = _all(call, [_rows(call, query), *(_columns(call, mask) for mask in masks)])
    if whole is None or whole.type.rank == 4:
        every = None if made is None else reshape(call, made, (made.shape[0], 1, *made.shape[1:]))
        return _all(call, [whole, every])
    joined = _all(call, [whole, made])
    return None if joined is None else reshape(call, joined, (*joined.shape[:-2], 1, *joined.shape[-2:]))


def _zeros_what_is_hidden(call: KerasCall) -> bool:
    """Where a query may look at nothing, shares are equal, except in Keras's own softmax since 3.10."""
    own = call.number("dropout", 0.0) > 0 or bool(call.kwargs.get("return_attention_scores"))
    if own and call.walk.version < (3, 10):
        call.walk.masking.differs("a query that may look at nothing looks at all")
    return own and call.walk.version >= (3, 10)


def _mask_of_scores(call: KerasCall, scores: Value, causal: bool, window: int | None, mask: Value) -> Value:
    if not causal and window is None:
        return mask
    return call.emit(LogicalAnd(), mask, _seen(call, scores.shape[-2], scores.shape[-1], causal, window))


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
    masks = told if isinstance(told, list) else [call.walk.masks.get(v) for v in (query, value)]
    own, seen = [*masks, None, None][:2]
    if query.type.rank != 3 or key.type.rank != 3:
        raise Fault("shape-mismatch", f"it takes [batch, time, features], got {list(query.shape)} and {list(key.shape)}")
    additive = call.layer.kind == "AdditiveAttention"
    if not additive and call.option("score_mode", "dot") == "dot":
        scores = call.emit(MatMul(transpose_b=True), query, key)
        if call.flag("use_scale"):
            scores = call.emit(Mul(), scores, call.weight("scale"))
    else:
        scores = _added(call, query, key, additive)
    scores = _hidden(call, scores, bool(call.kwargs.get("use_causal_mask")), None, _all(call, [_columns(call, seen)]))
    shares = call.emit(Softmax(2), scores)
    y = call.emit(MatMul(), shares, value)
    if own is not None:  # queries that do not count have no result
        y = call.emit(Where(), _all(call, [_rows(call, own)]), y, call.like(0, y))
        if call.walk.masking.lists_have_masks:
            call.walk.masks[y] = own
        else:
            call.walk.masking.differs("what is made of several tensors has no mask")
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
