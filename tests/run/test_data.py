"""Files of arrays, good and bad."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from intaglio.errors import UserError
from intaglio.package.manifest import Manifest
from intaglio.run.data import read_arrays, write_arrays


def outputs(*names: str) -> Manifest:
    return cast(Manifest, SimpleNamespace(outputs=[SimpleNamespace(name=n) for n in names]))


def test_names_of_models_survive(tmp_path: Path) -> None:
    names = ["a/b:0", "StatefulPartitionedCall:0", "758", "ünï"]
    write_arrays(tmp_path / "y.npz", outputs(*names), {n: np.full(2, i, np.float32) for i, n in enumerate(names)})
    with np.load(tmp_path / "y.npz") as loaded:
        assert {n: loaded[n][0] for n in loaded.files} == dict(zip(names, range(4), strict=True))


@pytest.mark.parametrize("name", ["../../x", "/etc/passwd", "a/../../b", "", "c:\\x", "x\ny", "\\\\host"])
def test_a_name_that_would_leave_the_folder_becomes_a_position(tmp_path: Path, name: str) -> None:
    write_arrays(tmp_path / "y.npz", outputs(name), {name: np.zeros(1)})
    assert zipfile.ZipFile(tmp_path / "y.npz").namelist() == ["out0.npy"]


def test_a_pickle_is_not_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match="bad-data"):
        read_arrays(tmp_path / "x.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x93NUMPY", b"hello", b"\x93NUMPY\x01\x00\xff\xff"])
def test_damaged_files_are_explained(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UserError, match="bad-data"):
        read_arrays(tmp_path / "x.npz")


def members(folder: Path) -> bytes:
    np.savez(folder / "good.npz", x=np.arange(6, dtype=np.float32))
    return (folder / "good.npz").read_bytes()


def test_every_damaged_byte_is_explained(tmp_path: Path) -> None:
    """Headers of zip and of numpy, one byte at a time: encrypted, of another version, packed by another method, no Python text."""
    good = members(tmp_path)
    np.save(tmp_path / "good.npy", np.arange(6, dtype=np.float32))
    plain = (tmp_path / "good.npy").read_bytes()
    path, refused = tmp_path / "x.npz", 0
    for content in (good, plain):
        for at in range(len(content)):
            for byte in (content[at] ^ 0xFF, content[at] ^ 1, 0x28):
                path.write_bytes(content[:at] + bytes([byte]) + content[at + 1 :])
                try:
                    read_arrays(path)  # anything but a `UserError` ends the test
                except UserError as error:
                    refused += error.slug == "bad-data" and bool(error.hint)
    assert refused > 200


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intaglio.run.data.MOST_BYTES", 1 << 20)
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(1 << 20, np.float32))
    with pytest.raises(UserError, match="unpacks to more than"):
        read_arrays(tmp_path / "x.npz")
