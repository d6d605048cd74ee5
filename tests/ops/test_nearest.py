"""Resizing to the nearest element takes the elements that runtimes take, also where a coordinate is nearly a whole number."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from intaglio.ops.resize import Resize

MODES = [
    ("asymmetric", "floor"), ("asymmetric", "ceil"), ("asymmetric", "round_prefer_floor"), ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"), ("half_pixel", "floor"), ("pytorch_half_pixel", "round_prefer_floor"),
    ("align_corners", "round_prefer_floor"), ("align_corners", "floor"), ("tf_half_pixel_for_nn", "floor"),
]  # fmt: skip
SIZES = [*product((7, 9, 10, 14, 22, 26), (1, 4, 8, 13, 16, 17, 19, 29, 38, 41, 42, 52))]


def session(coordinate: str, rounding: str) -> onnx.ModelProto:
    x, s = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"]), helper.make_tensor_value_info("s", TensorProto.INT64, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m"])
    how = {"mode": "nearest", "coordinate_transformation_mode": coordinate, "nearest_mode": rounding}
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], **how)
    return helper.make_model(
        helper.make_graph([node], "g", [x, s], [y]), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )


@pytest.mark.parametrize(("coordinate", "rounding"), MODES)
def test_elements_are_those_of_onnx_runtime(coordinate: str, rounding: str) -> None:
    runtime = pytest.importorskip("onnxruntime")
    run = runtime.InferenceSession(session(coordinate, rounding).SerializeToString(), providers=["CPUExecutionProvider"]).run
    for before, after in SIZES:
        wanted = run(None, {"x": np.arange(before, dtype=np.float32), "s": np.array([after], np.int64)})[0]
        taps = Resize((after,), (after / before,), (), "nearest", coordinate, rounding).taps(0, before)
        assert [at[0] for at in taps.indices] == wanted.astype(int).tolist(), (before, after)


@pytest.mark.parametrize(("corners", "half"), [(False, False), (True, False), (False, True)])
def test_elements_are_those_of_litert(corners: bool, half: bool, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    from support.tflite_models import Tensor, assert_like_litert, one_operator

    fields: dict[str, object] = {"alignCorners": corners, "halfPixelCenters": half}
    for before, after in [(14, 4), (14, 16), (26, 22), (28, 16), (36, 31), (9, 42)]:
        size = Tensor((2,), "int32", data=np.array([after, 3], np.int32))
        ins, out = [Tensor((1, before, 3, 1), "float32"), size], Tensor((1, after, 3, 1), "float32")
        data = one_operator("RESIZE_NEAREST_NEIGHBOR", ins, out, "ResizeNearestNeighborOptions", fields)
        assert_like_litert(data, tmp_path, [np.arange(before * 3, dtype=np.float32).reshape(1, before, 3, 1)])


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_elements_are_those_of_torch(mode: str, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from intaglio.frontends.torch import load
    from intaglio.ops.evaluate import evaluate_graph

    class Resized(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: object, y: object) -> tuple[object, ...]:
            return tuple(torch.nn.functional.interpolate(v, size=n, mode=mode) for v, n in ((x, 16), (y, 19)))

    given = tuple(torch.arange(n, dtype=torch.float32).reshape(1, 1, n) for n in (14, 26))
    torch.export.save(torch.export.export(Resized(), given), tmp_path / "m.pt2")
    graph, _ = load(tmp_path / "m.pt2", dims={}, shapes={})
    values = evaluate_graph(graph, {v.name: x.numpy() for v, x in zip(graph.inputs, given, strict=True)})
    for out, wanted in zip(graph.outputs, Resized()(*given), strict=True):
        assert np.array_equal(values[out.name], wanted.numpy())


def test_elements_are_those_of_keras(tmp_path: Path) -> None:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    from intaglio.frontends.keras import load
    from intaglio.ops.evaluate import evaluate_graph

    for before, after in ((2, 41), (14, 16), (22, 61)):
        model = keras.Sequential([keras.Input((before, 3, 1)), keras.layers.Resizing(after, 3, interpolation="nearest")])
        model.save(tmp_path / "m.keras")
        graph, _ = load(tmp_path / "m.keras", dims={}, shapes={})
        x = np.arange(before * 3, dtype=np.float32).reshape(1, before, 3, 1)
        values = evaluate_graph(graph, {graph.inputs[0].name: x})
        assert np.array_equal(values[graph.outputs[0].name], keras.ops.convert_to_numpy(model(x))), (before, after)
