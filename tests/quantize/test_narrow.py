"""Weights of 4 bits: the numbers, the layers that have them, and how they are reported."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from intaglio.ir.files import read_ir
from intaglio.ir.graph import Array
from intaglio.quantize.narrow import LARGEST, VALUES, four_bits, of_a_palette
from support.commands import Intaglio
from support.onnx_models import model, node, saved, value

RNG = np.random.default_rng(4)


def test_the_scale_of_four_bits_may_cut_off_what_is_rare() -> None:
    weights = np.concatenate([RNG.standard_normal((2, 400)), [[30.0], [0.1]]], axis=1)
    most = np.abs(weights).max(axis=1, keepdims=True)
    scale = four_bits(weights, most, (1,))

    def error(scale: Array) -> Array:
        rounded = np.clip(np.rint(weights / scale), -LARGEST, LARGEST) * scale
        return np.asarray(np.square(rounded - weights).sum(axis=1))

    assert scale.shape == (2, 1) and (scale * LARGEST <= most * 1.0001).all()
    assert (error(scale) <= error(most / LARGEST)).all() and error(scale)[1] < error(most / LARGEST)[1]


def test_a_palette_has_zero_and_the_least_error() -> None:
    stored = np.asarray([-90, -88, -3, -2, 0, 0, 4, 60, 61, 62, 100, 101, 120, 121, -50, -51, 20, 21, 22, -120, -119], np.int8)
    made = of_a_palette(stored)
    assert len(np.unique(made)) <= VALUES and 0 in made
    assert (made[stored == 0] == 0).all()
    values = np.unique(stored.astype(int))
    best = min(
        sum(min((v - c) ** 2 for c in (0, *chosen)) * int((stored == v).sum()) for v in values)
        for chosen in list(combinations([v for v in values if v], VALUES - 1))
    )
    assert np.square(made.astype(int) - stored).sum() <= best + 4  # means are rounded, and 0 has a place of its own


def test_few_values_stay_as_they_are() -> None:
    stored = RNG.choice(np.asarray([-127, -5, 0, 3, 99], np.int8), (4, 9))
    np.testing.assert_array_equal(of_a_palette(stored), stored)


def network(folder: Path) -> Path:
    constants = {
        "w1": RNG.standard_normal((16, 3, 3, 3)).astype(np.float32) / 5,
        "w2": RNG.standard_normal((16, 1, 3, 3)).astype(np.float32) / 3,
        "w3": RNG.standard_normal((24, 16, 1, 1)).astype(np.float32) / 4,
        "w4": RNG.standard_normal((30, 24)).astype(np.float32) / 5,
    }
    nodes = [
        node("Conv", "x w1", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "a1"),
        node("Conv", "a1 w2", "b", pads=[1, 1, 1, 1], group=16),
        node("Relu", "b", "b1"),
        node("Conv", "b1 w3", "c"),
        node("GlobalAveragePool", "c", "m"),
        node("Flatten", "m", "f"),
        node("Gemm", "f w4", "y", transB=1),
    ]
    proto = model(nodes, [value("x", [1, 3, 8, 8])], [value("y", [1, 30])], constants)
    np.savez(folder / "data.npz", x=RNG.standard_normal((6, 1, 3, 8, 8)).astype(np.float32))
    return saved(proto, folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("narrow")
    return network(folder), folder / "data.npz"


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "kind", "most"), [("int4", "i4", 15), ("palette", "p4", 16)])
def test_large_layers_have_few_values(
    made: tuple[Path, Path], scheme: str, kind: str, most: int, intaglio: Intaglio, tmp_path: Path
) -> None:
    words: list[str | Path] = ["compile", made[0], "--quantize", scheme, "--calibrate", made[1], "--json"]
    said = intaglio(*words, "-o", tmp_path / "p")
    assert said.code == 0, said.err
    told = said.json["quantization"]
    assert [row["stored"] for row in told["layers"] if row["op"] in ("conv", "matmul")] == [kind, "i8", kind, kind]
    assert told["kept"] == {} and told["outputs"][0]["cosine"] > 0.97
    graph = read_ir(next((tmp_path / "p" / "ir").glob("*.ig")))
    weights = [n.inputs[1] for n in graph.nodes if n.op.NAME in ("qconv", "qmatmul")]
    counts = [len(np.unique(w.data)) for w in weights if w is not None and w.data is not None and w.type.elements >= 256]
    assert len(counts) == 3 and max(counts) <= most
    assert intaglio("validate", tmp_path / "p").code == 0
    said = intaglio(*words, "-o", tmp_path / "q", "--keep-int8", "3")
    assert list(said.json["quantization"]["kept"].values()) == ["i8"]


def test_layers_get_eight_bits_first(made: tuple[Path, Path], intaglio: Intaglio, tmp_path: Path) -> None:
    words: list[str | Path] = ["compile", made[0], "--quantize", "int4", "--calibrate", made[1], "--json"]
    plain = intaglio(*words, "-o", tmp_path / "q").json["quantization"]["outputs"][0]["relative"]
    said = intaglio(*words, "--max-error", str(0.6 * plain), "-o", tmp_path / "p")
    assert said.code == 0, said.err
    told = said.json["quantization"]
    assert set(told["kept"].values()) == {"i8"} and told["outputs"][0]["relative"] <= 0.6 * plain
    assert json.loads((tmp_path / "p" / "manifest.json").read_text())["options"]["quantize"] == "int4"
