"""Integer operators of TFLite, one at a time, against LiteRT's reference kernels: every stored number equal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intaglio.frontends.tflite import load
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph
from support.tflite_models import Tensor, by_litert, one_operator

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
ZERO = {"int8": -5, "uint8": 120}
LOWEST = {"int8": -128, "uint8": 0}
BOTH = pytest.mark.parametrize("dtype", ["int8", "uint8"])


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def assert_equal_to_litert(data: bytes, feeds: list[Array], folder: Path) -> None:
    path = folder / "one.tflite"
    path.write_bytes(data)
    expected = by_litert(path, feeds)
    graph, _ = load(path, dims={}, shapes={})
    got = evaluate_graph(graph, {v.name: x for v, x in zip(graph.inputs, feeds, strict=True)})[graph.outputs[0].name]
    assert np.array_equal(got.reshape(expected.shape), expected)


@BOTH
@pytest.mark.parametrize("axes", [(1, 2), (1,), (3,)])
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("scale", [0.05, 0.031])
def test_mean(dtype: str, axes: tuple[int, ...], keep: bool, scale: float, tmp_path: Path) -> None:
    shape = (1, 7, 5, 16)
    left = (
        tuple(1 if a in axes else d for a, d in enumerate(shape))
        if keep
        else tuple(d for a, d in enumerate(shape) if a not in axes)
    )
    where = Tensor((len(axes),), "int32", data=np.array(axes, np.int32))
    x, y = Tensor(shape, dtype, 0.05, ZERO[dtype]), Tensor(left, dtype, scale, ZERO[dtype] + 3)
    data = one_operator("MEAN", [x, where], y, "ReducerOptions", {"keepDims": keep})
    assert_equal_to_litert(data, [numbers(shape, dtype)], tmp_path)


@BOTH
@pytest.mark.parametrize(
    ("op", "step"), [("TANH", 1 / 128), ("LOGISTIC", 1 / 256), ("HARD_SWISH", 0.04), ("RELU", 0.04), ("RELU6", 0.04)]
)
def test_functions_of_one_number(dtype: str, op: str, step: float, tmp_path: Path) -> None:
    zero = {"TANH": 0 if dtype == "int8" else 128, "LOGISTIC": LOWEST[dtype]}.get(op, ZERO[dtype])
    every = np.arange(256).astype(np.uint8).view(dtype).reshape(1, 256)
    data = one_operator(
        op,
        [Tensor((1, 256), dtype, 0.05, ZERO[dtype])],
        Tensor((1, 256), dtype, step, zero),
        version=2 if op in ("TANH", "LOGISTIC", "RELU", "RELU6") else 1,
    )
    assert_equal_to_litert(data, [every], tmp_path)


@pytest.mark.parametrize("op", ["EXP", "LOG", "ABS", "RSQRT"])
def test_functions_of_signed_numbers_through_float(op: str, tmp_path: Path) -> None:
    zero = -128 if op in ("LOG", "RSQRT") else -5
    every = np.arange(256).astype(np.uint8).view(np.int8).reshape(1, 256)
    step = 0.1 if op == "EXP" else 0.05
    data = one_operator(
        op, [Tensor((1, 256), "int8", 0.05, zero)], Tensor((1, 256), "int8", step, -128 if op == "EXP" else -5), version=1
    )
    assert_equal_to_litert(data, [every], tmp_path)


@BOTH
@pytest.mark.parametrize("op", ["ADD", "SUB", "MUL"])
def test_arithmetic_with_three_quantisations(dtype: str, op: str, tmp_path: Path) -> None:
    zero = ZERO[dtype]
    ins = [Tensor((4, 64), dtype, 0.05, zero), Tensor((64,), dtype, 0.03, zero + 2)]
    data = one_operator(op, ins, Tensor((4, 64), dtype, 0.07, zero - 1), f"{op.capitalize()}Options")
    assert_equal_to_litert(data, [numbers((4, 64), dtype), numbers((64,), dtype, 1)], tmp_path)


@BOTH
@pytest.mark.parametrize(("corners", "half"), [(False, False), (False, True)])
@pytest.mark.parametrize("op", ["RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"])
def test_resizing(dtype: str, corners: bool, half: bool, op: str, tmp_path: Path) -> None:
    size = Tensor((2,), "int32", data=np.array([11, 13], np.int32))
    options = "ResizeBilinearOptions" if op == "RESIZE_BILINEAR" else "ResizeNearestNeighborOptions"
    x, y = Tensor((1, 5, 7, 3), dtype, 0.05, ZERO[dtype]), Tensor((1, 11, 13, 3), dtype, 0.05, ZERO[dtype])
    data = one_operator(op, [x, size], y, options, {"alignCorners": corners, "halfPixelCenters": half}, version=3)
    assert_equal_to_litert(data, [numbers((1, 5, 7, 3), dtype)], tmp_path)


@BOTH
def test_prelu_and_leaky_relu(dtype: str, tmp_path: Path) -> None:
    zero, shape = ZERO[dtype], (1, 4, 4, 8)
    slope = Tensor((1, 1, 8), dtype, 0.01, zero, numbers((1, 1, 8), dtype, 2))
    x, y = Tensor(shape, dtype, 0.05, zero), Tensor(shape, dtype, 0.04, zero)
    assert_equal_to_litert(one_operator("PRELU", [x, slope], y, version=1), [numbers(shape, dtype)], tmp_path)
    assert_equal_to_litert(
        one_operator("LEAKY_RELU", [x], y, "LeakyReluOptions", {"alpha": 0.3}), [numbers(shape, dtype)], tmp_path
    )
