"""Long sums of floats are sums of parts: they stay near the sum in doubles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio

SOURCE = """intaglio-ir 1
model mean stage=import
input x: f32[1,12544,3]
y: f32[1,1,3] = reduce(x, kind=mean, axes=(1))
output y
"""


@pytest.mark.parametrize("offset", [0.3, 5.0])
def test_the_mean_of_a_large_picture(offset: float, tmp_path: Path) -> None:
    """One after the other, 12,544 numbers around 0.3 are 1.5e-5 off."""
    (tmp_path / "m.ig").write_text(SOURCE)
    package = intaglio.compile(tmp_path / "m.ig", output=tmp_path / "p", target="generic")
    x = (np.random.default_rng(1).random((1, 12544, 3)) * 0.1 + offset).astype(np.float32)
    (made,) = package.run({"x": x}).values()
    assert np.allclose(made, x.astype(np.float64).mean(1, keepdims=True), rtol=1e-6, atol=0)
