"""Small networks of the kinds that the shared models are, from file to compiled package, against the runtimes they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.ir.graph import Array
from intaglio.run.package import Package
from support.small_networks import TFLITE, quantised_onnx
from support.tflite_models import all_by_litert


def pictures(shape: tuple[int, ...], count: int) -> list[Array]:
    rng = np.random.default_rng(9)
    return [rng.integers(-128, 128, shape).astype(np.int8) for _ in range(count)]


def only(results: dict[str, Array]) -> Array:
    (result,) = results.values()
    return result


def given(package: Package) -> list[Array]:
    return pictures(package.manifest.inputs[0].shape, 4)


@pytest.mark.parametrize("name", TFLITE)
def test_a_compiled_network_matches_litert_bit_for_bit(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(TFLITE[name]())
    package = intaglio.compile(path, output=tmp_path / "p", library_only=True)
    feeds = given(package)
    wanted = [outputs[0] for outputs in all_by_litert(path, [[x] for x in feeds])]
    assert len(np.unique(np.stack(wanted))) > 3, "results that do not differ prove nothing"
    for x, want in zip(feeds, wanted, strict=True):
        np.testing.assert_array_equal(only(package.run({"in0": x})), want)


@pytest.mark.parametrize("name", ["keywords", "images", "anomalies"])
def test_a_core_without_an_operating_system_gives_the_same(name: str, tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    path = tmp_path / f"{name}.tflite"
    path.write_bytes(TFLITE[name]())
    package = intaglio.compile(path, output=tmp_path / "p", target="cortex-m4f")
    x = given(package)[0]
    np.testing.assert_array_equal(only(package.run({"in0": x})), all_by_litert(path, [[x]])[0][0])


def test_a_network_of_quantize_and_dequantize_matches_onnx_runtime(tmp_path: Path) -> None:
    import onnxruntime

    path = quantised_onnx(tmp_path)
    package = intaglio.compile(path, output=tmp_path / "p", library_only=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options)
    rng = np.random.default_rng(9)
    seen = set()
    for _ in range(4):
        x = rng.standard_normal((1, 3, 8, 8)).astype(np.float32)
        want, got = session.run(None, {"x": x})[0], only(package.run({"in0": x}))
        assert float(np.abs(got - want).max()) <= 0.04 + 1e-6, "more than one step"
        seen |= set(np.asarray(want).ravel().tolist())
    assert len(seen) > 5
