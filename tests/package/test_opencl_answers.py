"""Known answers of layers on a device: what the reference computes from a pattern, as sums."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.ir.graph import Value
from intaglio.ir.types import DType, TensorType
from intaglio.package.opencl_answers import PARTS, UNKNOWN, _sums, pattern
from support.onnx_models import INT64, model, node, saved, value


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16, DType.I8, DType.I64, DType.BOOL])
def test_patterns_are_small_and_differ(dtype: DType) -> None:
    x = Value("x", TensorType(dtype, (100,)))
    first, second = pattern(x, 0), pattern(x, 1)
    assert first.dtype == dtype.numpy and np.array_equal(first[16:], second[:-16]) and not np.array_equal(first, second)
    low, high = (-1, 1) if dtype.is_float else (0, 1)
    assert np.all(first >= low) and np.all(first <= high) and len(np.unique(first)) >= (50 if dtype.is_float else 2)


def test_sums_cover_every_element_once() -> None:
    data = np.arange(-50, 51, dtype=np.float32)
    sums, sizes = _sums(data)
    assert len(sums) == len(sizes) == PARTS
    assert sum(sums) == data.sum() and sum(sizes) == np.abs(data).sum()


def test_what_is_not_finite_is_not_compared() -> None:
    sums, sizes = _sums(np.array([1, np.nan, 2, np.inf, 3, -4, 5, 6], np.float32))
    assert sizes == (1, UNKNOWN, 2, UNKNOWN, 3, 4, 5, 6) and sums == (1, 0, 2, 0, 3, -4, 5, 6)


@pytest.mark.slow
def test_a_layer_that_rejects_the_pattern_has_no_answers(tmp_path: Path) -> None:
    """An index of 1 into a single row is out of range; the layer behind it has answers."""
    nodes = [node("Gather", "x i", "a", axis=0), node("Relu", "a", "y")]
    proto = model(nodes, [value("x", [1, 6]), value("i", [40], INT64)], [value("y", [40, 6])], {})
    intaglio.compile(saved(proto, tmp_path, "m.onnx"), output=tmp_path / "package", target="opencl", cflags=("-O0",))
    text = (tmp_path / "package" / "src" / "m_program.c").read_text()
    rows = text.split("answers[] = {")[1].split("};")[0].strip().splitlines()
    assert {row.split(",")[0].strip(" {") for row in rows} == {"1"}
