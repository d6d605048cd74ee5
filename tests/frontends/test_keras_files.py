"""Files of Keras that are not made by the Keras that is here: HDF5 in its variants, models of Keras 2; objects and folders."""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio import compile
from intaglio.errors import UserError
from intaglio.frontends.keras import load
from intaglio.frontends.keras.hdf5 import Hdf5
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph
from support.commands import Intaglio
from support.keras_models import fill, keras
from support.tflite_models import one_operator, tensor

h5py: Any = pytest.importorskip("h5py", reason="h5py is not installed")
L = keras.layers


def numbers(*shape: int, seed: int = 1) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.5).astype(np.float32)


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunks": (3, 4)},
        {"chunks": (3, 4), "compression": "gzip"},
        {"compression": "gzip", "shuffle": True, "fletcher32": True},
    ],
    ids=str,
)
def test_arrays_of_all_storages_are_read(options: dict[str, Any], newest: bool) -> None:
    place = io.BytesIO()
    data = numbers(7, 9)
    with h5py.File(place, "w", libver="v108" if newest else "earliest") as file:
        for name, kind in (("a/b", "f4"), ("c", ">f8"), ("d", "f2"), ("e", "i4"), ("f", ">i2"), ("g", "u1")):
            file.create_dataset(name, data=(data * 100).astype(kind), **options)
    store = Hdf5(place.getvalue(), "m.h5")
    assert store.shape("a/b") == (7, 9)
    for name, kind in (("a/b", "f4"), ("c", "f8"), ("d", "f2"), ("e", "i4"), ("f", "i2"), ("g", "u1")):
        np.testing.assert_array_equal(store.array(name), (data * 100).astype(kind))


def test_many_names_and_long_attributes_are_read() -> None:
    place = io.BytesIO()
    names = [f"layer_{n}" for n in range(700)]
    with h5py.File(place, "w") as file:
        for n, name in enumerate(names):
            file[f"model_weights/{name}/kernel"] = np.full(3, n, np.float32)
        file.attrs["model_config"] = "x" * 200_000
        file["model_weights"].attrs["fixed"] = [n.encode() for n in names]
        file["model_weights"].attrs["cut0"], file["model_weights"].attrs["cut1"] = [b"a", b"bc"], ["d"]
        file["scalar"], file["none"] = np.float32(2.5), np.zeros((0, 4), np.float32)
    store = Hdf5(place.getvalue(), "m.h5")
    assert sorted(store.names("model_weights")) == sorted(names)
    assert store.array("model_weights/layer_699/kernel").tolist() == [699.0] * 3
    assert store.text("", "model_config") == "x" * 200_000
    assert store.texts("model_weights", "fixed") == names
    assert store.texts("model_weights", "cut") == ["a", "bc", "d"]
    assert store.array("scalar").item() == 2.5
    assert store.array("none").shape == (0, 4)


def old_file(path: Path, layers: list[dict[str, Any]], arrays: dict[str, list[tuple[str, Array]]], *more: Any) -> Path:
    """A model as tf.keras 2 wrote it: JSON in bytes, weights by lists of names."""
    inputs, outputs = more or ([], [])
    kind = "Functional" if more else "Sequential"
    config: dict[str, Any] = {"name": "old", "layers": layers}
    if more:
        config |= {"input_layers": inputs, "output_layers": outputs}
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": kind, "config": config}).encode()
        file.attrs["keras_version"], file.attrs["backend"] = b"2.11.0", b"tensorflow"
        top = file.create_group("model_weights")
        top.attrs["layer_names"] = [layer["config"]["name"].encode() for layer in layers]
        for layer in layers:
            name = layer["config"]["name"]
            group = top.create_group(name)
            group.attrs["weight_names"] = [f"{w}:0".encode() for w, _ in arrays.get(name, [])]
            for weight, array in arrays.get(name, []):
                group[f"{weight}:0"] = array
    return path


def old(kind: str, name: str, *calls: Any, **config: Any) -> dict[str, Any]:
    layer: dict[str, Any] = {"class_name": kind, "config": {"name": name, "trainable": True, "dtype": "float32", **config}}
    return {**layer, "name": name, "inbound_nodes": list(calls)} if calls else layer


