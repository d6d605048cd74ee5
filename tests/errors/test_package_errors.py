"""A package or a data file that is damaged: told, never trusted, never unpickled, and never a crash of this process."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.commands import Intaglio

IMAGE = np.zeros((1, 1, 8, 8), np.float32)


@pytest.fixture
def package(digits: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(digits, tmp_path / "p"))


@pytest.fixture
def image(tmp_path: Path) -> Path:
    np.savez(tmp_path / "x.npz", image=IMAGE)
    return tmp_path / "x.npz"


EDITS: dict[str, tuple[tuple[str | int, ...], Any]] = {
    "an output that is smaller": (("outputs", 0, "shape"), [1]),
    "an input that is larger": (("inputs", 0, "shape"), [200, 300]),
    "a negative size": (("inputs", 0, "shape"), [-1, -1, 8, 8]),
    "an arena of text": (("memory", "arena_bytes"), "x"),
    "an arena below zero": (("memory", "arena_bytes"), -5),
    "no alignment": (("memory", "alignment"), 0),
    "a state beyond the arena": (("memory", "state_bytes"), 10**9),
    "a name that is a path": (("name",), "../../evil"),
    "a model outside of the package": (("model", "source"), "../../secret"),
    "a model at an absolute path": (("model", "source"), "/etc/passwd"),
    "an element type": (("inputs", 0, "dtype"), "q9"),
    "another format": (("format",), 99),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_manifest_is_refused(name: str, intaglio: Intaglio, package: Path, image: Path) -> None:
    path, value = EDITS[name]
    manifest = json.loads((package / "manifest.json").read_text())
    at = manifest
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    (package / "manifest.json").write_text(json.dumps(manifest))
    commands: list[list[str | Path]] = [["run", package, "--input", image], ["validate", package], ["profile", package]]
    for words in commands:
        said = intaglio(*words)
        assert said.code == 2
        assert "error[not-a-package]" in said.err
        assert "hint: " in said.err


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_manifest_is_told(content: bytes, intaglio: Intaglio, package: Path) -> None:
    (package / "manifest.json").write_bytes(content)
    said = intaglio("validate", package)
    assert said.code == 2
    assert "error[not-a-package]" in said.err


@pytest.mark.parametrize("part", [0.0, 0.01, 0.3, 0.6])
def test_a_library_that_is_cut_short_is_not_loaded(part: float, intaglio: Intaglio, package: Path, image: Path) -> None:
    library = package / "lib" / "libdigits.so"
    os.truncate(library, int(part * library.stat().st_size))
    said = intaglio("run", package, "--input", image)
    assert said.code == 2
    assert "error[cannot-load]" in said.err


def test_a_library_of_another_network_is_told(intaglio: Intaglio, package: Path, image: Path) -> None:
    manifest = json.loads((package / "manifest.json").read_text())
    manifest["name"] = "other"
    (package / "manifest.json").write_text(json.dumps(manifest))
    (package / "lib" / "libdigits.so").rename(package / "lib" / "libother.so")
    said = intaglio("run", package, "--input", image)
    assert said.code == 2
    assert "is not the library of `other`" in said.err


class _Evil:
    """Unpickling it makes a file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.mark),)


def _objects(path: Path) -> None:
    array = np.empty(1, object)
    array[0] = _Evil(path.with_name("mark"))
    np.savez(path, image=array)


def _header_of_terabytes(path: Path) -> None:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 9), }"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("image.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64))


def _bomb(path: Path) -> None:
    np.savez_compressed(path, image=np.zeros(1 << 20, np.float32))


def _cut(path: Path) -> None:
    np.savez(path, image=IMAGE)
    os.truncate(path, path.stat().st_size - 40)


DATA: dict[str, tuple[Callable[[Path], None], str]] = {
    "Python objects": (_objects, "bad-data"),
    "a header of terabytes": (_header_of_terabytes, "bad-data"),
    "a bomb": (_bomb, "bad-data"),
    "half a file": (_cut, "bad-data"),
    "a name that is not there": (lambda p: np.savez(p, picture=IMAGE), "wrong-input"),
    "another type": (lambda p: np.savez(p, image=IMAGE.astype(np.float64)), "wrong-input"),
    "another byte order": (lambda p: np.savez(p, image=IMAGE.astype(">f4")), "wrong-input"),
    "another shape": (lambda p: np.savez(p, image=IMAGE[..., :7]), "wrong-input"),
    "an input twice": (lambda p: np.savez(p, image=IMAGE, in0=IMAGE), "wrong-input"),
    "nothing": (lambda p: p.touch(), "bad-data"),
    "a folder": (lambda p: p.mkdir(), "no-such-file"),
}


@pytest.mark.parametrize("name", DATA)
def test_data_that_does_not_fit_is_told(
    name: str, intaglio: Intaglio, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("intaglio.run.data.BOMB_BYTES", 1 << 20)
    make, slug = DATA[name]
    make(tmp_path / "data.npz")
    for command, option in (("run", "--input"), ("validate", "--inputs")):
        said = intaglio(command, digits, option, tmp_path / "data.npz")
        assert said.code == 2
        assert f"error[{slug}]" in said.err
        assert "hint: " in said.err
    assert not (tmp_path / "mark").exists()


@pytest.mark.parametrize("tolerance", ["nan", "inf", "-inf"])
def test_a_tolerance_that_is_none(tolerance: str, intaglio: Intaglio, digits: Path) -> None:
    said = intaglio("validate", digits, f"--tolerance={tolerance}")
    assert said.code == 2
    assert "error[bad-option]" in said.err


def test_labels_that_are_no_whole_numbers(intaglio: Intaglio, digits: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "l.npy", np.full(3, np.nan))
    said = intaglio("validate", digits, "--labels", tmp_path / "l.npy")
    assert said.code == 2
    assert "are float64, not integers" in said.err


def test_steps_without_a_leading_axis(intaglio: Intaglio, digits: Path, image: Path) -> None:
    np.savez(image, image=IMAGE.reshape(8, 8))
    said = intaglio("run", digits, "--input", image, "--steps")
    assert said.code == 2
    assert "after the leading axis of steps" in said.err
    assert "hint: " in said.err


def test_outputs_into_a_folder_that_is_not_there(intaglio: Intaglio, digits: Path, image: Path, tmp_path: Path) -> None:
    said = intaglio("run", digits, "--input", image, "--output", tmp_path / "no" / "such" / "y.npz")
    assert said.code == 2
    assert "error[cannot-write]" in said.err
