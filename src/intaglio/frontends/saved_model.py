"""SavedModel folders, where TensorFlow is installed: its converter makes a TFLite model of them, in a process of its own."""

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
import sys
import tensorflow as tf
made = tf.lite.TFLiteConverter.from_saved_model(sys.argv[1]).convert()
with open(sys.argv[2], "wb") as file:
    file.write(made)
"""


def load(
    path: Path, *, dims: Dims, shapes: Shapes, name: str | None = None
) -> tuple[Graph, list[str]]:
    with tempfile.TemporaryDirectory(prefix="intaglio-") as place:
        graph, notes = tflite.load(_converted(path, Path(place)), dims=dims, shapes=shapes, name=name or path.resolve().name)
    return graph, ["TensorFlow has converted the SavedModel to TFLite", *notes]


def check(path: Path, *, dims: Dims, shapes: Shapes) -> list[Problem]:
    with tempfile.TemporaryDirectory(prefix="intaglio-") as place:
        return tflite.check(_converted(path, Path(place)), dims=dims, shapes=shapes)


def _converted(path: Path, place: Path) -> Path:
    shown, target = quoted(str(path), 200), place / "model.tflite"
    if find_spec("tensorflow") is None:
        hint = "`pip install tensorflow`, or save the model with `model.save(\"model.keras\")`, or convert it to TFLite"
        raise ToolError("no-framework", f"{shown} is a SavedModel, which needs TensorFlow; it is not installed", hint=hint)
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
