"""Sizes as users ask for them: nothing, a range where one is meant, a range that is to be tuned, and variants at several sizes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto

import intaglio as api
from intaglio.run.package import Package
from support.building import needs_gcc
from support.commands import Intaglio
from support.onnx_models import model, node, saved, value


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("sizes")
    w = np.random.default_rng(2).standard_normal((4, 4)).astype(np.float32)
    path = saved(model([node("MatMul", "x w", "y")], [value("x", ["T", 4])], constants={"w": w}), folder)
    return api.compile(path, output=folder / "p", name="few", dims={"T": (0, 16)}, target="x86-64", variants="v3")


def told(package: Package, data: np.ndarray, folder: Path, *words: str) -> tuple[int, str]:
    path = folder / "x.bin"
    data.tofile(path)
    done = subprocess.run([package.folder / "bin" / "few", path, *words], check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def test_nothing_is_a_size_that_can_be_given(package: Package, tmp_path: Path) -> None:
    none, some = np.zeros((0, 4), np.float32), np.ones((3, 4), np.float32)
    assert told(package, none, tmp_path, "--size", "T=0")[0] == 0
    assert told(package, some, tmp_path, "--size", "T=3")[0] == 0
    assert "T=N is missing" in told(package, some, tmp_path)[1]
    for word in ("T=", "T=-1", "T=x", "U=3"):
        assert "is not NAME=N with the name of a size" in told(package, some, tmp_path, "--size", word)[1]
    assert "T is 17; it must be from 0 to 16" in told(package, some, tmp_path, "--size", "T=17")[1]


def test_every_variant_is_validated_at_several_sizes(package: Package) -> None:
    result = package.validate()
    assert result.ok and len(result.sizes) > 2
    assert [row.variant for row in result.variants] == ["x86-64-v3", "x86-64"]


def test_a_range_is_not_a_size(package: Package, intaglio: Intaglio) -> None:
    said = intaglio("profile", package.folder, "--size", "T=1..4")
    assert said.code == 2 and "`1..4` in `--size T=1..4` is not a size" in said.err
    assert intaglio("profile", package.folder, "--size", "T=0").code == 0


def test_a_range_is_not_tuned(package: Package, intaglio: Intaglio, tmp_path: Path) -> None:
    model_file = package.folder / "ir" / "source.onnx"
    said = intaglio("tune", model_file, "--dim", "T=1..4", "--tuning", tmp_path / "t.txt")
    assert said.code == 2 and "`tune` measures layers of one size, and `T` has a range" in said.err
    assert not (tmp_path / "t.txt").exists()


@needs_gcc
def test_a_library_with_address_sanitizer_is_not_loaded(package: Package, tmp_path: Path, intaglio: Intaglio) -> None:
    flags = "--cflags=-fsanitize=address"
    made = intaglio("compile", package.folder / "ir" / "source.onnx", "--dim", "T=2", flags, "--cc", "gcc", "-o", tmp_path / "p")
    assert made.code == 0, made.err
    said = intaglio("validate", tmp_path / "p")
    assert said.code == 2 and "--selftest" in said.err


def test_profile_takes_the_inputs_and_their_sizes(intaglio: Intaglio, tmp_path: Path) -> None:
    graph = model([node("MatMul", "x w", "y")], [value("x", ["T", 4])], constants={"w": np.ones((4, 4), np.float32)})
    package = api.compile(saved(graph, tmp_path), output=tmp_path / "p", dims={"T": (0, 16)})
    np.savez(tmp_path / "x.npz", x=np.ones((3, 4), np.float32))
    said = intaglio("profile", package.folder, "--inputs", tmp_path / "x.npz", "--runs", "1", "--json")
    assert said.code == 0 and said.json["total"]["macs"] == 3 * 4 * 4, said.err
    assert package.profile(1, inputs={"x": np.ones((5, 4), np.float32)}).total.macs == 5 * 4 * 4
    said = intaglio("profile", package.folder, "--inputs", tmp_path / "x.npz", "--size", "T=4")
    assert said.code == 2 and "`T` is 3 in the inputs, not 4" in said.err and "omit `--size T=4`" in said.err


def test_a_model_that_rejects_random_data_is_profiled_on_inputs(intaglio: Intaglio, tmp_path: Path) -> None:
    """A crop of 3 to 5 elements, as many as an input says."""
    inputs = [value("x", [8]), value("n", [1], TensorProto.INT64)]
    graph = model([node("Slice", "x zero n", "y")], inputs, constants={"zero": np.zeros(1, np.int64)})
    made = intaglio("compile", saved(graph, tmp_path), "--max", "y=3..5", "-o", tmp_path / "p")
    assert made.code == 0, made.err
    np.savez(tmp_path / "x.npz", x=np.ones(8, np.float32), n=np.array([4]))
    said = intaglio("profile", tmp_path / "p", "--inputs", tmp_path / "x.npz", "--runs", "1")
    assert said.code == 0 and "us" in said.out, said.err
