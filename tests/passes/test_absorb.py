"""Quantised ONNX models: operators between Dequantize and Quantize become integer operators, and give what ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array, Graph
from intaglio.ir.verify import verify
from intaglio.ops.evaluate import evaluate_graph
from intaglio.passes.absorb import absorbed as integers_of
from support.onnx_models import model, node, saved, value

ort = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(7)


class Net:
    """A quantised model, written down operator by operator."""

    def __init__(self, shape: list[int], dtype: type = np.int8) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}
        self.inputs = [value("x", shape)]
        self.dtype = dtype
        self.count = 0
        self.opset = 21

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def const(self, data: Array | float | np.generic) -> str:
        name = self.name("c")
        self.constants[name] = np.asarray(data)
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        out = self.name(kind.lower())
        self.nodes.append(node(kind, " ".join(inputs), out, **attributes))
        return out

    def grid(self, x: str, scale: float, zero: int) -> str:
        """quantize, dequantize."""
        s, z = self.const(np.float32(scale)), self.const(np.asarray(zero, self.dtype))
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, s, z), s, z)

    def weights(self, data: Array, axis: int | None = None) -> str:
        """8-bit weights, a scale per channel if an axis is given."""
        others = tuple(i for i in range(data.ndim) if i != axis)
        scale = (np.abs(data).max(axis=others if axis is not None else None) / 127).astype(np.float32)
        shape = [-1 if i == axis else 1 for i in range(data.ndim)]
        stored = np.rint(data / (scale.reshape(shape) if axis is not None else scale)).astype(np.int8)
        zero = np.zeros(scale.shape, np.int8)
        extra = {} if axis is None else {"axis": axis}
        return self.op("DequantizeLinear", self.const(stored), self.const(scale), self.const(zero), **extra)

    def done(self, y: str) -> Any:
        self.nodes[-1].output[0] = "y"
        del y
        return model(self.nodes, self.inputs, [value("y", None)], self.constants, self.opset)


def real(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def conv(
    axis: int | None, shape: list[int], weights: tuple[int, ...], act: str = "", bias: bool = True, **more: Any
) -> Callable[[type], Any]:
    def make(dtype: type) -> Any:
        net = Net(shape, dtype)
        x = net.grid("x", 0.03, 10)
        w = net.weights(real(*weights), axis)
        b = [net.const(real(weights[0]))] if bias else []
        y = net.op("Conv", x, w, *b, **more)
        if act:
            y = net.op(act, y)
        return net.done(net.grid(y, 0.11, -4 if dtype is np.int8 else 100))

    return make


def chain(
    shape: list[int], *steps: tuple[str, dict[str, Any]], grids: tuple[float, ...] = (0.05,), opset: int = 21
) -> Callable[[type], Any]:
    """Operators on one tensor, each result on a grid."""

    def make(dtype: type) -> Any:
        net = Net(shape, dtype)
        net.opset = opset
        y = net.grid("x", 0.05, 3)
        for n, (kind, attributes) in enumerate(steps):
            more = [net.const(a) for a in attributes.get("operands", [])]
            y = net.op(kind, y, *more, **{k: v for k, v in attributes.items() if k != "operands"})
            y = net.grid(y, grids[min(n, len(grids) - 1)], 3)
        return net.done(y)

    return make


def dense(transposed: bool, kind: str) -> Callable[[type], Any]:
    def make(dtype: type) -> Any:
        net = Net([3, 20], dtype)
        x = net.grid("x", 0.03, 2)
        w = net.weights(real(6, 20) if transposed else real(20, 6), 0 if transposed else 1)
        if kind == "Gemm":
            y = net.op("Gemm", x, w, net.const(real(6)), transB=int(transposed))
        elif kind == "MatMul+Add":
            y = net.op("Add", net.op("MatMul", x, w), net.const(real(6)))
        else:
            y = net.op("MatMul", x, w)
        return net.done(net.grid(net.op("Relu", y), 0.2, 5))

    return make


def attention(dtype: type) -> Any:
    net = Net([2, 4, 8], dtype)
    x = net.grid("x", 0.03, 2)
    y = net.op("Transpose", x, perm=[0, 2, 1])
    y = net.grid(y, 0.03, 2)
    return net.done(net.grid(net.op("MatMul", x, y), 0.2, 5))


def two(kind: str) -> Callable[[type], Any]:
    def make(dtype: type) -> Any:
        net = Net([1, 4, 5, 5], dtype)
        x = net.grid("x", 0.03, 2)
        a, b = net.grid(net.op("Relu", x), 0.02, 0), net.grid(net.op("Sigmoid", x), 1 / 256, 0)
        y = net.op(kind, a, b) if kind != "Concat" else net.op("Concat", a, b, axis=1)
        return net.done(net.grid(y, 0.04, 7))

    return make


def hard_swish(dtype: type) -> Any:
    """One table, although it is written as four operators."""
    net = Net([1, 4, 5, 5], dtype)
    x = net.grid("x", 0.03, 2)
    six = net.op("Clip", net.op("Add", x, net.const(np.float32(3))), net.const(np.float32(0)), net.const(np.float32(6)))
    return net.done(net.grid(net.op("Div", net.op("Mul", x, six), net.const(np.float32(6))), 0.04, 7))


FLAT = {"operands": [np.array([1, 48])]}
pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
MODELS: dict[str, tuple[Callable[[type], Any], set[str]]] = {
    "conv": (conv(None, [1, 3, 8, 8], (5, 3, 3, 3), pads=[1, 1, 1, 1]), {"qconv"}),
    "conv per channel": (conv(0, [1, 3, 8, 8], (5, 3, 3, 3), "Relu"), {"qconv"}),
    "conv without bias": (conv(0, [1, 3, 8, 8], (5, 3, 2, 2), bias=False, strides=[2, 2]), {"qconv"}),
    "conv depthwise": (conv(0, [1, 6, 8, 8], (6, 1, 3, 3), group=6, pads=[0, 1, 1, 0]), {"qconv"}),
    "conv over one axis": (conv(0, [1, 3, 20], (5, 3, 3), "Relu", pads=[1, 1]), {"qconv"}),
    "matmul": (dense(False, "MatMul"), {"qmatmul"}),
    "matmul and bias": (dense(False, "MatMul+Add"), {"qmatmul"}),
    "gemm": (dense(False, "Gemm"), {"qmatmul"}),
    "gemm transposed": (dense(True, "Gemm"), {"qmatmul"}),
    "matmul of activations": (attention, {"qmatmul"}),
    "max pool": (chain([1, 3, 8, 8], ("MaxPool", pool)), {"max_pool"}),
    "average pool": (chain([1, 3, 8, 8], ("AveragePool", pool)), {"qreal_mean"}),
    "average pool of an older opset": (chain([1, 3, 8, 8], ("AveragePool", pool), opset=17), {"qreal_mean"}),
    "average pool of all": (chain([1, 3, 7, 7], ("AveragePool", {"kernel_shape": [7, 7]}), opset=17), {"qreal_mean"}),
    "average pool padded": (chain([1, 3, 8, 8], ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]})), {"qreal_mean"}),
    "global average": (chain([1, 3, 7, 7], ("GlobalAveragePool", {}), grids=(0.01,)), {"qreal_mean"}),
    "sigmoid": (chain([1, 40], ("Sigmoid", {}), grids=(1 / 256,)), {"lookup"}),
    "another grid": (chain([1, 40], ("Relu", {}), grids=(0.013,)), {"lookup"}),
    "moved about": (chain([1, 3, 4, 4], ("Transpose", {"perm": [0, 2, 3, 1]}), ("Reshape", FLAT)), set()),
    "padded": (chain([1, 3, 4, 4], ("Pad", {"operands": [np.array([0, 0, 1, 1, 0, 0, 1, 1])]})), {"pad"}),
    "concat": (two("Concat"), {"concat", "lookup"}),
    "hard swish": (hard_swish, {"lookup"}),
}  # fmt: skip


def absorbed(proto: Any, folder: Path) -> tuple[Graph, list[str]]:
    graph, _ = load(saved(proto, folder))
    graph, notes = integers_of(graph)
    verify(graph)
    return graph, notes


def by_onnx_runtime(proto: Any, feeds: dict[str, Array]) -> Array:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, feeds)[0])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8], ids=["i8", "u8"])
@pytest.mark.parametrize("name", MODELS)
def test_the_integers_are_those_of_onnx_runtime(name: str, dtype: type, tmp_path: Path) -> None:
    make, wanted = MODELS[name]
    proto = make(dtype)
    graph, notes = absorbed(proto, tmp_path)
    assert not notes
    names = {n.op.NAME for n in graph.nodes}
    assert wanted <= names
    assert not names & {"conv", "matmul", "average_pool", "sigmoid"}
    for seed in range(3):
        x = np.random.default_rng(seed).normal(0.3, 1.2, graph.inputs[0].shape).astype(np.float32)
        got = evaluate_graph(graph, {graph.inputs[0].name: x})[graph.outputs[0].name]
        want = by_onnx_runtime(proto, {"x": x})
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.int16, np.uint16], ids=["i16", "u16"])
@pytest.mark.parametrize("name", ["conv", "conv per channel", "conv depthwise", "matmul and bias", "gemm transposed"])
def test_16_bit_activations_too(name: str, dtype: type, tmp_path: Path) -> None:
    """Sums of 64 bits. A float has 24, so the runtime's own sum may be a step off."""
    make, wanted = MODELS[name]
    proto = make(dtype)
    graph, _ = absorbed(proto, tmp_path)
    assert wanted <= {n.op.NAME for n in graph.nodes}
    x = np.random.default_rng(0).normal(0.3, 40.0, graph.inputs[0].shape).astype(np.float32)
    got = evaluate_graph(graph, {graph.inputs[0].name: x})[graph.outputs[0].name]
    np.testing.assert_allclose(got, by_onnx_runtime(proto, {"x": x}), rtol=0, atol=0.21)


