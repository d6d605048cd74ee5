"""Compiled TFLite models on real data: as many right answers as LiteRT's reference kernels give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.ir.graph import Array
from support.shared import SHARED, needs_shared

STEP = np.float32(1 / 255)


def as_it_is(x: Array) -> Array:
    return x.astype(np.float32)


def as_a_part_of_one(x: Array) -> Array:
    return x.astype(np.float32) * STEP


def as_integers(x: Array) -> Array:
    """With the step 1/255 and -128 for 0."""
    real = as_a_part_of_one(x) if x.dtype == np.uint8 else x
    return np.clip(np.round(real / STEP) - 128, -128, 127).astype(np.int8)


@needs_shared
@pytest.mark.parametrize(
    ("model", "data", "prepared", "right"),
    [
        ("wand5_f32", "wand5_test", as_it_is, 22),
        ("wand5_int8", "wand5_test", as_integers, 22),
        ("handkp_keypoint", "hand_keypoint", as_it_is, 4639),
        ("tflm_mnist_lstm_f32", "digits28", as_a_part_of_one, 1421),
        ("tflm_mnist_lstm_int8", "digits28", as_integers, 1420),
    ],
)
def test_as_many_answers_are_right(model: str, data: str, prepared: object, right: int, tmp_path: Path) -> None:
    assert callable(prepared)
    package = intaglio.compile(SHARED / "models" / f"{model}.tflite", output=tmp_path / "package")
    samples = np.load(SHARED / "data" / f"{data}.npz")
    found = 0
    for x, answer in zip(prepared(samples["X"]), samples["y"], strict=True):
        package.reset()  # an LSTM goes on from one run to the next
        (scores,) = package.run({"in0": x[None]}).values()
        found += int(np.argmax(scores) == answer)
    assert found == right
