"""Small networks of the kinds that the shared models are: for machines that do not have those, and quick to compile.

TFLite files of int8 layers (depthwise-separable, residual, dense), and an ONNX model with QuantizeLinear and DequantizeLinear.
Weights are random; scales keep values spread over the range of int8, so that a wrong result shows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from intaglio.ir.graph import Array
from support.onnx_models import model, node, saved, value
from support.tflite_models import ModelWriter, Tensor

SAME, RELU = 0, 1  # Padding and ActivationFunctionType of the schema


class Layers:
    """An int8 network, layer after layer; `at` is the tensor of the last one."""

    def __init__(self, shape: tuple[int, ...], seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.writer = ModelWriter()
        self.writer.subgraph()
        self.shapes: dict[int, tuple[int, ...]] = {}
        self.scales: dict[int, float] = {}
        self.at = self.tensor(shape, 0.05)
        self.writer.graph.inputs = [self.at]

    def tensor(self, shape: tuple[int, ...], scale: float, zero: int = -3) -> int:
        place = self.writer.tensor(Tensor(shape, "int8", scale, zero), f"t{len(self.writer.graph.tensors)}")
        self.shapes[place], self.scales[place] = shape, scale
        return place

    def weights(self, shape: tuple[int, ...], count: int, axis: int) -> list[int]:
        """Weights with a scale per channel of `axis`, and a bias, as places in the file."""
        scales = np.linspace(0.004, 0.012, count)
        data = self.rng.integers(-127, 128, shape).astype(np.int8)
        bias = self.rng.integers(-900, 900, count).astype(np.int32)
        products = [float(self.scales[self.at] * s) for s in scales]
        made = Tensor(shape, "int8", [float(s) for s in scales], 0, data, axis)
        return [
            self.writer.tensor(made, f"w{self.at}"),
            self.writer.tensor(Tensor((count,), "int32", products, 0, bias), f"b{self.at}"),
        ]

    def finished(self, kind: str, inputs: list[int], shape: tuple[int, ...], options: str, fields: dict[str, object]) -> None:
        out = self.tensor(shape, 0.05)
        self.writer.operator(kind, inputs, [out], options, fields, 3)
        self.at = out

    def conv(self, channels: int, kernel: tuple[int, int], stride: int = 1, activation: int = RELU) -> None:
        n, h, w, depth = self.shapes[self.at]
        given = [self.at, *self.weights((channels, *kernel, depth), channels, 0)]
        shape = (n, -(-h // stride), -(-w // stride), channels)
        fields: dict[str, object] = {"padding": SAME, "strideW": stride, "strideH": stride, "fusedActivationFunction": activation}
        self.finished("CONV_2D", given, shape, "Conv2DOptions", {**fields, "dilationWFactor": 1, "dilationHFactor": 1})

    def depthwise(self, stride: int = 1) -> None:
        n, h, w, depth = self.shapes[self.at]
        given = [self.at, *self.weights((1, 3, 3, depth), depth, 3)]
        fields: dict[str, object] = {"padding": SAME, "strideW": stride, "strideH": stride, "depthMultiplier": 1}
        fields |= {"fusedActivationFunction": RELU, "dilationWFactor": 1, "dilationHFactor": 1}
        self.finished("DEPTHWISE_CONV_2D", given, (n, -(-h // stride), -(-w // stride), depth), "DepthwiseConv2DOptions", fields)

    def add(self, other: int) -> None:
        self.finished("ADD", [other, self.at], self.shapes[self.at], "AddOptions", {"fusedActivationFunction": RELU})

    def mean(self) -> None:
        """The average of the whole image, by a pool as large as it, and its channels as a row."""
        n, h, w, depth = self.shapes[self.at]
        fields: dict[str, object] = {"padding": 1, "strideW": 1, "strideH": 1, "filterWidth": w, "filterHeight": h}
        out = self.tensor((n, 1, 1, depth), 0.05)
        self.writer.operator("AVERAGE_POOL_2D", [self.at], [out], "Pool2DOptions", fields)
        shape = self.writer.tensor(Tensor((2,), "int32", data=np.array([n, depth], np.int32)), "shape")
        self.at = self.tensor((n, depth), 0.05)
        self.writer.operator("RESHAPE", [out, shape], [self.at], "ReshapeOptions", {"newShape": [n, depth]}, 1)

    def dense(self, count: int, activation: int = 0) -> None:
        """With one scale for all weights, as TFLite had it for years."""
        n, depth = self.shapes[self.at]
        data = self.rng.integers(-127, 128, (count, depth)).astype(np.int8)
        bias = self.rng.integers(-900, 900, count).astype(np.int32)
        w = self.writer.tensor(Tensor((count, depth), "int8", 0.006, 0, data), f"w{self.at}")
        b = self.writer.tensor(Tensor((count,), "int32", self.scales[self.at] * 0.006, 0, bias), f"b{self.at}")
        fields: dict[str, object] = {"fusedActivationFunction": activation}
        self.finished("FULLY_CONNECTED", [self.at, w, b], (n, count), "FullyConnectedOptions", fields)

    def softmax(self) -> None:
        out = self.tensor(self.shapes[self.at], 1 / 256, -128)
        self.writer.operator("SOFTMAX", [self.at], [out], "SoftmaxOptions", {"beta": 1.0})
        self.at = out

    def file(self) -> bytes:
        self.writer.graph.outputs = [self.at]
        return self.writer.finish()


def keywords() -> bytes:
    """Depthwise-separable, as networks for keywords and for persons are: MLPerf Tiny's KWS and VWW."""
    net = Layers((1, 13, 10, 1), 1)
    net.conv(8, (5, 4), 2)
    for stride in (1, 2):
        net.depthwise(stride)
        net.conv(12, (1, 1))
    net.mean()
    net.dense(6)
    net.softmax()
    return net.file()


