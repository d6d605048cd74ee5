"""`Resize` to a size, and `STFT`, where a size has a range: as ONNX Runtime, at all sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from intaglio import compile
from intaglio.errors import UserError
from intaglio.ir.files import read_ir
from intaglio.run.reference import IrReference
from support.onnx_models import INT64, ints, model, node, saved, value

RANDOM = np.random.default_rng(4)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")


def resizes(mode: str) -> Any:
    """One output for each way, all of one input."""
    ways = [(c, n) for c in COORDINATES for n in (NEAREST if mode == "nearest" else NEAREST[:1])]
    nodes = [
        node("Resize", "x _ _ s", f"y{k}", mode=mode, coordinate_transformation_mode=c, nearest_mode=n)
        for k, (c, n) in enumerate(ways)
    ]
    outputs = [value(f"y{k}", None) for k in range(len(ways))]
    return model(nodes, [value("x", [1, 2, "H", "W"])], outputs, {"s": ints(1, 2, 8, 5)})


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_to_one_size_from_many(mode: str, tmp_path: Path) -> None:
    path = saved(resizes(mode), tmp_path)
    package = compile(path, output=tmp_path / "p", dims={"H": (1, 20), "W": (3, 9)}, cflags="-O1")
    reference = onnxruntime.InferenceSession(str(path))
    own = IrReference(read_ir(tmp_path / "p" / "ir" / "model.ig").pinned({"H": 20, "W": 9}))
    for height, width in ((1, 3), (7, 5), (8, 4), (13, 6), *((height, 9) for height in range(1, 21))):
        x = {"x": RANDOM.standard_normal((1, 2, height, width)).astype(np.float32)}
        got = package.run(x)
        for k, want in enumerate(reference.run(None, x)):
            np.testing.assert_allclose(got[f"y{k}"], want, rtol=1e-5, atol=1e-5)  # its coordinates are f32
    whole = {"x": RANDOM.standard_normal((1, 2, 20, 9)).astype(np.float32)}
    for name, array in own.run(whole).items():
        if name.startswith("y"):
            np.testing.assert_allclose(package.run(whole)[name], array, rtol=1e-5, atol=1e-6)


def test_up_to_the_size_of_another_tensor(tmp_path: Path) -> None:
    """Half of an odd size is rounded up: no factor leads back."""
    nodes = [
        node("Conv", "x w", "half", pads=[1] * 4, strides=[2, 2]), node("Shape", "x", "s"),
        node("Resize", "half _ _ s", "back", mode="linear"), node("Add", "back x", "y"),
    ]  # fmt: skip
    w = RANDOM.standard_normal((4, 4, 3, 3)).astype(np.float32) / 6
    path = saved(model(nodes, [value("x", [1, 4, "H", 16])], constants={"w": w}), tmp_path)
    assert compile(path, output=tmp_path / "p", dims={"H": (4, 21)}, cflags="-O1").validate().ok


def test_up_by_two_for_all_sizes_is_a_factor(tmp_path: Path) -> None:
    nodes = [
        node("Tile", "x r", "even"), node("AveragePool", "even", "half", kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", "even", "s"), node("Resize", "half _ _ s", "y", mode="linear"),
    ]  # fmt: skip
    path = saved(model(nodes, [value("x", [1, 4, "H", 16])], constants={"r": ints(1, 1, 2, 1)}), tmp_path)
    package = compile(path, output=tmp_path / "p", dims={"H": (4, 20)}, cflags="-O1")
    assert package.validate().ok and any(layer.op == "resize" for layer in package.manifest.layers)


@pytest.mark.parametrize(("mode", "coordinate"), [("cubic", "half_pixel"), ("linear", "half_pixel_symmetric")])
def test_what_is_left_is_refused(mode: str, coordinate: str, tmp_path: Path) -> None:
    resize = node("Resize", "x _ _ s", "y", mode=mode, coordinate_transformation_mode=coordinate)
    path = saved(model([resize], [value("x", [1, 2, "H", 4])], constants={"s": ints(1, 2, 8, 4)}), tmp_path)
    with pytest.raises(UserError, match="to a size that has a range is not supported") as error:
        compile(path, output=tmp_path / "p", dims={"H": (1, 20)})
    assert "`nearest` or `linear`" in error.value.hint and not (tmp_path / "p").exists()


def test_a_fourier_transform_of_frames(tmp_path: Path) -> None:
    window = np.hanning(64).astype(np.float32)
    one = model([node("STFT", "x step w", "y")], [value("x", [2, "N"])], constants={"step": np.int64(16), "w": window}, opset=17)
    package = compile(saved(one, tmp_path), output=tmp_path / "p", dims={"N": (64, 400)}, cflags="-O1")
    result = package.validate()
    assert result.ok and {row.sizes["N"] for row in result.sizes} >= {64, 400}
    assert package.run({"x": np.zeros((2, 95), np.float32)})["y"].shape == (2, 2, 33, 2)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_by_factors_where_places_follow_from_sizes(mode: str, tmp_path: Path) -> None:
    """Also along axes without a range, and where the batch alone has one."""
    nodes = [
        node("Resize", f"{x} _ f", f"{x}_{k}", mode=mode, coordinate_transformation_mode=coordinate)
        for k, coordinate in enumerate(("align_corners", "pytorch_half_pixel")) for x in ("x", "z")
    ]  # fmt: skip
    inputs = [value("x", [1, 2, "H", 4]), value("z", ["N", 2, 5, 4])]
    outputs = [value(each.output[0], None) for each in nodes]
    path = saved(model(nodes, inputs, outputs, {"f": np.array([1, 1, 2, 1.5], np.float32)}), tmp_path)
    package = compile(path, output=tmp_path / "p", dims={"H": (1, 9), "N": (1, 3)}, cflags="-O1")
    reference = onnxruntime.InferenceSession(str(path))
    for height, batch in ((1, 1), (4, 3), (9, 2)):
        shapes = {"x": (1, 2, height, 4), "z": (batch, 2, 5, 4)}
        x = {name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        for got, want in zip(package.run(x).values(), reference.run(None, x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_a_range_is_split_into_a_sequence(tmp_path: Path) -> None:
    nodes = [
        node("SplitToSequence", "x", "rows", axis=1, keepdims=0), node("SequenceAt", "rows last", "y"),
        node("SequenceLength", "rows", "n"), node("SplitToSequence", "x", "parts", axis=1),
        node("ConcatFromSequence", "parts", "z", axis=0),
    ]  # fmt: skip
    outputs = [value("y", None), value("z", None), value("n", None, INT64)]
    path = saved(model(nodes, [value("x", [2, "T", 3])], outputs, {"last": np.asarray(-1)}), tmp_path)
    package = compile(path, output=tmp_path / "p", dims={"T": (1, 5)}, cflags="-O1")
    reference = onnxruntime.InferenceSession(str(path))
    for t in (1, 3, 5):
        x = {"x": RANDOM.standard_normal((2, t, 3)).astype(np.float32)}
        got = package.run(x)
        for name, want in zip(("y", "z", "n"), reference.run(None, x), strict=True):
            np.testing.assert_array_equal(got[name], want)


@pytest.mark.parametrize("split", [np.asarray(2), ints(2, 3)])
def test_parts_that_are_not_alike_are_refused(split: Any, tmp_path: Path) -> None:
    nodes = [node("SplitToSequence", "x s", "rows", axis=1), node("ConcatFromSequence", "rows", "y", axis=1)]
    path = saved(model(nodes, [value("x", [2, "T", 3])], constants={"s": split}), tmp_path)
    with pytest.raises(UserError, match="alike") as error:
        compile(path, output=tmp_path / "p", dims={"T": (1, 5)})
    assert "`Slice`" in error.value.hint and not (tmp_path / "p").exists()
