"""From a file to a ModelProto, or to one clear error. Nothing in the file is executed and nothing is trusted."""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intaglio.errors import ModelError

MAX_FILE_BYTES = 2**31 - 1
MAX_GRAPH_DEPTH = 32
MAX_ITEMS = 150_000  # nodes, initializers, inputs, ... in the file; real models have some ten thousand
MAX_FIELDS = 2_000_000
MAX_VALUES = 20_000_000  # numbers and strings of attributes: a forest of trees or a vocabulary has millions
_VALUES = (7, 8, 9)  # AttributeProto.floats, ints, strings
# Fields of ModelProto and their wire types (onnx.proto): enough to tell a cut model from something else.
_MODEL_FIELDS = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
# Where messages hold messages that may hold graphs again: kind -> field -> kind (GraphProto.node is 1, and so on).
_INSIDE = {
    "model": {7: "graph", 25: "function"}, "graph": {1: "node"}, "function": {7: "node"}, "node": {5: "attribute"},
    "attribute": {6: "graph", 11: "graph"},
}  # fmt: skip
_TENSORS = {"graph": {5: "tensor"}, "attribute": {5: "tensor", 10: "tensor"}}
_DATA_LOCATION = 14  # of TensorProto: 1 is another file
_OP_TYPE = 4  # of NodeProto
_ORT_MARK = b"ORTM"  # behind four bytes, as in any FlatBuffer


def read_model(path: Path) -> Any:
    where = path.name
    content = _mapped(path)
    if not content:
        raise ModelError("not-a-model", f"`{where}` is empty", where=where, hint="export the model again")
    if content[4:8] == _ORT_MARK:
        raise ModelError(
            "not-a-model", f"`{where}` has ONNX Runtime's own format, ORT", where=where,
            hint="give the ONNX file that it was converted from",
        )  # fmt: skip
    state = _scan(content)
    if state == "other":
        raise ModelError(
            "not-a-model", f"`{where}` is not an ONNX model", where=where,
            hint="the file must be a serialised ONNX `ModelProto`; a text, zip, TFLite or weights file is not",
        )  # fmt: skip
    if state == "truncated":
        raise ModelError(
            "truncated-model", f"`{where}` ends in the middle of a field", where=where,
            hint="copy or download the file again, and compare its size with the original",
        )  # fmt: skip
    if crowd := _crowd(content):
        raise ModelError(
            "too-large", f"`{where}` has more than {crowd}", where=where,
            hint="simplify the model before exporting it; in a graph of this size, most nodes are dead, unrolled or constant",
        )  # fmt: skip
    import onnx
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    try:
        with memoryview(content) as view:
            model.ParseFromString(view)
    except (DecodeError, ValueError, RecursionError, UnicodeDecodeError) as error:
        raise ModelError(
            "not-a-model", f"`{where}` cannot be read as an ONNX model: {_first_line(error)}", where=where,
            hint="the file is damaged, or nested too deeply; export the model again",
        ) from None  # fmt: skip
    del content
    _check_header(model, path)
    return model


def _mapped(path: Path) -> bytes | mmap.mmap:
    """The file, not read before it has been looked at: something else may be two gigabytes of zeros."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise ModelError("not-a-model", f"`{path}` is not a regular file", hint="give the path of a model file")
            if info.st_size > MAX_FILE_BYTES:
                raise ModelError(
                    "too-large", f"`{path.name}` has {info.st_size} bytes; protobuf allows at most 2 GB", where=path.name,
                    hint="save the model with external data (`onnx.save(..., save_as_external_data=True)`)",
                )  # fmt: skip
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if info.st_size else b""
    except OSError as error:
        reason = error.strerror or str(error)
        raise ModelError("not-a-model", f"cannot read `{path}`: {reason}", hint="check the path and its permissions") from None


def _without_waiting(path: str, flags: int) -> int:
    """A pipe without a writer must not stop us."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or ["malformed"])[0]


def _scan(content: bytes | mmap.mmap) -> str:
    """Walks the outermost fields: `model`, `truncated` (all fine until the end) or `other`."""
    at, size, seen = 0, len(content), 0
    while at < size:
        key, at = _varint(content, at)
        if at < 0:
            return "truncated" if seen else "other"
        field, wire = key >> 3, key & 7
        if wire == 3 or wire == 4 or wire > 5 or field == 0:
            return "other"
        if field in _MODEL_FIELDS and wire != _MODEL_FIELDS[field]:
            return "other"
        if field not in _MODEL_FIELDS and not seen:
            return "other"
        if wire == 0:
            _, at = _varint(content, at)
        elif wire == 2:
            length, at = _varint(content, at)
            at = at + length if at >= 0 else at
        else:
            at += 8 if wire == 1 else 4
        if at < 0 or at > size:
            return "truncated" if seen or field in (1, 7) else "other"
        seen += 1
    return "model"


