"""The model inside the package, as one file, so that `validate DIR` works alone."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from intaglio.errors import ModelError, quoted
from intaglio.package.folder import Later, at_once

MOST_BYTES = 2**31 - 1  # of one protobuf file
MOST_ITEMS = 50_000  # beyond this ONNX Runtime takes minutes to load it


def keep_model(path: Path, format: str, folder: Path, later: Later = at_once) -> str | None:
    """The model as one file inside the package, copied `later`; None when there is none to keep (IR files) or it is too large."""
    if format in ("tflite", "torch", "keras", "jax"):
        suffix = _keras_suffix(path) if format == "keras" else {"tflite": ".tflite", "torch": ".pt2", "jax": ".jax"}[format]
        (folder / "ir").mkdir(exist_ok=True)
        later(partial(_copy, path, folder / "ir" / f"source{suffix}"))
        return f"ir/source{suffix}"
    if format == "saved_model":
        suffix = ".savedmodel" if path.is_dir() else ".pb"
        (folder / "ir").mkdir(exist_ok=True)
        later(partial(_pack if path.is_dir() else _copy, path, folder / "ir" / f"source{suffix}"))
        return f"ir/source{suffix}"
    if format == "onnx" and copy_model(path, folder / "ir" / "source.onnx", later):
        return "ir/source.onnx"
    return None


def _copy(path: Path, target: Path) -> None:
    shutil.copyfile(path, target)


def _pack(path: Path, target: Path) -> None:
    """A folder as one archive, the same bytes for the same files."""
    with zipfile.ZipFile(target, "w") as archive:
        for file in sorted(p for p in path.rglob("*") if p.is_file()):
            entry = zipfile.ZipInfo(file.relative_to(path).as_posix())
            with open(file, "rb") as source, archive.open(entry, "w", force_zip64=True) as place:
                shutil.copyfileobj(source, place)


def _keras_suffix(path: Path) -> str:
    with open(path, "rb") as file:
        return ".h5" if file.read(4) == b"\x89HDF" else ".keras"


def copy_model(path: Path, target: Path, later: Later = at_once) -> bool:
    """Copy an ONNX model that the front end has accepted, `later` if its file is all of it; external weights move into the file.
    False: too large."""
    import onnx

    from intaglio.frontends.onnx.container import read_model, skim
    from intaglio.frontends.onnx.faults import Fault
    from intaglio.frontends.onnx.tensors import tensor_value

    found = skim(path)
    if found.items > MOST_ITEMS:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    if not found.outside:
        later(partial(_copy, path, target))
        return True
    model = read_model(path)
    external = [t for t in _tensors(model.graph) if t.data_location == onnx.TensorProto.EXTERNAL]
    if model.ByteSize() + sum(_stored_bytes(t) for t in external) > MOST_BYTES:
        return False
    for tensor in external:
        try:
            array, _ = tensor_value(tensor, path.parent, f"the tensor {quoted(tensor.name)}")
        except Fault as fault:  # one that no node reads, so that the import has not looked at it
            raise ModelError(fault.slug, fault.reason, where=path.name, hint=fault.hint or "export the model again") from None
        tensor.ClearField("external_data")
        tensor.data_location = onnx.TensorProto.DEFAULT
        tensor.raw_data = array.tobytes()
    target.write_bytes(model.SerializeToString(deterministic=True))
    return True


def _stored_bytes(tensor: Any) -> int:
    for entry in tensor.external_data:
        if entry.key == "length" and entry.value.isdigit():
            return int(entry.value)
    return 0


def _tensors(graph: Any) -> Iterator[Any]:
    """Every stored tensor, those of nested graphs included."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from _tensors(attribute.g)
            for nested in attribute.graphs:
                yield from _tensors(nested)
