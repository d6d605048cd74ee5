"""A picture that is cropped by a computed box, then convolved: `--max` gives the least and the largest size of the crop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio import compile as compiled
from intaglio.errors import AnswerIsNo, ModelError, UserError
from intaglio.run.package import Package
from support.onnx_models import INT64, ints, model, node, saved, value

SIDE = 16


def cropped() -> Any:
    nodes = [
        node("Slice", "box zero two", "first"), node("Slice", "box two four", "last"), node("Slice", "x first last axes", "crop"),
        node("Conv", "crop w", "a", pads=[1, 1, 1, 1]), node("MaxPool", "a", "b", kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", "b", "y"),
    ]  # fmt: skip
    weights = (np.random.default_rng(0).standard_normal((4, 2, 3, 3)) * 0.3).astype(np.float32)
    constants = {"w": weights, "zero": ints(0), "two": ints(2), "four": ints(4), "axes": ints(2, 3)}
    return model(nodes, [value("x", [1, 2, SIDE, SIDE]), value("box", [4], INT64)], [value("y", None)], constants)


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(cropped(), tmp_path_factory.mktemp("model"), "crop.onnx")


@pytest.fixture(scope="module")
def package(onnx_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("package") / "crop"
    return compiled(onnx_file, output=folder, max={"crop": (4, 12), "crop_axis_3": "3..12"}, library_only=True)


def test_every_crop_is_that_of_onnx_runtime(package: Package, onnx_file: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(onnx_file), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(1)
    for height, width in ((4, 3), (12, 12), (4, 12), (5, 8), (11, 3)):
        top, left = random.integers(0, SIDE - height + 1), random.integers(0, SIDE - width + 1)
        x = random.standard_normal((1, 2, SIDE, SIDE)).astype(np.float32)
        given = {"x": x, "box": np.array([top, left, top + height, left + width])}
        assert np.abs(package.run(given)["y"] - session.run(None, given)[0]).max() < 1e-5


@pytest.mark.parametrize("box", [(0, 0, 3, 8), (0, 0, 13, 8), (0, 0, 8, 2), (8, 8, 2, 16)])
def test_a_crop_outside_of_the_bounds_is_an_error(package: Package, box: tuple[int, ...]) -> None:
    with pytest.raises(AnswerIsNo, match=r"follows from data .* crop_axis_2 4\.\.12, crop_axis_3 3\.\.12"):
        package.run({"x": np.zeros((1, 2, SIDE, SIDE), np.float32), "box": np.array(box)})


def test_the_error_without_a_least_size_says_how_to_give_one(onnx_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"max={'crop': \(1, 16\)}"):
        compiled(onnx_file, output=tmp_path / "p")
    with pytest.raises(ModelError, match=r"the size is within 0\.\.16"):
        compiled(onnx_file, output=tmp_path / "p", max={"crop": (17, 20)})
    with pytest.raises(ModelError, match="did you mean `crop`"):
        compiled(onnx_file, output=tmp_path / "p", max={"crops": (4, 8)})
    with pytest.raises(UserError, match="`max`"):
        compiled(onnx_file, output=tmp_path / "p", max={"crop": "4..8:2"})
