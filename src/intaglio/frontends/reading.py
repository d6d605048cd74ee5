"""Which front end reads a file: told by its content, since extensions are often wrong."""

from __future__ import annotations

import hashlib
import importlib
import os
import stat
import zipfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from intaglio.errors import ModelError, UserError, quoted
from intaglio.frontends.bundle import models_of
from intaglio.ir.choices import OPEN, Choices
from intaglio.ir.graph import FIRST_STAGE, Array, Graph
from intaglio.ir.names import is_clean
from intaglio.ir.placement import NOWHERE, Placement
from intaglio.ir.spans import BY_MODEL, Dims, Shapes

if TYPE_CHECKING:
    from intaglio.frontends.onnx.faults import Problem


class FrontEnd(Protocol):
    """What the module `intaglio.frontends.KIND` offers."""

    def load(
        self, path: Path, *, dims: Dims, shapes: Shapes, name: str | None = None, **chosen: Chosen
    ) -> tuple[Graph, list[str]]: ...

    def check(self, path: Path, *, dims: Dims, shapes: Shapes, **chosen: Chosen) -> list[Problem]: ...


@dataclass(frozen=True, slots=True)
class Source:
    graph: Graph
    sha256: str  # of the model file
    format: str  # onnx, tflite, torch, keras, saved_model, jax or ir
    choices: Choices = OPEN  # kernels that an IR file asks for
    placement: Placement = NOWHERE  # addresses that it gives
    stage: str = FIRST_STAGE  # that it was written after


def read_source(
    path: Path,
    dims: Dims,
    shapes: Shapes,
    name: str | None,
    states: dict[str, str],
    note: Callable[[str], None],
    constants: dict[str, Array] | None = None,
    most: Mapping[str, int] | None = None,
    lengths: Mapping[str, int] | None = None,
    random: str = "0",
    signature: str | None = None,
) -> Source:
    """A model or IR file as a graph. `constants` fixes inputs to a value."""
    kind = kind_of(path)
    if kind == "ir":
        from intaglio.ir.files import read_network

        importlib.import_module("intaglio.ops")  # the text names operators: they must have registered

        if dims or shapes or states or most or lengths:
            hint = "give `--dim`, `--shape` and `--state` with the model, or edit the IR file"
            raise UserError("bad-option", f"{quoted(path.name)} is an IR file: its shapes are fixed", hint=hint)
        network = read_network(path)
        if name:
            network.graph.name = _clean_name(name)
        return Source(network.graph, _digest(path), "ir", network.choices, network.placement, network.stage)
    if name:
        _clean_name(name)
    if signature is not None and kind not in WITH_SIGNATURES:
        raise UserError("bad-option", "`--signature` is for TFLite models and SavedModels", hint="omit it")
    if kind != "torch" and BY_MODEL in [*dims.values(), *(size for shape in shapes.values() for size in shape)]:
        what = f"`..` takes the bounds of a dimension from the model, and models of {TITLES.get(kind, 'ONNX')} have none"
        raise UserError("bad-option", what, hint="give them: `--dim T=1..512`, `--shape in0=1,1..512,64`")
    if kind == "onnx":
        from intaglio.frontends.onnx import load

        known = {"states": list(states.items()), "constants": constants, "most": most, "lengths": lengths, "random": random}
        graph, notes = load(path, dims=dims, shapes=shapes, name=name, **known)  # type: ignore[arg-type]
    else:
        if random != "0" and kind not in (*WITH_SIGNATURES, "torch"):
            raise UserError("bad-option", "`--random` is for ONNX, PyTorch and TFLite models", hint="omit it")
        if lengths:
            raise UserError("bad-option", "`--length` is for ONNX models", hint="omit it")
        if most and kind != "torch":
            raise UserError("bad-option", "`--max` is for ONNX and PyTorch models", hint="omit it")
        if states or constants:
            hint = f"a {TITLES[kind]} model defines its own state"
            raise UserError("bad-option", "`--state` is for ONNX models", hint=hint)
        asked = {**chosen(kind, signature, most), **({"random": random} if kind in (*WITH_SIGNATURES, "torch") else {})}
        graph, notes = front_end(kind).load(path, dims=dims, shapes=shapes, name=name, **asked)
    for text in notes:
        note(text)
    return Source(graph, _digest(path), format=kind)


Chosen = str | Mapping[str, int] | None


def chosen(kind: str, signature: str | None, most: Mapping[str, int] | None = None) -> dict[str, Chosen]:
    """What the front end of a kind of model is asked for beside shapes."""
    return {"signature": signature} if kind in WITH_SIGNATURES else {"most": most} if kind == "torch" else {}


def signatures(path: Path) -> list[str]:
    """Networks of a file that has several; none: it is one."""
    models = models_of(path)
    if len(models) > 1:
        return list(models)
    path = next(iter(models.values()), path)
    of = _signatures_of_kind(path)
    return of.signatures_of(path) if of is not None else []


