"""Vector functions against float64 over the whole range, with the bounds that `kernels/math.py` states."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from intaglio.ir.graph import Array
from intaglio.kernels.interpret import run_function
from intaglio.kernels.isa import ISAS
from intaglio.kernels.math import BOUNDS, VECTOR_FUNCTIONS

F = np.float32
RNG = np.random.default_rng(3)
WIDE = np.concatenate(
    [
        RNG.uniform(-100, 100, 3000), RNG.standard_normal(3000), RNG.standard_normal(1000) * 1e-3,
        np.exp(RNG.uniform(-87, 88, 2000)), -np.exp(RNG.uniform(-87, 88, 1000)), np.linspace(-89, 89, 3000),
    ]
).astype(F)  # fmt: skip
EXACT: dict[str, Callable[[Array], Array]] = {
    "exp": lambda x: np.exp(x),
    "log": lambda x: np.log(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": lambda x: np.tanh(x),
    "erf": lambda x: np.array([math.erf(v) for v in x.tolist()]),
}
ODD = [math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-45, -1e-45, 1e-40, 88.0, 89.0, -88.0, -104.0, 3e38, -3e38, 1.0, -1.0]
AT_ODD: dict[str, list[float | None]] = {
    "exp": [math.inf, 0.0, math.nan, 1, 1, 1, 1, 1, math.exp(88), math.inf, 0, 0, math.inf, 0, math.e, 1 / math.e],
    "log": [math.inf, math.nan, math.nan, -math.inf, -math.inf, None, math.nan, None, *[math.log(v) for v in (88, 89)],
            math.nan, math.nan, math.log(3e38), math.nan, 0, math.nan],
    "sigmoid": [1, 0, math.nan, 0.5, 0.5, 0.5, 0.5, 0.5, 1, 1, 0, 0, 1, 0, 1 / (1 + math.exp(-1)), 1 / (1 + math.e)],
    "tanh": [1, -1, math.nan, 0, 0, 0, 0, 0, 1, 1, -1, -1, 1, -1, math.tanh(1), -math.tanh(1)],
    "erf": [1, -1, math.nan, 0, 0, 0, 0, 0, 1, 1, -1, -1, 1, -1, math.erf(1), -math.erf(1)],
}  # fmt: skip


def computed(name: str, x: Array, isa: str) -> Array:
    """By the body of the function, in one vector as wide as the data."""
    return run_function(name, replace(ISAS[isa], lanes=len(x)), x)


def test_every_function_has_a_bound() -> None:
    assert set(BOUNDS) == set(VECTOR_FUNCTIONS) == set(EXACT)


@pytest.mark.parametrize("name", sorted(VECTOR_FUNCTIONS))
def test_the_error_stays_below_the_stated_bound(name: str) -> None:
    x = WIDE[WIDE > 1.2e-38] if name == "log" else WIDE
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype(np.float64))
    result = computed(name, x, "avx2").astype(np.float64)
    normal = (np.abs(exact) > 2.4e-38) & (np.abs(exact) < 3.4e38)
    error = np.abs(result[normal] - exact[normal]) / np.abs(exact[normal])
    worst = float(error.max())
    assert BOUNDS[name] / 4 < worst <= BOUNDS[name], f"{name}: {worst:.3g}"
    np.testing.assert_allclose(result[np.abs(exact) <= 2.4e-38], 0, atol=2.4e-38)


@pytest.mark.parametrize("name", sorted(VECTOR_FUNCTIONS))
@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_infinities_zeros_denormals_and_nan(isa: str, name: str) -> None:
    for x, result, exact in zip(ODD, computed(name, np.array(ODD, F), isa).tolist(), AT_ODD[name], strict=True):
        if exact is not None:  # log of a denormal is that of the smallest normal number
            assert result == pytest.approx(exact, rel=1e-6, abs=1e-30, nan_ok=True), f"{name}({x})"


def test_log_of_a_denormal_is_that_of_the_smallest_normal_number() -> None:
    assert float(computed("log", np.array([1e-40], F), "avx2")[0]) == pytest.approx(math.log(1.17549435e-38))
