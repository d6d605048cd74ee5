"""The files that Keras writes: `.keras` (a zip archive of JSON and HDF5) and `.h5` (HDF5 with the JSON in an attribute).

Nothing of them is executed, and Keras is not needed: the JSON is data, and the names in it are only looked up in our own table.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intaglio.errors import ModelError, quoted
from intaglio.frontends.keras.hdf5 import Hdf5

_MOST_JSON = 1 << 28
_MOST_WEIGHTS = 1 << 34
_MOST_EXPANSION, _FREE = 100, 1 << 24  # of a zip member: a bomb expands more
_MOST_DEPTH = 100
_MOST_LISTS = 1000  # of words
_LIST = re.compile("assets/(.*)/vocabulary.txt")
_MOST_ITEMS = 5_000_000
_AGAIN = "save the model again with `model.save`"


@dataclass(slots=True)
class KerasFile:
    file: str
    config: dict[str, Any]  # class_name, config, ...
    store: Hdf5
    version: tuple[int, ...]  # of the Keras that wrote it
    legacy: bool  # .h5: weights are lists by layer; otherwise groups by class
    words: dict[str, bytes] = field(default_factory=dict)  # lists of words that were learnt, by the group of their layer


def read_model(path: Path) -> KerasFile:
    try:
        with open(path, "rb") as file:
            start = file.read(8)
    except OSError as error:
        raise ModelError("cannot-read", f"cannot read {quoted(str(path), 200)}: {error.strerror}") from None
    if start.startswith(b"PK"):
        return _archive(path)
    if start.startswith(b"\x89HDF"):
        return _whole(path)
    hint = "a Keras model is a zip archive (`.keras`) or an HDF5 file (`.h5`)"
    raise ModelError("not-a-model", f"{quoted(path.name)} is not a Keras model", where=path.name, hint=hint)


def _archive(path: Path) -> KerasFile:
    where = path.name
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist()]
            wanted = ("config.json", "metadata.json", "model.weights.h5")
            for name in wanted:
                if names.count(name) > 1:
                    raise ModelError("bad-file", f"the archive has {quoted(name)} twice", where=where, hint=_AGAIN)
            if "config.json" not in names:
                hint = "a Keras model has `config.json` in its archive"
                raise ModelError("not-a-model", f"{quoted(path.name)} is not a Keras model", where=where, hint=hint)
            if "model.weights.h5" not in names:
                other = [n for n in names if n.startswith("model.weights")]
                reason = f"the weights are stored as {quoted(other[0])}" if other else "the archive has no `model.weights.h5`"
                hint = "save the model as one `.keras` file" if other else _AGAIN
                raise ModelError("unsupported-format" if other else "bad-file", reason, where=where, hint=hint)
            config = _json(_member(archive, "config.json", _MOST_JSON, where), where)
            about = _json(_member(archive, "metadata.json", 1 << 20, where), where) if "metadata.json" in names else {}
            weights = _member(archive, "model.weights.h5", _MOST_WEIGHTS, where)
            found = (_LIST.fullmatch(name) for name in dict.fromkeys(names))
            lists = [match for match in found if match is not None][:_MOST_LISTS]
            words = {match[1]: _member(archive, match[0], _MOST_JSON, where) for match in lists}
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError, RuntimeError, MemoryError) as error:
        reason = f"the archive cannot be read: {str(error)[:200]}"
        raise ModelError("not-a-model", reason, where=where, hint="the file is damaged; " + _AGAIN) from None
    store = Hdf5(weights, where)
    return KerasFile(where, config, store, _version(str(about.get("keras_version", "3"))), legacy=False, words=words)


def _member(archive: zipfile.ZipFile, name: str, most: int, where: str) -> bytes:
    info = archive.getinfo(name)
    if info.file_size > most or info.file_size > _FREE + _MOST_EXPANSION * info.compress_size:
        reason = f"{quoted(name)} in the archive unpacks from {info.compress_size} to {info.file_size} bytes"
        raise ModelError("too-large", reason, where=where, hint="Keras does not write such an archive")
    with archive.open(info) as member:
        data = member.read(info.file_size + 1)
    if len(data) != info.file_size:
        raise ModelError("bad-file", f"{quoted(name)} in the archive is shorter than declared", where=where, hint=_AGAIN)
    return data


def _whole(path: Path) -> KerasFile:
    store, where = Hdf5(path, path.name), path.name
    text = store.text("", "model_config")
    if text is None:
        holds = "holds weights without a model" if store.names("") else "is not a Keras model"
        reason = f"{quoted(path.name)} {holds}"
        raise ModelError("not-a-model", reason, where=where, hint="save the whole model with `model.save`, not `save_weights`")
    if len(text) > _MOST_JSON:
        raise ModelError("too-large", f"the description of the model has {len(text)} characters", where=where)
    version = store.text("", "keras_version") or store.text("model_weights", "keras_version") or "1"
    return KerasFile(where, _json(text, where), store, _version(version), legacy=True)


def _json(text: str | bytes, where: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = f"the description of the model is not JSON: {str(error)[:200]}"
        raise ModelError("not-a-model", reason, where=where, hint=_AGAIN) from None
    _bounded(found, where)
    if not isinstance(found, dict):
        raise ModelError("not-a-model", "the description of the model is not an object", where=where, hint=_AGAIN)
    return found


def _bounded(found: object, where: str) -> None:
    """No deeper and no larger than models are: what follows may recurse."""
    level, count = [found], 0
    for _ in range(_MOST_DEPTH):
        count += len(level)
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
        if count > _MOST_ITEMS:
            raise ModelError("too-large", f"the description of the model has more than {_MOST_ITEMS} items", where=where)
        level = below
    raise ModelError("bad-graph", f"the description of the model is nested over {_MOST_DEPTH} deep", where=where, hint=_AGAIN)


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(n[:6]) for n in re.findall(r"\d+", text)[:3]) or (0,)
