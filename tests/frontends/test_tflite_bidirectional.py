"""Recurrent layers of two directions, three runs in a row, against LiteRT's reference kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.errors import ModelError
from intaglio.frontends.tflite import load
from intaglio.ir.graph import Array
from support.tflite_models import Tensor, assert_like_litert, one_operator

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
T, N, X, H = 3, 2, 5, 4
RNG = np.random.default_rng(11)


def floats(*shape: int) -> Array:
    return (RNG.standard_normal(shape) * 0.5).astype(np.float32)


def weights(kind: str, rows: int, columns: int) -> Tensor:
    if kind == "float32":
        return Tensor((rows, columns), "float32", data=floats(rows, columns))
    numbers = RNG.integers(-127, 128, (rows, columns)).astype(np.int8)
    return Tensor((rows, columns), "int8", float(RNG.uniform(0.003, 0.008)), 0, numbers)


def vector(wanted: bool = True) -> Tensor | None:
    return Tensor((H,), "float32", data=floats(H)) if wanted else None


def shape_of(time_major: bool, size: int, batch: int = N) -> tuple[int, int, int]:
    return (T, batch, size) if time_major else (batch, T, size)


def lstms(kind: str, extras: set[str], merge: bool, time_major: bool, batch: int = N) -> bytes:
    outputs = 3 if "projection" in extras else H
    four = [False, True, True, True] if "coupled" in extras else [True] * 4
    inputs: list[Tensor | None] = [Tensor(shape_of(time_major, X, batch), "float32")]
    for _ in range(2):
        inputs += [weights(kind, H, X) if g else None for g in four]
        inputs += [weights(kind, H, outputs) if g else None for g in four]
        inputs += [vector("peephole" in extras and g) for g in (four[0], True, True)]
        inputs += [vector(g) for g in four]
        inputs += [weights(kind, outputs, H) if "projection" in extras else None, None]
    inputs += [Tensor((batch, size), "float32", variable=True) for size in (outputs, H, outputs, H)]
    crossed = "crossed" in extras
    inputs += [Tensor(shape_of(time_major, X, batch), "float32") if crossed or "stacked" in extras else None]
    inputs += [weights(kind, H, X) if crossed and g else None for g in four * 2]
    fields: dict[str, object] = {
        "fusedActivationFunction": 4, "cellClip": 0.6, "projClip": 0.0, "mergeOutputs": merge, "timeMajor": time_major,
    }  # fmt: skip
    sizes = [2 * outputs] if merge else [outputs, outputs]
    outs = [Tensor(shape_of(time_major, size, batch), "float32") for size in sizes]
    return one_operator("BIDIRECTIONAL_SEQUENCE_LSTM", inputs, outs, "BidirectionalSequenceLSTMOptions", fields, 3)


def steps(count: int, time_major: bool, batch: int = N) -> list[list[Array]]:
    return [[floats(*shape_of(time_major, X, batch)) for _ in range(count)] for _ in range(3)]


@pytest.mark.parametrize(("merge", "time_major"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize("extras", ["", "coupled", "peephole projection"])
def test_lstms_of_two_directions(kind: str, extras: str, merge: bool, time_major: bool, tmp_path: Path) -> None:
    if kind == "int8" and "peephole" in extras:
        extras = "projection"  # peepholes have 8 bits too there
    batch = N if time_major or not merge else 1  # LiteRT writes beyond its states
    data = lstms(kind, set(extras.split()), merge, time_major, batch)
    assert_like_litert(data, tmp_path, *steps(1, time_major, batch), bound=1e-4)


@pytest.mark.parametrize("extras", ["stacked", "crossed"])
def test_lstms_with_another_input(extras: str, tmp_path: Path) -> None:
    assert_like_litert(lstms("float32", {extras}, False, True), tmp_path, *steps(2, True), bound=1e-4)


def test_a_package_of_two_directions_validates(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(lstms("float32", set(), True, False))
    package = intaglio.compile(tmp_path / "m.tflite", output=tmp_path / "p", target="generic")
    assert package.validate().ok
    assert any("LiteRT writes beyond the state" in note for note in package.notes)


def rnns(kind: str, merge: bool, time_major: bool, extras: str = "") -> bytes:
    inputs: list[Tensor | None] = [Tensor(shape_of(time_major, X), "float32")]
    for _ in range(2):
        inputs += [weights(kind, H, X), weights(kind, H, H), vector(), Tensor((N, H), "float32", variable=True)]
    inputs += [Tensor(shape_of(time_major, X), "float32") if extras else None]
    inputs += [weights(kind, H, X) if extras == "crossed" else None for _ in range(2)]
    fields: dict[str, object] = {"fusedActivationFunction": 4, "mergeOutputs": merge, "timeMajor": time_major}
    outs = [Tensor(shape_of(time_major, size), "float32") for size in ([2 * H] if merge else [H, H])]
    return one_operator("BIDIRECTIONAL_SEQUENCE_RNN", inputs, outs, "BidirectionalSequenceRNNOptions", fields, 3)


@pytest.mark.parametrize(("kind", "time_major"), [("float32", False), ("float32", True), ("int8", False)])
@pytest.mark.parametrize("merge", [False, True])
def test_rnns_of_two_directions(kind: str, time_major: bool, merge: bool, tmp_path: Path) -> None:
    assert_like_litert(rnns(kind, merge, time_major), tmp_path, *steps(1, time_major), bound=1e-4)


@pytest.mark.parametrize(("extras", "time_major"), [("stacked", True), ("crossed", True), ("crossed", False)])
def test_rnns_with_another_input(extras: str, time_major: bool, tmp_path: Path) -> None:
    assert_like_litert(rnns("float32", False, time_major, extras), tmp_path, *steps(2, time_major), bound=1e-4)


@pytest.mark.parametrize(("kind", "time_major", "extras", "reason"), [
    ("int8", True, "", "runs over the sequence several times"),
    ("float32", False, "stacked", "ignores the other input"),
])  # fmt: skip
def test_forms_that_litert_computes_otherwise_are_told(
    kind: str, time_major: bool, extras: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / "m.tflite").write_bytes(rnns(kind, False, time_major, extras))
    with pytest.raises(ModelError, match=reason):
        load(tmp_path / "m.tflite", dims={}, shapes={})
