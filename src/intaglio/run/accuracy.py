"""The share of samples whose largest output is at the label, by a package and by the float model it came from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from intaglio.errors import UserError, quoted
from intaglio.ir.files import read_ir
from intaglio.ir.graph import Array, Graph
from intaglio.run.calibration import Samples
from intaglio.run.package import Package
from intaglio.run.reference import run_steps
from intaglio.run.validate import float_reference, ir_path


@dataclass(frozen=True, slots=True)
class Labelled:
    package: float
    reference: float
    samples: int


def accuracy_of(package: Package, read: Callable[[Graph], Samples], labels: Array) -> Labelled:
    graph = read_ir(ir_path(package))
    for value, info in zip(graph.inputs, package.manifest.inputs, strict=False):
        if value.dtype.is_int and info.quant is not None:
            hint = "compile without `--integer-io` to see the accuracy, or run `validate --labels` on integers"
            raise UserError("wrong-input", "the package takes integers, the data is floats", hint=hint)
    samples = read(graph)
    labels = np.asarray(labels).reshape(-1)
    if len(labels) != len(samples):
        what = f"there are {len(labels)} labels for {len(samples)} samples"
        raise UserError("wrong-input", what, hint="labels are one whole number per sample of `--calibrate`")
    first = package.manifest.outputs[0]
    if first.type.elements < 2:
        raise UserError("wrong-input", f"output {quoted(first.name)} has one element, there is no class to compare with labels")
    names = {v.name: v.origin or v.name for v in graph.inputs}
    steps = [{names[key]: array for key, array in sample.items()} for sample in samples]
    made: list[Array] = []
    package.reset()
    for step in steps:
        if not package.manifest.states:
            package.reset()
        made.append(package.run(step)[first.name])
    reference = float_reference(package)
    wanted = made if reference is None else [r[first.name] for r in run_steps(reference, package.manifest, steps)]
    return Labelled(_share(made, labels), _share(wanted, labels), len(samples))


def _share(rows: list[Array], labels: Array) -> float:
    return float(np.mean([int(np.argmax(row)) == int(label) for row, label in zip(rows, labels, strict=True)]))
