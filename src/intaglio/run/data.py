"""Arrays in and out of files: .npz by name, .npy for a single input. Pickles are never opened."""

from __future__ import annotations

import math
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import numpy as np

from intaglio.errors import UserError, printable, quoted
from intaglio.ir.graph import Array
from intaglio.package.folder import check_kind, fresh_file
from intaglio.package.manifest import Manifest

MOST_BYTES = 8 << 30  # of one archive, unpacked: beyond this it is a bomb or a mistake
BOMB_BYTES, BOMB_RATIO = 256 << 20, 100  # so is one that is large and nearly empty


def read_arrays(path: Path) -> dict[str, Array]:
    """The arrays of a file; a .npy file is `in0`."""
    shown = quoted(str(path), 200)
    if not path.is_file():
        raise UserError("no-such-file", f"there is no file {shown}", hint="give a .npz or .npy file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numpy's, about files of Python 2
            if (found := _arrays(path)) is not None:
                return found
    except Exception as error:  # numpy, zipfile and tokenize fail on damaged files in as many ways as there are bytes
        reason = printable(str(error) or type(error).__name__, 200)
        raise UserError("bad-data", f"{shown} is damaged: {reason}", hint="write it with `numpy.savez`") from None
    hint = "write inputs with `numpy.savez(path, **{name: array})` or `numpy.save`"
    raise UserError("bad-data", f"{shown} is neither .npz nor .npy", hint=hint)


def _arrays(path: Path) -> dict[str, Array] | None:
    """None where the file is of neither kind."""
    with open(path, "rb") as file:
        start = file.read(6)
    if start == b"\x93NUMPY":
        with open(path, "rb") as file:
            _need_its_size(file, path.stat().st_size)
        return {"in0": np.asarray(np.load(path, allow_pickle=False))}
    return _archive(path) if start[:2] == b"PK" else None


def _archive(path: Path) -> dict[str, Array]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        if len(set(names)) != len(names):
            raise ValueError("it has a member twice")
        size = sum(member.file_size for member in archive.infolist())
        if size > MOST_BYTES:
            raise ValueError(f"it unpacks to more than {MOST_BYTES >> 30} GB")
        if size > BOMB_BYTES and size > BOMB_RATIO * path.stat().st_size:
            raise ValueError(f"it unpacks to {size >> 20} MB, {BOMB_RATIO} times its size and more")
        for member in archive.infolist():
            with archive.open(member) as file:
                _need_its_size(file, member.file_size)
    with np.load(path, allow_pickle=False) as loaded:
        return {name: np.asarray(loaded[name]) for name in loaded.files}


def _need_its_size(file: IO[bytes], size_bytes: int) -> None:
    """The header must promise what is there: numpy makes room for it before it reads."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("it contains Python objects, which are never loaded")
    if file.tell() + math.prod(shape) * dtype.itemsize != size_bytes:
        raise ValueError("an array is shorter than its header declares")


def write_arrays(path: Path, manifest: Manifest, arrays: Mapping[str, Array]) -> None:
    """Outputs under their names; a name that would leave the folder it is unpacked in becomes `out0`, `out1`, ..."""
    if path.is_dir():
        raise UserError("cannot-write", f"{quoted(str(path), 200)} is a folder", hint="give a file that ends in .npz")
    check_kind(path, "a file of arrays", (b"PK\x03\x04", b"PK\x05\x06", b"\x93NUMPY"))
    with fresh_file(path) as fresh:
        if path.suffix == ".npy" and len(arrays) == 1:
            with open(fresh, "wb") as file:
                np.save(file, next(iter(arrays.values())), allow_pickle=False)
            return
        safe = _safe_names([info.name for info in manifest.outputs])
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_STORED) as archive:
            for info in manifest.outputs:
                member = zipfile.ZipInfo(f"{safe[info.name]}.npy", (1980, 1, 1, 0, 0, 0))
                with archive.open(member, "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, np.asarray(arrays[info.name]), allow_pickle=False)


def _safe_names(names: list[str]) -> dict[str, str]:
    return {name: name if _is_safe(name) else f"out{i}" for i, name in enumerate(names)}


def _is_safe(name: str) -> bool:
    if not name or not name.isprintable() or name.startswith(("/", "\\")) or "\\" in name or len(name.encode()) > 1000:
        return False
    return ".." not in name.split("/") and name[1:2] != ":"