def run(path: Path, **inputs: Array) -> list[Array]:
    graph, _ = load(path, dims={}, shapes={})
    results = evaluate_graph(graph, inputs)
    return [results[v.name] for v in graph.outputs]


def test_a_sequential_model_of_keras_2(tmp_path: Path) -> None:
    """Its first layer has the shape of the input, `hard_sigmoid` the old slope, the axis of a normalisation is a list."""
    conv, bias, scale = numbers(3, 3, 2, 4), numbers(4), np.abs(numbers(4, 4)) + 0.5
    options = {"filters": 4, "kernel_size": [3, 3], "strides": [1, 1], "padding": "same", "activation": "linear", "use_bias": True}
    layers = [
        old("Conv2D", "c", batch_input_shape=[None, 5, 5, 2], **options),
        old("BatchNormalization", "b", axis=[3], epsilon=0.001, center=True, scale=True),
        old("LeakyReLU", "l", alpha=0.25),
        old("Activation", "h", activation="hard_sigmoid"),
        old("Flatten", "f", data_format="channels_last"),
        old("Dense", "d", units=2, activation="softmax", use_bias=True),
    ]
    arrays = {
        "c": [("c/kernel", conv), ("c/bias", bias)],
        "b": [(f"b/{n}", scale[i]) for i, n in enumerate(("gamma", "beta", "moving_mean", "moving_variance"))],
        "d": [("d/kernel", numbers(100, 2)), ("d/bias", numbers(2))],
    }
    path = old_file(tmp_path / "old.h5", layers, arrays)
    graph, _ = load(path, dims={}, shapes={})
    assert [(v.origin, v.shape) for v in graph.inputs] == [("c_input", (1, 5, 5, 2))]
    (got,) = run(path, c_input=numbers(1, 5, 5, 2, seed=4))
    x = keras.Input((5, 5, 2))
    y = L.BatchNormalization(epsilon=0.001)(L.Conv2D(4, 3, padding="same")(x))
    y = L.LeakyReLU(negative_slope=0.25)(y)
    y = keras.ops.clip(y * 0.2 + 0.5, 0.0, 1.0)
    model = keras.Model(x, L.Dense(2, activation="softmax")(L.Flatten()(y)))
    for weight, array in zip(model.weights, [a for name in ("c", "b", "d") for _, a in arrays[name]], strict=True):
        weight.assign(array)
    np.testing.assert_allclose(got, keras.ops.convert_to_numpy(model(numbers(1, 5, 5, 2, seed=4))), atol=1e-5)


def test_a_functional_model_of_keras_2(tmp_path: Path) -> None:
    """Calls are lists, an inner model counts its own call, functions of TensorFlow have their names."""
    dense = {"units": 3, "activation": "relu", "use_bias": False}
    inner = {
        "class_name": "Functional",
        "config": {
            "name": "inner",
            "trainable": True,
            "layers": [
                old("InputLayer", "i", batch_input_shape=[None, 3], sparse=False) | {"name": "i", "inbound_nodes": []},
                old("Dense", "k", [["i", 0, 0, {}]], units=3, use_bias=False, activation="linear"),
            ],
            "input_layers": [["i", 0, 0]],
            "output_layers": [["k", 0, 0]],
        },
        "name": "inner",
        "inbound_nodes": [[["d", 0, 0, {}]], [["d", 1, 0, {}]]],
    }
    layers = [
        old("InputLayer", "a", batch_input_shape=[None, 4]) | {"name": "a", "inbound_nodes": []},
        old("InputLayer", "b", batch_input_shape=[None, 4]) | {"name": "b", "inbound_nodes": []},
        old("Dense", "d", [["a", 0, 0, {}]], [["b", 0, 0, {}]], **dense),
        inner,
        old("TFOpLambda", "plus", [["inner", 1, 0, {"y": ["inner", 2, 0], "name": None}]], function="__operators__.add"),
        old("TFOpLambda", "times", [["plus", 0, 0, {"y": 2.0, "name": None}]], function="math.multiply"),
        old("Concatenate", "cat", [["times", 0, 0, {}], ["d", 1, 0, {}]], axis=-1),
    ]
    w, k = numbers(4, 3), numbers(3, 3, seed=2)
    arrays = {"d": [("d/kernel", w)], "inner": [("k/kernel", k)]}
    path = old_file(tmp_path / "old.h5", layers, arrays, [["a", 0, 0], ["b", 0, 0]], [["cat", 0, 0]])
    a, b = numbers(1, 4, seed=5), numbers(1, 4, seed=6)
    (got,) = run(path, a=a, b=b)
    left, right = np.maximum(a @ w, 0), np.maximum(b @ w, 0)
    np.testing.assert_allclose(got, np.concatenate([2 * (left @ k + right @ k), right], axis=1), atol=1e-5)


