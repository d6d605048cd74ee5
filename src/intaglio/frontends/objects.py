"""Models that are objects of a framework: saved to a file, so that there is one way in for files and objects."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from intaglio.errors import UserError, quoted
from intaglio.frontends import classical
from intaglio.ir.names import is_clean


def save_object(
    model: object, example_inputs: tuple[object, ...] | None, folder: Path, note: Callable[[str], None] = lambda _: None
) -> Path:
    """The model as a file in the folder. The framework is imported already: the object came from it. `note` gets what the file has
    in another form than the object."""
    name = type(model).__name__.lower()
    stem = name if is_clean(name) and len(name) <= 40 else "model"
    match framework := _framework(model):
        case "torch":
            path = folder / f"{stem}.pt2"
            _module("intaglio.frontends.torch").save_object(model, example_inputs, path)
        case "keras":
            found: Path = _module("intaglio.frontends.keras").save_object(model, example_inputs, folder / f"{stem}.keras")
            return found
        case "xgboost" | "lightgbm" | "catboost" | "sklearn":
            path = folder / f"{stem}.onnx"
            classical.save_object(model, framework, example_inputs, path, note)
        case _:
            hint = "give a path, a PyTorch module, an exported program, a Keras model or one of scikit-learn"
            raise UserError("not-a-model", f"{quoted(repr(model))} is not a model", hint=hint)
    return path


def _framework(model: object) -> str:
    """Told by the classes it derives from, without an import."""
    homes = {cls.__module__.split(".")[0] for cls in type(model).__mro__}
    order = ("keras", "torch", *classical.FRAMEWORKS)  # Keras's on PyTorch are modules too
    return next((name for name in order if name in homes), "")


def _module(name: str) -> Any:
    return importlib.import_module(name)
