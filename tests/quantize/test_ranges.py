"""The range of a tensor's integers, by its numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio.ir.graph import Array
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


def by_definition(numbers: Array, bins: int = 2048, levels: int = 128) -> float:
    """Of the distribution p up to a limit, with all beyond it in the last bin, and q, its mean in each of 128 levels: the limit
    with the least sum of p log(p / q). What q cannot tell costs ten times its share."""
    sizes = np.abs(numbers)
    top = float(sizes.max())
    counts = np.histogram(sizes, bins=bins, range=(0.0, top))[0].astype(np.float64)
    counts[0] = 0.0 if counts[1:].any() else counts[0]
    best, limit = np.inf, top
    for used in range(levels, bins + 1, 16):
        p, q = counts[:used].copy(), np.zeros(used)
        p[-1] += counts[used:].sum()
        edges = np.linspace(0, used, levels + 1).astype(int)
        for first, last in pairwise(edges):
            inside = counts[first:last]
            q[first:last] = np.where(inside > 0, inside.sum() / max(1, np.count_nonzero(inside)), 0.0)
        if not q.sum():
            continue
        p, q = p / p.sum(), q / q.sum()
        both = (p > 0) & (q > 0)
        lost = float(np.sum(p[both] * np.log(p[both] / q[both]))) + 10.0 * float(p[(p > 0) & (q == 0)].sum())
        if lost < best:
            best, limit = lost, top * used / bins
    return limit


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator], Array]] = {
    "normal": lambda r: r.standard_normal(5000),
    "rectified": lambda r: np.maximum(r.standard_normal(5000), 0),
    "long tails": lambda r: r.standard_t(2, 5000),
    "whole numbers": lambda r: np.round(3 * r.standard_normal(5000)),
    "clipped": lambda r: np.clip(4 * r.standard_normal(5000), 0, 6),
    "two numbers": lambda r: np.array([0.0] * 30 + [2.5, 7.0]),
    "all equal": lambda r: np.full(40, 3.0),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_limit_by_entropy_is_that_of_its_definition(name: str) -> None:
    numbers = DISTRIBUTIONS[name](np.random.default_rng(3)).astype(np.float32)
    assert range_of("entropy", numbers, -1e9, 1e9, DType.I8)[1] == by_definition(numbers)


def test_grids_of_16_bits_are_symmetric() -> None:
    for low, high in ((-1.0, 3.0), (-3.0, 1.0), (0.0, 0.0)):
        scale, zero = grid(low, high, DType.I16)
        assert zero == 0 and scale == np.float32(max(-low, high, float(low == high)) / 32767)


@pytest.mark.parametrize("numbers", [np.random.default_rng(3).standard_t(3, 4000), np.append(np.linspace(0, 1, 4000), 40.0)])
def test_the_least_error_treats_both_ends_alike(numbers: Array) -> None:
    """Of a mirrored tensor in 16 bits, whose grid is symmetric, the error is the same; in 8 bits nearly."""
    x = np.asarray(numbers, np.float32)
    low, high = range_of("mse", x, float(x.min()), float(x.max()), DType.I8)
    turned = range_of("mse", -x, float(-x.max()), float(-x.min()), DType.I8)
    assert turned == pytest.approx((-high, -low), rel=0.1, abs=0.05 * (high - low))


@pytest.mark.parametrize("sign", [1, -1])
def test_one_end_is_drawn_in_where_the_other_has_no_outliers(sign: int) -> None:
    x = (sign * np.append(np.linspace(-10, 10, 60_000), 15.0)).astype(np.float32)
    ends = range_of("mse", x, float(x.min()), float(x.max()), DType.I8)
    kept, drawn = ends if sign > 0 else ends[::-1]
    assert abs(kept) > 9.9
    assert abs(drawn) < 13
