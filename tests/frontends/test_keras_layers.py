"""Layers and networks of Keras, saved as `.keras` and `.h5`, against what Keras itself computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.keras_models import assert_like_keras, fill, keras

L, ops, Model, Input, Sequential = keras.layers, keras.ops, keras.Model, keras.Input, keras.Sequential
LAST, FIRST = {"data_format": "channels_last"}, {"data_format": "channels_first"}


def chain(shape: tuple[int, ...], *layers: Any, dtype: str = "float32") -> Any:
    return fill(Sequential([Input(shape, dtype=dtype, name="x"), *layers]))


def words(*layers: Any) -> Any:
    """Numbers of words, of which zeros do not count."""
    return chain((9,), L.Embedding(7, 4, mask_zero=True), *layers, dtype="int32")


LAYERS: dict[str, Any] = {
    "dense of rank 4": lambda: chain((3, 2, 5), L.Dense(7, activation="gelu")),
    "dense without bias": lambda: chain((5,), L.Dense(7, use_bias=False), L.LeakyReLU(0.1), L.ELU(0.7)),
    "einsum dense": lambda: chain((6, 5), L.EinsumDense("abc,cde->abde", (None, 2, 4), bias_axes="de", activation="tanh")),
    "conv1d": lambda: chain((11, 3), L.Conv1D(6, 3, strides=2, padding="same"), L.Conv1D(4, 3, dilation_rate=2, activation="relu")),
    "conv1d first": lambda: chain((3, 11), L.Conv1D(6, 3, padding="same", **FIRST)),
    "conv2d same and strides": lambda: chain((9, 10, 3), L.Conv2D(6, (3, 4), strides=2, padding="same", activation="silu")),
    "conv2d first": lambda: chain((3, 9, 10), L.Conv2D(6, 3, strides=(1, 2), padding="same", use_bias=False, **FIRST)),
    "conv2d groups": lambda: chain((8, 8, 4), L.Conv2D(6, 3, groups=2, dilation_rate=(2, 1))),
    "conv3d": lambda: chain((5, 6, 7, 2), L.Conv3D(3, 2, strides=2, padding="same"), L.MaxPooling3D(2)),
    "depthwise": lambda: chain((9, 9, 3), L.DepthwiseConv2D(3, strides=2, padding="same", depth_multiplier=2, activation="relu6")),
    "depthwise 1d": lambda: chain((9, 3), L.DepthwiseConv1D(3, padding="same")),
    "depthwise first": lambda: chain((3, 9, 9), L.DepthwiseConv2D(3, **FIRST)),
    "separable": lambda: chain((9, 9, 3), L.SeparableConv2D(5, 3, depth_multiplier=2, padding="same", activation="elu")),
    "separable 1d": lambda: chain((9, 3), L.SeparableConv1D(5, 3)),
    "conv2d transpose same": lambda: chain((4, 5, 3), L.Conv2DTranspose(4, 3, strides=2, padding="same")),
    "conv2d transpose valid": lambda: chain((4, 5, 3), L.Conv2DTranspose(4, (2, 4), strides=3)),
    "conv2d transpose output padding": lambda: chain(
        (4, 5, 3), L.Conv2DTranspose(4, 3, strides=2, padding="same", output_padding=1)
    ),
    "conv2d transpose first": lambda: chain(
        (3, 4, 5), L.Conv2DTranspose(4, 4, strides=2, padding="same", activation="relu", **FIRST)
    ),
    "conv1d transpose": lambda: chain((6, 3), L.Conv1DTranspose(4, 3, strides=2, padding="same")),
    "conv3d transpose": lambda: chain((3, 4, 3, 2), L.Conv3DTranspose(3, 2, strides=2)),
    "batch norm": lambda: chain((4, 4, 3), L.BatchNormalization(), L.BatchNormalization(scale=False, axis=1)),
    "layer norm": lambda: chain((4, 6), L.LayerNormalization(), L.LayerNormalization(axis=[1, 2], center=False)),
    "group norm": lambda: chain((4, 5, 6), L.GroupNormalization(3), L.GroupNormalization(2, scale=False)),
    "group norm first": lambda: chain((6, 4, 5), L.GroupNormalization(3, axis=1)),
    "unit and rms norm": lambda: chain((4, 6), L.RMSNormalization(), L.UnitNormalization()),
    "normalization": lambda: chain((4, 6), L.Normalization(), L.Normalization(mean=[0.5] * 6, variance=[2.0] * 6)),
    "normalization inverse": lambda: chain((3,), L.Normalization(invert=True), L.Rescaling(0.5, offset=-1.0)),
    "relu options": lambda: chain((4, 6), L.ReLU(max_value=0.5, negative_slope=0.1), L.ReLU(threshold=0.2), L.ReLU(6.0)),
    "prelu": lambda: chain((4, 5, 6), L.PReLU(shared_axes=[1, 2]), L.Softmax()),
    "softmax axis": lambda: chain((4, 6), L.PReLU(), L.Softmax(axis=1)),
    "max pooling": lambda: chain((9, 10, 3), L.MaxPooling2D(3, strides=2, padding="same"), L.MaxPooling2D((2, 1))),
    "average pooling": lambda: chain((9, 9, 3), L.AveragePooling2D(3, padding="same", strides=(2, 3))),
    "pooling 1d": lambda: chain((9, 3), L.MaxPooling1D(3, strides=2, padding="same"), L.AveragePooling1D(2)),
    "pooling first": lambda: chain((3, 9, 10), L.MaxPooling2D(2, **FIRST), L.AveragePooling2D(2, padding="same", **FIRST)),
    "average pooling 3d": lambda: chain((4, 5, 6, 2), L.AveragePooling3D(2, padding="same"), L.GlobalMaxPooling3D()),
    "global pooling": lambda: chain((5, 6, 3), L.GlobalAveragePooling2D(keepdims=True), L.GlobalMaxPooling2D()),
    "global pooling 1d": lambda: chain((3, 7), L.GlobalAveragePooling1D(**FIRST)),
    "padding and cropping": lambda: chain(
        (5, 6, 3), L.ZeroPadding2D(((1, 2), (0, 3))), L.Cropping2D(((0, 1), (2, 0))), L.ZeroPadding2D(1)
    ),
    "padding and cropping 1d": lambda: chain((5, 3), L.ZeroPadding1D((1, 2)), L.Cropping1D(1)),
    "padding first": lambda: chain((2, 5, 6), L.ZeroPadding2D((1, 2), **FIRST), L.Flatten(**FIRST)),
    "upsampling": lambda: chain((4, 5, 3), L.UpSampling2D((2, 3)), L.UpSampling2D(2, interpolation="bilinear")),
    "upsampling 1d and 3d": lambda: chain((4, 6), L.UpSampling1D(3), L.Reshape((3, 4, 3, 2)), L.UpSampling3D((1, 2, 1))),
    "resizing": lambda: chain((4, 5, 3), L.Resizing(7, 9), L.Resizing(3, 4, interpolation="nearest")),
    "moving": lambda: chain((4, 6), L.Permute((2, 1)), L.Reshape((-1, 8)), L.Flatten(), L.RepeatVector(3)),
    "dropouts": lambda: chain(
        (4, 6), L.Dropout(0.5), L.GaussianNoise(0.1), L.SpatialDropout1D(0.2), L.AlphaDropout(0.1), L.Dense(3)
    ),
    "embedding": lambda: chain((5,), L.Embedding(9, 4), L.Flatten(), dtype="int32"),
    "lstm": lambda: chain((7, 3), L.LSTM(5, return_sequences=True), L.LSTM(4)),
    "lstm with other activations": lambda: chain(
        (7, 3), L.LSTM(5, activation="relu", recurrent_activation="hard_sigmoid", use_bias=False)
    ),
    "conv lstm both ways": lambda: chain((3, 4, 4, 2), L.Bidirectional(L.ConvLSTM2D(2, 3, padding="same", return_sequences=True))),
    "conv lstm, last of both": lambda: chain((3, 4, 2), L.Bidirectional(L.ConvLSTM1D(2, 3), merge_mode="ave")),
    "masked lstms": lambda: words(L.LSTM(5, return_sequences=True), L.LSTM(4)),
    "masked gru backwards": lambda: words(L.GRU(5, return_sequences=True, go_backwards=True), L.Dense(3)),
    "masked rnn with zeros": lambda: words(L.SimpleRNN(5, return_sequences=True, zero_output_for_mask=True)),
    "masked both ways": lambda: words(L.Bidirectional(L.LSTM(5, return_sequences=True)), L.Bidirectional(L.GRU(4))),
    "masked mean": lambda: words(L.Dropout(0.5), L.LayerNormalization(), L.GlobalAveragePooling1D()),
    "masking": lambda: chain((6, 2), L.ReLU(), L.Masking(0.0), L.LSTM(4)),
    "conv lstm": lambda: chain((4, 6, 7, 2), L.ConvLSTM2D(3, (3, 2), padding="same", return_sequences=True), L.ConvLSTM2D(2, 3)),
    "conv lstm 1d backwards": lambda: chain((4, 9, 2), L.ConvLSTM1D(3, 3, strides=2, return_sequences=True, go_backwards=True)),
    "conv lstm 3d": lambda: chain((2, 4, 4, 4, 1), L.ConvLSTM3D(2, 2, use_bias=False, recurrent_activation="hard_sigmoid")),
    "gru": lambda: chain((7, 3), L.GRU(5, return_sequences=True), L.GRU(4, reset_after=False)),
    "simple rnn backwards": lambda: chain((7, 3), L.SimpleRNN(5, return_sequences=True, go_backwards=True), L.SimpleRNN(4)),
    "rnn of a cell": lambda: chain((7, 3), L.RNN(L.GRUCell(5), return_sequences=True), L.RNN(L.LSTMCell(4))),
    "bidirectional lstm": lambda: chain((7, 3), L.Bidirectional(L.LSTM(5, return_sequences=True)), L.Bidirectional(L.LSTM(4))),
    "bidirectional gru": lambda: chain(
        (7, 3), L.Bidirectional(L.GRU(5, return_sequences=True), merge_mode="sum"), L.Bidirectional(L.GRU(2), merge_mode="ave")
    ),
    "bidirectional of two kinds": lambda: chain(
        (7, 3), L.Bidirectional(L.LSTM(4), backward_layer=L.GRU(4, go_backwards=True), merge_mode="mul")
    ),
    "time distributed": lambda: chain((4, 6, 6, 2), L.TimeDistributed(L.Conv2D(3, 3)), L.TimeDistributed(L.Flatten()), L.LSTM(3)),
    "time distributed model": lambda: chain(
        (4, 6), L.TimeDistributed(Sequential([Input((6,)), L.Dense(3), L.BatchNormalization()]))
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_keras_computes(name: str, tmp_path: Path) -> None:
    assert_like_keras(LAYERS[name](), tmp_path)


@pytest.mark.parametrize("name", sorted(keras.src.activations.ALL_OBJECTS_DICT))
def test_every_activation_computes_what_keras_computes(name: str, tmp_path: Path) -> None:
    if name == "threshold":
        pytest.skip("a layer cannot give it its arguments")
    before = () if name == "glu" else (L.Activation(name),)  # Keras thinks that it keeps the shape
    assert_like_keras(chain((4, 6), *before, L.Dense(4, activation=name)), tmp_path, (".keras",))


def test_an_activation_may_be_a_layer(tmp_path: Path) -> None:
    assert_like_keras(
        chain((6,), L.Dense(4, activation=L.LeakyReLU(0.3)), L.Dense(4, activation=L.ReLU(6.0))), tmp_path, (".keras",)
    )
