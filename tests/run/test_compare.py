"""What counts as the same."""

from __future__ import annotations

import numpy as np

from intaglio.ir.types import DType
from intaglio.run.compare import compare, is_at

F32 = DType.F32


def floats(*values: float) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    return np.array(values, np.float32)


def test_the_bound_is_relative_to_the_largest_value() -> None:
    assert compare("y", floats(1000, 0.05), floats(1000, 0), F32).ok
    assert not compare("y", floats(1, 0.05), floats(1, 0), F32).ok


def test_nan_equals_nan_and_infinity_itself() -> None:
    odd = floats(np.nan, np.inf, -np.inf, 1)
    assert compare("y", odd, odd, F32).ok
    assert not compare("y", floats(0, 1), floats(np.nan, 1), F32).ok
    assert not compare("y", floats(np.inf, 1), floats(-np.inf, 1), F32).ok


def test_integers_are_counted_one_by_one() -> None:
    got, want = np.array([1, 2, 3], np.int64), np.array([1, 5, 4], np.int64)
    row = compare("y", got, want, DType.I64)
    assert (row.mismatches, row.ok) == (2, False)


def test_other_figures() -> None:
    row = compare("y", floats(1, 2, 3.003), floats(1, 2, 3), F32, tolerance=0.01)
    assert row.ok
    assert row.top1 == 1.0
    assert 0.999 < row.cosine <= 1
    assert row.sqnr_db is not None
    assert 60 < row.sqnr_db < 65


def test_sizes_that_differ_are_wrong() -> None:
    assert not compare("y", floats(1), floats(1, 2), F32).ok


def test_empty_outputs_are_the_same() -> None:
    assert compare("y", floats(), floats(), F32).ok


def test_a_cosine_is_enough_where_there_is_a_threshold() -> None:
    got, want = floats(1, 2, 3.03), floats(1, 2, 3)
    row = compare("y", got, want, F32, threshold=0.995)
    assert row.ok and row.by_cosine and not compare("y", got, want, F32).ok
    assert not compare("y", floats(3, 2, 1), want, F32, threshold=0.995).ok
    assert compare("y", want, want, F32, threshold=0.995).ok and not compare("y", want, want, F32, threshold=0.995).by_cosine


def test_the_cosine_of_one_number_says_nothing() -> None:
    assert not compare("y", floats(5), floats(1), F32, threshold=0.5).ok
    assert not compare("y", floats(1, np.nan), floats(1, 1), F32, threshold=0.5).ok


def test_a_threshold_alone_decides_by_the_cosine_and_both_have_to_hold_together() -> None:
    got, want = floats(1, 2, 3.03), floats(1, 2, 3)
    assert compare("y", got, want, F32, 1e-4, 0.995, "cosine").ok and not compare("y", got, want, F32, 1e-4, 0.995, "both").ok
    assert not compare("y", got, want, F32, 1, 0.99999, "cosine").ok and not compare("y", got, want, F32, 1, 0.99999, "both").ok


def test_where_nothing_was_found_no_label_is_right() -> None:
    assert is_at(1, np.asarray([0.1, 0.9])) and not is_at(0, np.asarray([0.1, 0.9])) and not is_at(0, np.zeros(0))
