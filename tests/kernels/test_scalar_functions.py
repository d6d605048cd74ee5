"""Vector functions against float64 over the whole range, with the bounds that `kernels/scalar_functions.py` states."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intaglio.ir.graph import Array
from intaglio.kernels.interpret import run_function
from intaglio.kernels.isa import ISAS
from intaglio.kernels.lanes import INSTRUCTIONS
from intaglio.kernels.scalar_functions import FUNCTIONS, ScalarFunction
from intaglio.ops.base import REGISTRY, Elementwise
from intaglio.ops.numeric import numeric
from support.elementwise_meaning import MEANINGS, positive

ROOT = Path(__file__).resolve().parents[2]
VECTOR = [name for name, row in FUNCTIONS.items() if row.vector is not None]
F = np.float32
RNG = np.random.default_rng(3)
WIDE = np.concatenate(
    [
        RNG.uniform(-100, 100, 3000), RNG.standard_normal(3000), RNG.standard_normal(1000) * 1e-3,
        np.exp(RNG.uniform(-87, 88, 2000)), -np.exp(RNG.uniform(-87, 88, 1000)), np.linspace(-89, 89, 3000),
    ]
).astype(F)  # fmt: skip
ODD = [math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-45, -1e-45, 1e-40, 88.0, 89.0, -88.0, -104.0, 3e38, -3e38, 1.0, -1.0]
SMALLEST = 2.0**-126  # the smallest normal number


def computed(name: str, x: Array, isa: str) -> Array:
    """By the body of the function, in one vector as wide as the data."""
    return run_function(name, replace(ISAS[isa], lanes=len(x)), x)


def test_vectors_compute_the_operators_that_say_so() -> None:
    """Passes ask the class of an operator, kernels its row: by an instruction, or by a body with a bound."""
    for name, row in FUNCTIONS.items():
        assert (row.vector is None) == (row.bound == 0)
        op = REGISTRY.get(name)
        if op is not None:
            assert issubclass(op, Elementwise) and (row.vector is not None or name in INSTRUCTIONS) == op.VECTOR, name


def test_firmware_has_every_function_of_the_library() -> None:
    header = (ROOT / "src/intaglio/package/templates/_firmware/firmware/libc/math.h").read_text(encoding="utf-8")
    called = {word for row in FUNCTIONS.values() for word in re.findall(r"[a-z]\w*(?=\()|^\w+$", row.c)}
    assert "exp" in called and "rint" in called
    for word in called:
        assert re.search(rf"\b{word}\(", header) and re.search(rf"\b{word}f\(", header), word


def test_the_text_of_an_expression() -> None:
    row = ScalarFunction("half_exp", np.exp, "0.5 * exp(-x) + 1.25e-3")
    assert row.c_text("f64") == "0.5 * exp(-x) + 1.25e-3"
    assert row.c_text("f32") == "0.5f * expf(-x) + 1.25e-3f"
    assert row.opencl_text() == "0.5f * exp(-x) + 1.25e-3f"
    assert row.builtin() == ""
    assert replace(row, opencl="half_exp").builtin() == "half_exp"


@pytest.mark.parametrize("name", VECTOR)
def test_the_error_stays_below_the_stated_bound(name: str) -> None:
    row = FUNCTIONS[name]
    x = np.abs(WIDE[np.abs(WIDE) > 1.2e-38]) if MEANINGS[name].domain is positive else WIDE
    with np.errstate(all="ignore"):
        exact = numeric(row.meaning(x.astype(np.float64)))
    result = computed(name, x, "avx2").astype(np.float64)
    normal = (np.abs(exact) > 2.4e-38) & (np.abs(exact) < 3.4e38)
    error = np.abs(result[normal] - exact[normal]) / np.abs(exact[normal])
    worst = float(error.max())
    assert row.bound / 4 < worst <= row.bound, f"{name}: {worst:.3g}"
    np.testing.assert_allclose(result[np.abs(exact) <= 2.4e-38], 0, atol=2.4e-38)


@pytest.mark.parametrize("name", VECTOR)
@pytest.mark.parametrize("isa", ["avx2", "neon"])
def test_infinities_zeros_denormals_and_nan(isa: str, name: str) -> None:
    """A denormal operand may count as the smallest normal number."""
    for x, result in zip(ODD, computed(name, np.array(ODD, F), isa).tolist(), strict=True):
        allowed = {x, math.copysign(max(abs(x), SMALLEST), x) if x else x}
        with np.errstate(all="ignore"):
            exact = [float(np.asarray(FUNCTIONS[name].meaning(np.array(v))).astype(F)) for v in allowed]
        assert any(result == pytest.approx(e, rel=1e-6, abs=1e-30, nan_ok=True) for e in exact), f"{name}({x})"


def test_log_of_a_denormal_is_that_of_the_smallest_normal_number() -> None:
    assert float(computed("log", np.array([1e-40], F), "avx2")[0]) == pytest.approx(math.log(1.17549435e-38))
