"""SavedModel folders and frozen graphs (`.pb`), where TensorFlow is installed: its converter makes a TFLite model of them, in a
process of its own. The inputs of a frozen graph are its placeholders, its outputs what no other node reads. The signatures of a
SavedModel are those of the TFLite model.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from intaglio.errors import ModelError, ToolError, quoted
from intaglio.frontends import tflite
from intaglio.frontends.onnx.faults import Problem
from intaglio.frontends.tflite import signatures
from intaglio.ir.graph import Graph
from intaglio.ir.spans import Dims, Shapes

_LIMIT_SECONDS = 900
_SCRIPT = """
import os
import sys
import tensorflow as tf

IDLE = ("NoOp", "Const", "Assert", "Placeholder")

def frozen(path):
    graph = tf.compat.v1.GraphDef()
    with open(path, "rb") as file:
        graph.ParseFromString(file.read())
    read = {name.split(":")[0].lstrip("^") for node in graph.node for name in node.input}
    given = [node.name + ":0" for node in graph.node if node.op in ("Placeholder", "PlaceholderV2")]
    ends = [node.name for node in graph.node if node.name not in read and node.op not in IDLE]
    if not given or not ends:
        raise ValueError("the graph has no placeholders, or no results")
    made = tf.compat.v1.wrap_function(lambda: tf.graph_util.import_graph_def(graph, name=""), [])
    results = [out for name in ends for out in made.graph.get_operation_by_name(name).outputs]
    inputs = [made.graph.get_tensor_by_name(name) for name in given]
    return tf.lite.TFLiteConverter.from_concrete_functions([made.prune(inputs, results)])

source = sys.argv[1]
converter = tf.lite.TFLiteConverter.from_saved_model(source) if os.path.isdir(source) else frozen(source)
made = converter.convert()
with open(sys.argv[2], "wb") as file:
    file.write(made)
"""


@dataclass(slots=True)
class _Conversions:
    """TFLite models by what they were made of: the entry points of a package are read from one conversion. The folder goes with
    the process."""

    folder: tempfile.TemporaryDirectory[str] | None = None
    made: dict[object, Path] = field(default_factory=dict)


_CONVERSIONS = _Conversions()


def load(
    path: Path, *, dims: Dims, shapes: Shapes, name: str | None = None, signature: str | None = None, random: str = "0"
) -> tuple[Graph, list[str]]:
    converted = _converted(path)
    graph, notes = tflite.load(
        converted, dims=dims, shapes=shapes, name=name or path.resolve().stem, signature=signature, random=random
    )
    what = "SavedModel" if path.is_dir() else "frozen graph"
    return graph, [f"TensorFlow has converted the {what} to TFLite", *notes]


def check(path: Path, *, dims: Dims, shapes: Shapes, signature: str | None = None) -> list[Problem]:
    return tflite.check(_converted(path), dims=dims, shapes=shapes, signature=signature)


def signatures_of(path: Path) -> list[str]:
    """The entry points of a SavedModel; none: it is one network."""
    return signatures.signatures_of(_converted(path)) if path.is_dir() else []


def check_together(path: Path, keys: Collection[str]) -> None:
    signatures.check_together(_converted(path), keys)


def _converted(path: Path) -> Path:
    """Once for each state of the files."""
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    state = (path.resolve(), *((str(p), (of := p.stat()).st_mtime_ns, of.st_size) for p in files))
    if state not in _CONVERSIONS.made:
        _CONVERSIONS.folder = _CONVERSIONS.folder or tempfile.TemporaryDirectory(prefix="intaglio-")
        place = Path(_CONVERSIONS.folder.name) / str(len(_CONVERSIONS.made))
        place.mkdir(exist_ok=True)
        _CONVERSIONS.made[state] = _convert(path, place / f"{path.resolve().stem or 'model'}.tflite")
    return _CONVERSIONS.made[state]


def _convert(path: Path, target: Path) -> Path:
    shown = quoted(str(path), 200)
    if find_spec("tensorflow") is None:
        hint = "`pip install tensorflow`, or save the model with `model.save(\"model.keras\")`, or convert it to TFLite"
        what = "SavedModel" if path.is_dir() else "frozen graph of TensorFlow"
        raise ToolError("no-framework", f"{shown} is a {what}, which needs TensorFlow; it is not installed", hint=hint)
    command = [sys.executable, "-c", _SCRIPT, str(path.resolve()), str(target)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=_LIMIT_SECONDS, check=False,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ModelError("cannot-convert", f"TensorFlow did not convert {shown} within {_LIMIT_SECONDS} s") from None
    if done.returncode or not target.is_file():
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        reason = quoted(lines[-1] if lines else f"exit code {done.returncode}", 300)
        hint = "TensorFlow's own converter stops there, so it has no TFLite form as it is: "
        hint += "export the model from its source again (a `.keras` file, a `.pt2` file, ONNX)"
        raise ModelError("cannot-convert", f"TensorFlow does not convert {shown}: {reason}", hint=hint)
    return target
