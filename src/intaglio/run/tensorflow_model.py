"""What TensorFlow computes for a SavedModel or a frozen graph: before its converter has made a TFLite model of it."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import ModelError, ToolError, quoted
from intaglio.ir.graph import Array
from intaglio.package.manifest import Manifest

SUFFIXES = (".savedmodel", ".pb")  # a folder as one archive; a frozen graph
_IDLE = ("NoOp", "Const", "Assert", "Placeholder")


class TensorFlowModel:
    """Inputs and outputs of a SavedModel go by the names of its signature, those of a frozen graph by position."""

    of_model = True

    def __init__(self, path: Path, manifest: Manifest) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
        try:
            import tensorflow
        except ImportError:
            raise ToolError("no-reference", "tensorflow is not installed", hint="`pip install tensorflow`") from None
        self._tf: Any = tensorflow
        self._path, self._manifest = path, manifest
        self.about = f"tensorflow {tensorflow.__version__}"
        self._folder = tempfile.TemporaryDirectory(prefix="intaglio-")
        try:
            if path.suffix == ".savedmodel":
                with zipfile.ZipFile(path) as archive:
                    archive.extractall(self._folder.name)
            self._load()
        except Exception as error:  # whatever TensorFlow raises
            raise ModelError("no-reference", f"TensorFlow does not load the model: {_first_line(error)}") from None

    def _load(self) -> None:
        if self._path.suffix == ".pb":
            self._function: Any = _frozen(self._tf, self._path)
            self._names: list[str] | None = None
            return
        self._model: Any = self._tf.saved_model.load(self._folder.name)
        found = self._model.signatures
        key = self._manifest.options.get("signature") or _only(list(found))
        self._function = found[key]
        self._specs: dict[str, Any] = dict(self._function.structured_input_signature[1])
        self._names = list(self._specs)

    def fresh(self) -> None:
        """Variables that the model sets have their first values again."""
        if self._manifest.states:
            self._load()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        given = [info.name for info in self._manifest.inputs]
        wanted = [info.name for info in self._manifest.outputs]
        try:
            if self._names is None:
                tensors = [_tensor(self._tf, inputs[name], spec) for name, spec in zip(given, self._function.inputs, strict=True)]
                made = self._tf.nest.flatten(self._function(*tensors))
                return {name: np.asarray(array) for name, array in zip(wanted, made, strict=True)}
            named = self._function(**{n: _tensor(self._tf, inputs[n], spec) for n, spec in self._specs.items()})
        except Exception as error:
            raise ModelError("no-reference", f"TensorFlow fails on these inputs: {_first_line(error)}") from None
        if not set(wanted) <= set(named):
            raise ModelError("no-reference", f"the signature gives {', '.join(map(quoted, named))}, the package others")
        return {name: np.asarray(named[name]) for name in wanted}


def _only(keys: Sequence[str]) -> str:
    """The signature that the converter takes where none is chosen: Keras writes its own, and one that servers ask for."""
    return "serving_default" if "serving_default" in keys else keys[0]


def _tensor(tf: Any, array: Array, spec: Any) -> Any:
    known = spec.shape.rank == array.ndim or spec.shape.rank is None
    return tf.constant(array if known else array.reshape(spec.shape), spec.dtype)


def _frozen(tf: Any, path: Path) -> Any:
    """As the converter is given it: placeholders in, what nothing reads out."""
    graph = tf.compat.v1.GraphDef()
    graph.ParseFromString(path.read_bytes())
    read = {name.split(":")[0].lstrip("^") for node in graph.node for name in node.input}
    given = [node.name + ":0" for node in graph.node if node.op in ("Placeholder", "PlaceholderV2")]
    ends = [node.name for node in graph.node if node.name not in read and node.op not in _IDLE]
    made = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
    results = [out for name in ends for out in made.graph.get_operation_by_name(name).outputs]
    return made.prune([made.graph.get_tensor_by_name(name) for name in given], results)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return quoted(lines[0] if lines else type(error).__name__, 300)
