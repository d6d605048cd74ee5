"""Recurrent layers of TFLite, three runs in a row, against LiteRT's reference kernels: their state lives on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intaglio.errors import ModelError
from intaglio.frontends.tflite import load
from intaglio.ir.graph import Array
from support.tflite_models import Tensor, assert_like_litert, one_operator

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
T, N, X, H = 3, 2, 5, 8
RNG = np.random.default_rng(7)


def integers(*shape: int) -> Array:
    return RNG.integers(-127, 128, shape).astype(np.int8)


def floats(*shape: int) -> Array:
    return (RNG.standard_normal(shape) * 0.5).astype(np.float32)


def integer_lstm(
    coupled: bool,
    time_major: bool,
    cell: float,
    hidden_zero: int,
    extras: frozenset[str] = frozenset(),
    units: int = H,
    step: bool = False,
    between: int = 5,
) -> bytes:
    """`step`: the operator LSTM, which takes one step."""
    outputs = units // 2 if "projection" in extras else units

    def weights(rows: int, columns: int, scale: float) -> Tensor:
        return Tensor((rows, columns), "int8", scale, 0, integers(rows, columns))

    def bias(count: int) -> Tensor:
        return Tensor((count,), "int32", 1e-4, 0, RNG.integers(-5000, 5000, count).astype(np.int32))

    def shorts(scale: float, wanted: bool) -> Tensor | None:
        return Tensor((units,), "int16", scale, 0, RNG.integers(-9000, 9000, units).astype(np.int16)) if wanted else None

    gates = [None if coupled and n == 0 else n for n in range(4)]
    peephole, norm = "peephole" in extras, "norm" in extras
    ranks = (N,) if step else (T, N) if time_major else (N, T)
    inputs: list[Tensor | None] = [Tensor((*ranks, X), "int8", 0.03, -7)]
    inputs += [None if g is None else weights(units, X, 0.01 + 0.002 * g) for g in gates]
    inputs += [None if g is None else weights(units, outputs, 0.012 - 0.001 * g) for g in gates]
    inputs += [shorts(1e-4, peephole and g is not None) for g in (gates[0], 1, 3)]
    inputs += [None if g is None else bias(units) for g in gates]
    inputs += [weights(outputs, units, 0.011), bias(outputs)] if "projection" in extras else [None, None]
    inputs += [
        Tensor((N, outputs), "int8", 0.008, hidden_zero, variable=True),
        Tensor((N, units), "int16", cell, 0, variable=True),
    ]
    inputs += [shorts(2e-4 * (1 + n), norm and g is not None) for n, g in enumerate(gates)]
    out = Tensor((*ranks, outputs), "int8", 0.008, hidden_zero)
    sums = [Tensor((), "int16", 3e-4 * (1 + n), 0) if norm else Tensor((), "float32") for n in range(4)]
    kept = Tensor((), "int8", 0.007, 5) if "projection" in extras else Tensor((), "int8", 0.008, hidden_zero)
    fields: dict[str, object] = {"fusedActivationFunction": 4, "cellClip": 3.0, "projClip": 0.7 if "clip" in extras else 0.0}
    made = [*sums, *[kept] * (between - 4)]
    if step:
        return one_operator("LSTM", inputs, out, "LSTMOptions", fields, 4, made)
    options = "UnidirectionalSequenceLSTMOptions"
    return one_operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, out, options, {**fields, "timeMajor": time_major}, 1, made)


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize(("time_major", "cell", "zero"), [(False, 2**-12, 0), (True, 2**-11, -9), (False, 2**-15, 4)])
def test_an_lstm_of_integers(coupled: bool, time_major: bool, cell: float, zero: int, tmp_path: Path) -> None:
    data = integer_lstm(coupled, time_major, cell, zero)
    shape = (T, N, X) if time_major else (N, T, X)
    assert_like_litert(data, tmp_path, *[[integers(*shape)] for _ in range(3)])


EXTRAS = ["peephole", "projection", "norm", "projection clip", "peephole projection", "peephole projection norm clip"]


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("extras", EXTRAS)
def test_an_lstm_of_integers_with_more(coupled: bool, extras: str, tmp_path: Path) -> None:
    data = integer_lstm(coupled, coupled, 2**-12, -3, frozenset(extras.split()))
    assert_like_litert(data, tmp_path, *[[integers(*((T, N, X) if coupled else (N, T, X)))] for _ in range(3)])


def test_a_norm_over_a_number_of_units_that_is_no_power_of_two(tmp_path: Path) -> None:
    assert_like_litert(integer_lstm(False, False, 2**-11, 2, frozenset({"norm"}), 10), tmp_path, [integers(N, T, X)])


@pytest.mark.parametrize("extras", ["", "peephole projection norm"])
def test_one_step_of_an_lstm_of_integers(extras: str, tmp_path: Path) -> None:
    data = integer_lstm(False, True, 2**-12, -3, frozenset(extras.split()), step=True)
    assert_like_litert(data, tmp_path, *[[integers(N, X)] for _ in range(3)])


def test_a_cell_state_whose_step_is_no_power_of_two_is_told(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(integer_lstm(False, False, 0.0003, 0))
    with pytest.raises(ModelError, match="is not a power of two"):
        load(tmp_path / "m.tflite", dims={}, shapes={})


def test_gates_in_floats_are_told(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(integer_lstm(False, True, 2**-12, 0, frozenset({"norm"}), step=True, between=12))
    with pytest.raises(ModelError, match="whose gates are computed in floats"):
        load(tmp_path / "m.tflite", dims={}, shapes={})


def float_lstm(kind: str, extras: set[str], asymmetric: bool = False, clip: float = 0.0) -> bytes:
    outputs = 4 if "projection" in extras else H

    def weights(rows: int, columns: int) -> Tensor:
        if kind == "float32":
            return Tensor((rows, columns), "float32", data=floats(rows, columns))
        return Tensor((rows, columns), "int8", float(RNG.uniform(0.003, 0.008)), 0, integers(rows, columns))

    def vector(wanted: bool = True) -> Tensor | None:
        return Tensor((H,), "float32", data=floats(H)) if wanted else None

    def peephole(wanted: bool) -> Tensor | None:
        if not wanted:
            return None
        return vector() if kind == "float32" else Tensor((H,), "int8", 0.004, 0, integers(H))

    four = [False, True, True, True] if "coupled" in extras else [True] * 4
    inputs: list[Tensor | None] = [Tensor((N, T, X), "float32")]
    inputs += [weights(H, X) if g else None for g in four] + [weights(H, outputs) if g else None for g in four]
    inputs += [peephole("peephole" in extras and g) for g in (four[0], True, True)]
    inputs += [vector(g) for g in four]
    inputs += [weights(outputs, H) if "projection" in extras else None, None]
    inputs += [Tensor((N, outputs), "float32", variable=True), Tensor((N, H), "float32", variable=True)]
    inputs += [vector("norm" in extras and g) for g in four]
    fields: dict[str, object] = {
        "fusedActivationFunction": 4, "cellClip": clip, "projClip": clip, "asymmetricQuantizeInputs": asymmetric,
    }  # fmt: skip
    out = Tensor((N, T, outputs), "float32")
    return one_operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, out, "UnidirectionalSequenceLSTMOptions", fields, 3)


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("extras", ["", "coupled", "peephole", "projection", "norm", "coupled peephole projection norm"])
def test_an_lstm_of_floats(kind: str, extras: str, tmp_path: Path) -> None:
    data = float_lstm(kind, set(extras.split()), clip=0.6)
    assert_like_litert(data, tmp_path, *[[floats(N, T, X)] for _ in range(3)], bound=1e-4)


def test_an_lstm_with_inputs_that_have_a_zero_point(tmp_path: Path) -> None:
    data = float_lstm("int8", set(), asymmetric=True)
    assert_like_litert(data, tmp_path, *[[floats(N, T, X) + 1] for _ in range(3)], bound=1e-4)


@pytest.mark.parametrize("kind", ["float32", "int8"])
def test_a_simple_rnn(kind: str, tmp_path: Path) -> None:
    def weights(columns: int) -> Tensor:
        if kind == "float32":
            return Tensor((H, columns), "float32", data=floats(H, columns))
        return Tensor((H, columns), "int8", 0.004, 0, integers(H, columns))

    inputs = [
        Tensor((N, T, X), "float32"), weights(X), weights(H), Tensor((H,), "float32", data=floats(H)),
        Tensor((N, H), "float32", variable=True),
    ]  # fmt: skip
    data = one_operator(
        "UNIDIRECTIONAL_SEQUENCE_RNN", inputs, Tensor((N, T, H), "float32"), "SequenceRNNOptions", {"fusedActivationFunction": 4}
    )
    assert_like_litert(data, tmp_path, *[[floats(N, T, X)] for _ in range(3)], bound=1e-4)


@pytest.mark.parametrize("kind", ["float32", "hybrid", "int8"])
def test_svdf(kind: str, tmp_path: Path) -> None:
    filters, memory, rank = 6, 4, 2
    integer = kind == "int8"
    x = Tensor((N, X), "int8", 0.03, 5) if integer else Tensor((N, X), "float32")
    if kind == "float32":
        feature, time = (Tensor(s, "float32", data=floats(*s)) for s in ((filters, X), (filters, memory)))
    else:
        feature = Tensor((filters, X), "int8", 0.01, 0, integers(filters, X))
        time = Tensor((filters, memory), "int8", 0.02, 0, integers(filters, memory))
    if integer:
        time = Tensor((filters, memory), "int16", 1e-3, 0, RNG.integers(-900, 900, (filters, memory)).astype(np.int16))
    units = filters // rank
    bias = Tensor((units,), "int32", 1e-6, 0, RNG.integers(-900, 900, units).astype(np.int32))
    bias = bias if integer else Tensor((units,), "float32", data=floats(units))
    state = Tensor((N, filters * memory), "int16" if integer else "float32", 1e-3 if integer else None, variable=True)
    out = Tensor((N, units), "int8", 0.02, -5) if integer else Tensor((N, units), "float32")
    data = one_operator(
        "SVDF",
        [x, feature, time, bias, state],
        out,
        "SVDFOptions",
        {"rank": rank, "fusedActivationFunction": 1},
        3,
    )
    steps = [[integers(N, X)] if integer else [floats(N, X)] for _ in range(6)]
    assert_like_litert(data, tmp_path, *steps, bound=1e-4)
