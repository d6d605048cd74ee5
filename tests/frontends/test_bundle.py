"""Bundles of TFLite models: each is compiled as it would be by itself."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

import intaglio as api
from intaglio.errors import IntaglioError
from intaglio.frontends.bundle import models_of
from support.commands import Intaglio
from support.tflite_models import Tensor, numbers, one_operator

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")

S = (1, 6)


def one(op: str) -> bytes:
    return one_operator(op, [Tensor(S, "float32")], Tensor(S, "float32"), version=1)


def zipped(**files: bytes) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "."), data)
    return held.getvalue()


def test_models_of_a_bundle_are_entry_points(intaglio: Intaglio, tmp_path: Path) -> None:
    """One lies in a bundle inside."""
    (tmp_path / "b.task").write_bytes(zipped(first__tflite=one("EXP"), more__task=zipped(second__tflite=one("ABS"))))
    said = intaglio("compile", tmp_path / "b.task", "-o", tmp_path / "p")
    assert said.code == 0, said.err
    x = numbers(S, "float32")
    points = api.compile_entries(tmp_path / "b.task")
    np.testing.assert_allclose(points.run({"in0": x}, entry="first")["out"], np.exp(x), rtol=1e-5)
    np.testing.assert_array_equal(points.run({"in0": x}, entry="second")["out"], np.abs(x))
    assert intaglio("validate", tmp_path / "p").code == 0
    assert intaglio("check", tmp_path / "b.task").code == 0


def test_one_model_of_a_bundle_is_a_package(tmp_path: Path) -> None:
    (tmp_path / "b.task").write_bytes(zipped(first__tflite=one("EXP"), second__tflite=one("ABS")))
    (tmp_path / "c.task").write_bytes(zipped(only__tflite=one("ABS")))
    x = numbers(S, "float32")
    for package in (api.compile(tmp_path / "b.task", signature="second"), api.compile(tmp_path / "c.task")):
        np.testing.assert_array_equal(package.run({"in0": x})["out"], np.abs(x))
        assert package.validate().ok
    with pytest.raises(IntaglioError, match="holds 2 models"):
        api.compile(tmp_path / "b.task")


def test_names_inside_go_nowhere_else(tmp_path: Path) -> None:
    bundle = {"../../a__tflite": b"1", "/b__tflite": b"2", "x/a__tflite": b"3", "c d;e__tflite": b"4", "__tflite": b"5"}
    (tmp_path / "b.task").write_bytes(zipped(**bundle))
    found = models_of(tmp_path / "b.task")
    assert list(found) == ["a", "b", "a_2", "c_d_e", "_tflite"]
    assert {path.parent for path in found.values()} == {found["a"].parent}
    assert [path.read_bytes() for path in found.values()] == [b"1", b"2", b"3", b"4", b"5"]


def test_damaged_bundles_are_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    whole = zipped(first__tflite=one("EXP"), more__task=zipped(second__tflite=one("ABS")))
    refused = 0
    for n in range(300):
        data = bytearray(whole[: int(rng.integers(len(whole)))] if n % 3 == 0 else whole)
        for _ in range(int(rng.integers(1, 6)) if data else 0):
            data[int(rng.integers(len(data)))] = int(rng.integers(256))
        path = tmp_path / f"{n}.task"
        path.write_bytes(data)
        try:
            models_of(path)
        except IntaglioError:
            refused += 1
    assert refused > 20
