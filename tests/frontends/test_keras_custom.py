"""Custom layers of Keras files, said by registration."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import intaglio
from intaglio.errors import ModelError, UserError
from intaglio.frontends.keras import load
from intaglio.frontends.keras.custom import CUSTOM
from intaglio.ops.binary import Add, Mul

os.environ.setdefault("KERAS_BACKEND", "torch")
keras = pytest.importorskip("keras", reason="Keras is not installed")

from support.keras_models import assert_like_keras  # noqa: E402


@keras.saving.register_keras_serializable(package="tests")
class Affine(keras.layers.Layer):  # type: ignore[misc, name-defined]
    def __init__(self, power: int = 1, **options: Any) -> None:
        super().__init__(**options)
        self.power = power

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(shape[-1],), initializer="random_normal")
        self.offset = self.add_weight(shape=(shape[-1],), initializer="random_normal")

    def call(self, x: Any) -> Any:
        return x**self.power * self.scale + self.offset

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "power": self.power}


def affine(call: Any) -> Any:
    x = call.x
    for _ in range(call.config["power"] - 1):
        x = call.emit(Mul(), x, call.x)
    features = x.shape[-1]
    return call.emit(Add(), call.emit(Mul(), x, call.weight("scale", features)), call.weight("offset", features))


@pytest.fixture
def _clean() -> Iterator[None]:
    before = dict(CUSTOM)
    yield
    CUSTOM.clear()
    CUSTOM.update(before)


def model() -> Any:
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(5), Affine(3), Affine(1), keras.layers.Dense(2)])


@pytest.mark.usefixtures("_clean")
@pytest.mark.parametrize("name", ["tests>Affine", "Affine"])
def test_a_registered_layer_is_read_from_files(name: str, tmp_path: Path) -> None:
    intaglio.register_keras_layer(name, weights=["scale", "offset"])(affine)
    assert_like_keras(model(), tmp_path)


@pytest.mark.usefixtures("_clean")
def test_its_package_validates(tmp_path: Path) -> None:
    model().save(tmp_path / "m.keras")
    intaglio.register_keras_layer("Affine", weights=["scale", "offset"])(affine)
    package = intaglio.compile(tmp_path / "m.keras", output=tmp_path / "out")
    made = package.run({"in0": np.ones((1, 4), np.float32)})
    assert package.validate().ok and next(iter(made.values())).shape == (1, 2)


def test_without_a_registration_it_is_refused(tmp_path: Path) -> None:
    model().save(tmp_path / "m.keras")
    with pytest.raises(ModelError) as caught:
        load(tmp_path / "m.keras", dims={}, shapes={})
    assert "register_keras_layer" in (caught.value.hint or "")


def test_a_name_is_needed() -> None:
    with pytest.raises(UserError, match="not the name of a layer"):
        intaglio.register_keras_layer("")