def test_recurrent_layers_of_keras_2(tmp_path: Path) -> None:
    layers = [
        old("GRU", "g", batch_input_shape=[None, 5, 3], units=4, return_sequences=True, activation="tanh",
            recurrent_activation="sigmoid", use_bias=True, reset_after=True, implementation=2, time_major=False),
        old("Bidirectional", "r", merge_mode="concat", layer=old("LSTM", "m", units=2, activation="tanh",
            recurrent_activation="sigmoid", use_bias=True, go_backwards=False)),
    ]  # fmt: skip
    cell = [(3, 12), (4, 12), (2, 12), (4, 8), (2, 8), (8,), (4, 8), (2, 8), (8,)]
    found = [numbers(*shape, seed=n) for n, shape in enumerate(cell)]
    names = [f"r/{side}/{n}" for side in ("forward_m", "backward_m") for n in ("kernel", "recurrent_kernel", "bias")]
    arrays = {
        "g": list(zip(("g/kernel", "g/recurrent_kernel", "g/bias"), found[:3], strict=True)),
        "r": list(zip(names, found[3:], strict=True)),
    }
    (got,) = run(old_file(tmp_path / "old.h5", layers, arrays), g_input=numbers(1, 5, 3, seed=9))
    model = keras.Sequential([keras.Input((5, 3)), L.GRU(4, return_sequences=True), L.Bidirectional(L.LSTM(2))])
    for weight, array in zip(model.weights, found, strict=True):
        weight.assign(array)
    np.testing.assert_allclose(got, keras.ops.convert_to_numpy(model(numbers(1, 5, 3, seed=9))), atol=1e-5)


def test_an_object_becomes_a_package_that_agrees_with_keras(tmp_path: Path) -> None:
    model = fill(
        keras.Sequential([keras.Input((8, 8, 3), name="x"), L.Conv2D(4, 3, activation="relu"), L.Flatten(), L.Dense(3, name="y")])
    )
    package = compile(model, output=tmp_path / "package")
    x = numbers(1, 8, 8, 3)
    np.testing.assert_allclose(package.run({"x": x})["y"], keras.ops.convert_to_numpy(model(x)), atol=1e-4)
    verdict = package.validate()
    assert verdict.ok
    assert verdict.reference == f"keras {keras.__version__} on torch"


def test_layers_of_the_users_own_go_by_the_backend(tmp_path: Path) -> None:
    class Mine(L.Layer):  # type: ignore[misc, name-defined]
        def call(self, x: Any) -> Any:
            return keras.ops.relu(x) * 2 + keras.ops.sum(x, axis=-1, keepdims=True)

    x = keras.Input((6,), name="x")
    model = fill(keras.Model(x, L.Dense(2)(Mine()(x))))
    package = compile(model, output=tmp_path / "package")
    given = numbers(1, 6)
    (got,) = package.run({package.manifest.inputs[0].name: given}).values()
    np.testing.assert_allclose(got, keras.ops.convert_to_numpy(model(given)), atol=1e-4)


@pytest.mark.slow
def test_a_model_with_masks_goes_by_the_backend(tmp_path: Path) -> None:
    layers = [L.Embedding(9, 4, mask_zero=True), L.LSTM(3)]
    model = fill(keras.Sequential([keras.Input((4,), dtype="int32"), *layers]))
    package = compile(model, output=tmp_path / "package")
    for ids in ([3, 0, 5, 0], [0, 0, 1, 2]):
        given = np.array([ids], np.int32)
        (got,) = package.run({package.manifest.inputs[0].name: given}).values()
        np.testing.assert_allclose(got, keras.ops.convert_to_numpy(model(given)), atol=1e-5)


def test_a_subclassed_model_asks_for_examples() -> None:
    class Own(keras.Model):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x + 1

    with pytest.raises(UserError) as caught:
        compile(Own())
    assert caught.value.slug == "no-example"


