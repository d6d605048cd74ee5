"""Train a small 1-d CNN on recordings of hand gestures, in numpy, and export it as ONNX.

    .venv/bin/python scripts/make_gesture_model.py RECORDINGS gestures.onnx

RECORDINGS has the folders train and test with a .csv file per gesture: rows of aX,aY,aZ,gX,gY,gZ, 119 per recording. Beside the
model it writes gestures.npz: the recordings of test as `imu`, the number of each gesture as `labels`; and gestures-calibration.npz
with recordings of train, to quantise it with.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from training import Adam, Floats

STEPS, CHANNELS = 119, 6
WIDTH, STRIDE = 5, 2
EPOCHS, BATCH = 120, 16


def recordings(folder: Path) -> tuple[Floats, NDArray[np.int64]]:
    """[recordings, channels, steps] with accelerations of 4 g and rates of 2000 degrees per second scaled to 0..1, and gestures."""
    parts, labels = [], []
    for number, path in enumerate(sorted(folder.glob("*.csv"))):
        rows = np.loadtxt(path, delimiter=",", skiprows=1, dtype=np.float32)
        whole = rows[: len(rows) // STEPS * STEPS].reshape(-1, STEPS, CHANNELS).transpose(0, 2, 1)
        parts.append(whole)
        labels += [number] * len(whole)
    x = np.concatenate(parts)
    x[:, :3] = (x[:, :3] + 4) / 8
    x[:, 3:] = (x[:, 3:] + 2000) / 4000
    return x, np.array(labels)


def columns(x: Floats) -> Floats:
    """[N, C, T] -> [N, T', C * WIDTH]: what each step of a convolution sees."""
    windows = np.lib.stride_tricks.sliding_window_view(x, WIDTH, axis=2)[:, :, ::STRIDE]
    return np.ascontiguousarray(windows.transpose(0, 2, 1, 3)).reshape(len(x), windows.shape[2], -1)


class Network:
    """conv 6->16, relu, conv 16->24, relu, mean over time, dense 24->gestures."""

    def __init__(self, gestures: int, random: np.random.Generator) -> None:
        def normal(*shape: int) -> Floats:
            return np.asarray(random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)

        first, second, dense = normal(16, CHANNELS, WIDTH), normal(24, 16, WIDTH), normal(gestures, 24)
        self.weights: list[Floats] = []
        for w in (first, second, dense):
            self.weights += [w, np.zeros(len(w), np.float32)]
        self.step = Adam(self.weights).step

    def forward(self, x: Floats) -> Floats:
        self._kept: list[tuple[Floats, Floats]] = []
        for layer in range(2):
            w, b = self.weights[2 * layer : 2 * layer + 2]
            cols = columns(x)
            y = np.maximum(cols @ w.reshape(len(w), -1).T + b, 0)
            self._kept.append((cols, y))
            x = y.transpose(0, 2, 1)
        self._mean = x.mean(axis=2)
        return np.asarray(self._mean @ self.weights[4].T + self.weights[5], np.float32)

    def gradients(self, d: Floats) -> list[Floats]:
        found = [d.T @ self._mean, d.sum(0)]
        steps = self._kept[1][1].shape[1]
        back = np.repeat((d @ self.weights[4])[:, None] / steps, steps, axis=1)
        for layer in (1, 0):
            cols, y = self._kept[layer]
            w = self.weights[2 * layer]
            grad = (back * (y > 0)).reshape(-1, len(w))
            found = [(grad.T @ cols.reshape(len(grad), -1)).reshape(w.shape), grad.sum(0), *found]
            if layer:
                per_tap = (grad @ w.reshape(len(w), -1)).reshape(len(y), y.shape[1], w.shape[1], WIDTH)
                back = np.zeros_like(self._kept[0][1])
                for tap in range(WIDTH):
                    back[:, tap : tap + STRIDE * y.shape[1] : STRIDE] += per_tap[..., tap]
        return found


def train(x: Floats, labels: NDArray[np.int64]) -> Network:
    random = np.random.default_rng(3)
    network = Network(int(labels.max()) + 1, random)
    for epoch in range(EPOCHS):
        order = random.permutation(len(x))
        for start in range(0, len(x), BATCH):
            rows = order[start : start + BATCH]
            scores = network.forward(x[rows])
            shares = np.exp(scores - scores.max(1, keepdims=True))
            shares /= shares.sum(1, keepdims=True)
            shares[np.arange(len(rows)), labels[rows]] -= 1
            network.step(network.gradients(shares / len(rows)), rate=5e-3 * 0.985**epoch)
    return network


def export(network: Network, path: Path) -> None:
    names = ["conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "dense.weight", "dense.bias"]
    window: dict[str, Any] = {"kernel_shape": [WIDTH], "strides": [STRIDE]}
    nodes = [
        helper.make_node("Conv", ["imu", names[0], names[1]], ["conv1"], "/conv1/Conv", **window),
        helper.make_node("Relu", ["conv1"], ["relu1"], "/conv1/Relu"),
        helper.make_node("Conv", ["relu1", names[2], names[3]], ["conv2"], "/conv2/Conv", **window),
        helper.make_node("Relu", ["conv2"], ["relu2"], "/conv2/Relu"),
        helper.make_node("GlobalAveragePool", ["relu2"], ["mean"], "/GlobalAveragePool"),
        helper.make_node("Flatten", ["mean"], ["flat"], "/Flatten"),
        helper.make_node("Gemm", ["flat", names[4], names[5]], ["scores"], "/dense/Gemm", transB=1),
        helper.make_node("Softmax", ["scores"], ["probabilities"], "/Softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "gestures",
        [helper.make_tensor_value_info("imu", TensorProto.FLOAT, [1, CHANNELS, STEPS])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, [1, len(network.weights[5])])],
        [numpy_helper.from_array(w, n) for w, n in zip(network.weights, names, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model, full_check=True)
    path.write_bytes(model.SerializeToString())


def make(folder: Path, model: Path) -> float:
    """The accuracy on the recordings of test."""
    known, gestures = recordings(folder / "train")
    network = train(known, gestures)
    np.savez(model.with_name(f"{model.stem}-calibration.npz"), imu=known[::2])
    x, labels = recordings(folder / "test")
    export(network, model)
    np.savez(model.with_suffix(".npz"), imu=x, labels=labels)
    return float(np.mean(network.forward(x).argmax(1) == labels))


if __name__ == "__main__":
    print(f"{100 * make(Path(sys.argv[1]), Path(sys.argv[2])):.1f} % of the recordings of test are right")
