"""Quantisation of models whose sizes have a range: calibrated at several sizes, equal to the references at all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import intaglio
from intaglio.errors import UserError
from intaglio.ir.graph import Array
from support.commands import Intaglio
from support.onnx_models import model, node, saved, value

RANDOM = np.random.default_rng(3)


def weights(*shape: int) -> Array:
    return np.asarray(RANDOM.standard_normal(shape) / np.sqrt(shape[-1]), np.float32)


def network(folder: Path) -> Path:
    """Products, a convolution and a mean along T."""
    constants = {"w": weights(32, 32), "b": weights(32), "v": weights(32, 8), "k": weights(16, 8, 3), "g": weights(16, 5)}
    nodes = [
        node("MatMul", "x w", "a"), node("Add", "a b", "a2"), node("Relu", "a2", "r"), node("MatMul", "r v", "y"),
        node("Transpose", "y", "t", perm=[0, 2, 1]), node("Conv", "t k", "c", pads=[1, 1]), node("Relu", "c", "d"),
        node("GlobalAveragePool", "d", "e"), node("Flatten", "e", "f"), node("MatMul", "f g", "z"),
    ]  # fmt: skip
    return saved(model(nodes, [value("x", [1, "T", 32])], [value("y", None), value("z", None)], constants), folder)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, intaglio.Package]:
    folder = tmp_path_factory.mktemp("bounded")
    path, data = network(folder), folder / "data"
    data.mkdir()
    for n, t in enumerate((1, 5, 16)):
        np.savez(data / f"{n}.npz", x=RANDOM.standard_normal((4, 1, t, 32)).astype(np.float32))
    return path, intaglio.compile(path, output=folder / "p", dims={"T": (1, 16)}, quantize="int8", calibrate=data)


def test_integers_follow_the_float_model_at_every_size(made: tuple[Path, intaglio.Package]) -> None:
    path, package = made
    layers = {layer.op for layer in package.manifest.layers}
    assert {"qmatmul", "qconv"} <= layers
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    off, all_ = 0.0, 0.0
    for t in range(1, 17):
        x = RANDOM.standard_normal((1, t, 32)).astype(np.float32)
        got, wanted = package.run({"x": x}), session.run(["y", "z"], {"x": x})
        for name, want in zip(("y", "z"), wanted, strict=True):
            assert got[name].shape == want.shape
            off, all_ = off + float(np.sum((got[name] - want) ** 2)), all_ + float(np.sum(want**2))
    assert off < 0.08**2 * all_


def test_the_package_is_equal_to_its_references(made: tuple[Path, intaglio.Package]) -> None:
    found = made[1].validate()
    assert found.ok and all(row.max_abs == 0 for row in found.outputs)


def test_without_data_random_inputs_have_several_sizes(made: tuple[Path, intaglio.Package]) -> None:
    package = intaglio.compile(made[0], dims={"T": (2, 9)}, quantize="int8", sensitivity=False)
    assert package.validate().ok


def test_data_of_a_size_outside_of_the_range_is_refused(made: tuple[Path, intaglio.Package], tmp_path: Path) -> None:
    data = {"x": np.zeros((2, 1, 17, 32), np.float32)}
    with pytest.raises(UserError, match="has the shape"):
        intaglio.compile(made[0], dims={"T": (1, 16)}, quantize="int8", calibrate=data)


def test_inputs_of_one_sample_agree_about_a_size(tmp_path: Path) -> None:
    nodes = [node("Add", "x u", "s"), node("MatMul", "s w", "y")]
    inputs = [value("x", [1, "T", 8]), value("u", [1, "T", 8])]
    path = saved(model(nodes, inputs, [value("y", None)], {"w": weights(8, 8)}), tmp_path)
    data = {"x": np.zeros((2, 1, 4, 8), np.float32), "u": np.zeros((2, 1, 5, 8), np.float32)}
    with pytest.raises(UserError, match="`T` is 4 in one place and 5 in another"):
        intaglio.compile(path, dims={"T": (1, 16)}, quantize="int8", calibrate=data)


def test_a_mean_of_bytes_over_a_range_is_that_of_onnx_runtime(tmp_path: Path) -> None:
    """Between quantised tensors, in the order in which ONNX Runtime adds up."""
    scalars = {name: np.asarray(scale, np.float32) for name, scale in (("sx", 0.02), ("sy", 0.011))}
    constants = {**scalars, "zx": np.asarray(3, np.int8), "zy": np.asarray(-5, np.int8)}
    nodes = [
        node("DequantizeLinear", "x sx zx", "a"), node("GlobalAveragePool", "a", "m"), node("QuantizeLinear", "m sy zy", "y"),
    ]  # fmt: skip
    path = saved(model(nodes, [value("x", [1, 6, "H", 7], 3)], [value("y", None, 3)], constants), tmp_path)
    package = intaglio.compile(path, output=tmp_path / "p", dims={"H": (1, 9)})
    assert any(layer.op == "qreal_mean" for layer in package.manifest.layers)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for h in range(1, 10):
        x = RANDOM.integers(-128, 128, (1, 6, h, 7)).astype(np.int8)
        assert np.array_equal(package.run({"x": x})["y"], session.run(["y"], {"x": x})[0])


def test_too_little_ram_asks_for_a_narrower_range(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", network(tmp_path), "--dim", "T=1..16", "--target", "cortex-m4f", "--ram", "2K", "-o", tmp_path / "p")
    told = " ".join(said.err.split())
    assert said.code == 1 and "a narrower range, such as `T=1..8`, reduces it" in told and "`--quantize int8`" in told
    assert "--feed-rows" not in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--target", "opencl"], "are not available for `opencl`"),
        (["--accelerator", "example_npu"], "`--accelerator` cannot be combined"),
        (["--stream", "1"], "`--stream` cannot be combined"),
        (["--target", "cortex-m4f", "--feed-rows"], "`--feed-rows` cannot be combined"),
        (["--weights", "read", "--target", "cortex-m4f"], "`--weights read` cannot be combined"),
    ],
)
def test_what_needs_one_size_is_refused(words: list[str], told: str, intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", network(tmp_path), "--dim", "T=1..16", *words, "-o", tmp_path / "p")
    assert said.code == 2 and "error[bad-option]" in said.err and told in " ".join(said.err.split())
    assert "give each dimension one size" in " ".join(said.err.split()) and not (tmp_path / "p").exists()


@pytest.mark.parametrize("width", [12, (3, 12)])
def test_padding_that_counts_in_a_mean(width: int | tuple[int, int], tmp_path: Path) -> None:
    """Means of few numbers on a grid are often half-way between two steps: the package rounds them as its reference does."""
    pool = node("AveragePool", "c", "p", kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1], count_include_pad=1)
    nodes = [node("Conv", "x k", "c", pads=[1, 1, 1, 1]), pool, node("Conv", "p v", "y")]
    constants = {"k": weights(8, 3, 3, 3), "v": weights(4, 8, 1, 1)}
    path = saved(model(nodes, [value("x", [1, 3, 9, "W"])], [value("y", None)], constants, opset=17), tmp_path)
    data = {"x": RANDOM.standard_normal((4, 1, 3, 9, 12)).astype(np.float32)}
    package = intaglio.compile(path, dims={"W": width}, quantize="int8", calibrate=data, sensitivity=False)
    assert "qreal_mean" in {layer.op for layer in package.manifest.layers}
    assert package.validate().ok
