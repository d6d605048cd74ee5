"""Model objects: saved by Keras into a file that `load` reads. Where the reader does not know a layer, Keras is asked to export."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from intaglio.errors import ModelError, ToolError, quoted
from intaglio.frontends.onnx.faults import Problem

Check = Callable[[Path], list[Problem]]


def save_object(model: Any, example_inputs: tuple[object, ...] | None, path: Path, check: Check) -> Path:
    """The object as a file: `.keras`, or for layers of the user's own what the backend exports, `.pt2` or `.tflite`."""
    reason = ""
    if example_inputs is not None and not getattr(model, "built", True):
        _tried(lambda: model(*example_inputs), "cannot-export", "Keras does not run the model on the examples")
    try:
        model.save(str(path))
        problems = check(path)
        if not problems:
            return path
        reason = f"`{problems[0].op}` layer `{problems[0].node}`: {problems[0].reason}"
    except ModelError as error:
        if error.slug == "dynamic-dimension":  # told again, and better, when it is read
            return path
        reason = error.message
    except Exception as error:  # whatever classes of the user raise
        reason = f"Keras does not save it: {_told(error)}"
    path.unlink(missing_ok=True)
    return _exported(model, example_inputs, path, reason)


def _exported(model: Any, example_inputs: tuple[object, ...] | None, path: Path, reason: str) -> Path:
    keras = sys.modules.get("keras")
    backend = str(keras.backend.backend()) if keras is not None else ""
    if backend == "torch":
        target = path.with_suffix(".pt2")
        torch: Any = sys.modules["torch"]
        inputs = tuple(torch.as_tensor(i) for i in example_inputs) if example_inputs else _examples(model, torch, reason)
        importlib.import_module("intaglio.frontends.torch").save_object(model, inputs, target)
        return target
    if backend == "tensorflow":
        target = path.with_suffix(".tflite")
        tensorflow = importlib.import_module("tensorflow")
        convert = tensorflow.lite.TFLiteConverter.from_keras_model(model).convert
        target.write_bytes(_tried(convert, "cannot-export", "TensorFlow does not convert the model"))
        return target
    hint = "run Keras on PyTorch or TensorFlow (`KERAS_BACKEND=torch`), which can export layers of your own"
    raise ToolError(
        "cannot-export",
        f"the model has parts that are not Keras's own, which {backend or 'its backend'} does not export ({reason})",
        hint=hint,
    )


def _examples(model: Any, torch: Any, reason: str) -> tuple[object, ...]:
    """Zeros in the shapes of the model's inputs, where it says them."""
    try:
        specs = [(tuple(1 if d is None else int(d) for d in t.shape), str(t.dtype)) for t in model.inputs]
    except Exception:  # a subclassed model has no inputs
        hint = "give `example_inputs=(...)`, a tuple of arrays or tensors"
        raise ModelError("no-example", f"the model has parts that are not Keras's own ({reason})", hint=hint) from None
    return tuple(torch.zeros(shape, dtype=getattr(torch, dtype)) for shape, dtype in specs)


def _tried(action: Callable[[], Any], slug: str, what: str) -> Any:
    try:
        return action()
    except Exception as error:
        raise ModelError(slug, f"{what}: {_told(error)}") from None


def _told(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return quoted(lines[0] if lines else type(error).__name__, 300)
