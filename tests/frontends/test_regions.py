"""MaxRoiPool and CropAndResize, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import intaglio
from intaglio.errors import ModelError
from intaglio.frontends.onnx import load
from intaglio.ops.evaluate import evaluate_graph
from support.microsoft_cases import Case, agree, computed, expected
from support.onnx_models import model, node, saved, value

RNG = np.random.default_rng(4)


def pooling(shape: list[int], regions: int, bins: list[int], **fields: Any) -> Any:
    one = node("MaxRoiPool", "x r", "y", pooled_shape=bins, **fields)
    return model([one], [value("x", shape), value("r", [regions, 5])], opset=17)


CASES: dict[str, tuple[list[int], list[int], float]] = {
    "as detectors have it": ([2, 3, 14, 11], [7, 7], 1 / 16),
    "few bins": ([1, 2, 9, 13], [2, 3], 1.0),
    "more bins than numbers": ([2, 1, 3, 2], [4, 5], 0.5),
    "one bin of one number": ([1, 2, 1, 1], [1, 1], 1.0),
}


@pytest.mark.parametrize("name", CASES)
def test_bins_are_those_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    """Of regions inside, partly outside, and turned round; with coordinates that are halves."""
    shape, bins, scale = CASES[name]
    proto = pooling(shape, 40, bins, spatial_scale=scale)
    regions = (RNG.integers(-8, 2 * max(shape[2:]) + 8, (40, 5)) / (2 * scale)).astype(np.float32)
    regions[:, 0] = RNG.integers(0, shape[0], 40)
    x = RNG.standard_normal(shape).astype(np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    graph, _ = load(saved(proto, tmp_path))
    got = evaluate_graph(graph, {"x": x, "r": regions})[graph.outputs[0].name]
    assert np.array_equal(got, session.run(None, {"x": x, "r": regions})[0])


def test_it_is_compiled_as_well(tmp_path: Path) -> None:
    package = intaglio.compile(saved(pooling([1, 3, 6, 5], 4, [2, 2]), tmp_path), output=tmp_path / "p")
    assert package.validate().ok


def test_regions_that_are_not_boxes_are_told(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"into \[\] is not valid"):
        load(saved(model([node("MaxRoiPool", "x x", "y")], [value("x", [1, 2, 3, 4])]), tmp_path))


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(3, 5), (1, 2), (4, 1)])
def test_crops_are_those_of_onnx_runtime(mode: str, size: tuple[int, int], tmp_path: Path) -> None:
    """Corners on numbers, between them and outside of the picture."""
    x = RNG.standard_normal((2, 3, 6, 9)).astype(np.float32)
    regions = (RNG.integers(-3, 14, (30, 4)) / 10).astype(np.float32)
    images = RNG.integers(0, 2, 30).astype(np.int32)
    case = Case("CropAndResize", (x, regions, images), (np.array(size, np.int32),), {"mode": mode, "extrapolation_value": -1.5})
    agree(computed(case, tmp_path), expected(case), 1e-6)


def test_a_crop_to_nothing_is_told(tmp_path: Path) -> None:
    x, regions = np.zeros((1, 2, 3, 3), np.float32), np.zeros((1, 4), np.float32)
    case = Case("CropAndResize", (x, regions, np.zeros(1, np.int32)), (np.array([0, 2], np.int32),))
    with pytest.raises(ModelError, match=r"to \[0, 2\], bilinear, is not valid"):
        computed(case, tmp_path)
