"""Write a MobileNetV2 as ONNX, with random weights: for questions of memory and speed, where what it recognises does not matter.

    .venv/bin/python scripts/make_mobilenet_model.py build/mobilenet_v2.onnx --width 0.35 --size 144

The input is rows of pixels, [1, rows, columns, 3], as cameras give them. Channels are rounded to multiples of 8 as in the paper
(arXiv:1801.04381), batch norms are folded already. Weights are drawn so that activations keep their range through the network,
which makes quantisation to int8 a real case.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# expansion, channels, repeats, stride of the first
BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
FIRST, LAST = 32, 1280


def rounded(channels: float) -> int:
    """To a multiple of 8, never more than 10 % less."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


class Net:
    def __init__(self, seed: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(seed)

    def conv(
        self, x: str, inputs: int, outputs: int, kernel: int, stride: int, *, depthwise: bool = False, relu: bool = True
    ) -> str:
        n = len(self.nodes)
        depth = 1 if depthwise else inputs
        spread = np.sqrt(2.0 / (depth * kernel * kernel))
        self._weight(f"w{n}", (self.random.standard_normal((outputs, depth, kernel, kernel)) * spread).astype(np.float32))
        self._weight(f"b{n}", (self.random.standard_normal(outputs) * 0.1).astype(np.float32))
        pad = kernel // 2
        group = inputs if depthwise else 1
        node = helper.make_node("Conv", [x, f"w{n}", f"b{n}"], [f"c{n}"], strides=[stride] * 2, pads=[pad] * 4, group=group)
        self.nodes.append(node)
        return self._clip(f"c{n}") if relu else f"c{n}"

    def add(self, a: str, b: str) -> str:
        name = f"s{len(self.nodes)}"
        self.nodes.append(helper.make_node("Add", [a, b], [name]))
        return name

    def _clip(self, x: str) -> str:
        if not any(t.name == "six" for t in self.weights):
            self._weight("zero", np.float32(0))
            self._weight("six", np.float32(6))
        self.nodes.append(helper.make_node("Clip", [x, "zero", "six"], [f"r{x}"]))
        return f"r{x}"

    def _weight(self, name: str, data: np.ndarray | np.float32) -> None:
        self.weights.append(numpy_helper.from_array(np.asarray(data), name))


def mobilenet(width: float, size: int, classes: int, seed: int = 0) -> onnx.ModelProto:
    net = Net(seed)
    channels = rounded(FIRST * width)
    net.nodes.append(helper.make_node("Transpose", ["image"], ["planes"], perm=[0, 3, 1, 2]))
    x = net.conv("planes", 3, channels, 3, 2)
    for expand, wanted, repeats, first_stride in BLOCKS:
        for n in range(repeats):
            stride, out, before = first_stride if n == 0 else 1, rounded(wanted * width), x
            inner = channels * expand
            if expand != 1:
                x = net.conv(x, channels, inner, 1, 1)
            x = net.conv(x, inner, inner, 3, stride, depthwise=True)
            x = net.conv(x, inner, out, 1, 1, relu=False)
            if stride == 1 and channels == out:
                x = net.add(before, x)
            channels = out
    last = rounded(LAST * max(width, 1.0))
    x = net.conv(x, channels, last, 1, 1)
    net.nodes.append(helper.make_node("GlobalAveragePool", [x], ["pooled"]))
    net.nodes.append(helper.make_node("Flatten", ["pooled"], ["flat"]))
    net._weight("dense", (net.random.standard_normal((last, classes)) / np.sqrt(last)).astype(np.float32))
    net.nodes.append(helper.make_node("MatMul", ["flat", "dense"], ["logits"]))
    net.nodes.append(helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1))
    graph = helper.make_graph(
        net.nodes, "mobilenet_v2",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, size, size, 3])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, classes])],
        net.weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="make_mobilenet_model")
    model.ir_version = 9
    onnx.checker.check_model(model)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a MobileNetV2 with random weights.")
    parser.add_argument("output", type=Path)
    parser.add_argument("--width", type=float, default=0.35)
    parser.add_argument("--size", type=int, default=144)
    parser.add_argument("--classes", type=int, default=1000)
    args = parser.parse_args()
    args.output.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(mobilenet(args.width, args.size, args.classes), str(args.output))


if __name__ == "__main__":
    main()
