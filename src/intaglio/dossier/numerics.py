"""How far the floats of each layer can be from the real numbers: bounds from the graph (decision 0040), on the test vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intaglio.errors import IntaglioError
from intaglio.frontends.reading import read_source
from intaglio.ir.graph import Array, Graph
from intaglio.ir.operator import BadOperator
from intaglio.package.manifest import Manifest
from intaglio.package.selftest import stored_vector
from intaglio.package.vectors import random_inputs
from intaglio.run.error_bounds import Known, some_error_bounds


@dataclass(frozen=True, slots=True)
class ErrorBound:
    layer: int
    name: str
    kind: str  # exact, bounded, or why not
    largest: float = 0.0  # value
    bound: float = 0.0  # of the error

    @property
    def relative(self) -> float:
        return self.bound / self.largest if self.largest else 0.0


_INTEGERS = "exact: integers, equal to the reference bit for bit"
_INDICES = ("arg_reduce", "topk", "nonzero", "quantize", "cast")
_INDEX = "integers made of floats: exact but where a float is within its error of another, or of half-way"


def numeric_bounds(folder: Path, manifest: Manifest) -> tuple[ErrorBound, ...]:
    """Of the model as it was imported, where each value still has its own operator."""
    floats = [layer for layer in manifest.layers if any(info.dtype.startswith(("f", "bf")) for info in layer.outputs)]
    known, reason = _known(folder, manifest) if floats else ({}, "")
    found = []
    for layer in manifest.layers:
        if layer not in floats:
            found.append(ErrorBound(layer.index, layer.name, _INDEX if floats and layer.op in _INDICES else _INTEGERS))
            continue
        names = [info.name for info in layer.outputs]
        if any(name not in known for name in names):
            why = reason or "no bound: a pass made it, or its operator or one before it has no rule"
            found.append(ErrorBound(layer.index, layer.name, why))
            continue
        largest = max(float(np.abs(known[name].value).max(initial=0.0)) for name in names)
        bound = max(float(known[name].error.max(initial=0.0)) for name in names)
        found.append(ErrorBound(layer.index, layer.name, "bounded", largest, bound))
    return tuple(found)


def _known(folder: Path, manifest: Manifest) -> tuple[dict[str, Known], str]:
    """By the name in the model; and why there is nothing, where there is nothing."""
    source = manifest.model.source
    if source is None:
        return {}, "the trained model is not in the package"
    if manifest.options.get("quantize") or manifest.sizes or manifest.stream is not None or manifest.states:
        return {}, "bounds are for the numbers of the model itself: this package has others, or states, or sizes"
    shapes = {info.name: info.shape_in_model for info in manifest.inputs}
    try:
        graph = read_source(folder / source, {}, shapes, None, {}, lambda note: None).graph
        arrays = {value.name: array for value, array in zip(graph.inputs, _inputs(folder, graph), strict=True)}
        winograd = any("winograd" in layer.kernel for layer in manifest.layers)
        found = some_error_bounds(graph, arrays, winograd=winograd)
    except (IntaglioError, BadOperator, ValueError) as error:
        return {}, f"the model cannot be read again: {error}"
    return {value.origin or value.name: found[value.name] for value in graph.values() if value.name in found}, ""


def _inputs(folder: Path, graph: Graph) -> list[Array]:
    arrays = []
    for n, value in enumerate(graph.inputs):
        path = folder / "test" / f"in{n}.npy"
        array = stored_vector(path) if path.is_file() else random_inputs([value.type], 0)[0]
        arrays.append(array.reshape(value.shape))
    return arrays
