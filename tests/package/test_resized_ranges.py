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
from support.onnx_models import ints, model, node, saved, value

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
