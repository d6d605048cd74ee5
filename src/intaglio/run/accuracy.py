"""The share of samples whose largest output is at the label, by a package and by the float model it came from."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from intaglio.errors import UserError, counted, quoted
from intaglio.ir.files import read_ir
from intaglio.ir.graph import Array, Graph
from intaglio.ir.sizes import most
from intaglio.ir.types import DType, TensorType
from intaglio.package.folder import write_text
from intaglio.package.manifest import read_manifest, write_digest
from intaglio.package.signing import sign_package
from intaglio.run.calibration import Samples
from intaglio.run.compare import is_at
from intaglio.run.data import read_arrays
from intaglio.run.loaded import LoadedPackage
from intaglio.run.reference import run_steps
from intaglio.run.validate import float_reference, ir_path

ACCURACY = "accuracy.json"  # beside the IR


@dataclass(frozen=True, slots=True)
class Labelled:
    """Shares of the samples, from 0 to 1: by the package, and by the model in floating point."""

    package: float
    reference: float
    samples: int

    def as_json(self) -> dict[str, float]:
        return {"quantized": self.package, "float": self.reference, "samples": self.samples}


def read_labels(given: Path | Sequence[int]) -> Array:
    """Of a file: the array named `labels`, or the only one there is."""
    if not isinstance(given, Path):
        return np.asarray(given, np.int64)
    arrays = read_arrays(given)
    if len(arrays) > 1 and "labels" not in arrays:
        raise UserError("wrong-input", f"{quoted(given.name)} has several arrays, none named `labels`", hint="name one `labels`")
    found = arrays.get("labels", next(iter(arrays.values()), None))
    if found is None or found.dtype.kind not in "iu":
        what = f"the labels in {quoted(given.name)} are {'missing' if found is None else found.dtype}, not integers"
        raise UserError("wrong-input", what, hint="labels are integers, one per sample")
    return found


def check_count(labels: Array, samples: int) -> None:
    if labels.size != samples:
        what = f"there are {counted(labels.size, 'label')} for {counted(samples, 'sample')}"
        raise UserError("wrong-input", what, hint="give one integer per sample")


def kept_accuracy(folder: Path) -> Labelled | None:
    """What `keep_accuracy` wrote."""
    try:
        table = json.loads((folder / "ir" / ACCURACY).read_text(encoding="utf-8"))
        return Labelled(float(table["quantized"]), float(table["float"]), int(table["samples"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def keep_accuracy(package: LoadedPackage, shares: Labelled, key: Path | None) -> None:
    """In the package, for reports and budgets: its manifest and its signature cover the file then."""
    name = f"ir/{ACCURACY}"
    write_text(package.folder / name, json.dumps(shares.as_json(), indent=1) + "\n")
    write_digest(read_manifest(package.folder), package.folder, name)
    if key is not None:
        sign_package(package.folder, key)


def accuracy_of(package: LoadedPackage, read: Callable[[Graph], Samples], labels: Array) -> Labelled:
    made, steps = _answers(package, read, labels)
    reference, first = float_reference(package), package.manifest.outputs[0].name
    wanted = made if reference is None else [r[first] for r in run_steps(reference, package.manifest, steps)]
    return Labelled(_share(made, labels), _share(wanted, labels), len(made))


def share_of(package: LoadedPackage, read: Callable[[Graph], Samples], labels: Array) -> float:
    """Of the package alone, whatever it was made from."""
    made, _ = _answers(package, read, labels)
    return _share(made, labels)


def samples_with_labels(
    graph: Graph, read: Callable[[Graph], Samples], labels: Array | None, output: tuple[str, int]
) -> tuple[Samples, dict[str, TensorType]]:
    """Checked: an array for each input, a label for each sample that the output (its name and elements) can have. And the grids of
    inputs that are integers: the data are floats. Changes the types of these inputs of `graph`."""
    grids = {}
    for value in graph.inputs:  # the data are floats, whatever the package takes
        if value.type.quant is not None and value.dtype.is_int:
            grids[value.name] = value.type
            value.type = TensorType(DType.F32, value.shape)
    samples = read(graph)
    if labels is not None:
        check_count(labels, len(samples))
        _check_classes(labels, *output)
    return samples, grids


def _check_classes(labels: Array, name: str, classes: int) -> None:
    if classes < 2:
        what = f"output {quoted(name)} has one element, so it has no classes to compare with labels"
        raise UserError("wrong-input", what, hint="labels are for classifiers; leave them out")
    wrong = labels[(labels < 0) | (labels >= classes)]
    if wrong.size:
        what = f"there is a label {int(wrong.reshape(-1)[0])}, and output {quoted(name)} has {classes:,} elements"
        raise UserError("wrong-input", what, hint=f"labels are positions in the output, from 0 to {classes - 1:,}")


def _answers(
    package: LoadedPackage, read: Callable[[Graph], Samples], labels: Array
) -> tuple[list[Array], list[dict[str, Array]]]:
    """The first output for every sample; and the samples."""
    graph, first = read_ir(ir_path(package)), package.manifest.outputs[0]
    samples, grids = samples_with_labels(graph, read, labels, (first.name, most(first.type.elements)))
    names = {v.name: v.origin or v.name for v in graph.inputs}
    steps = [{names[key]: array for key, array in sample.items()} for sample in samples]
    made: list[Array] = []
    package.reset()
    for sample in samples:
        if not package.manifest.states:
            package.reset()
        step = {names[key]: _stored(array, grids.get(key)) for key, array in sample.items()}
        made.append(package.run(step)[first.name])
    return made, steps


def _stored(array: Array, type: TensorType | None) -> Array:
    """Floats on the grid of an input of integers."""
    if type is None or type.quant is None:
        return array
    info = np.iinfo(type.dtype.numpy)
    steps = np.rint(array / np.float32(type.quant.scale[0])) + type.quant.zero_point[0]
    return np.asarray(np.clip(steps, info.min, info.max)).astype(type.dtype.numpy)


def _share(rows: list[Array], labels: Array) -> float:
    return float(np.mean([is_at(int(label), row) for row, label in zip(rows, labels.reshape(-1), strict=True)]))
