"""Random networks of integers: convolutions with all kinds of windows, depthwise ones, pooling, sums across blocks."""

from __future__ import annotations

import random

import numpy as np

from intaglio.ir.graph import Graph, Value
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised import QAdd, QConv, sum_factors
from intaglio.ops.quantised_rows import QAveragePool


class IntegerNet:
    """Grows a graph of i8 images, [1, rows, columns, channels]."""

    def __init__(self, seed: int, rows: int = 0, columns: int = 0, channels: int = 0) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.graph = Graph("net")
        some = (self.rng.randint(5, 14), self.rng.randint(2, 7), self.rng.choice([1, 3, 4, 8]))
        shape = (1, rows or some[0], columns or some[1], channels or some[2])
        self.input = Value("x", TensorType(DType.I8, shape, Layout.NHWC))
        self.graph.names.add("x")
        self.graph.inputs.append(self.input)

    def conv(
        self, x: Value, *, kernel: int, stride: int, pads: tuple[int, int, int, int], outs: int = 0, dilation: int = 1
    ) -> Value:
        """Without `outs` it is depthwise."""
        channels = x.shape[3]
        group, made = (1, outs) if outs else (channels, channels)
        rng, graph = self.numbers, self.graph
        weights = graph.constant("w", rng.integers(-127, 128, (made, channels // group, kernel, kernel)).astype(np.int8))
        bias = graph.constant("b", rng.integers(-2000, 2000, made).astype(np.int32))
        spread = 0.3 / (kernel * np.sqrt(channels // group) * 40)
        factors = [quantize_multiplier(float(spread * s)) for s in rng.uniform(0.5, 2.0, made)]
        multiplier = graph.constant("m", np.array([m for m, _ in factors], np.int32))
        shift = graph.constant("s", np.array([s for _, s in factors], np.int32))
        x_zero, y_zero = self.rng.randint(-128, 127), self.rng.randint(-60, 60)
        op = QConv((stride, stride), pads, (dilation, dilation), group, x_zero=x_zero, y_zero=y_zero)
        return graph.add(op, [x, weights, bias, multiplier, shift], "c", "/conv")

    def pool(self, x: Value, kernel: int, stride: int, pads: tuple[int, int, int, int]) -> Value:
        kind = self.rng.choice(["mean", "max"])
        window = ((kernel, kernel), (stride, stride), pads)
        op = QAveragePool(*window) if kind == "mean" else MaxPool(*window, (1, 1), Layout.NHWC)
        return self.graph.add(op, [x], "p", "/pool")

    def sum(self, a: Value, b: Value) -> Value:
        left, right, lift, whole = sum_factors(0.02, 0.03, 0.04, DType.I8)
        op = QAdd(3, *left, -5, *right, lift, False, *whole, 7)
        return self.graph.add(op, [a, b], "s", "/sum")

    def grow(self, x: Value) -> Value:
        rng = self.rng
        what = rng.choice(["dense", "dense", "depthwise", "depthwise", "point", "pool"])
        same = [v for n in self.graph.nodes for v in n.outputs if v.type.shape == x.shape and v is not x]
        if same and rng.random() < 0.5:
            return self.sum(x, rng.choice(same))
        kernel = 1 if what == "point" else rng.choice([2, 3, 3, 5])
        dilation = 2 if what == "dense" and rng.random() < 0.2 else 1
        stride = rng.choice([1, 1, 2])
        most = kernel // 2
        pads = (rng.randint(0, most), most, rng.randint(0, most), most)
        extent = (kernel - 1) * dilation + 1
        if x.shape[1] + pads[0] + pads[2] < extent or x.shape[2] + pads[1] + pads[3] < extent or kernel > x.shape[1]:
            return self.conv(x, kernel=1, stride=1, pads=(0, 0, 0, 0), outs=rng.choice([2, 4, 8]))
        if what == "pool":
            return self.pool(x, kernel, stride, pads)
        outs = 0 if what == "depthwise" else rng.choice([1, 4, 6, 8])
        return self.conv(x, kernel=kernel, stride=stride, pads=pads, outs=outs, dilation=dilation)

    def finish(self, *outputs: Value) -> Graph:
        self.graph.outputs = list(outputs)
        self.graph.output_names = [v.name for v in outputs]
        return self.graph


def integer_net(seed: int, layers: int) -> Graph:
    net = IntegerNet(seed)
    x = net.input
    for _ in range(layers):
        x = net.grow(x)
    return net.finish(x)


def picture(graph: Graph, seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    return np.random.default_rng(seed).integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
