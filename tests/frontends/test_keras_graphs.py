"""Networks of Keras: several inputs and outputs, shared and nested layers, attention, functions of `keras.ops`, states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio import compile
from intaglio.frontends.keras import load
from intaglio.ops.evaluate import evaluate_graph
from support.commands import Intaglio
from support.keras_models import assert_like_keras, fill, keras
from support.slow import quick_where

L, ops, Model, Input, Sequential = keras.layers, keras.ops, keras.Model, keras.Input, keras.Sequential


def residual() -> Any:
    x = Input((8, 8, 3), name="image")
    y = L.Conv2D(4, 3, padding="same", use_bias=False)(x)
    y = L.Activation("relu")(L.BatchNormalization()(y))
    z = L.BatchNormalization()(L.Conv2D(4, 3, padding="same")(y))
    y = L.ReLU()(L.Add()([y, z]))
    z = L.Conv2D(4, 1, strides=2)(y)
    y = L.Average()([L.MaxPooling2D()(y), z])
    return Model(x, L.Dense(3, activation="softmax", name="classes")(L.GlobalAveragePooling2D()(y)))


def mobile() -> Any:
    x = Input((16, 16, 3))
    y = L.ReLU(6.0)(L.BatchNormalization()(L.Conv2D(4, 3, strides=2, padding="same")(x)))
    y = L.ReLU(6.0)(L.BatchNormalization()(L.DepthwiseConv2D(3, padding="same")(L.ZeroPadding2D(((0, 1), (0, 1)))(y))))
    z = L.GlobalAveragePooling2D(keepdims=True)(y)
    z = L.Conv2D(4, 1, activation="hard_sigmoid")(L.Conv2D(2, 1, activation="relu")(z))
    return Model(x, L.Flatten()(L.Multiply()([y, z])))


def unet() -> Any:
    x = Input((8, 8, 2))
    a = L.Conv2D(4, 3, padding="same", activation="relu")(x)
    b = L.Conv2D(6, 3, padding="same", activation="relu")(L.MaxPooling2D()(a))
    c = L.Conv2D(8, 3, padding="same", activation="relu")(L.MaxPooling2D()(b))
    c = L.Conv2DTranspose(6, 2, strides=2, padding="same")(c)
    c = L.Conv2D(6, 3, padding="same")(L.Concatenate()([c, b]))
    c = L.UpSampling2D(interpolation="bilinear")(c)
    return Model(x, L.Conv2D(1, 1, activation="sigmoid")(L.Concatenate()([c, a])))


def temporal() -> Any:
    """A temporal convolutional network."""
    x = y = Input((20, 4))
    for rate in (1, 2, 4):
        z = L.Conv1D(6, 3, padding="causal", dilation_rate=rate, activation="relu")(y)
        z = L.SpatialDropout1D(0.1)(L.LayerNormalization()(z))
        y = L.Add()([z, L.Conv1D(6, 1)(y)])
    return Model(x, L.Dense(2)(y[:, -1]))


def transformer() -> Any:
    tokens = Input((6,), dtype="int32", name="tokens")
    x = L.Embedding(12, 8)(tokens) * 0.7 + 0.1
    y = L.MultiHeadAttention(2, 4, value_dim=3)(x, x, use_causal_mask=True)
    x = L.LayerNormalization(epsilon=1e-6)(x + y)
    y = L.Dense(8)(L.Dense(16, activation="gelu")(x))
    x = L.LayerNormalization(epsilon=1e-6)(L.Add()([x, y]))
    y, scores = L.MultiHeadAttention(2, 4, use_bias=False, output_shape=5)(x, x, return_attention_scores=True)
    return Model(tokens, {"logits": y, "scores": scores})


def attention() -> Any:
    q, v = Input((4, 6), name="q"), Input((5, 6), name="v")
    a = L.Attention(use_scale=True)([q, v])
    b = L.AdditiveAttention()([q, v])
    c = L.Attention(score_mode="concat")([q, v, v], use_causal_mask=True)
    d = L.Dot(axes=(2, 2), normalize=True)([q, v])
    return Model([q, v], [L.Maximum()([a, b]), L.Minimum()([b, c]), L.Subtract()([a, c]), d, L.Dot(axes=1)([a, c])])


def shared() -> Any:
    a, b = Input((6,), name="a"), Input((6,), name="b")
    both = L.Dense(4, activation="tanh", name="both")
    x, y = both(a), both(b)
    return Model(inputs=[b, a], outputs=[x * y, ops.abs(x - y), L.Dense(1, name="last")(x)])


def nested() -> Any:
    inner_in = Input((6,))
    inner = Model(inner_in, [L.Dense(4)(inner_in), L.BatchNormalization()(L.Dense(5)(inner_in))], name="inner")
    row = Sequential([Input((4,)), L.Dense(3), L.BatchNormalization(), L.ReLU()], name="row")
    row.trainable = False
    x, y = Input((6,), name="x"), Input((6,), name="y")
    p, q = inner(x)
    r, s = inner(y)
    return Model([x, y], [row(p), row(r), q + s, r])


def functions() -> Any:
    x, y = Input((4, 6), name="x"), Input((4, 6), name="y")
    a = ops.relu(x) * 2.0 + ops.square(y) / 3 - 1.5
    b = ops.concatenate([ops.mean(a, axis=1), ops.max(x, axis=-1)], axis=-1)
    c = ops.stack([x[:, 0], y[:, -1, :], x[:, 1] ** 2], axis=1)
    d, e = ops.split(ops.transpose(a, (0, 2, 1)), 2, axis=1)
    f = ops.softmax(ops.matmul(d, ops.swapaxes(e, 1, 2)), axis=-1)
    g = ops.where(x > y, x, ops.zeros_like(y)) + ops.clip(y, -0.5, 0.5)
    h = ops.einsum("btf,bsf->bts", x, y) + ops.sum(ops.expand_dims(x, 1), axis=(1, 3), keepdims=False)[:, :, None]
    i = (
        ops.reshape(x[:, ::2, 1:5], (-1, 8))
        + ops.var(y, axis=(1, 2))[:, None]
        + ops.cast(ops.argmax(x[:, 0], axis=-1), "float32")[:, None]
    )
    j = ops.flip(ops.repeat(x, 2, axis=1), axis=1) + ops.tile(y, (1, 2, 1)) + ops.logsumexp(x, axis=-1, keepdims=True)[:, :1]
    return Model([x, y], [b, c, f, g, h, i, j])


def encoder_and_decoder() -> Any:
    x, y = Input((5, 3), name="x"), Input((4, 3), name="y")
    _, h, c = L.LSTM(6, return_state=True)(x)
    z = L.LSTM(6, return_sequences=True)(y, initial_state=[h, c])
    w, *states = L.Bidirectional(L.GRU(3, return_state=True))(x)
    v = L.Bidirectional(L.GRU(3))(y, initial_state=states)
    return Model([x, y], [L.TimeDistributed(L.Dense(2))(z), w + v])


NETWORKS = (residual, mobile, unet, temporal, transformer, attention, shared, nested, functions, encoder_and_decoder)


@pytest.mark.parametrize("build", NETWORKS, ids=lambda b: b.__name__)
def test_a_network_computes_what_keras_computes(build: Any, tmp_path: Path) -> None:
    assert_like_keras(fill(build()), tmp_path)


def test_names_of_inputs_outputs_and_layers_stay(tmp_path: Path) -> None:
    graph = assert_like_keras(fill(residual()), tmp_path, (".keras",))
    assert [v.origin for v in graph.inputs] == ["image"]
    assert graph.output_names == ["classes"]
    assert {"conv2d", "classes"} <= {n.source.rstrip("_0123456789") for n in graph.nodes}


def test_a_layer_of_a_nested_model_is_named_by_its_path(tmp_path: Path) -> None:
    graph = assert_like_keras(fill(nested()), tmp_path, (".h5",))
    assert any(n.source.startswith("inner/dense") for n in graph.nodes)


@pytest.mark.parametrize(
    ("dtype", "bound"), [("float64", 1e-6), ("mixed_float16", 1e-2), ("mixed_bfloat16", 5e-2), ("float16", 1e-2)]
)
def test_a_model_in_another_precision(dtype: str, bound: float, tmp_path: Path) -> None:
    x = Input((8, 8, 3), dtype=dtype.removeprefix("mixed_") if dtype in ("float64", "float16") else "float32")
    y = L.BatchNormalization(dtype=dtype)(L.Conv2D(4, 3, activation="relu", dtype=dtype)(x))
    model = fill(Model(x, L.Dense(3, dtype="float32")(L.Flatten(dtype=dtype)(y))))
    assert_like_keras(model, tmp_path, (".keras",), bound)


def test_a_stateful_layer_keeps_its_state(tmp_path: Path) -> None:
    x = Input(batch_shape=(1, 3, 4), name="x")
    model = fill(Model(x, L.GRU(5, stateful=True)(L.LSTM(6, stateful=True, return_sequences=True, name="memory")(x))))
    model.save(tmp_path / "model.keras")
    graph, _ = load(tmp_path / "model.keras", dims={}, shapes={})
    assert [s.input.origin for s in graph.states] == ["memory/h", "memory/c", f"{model.layers[-1].name}/h"]
    inputs = np.random.default_rng(1).standard_normal((3, 1, 3, 4)).astype(np.float32)
    state = {s.input.name: np.zeros(s.input.shape, np.float32) for s in graph.states}
    for step in inputs:
        values = evaluate_graph(graph, {"x": step, **state}, keep=True)
        state = {s.input.name: values[s.output.name] for s in graph.states}
        want = keras.ops.convert_to_numpy(model(step))
        assert np.abs(values[graph.outputs[0].name] - want).max() < 1e-5


def test_open_axes_are_pinned_by_shapes_and_the_batch_by_its_name(tmp_path: Path) -> None:
    fill(Sequential([Input((None, 4), name="x"), L.Conv1D(3, 3, padding="same"), L.LSTM(2)])).save(tmp_path / "m.keras")
    graph, notes = load(tmp_path / "m.keras", dims={}, shapes={"x": (1, 9, 4)})
    assert graph.inputs[0].shape == (1, 9, 4)
    assert notes == []
    fill(Sequential([Input((4,), name="x"), L.Dense(2)])).save(tmp_path / "n.keras")
    graph, _ = load(tmp_path / "n.keras", dims={"batch": 5}, shapes={})
    assert graph.outputs[0].shape == (5, 2)
    _, notes = load(tmp_path / "n.keras", dims={}, shapes={})
    assert notes == ["the batch dimension `batch` of input `x` is set to 1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["MobileNetV2", "MobileNetV3Small", "EfficientNetB0", "EfficientNetV2B0", "DenseNet121", "Xception", "ConvNeXtTiny"]
)
def test_a_network_of_keras_applications(name: str, tmp_path: Path) -> None:
    model = getattr(keras.applications, name)(weights=None, input_shape=(72, 72, 3), classes=10)
    rng = np.random.default_rng(1)
    for weight in model.weights:
        if any(part in weight.path for part in ("moving_mean", "beta", "bias")):
            weight.assign(rng.normal(0, 0.1, weight.shape))
    assert_like_keras(model, tmp_path)


RECURRENCES = ("forwards", "backwards", "both ways", "last", "zeros")


@pytest.mark.parametrize("kind", quick_where(lambda kind: kind in ("both ways", "last"), RECURRENCES))
def test_a_recurrence_with_a_mask_over_a_range(kind: str, tmp_path: Path) -> None:
    """Batch and steps are up to the caller; a mask leaves some out."""
    x = Input((None, 4), name="steps")
    masked = L.Masking()(x)
    made = {
        "forwards": lambda: L.GRU(3, return_sequences=True)(masked),
        "backwards": lambda: L.LSTM(3, return_sequences=True, go_backwards=True)(masked),
        "both ways": lambda: L.Bidirectional(L.GRU(3, return_sequences=True))(masked),
        "last": lambda: L.SimpleRNN(3)(masked),
        "zeros": lambda: L.LSTM(3, return_sequences=True, zero_output_for_mask=True)(masked),
    }[kind]()
    network = fill(Model(x, made))
    network.save(tmp_path / "m.keras")
    package = compile(tmp_path / "m.keras", output=tmp_path / "p", shapes={"steps": ((1, 3), (1, 9), 4)}, cflags="-O1")
    random = np.random.default_rng(0)
    for batch, time in ((1, 1), (2, 5), (3, 9)):
        given = random.standard_normal((batch, time, 4)).astype(np.float32)
        given[random.random((batch, time)) < 0.4] = 0
        given[:, 0] = 1  # Keras has no result for a row that is all masked
        (got,) = package.run({"steps": given}).values()
        np.testing.assert_allclose(got, keras.ops.convert_to_numpy(network(given)), rtol=1e-5, atol=1e-6)
    assert package.validate().ok


def test_causal_attention_over_a_range(tmp_path: Path) -> None:
    x = Input((None, 4), name="steps")
    y = L.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    near = L.MultiHeadAttention(2, 4, sliding_window=3)(y, y, use_causal_mask=True)
    network = fill(Model(x, L.Attention()([near, y], use_causal_mask=True)))
    network.save(tmp_path / "m.keras")
    package = compile(tmp_path / "m.keras", output=tmp_path / "p", shapes={"steps": (1, "1..12", 4)}, cflags="-O1")
    random = np.random.default_rng(0)
    for time in (1, 5, 12):
        given = random.standard_normal((1, time, 4)).astype(np.float32)
        (got,) = package.run({"steps": given}).values()
        np.testing.assert_allclose(got, keras.ops.convert_to_numpy(network(given)), rtol=1e-5, atol=1e-6)


def test_what_needs_to_know_a_size_is_refused_by_name(intaglio: Intaglio, tmp_path: Path) -> None:
    x = Input((None, 8, 2), name="steps")
    Model(x, L.ConvLSTM1D(3, 3)(x)).save(tmp_path / "m.keras")
    said = intaglio("compile", tmp_path / "m.keras", "--shape", "in0=1,1..20,8,2", "-o", tmp_path / "p")
    assert said.code == 2 and "error[size-decides]" in said.err and "damaged" not in said.err


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_upsampling_and_resizing_over_a_range(mode: str, tmp_path: Path) -> None:
    """Batch, rows and columns move; by a factor, and to a size that is no multiple."""
    x = Input((None, None, 2), name="image")
    up = L.UpSampling2D((2, 3), interpolation=mode)(L.Conv2D(2, 3, padding="same")(x))
    network = fill(Model(x, [up, L.Resizing(7, 5, interpolation=mode)(x)]))
    network.save(tmp_path / "m.keras")
    shapes = {"image": ((1, 2), (4, 12, 4), (3, 6), 2)}
    package = compile(tmp_path / "m.keras", output=tmp_path / "p", shapes=shapes, cflags="-O1")
    for shape in ((1, 4, 3, 2), (2, 8, 5, 2), (2, 12, 6, 2)):
        given = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        wanted = [keras.ops.convert_to_numpy(one) for one in network(given)]
        for got, want in zip(package.run({"image": given}).values(), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
