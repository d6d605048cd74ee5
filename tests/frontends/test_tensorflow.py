"""SavedModel folders and frozen graphs with a real TensorFlow, which is too large for the environment of the project: it has one
of its own under `build/`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.commands import Intaglio
from support.own_environment import ROOT, environment, ran

MAKE = ROOT / "tests" / "support" / "tensorflow_models.py"


@pytest.fixture(scope="module")
def tensorflow() -> Path:
    return environment("tensorflow", "tensorflow-cpu")


@pytest.fixture(scope="module")
def models(tensorflow: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tensorflow")
    done = ran(tensorflow, MAKE, folder)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", ["saved", "frozen.pb"])
def test_a_model_of_tensorflow(name: str, tensorflow: Path, models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = ran(tensorflow, "-m", "intaglio", "compile", models / name, "-o", out)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "TensorFlow has converted" in done.stderr
    done = ran(tensorflow, "-m", "intaglio", "run", out, "--input", models / "x.npz", "--output", tmp_path / "y.npz")
    assert done.returncode == 0, done.stderr[-2000:]
    (made,) = np.load(tmp_path / "y.npz").values()
    assert np.allclose(made, np.load(models / "y.npz")["y"], atol=1e-5)
    assert ran(tensorflow, "-m", "intaglio", "validate", out).returncode == 0


def test_a_frozen_graph_needs_tensorflow(tmp_path: Path, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intaglio.frontends.saved_model.find_spec", lambda name: None)
    (tmp_path / "m.pb").write_bytes(b"\n\x05\n\x01x\x12\x00")
    said = intaglio("compile", tmp_path / "m.pb", "-o", tmp_path / "out")
    assert said.code == 2
    assert "is a frozen graph of TensorFlow, which needs TensorFlow" in said.err


@pytest.mark.parametrize("version", [b"\x08\x01", b""])
@pytest.mark.parametrize("size", [3, 300])
def test_the_file_of_a_saved_model_alone_is_told(size: int, version: bytes, tmp_path: Path, intaglio: Intaglio) -> None:
    """Version 1, and a graph that starts with what is known about it."""
    inner = b"\n" + bytes([size - 2 & 0x7F | 0x80, size - 2 >> 7]) + b"\x12" * (size - 2)
    length = bytes([len(inner) & 0x7F | 0x80, len(inner) >> 7]) if len(inner) > 127 else bytes([len(inner)])
    (tmp_path / "m.pb").write_bytes(version + b"\x12" + length + inner)
    said = intaglio("compile", tmp_path / "m.pb", "-o", tmp_path / "out")
    assert said.code == 2
    assert "is a part of a SavedModel" in said.err and "give the folder" in said.err
