"""Test vectors for a package: inputs that the reference accepts, and its outputs."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

import numpy as np

from intaglio.errors import IntaglioError, ToolError
from intaglio.ir.graph import Array, Graph, Value
from intaglio.ir.operator import BadOperator
from intaglio.ir.types import DType, Shape
from intaglio.ops.binary import Equal
from intaglio.ops.convert import Cast
from intaglio.ops.found import AsSize
from intaglio.ops.move import Reshape, Slice
from intaglio.ops.strings import TextFind, TextTrim
from intaglio.package.at_sizes import at_sizes
from intaglio.package.manifest import Manifest
from intaglio.package.vectors import KINDS, OTHER_SIZES, Vectors, random_inputs, sizes_at, write_vectors
from intaglio.run.compare import compare
from intaglio.run.limited import COMPILE_SECONDS, Limited, limit, reference_within
from intaglio.run.noise import has_integers, integer_results
from intaglio.run.reference import LONG_RUN, IrReference, Reference, cannot_compare, run_steps
from intaglio.run.toolchains import Toolchain

SEED = 0
SEEDS = 4  # inputs of a kind that are tried where a runtime has two results, or sizes have bounds
MOST_MACS = 300_000_000  # of a model that numpy computes where a runtime has two results for all of them
MOST_ENDLESS = 2
_LEAST_SECONDS = 0.1
LAST_SHARE = 0.8  # of sizes that a model does not take, the last to be tried before the largest


def expected_vectors(graph: Graph, manifest: Manifest, folder: Path, note: Callable[[str], None]) -> None:
    """Write `test/`. ONNX Runtime computes the outputs where it can, the IR itself where it cannot."""
    names = [info.name for info in manifest.inputs]
    found: list[Vectors] = []
    said: set[str] = set()
    refused: list[Exception] = []  # by the package, of what a reference accepts

    def once(text: str) -> None:  # and not for every size
        if text not in said:
            note(text)
        said.add(text)

    for share in (1.0, *OTHER_SIZES) if manifest.given else (1.0,):
        try:
            vectors = _at_share(graph, manifest, folder, once, share, refused)
        except ToolError as error:
            if error.slug != LONG_RUN:
                raise
            note(f"{error.message} on random inputs, so the package has no test vectors: `validate --inputs` takes yours")
            return
        if vectors is None and not found:
            most = ", ".join(f"`--max {word}`" for word in manifest.options.get("most", "").split(",") if word)
            beyond = f"random inputs are beyond {most or 'the bounds of the package'}, not beyond what the model takes"
            why = beyond if refused else "no reference accepts random inputs"
            note(f"{why}, so the package has no test vectors; `validate` and `profile` take `--inputs`")
            return
        found.append(vectors or found[0])
    for n, vectors in enumerate(found):
        place = folder / "test" if n == 0 else folder / "test" / str(n)
        write_vectors(vectors, place, names, [info.name for info in manifest.outputs])


def _at_share(
    graph: Graph, manifest: Manifest, folder: Path, note: Callable[[str], None], share: float, refused: list[Exception]
) -> Vectors | None:  # fmt: skip
    """For sizes between the least, 0, and the largest, 1. Where the model does not take them, for larger ones."""
    while True:
        sizes = sizes_at(manifest.given, share)
        here = at_sizes(manifest, sizes)
        vectors = _first_vectors(_references(graph.pinned(sizes) if sizes else graph, here, folder, note), here, graph, refused)
        if vectors is not None or share > LAST_SHARE:
            return vectors
        share = (share + 1) / 2


def _first_vectors(
    references: list[Reference], manifest: Manifest, graph: Graph, refused: list[Exception]
) -> Vectors | None:  # fmt: skip
    shapes = {info.name: info.shape for info in manifest.inputs}
    names, known = list(shapes), compared_with(graph) | words_for(graph, shapes)
    bounded = bool(manifest.options.get("most")) or any(isinstance(node.op, AsSize) for node in graph.nodes)
    own = references[-1] if bounded else None
    macs = sum(n.op.macs([None if v is None else v.type for v in n.inputs], n.output.type) for n in graph.nodes)
    two_ways = has_integers(graph)
    for one in references:
        if (found := _vectors(one, manifest, names, known, own, refused, two_ways, macs)) is not None:
            return found
    return None


def _references(graph: Graph, manifest: Manifest, folder: Path, note: Callable[[str], None]) -> list[Reference]:
    found: list[Reference] = []
    if (
        manifest.stream is None
        and manifest.model.source is not None
        and not cannot_compare(manifest)
        and not manifest.options.get("quantize")
    ):
        try:
            found.append(reference_within(folder / manifest.model.source, manifest, usual=COMPILE_SECONDS))
        except IntaglioError as error:
            note(f"{error.message}; test vectors come from the numpy references instead")
    return [*found, IrReference(graph, limit(COMPILE_SECONDS))]


Likely = tuple[int | Array, int | Array]


def compared_with(graph: Graph) -> dict[str, Likely]:
    """Whole-number inputs that the model compares with a constant (a sampling rate, a shape): there that constant is the likely
    value. One that becomes a size is in the middle of its bounds; the second number is its least, for inputs that are zero."""
    found: dict[str, Likely] = {}
    for node in graph.nodes:
        if isinstance(node.op, AsSize) and (given := _taken_from(graph, node.inputs[0])) is not None:
            found[given.origin or given.name] = (node.op.low + node.op.high + 1) // 2, node.op.low
    for value in graph.inputs:
        if not value.dtype.is_int:
            continue
        for node in graph.nodes:
            if value in node.inputs and (value.type.elements == 1 or isinstance(node.op, Equal)):
                for other in node.inputs:
                    if other is None or other.data is None or other.dtype is not value.dtype:
                        continue
                    if other.data.size == 1 == value.type.elements:
                        found.setdefault(value.origin or value.name, (int(other.data.flat[0]),) * 2)
                    elif other.shape == value.shape:
                        found.setdefault(value.origin or value.name, (other.data, other.data))
    return found


def words_for(graph: Graph, shapes: Mapping[str, Shape]) -> dict[str, Likely]:
    """Inputs that are strings and looked up in a table: there words of the table, one after the other, are the likely value, and a
    string that is not in it."""
    found: dict[str, Likely] = {}
    trimmed = {node.output: node.inputs[0] for node in graph.nodes if isinstance(node.op, TextTrim)}
    for node in graph.nodes:
        if not isinstance(node.op, TextFind):
            continue
        text, table = (trimmed.get(value, value) if value is not None else None for value in node.inputs[:2])
        if text is None or table is None or table.data is None or (text.origin or text.name) not in shapes:
            continue
        *shape, width = shapes[text.origin or text.name]
        rows = np.zeros((len(table.data) + 1, max(width, table.data.shape[-1])), np.uint8)
        rows[:-1, : table.data.shape[-1]] = table.data
        rows = rows[~rows[:, width:].any(axis=1), :width]
        chosen = rows[np.arange(math.prod(shape)) % len(rows)].reshape(*shape, width)
        found.setdefault(text.origin or text.name, (chosen, np.zeros_like(chosen)))
    return found


def _taken_from(graph: Graph, value: Value | None) -> Value | None:
    """The input that a single number is, by way of casts and reshapes."""
    makers = {out: node for node in graph.nodes for out in node.outputs}
    while value is not None and value.type.elements == 1 and value not in graph.inputs:
        node = makers.get(value)
        value = node.inputs[0] if node is not None and isinstance(node.op, (Cast, Reshape, Slice)) else None
    return value if value is not None and value.type.elements == 1 else None


def _vectors(
    reference: Reference, manifest: Manifest, names: list[str], known: dict[str, Likely], own: Reference | None,
    refused: list[Exception], two_ways: bool, macs: int,
) -> Vectors | None:  # fmt: skip
    """The first kind of inputs that is accepted and gives finite numbers; else the first that is accepted. A loop may end for one
    kind and not for another: two that do not end are enough, and share the time of one run. `own` knows the bounds of numbers that
    become sizes, which the runtime of the model does not. Inputs for which ONNX Runtime has one result in floats and another in
    integers (`two_ways`) would be a self-test that a right package may fail: others are taken, or those of the IR."""
    fallback = None
    endless = apart = 0
    left = reference.seconds if isinstance(reference, (Limited, IrReference)) else None  # for all that do not end together
    seeds = range(SEED, SEED + (SEEDS if two_ways or own is not None else 1))
    for kind, seed in [(kind, seed) for kind in KINDS for seed in seeds]:
        if kind == KINDS[-1] and apart:
            continue  # zeros test nothing
        inputs = random_inputs([info.type for info in manifest.inputs], seed, kind)
        for n, name in enumerate(names):
            if name in known:
                inputs[n] = np.full_like(inputs[n], known[name][kind == KINDS[-1]])
        start = time.perf_counter()
        if isinstance(reference, (Limited, IrReference)) and left is not None:
            reference.seconds = left / max(MOST_ENDLESS - endless, 1)
        try:
            steps = [dict(zip(names, inputs, strict=True))]
            results = run_steps(reference, manifest, steps)[0]
            if own is not None and own is not reference:
                _refused_by(own, manifest, steps, refused)
        except (IntaglioError, BadOperator) as error:  # an index out of range, a branch that was left out
            if isinstance(error, ToolError) and error.slug == LONG_RUN:
                endless += 1
                left = None if left is None else max(left - (time.perf_counter() - start), _LEAST_SECONDS)
            if endless == MOST_ENDLESS and fallback is None:
                raise
            continue
        shapes = [np.shape(results[info.name]) if info.dims else info.shape for info in manifest.outputs]
        pairs = [*zip(manifest.outputs, shapes, strict=True)]
        if any(np.size(results[info.name]) != math.prod(shape) for info, shape in pairs):
            continue  # of a branch that was left out
        outputs = [_stored(results[info.name], shape, DType(info.dtype)) for info, shape in pairs]
        vectors = Vectors(tuple(inputs), tuple(outputs), seed, kind, reference.about)
        if two_ways and not _agrees(reference, manifest, steps, results):
            apart += 1
            fallback = fallback or vectors
            continue
        if all(o.dtype.kind != "f" or bool(np.isfinite(o).all()) for o in outputs):
            return vectors
        fallback = fallback or vectors
    return None if apart and macs <= MOST_MACS else fallback


def _refused_by(own: Reference, manifest: Manifest, steps: list[dict[str, Array]], refused: list[Exception]) -> None:
    try:
        run_steps(own, manifest, steps)
    except (IntaglioError, BadOperator) as error:
        refused.append(error)
        raise


def _agrees(reference: Reference, manifest: Manifest, steps: list[dict[str, Array]], results: dict[str, Array]) -> bool:
    """Whether a runtime has the same result, within rounding, in floats and in integers; or only one."""
    found = integer_results(reference, manifest, steps)
    return found is None or all(
        info.name not in found[0] or compare(info.name, found[0][info.name], results[info.name], DType(info.dtype)).ok
        for info in manifest.outputs
    )


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
