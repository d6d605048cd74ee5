"""Test vectors for a package: inputs that the reference accepts, and its outputs."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np

from intaglio.errors import IntaglioError
from intaglio.ir.graph import Array, Graph
from intaglio.ir.operator import BadOperator
from intaglio.ir.types import DType
from intaglio.package.manifest import Manifest
from intaglio.package.vectors import KINDS, Vectors, random_inputs, write_vectors
from intaglio.run.reference import IrReference, Reference, has_bf16, model_reference, run_steps
from intaglio.run.toolchains import Toolchain

SEED = 0


def expected_vectors(graph: Graph, manifest: Manifest, folder: Path, note: Callable[[str], None]) -> None:
    """Write `test/`. ONNX Runtime computes the outputs where it can, the IR itself where it cannot."""
    names = [info.name for info in manifest.inputs]
    vectors = None
    for reference in _references(graph, manifest, folder, note):
        vectors = _vectors(reference, manifest, names, compared_with(graph))
        if vectors is not None:
            break
    if vectors is None:
        note("no reference accepts random inputs, so the package has no test vectors")
        return
    write_vectors(vectors, folder / "test", names, [info.name for info in manifest.outputs])


def _references(graph: Graph, manifest: Manifest, folder: Path, note: Callable[[str], None]) -> list[Reference]:
    found: list[Reference] = []
    if (
        manifest.stream is None
        and manifest.model.source is not None
        and not has_bf16(manifest)
        and not manifest.options.get("quantize")
    ):
        try:
            found.append(model_reference(folder / manifest.model.source, manifest))
        except IntaglioError as error:
            note(f"{error.message}; test vectors come from the numpy references instead")
    return [*found, IrReference(graph)]


def compared_with(graph: Graph) -> dict[str, int]:
    """Whole-number inputs that the model compares with a constant (a sampling rate): there that constant is the likely value."""
    found: dict[str, int] = {}
    for value in graph.inputs:
        if not value.dtype.is_int or value.type.elements != 1:
            continue
        for node in graph.nodes:
            if value in node.inputs:
                for other in node.inputs:
                    if other is not None and other.data is not None and other.dtype is value.dtype and other.data.size == 1:
                        found.setdefault(value.origin or value.name, int(other.data.flat[0]))
    return found


def _vectors(reference: Reference, manifest: Manifest, names: list[str], known: dict[str, int]) -> Vectors | None:
    """The first kind of inputs that is accepted and gives finite numbers; else the first that is accepted."""
    fallback = None
    for kind in KINDS:
        inputs = random_inputs([info.type for info in manifest.inputs], SEED, kind)
        for n, name in enumerate(names):
            if name in known:
                inputs[n] = np.full_like(inputs[n], known[name])
        try:
            results = run_steps(reference, manifest, [dict(zip(names, inputs, strict=True))])[0]
        except (IntaglioError, BadOperator):  # an index out of range, a branch that was left out
            continue
        outputs = [_stored(results[info.name], info.shape, DType(info.dtype)) for info in manifest.outputs]
        vectors = Vectors(tuple(inputs), tuple(outputs), SEED, kind, reference.about)
        if all(o.dtype.kind != "f" or bool(np.isfinite(o).all()) for o in outputs):
            return vectors
        fallback = fallback or vectors
    return fallback


def _stored(array: Array, shape: tuple[int, ...], dtype: DType) -> Array:
    return np.asarray(array).astype(dtype.numpy, copy=False).reshape(shape)


def tool_versions(toolchain: Toolchain | None) -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("numpy", "onnx", "onnxruntime", "jinja2", "safetensors"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    if toolchain is not None:
        versions["compiler"] = toolchain.version
    return versions
