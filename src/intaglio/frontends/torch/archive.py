"""The outside of a `.pt2` file: a zip with a graph in JSON and weights as plain bytes. Nothing in it is ever unpickled.

NAME/models/model.json                        the exported program
NAME/data/weights/model_weights_config.json   where each parameter and buffer is
NAME/data/weights/weight_0, ...               the bytes of a storage
NAME/data/constants/...                       the same for constants of the graph
NAME/data/sample_inputs/model.pt              a pickle, which is not opened
"""

from __future__ import annotations

import json
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from intaglio.errors import ModelError, quoted

MOST_ENTRIES = 100_000
MOST_JSON_BYTES = 256 << 20
MOST_BYTES = 4 << 30
MOST_RATIO = 100  # torch stores entries as they are; one that grows more than this is a bomb
BROKEN = (
    zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError, OSError, ValueError, OverflowError, MemoryError,
)  # fmt: skip
_SCRIPT = "if you trust it, `intaglio.compile(torch.jit.load(file), example_inputs=(...))` converts it; or export the model again"
AGAIN = "export it again: `torch.export.save(torch.export.export(model, example_inputs), 'model.pt2')`"


@dataclass(slots=True)
class Archive:
    file: str
    zip: zipfile.ZipFile
    entries: dict[str, zipfile.ZipInfo]  # by path below the root folder
    read_bytes: int = 0
    storages: dict[str, bytes] = field(default_factory=dict)

    def fault(self, slug: str, reason: str, hint: str = AGAIN) -> ModelError:
        return ModelError(slug, reason, where=self.file, hint=hint)

    def content(self, name: str, most: int = MOST_BYTES) -> bytes:
        info = self.entries.get(name)
        if info is None:
            raise self.fault("bad-archive", f"there is no {quoted(name)} in the archive")
        self.read_bytes += info.file_size
        if info.file_size > most or self.read_bytes > MOST_BYTES or info.file_size > (info.compress_size + 4096) * MOST_RATIO:
            raise self.fault("too-large", f"the entry {quoted(name)} unpacks to {info.file_size} bytes")
        try:
            with self.zip.open(info) as stream:
                data = stream.read(info.file_size + 1)
        except BROKEN as error:
            raise self.fault("truncated-model", f"the entry {quoted(name)} is damaged: {_told(error)}") from None
        if len(data) != info.file_size:
            raise self.fault("truncated-model", f"the entry {quoted(name)} has {len(data)} bytes, not {info.file_size}")
        return data

    def json(self, name: str) -> Any:
        try:
            return json.loads(self.content(name, MOST_JSON_BYTES))
        except (ValueError, RecursionError) as error:
            raise self.fault("bad-archive", f"the entry {quoted(name)} is not JSON: {_told(error)}") from None

    def storage(self, name: str) -> bytes:
        """Read once: parameters may share one."""
        if name not in self.storages:
            self.storages[name] = self.content(name)
        return self.storages[name]


def open_archive(path: Path) -> Archive:
    shown = quoted(str(path), 200)
    with open(path, "rb") as file:
        start = file.read(4)
    if start[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        raise _pickled(path.name, shown)
    if not start.startswith(b"PK"):
        raise ModelError("not-a-model", f"{shown} is not a PyTorch archive", hint=AGAIN)
    try:
        archive = zipfile.ZipFile(path)
        infos = archive.infolist()
    except BROKEN as error:
        raise ModelError("truncated-model", f"{shown} is not a complete zip archive: {_told(error)}", hint=AGAIN) from None
    if len(infos) > MOST_ENTRIES:
        raise ModelError("too-large", f"{shown} has {len(infos)} entries", hint=AGAIN)
    entries: dict[str, zipfile.ZipInfo] = {}
    roots = set()
    for info in infos:
        root, slash, rest = info.filename.partition("/")
        roots.add(root)
        if info.filename.endswith("/"):  # `is_dir` fails on an empty name
            continue
        if info.filename in entries or rest in entries:
            raise ModelError("bad-archive", f"{shown} has the entry {quoted(info.filename)} twice", hint=AGAIN)
        entries[rest if slash else info.filename] = info
    found = Archive(path.name, archive, entries)
    _refuse_others(found, shown)
    if len(roots) != 1:
        raise ModelError("bad-archive", f"{shown} has {len(roots)} folders at its root, not one", hint=AGAIN)
    return found


def _refuse_others(archive: Archive, shown: str) -> None:
    names = archive.entries
    if any(name.startswith("models/") and name.endswith(".json") for name in names):
        return
    if "serialized_exported_program.json" in names:
        reason = f"{shown} was exported by torch 2.7 or older, which pickles weights; pickles are never opened"
        raise archive.fault("unsupported-format", reason, f"with torch 2.9 or newer, {AGAIN}")
    if "constants.pkl" in names or any(name.startswith("code/") for name in names):
        raise archive.fault("unsupported-format", f"{shown} is a TorchScript model, which holds pickles and code", _SCRIPT)
    if "data.pkl" in names:
        raise _pickled(archive.file, shown)
    if any(name.startswith("data/aotinductor/") for name in names):
        raise archive.fault("unsupported-format", f"{shown} holds a compiled library, not a graph", AGAIN)
    raise archive.fault("unsupported-format", f"{shown} is a zip archive without an exported program", AGAIN)


def _pickled(file: str, shown: str) -> ModelError:
    reason = f"{shown} is a pickle (a state dict or a module); opening one can run any code, so it is not opened"
    return ModelError("unsupported-format", reason, where=file, hint=f"load it yourself if you trust it, then {AGAIN}")


def _told(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return quoted(lines[0] if lines else type(error).__name__, 120)
