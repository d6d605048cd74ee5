"""ONNX Runtime as a reference for bytes, on processors where its own kernels saturate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from intaglio.run.saturation import may_saturate, without_saturation
from support.commands import DIGITS, Intaglio
from support.onnx_models import model, node, saved

ort = pytest.importorskip("onnxruntime")
RANDOM = np.random.default_rng(5)
X = RANDOM.integers(0, 256, (4, 64)).astype(np.uint8)


def product(largest: int, *, zero: int | None) -> tuple[Any, Any]:
    """A product of bytes, and what it is."""
    weights = RANDOM.integers(-largest, largest + 1, (64, 8)).astype(np.int8)
    weights[0] = largest
    constants: dict[str, Any] = {"w": weights} | ({} if zero is None else {"a": np.uint8(0), "z": np.int8(zero)})
    inputs = [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, [4, 64])]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [4, 8])]
    made = model([node("MatMulInteger", "x w" if zero is None else "x w a z", "y")], inputs, outputs, constants)
    return made, X.astype(np.int32) @ (weights.astype(np.int32) - (zero or 0))


@pytest.mark.parametrize("zero", [None, 0, 5])
def test_products_of_large_weights_are_exact(zero: int | None) -> None:
    made, wanted = product(127, zero=zero)
    assert without_saturation(made)
    session = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, {"x": X})[0], wanted)


def test_what_cannot_saturate_stays(tmp_path: Path) -> None:
    made, _ = product(64, zero=0)
    before = made.SerializeToString()
    assert not without_saturation(made) and made.SerializeToString() == before
    assert may_saturate(saved(made, tmp_path)) and not may_saturate(DIGITS)


def test_a_package_of_large_weights_validates(intaglio: Intaglio, tmp_path: Path) -> None:
    made, _ = product(127, zero=None)
    assert intaglio("compile", saved(made, tmp_path), "-o", tmp_path / "p", "--cflags=-O0").code == 0
    assert intaglio("validate", tmp_path / "p").code == 0


def test_a_convolution_of_signed_bytes_keeps_its_weights() -> None:
    """ONNX Runtime does not convolve signed bytes with unsigned ones: it would not load the model."""
    weights = RANDOM.integers(-127, 128, (2, 3, 3, 3)).astype(np.int8)
    constants = {"s": np.float32(0.1), "z": np.int8(0), "w": weights}
    of_bytes = onnx.helper.make_tensor_value_info
    x, y = of_bytes("x", onnx.TensorProto.INT8, [1, 3, 6, 6]), of_bytes("y", onnx.TensorProto.INT8, None)
    made = model([node("QLinearConv", "x s z w s z s z", "y")], [x], [y], constants)
    without_saturation(made)
    ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
