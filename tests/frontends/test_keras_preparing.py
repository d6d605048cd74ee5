"""Layers of Keras in front of a network, spectrograms, cells and wrappers: against what Keras computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio.errors import ModelError
from intaglio.frontends.keras import load
from intaglio.ops.evaluate import evaluate_graph
from support.keras_models import assert_like_keras, feeds, fill, keras

L, Model, Input, Sequential = keras.layers, keras.Model, keras.Input, keras.Sequential
FIRST = {"data_format": "channels_first"}


def chain(shape: tuple[int, ...], *layers: Any, dtype: str = "float32") -> Any:
    return fill(Sequential([Input(shape, dtype=dtype, name="x"), *layers]))


def one_step() -> Any:
    x, h, c = (Input((n,), name=name) for n, name in ((3, "x"), (4, "h"), (4, "c")))
    y, (h1, c1) = L.LSTMCell(4)(x, [h, c])
    return fill(Model([x, h, c], [y, h1, c1, L.GRUCell(4, reset_after=False)(x, h)[0], L.SimpleRNNCell(4)(x, h)[0]]))


def states_of_stacked_cells() -> Any:
    x = Input((5, 3), name="x")
    cells = L.StackedRNNCells([L.GRUCell(4), L.LSTMCell(3)])
    found = L.RNN(cells, return_state=True, return_sequences=True, go_backwards=True)(x)
    return fill(Model(x, keras.tree.flatten(found)))


def grouped(**options: Any) -> Any:
    x, memory = Input((5, 8), name="x"), Input((7, 8), name="memory")
    layer = L.GroupQueryAttention(4, 6, 2, **options)
    return fill(Model([x, memory], layer(x, memory) if not options else layer(x, x, use_causal_mask=True) + layer(x, memory)))


def reversible(**options: Any) -> Any:
    x = Input((5,), dtype="int32", name="x")
    layer = L.ReversibleEmbedding(9, 4, **options)
    return fill(Model(x, layer(L.Dense(4, activation="tanh")(layer(x)), reverse=True)))


def counted() -> Any:
    x, w = Input((6,), dtype="int32", name="x"), Input((6,), name="w")
    return Model([x, w], L.CategoryEncoding(num_tokens=8, output_mode="count")(x, count_weights=w))


def spectrum(mode: str, channels: int = 1, **options: Any) -> Any:
    shape = (channels, 40) if "data_format" in options else (40, channels)
    return Sequential([Input(shape, name="x"), L.STFTSpectrogram(mode=mode, frame_length=8, **options)])


LAYERS: dict[str, Any] = {
    "stacked cells": lambda: chain((5, 3), L.RNN(L.StackedRNNCells([L.LSTMCell(4), L.GRUCell(3), L.LSTMCell(2)]))),
    "stacked cells backwards, with states": states_of_stacked_cells,
    "cells of one step": one_step,
    "adaptive mean": lambda: chain((7, 9, 3), L.AdaptiveAveragePooling2D((3, 4)), L.AdaptiveAveragePooling2D(1)),
    "adaptive maximum": lambda: chain((3, 7, 9), L.AdaptiveMaxPooling2D((3, 4), **FIRST)),
    "adaptive, one axis": lambda: chain((8, 3), L.AdaptiveMaxPooling1D(5), L.AdaptiveAveragePooling1D(2)),
    "adaptive, three axes": lambda: chain((4, 5, 6, 2), L.AdaptiveAveragePooling3D((2, 3, 3)), L.AdaptiveMaxPooling3D(2)),
    "spectral norm": lambda: chain((9, 9, 3), L.SpectralNormalization(L.Conv2D(4, 3)), L.SpectralNormalization(L.Dense(2))),
    "pipeline": lambda: chain((6, 3), L.Pipeline([L.Rescaling(0.5, offset=1.0), L.Dense(4), L.Dense(2)]), L.Dense(2)),
    "crop": lambda: chain((7, 9, 3), L.CenterCrop(4, 6), L.CenterCrop(3, 3)),
    "crop of a smaller image": lambda: chain((7, 9, 3), L.CenterCrop(8, 6)),
    "crop, channels first": lambda: chain((3, 7, 9), L.CenterCrop(4, 12, **FIRST), L.RandomCrop(4, 12, **FIRST)),
    "resizing that cuts": lambda: chain(
        (7, 9, 3), L.Resizing(6, 4, crop_to_aspect_ratio=True), L.Resizing(3, 5, crop_to_aspect_ratio=True)
    ),
    "resizing that fills": lambda: chain((7, 9, 3), L.Resizing(6, 4, pad_to_aspect_ratio=True, fill_value=2.0)),
    "resizing that fills, channels first": lambda: chain((3, 9, 6), L.Resizing(8, 9, pad_to_aspect_ratio=True, **FIRST)),
    "contrast": lambda: chain((6, 7, 3), L.AutoContrast(value_range=(-3, 3))),
    "boundaries": lambda: chain((6,), L.Discretization(bin_boundaries=[-0.5, 0.0, 1.0])),
    "boundaries as vectors": lambda: chain((6, 1), L.Discretization(bin_boundaries=[-0.5, 0.0], output_mode="one_hot")),
    "boundaries, counted": lambda: chain((6,), L.Discretization(bin_boundaries=[-0.5, 0.0], output_mode="count")),
    "categories": lambda: chain((6,), L.CategoryEncoding(num_tokens=8), dtype="int32"),
    "one category": lambda: chain((1,), L.CategoryEncoding(num_tokens=8, output_mode="one_hot"), dtype="int64"),
    "categories of each": lambda: chain((4, 3), L.CategoryEncoding(num_tokens=8, output_mode="one_hot"), dtype="uint8"),
    "counted categories": counted,
    "grouped attention": grouped,
    "grouped attention with a gate": lambda: grouped(use_gate=True, sliding_window=3, use_bias=False),
    "a table both ways": reversible,
    "two tables with a cap": lambda: reversible(tie_weights=False, logit_soft_cap=0.7, reverse_dtype="float32"),
    **{f"stft, {mode}": lambda mode=mode: spectrum(mode) for mode in ("log", "magnitude", "psd", "real", "imag", "stft")},
    "stft of channels": lambda: spectrum("log", 3, padding="same", frame_step=3, fft_length=16),
    "stft, channels first": lambda: spectrum("stft", 2, expand_dims=True, scaling="spectrum", **FIRST),
    "stft, channels as an axis": lambda: spectrum("psd", 2, expand_dims=True, scaling=None, window="hamming"),
    "mel": lambda: chain((400,), L.MelSpectrogram(64, 20, sampling_rate=1000, num_mel_bins=12, min_freq=10.0)),
    "mel, other options": lambda: chain(
        (2, 300),
        L.MelSpectrogram(
            64, 16, 50, "hamming", 1000, 9, 5.0, 400.0, power_to_db=False, mag_exp=1.0
        ),
    ),
    "mel, decibels": lambda: chain(
        (300,), L.MelSpectrogram(64, 16, sampling_rate=1000, num_mel_bins=9, mag_exp=3.0, ref_power=5.0, top_db=20.0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_keras_computes(name: str, tmp_path: Path) -> None:
    assert_like_keras(LAYERS[name](), tmp_path)


def _flip(layer: Any) -> Any:
    return Sequential([Input((6, 6, 3), dtype="uint8", name="x"), layer])


@pytest.mark.parametrize(
    "layer",
    [
        *(L.AugMix, L.RandAugment, L.RandomErasing, L.RandomFlip, L.RandomGaussianBlur, L.RandomPerspective, L.Solarization),
        *(L.RandomElasticTransform, L.RandomGrayscale, L.RandomInvert, L.RandomColorJitter, L.CutMix, L.MixUp),
        *(lambda kind=kind: kind(0.5) for kind in (L.RandomColorDegeneration, L.RandomHue, L.RandomSaturation, L.RandomSharpness)),
        *(lambda kind=kind: kind(0.2, 0.1) for kind in (L.RandomShear, L.RandomTranslation, L.RandomZoom)),
        *(lambda: L.RandomPosterization(4), lambda: L.RandomRotation(0.2), lambda: L.RandomContrast(0.2)),
        *(lambda: L.RandomBrightness(0.2), lambda: L.MaxNumBoundingBoxes(5)),
    ],
)
def test_layers_that_only_train_leave_images_alone(layer: Any, tmp_path: Path) -> None:
    model = _flip(layer())
    model.save(tmp_path / "m.keras")
    graph, _ = load(tmp_path / "m.keras", dims={}, shapes={})
    inputs = feeds(graph)
    (want,) = (np.asarray(model(next(iter(inputs.values())), training=False)),)
    (got,) = evaluate_graph(graph, inputs).values()
    assert got.dtype == want.dtype
    assert np.array_equal(got, want)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: chain((6, 7, 3), L.RandomCrop(4, 5)), "depends on the version of Keras"),
        (lambda: spectrum("angle"), "depends on the last bit"),
        (lambda: chain((6, 6, 3), L.ContrastLimitedAdaptiveHistogramEqualization()), "this layer is not supported"),
        (lambda: chain((40,), L.MelSpectrogram(16, 4, window=[0.5] * 16)), "`window` is"),
    ],
)
def test_a_refusal_says_why(model: Any, reason: str, tmp_path: Path) -> None:
    model().save(tmp_path / "m.keras")
    with pytest.raises(ModelError, match=reason):
        load(tmp_path / "m.keras", dims={}, shapes={})
