"""How far a model itself moves when its inputs change by one unit in the last place.

Some models amplify the smallest difference: a division by nearly zero, a long recurrence, a comparison that decides. Two correct
runtimes then differ by more than any fixed tolerance, and so does one from itself after such a change. An output that is outside of
the tolerance is held against that movement before it is called wrong; against how far the reference is from its own result in
double precision, where it can compute that; and, of quantised models, against what it computes in integers.

Indices and counts that follow from floats have no distance: the next best box may be anywhere. Of these, the elements that differ
are held against how many the reference itself changes. Where it changes none, one that differs is wrong. Detectors sort scores that
are nearly 1, and differ by their last bit: these move too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from intaglio.errors import UserError
from intaglio.ir.graph import Array, Graph
from intaglio.ir.types import DType
from intaglio.package.manifest import Manifest, TensorInfo
from intaglio.run.compare import Comparison
from intaglio.run.limited import Limited
from intaglio.run.reference import OnnxRuntime, Reference, as_bytes, as_in_model, run_steps
from intaglio.run.tolerances import is_exact

TRIES = 3
# Rounding happens in every layer, and in every sum of many products, not at the inputs alone.
FACTOR = 16
ROUNDED = 2  # times the error of the reference: its own, and as much again


def own_movement(
    reference: Reference, manifest: Manifest, steps: Sequence[Mapping[str, Array]], expected: Sequence[Mapping[str, Array]]
) -> dict[str, float]:
    """The largest change of each output, over some changes of the inputs by one ulp up or down; of indices and counts, the number
    of elements that change. Empty: no input is a float."""
    floats = [info.name for info in manifest.inputs if DType(info.dtype) in (DType.F16, DType.F32, DType.F64)]
    if not floats:
        return {}
    moved = {info.name: 0.0 for info in manifest.outputs}
    for seed in range(TRIES):
        rng = np.random.default_rng(seed)
        changed = [{n: _by_one_ulp(a, rng) if n in floats else a for n, a in step.items()} for step in steps]
        try:
            results = run_steps(reference, manifest, changed)
        except UserError:  # the reference does not take such an input
            continue
        for info in manifest.outputs:
            moved[info.name] = max(moved[info.name], _apart(info, results, expected))
    for seed in range(TRIES):
        ties = _near_ties(reference, manifest, steps, seed)
        if ties is None:
            break
        for info in manifest.outputs:
            moved[info.name] = max(moved[info.name], _apart(info, ties, expected))
    return moved


def _near_ties(
    reference: Reference, manifest: Manifest, steps: Sequence[Mapping[str, Array]], seed: int
) -> list[dict[str, Array]] | None:
    """The results where the scores of detectors move by a few ulps; None of other models."""
    if not isinstance(reference, OnnxRuntime | Limited) or manifest.states:
        return None
    found = reference.near_ties([as_in_model(step, manifest) for step in steps], seed)
    return None if found is None else [as_bytes(step, manifest) for step in found]


def own_error(
    reference: Reference, manifest: Manifest, steps: Sequence[Mapping[str, Array]], expected: Sequence[Mapping[str, Array]]
) -> dict[str, float]:
    """How far each output of the reference is from its result in double precision, and how many of indices and counts differ; empty
    where that is not known."""
    if not isinstance(reference, OnnxRuntime | Limited) or manifest.states:
        return {}
    precise = reference.in_double(steps)
    if precise is None:
        return {}
    known = [info for info in manifest.outputs if info.name in precise[0]]
    return {info.name: _apart(info, precise, expected) for info in known}


def _apart(info: TensorInfo, some: Sequence[Mapping[str, Array]], others: Sequence[Mapping[str, Array]]) -> float:
    """The largest difference of two results; of indices and counts, the number of elements that differ."""
    pairs = [(np.asarray(a[info.name]), np.asarray(b[info.name])) for a, b in zip(some, others, strict=True)]
    if is_exact(info):
        return float(sum(_differing(a, b) for a, b in pairs))
    return max((_change(a, b) for a, b in pairs), default=0.0)


def beside_noise(
    reference: Reference, manifest: Manifest, steps: Sequence[Mapping[str, Array]], expected: Sequence[Mapping[str, Array]],
    rows: Sequence[Comparison],
) -> list[Comparison]:  # fmt: skip
    """Outputs of floats that are outside of the tolerance, held against how far the reference moves by itself, or is off; indices
    and counts against how many of its own change."""
    moved = own_movement(reference, manifest, steps, expected)
    asked = {info.name: info for info in manifest.outputs if info.name in moved and (DType(info.dtype).is_float or is_exact(info))}
    off: Mapping[str, float] = {}

    def judged(row: Comparison) -> Comparison:
        if row.ok or row.name not in asked:
            return row
        judge = within_changes if is_exact(asked[row.name]) else within_noise
        return judge(row, moved[row.name], off.get(row.name, 0.0))

    rows = [judged(row) for row in rows]
    if all(row.ok or row.name not in asked for row in rows):
        return rows
    off = own_error(reference, manifest, steps, expected)
    return [judged(row) for row in rows]


def may_be_noise(info: TensorInfo, row: Comparison) -> bool:
    """Is it worth asking? Integers on a grid are not judged by the inputs of one ulp."""
    return not row.ok and (row.mismatches == 0 or is_exact(info))


def beside_integers(
    reference: Reference, manifest: Manifest, steps: Sequence[Mapping[str, Array]], expected: Sequence[Mapping[str, Array]],
    rows: Sequence[Comparison], compared: Callable[[TensorInfo, Sequence[Mapping[str, Array]]], Comparison],
) -> list[Comparison]:  # fmt: skip
    """Outputs of quantised models that differ, held against what ONNX Runtime computes in integers. In floats, a sum whose rounding
    error crosses half-way is one step off in the layers behind it; with optimisations, some layers round otherwise. So an output
    that is no further off than these two are apart is right too."""
    found = integer_results(reference, manifest, steps)
    if found is None:
        return list(rows)
    judged = []
    for row, info in zip(rows, manifest.outputs, strict=True):
        if row.ok or any(info.name not in step for step in found):
            judged.append(row)
            continue
        pairs = [(np.asarray(a[info.name]), np.asarray(b[info.name])) for a, b in zip(found, expected, strict=True)]
        apart = max(_distance(a, b) for a, b in pairs)
        other = compared(info, found)
        near = row.max_abs <= ROUNDED * apart and row.mismatches <= ROUNDED * sum(int(np.count_nonzero(a != b)) for a, b in pairs)
        chosen = other if other.ok else replace(row, ok=near)
        judged.append(replace(chosen, moved_abs=row.moved_abs, off_abs=apart, by_integers=chosen.ok))
    return judged


def integer_results(
    reference: Reference, manifest: Manifest, steps: Sequence[Mapping[str, Array]]
) -> list[dict[str, Array]] | None:
    """What ONNX Runtime computes for a quantised model with optimisations; None for others."""
    if not isinstance(reference, OnnxRuntime | Limited) or manifest.states:
        return None
    found = reference.optimised([as_in_model(step, manifest) for step in steps])
    return None if found is None else [as_bytes(step, manifest) for step in found]


def has_integers(graph: Graph) -> bool:
    """Are some layers quantised?"""
    small = (DType.I8, DType.U8, DType.I16, DType.U16)
    return any(value.dtype in small for node in graph.nodes for value in node.outputs)


def within_noise(row: Comparison, moved: float, off: float = 0.0) -> Comparison:
    """`ok` where the difference is no more than the model's own movement explains, or the reference's own error."""
    noisy = row.max_abs <= max(FACTOR * moved, ROUNDED * off)
    return replace(row, moved_abs=moved, off_abs=off or None, ok=row.ok or noisy, by_noise=noisy and not row.ok)


def within_changes(row: Comparison, moved: float, off: float = 0.0) -> Comparison:
    """The same of indices and counts: `ok` where no more elements differ than those of the reference that change explain."""
    noisy = row.mismatches <= max(FACTOR * moved, ROUNDED * off)
    return replace(row, moved_elements=int(moved), off_elements=int(off) or None, ok=row.ok or noisy, by_noise=noisy and not row.ok)


def _by_one_ulp(array: Array, rng: np.random.Generator) -> Array:
    towards = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
    return np.asarray(np.nextafter(array, towards), array.dtype)


def _distance(a: Array, b: Array) -> float:
    if a.dtype.kind not in "fiu" or a.shape != b.shape:
        return 0.0
    wide, other = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(other)
    return float(np.max(np.abs(wide[finite] - other[finite]), initial=0.0))


def _change(a: Array, b: Array) -> float:
    """Another number of rows is a difference of 1 in a comparison, which is then explained, and no more than that."""
    return _distance(a, b) if a.shape == b.shape else 1 / FACTOR


def _differing(a: Array, b: Array) -> int:
    """Elements; another number of rows is one difference, as in a comparison."""
    return int(np.count_nonzero(a != b)) if a.shape == b.shape else 1
