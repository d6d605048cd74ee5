"""Train the demo's network: a small CNN on scikit-learn's handwritten digits, in numpy, exported as ONNX.

    .venv/bin/python scripts/make_digits_model.py

Writes src/intaglio/demo_data/digits.onnx and digits.npz (100 digits that it was not trained on, with labels). Both are
committed; run it again only to change the network.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from training import Adam, Floats

TARGET = Path(__file__).parents[1] / "src" / "intaglio" / "demo_data"
TEST_DIGITS = 100
EPOCHS = 40
BATCH = 32


def columns(x: Floats) -> Floats:
    """The 3x3 neighbourhood of every pixel, zero outside: [N,C,H,W] -> [N,H,W,C*9]."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    n, c, h, w = x.shape
    return np.ascontiguousarray(windows.transpose(0, 2, 3, 1, 4, 5)).reshape(n, h, w, c * 9)


def scatter(d: Floats, channels: int) -> Floats:
    """The transpose of `columns`: gradients of neighbourhoods back to pixels."""
    n, h, w, _ = d.shape
    out = np.zeros((n, channels, h + 2, w + 2), np.float32)
    parts = d.reshape(n, h, w, channels, 3, 3).transpose(0, 3, 4, 5, 1, 2)
    for i in range(3):
        for j in range(3):
            out[:, :, i : i + h, j : j + w] += parts[:, :, i, j]
    return np.asarray(out[:, :, 1:-1, 1:-1], np.float32)


class Network:
    """conv 1->8, relu, max pool 2, conv 8->16, relu, max pool 2, dense 64->10."""

    def __init__(self, random: np.random.Generator) -> None:
        def normal(*shape: int, fan_in: int) -> Floats:
            return np.asarray(random.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)

        self.weights: list[Floats] = [
            normal(8, 1, 3, 3, fan_in=9), np.zeros(8, np.float32),
            normal(16, 8, 3, 3, fan_in=72), np.zeros(16, np.float32),
            normal(10, 64, fan_in=64), np.zeros(10, np.float32),
        ]  # fmt: skip
        self.step = Adam(self.weights).step

    def forward(self, x: Floats) -> Floats:
        self._kept: list[Floats] = []
        for layer in range(2):
            w, b = self.weights[2 * layer : 2 * layer + 2]
            cols = columns(x)
            y = np.maximum((cols @ w.reshape(len(w), -1).T + b).transpose(0, 3, 1, 2), 0)
            n, c, h, wide = y.shape
            pooled = y.reshape(n, c, h // 2, 2, wide // 2, 2).max(axis=(3, 5))
            self._kept += [cols, y, pooled]
            x = pooled
        flat = x.reshape(len(x), -1)
        self._kept.append(flat)
        return np.asarray(flat @ self.weights[4].T + self.weights[5], np.float32)

    def gradients(self, d: Floats) -> list[Floats]:
        flat = self._kept[6]
        found = [d.T @ flat, d.sum(0)]
        back = (d @ self.weights[4]).reshape(self._kept[5].shape)
        for layer in (1, 0):
            cols, y, pooled = self._kept[3 * layer : 3 * layer + 3]
            w = self.weights[2 * layer]
            wide = np.repeat(np.repeat(pooled, 2, axis=2), 2, axis=3)
            grad = np.repeat(np.repeat(back, 2, axis=2), 2, axis=3) * (wide == y) * (y > 0)
            rows = grad.transpose(0, 2, 3, 1)
            flat_rows = rows.reshape(-1, len(w))
            found = [(flat_rows.T @ cols.reshape(len(flat_rows), -1)).reshape(w.shape), flat_rows.sum(0), *found]
            if layer:
                back = scatter(rows @ w.reshape(len(w), -1), w.shape[1])
        return found


def train(x: Floats, labels: NDArray[np.int64]) -> Network:
    random = np.random.default_rng(7)
    network = Network(random)
    for epoch in range(EPOCHS):
        order = random.permutation(len(x))
        for start in range(0, len(x) - BATCH + 1, BATCH):
            rows = order[start : start + BATCH]
            scores = network.forward(x[rows])
            shares = np.exp(scores - scores.max(1, keepdims=True))
            shares /= shares.sum(1, keepdims=True)
            shares[np.arange(BATCH), labels[rows]] -= 1
            network.step(network.gradients(shares / BATCH), rate=3e-3 * 0.93**epoch)
    return network


def export(network: Network, path: Path) -> None:
    names = ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "dense.weight", "dense.bias"]
    conv: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    pool: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        helper.make_node("Conv", ["image", names[0], names[1]], ["conv1"], "/conv1/Conv", **conv),
        helper.make_node("Relu", ["conv1"], ["relu1"], "/conv1/Relu"),
        helper.make_node("MaxPool", ["relu1"], ["pool1"], "/conv1/MaxPool", **pool),
        helper.make_node("Conv", ["pool1", names[2], names[3]], ["conv2"], "/conv2/Conv", **conv),
        helper.make_node("Relu", ["conv2"], ["relu2"], "/conv2/Relu"),
        helper.make_node("MaxPool", ["relu2"], ["pool2"], "/conv2/MaxPool", **pool),
        helper.make_node("Flatten", ["pool2"], ["flat"], "/Flatten"),
        helper.make_node("Gemm", ["flat", names[4], names[5]], ["scores"], "/dense/Gemm", transB=1),
        helper.make_node("Softmax", ["scores"], ["probabilities"], "/Softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(w, n) for w, n in zip(network.weights, names, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.producer_name = "intaglio demo"
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString(deterministic=True))


def main() -> None:
    digits = load_digits()
    x = (digits.images / 16).astype(np.float32)[:, None]
    labels = digits.target.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(x))
    test, rest = order[:TEST_DIGITS], order[TEST_DIGITS:]
    network = train(x[rest], labels[rest])
    right = float(np.mean(network.forward(x[test]).argmax(1) == labels[test]))
    TARGET.mkdir(exist_ok=True)
    export(network, TARGET / "digits.onnx")
    np.savez_compressed(TARGET / "digits.npz", image=x[test][:, None], labels=labels[test])
    print(f"{100 * right:.0f} % of {TEST_DIGITS} unseen digits are right; wrote {TARGET}")


if __name__ == "__main__":
    main()
