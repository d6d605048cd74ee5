"""Floats of 8 and 4 bits: the numbers of all codes, and the code of any number, as ml_dtypes has them."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.ir.graph import Array, Node, Value
from intaglio.ir.types import DType, TensorType
from intaglio.kernels.choice import lower_node
from intaglio.kernels.interpret import interpret
from intaglio.ops.small import FORMATS, BitCast, NarrowFloat
from intaglio.targets.target import find_target

ml_dtypes = pytest.importorskip("ml_dtypes")
KINDS = {
    "f8e4m3fn": ml_dtypes.float8_e4m3fn, "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "f4e2m1": ml_dtypes.float4_e2m1fn,
}  # fmt: skip


def numbers(name: str, count: int) -> Array:
    """Random ones of all sizes, every number of the format, those between two of them, and odd ones."""
    random, table = np.random.default_rng(1), FORMATS[name].table()
    finite = np.sort(table[np.isfinite(table)])
    drawn = random.standard_normal(count) * np.exp(random.standard_normal(count) * 4)
    odd = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e6, -1e6, 1e-7, -1e-7, 3.4e38]
    return np.concatenate([drawn, finite, (finite[1:] + finite[:-1]) / 2, odd]).astype(np.float32)


@pytest.mark.parametrize("name", KINDS)
def test_every_code_has_its_number(name: str) -> None:
    table = FORMATS[name].table()
    want = np.arange(len(table), dtype=np.uint8).view(KINDS[name]).astype(np.float32)
    assert np.array_equal(table, want, equal_nan=True)
    assert np.array_equal(np.signbit(table[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))


@pytest.mark.parametrize("name", KINDS)
def test_numbers_are_rounded_to_the_nearest_code(name: str) -> None:
    x = numbers(name, 20_000)
    with np.errstate(all="ignore"):
        want = x.astype(KINDS[name])
    got = NarrowFloat(name, saturate=name == "f4e2m1").compute(x).view(KINDS[name])
    assert np.array_equal(got.astype(np.float32), want.astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("name", [n for n in KINDS if n != "f4e2m1"])
def test_what_is_too_large_saturates(name: str) -> None:
    x, largest = numbers(name, 2_000), np.nanmax(np.where(np.isinf(FORMATS[name].table()), 0, FORMATS[name].table()))
    got = FORMATS[name].table()[NarrowFloat(name).compute(x)]
    assert np.array_equal(np.isnan(got), np.isnan(x))
    far = np.abs(x) > largest * 1.2
    assert (np.abs(got[far]) == largest).all() and np.array_equal(np.sign(got[far]), np.sign(x[far]))


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("name", KINDS)
def test_the_kernel_computes_the_reference(name: str, saturate: bool) -> None:
    x, op = numbers(name, 100), NarrowFloat(name, saturate)
    type_ = TensorType(DType.F32, x.shape)
    node = Node(op, [Value("x", type_)], [Value("y", op.infer(type_)[0])], "/node")
    lowered, y = lower_node(node, find_target("generic")), np.zeros(x.size, np.uint8)
    assert interpret(lowered.kernel, [x, y]) == 0
    assert np.array_equal(y, op.compute(x))


def test_bits_keep_their_place() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5
    op, type_ = BitCast(DType.I32), TensorType(DType.F32, (2, 3))
    node = Node(op, [Value("x", type_)], [Value("y", op.infer(type_)[0])], "/node")
    y = np.zeros(24, np.uint8)
    assert interpret(lower_node(node, find_target("generic")).kernel, [x.reshape(-1).view(np.uint8), y]) == 0
    assert np.array_equal(y.view(np.int32), x.reshape(-1).view(np.int32))
    assert np.array_equal(op.evaluate([x], [type_])[0], x.view(np.int32))