def images() -> bytes:
    """Residual blocks, one with a projection, as MLPerf Tiny's IC has them."""
    net = Layers((1, 10, 10, 3), 2)
    net.conv(8, (3, 3))
    before = net.at
    net.conv(8, (3, 3))
    net.conv(8, (3, 3), activation=0)
    net.add(before)
    before = net.at
    net.conv(12, (3, 3), 2)
    net.conv(12, (3, 3), activation=0)
    inner, net.at = net.at, before
    net.conv(12, (1, 1), 2, activation=0)
    net.add(inner)
    net.mean()
    net.dense(10)
    net.softmax()
    return net.file()


def anomalies() -> bytes:
    """Dense layers down to a few numbers and up again, as MLPerf Tiny's AD."""
    net = Layers((1, 40), 3)
    for count in (24, 24, 5, 24):
        net.dense(count, RELU)
    net.dense(40)
    return net.file()


def sine() -> bytes:
    """Three dense layers from one number to another: the smallest file that has it all, to be damaged."""
    net = Layers((1, 1), 4)
    net.dense(16, RELU)
    net.dense(16, RELU)
    net.dense(1)
    return net.file()


TFLITE: dict[str, Callable[[], bytes]] = {f.__name__: f for f in (keywords, images, anomalies, sine)}


def quantised_onnx(folder: Path) -> Path:
    """A convolution, a depthwise one, a sum and a dense layer between QuantizeLinear and DequantizeLinear."""
    rng = np.random.default_rng(5)
    constants: dict[str, Array] = {"step": np.array(0.04, np.float32), "zero": np.array(3, np.int8)}
    nodes = []

    def through(name: str) -> str:
        """`name` as int8 and back."""
        nodes.append(node("QuantizeLinear", f"{name} step zero", f"{name}_q"))
        nodes.append(node("DequantizeLinear", f"{name}_q step zero", f"{name}_d"))
        return f"{name}_d"

    def weights(name: str, *shape: int) -> str:
        constants[f"{name}_i"] = rng.integers(-127, 128, shape).astype(np.int8)
        constants[f"{name}_s"] = np.linspace(0.003, 0.006, shape[0], dtype=np.float32)
        constants[f"{name}_z"] = np.zeros(shape[0], np.int8)
        nodes.append(node("DequantizeLinear", f"{name}_i {name}_s {name}_z", name, axis=0))
        return name

    x = through("x")
    nodes.append(node("Conv", f"{x} {weights('a', 8, 3, 3, 3)}", "a1", pads=[1, 1, 1, 1], strides=[2, 2]))
    nodes.append(node("Relu", "a1", "a2"))
    a = through("a2")
    nodes.append(node("Conv", f"{a} {weights('b', 8, 1, 3, 3)}", "b1", pads=[1, 1, 1, 1], group=8))
    b = through("b1")
    nodes.append(node("Add", f"{a} {b}", "s1"))
    s = through("s1")
    nodes.append(node("GlobalAveragePool", s, "g1"))
    g = through("g1")
    nodes.append(node("Flatten", g, "f1"))
    nodes.append(node("Gemm", f"f1 {weights('d', 5, 8)}", "d1", transB=1))
    nodes.append(node("Identity", through("d1"), "y"))
    proto = model(nodes, [value("x", [1, 3, 8, 8])], [value("y", [1, 5])], constants)
    return saved(proto, folder, "quantised.onnx")
