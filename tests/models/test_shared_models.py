"""Every float ONNX model of the shared set, compiled, run step by step in this process, against its reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intaglio
from support.shared import ONNX, SHARED, needs_shared, shapes_of

SLOW = {
    "basicpitch_onnx", "swift_f0", "ultraface_rfb320_simpl", "ppocr_cls", "fastestdet", "gtcrn_simple", "yunet_n_320",
    "tract_qlstm", "sres10", "dnsmos_v8", "magika_v3_3", "mkws_f32_onnx", "mkws_qop_onnx", "dtln1_onnx",
}  # fmt: skip

pytestmark = needs_shared


def entries() -> list[Any]:
    return [pytest.param(m, id=m["id"], marks=pytest.mark.slow if m["id"] in SLOW else []) for m in ONNX]


@pytest.mark.parametrize("entry", entries())
def test_a_real_model_runs_like_its_reference(entry: dict[str, Any], tmp_path: Path) -> None:
    shapes = shapes_of(entry)
    package = intaglio.compile(SHARED / entry["file"], output=tmp_path / "package", shapes=shapes, library_only=True)
    reference = np.load(SHARED / entry["ref"])
    noise = max(v["max"] for v in entry["vendor_disagreement"].values())
    count = entry["samples"]
    worst: dict[int, float] = {}
    for step in range(count):
        inputs = {f"in{i}": np.asarray(reference[f"in{i}"][step]) for i in range(len(entry["inputs"]))}
        results = list(package.run(inputs).values())
        for i, result in enumerate(results):
            if f"out{i}" not in reference:
                continue
            exact = np.asarray(reference[f"out{i}"][step], np.float64)
            assert result.shape == exact.shape
            bound = max(1e-4 * float(np.abs(exact).max(initial=0.0)) + 1e-6, noise)
            worst[i] = max(worst.get(i, 0.0), float(np.abs(result - exact).max(initial=0.0)) / bound)
    assert worst and max(worst.values()) <= 1.0, f"error over bound, by output: {worst}"


@pytest.mark.parametrize("name", ["dtln1_onnx"])
def test_a_state_that_the_package_carries_is_the_state_fed_by_hand(name: str, tmp_path: Path) -> None:
    entry = next(m for m in ONNX if m["id"] == name)
    reference = np.load(SHARED / entry["ref"])
    fed, made = entry["inputs"][1][0], entry["outputs"][1][0]
    by_hand = intaglio.compile(SHARED / entry["file"], output=tmp_path / "a", library_only=True)
    carried = intaglio.compile(SHARED / entry["file"], output=tmp_path / "b", states={fed: made}, library_only=True)
    state = np.zeros_like(reference["in1"][0])
    steps = carried.run_steps({"in0": reference["in0"][:4]})
    for step in range(4):
        results = by_hand.run({"in0": reference["in0"][step], "in1": state})
        state = results[made]
        first = next(iter(results))
        np.testing.assert_array_equal(steps[first][step], results[first])