def _crowd(content: bytes | mmap.mmap) -> str:
    """What it has so many of that the parsed model would fill the memory (an empty node takes two bytes of file), or nothing."""
    fields = items = values = 0
    pending = [("model", 0, 0, len(content))]
    while pending:
        kind, depth, at, end = pending.pop()
        inside = _INSIDE[kind]
        while 0 <= at < end:
            key, at = _varint(content, at)
            wire = key & 7
            if kind == "attribute" and key >> 3 in _VALUES:
                values += 1
            else:
                fields += 1
            if kind in ("graph", "function"):
                items += depth  # what is nested is looked at once per level
            if wire == 0:
                _, at = _varint(content, at)
            elif wire == 2 and at >= 0:
                length, at = _varint(content, at)
                inner = inside.get(key >> 3)
                if inner is not None and at >= 0:
                    pending.append((inner, depth + (inner in ("graph", "function")), at, min(end, at + length)))
                at += length if at >= 0 else 0
            elif wire in (1, 5) and at >= 0:
                at += 8 if wire == 1 else 4
            else:
                break  # damaged, which the parser will say
            if items > MAX_ITEMS or fields > MAX_FIELDS:
                return f"{MAX_ITEMS:,} nodes and tensors"
            if values > MAX_VALUES:
                return f"{MAX_VALUES:,} numbers and strings in attributes"
    return ""


@dataclass(frozen=True, slots=True)
class Skimmed:
    """What the file of a model that was read before tells without its weights, which are stepped over: parsing would copy them."""

    outside: bool  # it names tensors in other files
    items: int  # nodes and tensors of its graph
    operators: frozenset[str]


def skim(path: Path) -> Skimmed:
    content = _mapped(path)
    outside, items, operators = False, 0, set[bytes]()
    pending = [("model", "", 0, len(content))]
    while pending:
        kind, around, at, end = pending.pop()
        inside = {**_INSIDE.get(kind, {}), **_TENSORS.get(kind, {})}
        while 0 <= at < end:
            key, at = _varint(content, at)
            field, wire = key >> 3, key & 7
            items += around == "model" and kind == "graph" and field in (1, 5)
            if wire == 0:
                value, at = _varint(content, at)
                outside |= kind == "tensor" and field == _DATA_LOCATION and value == 1
            elif wire == 2 and at >= 0:
                length, at = _varint(content, at)
                if field in inside and at >= 0:
                    pending.append((inside[field], kind, at, min(end, at + length)))
                elif kind == "node" and field == _OP_TYPE and at >= 0:
                    operators.add(bytes(content[at : min(end, at + length)]))
                at += length if at >= 0 else 0
            elif wire in (1, 5) and at >= 0:
                at += 8 if wire == 1 else 4
            else:
                break
    return Skimmed(outside, items, frozenset(name.decode("utf-8", "replace") for name in operators))


def _varint(content: bytes | mmap.mmap, at: int) -> tuple[int, int]:
    """(value, next position); position -1 when it does not end."""
    value = 0
    for i in range(10):
        if at + i >= len(content):
            return 0, -1
        byte = content[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value, at + i + 1
    return 0, -1


def _check_header(model: Any, path: Path) -> None:
    import onnx

    where = path.name
    if not model.HasField("graph"):
        raise ModelError("truncated-model", f"`{where}` has no graph", where=where, hint="the file is cut short; export it again")
    if model.ir_version < 1 or model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            "unsupported-opset", f"`{where}` has IR version {model.ir_version}, supported: 1 to {onnx.IR_VERSION}",
            where=where, hint="install a newer `onnx`, or export with an older IR version",
        )  # fmt: skip
    if not model.opset_import and model.ir_version >= 3:
        raise ModelError(
            "truncated-model", f"`{where}` does not declare its opset", where=where,
            hint="the file is cut short, or was written by a broken exporter; export it again",
        )  # fmt: skip
    newest = onnx.defs.onnx_opset_version()
    for domain, version in opsets_of(model.opset_import).items():
        if not domain and not 1 <= version <= newest:
            raise ModelError(
                "unsupported-opset", f"`{where}` uses opset {version}, supported: 7 to {newest}",
                where=where, hint=f"convert it with `onnx.version_converter` or export with opset {newest}",
            )  # fmt: skip


def newest_opset(domain: str) -> int:
    """Of a domain that a file uses and does not declare; ONNX Runtime too takes the newest that it knows."""
    import onnx

    return max((s.since_version for s in onnx.defs.get_all_schemas() if s.domain == domain), default=1)


def opsets_of(entries: Any, inherited: dict[str, int] | None = None) -> dict[str, int]:
    """The opset version of each domain; a function inherits those of its caller that it does not name."""
    table = {"": 1} if inherited is None else dict(inherited)
    for entry in entries:
        table["" if entry.domain == "ai.onnx" else entry.domain] = entry.version
    return table
