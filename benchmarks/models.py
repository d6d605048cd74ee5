"""Well-known shapes with random weights, written as ONNX files: what to measure where no trained model is at hand.

python benchmarks/models.py FOLDER        writes them all
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

Shape = tuple[int, ...]


class Net:
    """Builds a graph node by node; every method returns the name of its result."""

    def __init__(self, name: str, inputs: dict[str, Shape]) -> None:
        self.name = name
        self.random = np.random.default_rng(7)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, list(s)) for n, s in inputs.items()]

    def weight(self, *shape: int, fan: int | None = None, value: np.ndarray | None = None) -> str:
        name = f"w{len(self.weights)}"
        scale = np.sqrt(2.0 / (fan or int(np.prod(shape[1:])) or 1))
        data = self.random.standard_normal(shape).astype(np.float32) * np.float32(scale) if value is None else value
        self.weights.append(numpy_helper.from_array(data, name))
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        names = [name] + [f"{name}_{i}" for i in range(1, outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, name=name, **attributes))
        return name

    def conv(
        self, x: str, i: int, o: int, k: int = 3, stride: int = 1, group: int = 1, act: str = "Relu", pad: int | None = None
    ) -> str:
        p = k // 2 if pad is None else pad
        y = self.add(
            "Conv", x, self.weight(o, i // group, k, k), self.weight(o, fan=100), kernel_shape=[k, k], strides=[stride, stride],
            pads=[p, p, p, p], group=group,
        )  # fmt: skip
        if act == "Relu6":
            return self.add("Clip", y, self.scalar(0.0), self.scalar(6.0))
        return self.add(act, y) if act else y

    def scalar(self, value: float) -> str:
        return self.weight(value=np.asarray(value, np.float32))

    def ints(self, *values: int) -> str:
        return self.weight(value=np.asarray(values, np.int64))

    def dense(self, x: str, i: int, o: int) -> str:
        return self.add("Gemm", x, self.weight(o, i), self.weight(o, fan=100), transB=1)

    def linear(self, x: str, i: int, o: int) -> str:
        """A product over the last axis of any rank, with bias."""
        return self.add("Add", self.add("MatMul", x, self.weight(i, o, fan=i)), self.weight(o, fan=100))

    def model(self, *outputs: str) -> onnx.ModelProto:
        infos = [helper.make_tensor_value_info(o, onnx.TensorProto.FLOAT, None) for o in outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, infos, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)


def lenet() -> onnx.ModelProto:
    n = Net("lenet", {"x": (1, 1, 28, 28)})
    y = n.conv("x", 1, 6, 5, pad=2)
    y = n.add("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = n.conv(y, 6, 16, 5, pad=0)
    y = n.add("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = n.add("Flatten", y)
    y = n.add("Relu", n.dense(y, 400, 120))
    y = n.add("Relu", n.dense(y, 120, 84))
    return n.model(n.dense(y, 84, 10))


def dscnn() -> onnx.ModelProto:
    """Keyword spotting as in MLPerf Tiny: 49x10 features, four separable convolutions of 64 channels."""
    n = Net("dscnn", {"x": (1, 1, 49, 10)})
    y = n.add("Conv", "x", n.weight(64, 1, 10, 4), n.weight(64, fan=100), kernel_shape=[10, 4], strides=[2, 2], pads=[4, 1, 5, 1])
    y = n.add("Relu", y)
    for _ in range(4):
        y = n.conv(n.conv(y, 64, 64, 3, group=64), 64, 64, 1)
    y = n.add("Flatten", n.add("GlobalAveragePool", y))
    return n.model(n.add("Softmax", n.dense(y, 64, 12)))


def ic02() -> onnx.ModelProto:
    """The larger image classifier of MLPerf Tiny v1.3, with random weights: ResNet-8 of 40, 80 and 160 channels."""
    n = Net("ic02", {"x": (1, 3, 32, 32)})
    y, c = n.conv("x", 3, 40, 3), 40
    for out in (40, 80, 160):
        stride = 1 if out == c else 2
        short = y if c == out else n.conv(y, c, out, 1, stride, act="")
        y = n.conv(n.conv(y, c, out, 3, stride), out, out, 3, act="")
        y, c = n.add("Relu", n.add("Add", y, short)), out
    y = n.add("Flatten", n.add("GlobalAveragePool", y))
    return n.model(n.add("Softmax", n.dense(y, 160, 10)))


def mobilenetv2() -> onnx.ModelProto:
    n = Net("mobilenetv2", {"x": (1, 3, 224, 224)})
    y, c = n.conv("x", 3, 32, 3, 2, act="Relu6"), 32
    for t, out, count, stride in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for i in range(count):
            s, before = stride if i == 0 else 1, y
            y = n.conv(y, c, c * t, 1, act="Relu6") if t > 1 else y
            y = n.conv(y, c * t, c * t, 3, s, group=c * t, act="Relu6")
            y = n.conv(y, c * t, out, 1, act="")
            if s == 1 and c == out:
                y = n.add("Add", y, before)
            c = out
    y = n.conv(y, c, 1280, 1, act="Relu6")
    return n.model(n.dense(n.add("Flatten", n.add("GlobalAveragePool", y)), 1280, 1000))


def resnet18() -> onnx.ModelProto:
    n = Net("resnet18", {"x": (1, 3, 224, 224)})
    y = n.conv("x", 3, 64, 7, 2)
    y, c = n.add("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 64
    for out, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        short = y if stride == 1 and c == out else n.conv(y, c, out, 1, stride, act="")
        y = n.conv(n.conv(y, c, out, 3, stride), out, out, 3, act="")
        y, c = n.add("Relu", n.add("Add", y, short)), out
    return n.model(n.dense(n.add("Flatten", n.add("GlobalAveragePool", y)), 512, 1000))


def resnet50() -> onnx.ModelProto:
    n = Net("resnet50", {"x": (1, 3, 224, 224)})
    y = n.conv("x", 3, 64, 7, 2)
    y, c = n.add("MaxPool", y, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 64
    for mid, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            s = stride if i == 0 else 1
            short = y if i else n.conv(y, c, mid * 4, 1, s, act="")
            y = n.conv(n.conv(n.conv(y, c, mid, 1), mid, mid, 3, s), mid, mid * 4, 1, act="")
            y, c = n.add("Relu", n.add("Add", y, short)), mid * 4
    return n.model(n.dense(n.add("Flatten", n.add("GlobalAveragePool", y)), 2048, 1000))


def vit_tiny() -> onnx.ModelProto:
    """ViT-tiny, patches of 16, 12 layers of width 192 with 3 heads."""
    n, d, heads, tokens = Net("vit_tiny", {"x": (1, 3, 224, 224)}), 192, 3, 197
    y = n.add("Conv", "x", n.weight(d, 3, 16, 16), n.weight(d, fan=100), kernel_shape=[16, 16], strides=[16, 16])
    y = n.add("Transpose", n.add("Reshape", y, n.ints(1, d, 196)), perm=[0, 2, 1])
    y = n.add("Concat", n.weight(1, 1, d), y, axis=1)
    y = n.add("Add", y, n.weight(1, tokens, d, fan=5000))
    for _ in range(12):
        z = n.add("LayerNormalization", y, n.weight(d, fan=10), n.weight(d, fan=100), axis=-1)
        z = n.add("Reshape", n.linear(z, d, 3 * d), n.ints(1, tokens, 3, heads, d // heads))
        z = n.add("Transpose", z, perm=[2, 0, 3, 1, 4])
        q, k, v = (n.add("Squeeze", n.add("Slice", z, n.ints(i), n.ints(i + 1), n.ints(0)), n.ints(0)) for i in range(3))
        a = n.add("MatMul", n.add("Mul", q, n.scalar(0.125)), n.add("Transpose", k, perm=[0, 1, 3, 2]))
        a = n.add("Transpose", n.add("MatMul", n.add("Softmax", a, axis=-1), v), perm=[0, 2, 1, 3])
        y = n.add("Add", y, n.linear(n.add("Reshape", a, n.ints(1, tokens, d)), d, d))
        z = n.add("LayerNormalization", y, n.weight(d, fan=10), n.weight(d, fan=100), axis=-1)
        z = n.linear(z, d, 4 * d)
        erf = n.add("Erf", n.add("Div", z, n.scalar(1.4142135)))
        z = n.add("Mul", n.add("Mul", z, n.add("Add", erf, n.scalar(1.0))), n.scalar(0.5))
        y = n.add("Add", y, n.linear(z, 4 * d, d))
    y = n.add("LayerNormalization", y, n.weight(d, fan=10), n.weight(d, fan=100), axis=-1)
    y = n.add("Gather", y, n.weight(value=np.asarray(0, np.int64)), axis=1)
    return n.model(n.dense(y, d, 1000))


def lstm() -> onnx.ModelProto:
    """Two layers of 128, 50 steps of 40 features."""
    n = Net("lstm", {"x": (50, 1, 40)})
    y, size = "x", 40
    for _ in range(2):
        y = n.add("LSTM", y, n.weight(1, 512, size), n.weight(1, 512, 128), n.weight(1, 1024, fan=100), hidden_size=128)
        y, size = n.add("Squeeze", y, n.ints(1)), 128
    y = n.add("Gather", y, n.weight(value=np.asarray(-1, np.int64)), axis=0)
    return n.model(n.dense(y, 128, 12))


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "lenet": lenet, "dscnn": dscnn, "lstm": lstm, "mobilenetv2": mobilenetv2, "resnet18": resnet18, "vit_tiny": vit_tiny,
    "resnet50": resnet50,
}  # fmt: skip


def write_all(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, build in MODELS.items():
        path = folder / f"{name}.onnx"
        if not path.exists():
            path.write_bytes(build().SerializeToString(deterministic=True))
        paths.append(path)
    return paths


if __name__ == "__main__":
    for written in write_all(Path(sys.argv[1])):
        print(written)
