"""Operators of StableHLO that are written out by several, on constants: what numpy or the specification says of them."""

from __future__ import annotations

import numpy as np
import pytest

from intaglio.frontends import stablehlo, stablehlo_places
from intaglio.frontends.emitting import Emitter
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.base import Op

NUMBERS = [0, 1, 2, 3, 100, 127, 255, 4096, 2**31 - 1, 2**40 + 5, 2**63 - 1, -1, -2, -128]


class Folding:
    """A call whose operands are constants, so that its results are."""

    def __init__(self) -> None:
        self.emitter = Emitter()

    def constant(self, data: Array | float | int | bool | list[int], dtype: DType | None = None) -> Value:
        return self.emitter.constant(np.asarray(data), dtype)

    def like(self, number: float, value: Value) -> Value:
        return self.emitter.scalar(number, value.dtype)

    def emit(self, op: Op, *operands: Value | None) -> Value:
        return self.emit_all(op, *operands)[0]

    def emit_all(self, op: Op, *operands: Value | None) -> tuple[Value, ...]:
        return self.emitter.emit(op, list(operands))


def folded(value: Value) -> Array:
    assert value.data is not None
    return value.data


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_bits_are_counted(dtype: str) -> None:
    x = np.array(NUMBERS).astype(dtype)
    width = 8 * x.itemsize
    written = [format(int(n) % 2**width, f"0{width}b") for n in x]
    call = Folding()
    ones, zeros = (folded(stablehlo.unary(call, name, call.constant(x))) for name in ("popcnt", "count_leading_zeros"))
    assert ones.dtype == zeros.dtype == x.dtype
    assert ones.tolist() == [text.count("1") for text in written]
    assert zeros.tolist() == [len(text) - len(text.lstrip("0")) for text in written]


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
def test_shifts_to_the_right(dtype: str) -> None:
    x = np.array(NUMBERS).astype(dtype)
    width = 8 * x.itemsize
    call = Folding()
    for count in (0, 1, width - 1, width, width + 3):
        by = call.constant(np.full(x.shape, count).astype(dtype))
        got = folded(stablehlo.binary(call, "shift_right_logical", call.constant(x), by))
        want = np.array([(int(n) % 2**width) >> count for n in x], f"u{x.itemsize}")
        assert got.tolist() == want.astype(dtype).tolist()
        if x.dtype.kind == "i":
            got = folded(stablehlo.binary(call, "shift_right_arithmetic", call.constant(x), by))
            assert got.tolist() == [int(n) >> count for n in x]


def test_halves_are_rounded_away_from_zero() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -2.5, 0.49999997, 8388609.0, 1e30, np.inf, -np.inf, 0.0, 2.4], np.float32)
    call = Folding()
    got = folded(stablehlo.unary(call, "round_nearest_afz", call.constant(x)))
    want = [1, 2, 3, -1, -3, 0, 8388609, np.float32(1e30), np.inf, -np.inf, 0, 2]
    assert np.array_equal(got, np.array(want, np.float32))
    assert np.isnan(folded(stablehlo.unary(call, "round_nearest_afz", call.constant(np.array([np.nan], np.float32))))).all()


def test_an_angle_knows_its_quadrant() -> None:
    y, x = (a.astype(np.float32) for a in np.meshgrid([-3.0, -0.0, 0.0, 1.0, np.inf, -np.inf], [-2.0, 1.0, 0.5]))
    call = Folding()
    got = folded(stablehlo.binary(call, "atan2", call.constant(y), call.constant(x)))
    assert np.allclose(got, np.arctan2(y, x), atol=1e-6)


def test_parts_are_taken_from_anywhere() -> None:
    """A part that would go beyond the edge starts earlier."""
    x = np.arange(30).reshape(5, 6)
    call = Folding()
    places = np.array([[0, 1], [4, 5], [-3, 9], [2, 2]])
    made = stablehlo_places.gather(call, call.constant(x), call.constant(places), [1, 2], [], [0, 1], 1, [2, 3])
    starts = [(min(max(r, 0), 3), min(max(c, 0), 3)) for r, c in places.tolist()]
    assert np.array_equal(folded(made), np.stack([x[r : r + 2, c : c + 3] for r, c in starts]))


@pytest.mark.parametrize("entire", [False, True])
def test_parts_that_do_not_fit(entire: bool) -> None:
    """JAX leaves all of such a part out, LiteRT what is outside."""
    x, call = np.zeros(6, np.float32), Folding()
    updates = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    table, places, rows = (call.constant(a) for a in (x, np.array([[0], [5], [-1]]), updates))
    made = stablehlo_places.scatter(call, table, places, rows, [1], [], [0], 1, "none", entire=entire)
    assert folded(made).tolist() == ([1, 2, 0, 0, 0, 0] if entire else [6, 2, 0, 0, 0, 3])


def test_rows_are_sorted_by_several_keys() -> None:
    first, second = np.array([2, 1, 2, 1, 1]), np.array([5.0, 7.0, 3.0, 7.0, 2.0], np.float32)
    call, place = Folding(), np.arange(5)
    values = [call.constant(a) for a in (first, second, place)]
    for key in (1, 0):
        values = stablehlo_places.sort(call, [values[key], *values], 0, False)[1:]
    assert folded(values[2]).tolist() == np.lexsort((second, first)).tolist()
