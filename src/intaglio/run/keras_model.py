"""What Keras computes for a model.

Nothing from the file decides what is executed. Our own reader has accepted the file before: every layer is in its table. The
model is then built again, layer by layer, from Keras's own classes with the numbers and words of the options; objects in the
file (initialisers, modules, functions) are left out, and the weights are assigned by us.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import ModelError, ToolError, quoted
from intaglio.frontends.keras import Opened, accepted
from intaglio.frontends.keras.config import Layer, Model, Ref
from intaglio.frontends.keras.rows.activation import activation_name
from intaglio.frontends.keras.vocabulary import vocabulary
from intaglio.frontends.keras.weights import tree
from intaglio.ir.graph import Array
from intaglio.ir.strings import decoded, is_text
from intaglio.package.manifest import Manifest

_LEFT_OUT = {
    "dtype", "activation", "recurrent_activation", "batch_input_shape", "batch_shape", "time_major", "fused", "virtual_batch_size",
    "adjustment", "renorm", "renorm_clipping", "renorm_momentum", "layer", "backward_layer", "cell", "quantization_config",
    "ragged", "sparse", "implementation", "noise_shape", "input_length",
}  # fmt: skip
_NO_OPTIONS = ("_initializer", "_regularizer", "_constraint")
_MODULES = ("numpy", "nn", "core", "math")


class KerasModel:
    """The model in the package; inputs and outputs go by name. `extra` names layers to see as well."""

    of_model = True

    def __init__(self, path: Path, manifest: Manifest, extra: tuple[str, ...] = ()) -> None:
        self._keras = _import_keras()
        shapes = {info.name: info.shape[:-1] if info.text else info.shape_in_model for info in manifest.inputs}
        opened = accepted(path, shapes)
        backend = self._keras.backend.backend()
        different = [text for text in opened.differences if backend == "torch" or not text.startswith("on PyTorch")]
        if different:
            raise ToolError("no-reference", f"Keras on {backend} computes something else: {different[0]}")
        self.about = f"keras {self._keras.__version__} on {backend}"
        self._shapes = shapes
        self._seen: dict[str, Any] = {}
        try:
            self._model, self._inputs, self._names = self._built(opened, extra)
        except Exception as error:  # Keras raises what it likes
            raise ToolError("no-reference", f"Keras does not build the model: {_first_line(error)}") from None
        finally:
            opened.source.store.close()

    def fresh(self) -> None:
        for layer in self._model._flatten_layers():
            if getattr(layer, "stateful", False) and hasattr(layer, "reset_state"):
                layer.reset_state()

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        try:
            given = [_words(inputs[n]) if n in self._texts else np.asarray(inputs[n]) for n in self._inputs]
            shaped = [array.reshape(self._shapes[n]) for n, array in zip(self._inputs, given, strict=True)]
            results = self._model(shaped, training=False)
        except Exception as error:
            raise ModelError("no-reference", f"Keras fails on these inputs: {_first_line(error)}") from None
        flat = results if isinstance(results, (list, tuple)) else [results]
        return {name: np.asarray(self._keras.ops.convert_to_numpy(t)) for name, t in zip(self._names, flat, strict=True)}

    # Building ---------------------------------------------------------------------------------------------------------

    def _built(self, opened: Opened, extra: tuple[str, ...]) -> tuple[Any, list[str], list[str]]:
        names = [d.name for d in opened.inputs]
        types = {d.name: "string" if d.text else d.dtype.numpy.name for d in opened.inputs}
        self._texts = {d.name for d in opened.inputs if d.text}
        inputs = [self._keras.Input(batch_shape=self._shapes[n], dtype=types[n], name=f"in{i}") for i, n in enumerate(names)]
        self._weights = opened.weights
        outputs = self._called(opened.model, inputs, opened, prefix="")
        shown = [n for n in extra if n in self._seen and n not in opened.outputs]
        tensors = [*outputs, *[self._seen[n] for n in shown]]
        return self._keras.Model(inputs, tensors), names, [*opened.outputs, *shown]

    def _called(self, model: Model, inputs: list[Any], opened: Opened, prefix: str) -> list[Any]:
        """The tensors that the model gives for these. The graph of an inner model becomes part of the outer one."""
        objects = {layer: self._object(layer) for layer in model.layers if layer.model is None and layer.kind != "InputLayer"}
        if model.sequential:
            given: Any = inputs[0]
            for layer in model.layers:
                if layer.kind != "InputLayer":
                    given = _single(self._call(layer, objects, [given], {}, opened, prefix, 0))
            return given if isinstance(given, list) else [given]
        made: dict[tuple[str, int], list[Any]] = {}
        for ref, tensor in zip(model.inputs, inputs, strict=True):
            made[ref.layer, ref.call] = [tensor]
        waiting = [(layer, n) for layer in model.layers for n in range(len(layer.calls)) if (layer.name, n) not in made]
        while waiting:
            later = []
            for layer, n in waiting:
                call = layer.calls[n]
                try:
                    args, kwargs = _filled(call.args, made), _filled(call.kwargs, made)
                except KeyError:
                    later.append((layer, n))
                    continue
                made[layer.name, n] = self._call(layer, objects, args, kwargs, opened, prefix, n)
            waiting = later
        return [_filled(ref, made) for ref in model.outputs]

    def _call(
        self,
        layer: Layer,
        objects: dict[Layer, Any],
        args: list[Any],
        kwargs: dict[str, Any],
        opened: Opened,
        prefix: str,
        number: int,
    ) -> list[Any]:
        path = f"{prefix}{layer.name}:{number}" if number else f"{prefix}{layer.name}"
        if layer.model is not None:
            tensors = [t for t in self._keras.tree.flatten([args, kwargs]) if hasattr(t, "shape")]
            return self._called(layer.model, tensors, opened, f"{path}/")
        made = objects[layer]
        result = made(*args, **kwargs)
        if not layer.is_op:
            self._fill(layer, made, opened)
        flat: list[Any] = self._keras.tree.flatten(result)
        for n, tensor in enumerate(flat):
            self._seen[f"{path}#{n}" if n else path] = tensor
        return flat

    def _fill(self, layer: Layer, made: Any, opened: Opened) -> None:
        if layer.kind == "SpectralNormalization":  # what it has beside is for training
            self._fill(layer.inner[0], made.layer, opened)
            return
        wanted = tree(layer, True)
        if not wanted:
            return
        if len(wanted) != len(made.weights):
            raise ValueError(f"`{layer.name}` has {len(made.weights)} weights in this version of Keras, not {len(wanted)}")
        for (owner, role, _), weight in zip(wanted, made.weights, strict=True):
            weight.assign(opened.weights.read(owner, role))

    def _object(self, layer: Layer) -> Any:
        if layer.is_op:
            return self._operation(layer)
        options = _plain(layer)
        if layer.kind == "Bidirectional":
            options["layer"], options["backward_layer"] = (self._object(inner) for inner in layer.inner)
        elif layer.kind == "RNN" and layer.inner:
            options["cell"] = self._keras.layers.StackedRNNCells([self._object(inner) for inner in layer.inner])
        elif layer.kind in ("TimeDistributed", "SpectralNormalization"):
            inner = layer.inner[0]
            options["layer"] = self._object(inner) if inner.model is None else self._inner_model(inner)
        if layer.kind in ("IntegerLookup", "StringLookup"):
            options["vocabulary"] = vocabulary(layer, self._weights)
        for key in ("activation", "recurrent_activation"):
            if key in layer.config:
                options[key] = self._activation(layer.config[key])
        cls = getattr(self._keras.layers, layer.kind)
        if not cls.__module__.startswith("keras.src.layers"):
            raise ValueError(f"`{layer.kind}` is not a layer of Keras")
        return cls(**options, dtype=_policy(layer))

    def _inner_model(self, layer: Layer) -> Any:
        raise ValueError(f"the model `{layer.name}` inside of a wrapper is not built again")

    def _activation(self, told: Any) -> Any:
        name, config = activation_name(told)
        if name in ("ReLU", "LeakyReLU", "ELU", "Softmax"):
            return getattr(self._keras.layers, name)(
                **{k: v for k, v in config.items() if isinstance(v, (int, float)) and k != "trainable"}
            )
        return name

    def _operation(self, layer: Layer) -> Any:
        for module in ("keras.src.activations.activations", *(f"keras.src.ops.{m}" for m in _MODULES)):
            cls = getattr(importlib.import_module(module), layer.kind, None)
            if isinstance(cls, type) and issubclass(cls, self._keras.Operation) and cls.__module__ == module:
                return cls(**{k: v for k, v in layer.config.items() if k != "name"})
        raise ValueError(f"`{layer.kind}` is not a function of Keras")


def _plain(layer: Layer) -> dict[str, Any]:
    """Options that are numbers, words and lists of them."""
    found = {}
    for key, value in layer.config.items():
        if key in _LEFT_OUT or key.endswith(_NO_OPTIONS) or value is None or isinstance(value, dict) or key == "name":
            continue
        found[key] = value
    if layer.kind in ("LeakyReLU",) and "alpha" in found:
        found["negative_slope"] = found.pop("alpha")
    if layer.kind == "BatchNormalization" and isinstance(found.get("axis"), list):
        found["axis"] = found["axis"][0]
    if layer.kind == "Normalization" and "axis" not in found:
        found["axis"] = None
    if layer.kind.endswith("Cell"):  # what the layer around it is asked for
        found = {key: value for key, value in found.items() if key not in ("stateful", "go_backwards", "return_sequences")}
    if layer.kind in ("MelSpectrogram", "STFTSpectrogram"):
        found |= {key: None for key in ("window", "scaling") if key in layer.config and layer.config[key] is None}
    if layer.kind == "Bidirectional":
        found["merge_mode"] = layer.config.get("merge_mode", "concat")
    return found


def _policy(layer: Layer) -> str:
    told = layer.config.get("dtype") or "float32"
    if isinstance(told, dict):
        told = told["config"]["name"]
    return str(told)


def _words(array: Array) -> Array:
    """Strings, also where they are bytes."""
    return (array if is_text(array) else decoded(array)).astype(object)


def _single(results: list[Any]) -> Any:
    return results[0] if len(results) == 1 else results


def _filled(item: Any, made: dict[tuple[str, int], list[Any]]) -> Any:
    if isinstance(item, Ref):
        return made[item.layer, item.call][item.result]
    if isinstance(item, list):
        return [_filled(i, made) for i in item]
    return {k: _filled(v, made) for k, v in item.items()} if isinstance(item, dict) else item


def _import_keras() -> Any:
    """Keras with a backend that is here: the user's choice, or PyTorch."""
    if "keras" not in sys.modules and "KERAS_BACKEND" not in os.environ:
        found = next((n for n in ("torch", "tensorflow", "jax") if find_spec(n) is not None), None)
        if found is not None:
            os.environ["KERAS_BACKEND"] = found
    try:
        keras = importlib.import_module("keras")
    except Exception as error:  # a missing or broken backend raises what it likes
        hint = "`pip install keras torch`"
        raise ToolError("no-reference", f"Keras cannot be imported: {_first_line(error)}", hint=hint) from None
    if int(str(keras.__version__).split(".")[0]) < 3:
        raise ToolError("no-reference", f"Keras {keras.__version__} is too old", hint="`pip install 'keras>=3' torch`")
    return keras


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return quoted(lines[0] if lines else type(error).__name__, 300)
