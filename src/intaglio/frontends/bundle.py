"""Bundles of MediaPipe (`.task`): archives that hold TFLite models, or bundles with models. Each model is taken out into a folder
that goes with the process, and is a model file like any other. `--signature` names one of several.

    hand_landmarker.task -> hand_detector, hand_landmarks_detector
"""

from __future__ import annotations

import io
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from intaglio.errors import ModelError, UserError, printable, quoted

MOST_FILES, MOST_BYTES, DEEPEST = 1000, 1 << 30, 3
_START, _ENDING = b"PK\x03\x04", ".tflite"


@dataclass(slots=True)
class _Taken:
    """Models that were taken out, by their bundle and its state."""

    folder: tempfile.TemporaryDirectory[str] | None = None
    models: dict[object, dict[str, Path]] = field(default_factory=dict)


_TAKEN = _Taken()


def models_of(path: Path) -> dict[str, Path]:
    """By name; none where this is not a bundle."""
    try:
        if not path.is_file():
            return {}
        with open(path, "rb") as file:
            if file.read(4) != _START:
                return {}
        state = (path.resolve(), (found := path.stat()).st_mtime_ns, found.st_size)
        if state not in _TAKEN.models:
            with zipfile.ZipFile(path) as archive:
                if not any(name.endswith((_ENDING, ".task")) for name in archive.namelist()[:MOST_FILES]):
                    return {}
                _TAKEN.models[state] = _taken_out(path, archive)
        return _TAKEN.models[state]
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, EOFError):
        return {}


def opened(path: Path, signature: str | None) -> tuple[Path, str | None]:
    """The model itself, and its signature: of a bundle, the one that is named or the only one."""
    models = models_of(path)
    if not models:
        return path, signature
    if signature is None and len(models) == 1:
        return next(iter(models.values())), None
    if signature in models:
        return models[signature], None
    names = ", ".join(quoted(name) for name in models)
    if signature is None:
        what, hint = f"{quoted(path.name)} holds {len(models)} models", f"choose one with `--signature`: {names}"
        raise UserError("which-model", what, hint=f"{hint}; `intaglio compile` makes entry points of all")
    raise UserError("which-model", f"{quoted(path.name)} holds no model {quoted(signature)}", hint=f"it holds {names}")


def _taken_out(path: Path, archive: zipfile.ZipFile) -> dict[str, Path]:
    _TAKEN.folder = _TAKEN.folder or tempfile.TemporaryDirectory(prefix="intaglio-")
    folder = Path(_TAKEN.folder.name) / str(len(_TAKEN.models))
    found: dict[str, Path] = {}
    room = MOST_BYTES
    try:
        for stem, data in _members(archive, DEEPEST):
            name = stem if stem not in found else next(n for k in range(2, MOST_FILES) if (n := f"{stem}_{k}") not in found)
            room -= len(data)
            if room < 0:
                raise ModelError("too-large", f"{quoted(path.name)} holds more than {MOST_BYTES >> 30} GB of models")
            folder.mkdir(parents=True, exist_ok=True)
            found[name] = folder / f"{name}{_ENDING}"
            found[name].write_bytes(data)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error, ValueError) as error:
        what = f"the bundle {quoted(path.name)} is damaged: {printable(str(error), 120)}"
        raise ModelError("bad-file", what, hint="download it again") from None
    return found


def _members(archive: zipfile.ZipFile, depth: int) -> Iterator[tuple[str, bytes]]:
    """TFLite models, with clean names; those of bundles inside of it too."""
    for info in archive.infolist()[:MOST_FILES]:
        inner = info.filename.endswith(".task") and depth > 1
        if not inner and not info.filename.endswith(_ENDING):
            continue
        if info.file_size > MOST_BYTES:
            raise ValueError("a model is too large")
        with archive.open(info) as member:
            data = member.read(MOST_BYTES)
        if inner:
            with zipfile.ZipFile(io.BytesIO(data)) as nested:
                yield from _members(nested, depth - 1)
        else:
            stem = PurePosixPath(info.filename).stem[:60] or "model"
            yield "".join(c if c.isascii() and c.isalnum() else "_" for c in stem), data
