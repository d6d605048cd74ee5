"""Models that are objects of a framework: saved to a file, so that there is one way in for files and objects."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MethodType
from typing import Any

from intaglio.errors import UserError, quoted
from intaglio.frontends import classical
from intaglio.ir.names import is_clean


def save_object(
    model: object, example_inputs: tuple[object, ...] | None, folder: Path, note: Callable[[str], None] = lambda _: None
) -> Path:
    """The model as a file in the folder. The framework is imported already: the object came from it. `note` gets what the file has
    in another form than the object."""
    if isinstance(model, Mapping):
        what = f"{quoted(', '.join(map(str, model)))} are several models"
        raise UserError("not-a-model", what, hint="give them to `intaglio.compile_entries`, which makes one package of them")
    module = getattr(model, "__self__", None) if isinstance(model, MethodType) else None
    if module is not None and _framework(module) == "torch":
        model = _module("intaglio.frontends.torch").as_module(model)
    name = (type(model) if module is None else type(module)).__name__.lower()
    stem = name if is_clean(name) and len(name) <= 40 else "model"
    match framework := _framework(model):
        case "torch":
            path = folder / f"{stem}.pt2"
            _module("intaglio.frontends.torch").save_object(model, example_inputs, path)
        case "keras":
            found: Path = _module("intaglio.frontends.keras").save_object(model, example_inputs, folder / f"{stem}.keras")
            return found
        case "jax" | "jaxlib":
            path = folder / "model.jax"
            _module("intaglio.frontends.jax").save_object(model, example_inputs, path)
        case "xgboost" | "lightgbm" | "catboost" | "sklearn":
            path = folder / f"{stem}.onnx"
            classical.save_object(model, framework, example_inputs, path, note)
        case _:
            hint = "give a path, a PyTorch module or a method of one, an exported program, a Keras model, "
            hint += "a jitted function of JAX, or a fitted model of scikit-learn"
            raise UserError("not-a-model", f"{quoted(repr(model))} is not a model", hint=hint)
    return path


def saved_objects(
    models: str | Path | Mapping[str, object], folder: Path, note: Callable[[str], None]
) -> str | Path | Mapping[str, object]:
    """Models by name, with files in the place of objects. A model may stand in a mapping with its options."""
    if not isinstance(models, Mapping):
        return models
    found: dict[str, object] = {}
    for n, (name, given) in enumerate(models.items()):
        own: dict[str, object] = dict(given) if isinstance(given, Mapping) else {"model": given}
        model, example = own.get("model"), own.pop("example_inputs", None)
        if model is not None and not isinstance(model, (str, Path)):
            place = folder / str(n)
            place.mkdir()
            inputs = example if example is None or isinstance(example, tuple) else (example,)
            own["model"] = save_object(model, inputs, place, note)
        found[name] = own
    return found


def _framework(model: object) -> str:
    """Told by the classes it derives from, without an import."""
    homes = {cls.__module__.split(".")[0] for cls in type(model).__mro__}
    order = ("keras", "torch", "jax", "jaxlib", *classical.FRAMEWORKS)  # Keras's on PyTorch are modules too
    return next((name for name in order if name in homes), "")


def _module(name: str) -> Any:
    return importlib.import_module(name)
