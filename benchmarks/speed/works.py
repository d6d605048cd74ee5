"""The models of `make bench`: those of ../shared/models where they are, architectures made here, and int8 forms of two of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from peers.base import Work

FORMATS = ("onnx", "tflite")  # of files that peers take too
QDQ = ("mobilenetv2", "resnet50")


@dataclass(frozen=True, slots=True)
class Planned:
    """A row before its files are there: `make` writes what is missing."""

    name: str
    make: Callable[[], Work]


def planned(shared: Path, build: Path, only: str) -> list[Planned]:
    """The rows whose names match, small ones first within each source."""
    from architectures import ARCHITECTURES

    rows = list(_of_manifest(shared, build))
    rows += [Planned(a.name, _architecture(a.name, build)) for a in ARCHITECTURES]
    rows += [Planned(f"{name}_qdq", _quantised(name, build)) for name in QDQ]
    return [row for row in rows if re.search(only, row.name)]


def _of_manifest(shared: Path, build: Path) -> Iterator[Planned]:
    path = shared / "manifest.json"
    if not path.exists():
        return
    for entry in json.loads(path.read_text(encoding="utf-8")):
        if entry["format"] in FORMATS:
            yield Planned(entry["id"], _recorded(entry, shared, build))


def kind_of(types: set[str]) -> str:
    """By the types of operands: `INT8*INT8`, `FLOAT32*INT8`, `FLOAT`."""
    if any(t.startswith("FLOAT32*INT8") for t in types):
        return "mixed"  # float activations, integer weights
    return "int8" if any(t.startswith(("INT8", "UINT8")) for t in types) else "float"


def _recorded(entry: dict[str, object], shared: Path, build: Path) -> Callable[[], Work]:
    def make() -> Work:
        data = np.load(shared / str(entry["ref"]))
        inputs, outputs, types = entry["inputs"], entry["outputs"], entry["op_dtypes"]
        assert isinstance(inputs, list) and isinstance(outputs, list) and isinstance(types, dict)
        arrays = [np.array(data[f"in{i}"][0], order="C") for i in range(len(inputs))]
        expected = [np.asarray(data[f"out{i}"][0]) for i in range(len(outputs))]
        kind = kind_of({t for kinds in types.values() for t in kinds})
        name = str(entry["id"])
        return Work(name, kind, {str(entry["format"]): shared / str(entry["file"])}, arrays, build / "made" / name, expected)

    return make


def _architecture(name: str, build: Path) -> Callable[[], Work]:
    def make() -> Work:
        path = model_file(name, build)
        return _with_reference(Work(name, "float", {"onnx": path}, inputs_of(path), build / "made" / name))

    return make


def _quantised(name: str, build: Path) -> Callable[[], Work]:
    def make() -> Work:
        path = model_file(f"{name}_qdq", build)
        files = {"onnx": path, "tflite": path.with_suffix(".tflite")}
        return _with_reference(Work(path.stem, "int8", files, inputs_of(path), build / "made" / path.stem))

    return make


def _with_reference(work: Work) -> Work:
    """With the outputs of ONNX Runtime without optimisations: node by node, quantised models in float between their quantisers.

    Its optimised integer kernels saturate sums of two products on processors without VNNI.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(work.path), options, providers=["CPUExecutionProvider"])
    feed = {given.name: array for given, array in zip(session.get_inputs(), work.inputs, strict=True)}
    return replace(work, expected=session.run(None, feed))


def model_file(name: str, build: Path) -> Path:
    """The ONNX file of an architecture or of its quantised form, written if it is missing."""
    from architectures import write_all
    from quantised import write_qdq

    (path,) = write_all(build / "models", f"^{name.removesuffix('_qdq')}$")
    return write_qdq(path, build / "models")["onnx"] if name.endswith("_qdq") else path


def inputs_of(path: Path) -> list[np.ndarray]:
    """Random data for each input: whole numbers below the rows of the table that they choose from, or normal ones."""
    model = onnx.load(str(path), load_external_data=False)
    random = np.random.default_rng(1)
    arrays = []
    weights = {w.name: w for w in model.graph.initializer}
    for info in (i for i in model.graph.input if i.name not in weights):
        shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
        if info.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            tables = [weights[n.input[0]].dims[0] for n in model.graph.node if n.op_type == "Gather" and info.name in n.input]
            arrays.append(random.integers(0, min(tables, default=2), shape))
        else:
            arrays.append(random.standard_normal(shape).astype(np.float32))
    return arrays
