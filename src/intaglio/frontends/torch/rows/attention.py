"""Attention: products, a mask, softmax."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import cast, part, reshape, transpose
from intaglio.frontends.onnx.faults import unsupported
from intaglio.frontends.torch.call import Answer, TorchCall, row
from intaglio.frontends.torch.rows.reduction import zeros_if_hidden
from intaglio.ir.graph import Value
from intaglio.ir.sizes import moves
from intaglio.ir.types import DType
from intaglio.ops.activation import Gelu, Relu
from intaglio.ops.binary import Add, LessEqual, Mul, Where
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.norm import LayerNorm
from intaglio.ops.reduce import Reduce, Softmax
from intaglio.ops.sizes import Iota
from intaglio.ops.unary import LogicalNot


def attention(
    call: TorchCall, q: Value, k: Value, v: Value, mask: Value | None, scale: float, *, safe: bool = False
) -> tuple[Value, Value]:  # fmt: skip
    """softmax(q k^T * scale + mask) v, and the weights. `safe`: a row of which the mask hides all is zeros, not NaN."""
    scaled = call.emit(Mul(), q, call.like(scale, q)) if scale != 1 else q
    scores = call.emit(MatMul(transpose_b=True), scaled, k)
    if mask is not None:
        if mask.dtype is DType.BOOL:
            mask = call.emit(Where(), mask, call.like(0, q), call.like(-math.inf, q))
        mask = cast(call, mask, q.dtype)
        scores = call.emit(Add(), scores, mask)
    weights = call.emit(Softmax(len(scores.shape) - 1), scores)
    if safe and mask is not None and (mask.data is None or np.isneginf(mask.data).all(axis=-1).any()):
        weights = zeros_if_hidden(call, weights, mask, len(mask.shape) - 1)
    return call.emit(MatMul(), weights, v), weights


@row("scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math",
     "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention",
     "_scaled_dot_product_fused_attention_overrideable")  # fmt: skip
def sdpa(call: TorchCall) -> Answer:
    q, k, v = call.tensor("query"), call.tensor("key"), call.tensor("value")
    if call.real("dropout_p", 0.0) > 0:
        raise unsupported("attention with dropout is not supported", "export with `model.eval()`")
    mask = call.maybe("attn_mask") if "attn_bias" not in call.arguments else call.maybe("attn_bias")
    if call.flag("enable_gqa") and k.shape[-3] != q.shape[-3]:
        times = q.shape[-3] // k.shape[-3]
        places = call.constant(np.repeat(np.arange(k.shape[-3]), times).astype(np.int64))
        k, v = (call.emit(Gather(len(t.shape) - 3), t, places) for t in (k, v))
    causal, rows, columns = call.flag("is_causal"), q.shape[-2], k.shape[-2]
    if causal and moves((rows, columns)):
        mask = call.emit(LessEqual(), call.emit(Iota(columns)), reshape(call, call.emit(Iota(rows)), (rows, 1)))
    elif causal:
        call.bounded(rows * columns)
        mask = call.constant(np.tril(np.ones((rows, columns), np.bool_)))
    scale = call.real("scale", 1 / math.sqrt(max(q.shape[-1], 1)))
    y, weights = attention(call, q, k, v, mask, scale, safe=not causal)
    return [y, weights] if call.op.endswith("_math") else [y, None, None, None, None, None, None, None, None]


def _heads(call: TorchCall, x: Value, heads: int) -> Value:
    n, length, size = x.shape
    return transpose(call, reshape(call, x, (n, length, heads, size // heads)), (0, 2, 1, 3))


@row("_native_multi_head_attention")
def multi_head(call: TorchCall) -> Answer:
    """The one that `nn.MultiheadAttention` calls when nothing is trained."""
    q, k, v = call.tensor("query"), call.tensor("key"), call.tensor("value")
    size, heads = call.integer("embed_dim"), call.integer("num_head")
    w, b = call.tensor("qkv_weight"), call.tensor("qkv_bias")

    def projected(x: Value, n: int) -> Value:
        y = call.emit(MatMul(transpose_b=True), x, part(call, w, 0, n * size, size), part(call, b, 0, n * size, size))
        return _heads(call, y, heads)

    mask = call.maybe("mask")
    if mask is not None:
        if mask.dtype is DType.BOOL:
            mask = call.emit(LogicalNot(), mask)  # here true means: look away
        if call.integer("mask_type", 0) == 1:
            mask = reshape(call, mask, (mask.shape[0], 1, 1, mask.shape[-1]))
    y, weights = attention(call, projected(q, 0), projected(k, 1), projected(v, 2), mask, 1 / math.sqrt(size // heads))
    y = reshape(call, transpose(call, y, (0, 2, 1, 3)), q.shape)
    y = call.emit(MatMul(transpose_b=True), y, call.tensor("proj_weight"), call.tensor("proj_bias"))
    if call.flag("need_weights", True) and call.flag("average_attn_weights", True):
        weights = call.emit(Reduce("mean", (1,), False), weights)
    return [y, weights]


@row("_transformer_encoder_layer_fwd")
def encoder_layer(call: TorchCall) -> Answer:
    x = call.tensor("src")

    def norm(y: Value, n: int) -> Value:
        weight, bias = call.tensor(f"norm_weight_{n}"), call.tensor(f"norm_bias_{n}")
        return call.emit(LayerNorm(len(y.shape) - 1, call.real("eps")), y, weight, bias)

    def attend(y: Value) -> Value:
        names = ("embed_dim", "qkv_weight", "qkv_bias", "proj_weight", "proj_bias", "mask", "mask_type")
        given = {name: call.get(name) for name in names if call.get(name) is not None}
        answer = call.again("_native_multi_head_attention", query=y, key=y, value=y, num_head=call.integer("num_heads"), **given)
        made = answer[0]
        assert isinstance(made, Value)
        return made

    def feed(y: Value) -> Value:
        inner = call.emit(MatMul(transpose_b=True), y, call.tensor("ffn_weight_1"), call.tensor("ffn_bias_1"))
        inner = call.emit(Gelu() if call.flag("use_gelu") else Relu(), inner)
        return call.emit(MatMul(transpose_b=True), inner, call.tensor("ffn_weight_2"), call.tensor("ffn_bias_2"))

    if call.flag("norm_first"):
        x = call.emit(Add(), x, attend(norm(x, 1)))
        return call.emit(Add(), x, feed(norm(x, 2)))
    x = norm(call.emit(Add(), x, attend(x)), 1)
    return norm(call.emit(Add(), x, feed(x)), 2)
