"""Models that Keras quantised itself: int8, int4, float8, against Keras."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="Keras is not installed")

from intaglio.errors import ModelError  # noqa: E402
from intaglio.frontends.keras import load  # noqa: E402
from intaglio.ir.types import DType  # noqa: E402
from support.keras_models import assert_like_keras  # noqa: E402

L = keras.layers


def dense() -> Any:
    return keras.Sequential([keras.Input((6,)), L.Dense(5, activation="relu"), L.Dense(3, use_bias=False)])


def einsum() -> Any:
    x = keras.Input((4, 6))
    y = L.EinsumDense("abc,cde->abde", output_shape=(None, 2, 5), bias_axes="de")(x)
    y = L.EinsumDense("abde,def->abf", output_shape=(None, 3), activation="tanh")(y)
    return keras.Model(x, L.EinsumDense("abf,fg->agb", output_shape=(4, None), bias_axes="g")(y))


def embedding() -> Any:
    return keras.Sequential([keras.Input((5,), dtype="int32"), L.Embedding(9, 7), L.Dense(3)])


def quantised(model: Any, mode: str) -> Any:
    rng = np.random.default_rng(3)
    model.set_weights([rng.standard_normal(w.shape).astype(np.float32) for w in model.get_weights()])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the input layer is not quantised
        model.quantize(mode)
    return model


@pytest.mark.parametrize("make", [dense, einsum, embedding])
@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_a_quantised_model(make: Any, mode: str, tmp_path: Path) -> None:
    assert_like_keras(quantised(make(), mode), tmp_path, (".keras",))


def test_weights_of_8_bits_stay_so(tmp_path: Path) -> None:
    graph = assert_like_keras(quantised(dense(), "int8"), tmp_path, (".keras",))
    stored = [v.type for node in graph.nodes for v in node.operands() if v.is_const and v.type.rank == 2]
    assert stored and all(t.dtype is DType.I8 for t in stored)


@pytest.mark.parametrize("block", [None, 4])
@pytest.mark.parametrize("make", [dense, einsum])
def test_four_bits_with_and_without_blocks(make: Any, block: int | None, tmp_path: Path) -> None:
    settings = keras.quantizers.Int4QuantizationConfig(block_size=block)
    model = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.quantize("int4", config=settings)
    assert_like_keras(model, tmp_path, (".keras",))


def test_weights_alone(tmp_path: Path) -> None:
    model = dense()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.quantize("int8", config=keras.quantizers.Int8QuantizationConfig(activation_quantizer=None))
    assert_like_keras(model, tmp_path, (".keras",))


@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_attention_that_keras_quantised_is_refused(mode: str, tmp_path: Path) -> None:
    """Keras does not read such a file itself: nothing in it says that the layers inside are quantised."""
    x = keras.Input((6, 16))
    path = tmp_path / "m.keras"
    quantised(keras.Model(x, L.MultiHeadAttention(2, 8)(x, x)), mode).save(path)
    with pytest.raises(ModelError, match="more variables for it than the 2 that its options ask for") as caught:
        load(path, dims={}, shapes={})
    assert caught.value.hint and "before it is quantised" in caught.value.hint


def test_lora_weights_are_part_of_the_kernel_in_a_file(tmp_path: Path) -> None:
    model = dense()
    model.layers[0].enable_lora(2)
    rng = np.random.default_rng(1)
    model.set_weights([rng.standard_normal(w.shape).astype(np.float32) for w in model.get_weights()])
    assert_like_keras(model, tmp_path, (".keras",))
