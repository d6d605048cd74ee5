"""Signatures of a TFLite file become entry points of one package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import intaglio
import intaglio as api
from intaglio.errors import UserError
from support.commands import Intaglio
from support.tflite_signatures import WEIGHTS, shared_variable, two_networks


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "speech.tflite"
    path.write_bytes(two_networks())
    return path


@pytest.fixture(scope="module")
def package(model: Path) -> intaglio.EntryPoints:
    return intaglio.compile_entries(model, output=model.parent / "speech")


def test_each_signature_is_an_entry_point_with_its_names(package: intaglio.EntryPoints) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 8)).astype(np.float32)
    assert list(package) == ["encode", "step"]
    assert np.allclose(package.run({"features": x}, entry="encode")["hidden"], np.tanh(x @ WEIGHTS.T), atol=1e-5)
    assert np.allclose(package.run({"frame": x[:1]}, entry="step")["hidden"], np.maximum(x[:1] @ WEIGHTS.T, 0), atol=1e-5)


def test_weights_of_both_stand_once(package: intaglio.EntryPoints) -> None:
    assert package.about.weight_bytes < package.about.separate_weight_bytes == 2 * package.about.weight_bytes


def test_each_is_compared_with_its_signature_in_litert(package: intaglio.EntryPoints, intaglio: Intaglio) -> None:
    said = intaglio("validate", package.folder, "--json")
    rows = json.loads(said.out)["entries"]
    assert said.code == 0 and all(row["ok"] for row in rows.values())
    assert all("litert" in row["reference"] for row in rows.values()), rows
    assert intaglio("validate", package.folder, "--entry", "step", "--layers").code == 0


def test_the_command_compiles_all_or_those_that_are_named(model: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    said = intaglio("compile", model, "-o", tmp_path / "all")
    assert said.code == 0 and "2 entry points (`encode`, `step`)" in said.out
    said = intaglio("compile", model, "--entry", "step=decode", "-o", tmp_path / "one")
    assert said.code == 0 and "1 entry point (`decode`)" in said.out
    said = intaglio("compile", model, "--signature", "step", "-o", tmp_path / "plain")
    assert said.code == 0
    found = json.loads((tmp_path / "plain" / "manifest.json").read_text())
    assert [i["name"] for i in found["inputs"]] == ["frame"]
    assert intaglio("validate", tmp_path / "plain").code == 0
    assert "everything is supported" in intaglio("check", model).out


def test_a_signature_has_to_be_chosen_where_one_is_needed(model: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    with pytest.raises(UserError, match="several signatures"):
        compile_one(model)
    said = intaglio("fit", model)
    assert said.code == 2 and "error[which-signature]" in said.err and "`encode`, `step`" in said.err
    said = intaglio("compile", model, "--signature", "walk", "-o", tmp_path / "p")
    assert said.code == 2 and "error[unknown-signature]" in said.err and not (tmp_path / "p").exists()
    said = intaglio("compile", model, "--entry", "walk=run", "-o", tmp_path / "p")
    assert said.code == 2 and "models and signatures: `encode`, `step`" in said.err


def test_sizes_of_one_signature_are_given_by_its_name(model: Path, tmp_path: Path, intaglio: Intaglio) -> None:
    path = tmp_path / "open.tflite"
    path.write_bytes(two_networks(unknown_rows=True))
    made = api.compile_entries(path, shapes={"encode:features": ((1, 9), 8), "step:frame": (2, 8)}, output=tmp_path / "p")
    x = np.ones((5, 8), np.float32)
    assert np.allclose(made.run({"features": x}, entry="encode")["hidden"], np.tanh(x @ WEIGHTS.T), atol=1e-5)
    assert made["step"].manifest.inputs[0].shape == (2, 8)
    said = intaglio("compile", path, "--shape", "features=1..9,8", "-o", tmp_path / "q")
    assert said.code == 2 and "input `features`" in said.err
    assert "for one entry point only: `--shape encode:features=...`" in said.err


def compile_one(model: Path) -> intaglio.Package:
    return intaglio.compile(model)


def test_signatures_that_share_a_variable_are_refused_together(tmp_path: Path, intaglio: Intaglio) -> None:
    """An entry point has a state of its own: what `set` stores, `add` would not see."""
    path = tmp_path / "counter.tflite"
    path.write_bytes(shared_variable())
    said = intaglio("compile", path, "-o", tmp_path / "p")
    assert said.code == 2 and "error[shared-state]" in said.err and "`add` and `set`" in said.err
    assert not (tmp_path / "p").exists()
    assert intaglio("compile", path, "--signature", "add", "-o", tmp_path / "p").code == 0
    assert intaglio("compile", path, "--entry", "add=count", "-o", tmp_path / "q").code == 0
