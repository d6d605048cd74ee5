"""Keras models as graphs: files of Keras 2 and 3, without Keras; objects by saving them first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intaglio.errors import ModelError, quoted
from intaglio.frontends.finishing import finish
from intaglio.frontends.keras import objects
from intaglio.frontends.keras.config import Layer, Model, read_config
from intaglio.frontends.keras.container import KerasFile, read_model
from intaglio.frontends.keras.vocabulary import vocabulary
from intaglio.frontends.keras.walk import DTYPES, Walk
from intaglio.frontends.keras.weights import Weights, every_layer
from intaglio.frontends.onnx.faults import Fault, Problem
from intaglio.frontends.onnx.pinning import Declared, pin
from intaglio.ir.graph import Graph, Value
from intaglio.ir.sizes import Undecided
from intaglio.ir.spans import Dims, Shapes
from intaglio.ir.strings import USUAL_BYTES
from intaglio.ir.types import DType, Layout, Shape, TensorType
from intaglio.ops.strings import TextTrim

__all__ = ["Opened", "accepted", "check", "load", "save_object"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A file that the reader has accepted, for those who look closer at it."""

    source: KerasFile
    model: Model
    weights: Weights
    inputs: list[Declared]
    outputs: list[str]
    differences: list[str]


def load(
    path: Path, *, dims: Dims, shapes: Shapes, name: str | None = None
) -> tuple[Graph, list[str]]:
    source = read_model(path)
    try:
        graph, notes = _graph(_walked(source, dims, shapes, collect=False), name or path.stem)
    finally:
        source.store.close()
    return graph, notes


def check(path: Path, *, dims: Dims, shapes: Shapes) -> list[Problem]:
    source = read_model(path)
    try:
        return _walked(source, dims, shapes, collect=True).walk.problems
    finally:
        source.store.close()


def save_object(model: object, example_inputs: tuple[object, ...] | None, path: Path) -> Path:
    """The object as a file; its name tells its kind."""
    return objects.save_object(model, example_inputs, path, lambda saved: check(saved, dims={}, shapes={}))


def accepted(path: Path, shapes: Shapes) -> Opened:
    """A model that can be imported; whoever asks closes the store."""
    source = read_model(path)
    done = _walked(source, {}, shapes, collect=False)
    return Opened(source, done.model, done.walk.weights, done.declared, done.names(), done.walk.differences)


@dataclass(frozen=True, slots=True)
class _Walked:
    model: Model
    walk: Walk
    declared: list[Declared]
    inputs: list[Value]
    results: list[Value | None]
    notes: list[str]

    def names(self) -> list[str]:
        return self.model.output_names or _sequence_names(self.model, len(self.results))


def _walked(source: KerasFile, dims: Dims, shapes: Shapes, *, collect: bool) -> _Walked:
    try:
        model = read_config(source.config)
        declared = _inputs(model)
        pinned = pin(declared, dims, shapes, source.file)
        weights = Weights(source, model)
        inputs = [_input(d, s, model, weights) for d, s in zip(declared, pinned.shapes, strict=True)]
        walk = Walk(source.file, weights, source.version, collect=collect)
        walk.emitter.bounds = pinned.bounds
        given = [walk.emitter.emit(TextTrim(), [v])[0] if d.text else v for d, v in zip(declared, inputs, strict=True)]
        return _Walked(model, walk, declared, inputs, walk.run(model, given), pinned.notes)
    except Undecided as reason:
        raise ModelError("size-decides", str(reason), where=source.file, hint=reason.hint) from None
    except Fault as fault:
        raise ModelError(fault.slug, fault.reason, where=source.file, hint=fault.hint or "save the model again") from None


def _input(declared: Declared, shape: Shape, model: Model, weights: Weights) -> Value:
    """Strings have room for the longest word that is looked up."""
    if not declared.text:
        return Value("", TensorType(declared.dtype, shape), declared.name)
    lists = [vocabulary(layer, weights) or [] for layer in every_layer(model.layers) if layer.kind == "StringLookup"]
    width = max([USUAL_BYTES, *(len(str(word).encode("utf-8")) for words in lists for word in words)])
    return Value("", TensorType(DType.U8, (*shape, width), Layout.TEXT), declared.name)


def _graph(done: _Walked, name: str) -> tuple[Graph, list[str]]:
    walk = done.walk
    outputs = [(label, value) for label, value in zip(done.names(), done.results, strict=True) if value is not None]
    inputs = [*done.inputs, *[s.input for s in walk.states]]
    return finish(walk.emitter, inputs, outputs, name, walk.states), [*done.notes, *walk.emitter.notes]


def _sequence_names(model: Model, count: int) -> list[str]:
    last = model.layers[-1].name
    return [last if n == 0 else f"{last}_{n}" for n in range(count)]


def _inputs(model: Model) -> list[Declared]:
    """The inputs of the model as it declares them; the first axis is the batch."""
    if model.sequential:
        return [_sequence_input(model)]
    by_name = {layer.name: layer for layer in model.layers}
    found = []
    for ref in model.inputs:
        layer = by_name.get(ref.layer)
        if layer is None or layer.kind != "InputLayer":
            raise Fault("bad-graph", f"the input {quoted(ref.layer)} is not an input layer")
        found.append(_declared(layer.name, layer.config.get("batch_shape", layer.config.get("batch_input_shape")), layer))
    if len({d.name for d in found}) != len(found):
        raise Fault("bad-graph", "an input is listed twice")
    return found


def _sequence_input(model: Model) -> Declared:
    first = model.layers[0]
    if first.model is not None:
        inner = _inputs(first.model)
        if len(inner) == 1:
            return inner[0]
    if model.shape is None:
        reason = f"the model {quoted(model.name)} does not define the shape of its input"
        raise Fault("dynamic-dimension", reason, "call the model once, or give it a `keras.Input`, and save it again")
    name = first.name if first.kind == "InputLayer" else f"{first.name}_input"
    return _declared(name, model.shape, first)


def _declared(name: str, shape: Any, layer: Layer) -> Declared:
    if not isinstance(shape, list) or not shape or len(shape) > 8:
        raise Fault("bad-tensor", f"the input {quoted(name)} has the shape {quoted(str(shape))}, which is not valid")
    if any(d is not None and (type(d) is not int or d < 0) for d in shape):
        raise Fault("bad-tensor", f"the input {quoted(name)} has the shape {quoted(str(shape))}, which is not valid")
    if layer.config.get("sparse") or layer.config.get("ragged"):
        raise Fault("unsupported-type", f"the input {quoted(name)} is a sparse or ragged tensor", "give it plain tensors")
    text = layer.config.get("dtype") == "string"
    dtype = DType.U8 if text else _input_dtype(name, layer)
    return Declared(name, dtype, ("batch" if shape[0] is None else shape[0], *shape[1:]), text)


def _input_dtype(name: str, layer: Layer) -> DType:
    told = layer.config.get("dtype") or "float32"
    if isinstance(told, dict):
        told = (told.get("config") or {}).get("name") if isinstance(told.get("config"), dict) else None
    if layer.kind == "Embedding":
        told = "int32"
    if not isinstance(told, str) or told not in DTYPES:
        raise Fault("unsupported-type", f"the input {quoted(name)} is of the type {quoted(str(told))}", "give it numbers")
    return DTYPES[told]
