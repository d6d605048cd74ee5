"""SavedModel folders and frozen graphs with a real TensorFlow, which is too large for the environment of the project: it has one
of its own under `build/`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.commands import Intaglio

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / "build" / "tensorflow"
MAKE = ROOT / "tests" / "support" / "tensorflow_models.py"


def ran(*command: str | Path) -> subprocess.CompletedProcess[str]:
    quiet = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False, env=quiet, timeout=1800)


@pytest.fixture(scope="module")
def tensorflow() -> Path:
    """The interpreter of an environment with TensorFlow and Intaglio; skipped where pip cannot make it."""
    python = HOME / "bin" / "python"
    if not (HOME / ".installed").is_file():
        made = ran(sys.executable, "-m", "venv", HOME)
        if made.returncode == 0:
            made = ran(python, "-m", "pip", "install", "-q", "tensorflow-cpu", "-e", ROOT)
        if made.returncode:
            pytest.skip(f"pip cannot install TensorFlow: {made.stderr.strip()[-300:]}")
        (HOME / ".installed").touch()
    return python


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
