"""Every ONNX model of the shared set, imported and computed by the references, against the recorded results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio.frontends.onnx import check, load
from intaglio.ops.evaluate import evaluate_graph

FOLDER = Path(__file__).resolve().parents[2].parent / "shared" / "models"
MODELS: list[dict[str, Any]] = []
if (FOLDER / "manifest.json").exists():
    MODELS = [m for m in json.loads((FOLDER / "manifest.json").read_text()) if m["format"] == "onnx"]

pytestmark = pytest.mark.skipif(not MODELS, reason="the shared models are not there")


@pytest.mark.parametrize("entry", MODELS, ids=[m["id"] for m in MODELS])
def test_a_real_model_matches_its_reference(entry: dict[str, Any]) -> None:
    shapes = {f"in{i}": tuple(shape) for i, (_, _, shape) in enumerate(entry["inputs"])}
    assert check(FOLDER / entry["file"], shapes=shapes) == []
    graph, _ = load(FOLDER / entry["file"], shapes=shapes)
    reference = np.load(FOLDER / entry["ref"])
    inputs = {v.name: np.asarray(reference[f"in{i}"][0]) for i, v in enumerate(graph.inputs)}
    outputs = evaluate_graph(graph, inputs)
    # Two optimisation levels of the reference runtime differ by this much; nobody can be asked for less.
    noise = max(v["max"] for v in entry["vendor_disagreement"].values())
    for i, value in enumerate(graph.outputs):
        if f"out{i}" not in reference:
            continue
        expected = np.asarray(reference[f"out{i}"][0], np.float64)
        bound = max(1e-4 * float(np.abs(expected).max(initial=0.0)) + 1e-6, 2 * noise)
        assert outputs[value.name].shape == expected.shape
        np.testing.assert_allclose(outputs[value.name].astype(np.float64), expected, rtol=0, atol=bound)