def test_a_saved_model_needs_tensorflow(tmp_path: Path, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intaglio.frontends.saved_model.find_spec", lambda name: None)
    (tmp_path / "saved_model.pb").write_bytes(b"")
    said = intaglio("compile", tmp_path, "-o", tmp_path / "out")
    assert said.code == 2
    assert "error[no-framework]" in said.err
    assert "pip install tensorflow" in said.err


def test_a_saved_model_goes_by_tflite(tmp_path: Path, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for TensorFlow: its converter gives a file that is there."""
    made = one_operator("RELU", [tensor((1, 4), "float32")], tensor((1, 4), "float32"))
    (tmp_path / "made.tflite").write_bytes(made)
    stand_in = tmp_path / "site" / "tensorflow"
    stand_in.mkdir(parents=True)
    (stand_in / "__init__.py").write_text(
        "class lite:\n class TFLiteConverter:\n"
        "  def from_saved_model(folder): return lite.TFLiteConverter()\n"
        f"  def convert(self): return open({str(tmp_path / 'made.tflite')!r}, 'rb').read()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"x")
    assert intaglio("check", folder).code == 0
    said = intaglio("compile", folder, "-o", tmp_path / "out")
    assert said.code == 0, said.err
    assert "TensorFlow has converted" in said.err


def test_keras_is_not_needed_to_read_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(keras.Sequential([keras.Input((3,)), L.Dense(2)])).save(tmp_path / "m.keras")
    for name in ("keras", "h5py", "torch"):
        monkeypatch.setitem(sys.modules, name, None)
    graph, _ = load(tmp_path / "m.keras", dims={}, shapes={})
    assert graph.outputs[0].shape == (1, 2)


def renamed(path: Path, name: Callable[[str], str]) -> Path:
    """The same file with other names for the groups of its weights: `name` gets the path above `vars`."""
    with zipfile.ZipFile(path) as archive:
        parts = {n: archive.read(n) for n in archive.namelist()}
    place = io.BytesIO()
    with h5py.File(io.BytesIO(parts["model.weights.h5"])) as before, h5py.File(place, "w") as after:

        def visit(here: str, item: Any) -> None:
            group, marked, number = here.rpartition("/vars/")
            if marked:
                after.require_group(name(group)).require_group("vars")[number] = item[()]

        before.visititems(visit)
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in parts.items():
            archive.writestr(member, place.getvalue() if member == "model.weights.h5" else data)
    return path


def twice(group: str) -> str:
    """As Keras 2.13 counts: layers with weights stand twice in its list."""
    older = group.replace("layers/", "_layer_checkpoint_dependencies/")
    return re.sub(r"(conv2d|dense|bidirectional)_(\d+)", lambda m: f"{m[1]}_{2 * int(m[2])}", older)


NAMES: dict[str, Callable[[str], str]] = {
    "2.12": lambda group: group.replace("layers/", "_layer_checkpoint_dependencies/"),
    "2.13": twice,
    "2.13 on Windows": lambda group: twice(group).replace("/", "\\"),
    "Windows": lambda group: group.replace("/", "\\"),
}


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_found_by_the_names_of_every_version(name: str, tmp_path: Path) -> None:
    inner = keras.Sequential([keras.Input((5,)), L.Dense(5), L.ReLU(), L.Dense(5)])
    layers = [L.Conv2D(3, 3), L.Conv2D(3, 3), L.ReLU(), L.Conv2D(5, 1), L.GlobalAveragePooling2D(), inner, L.Dense(5), L.Dense(4)]
    more = [L.Reshape((2, 2)), L.Bidirectional(L.LSTM(2, return_sequences=True)), L.Bidirectional(L.LSTM(2))]
    start = result = keras.Input((7, 7, 2), name="x")
    for layer in (*layers, *more):
        result = layer(result)
    model = fill(keras.Model(start, result))
    model.save(tmp_path / "m.keras")
    x = numbers(1, 7, 7, 2)
    (plain,) = run(tmp_path / "m.keras", x=x)
    (got,) = run(renamed(tmp_path / "m.keras", NAMES[name]), x=x)
    np.testing.assert_array_equal(got, plain)
    np.testing.assert_allclose(got, model.predict(x, verbose=0), atol=1e-5)
