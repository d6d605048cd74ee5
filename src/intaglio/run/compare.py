"""How far an output is from its reference: in the units people ask for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.base import widen
from intaglio.package.tolerance import SELFTEST_TOLERANCE

ABSOLUTE = 1e-6
Decides: TypeAlias = Literal["either", "cosine", "both"]  # of tolerance and cosine, where there is a threshold for the latter


@dataclass(frozen=True, slots=True)
class Comparison:
    name: str
    max_abs: float
    max_rel: float  # of the largest reference value
    cosine: float
    sqnr_db: float | None  # signal to noise; None when there is no noise
    top1: float | None  # share of rows whose largest element is at the same place
    mismatches: int  # elements of an integer output that differ
    ok: bool
    by_cosine: bool = False  # outside of the tolerance, and ok by its cosine
    moved_abs: float | None = None  # how far the reference moves by one ulp of the inputs, where that was asked
    moved_elements: int | None = None  # of indices and counts: how many of the reference's own change then
    off_elements: int | None = None  # and how many differ from its result in double precision, where that was asked
    off_abs: float | None = None  # how far the reference is from its own result in double precision, where that was asked
    by_noise: bool = False  # outside of the tolerance, and ok by that
    by_integers: bool = False  # ok by what the reference computes in integers; `off_abs` is how far that is from its floats


def compare(
    name: str, got: Array, want: Array, dtype: DType, tolerance: float | None = None, threshold: float | None = None,
    decides: Decides = "either",
) -> Comparison:  # fmt: skip
    """Within `tolerance` of the largest reference value + 1e-6; integers exactly. NaN equals NaN, infinity itself.

    With a `threshold`, a cosine from there on is enough too, is all that counts, or has to be as well; not of a single number,
    whose cosine says nothing."""
    if got.size != want.size:
        return Comparison(name, float("inf"), float("inf"), 0.0, None, 0.0, max(got.size, want.size), False)
    got = got.reshape(want.shape)
    exact = not dtype.is_float
    mismatches = int(np.count_nonzero(got != want)) if exact else 0
    a = widen(got, dtype).astype(np.float64)
    b = widen(want, dtype).astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    broken = bool(np.any(~finite & ~same))
    error = np.where(same, 0.0, np.abs(np.where(finite, a, 0) - np.where(finite, b, 0)))
    largest = float(np.max(np.abs(b[np.isfinite(b)]), initial=0.0))
    worst = float("inf") if broken else float(np.max(error, initial=0.0))
    share = SELFTEST_TOLERANCE.get(dtype, 0.0) if tolerance is None else tolerance
    near = mismatches == 0 if exact else worst <= share * largest + ABSOLUTE
    relative = worst / largest if largest > 0 else (0.0 if worst == 0 else float("inf"))
    cosine = _cosine(a, b, finite)
    ok = near
    if threshold is not None and got.size > 1:
        alike = not broken and cosine >= threshold
        ok = near or alike if decides == "either" else alike and (near or decides == "cosine")
    return Comparison(name, worst, relative, cosine, _sqnr(b, error, finite), _top1(a, b), mismatches, ok, ok and not near)


def is_at(label: int, row: Array) -> bool:
    """Is the largest element there? Not where nothing was found."""
    return row.size > 0 and int(np.argmax(row)) == label


def _cosine(a: Array, b: Array, finite: Array) -> float:
    x, y = np.where(finite, a, 0.0).ravel(), np.where(finite, b, 0.0).ravel()
    lengths = float(np.linalg.norm(x) * np.linalg.norm(y))
    if lengths == 0.0:
        return 1.0 if not x.any() and not y.any() else 0.0
    return min(1.0, float(np.dot(x, y)) / lengths)


def _sqnr(b: Array, error: Array, finite: Array) -> float | None:
    noise = float(np.sum(np.square(error, dtype=np.float64)))
    signal = float(np.sum(np.square(np.where(finite, b, 0.0), dtype=np.float64)))
    if noise == 0.0 or signal == 0.0:
        return None
    return float(10 * np.log10(signal / noise))


def _top1(a: Array, b: Array) -> float | None:
    if b.ndim == 0 or b.shape[-1] < 2 or b.size == 0:
        return None
    same = np.argmax(a, axis=-1) == np.argmax(b, axis=-1)
    return float(np.mean(same))
