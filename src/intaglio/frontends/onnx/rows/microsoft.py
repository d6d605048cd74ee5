"""Operators of ONNX Runtime's own domain, as its optimiser writes them into models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.frontends.building import cast, matmul, part, rms_norm, transpose, unsqueeze
from intaglio.frontends.onnx.call import TABLE, Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import unsupported
from intaglio.frontends.onnx.rows.convolution import conv
from intaglio.frontends.onnx.rows.elementwise import UNARY
from intaglio.frontends.onnx.rows.normalise import layer_norm
from intaglio.frontends.onnx.rows.products import gemm_by, scaled
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Clip, Gelu, HardSigmoid, LeakyRelu, Sigmoid
from intaglio.ops.binary import Add, Mul, Sub
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.norm import LayerNorm
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Sqrt

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


@importer("FusedMatMul", "TransposeMatMul", "SparseToDenseMatMul", domain=MS)
def fused_matmul(call: OnnxCall) -> Answer:
    operands = [call.value(0), call.value(1)]
    for n, side in enumerate("AB"):
        rank = len(operands[n].shape)
        if call.integer(f"transBatch{side}") and rank > 2:  # the first axis is the second last
            operands[n] = transpose(call, operands[n], (*range(1, rank - 1), 0, rank - 1))
    op = MatMul(bool(call.integer("transA")), bool(call.integer("transB")))
    return scaled(call, call.emit(op, *operands), call.real("alpha", 1.0))


@importer("NhwcConv", "NhwcFusedConv", domain=MS)
def nhwc_conv(call: OnnxCall) -> Answer:
    """Pictures with their channels last."""
    x, rank = call.value(0), len(call.value(0).shape)
    y = conv(call, transpose(call, x, (0, rank - 1, *range(1, rank - 1))), call.value(1), call.maybe(2))
    y = transpose(call, y, (0, *range(2, rank), 1))
    if call.has(3):
        y = call.emit(Add(), y, call.value(3))
    return activated(call, y)


@importer("NhwcMaxPool", domain=MS)
def nhwc_max_pool(call: OnnxCall) -> Answer:
    x, rank = call.value(0), len(call.value(0).shape)
    inner = replace(call, op="MaxPool", domain="", version=12, outputs=1)
    inner.inputs = [transpose(call, x, (0, rank - 1, *range(1, rank - 1)))]
    answer = TABLE["", "MaxPool"](inner)
    y = answer[0] if isinstance(answer, (list, tuple)) else answer
    assert isinstance(y, Value)
    return transpose(call, y, (0, *range(2, rank), 1))


SAME = {"GridSample": 16, "GatherND": 13, "Trilu": 14, "Range": 11, "Pad": 13, "Unique": 11, "QuantizeLinear": 21,
        "DequantizeLinear": 21}  # fmt: skip


@importer(*SAME, domain=MS)
def same_as_standard(call: OnnxCall) -> Answer:
    """Operators that ONNX took over later: the same, with the opset that has them."""
    return TABLE["", call.op](replace(call, domain="", version=SAME[call.op]))


@importer("SampleOp", domain=MS)
def same(call: OnnxCall) -> Answer:
    return call.value(0)


@importer("TorchEmbedding", domain=MS)
def torch_embedding(call: OnnxCall) -> Answer:
    return call.emit(Gather(0), call.value(0), call.value(1))


@importer("ExpandDims", domain=MS)
def expand_dims(call: OnnxCall) -> Answer:
    x, axis = call.value(0), int(call.numbers(1, "axis").reshape(-1)[0])
    return unsqueeze(call, x, call.checked_axis(axis, len(x.shape) + 1))


@importer("CDist", domain=MS)
def cdist(call: OnnxCall) -> Answer:
    """Distances between the rows of two matrices."""
    a, b, metric = call.value(0), call.value(1), call.text("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise unsupported(f"`CDist` with the metric `{metric}` is not supported", "there are euclidean and sqeuclidean")
    apart = call.emit(Sub(), unsqueeze(call, a, 1), unsqueeze(call, b, 0))
    squares = call.emit(Reduce("sum", (2,), False), call.emit(Mul(), apart, apart))
    return squares if metric == "sqeuclidean" else call.emit(Sqrt(), squares)


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


@importer("GemmFastGelu", domain=MS)
def gemm_fast_gelu(call: OnnxCall) -> Answer:
    x, bias = matmul(call, call.value(0), call.value(1)), call.maybe(2)
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
    return y if call.outputs < 2 else [y, counted(call, ids, 7), total]


def counted(call: OnnxCall, ids: Value, mask: int) -> Value:
    """How many words of each row count."""
    if call.has(mask):
        return cast(call, call.emit(Reduce("sum", (1,), False), call.value(mask)), DType.I32)
    return call.constant(np.zeros(ids.shape[0], np.int32))