def check_together(path: Path, keys: Collection[str]) -> None:
    """Can these signatures of a file be entry points of one package?"""
    of = _signatures_of_kind(path)
    if of is not None:
        of.check_together(path, keys)


class _Signatures(Protocol):
    def signatures_of(self, path: Path) -> list[str]: ...

    def check_together(self, path: Path, keys: Collection[str]) -> None: ...


def _signatures_of_kind(path: Path) -> _Signatures | None:
    module = WITH_SIGNATURES.get(kind_of(path))
    return None if module is None else cast(_Signatures, importlib.import_module(f"intaglio.frontends.{module}"))


WITH_SIGNATURES = {"tflite": "tflite.signatures", "saved_model": "saved_model"}  # kinds, and the modules that know of theirs
_FROZEN = b"\n"  # a list of nodes comes first; ONNX starts with its version
TITLES = {"tflite": "TFLite", "torch": "PyTorch", "keras": "Keras", "saved_model": "SavedModel", "jax": "JAX"}


def front_end(kind: str) -> FrontEnd:
    """The module that reads models of a kind; what it needs is imported now."""
    return cast(FrontEnd, importlib.import_module(f"intaglio.frontends.{kind}"))


def kind_of(path: Path) -> str:
    """`ir`, `tflite`, `torch`, `keras`, `saved_model` (a folder, a frozen graph), `jax` or `onnx`; everything else is an error that
    says what it is."""
    shown = quoted(str(path), 200)
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            if (path / "saved_model.pb").is_file():
                return "saved_model"
            hint = "give a model file; packages are for `run`, `validate` and `profile`"
            raise ModelError("not-a-model", f"{shown} is a folder", hint=hint)
        if not stat.S_ISREG(mode):
            raise ModelError("not-a-model", f"{shown} is not a regular file", hint="give the path of a model file")
        with open(path, "rb") as file:
            start = file.read(16)
    except FileNotFoundError:
        raise ModelError("no-such-file", f"there is no file {shown}") from None
    except (OSError, ValueError) as error:
        raise ModelError("cannot-read", f"cannot read {shown}: {getattr(error, 'strerror', error)}") from None
    if start.startswith(b"intaglio-ir"):
        return "ir"
    if start[4:8] == b"TFL3" or path.suffix == ".tflite":
        return "tflite"
    if path.suffix in (".task", ".litertlm"):
        hint = "give a `.tflite` file, or a `.task` file that holds some"
        raise ModelError("unsupported-format", f"{shown} is a bundle that is damaged, or has no TFLite model", hint=hint)
    if start.startswith(b"PK\x03\x04"):
        return "keras" if path.suffix == ".keras" or _is_keras_zip(path) else "torch"
    if start.startswith(b"\x89HDF") or path.suffix in (".h5", ".hdf5", ".keras"):
        return "keras"
    if path.suffix in (".pt", ".pth", ".pt2"):
        return "torch"
    if path.suffix == ".jax":
        return "jax"
    if path.suffix == ".pb" and start[:1] == _FROZEN:
        return "saved_model"
    if path.suffix == ".pb" and _is_saved_model(path):
        hint = "give the folder that it belongs in, with its `variables`; the file is named `saved_model.pb` there"
        raise ModelError("unsupported-format", f"{shown} is a part of a SavedModel of TensorFlow", hint=hint)
    if path.suffix == ".safetensors":
        hint = "give the model itself: a `.pt2`, `.keras`, `.onnx` or `.tflite` file"
        raise ModelError("unsupported-format", f"{shown} is a weights file without a model", hint=hint)
    if path.suffix in (".pkl", ".pickle", ".joblib"):
        hint = "load it yourself if you trust it, and give the fitted object itself to `intaglio.compile`"
        raise ModelError("unsupported-format", f"{shown} is a pickle, which runs code when it is read", hint=hint)
    if path.suffix == ".ig":
        raise ModelError(
            "not-ir", f"{shown} does not start with `intaglio-ir 1`", hint="IR files start with this line; check that it is one"
        )
    return "onnx"


def _is_saved_model(path: Path) -> bool:
    """Its version, if there is one, then a graph, which starts with a message. The second field of ONNX's model is text."""
    with open(path, "rb") as file:
        start = file.read(12).removeprefix(b"\x08\x01")
    if start[:1] != b"\x12":
        return False
    after = 1
    while after < len(start) and start[after] & 0x80:
        after += 1
    return start[after + 1 : after + 2] == b"\n"


def _is_keras_zip(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return {"config.json", "metadata.json"} <= set(archive.namelist()[:100])
    except (OSError, ValueError, zipfile.BadZipFile, NotImplementedError, EOFError):
        return False


def _clean_name(name: str) -> str:
    if not is_clean(name) or len(name) > 40:
        hint = "it is a prefix in C: at most 40 letters, digits and `_`, no digit first, not a keyword"
        raise UserError("bad-name", f"{quoted(name)} cannot be the name of a network", hint=hint)
    return name


def _digest(path: Path) -> str:
    path = path / "saved_model.pb" if path.is_dir() else path
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