@pytest.mark.parametrize("kind", ["Add", "Mul"])
def test_what_stays_in_floating_point_is_named_and_exact(kind: str, tmp_path: Path) -> None:
    proto = two(kind)(np.int8)
    graph, notes = absorbed(proto, tmp_path)
    assert notes == [f"between quantised tensors, these are computed in floating point: `{kind.lower()}`"]
    x = real(1, 4, 5, 5)
    np.testing.assert_array_equal(evaluate_graph(graph, {"x": x})[graph.outputs[0].name], by_onnx_runtime(proto, {"x": x}))


def test_four_bits_per_channel(tmp_path: Path) -> None:
    net = Net([2, 16])
    x = net.grid("x", 0.03, 2)
    w = RNG.integers(-8, 8, (16, 6)).astype(np.int8)
    packed = helper.make_tensor("w", TensorProto.INT4, [16, 6], w.reshape(-1).tolist())
    scale = net.const(np.linspace(0.01, 0.1, 6).astype(np.float32))
    weights = net.op("DequantizeLinear", "w", scale, axis=1)
    proto = net.done(net.grid(net.op("MatMul", x, weights), 0.1, 5))
    proto.graph.initializer.append(packed)
    graph, _ = absorbed(proto, tmp_path)
    assert "qmatmul" in {n.op.NAME for n in graph.nodes}
    x_data = real(2, 16)
    np.testing.assert_allclose(
        evaluate_graph(graph, {"x": x_data})[graph.outputs[0].name], by_onnx_runtime(proto, {"x": x_data}), atol=1e-6
    )


