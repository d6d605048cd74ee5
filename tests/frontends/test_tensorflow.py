"""SavedModel folders and frozen graphs with a real TensorFlow, which is too large for the environment of the project: it has one
of its own under `build/`."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

import intaglio as intaglio_package
from intaglio.errors import UserError
from intaglio.frontends.reading import check_together
from intaglio.options.entries import entry_keywords, entry_words, several
from intaglio.package.source import keep_model
from support.commands import Intaglio
from support.own_environment import ROOT, environment, ran
from support.tflite_signatures import two_networks

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
    done = ran(tensorflow, "-m", "intaglio", "validate", out)
    assert done.returncode == 0 and "matches tensorflow" in done.stdout


@pytest.mark.slow
def test_signatures_of_a_saved_model_by_tensorflow(tensorflow: Path, models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = ran(tensorflow, "-m", "intaglio", "compile", models / "two", "-o", out)
    assert done.returncode == 0 and "2 entry points (`decode`, `encode`)" in done.stdout, done.stderr[-2000:]
    done = ran(tensorflow, "-m", "intaglio", "validate", out)
    assert done.returncode == 0 and done.stdout.count("matches tensorflow") == 2


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


@pytest.fixture
def two_signatures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[Path]]:
    """A SavedModel that TensorFlow would convert to a file of two networks, and how often it is asked to."""
    asked: list[Path] = []

    def convert(path: Path, target: Path) -> Path:
        asked.append(path)
        target.write_bytes(two_networks())
        return target

    monkeypatch.setattr("intaglio.frontends.saved_model._convert", convert)
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"\x08\x01")
    return tmp_path / "saved", asked


def test_the_signatures_of_a_saved_model_are_entry_points(two_signatures: tuple[Path, list[Path]], intaglio: Intaglio) -> None:
    saved, asked = two_signatures
    assert several([saved], {}, [])
    assert {name: own["signature"] for name, (_, own) in entry_words([saved], {}, ["step=next"]).items()} == {"next": "step"}
    assert {name: own["signature"] for name, (_, own) in entry_keywords(saved, {}).items()} == {"encode": "encode", "step": "step"}
    check_together(saved, ["encode", "step"])
    assert "everything is supported" in intaglio("check", saved).out
    assert len(asked) == 1  # one conversion is enough


def test_a_saved_model_is_kept_as_one_file(two_signatures: tuple[Path, list[Path]], tmp_path: Path) -> None:
    saved, _ = two_signatures
    kept = []
    for n in (1, 2):
        (tmp_path / str(n)).mkdir()
        name = keep_model(saved, "saved_model", tmp_path / str(n))
        assert name == "ir/source.savedmodel"
        kept.append((tmp_path / str(n) / name).read_bytes())
    assert kept[0] == kept[1]
    with zipfile.ZipFile(tmp_path / "1" / "ir" / "source.savedmodel") as archive:
        assert archive.read("saved_model.pb") == b"\x08\x01"


def test_one_signature_of_a_saved_model_is_chosen(
    two_signatures: tuple[Path, list[Path]], tmp_path: Path, intaglio: Intaglio
) -> None:
    saved, _ = two_signatures
    said = intaglio("compile", saved, "-o", tmp_path / "out", "--signature", "step", "--stop-after", "import")
    assert said.code == 0, said.err
    said = intaglio("compile", saved, "-o", tmp_path / "other", "--signature", "decode")
    assert said.code == 2
    assert "unknown signature `decode`" in said.err and "`encode`, `step`" in said.err
    with pytest.raises(UserError, match="the model has several signatures") as caught:
        intaglio_package.compile(saved, output=tmp_path / "third")
    assert "`intaglio.compile_entries`" in caught.value.hint
