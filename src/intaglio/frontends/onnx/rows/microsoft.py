"""Operators of ONNX Runtime's own domain, as its optimiser writes them into models."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import cast, part, reshape, rms_norm, transpose
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.convolution import conv
from intaglio.frontends.onnx.rows.elementwise import UNARY
from intaglio.frontends.onnx.rows.normalise import layer_norm
from intaglio.frontends.onnx.rows.products import gemm_by, scaled
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Clip, Gelu, HardSigmoid, LeakyRelu, Sigmoid
from intaglio.ops.binary import Add, Less, Mul, Sub
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.norm import LayerNorm
from intaglio.ops.reduce import Reduce, Softmax

MS = "com.microsoft"


def activated(call: OnnxCall, x: Value) -> Value:
    """The activation of a fused operator."""
    name = call.text("activation")
    parameters = call.floats("activation_params") or []
    match name:
        case "":
            return x
        case "LeakyRelu":
            return call.emit(LeakyRelu(parameters[0] if parameters else call.real("leaky_relu_alpha", 0.01)), x)
        case "Clip":
            return call.emit(Clip(*parameters[:2]), x)
        case "HardSigmoid":
            return call.emit(HardSigmoid(*parameters[:2]), x)
        case _ if name in UNARY:
            return call.emit(UNARY[name], x)
        case _:
            raise unsupported(f"`{call.op}` with the activation `{name}` is not supported")


@importer("FusedConv", domain=MS)
def fused_conv(call: OnnxCall) -> Answer:
    y = conv(call, call.value(0), call.value(1), call.maybe(2))
    if call.has(3):
        y = call.emit(Add(), y, call.value(3))
    return activated(call, y)


@importer("FusedGemm", domain=MS)
def fused_gemm(call: OnnxCall) -> Answer:
    return activated(call, gemm_by(call, call.value(0), call.value(1), call.maybe(2)))


@importer("FusedMatMul", "TransposeMatMul", domain=MS)
def fused_matmul(call: OnnxCall) -> Answer:
    if call.integer("transBatchA") or call.integer("transBatchB"):
        raise unsupported("`FusedMatMul` with transposed batch axes is not supported")
    op = MatMul(bool(call.integer("transA")), bool(call.integer("transB")))
    return scaled(call, call.emit(op, call.value(0), call.value(1)), call.real("alpha", 1.0))


@importer("Gelu", domain=MS)
def gelu(call: OnnxCall) -> Answer:
    return call.emit(Gelu(), call.value(0))


@importer("BiasGelu", domain=MS)
def bias_gelu(call: OnnxCall) -> Answer:
    return call.emit(Gelu(), call.emit(Add(), call.value(0), call.value(1)))


@importer("FastGelu", domain=MS)
def fast_gelu(call: OnnxCall) -> Answer:
    x, bias = call.value(0), call.maybe(1)
    return call.emit(Gelu(True), x if bias is None else call.emit(Add(), x, bias))


@importer("QuickGelu", domain=MS)
def quick_gelu(call: OnnxCall) -> Answer:
    x = call.value(0)
    return call.emit(Mul(), x, call.emit(Sigmoid(), scaled(call, x, call.real("alpha", 1.702))))


importer("LayerNormalization", domain=MS)(layer_norm)


@importer("SimplifiedLayerNormalization", domain=MS)
@importer("SimplifiedLayerNormalization")
def simplified_layer_norm(call: OnnxCall) -> Answer:
    x = call.value(0)
    return rms_norm(call, x, call.maybe(1), call.axis(len(x.shape), -1), call.real("epsilon", 1e-5))


@importer("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MS)
def skip_layer_norm(call: OnnxCall) -> Answer:
    total = call.emit(Add(), call.value(0), call.value(1))
    simple = call.op == "SkipSimplifiedLayerNormalization"
    bias = call.maybe(3 if simple else 4)
    if bias is not None:
        total = call.emit(Add(), total, bias)
    epsilon = call.real("epsilon", 1e-12)
    if simple:
        y = rms_norm(call, total, call.value(2), len(total.shape) - 1, epsilon)
    else:
        y = call.emit(LayerNorm(-1, epsilon), total, call.value(2), call.maybe(3))
    return y if call.outputs < 2 else [y, None, None, total]


@importer("EmbedLayerNormalization", domain=MS)
def embed_layer_norm(call: OnnxCall) -> Answer:
    ids, segments = call.value(0), call.maybe(1)
    words, positions, kinds = call.value(2), call.value(3), call.maybe(4)
    total = call.emit(Gather(0), words, ids)
    if call.has(8):
        total = call.emit(Add(), total, call.emit(Gather(0), positions, call.value(8)))
    else:
        total = call.emit(Add(), total, part(call, positions, 0, 0, ids.shape[1]))
    if segments is not None and kinds is not None:
        total = call.emit(Add(), total, call.emit(Gather(0), kinds, segments))
    y = call.emit(LayerNorm(-1, call.real("epsilon", 1e-12)), total, call.value(5), call.value(6))
    if call.outputs < 2:
        return y
    if call.has(7):
        counted = cast(call, call.emit(Reduce("sum", (1,), False), call.value(7)), DType.I32)
    else:
        counted = call.constant(np.zeros(ids.shape[0], np.int32))
    return [y, counted, total]


@importer("Attention", domain=MS)
def attention(call: OnnxCall) -> Answer:
    """Self-attention over one packed projection: x W + b -> q, k, v per head."""
    x, w, b = call.value(0), call.value(1), call.maybe(2)
    if call.has(4) or call.has(5) or call.outputs > 1 or call.integer("do_rotary"):
        raise unsupported("`Attention` with a past, a bias or rotary embedding is not supported")
    heads = call.integer("num_heads")
    batch, length, _ = x.shape
    sizes = call.ints("qkv_hidden_sizes") or [w.shape[1] // 3] * 3
    if heads < 1 or any(s % heads for s in sizes):
        raise Fault("bad-attribute", f"`Attention` with {heads} heads over {sizes} is not valid")
    packed = call.emit(MatMul(), x, w, b)
    parts, start = [], 0
    for size in sizes:
        piece = reshape(call, part(call, packed, 2, start, size), (batch, length, heads, size // heads))
        parts.append(transpose(call, piece, (0, 2, 1, 3)))
        start += size
    q, k, v = parts
    scale = call.real("scale", 0.0) or 1 / math.sqrt(sizes[0] // heads)
    scores = scaled(call, call.emit(MatMul(False, True), q, k), scale)
    lowest = call.real("mask_filter_value", -10000.0)
    mask = call.maybe(3)
    if mask is not None:
        scores = call.emit(Add(), scores, _mask(call, mask, batch, length, lowest, scores))
    if call.integer("unidirectional"):
        triangle = np.triu(np.full((length, length), np.finfo(np.float32).min, np.float32), 1)
        scores = call.emit(Add(), scores, cast(call, call.constant(triangle), scores.dtype))
    y = call.emit(MatMul(), call.emit(Softmax(-1), scores), v)
    return reshape(call, transpose(call, y, (0, 2, 1, 3)), (batch, length, sizes[2]))


def _mask(call: OnnxCall, mask: Value, batch: int, length: int, lowest: float, scores: Value) -> Value:
    """Positions to look at (1) or not (0), as something to add to the scores."""
    if mask.shape == (batch,):  # lengths
        steps = call.constant(np.arange(length, dtype=np.int32).reshape(1, length))
        seen = cast(call, call.emit(Less(), steps, reshape(call, mask, (batch, 1))), scores.dtype)
    elif mask.shape in ((batch, length), (batch, length, length)):
        seen = cast(call, mask, scores.dtype)
    else:
        raise unsupported(f"`Attention` with a mask of {list(mask.shape)} is not supported")
    seen = reshape(call, seen, (batch, 1, *([1] if len(seen.shape) == 2 else []), *seen.shape[1:]))
    return scaled(call, call.emit(Sub(), call.like(1, scores), seen), lowest)
