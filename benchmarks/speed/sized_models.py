"""ONNX models with a dimension `T`, for `benchmarks/sizes.py`: small transformers, and single layers of every kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT = TensorProto.FLOAT


class Net:
    """A model, node after node; `at` is the last value."""

    def __init__(self, shape: list[int | str], seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.input = helper.make_tensor_value_info("x", FLOAT, shape)
        self.at = "x"

    def drawn(self, *shape: int, scale: float = 0.2) -> str:
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        names = [f"v{len(self.nodes)}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        self.at = names[0]
        return self.at

    def file(self) -> bytes:
        out = helper.make_tensor_value_info(self.at, FLOAT, None)
        graph = helper.make_graph(self.nodes, "net", [self.input], [out], self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        return bytes(made.SerializeToString())


@dataclass(frozen=True)
class Sized:
    make: Callable[[], bytes]
    most: int
    least: int = 1
    exact: bool = False  # without Winograd's convolution


def _dense(net: Net, x: str, rows: int, columns: int) -> str:
    return net.add("Add", net.add("MatMul", x, net.drawn(rows, columns)), net.drawn(columns))


def _norm(net: Net, x: str, width: int) -> str:
    return net.add("LayerNormalization", x, net.drawn(width), net.drawn(width), axis=-1)


def words(width: int, heads: int, layers: int) -> Callable[[], bytes]:
    """A transformer, as exporters write it."""

    def make() -> bytes:
        net = Net([1, "T", width])
        apart = net.constant(np.array([1, -1, heads, width // heads], np.int64))
        joined = net.constant(np.array([1, -1, width], np.int64))
        x = net.at
        for _ in range(layers):
            seen = _norm(net, x, width)
            q, k, v = (net.add("Reshape", _dense(net, seen, width, width), apart) for _ in range(3))
            q, v = (net.add("Transpose", each, perm=[0, 2, 1, 3]) for each in (q, v))
            k = net.add("Transpose", k, perm=[0, 2, 3, 1])
            scores = net.add("Mul", net.add("MatMul", q, k), net.constant(np.float32((width // heads) ** -0.5)))
            context = net.add("MatMul", net.add("Softmax", scores, axis=-1), v)
            context = net.add("Reshape", net.add("Transpose", context, perm=[0, 2, 1, 3]), joined)
            x = net.add("Add", x, _dense(net, context, width, width))
            inner = net.add("Gelu", _dense(net, _norm(net, x, width), width, 4 * width))
            x = net.add("Add", x, _dense(net, inner, 4 * width, width))
        return net.file()

    return make


def layer(shape: list[int | str], *steps: tuple[str, dict[str, Any]]) -> Callable[[], bytes]:
    """One input through operators that need no weights."""

    def make() -> bytes:
        net = Net(shape)
        for op, attributes in steps:
            net.add(op, net.at, **attributes)
        return net.file()

    return make


def norm(width: int) -> Callable[[], bytes]:
    def make() -> bytes:
        net = Net([1, "T", width])
        _norm(net, net.at, width)
        return net.file()

    return make


def chain(width: int) -> Callable[[], bytes]:
    """Elementwise, with a number per channel."""

    def make() -> bytes:
        net = Net([1, "T", width])
        net.add("Add", net.add("Mul", net.at, net.drawn(width)), net.drawn(width))
        net.add("Mul", net.add("Sigmoid", net.at), "x")
        return net.file()

    return make


def conv(shape: list[int | str], weights: tuple[int, ...], count: int = 1, **attributes: Any) -> Callable[[], bytes]:
    def make() -> bytes:
        net = Net(shape)
        for _ in range(count):
            net.add("Relu", net.add("Conv", net.at, net.drawn(*weights), net.drawn(weights[0]), **attributes))
        return net.file()

    return make


def recurrent(op: str, width: int, hidden: int) -> Callable[[], bytes]:
    def make() -> bytes:
        net, gates = Net(["T", 1, width]), {"GRU": 3, "LSTM": 4, "RNN": 1}[op] * hidden
        net.add(op, net.at, net.drawn(1, gates, width), net.drawn(1, gates, hidden), net.drawn(1, 2 * gates), hidden_size=hidden)
        return net.file()

    return make


def mean(shape: list[int | str], *axes: int) -> Callable[[], bytes]:
    def make() -> bytes:
        net = Net(shape)
        net.add("ReduceMean", net.at, net.constant(np.array(axes, np.int64)), keepdims=0)
        return net.file()

    return make


def pooled(width: int) -> Callable[[], bytes]:
    """The end of a classifier."""

    def make() -> bytes:
        net = Net([1, width, "T", "T"])
        net.add("Relu", net.add("Conv", net.at, net.drawn(width, width, 1, 1), net.drawn(width)))
        net.add("Gemm", net.add("Flatten", net.add("GlobalAveragePool", net.at)), net.drawn(width, 10), net.drawn(10))
        return net.file()

    return make


def resized(channels: int, mode: str, convolved: bool = False, **attributes: Any) -> Callable[[], bytes]:
    """Twice as high and wide; `convolved`: between convolutions, as in a U-Net."""

    def make() -> bytes:
        net = Net([1, channels, "T", "T"])
        if convolved:
            net.add("Relu", net.add("Conv", net.at, net.drawn(channels, channels, 1, 1), net.drawn(channels)))
        net.add("Resize", net.at, "", net.constant(np.array([1, 1, 2, 2], np.float32)), mode=mode, **attributes)
        if convolved:
            net.add("Relu", net.add("Conv", net.at, net.drawn(channels, channels, 1, 1), net.drawn(channels)))
        return net.file()

    return make


SAME = {"pads": [1, 1]}
MODELS: dict[str, Sized] = {
    "words 32, 2 heads, 1 layer": Sized(words(32, 2, 1), 128),
    "words 32, 4 heads, 2 layers": Sized(words(32, 4, 2), 128),
    "words 64, 4 heads, 2 layers": Sized(words(64, 4, 2), 128),
    "words 128, 4 heads, 4 layers": Sized(words(128, 4, 4), 128),
    "bert 384, 12 heads, 6 layers": Sized(words(384, 12, 6), 128),
    "layer norm 32": Sized(norm(32), 16),
    "layer norm 100": Sized(norm(100), 64),
    "softmax of 40": Sized(layer([1, "T", 40], ("Softmax", {"axis": -1})), 16),
    "softmax of T": Sized(layer([1, 4, "T"], ("Softmax", {"axis": -1})), 64),
    "gelu 64": Sized(layer([1, "T", 64], ("Gelu", {})), 16),
    "gelu 7": Sized(layer([1, "T", 7], ("Gelu", {})), 64),
    "elementwise 48": Sized(chain(48), 16),
    "elementwise 5": Sized(chain(5), 64),
    "conv1d 16 to 24": Sized(conv([1, 16, "T"], (24, 16, 3), **SAME), 64),
    "conv1d 40 to 32, two": Sized(conv([1, 32, "T"], (32, 32, 5), 2, pads=[2, 2]), 64),
    "conv1d 8 to 8, stride 2": Sized(conv([1, 8, "T"], (8, 8, 3), strides=[2], **SAME), 16),
    "conv 3x3 32, two, exact": Sized(conv([1, 32, "T", "T"], (32, 32, 3, 3), 2, pads=[1, 1, 1, 1]), 33, exact=True),
    "depthwise 1d 24": Sized(conv([1, 24, "T"], (24, 1, 3), group=24, **SAME), 16),
    "depthwise 1d 64, two of 9": Sized(conv([1, 64, "T"], (64, 1, 9), 2, group=64, pads=[4, 4]), 64),
    "gru 16": Sized(recurrent("GRU", 16, 16), 16),
    "gru 64": Sized(recurrent("GRU", 40, 64), 64),
    "lstm 16": Sized(recurrent("LSTM", 16, 16), 16),
    "lstm 64": Sized(recurrent("LSTM", 40, 64), 64),
    "max pool 1d": Sized(layer([1, 16, "T"], ("MaxPool", {"kernel_shape": [3], "pads": [1, 1], "strides": [1]})), 16),
    "average pool 1d": Sized(layer([1, 24, "T"], ("AveragePool", {"kernel_shape": [4], "pads": [2, 1], "strides": [2]})), 64),
    "mean of T": Sized(layer([1, "T", 24], ("ReduceMean", {"keepdims": 1})), 16),
    "mean of words, 64": Sized(mean([1, "T", 64], 1), 64),
    "mean of rows of T": Sized(mean([1, 48, "T"], 2), 128),
    "global average pool": Sized(layer([1, 32, "T"], ("GlobalAveragePool", {})), 64),
    "conv 1x1, global average pool": Sized(pooled(32), 17),
    "resize nearest": Sized(resized(16, "nearest"), 33),
    "resize linear": Sized(resized(16, "linear"), 33),
    "convs, resize nearest": Sized(resized(16, "nearest", True), 33),
    "convs, resize linear": Sized(resized(16, "linear", True), 33),
}
