"""References and front end together, operator by operator, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, ValueInfoProto

from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph
from intaglio.ops.numeric import numeric
from support.onnx_models import ints, model, node, saved, value

SMOOTH = """
Abs Relu Sigmoid Tanh Exp Neg Floor Ceil Round Sign Sin Cos Tan Atan Sinh Cosh Asinh Erf Softplus Softsign Mish
HardSwish HardSigmoid LeakyRelu Elu Selu Celu ThresholdedRelu Gelu Shrink Identity
"""
UNARY = SMOOTH.split()
BINARY = ["Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "PRelu"]
COMPARE = ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"]
REDUCE = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp"]
F = np.float32
IMAGE = (1, 4, 9, 7)


def one(op: str, shapes: list[tuple[int, ...]], opset: int = 21, outputs: int = 1, **attributes: Any) -> Any:
    names = "abcdefg"[: len(shapes)]
    outs = "uvw"[:outputs]
    step = node(op, " ".join(names), " ".join(outs), **attributes)
    inputs = [value(n, s) for n, s in zip(names, shapes, strict=True)]
    return model([step], inputs, [ValueInfoProto(name=o) for o in outs], opset=opset)


def with_constants(op: str, shape: tuple[int, ...], opset: int = 21, **parts: Any) -> Any:
    """Constants are given as `k1=array`, `k2=array`; everything else is an attribute."""
    constants = {n: np.asarray(parts.pop(n)) for n in sorted(parts) if n in ("k1", "k2", "k3", "k4", "k5", "k6", "k7")}
    names = " ".join(n if a.size else "_" for n, a in constants.items())
    kept = {n: a for n, a in constants.items() if a.size}
    outs = parts.pop("outputs", 1)
    step = node(op, f"a {names}", " ".join("uvw"[:outs]), **parts)
    made = [ValueInfoProto(name=o) for o in "uvw"[:outs]]
    return model([step], [value("a", shape)], made, kept, opset=opset)


NONE = np.zeros(0, F)
W = np.random.default_rng(5).standard_normal((6, 4, 3, 3)).astype(F)
LSTM: dict[str, Any] = {
    "k1": np.random.default_rng(1).standard_normal((2, 12, 4)).astype(F),
    "k2": np.random.default_rng(2).standard_normal((2, 12, 3)).astype(F),
    "k3": np.random.default_rng(3).standard_normal((2, 24)).astype(F),
}
CASES: dict[str, Any] = {
    **{op: one(op, [(2, 3, 5)], 22 if op in ("HardSwish", "Mish") else 21) for op in UNARY},
    **{op: one(op, [(2, 3, 5), (3, 1)]) for op in BINARY},
    **{op: one(op, [(2, 3), (2, 3)]) for op in COMPARE},
    **{f"Reduce{k}": one(f"Reduce{k}", [(2, 3, 4)], 17, keepdims=0) for k in REDUCE},
    "conv": with_constants("Conv", IMAGE, k1=W, pads=[1, 0, 2, 1], strides=[2, 1]),
    "conv dilated": with_constants("Conv", IMAGE, k1=W, dilations=[2, 2], pads=[2, 1, 2, 3]),
    "conv grouped": with_constants("Conv", IMAGE, k1=W[:, :2], group=2, k2=W[:, 0, 0, 0]),
    "conv depthwise": with_constants("Conv", IMAGE, k1=W[:4, :1], group=4, auto_pad="SAME_UPPER", strides=[2, 2]),
    "conv 1d": with_constants("Conv", (2, 4, 11), k1=W[:, :, 0]),
    "conv transposed": with_constants("ConvTranspose", IMAGE, k1=W[:4], strides=[2, 3], pads=[1, 1, 0, 1]),
    "conv transposed to a shape": with_constants(
        "ConvTranspose", IMAGE, k1=W[:4], strides=[2, 2], output_shape=[18, 15]
    ),
    "max pool": one("MaxPool", [IMAGE], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "max pool with indices": one("MaxPool", [IMAGE], outputs=2, kernel_shape=[3, 2], pads=[1, 0, 1, 1]),
    "average pool": one("AveragePool", [IMAGE], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
    "average pool with pads": one(
        "AveragePool", [IMAGE], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], count_include_pad=1, ceil_mode=1
    ),
    "lp pool": one("LpPool", [IMAGE], kernel_shape=[2, 2], p=3),
    "global average pool": one("GlobalAveragePool", [IMAGE]),
    "matmul": one("MatMul", [(2, 3, 4), (4, 5)]),
    "matmul of vectors": one("MatMul", [(4,), (2, 4, 3)]),
    "gemm": one("Gemm", [(4, 3), (5, 4), (5,)], transA=1, transB=1, alpha=0.5, beta=2.0),
    "einsum": one("Einsum", [(2, 3, 4), (2, 4, 5)], equation="bij,bjk->bik"),
    "einsum transposed": one("Einsum", [(2, 3, 4, 5), (2, 6, 4, 5)], equation="bqhd,bkhd->bhqk"),
    "einsum diagonal": one("Einsum", [(3, 3)], equation="ii->i"),
    "softmax of opset 11": one("Softmax", [(2, 3, 4)], 11, axis=1),
    "softmax": one("Softmax", [(2, 3, 4)], axis=1),
    "log softmax": one("LogSoftmax", [(2, 3, 4)], axis=-2),
    "layer norm": one("LayerNormalization", [(2, 3, 4), (3, 4), (3, 4)], axis=1),
    "instance norm": one("InstanceNormalization", [IMAGE, (4,), (4,)]),
    "group norm": one("GroupNormalization", [IMAGE, (4,), (4,)], num_groups=2),
    "lrn": one("LRN", [IMAGE], size=3, alpha=0.1),
    "lstm": with_constants("LSTM", (5, 2, 4), **LSTM, hidden_size=3, direction="bidirectional", outputs=3),
    "gru": with_constants(
        "GRU", (5, 2, 4), k1=LSTM["k1"][:1, :9], k2=LSTM["k2"][:1, :9], k3=LSTM["k3"][:1, :18], hidden_size=3,
        direction="reverse", outputs=2, linear_before_reset=1,
    ),
    "rnn": with_constants("RNN", (5, 2, 4), k1=LSTM["k1"][:1, :3], k2=LSTM["k2"][:1, :3], hidden_size=3, outputs=2),
    "transpose": one("Transpose", [(2, 3, 4)], perm=[2, 0, 1]),
    "slice backwards": with_constants("Slice", (6, 5), k1=ints(4, 3), k2=ints(-7, 0), k3=ints(0, 1), k4=ints(-2, -1)),
    "pad reflected": with_constants("Pad", (2, 5), k1=ints(0, 2, 1, 3), mode="reflect"),
    "pad at the edge, and cut": with_constants("Pad", (4, 5), k1=ints(-1, 2, 1, -1), mode="edge"),
    "tile": with_constants("Tile", (2, 3), k1=ints(2, 3)),
    "gather": with_constants("Gather", (3, 4), k1=np.array([[0, -1], [2, 1]]), axis=1),
    "gather elements": with_constants("GatherElements", (3, 4), k1=np.array([[0, 2, 1]]), axis=1),
    "gather nd": with_constants("GatherND", (2, 3, 4), k1=np.array([[0, 1], [1, 2]])),
    "scatter nd": with_constants("ScatterND", (4, 2), k1=np.array([[1], [3]]), k2=np.ones((2, 2), F), reduction="add"),
    "scatter elements": with_constants(
        "ScatterElements", (3, 3), k1=np.array([[0, 2, 0]]), k2=np.full((1, 3), 9, F), reduction="max"
    ),
    "resize nearest": with_constants("Resize", IMAGE, k1=NONE, k2=np.array([1, 1, 2, 1.5], F)),
    "resize linear": with_constants("Resize", IMAGE, k1=NONE, k2=NONE, k3=ints(1, 4, 5, 14), mode="linear"),
    "resize cubic": with_constants(
        "Resize", IMAGE, k1=NONE, k2=np.array([1, 1, 2, 3], F), mode="cubic",
        coordinate_transformation_mode="align_corners",
    ),
    "resize of opset 10": with_constants("Resize", IMAGE, 10, k1=np.array([1, 1, 2, 2], F), mode="linear"),
    "upsample": with_constants("Upsample", IMAGE, 9, k1=np.array([1, 1, 2, 3], F)),
    "top k": with_constants("TopK", (3, 6), k1=ints(3), axis=1, outputs=2),
    "arg max": one("ArgMax", [(3, 6)], axis=1, keepdims=0),
    "cumsum": with_constants("CumSum", (3, 6), k1=np.array(1), exclusive=1, reverse=1),
    "trilu": one("Trilu", [(4, 5)], upper=0),
    "depth to space": one("DepthToSpace", [IMAGE], blocksize=2, mode="CRD"),
    "grid sample": one("GridSample", [(1, 2, 5, 6), (1, 3, 4, 2)], 20, padding_mode="reflection"),
    "stft": with_constants("STFT", (1, 64, 1), k1=np.array(8), k2=np.hanning(16).astype(F)),
    "quantize": with_constants("QuantizeLinear", (3, 5), k1=np.array(0.02, F), k2=np.array(3, np.int8)),
    "cast to integer": one("Cast", [(3, 5)], to=TensorProto.INT8),
    "clip": with_constants("Clip", (3, 5), k1=np.array(-0.5, F), k2=np.array(0.25, F)),
    "batch norm": with_constants(
        "BatchNormalization", IMAGE, k1=np.ones(4, F), k2=np.arange(4, dtype=F), k3=np.zeros(4, F), k4=np.full(4, 2, F)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_reference_agrees_with_onnx_runtime(name: str, tmp_path: Path) -> None:
    path = saved(CASES[name], tmp_path)
    graph, _ = load(path)
    rng = np.random.default_rng(len(name))
    arrays: list[Array] = [rng.standard_normal(v.shape).astype(F) for v in graph.inputs]
    if name == "Pow":
        arrays[0] = np.abs(arrays[0]) + F(0.1)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {v.origin: a for v, a in zip(graph.inputs, arrays, strict=True)})
    results = evaluate_graph(graph, {v.name: a for v, a in zip(graph.inputs, arrays, strict=True)})
    for output, reference in zip(graph.outputs, expected, strict=True):
        result = results[output.name]
        assert (result.shape, result.dtype) == (reference.shape, reference.dtype)
        np.testing.assert_allclose(numeric(result), reference, rtol=1e-4, atol=1e-5)
