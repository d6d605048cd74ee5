"""SavedModel folders and frozen graphs (`.pb`), where TensorFlow is installed: its converter makes a TFLite model of them, in a
process of its own. The inputs of a frozen graph are its placeholders, its outputs what no other node reads.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from intaglio.errors import ModelError, ToolError, quoted
from intaglio.frontends import tflite
from intaglio.frontends.onnx.faults import Problem
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


def load(
    path: Path, *, dims: Dims, shapes: Shapes, name: str | None = None
) -> tuple[Graph, list[str]]:
    with tempfile.TemporaryDirectory(prefix="intaglio-") as place:
        graph, notes = tflite.load(_converted(path, Path(place)), dims=dims, shapes=shapes, name=name or path.resolve().stem)
    what = "SavedModel" if path.is_dir() else "frozen graph"
    return graph, [f"TensorFlow has converted the {what} to TFLite", *notes]


def check(path: Path, *, dims: Dims, shapes: Shapes) -> list[Problem]:
    with tempfile.TemporaryDirectory(prefix="intaglio-") as place:
        return tflite.check(_converted(path, Path(place)), dims=dims, shapes=shapes)


def _converted(path: Path, place: Path) -> Path:
    shown, target = quoted(str(path), 200), place / "model.tflite"
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
        raise ModelError("cannot-convert", f"TensorFlow does not convert {shown}: {reason}", hint="convert it to TFLite yourself")
    return target