def test_blocks_stay_as_they_are(tmp_path: Path) -> None:
    """A scale per block of rows has no integer product: weights are dequantised at compile time."""
    net = Net([2, 16])
    x = net.grid("x", 0.03, 2)
    stored = net.const(RNG.integers(-128, 128, (16, 6)).astype(np.int8))
    scale = net.const(RNG.uniform(0.01, 0.1, (4, 6)).astype(np.float32))
    weights = net.op("DequantizeLinear", stored, scale, axis=0, block_size=4)
    proto = net.done(net.grid(net.op("MatMul", x, weights), 0.1, 5))
    graph, notes = absorbed(proto, tmp_path)
    assert "`matmul`" in notes[0]
    x_data = real(2, 16)
    got = evaluate_graph(graph, {"x": x_data})[graph.outputs[0].name]
    np.testing.assert_allclose(got, by_onnx_runtime(proto, {"x": x_data}), atol=0.1 + 1e-6)


def test_a_tensor_that_is_an_output_too_stays(tmp_path: Path) -> None:
    net = Net([1, 8])
    x = net.grid("x", 0.05, 3)
    y = net.op("Relu", x)
    net.grid(y, 0.04, 0)
    proto = model(net.nodes, net.inputs, [value(net.nodes[-1].output[0], None), value(y, None)], net.constants)
    graph, _ = absorbed(proto, tmp_path)
    data = real(1, 8)
    out = evaluate_graph(graph, {"x": data})
    assert out[graph.outputs[1].name].dtype == np.float32
