"""The range of a tensor's integers, by its numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio.ir.types import DType
from intaglio.quantize.ranges import grid, range_of, rounded
from intaglio.quantize.settings import METHODS
from support.examples import examples


@pytest.mark.parametrize("method", METHODS)
@settings(deadline=None, max_examples=examples(40))
@given(st.integers(0, 1000), st.floats(-3, 3), st.floats(0.01, 100))
def test_a_range_has_zero_in_it_and_stays_inside(method: str, seed: int, shift: float, size: float) -> None:
    x = ((np.random.default_rng(seed).standard_normal(500) + shift) * size).astype(np.float32)
    low, high = range_of(method, x, float(x.min()), float(x.max()), DType.I8)
    assert min(float(x.min()), 0.0) <= low <= 0.0 <= high <= max(float(x.max()), 0.0)


def test_the_least_error_is_not_above_that_of_the_full_range() -> None:
    x = np.random.default_rng(0).standard_t(3, 20000).astype(np.float32)
    full = (float(x.min()), float(x.max()))

    def error(low: float, high: float) -> float:
        return float(np.mean((rounded(x, *grid(low, high, DType.I8), DType.I8) - x) ** 2))

    assert error(*range_of("mse", x, *full, DType.I8)) < error(*full)


def test_outliers_are_clipped() -> None:
    x = np.concatenate([np.random.default_rng(0).standard_normal(100_000), [1000.0]]).astype(np.float32)
    for method in ("percentile", "entropy"):
        assert range_of(method, x, float(x.min()), 1000.0, DType.I8)[1] < 600, method


@given(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4))
def test_zero_is_exact_on_every_grid(a: float, b: float) -> None:
    for dtype in (DType.I8, DType.I16):
        scale, zero = grid(min(a, b, 0.0), max(a, b, 0.0), dtype)
        assert rounded(np.zeros(1, np.float32), scale, zero, dtype)[0] == 0.0
        assert np.iinfo(dtype.numpy).min <= zero <= np.iinfo(dtype.numpy).max
