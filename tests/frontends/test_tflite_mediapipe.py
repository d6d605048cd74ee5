"""MediaPipe's custom operators, against what its kernels compute, written out as loops."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from intaglio import compile
from intaglio.errors import ModelError
from intaglio.frontends.tflite import load
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph
from support.tflite_models import ModelWriter, Tensor


def custom(name: str, options: tuple[int, ...], inputs: list[Tensor], outputs: list[Tensor], folder: Path) -> Path:
    w = ModelWriter()
    w.subgraph()
    places = [w.tensor(t, f"in{n}") for n, t in enumerate(inputs)]
    w.graph.inputs = [place for place, t in zip(places, inputs, strict=True) if t.data is None]
    w.graph.outputs = [w.tensor(t, f"out{n}") for n, t in enumerate(outputs)]
    w.operator("CUSTOM", places, w.graph.outputs, version=1)
    w.model.operatorCodes[0].customCode = name
    w.graph.operators[0].customOptions = np.frombuffer(struct.pack(f"<{len(options)}i", *options), np.uint8)
    path = folder / "m.tflite"
    path.write_bytes(w.finish())
    return path


def results(path: Path, *arrays: Array) -> list[Array]:
    graph, _ = load(path, dims={}, shapes={})
    values = evaluate_graph(graph, {v.name: a for v, a in zip(graph.inputs, arrays, strict=True)})
    return [np.asarray(values[v.name]) for v in graph.outputs]


def numbers(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def transposed(x: Array, w: Array, bias: Array, stride: int, same: bool) -> Array:
    _, h, width, _ = x.shape
    k = w.shape[1]
    pad = [max(0, k - (n - 1) % stride - 1) if same else 0 for n in (h, width)]
    size = [stride * (n - 1) + k - p for n, p in zip((h, width), pad, strict=True)]
    y = np.tile(bias, (1, *size, 1)).astype(np.float64)
    for row, column, dy, dx in np.ndindex(h, width, k, k):
        at = (row * stride - pad[0] // 2 + dy, column * stride - pad[1] // 2 + dx)
        if 0 <= at[0] < size[0] and 0 <= at[1] < size[1]:
            y[0, at[0], at[1]] += w[:, dy, dx, :].astype(np.float64) @ x[0, row, column]
    return y


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(("k", "stride"), [(2, 2), (3, 2), (4, 2), (3, 1)])
def test_a_transposed_convolution_with_a_bias(k: int, stride: int, same: bool, tmp_path: Path) -> None:
    x, w, bias = numbers(1, 4, 5, 3), numbers(2, k, k, 3, seed=2), numbers(2, seed=3)
    want = transposed(x, w, bias, stride, same)
    tensors = [Tensor(x.shape, "float32"), Tensor(w.shape, "float32", data=w), Tensor((2,), "float32", data=bias)]
    options = (1 if same else 2, stride, stride)
    path = custom("Convolution2DTransposeBias", options, tensors, [Tensor(want.shape, "float32")], tmp_path)
    (got,) = results(path, x)
    np.testing.assert_allclose(got, want, atol=1e-5)


def test_maxima_their_places_and_back(tmp_path: Path) -> None:
    x = numbers(1, 4, 6, 3)
    x[0, :2, :2, 0] = 1.0  # the first of equal ones counts
    y, places, back = np.zeros((1, 2, 3, 3)), np.zeros((1, 2, 3, 3)), np.zeros_like(x)
    for r, c, channel in np.ndindex(2, 3, 3):
        window = x[0, 2 * r : 2 * r + 2, 2 * c : 2 * c + 2, channel]
        place = int(np.argmax(window))
        y[0, r, c, channel], places[0, r, c, channel] = window.max(), place + np.float32(0.1)
        back[0, 2 * r + place // 2, 2 * c + place % 2, channel] = window.max()
    options, small, large = (1, 2, 2, 2, 2, 0), Tensor((1, 2, 3, 3), "float32"), Tensor((1, 4, 6, 3), "float32")
    got = results(custom("MaxPoolingWithArgmax2D", options, [large], [small, small], tmp_path), x)
    np.testing.assert_array_equal(got[0], y.astype(np.float32))
    np.testing.assert_allclose(got[1], places, atol=1e-6)
    path = custom("MaxUnpooling2D", options, [small, small], [large], tmp_path)
    np.testing.assert_array_equal(results(path, y.astype(np.float32), places.astype(np.float32))[0], back)
    package = compile(path, output=tmp_path / "out")
    np.testing.assert_array_equal(package(y.astype(np.float32), places.astype(np.float32)), back)


@pytest.mark.parametrize(("options", "size"), [((1, 3, 2, 2, 2), (4, 12)), ((2, 3, 2, 2, 2), (4, 11))])
def test_maxima_back_to_places_in_the_image(options: tuple[int, ...], size: tuple[int, int], tmp_path: Path) -> None:
    x, random = numbers(2, 2, 4, 3), np.random.default_rng(4)
    places = random.integers(0, size[0] * size[1] * 3, (2, 2, 4, 3)).astype(np.int32)  # some twice: the last one counts
    want = np.zeros((2, *size, 3), np.float32)
    for batch, row, column, channel in np.ndindex(*x.shape):
        want[batch].reshape(-1)[places[batch, row, column, channel]] = x[batch, row, column, channel]
    tensors = [Tensor(x.shape, "float32"), Tensor(x.shape, "int32")]
    path = custom("MaxUnpooling2D", options, tensors, [Tensor(want.shape, "float32")], tmp_path)
    np.testing.assert_array_equal(results(path, x, places)[0], want)
    np.testing.assert_array_equal(compile(path, output=tmp_path / "out")(x, places), want)


@pytest.mark.parametrize(
    ("options", "reason"),
    [((1, 1, 1, 2, 2, 0), "in steps of 1x1 are not supported"), ((1, 3, 3, 3, 3, 0), "do not divide"), ((1, 2), "cut short")],
)
def test_windows_that_are_not_supported(options: tuple[int, ...], reason: str, tmp_path: Path) -> None:
    small, large = Tensor((1, 2, 3, 3), "float32"), Tensor((1, 4, 6, 3), "float32")
    path = custom("MaxPoolingWithArgmax2D", options, [large], [small, small], tmp_path)
    with pytest.raises(ModelError, match=reason):
        load(path, dims={}, shapes={})
