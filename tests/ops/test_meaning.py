"""Elementwise operators of floats against Python's own mathematics."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import REGISTRY, BadOperator, Chain, Elementwise
from support.elementwise_meaning import MEANINGS

# Their operands have different types; tests/support/kernel_cases.py has cases for each.
WITH_CASES_OF_THEIR_OWN = {"cast", "dequantize", "narrow_float", "pow", "quantize", "where"}


def _takes_floats(op: type[Elementwise]) -> bool:
    try:
        op().infer(*[TensorType(DType.F32, (1,))] * op.ARITY)
    except BadOperator:
        return False
    return True


def test_every_elementwise_operator_of_floats_has_a_row() -> None:
    elementwise = [op for op in REGISTRY.values() if issubclass(op, Elementwise) and op is not Chain]
    named = {op.NAME for op in elementwise if _takes_floats(op) and not op.__module__.startswith("intaglio.ops.quantised")}
    assert set(MEANINGS) == named - WITH_CASES_OF_THEIR_OWN


@pytest.mark.parametrize("name", MEANINGS)
def test_the_class_means_what_the_row_says(name: str) -> None:
    row = MEANINGS[name]
    rng = np.random.default_rng(3)
    halves = np.array([0.5, -0.5, 1.5, 2.5, -2.5, 0.75, 3.0])
    operands = [row.domain(np.concatenate([rng.standard_normal(200) * 2, halves[::step]])) for step in (1, -1)[: row.op.ARITY]]
    expected = [row.formula(*numbers) for numbers in zip(*[x.tolist() for x in operands], strict=True)]
    np.testing.assert_allclose(row.op.compute(*operands), expected, rtol=1e-12, atol=1e-15)
