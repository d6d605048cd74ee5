"""Sizes in steps, which networks that halve and double a picture need; and one size for several dimensions."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio import compile as compiled
from intaglio.errors import ModelError, UserError
from intaglio.run.package import Package
from support.commands import Intaglio
from support.onnx_models import model, node, saved, value


def weights(*shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return (np.random.default_rng(sum(shape)).standard_normal(shape) * 0.3).astype(np.float32)


def halved_and_doubled() -> Any:
    nodes = [
        node("Conv", "x first", "a", pads=[1, 1, 1, 1]), node("MaxPool", "a", "half", kernel_shape=[2, 2], strides=[2, 2]),
        node("MaxPool", "half", "quarter", kernel_shape=[2, 2], strides=[2, 2]),
        node("ConvTranspose", "quarter up", "b", strides=[2, 2]), node("Add", "b half", "c"),
        node("ConvTranspose", "c up", "d", strides=[2, 2]), node("Concat", "d a", "y", axis=1),
    ]  # fmt: skip
    constants = {"first": weights(4, 2, 3, 3), "up": weights(4, 4, 2, 2)}
    return model(nodes, [value("x", [1, 2, "H", "W"])], [value("y", None)], constants)


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(halved_and_doubled(), tmp_path_factory.mktemp("model"), "unet.onnx")


@pytest.fixture(scope="module")
def package(onnx_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("package") / "unet"
    return compiled(onnx_file, output=folder, dims={"H": (8, 16, 4), "W": "4..16:4"})


def test_sizes_on_the_steps_are_right(package: Package) -> None:
    assert package.validate().ok
    assert package.run({"x": np.zeros((1, 2, 12, 8), np.float32)})["y"].shape == (1, 8, 12, 8)


def test_sizes_between_the_steps_are_refused(package: Package) -> None:
    with pytest.raises(UserError, match=r"`H` is 10, which is not within 8\.\.16:4"):
        package.run({"x": np.zeros((1, 2, 10, 8), np.float32)})
    library = ctypes.CDLL(str(package.folder / "lib" / "libunet.so"))
    x, y = np.zeros((1, 2, 16, 16), np.float32), np.full((1, 8, 16, 16), 7, np.float32)
    for height, error in ((10, 3), (4, 3), (20, 3), (12, 0)):
        given, taken = (ctypes.c_size_t * 3)(x.ctypes.data, height, 8), (ctypes.c_size_t * 5)(y.ctypes.data)
        assert library.unet_run(given, taken) == error
        assert (y == 7).all() == (error != 0)
    header = (package.folder / "include" / "unet.h").read_text()
    assert "#define UNET_SIZE_H_STEP 4" in header and "size_t size_H; /* 8 to 16 in steps of 4 */" in header


def test_the_error_without_steps_names_them(onnx_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"`dims={'H': \(8, 16, 4\)}`"):
        compiled(onnx_file, output=tmp_path / "p", dims={"H": (5, 17), "W": 8})


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("H=8..15:4", "write `8..12:4` or `8..16:4`"), ("H=8..16:0", "write `8..16`"),
        ("H=W", "say what it is: `--dim W=1..64`"),
    ],
)
def test_a_range_that_is_none_is_refused(intaglio: Intaglio, onnx_file: Path, tmp_path: Path, given: str, hint: str) -> None:
    said = intaglio("compile", onnx_file, "-o", tmp_path / "p", "--dim", given)
    assert said.code == 2 and hint in said.err and not (tmp_path / "p").exists()


def test_two_dimensions_may_be_one_size(tmp_path: Path) -> None:
    both = model([node("Add", "a b", "y")], [value("a", [1, "S", 4]), value("b", [1, "T", 4])], [value("y", None)], {})
    path = saved(both, tmp_path, "both.onnx")
    found = compiled(path, output=tmp_path / "p", dims={"T": (1, 9), "S": "T"}, library_only=True)
    assert [size.name for size in found.manifest.given] == ["T"]
    a, b = weights(1, 5, 4), weights(1, 5, 4) * 2
    assert (found.run({"a": a, "b": b})["y"] == a + b).all()
    with pytest.raises(UserError, match="`T` is 5 in one input and 3 in another"):
        found.run({"a": a, "b": b[:, :3]})


def test_shapes_may_name_a_size(tmp_path: Path) -> None:
    both = model([node("Add", "a b", "y")], [value("a", [1, None, 4]), value("b", [1, None, 4])], [value("y", None)], {})
    path = saved(both, tmp_path, "both.onnx")
    shapes = {"a": (1, "rows", 4), "b": (1, "rows", 4)}
    for rows, given in (((1, 9), ["rows"]), (5, [])):
        found = compiled(path, output=tmp_path / "p", shapes=shapes, dims={"rows": rows}, library_only=True, force=True)
        assert [size.name for size in found.manifest.given] == given
        assert found.run({"a": weights(1, 5, 4), "b": weights(1, 5, 4)})["y"].shape == (1, 5, 4)
