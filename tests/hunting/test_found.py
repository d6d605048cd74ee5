"""What the hunter found once, reduced."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from hunting.compare import case_of, compiled, configs, in_python
from hunting.recipe import Recipe, Step, Type


def assert_right(seed: int, recipe: Recipe, folder: Path) -> None:
    case = case_of(seed, recipe, folder)
    assert case is not None
    assert list(in_python(case, random.Random(seed))) == []


def test_a_product_with_a_zero_dimension_before_relu(tmp_path: Path) -> None:
    """It ended in an internal error: the minimum over no rows."""
    weights = np.ones((3, 4), np.float32)
    recipe = Recipe(
        (Type((0, 3)),), (Step("MatMul", (0, weights), Type((0, 4))), Step("Relu", (1,), Type((0, 4)))), (2,)
    )  # fmt: skip
    assert_right(0, recipe, tmp_path)
    case = case_of(0, recipe, tmp_path)
    assert case is not None and list(compiled([case], configs()[1])) == []
