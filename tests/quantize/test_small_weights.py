"""`--quantize weights` and `--weights fp16`: small packages, near results, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from intaglio.ir.graph import Array
from support.commands import DIGITS, Intaglio
from support.onnx_models import INT64, model, node, saved, value

OPTIONS = {"f32": [], "i8": ["--quantize", "weights"], "f16": ["--weights", "fp16"]}
_RNG = np.random.default_rng(3)


def real(*shape: int) -> Array:
    return np.asarray(_RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1), np.float32)


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A table, a convolution, a depthwise one, a transposed one, an LSTM and a fully connected layer."""
    weights = {
        "table": real(200, 16), "wc": real(24, 16, 3), "bc": real(24), "wd": real(24, 1, 5), "wt": real(24, 16, 4), "bt": real(16),
        "w": real(1, 80, 16), "r": real(1, 80, 20), "b": real(1, 160), "fc": real(20, 50), "fb": real(50),
    }  # fmt: skip
    nodes = [
        node("Gather", "table i", "e"), node("Transpose", "e", "t", perm=[0, 2, 1]),
        node("Conv", "t wc bc", "c", pads=[1, 1]), node("Relu", "c", "cr"),
        node("Conv", "cr wd", "d", pads=[2, 2], group=24), node("ConvTranspose", "d wt bt", "u", strides=[2]),
        node("Transpose", "u", "s", perm=[2, 0, 1]), node("LSTM", "s w r b", "_ h", hidden_size=20),
        node("Squeeze", "h axes", "q"), node("MatMul", "q fc", "m"), node("Add", "m fb", "y"),
    ]  # fmt: skip
    weights["axes"] = np.array([0], np.int64)
    return saved(model(nodes, [value("i", [1, 12], INT64)], [value("y", [1, 50])], weights), tmp_path)


def weight_bytes(package: Path) -> int:
    return int(json.loads((package / "manifest.json").read_text())["memory"]["weight_bytes"])


@pytest.mark.slow
def test_packages_shrink_and_stay_near(intaglio: Intaglio, mixed: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", i=np.arange(12).reshape(1, 12) * 7)
    outs = {}
    for name, words in OPTIONS.items():
        said = intaglio("compile", mixed, "-o", tmp_path / name, *words)
        assert said.code == 0, said.err
        ran = intaglio("run", tmp_path / name, "--input", tmp_path / "x.npz", "--output", tmp_path / f"{name}.npz")
        assert ran.code == 0, ran.err
        outs[name] = np.load(tmp_path / f"{name}.npz")["y"].astype(np.float64).ravel()
    full = weight_bytes(tmp_path / "f32")
    assert weight_bytes(tmp_path / "i8") < 0.35 * full and weight_bytes(tmp_path / "f16") < 0.6 * full
    for name, bound in (("i8", 0.995), ("f16", 0.99999)):
        cosine = outs[name] @ outs["f32"] / np.linalg.norm(outs[name]) / np.linalg.norm(outs["f32"])
        assert bound < cosine < 1.0


@pytest.mark.parametrize("kind", ["i8", pytest.param("f16", marks=pytest.mark.slow)])
def test_a_package_validates_against_its_own_weights(intaglio: Intaglio, mixed: Path, tmp_path: Path, kind: str) -> None:
    np.savez(tmp_path / "x.npz", i=np.arange(12).reshape(1, 12))
    assert intaglio("compile", mixed, "-o", tmp_path / "p", *OPTIONS[kind]).code == 0
    said = intaglio("validate", tmp_path / "p", "--inputs", tmp_path / "x.npz", "--layers")
    assert said.code == 0, said.out
    assert "numpy references" in said.out and "to the float model" in said.out
    random = intaglio("validate", tmp_path / "p")
    assert "to the float model" in random.out and "calibrated" not in random.out  # nothing was calibrated


def test_what_was_stored_is_told(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--quantize", "weights", "--stop-after", "package")
    assert said.code == 0 and "note: weights are stored as i8:" in said.err


def test_integers_are_left_and_it_is_told(intaglio: Intaglio, tmp_path: Path) -> None:
    weights = {
        "w": _RNG.integers(-99, 99, (16, 24)).astype(np.int8), "s": np.array(0.1, np.float32), "z": np.array(0, np.int8),
        "ys": np.array(2.0, np.float32),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("QLinearMatMul", "q s z w s z ys z", "p"),
        node("DequantizeLinear", "p ys z", "y"),
    ]
    path = saved(model(nodes, [value("x", [1, 16])], [value("y", [1, 24])], weights), tmp_path)
    for words in (OPTIONS["i8"], OPTIONS["f16"]):
        said = intaglio("compile", path, "-o", tmp_path / "p", "--force", "--stop-after", "package", *words)
        assert said.code == 0, said.err
        assert "the weights of this model are already integers" in said.err


@pytest.mark.parametrize(
    "words",
    [
        ["--quantize", "weights", "--calibrate", "x.npz"],
        ["--quantize", "weights", "--max-error", "0.1"],
        ["--quantize", "weights", "--integer-io"],
        ["--weights", "fp16", "--calibrate", "x.npz"],
        ["--weights", "fp16", "--ranges", "mse"],
        ["--weights", "fp16", "--quantize", "weights"],
        ["--weights", "fp8"],
    ],
)
def test_words_that_do_not_go_together(intaglio: Intaglio, tmp_path: Path, words: list[str]) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", *words)
    assert said.code == 2 and "error[bad-option]" in said.err, said.err
