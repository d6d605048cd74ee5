"""Every ONNX model of the shared set, imported and computed by the references, against the recorded results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from intaglio.frontends.onnx import check, load
from intaglio.ops.evaluate import evaluate_graph
from support.shared import ONNX, SHARED, needs_shared, shapes_of

pytestmark = needs_shared


@pytest.mark.parametrize("entry", ONNX, ids=[m["id"] for m in ONNX])
def test_a_real_model_matches_its_reference(entry: dict[str, Any]) -> None:
    shapes = shapes_of(entry)
    assert check(SHARED / entry["file"], shapes=shapes) == []
    graph, _ = load(SHARED / entry["file"], shapes=shapes)
    reference = np.load(SHARED / entry["ref"])
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
