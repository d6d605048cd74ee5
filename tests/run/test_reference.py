"""What ONNX Runtime is given as inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio import compile
from support.onnx_models import model, node, saved, value
from support.tree_models import ml_model


@pytest.mark.parametrize("shape", [(2, 3), (1, 16), ()])
def test_an_input_of_unknown_rank_has_the_shape_that_was_given(shape: tuple[int, ...], tmp_path: Path) -> None:
    """ONNX Runtime says of it what it says of a single number: that it has no dimensions."""
    proto = model([node("Abs", "x", "y")], [value("x", None)])
    package = compile(saved(proto, tmp_path), output=tmp_path / "p", shapes={"x": shape})
    assert package.manifest.inputs[0].shape == shape and package.validate().ok


@pytest.mark.parametrize("classes", [{"classlabels_strings": ["late", "early", "never"]}, {"classlabels_int64s": [9, 4, 7]}])
def test_maps_of_probabilities_are_compared_as_rows(classes: dict[str, Any], tmp_path: Path) -> None:
    proto = ml_model("ZipMap", np.zeros((2, 3), np.float32), ["y"], **classes)
    package = compile(saved(proto, tmp_path), output=tmp_path / "p")
    result = package.validate()
    assert result.ok and "onnxruntime" in result.reference
