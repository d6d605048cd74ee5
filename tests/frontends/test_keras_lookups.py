"""Words and numbers that are looked up, by layers that Keras has with TensorFlow alone: compared with Keras in an environment of
its own (`support/keras_lookups.py`), and here by files that are written without it."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio.errors import ModelError
from intaglio.frontends.keras import load
from intaglio.ir.graph import Array
from intaglio.ir.strings import decoded, encoded
from intaglio.ops.evaluate import evaluate_graph
from support.keras_models import keras
from support.own_environment import ROOT, environment, ran

NUMBERS = np.array([[5, 9, 7, -3], [0, 5, 100, 9], [-1, -2, 7, 7]])
WORDS = np.array([["b", "", "zz", "a"], ["äö", "a", "c", "cc"]])
PLACES = np.array([[0, 1, 2, 3], [4, 5, 6, -1]])
Changes = dict[str, Any]


def written(folder: Path, kind: str, options: Changes, text: str = "") -> Path:
    """A model of one layer, as Keras writes it."""
    L = keras.layers
    keras.Sequential([keras.Input((4,), dtype="int64", name="x"), L.Identity(name="lookup")]).save(folder / "plain.keras")
    strings = kind == "StringLookup"
    with zipfile.ZipFile(folder / "plain.keras") as archive, zipfile.ZipFile(folder / "m.keras", "w") as out:
        for name in archive.namelist():
            data = archive.read(name)
            if name == "config.json":
                model = json.loads(data)
                entry, layer = model["config"]["layers"]
                entry["config"]["dtype"] = "string" if strings and not options.get("invert") else "int64"
                usual = {"oov_token": "[UNK]" if strings else -1, "mask_token": None, "num_oov_indices": 1, "output_mode": "int"}
                layer["class_name"], layer["module"] = kind, "keras.layers"
                layer["config"] = {"name": "lookup", "trainable": True, "dtype": "float32", **usual, **options}
                data = json.dumps(model).encode()
            out.writestr(name, data)
        if text:
            out.writestr(f"assets/layers/{'string' if strings else 'integer'}_lookup/vocabulary.txt", text)
    return folder / "m.keras"


def computed(path: Path, x: Array) -> Array:
    graph, _ = load(path, dims={"batch": len(x)}, shapes={})
    given = encoded(x, graph.inputs[0].shape[-1]) if x.dtype.kind == "U" else x
    (made,) = evaluate_graph(graph, {graph.inputs[0].name: given}).values()
    return made


I3: Changes = {"vocabulary": [9, 5, 7]}
CASES: dict[str, tuple[Changes, list[Any]]] = {  # what Keras 3.15 on TensorFlow gives
    "plain": (I3, [[2, 1, 3, 0], [0, 2, 0, 1], [0, 0, 3, 3]]),
    "three for others": (I3 | {"num_oov_indices": 3}, [[4, 3, 5, 0], [0, 4, 1, 3], [2, 1, 5, 5]]),
    "a mask": (I3 | {"mask_token": 0}, [[3, 2, 4, 1], [0, 3, 1, 2], [1, 1, 4, 4]]),
    "several": (
        I3 | {"output_mode": "multi_hot", "mask_token": 0, "num_oov_indices": 2},
        [[0, 1, 1, 1, 1], [1, 0, 1, 1, 0], [1, 1, 0, 0, 1]],
    ),
    "counted": (
        I3 | {"output_mode": "count", "pad_to_max_tokens": True, "max_tokens": 6},
        [[1, 1, 1, 1, 0, 0], [2, 1, 1, 0, 0, 0], [2, 0, 0, 2, 0, 0]],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_numbers(name: str, tmp_path: Path) -> None:
    options, want = CASES[name]
    made = computed(written(tmp_path, "IntegerLookup", options), NUMBERS)
    assert made.dtype == np.int64
    assert made.tolist() == want


def test_numbers_of_places(tmp_path: Path) -> None:
    made = computed(written(tmp_path, "IntegerLookup", I3 | {"invert": True, "mask_token": 0}), PLACES)
    assert made.tolist() == [[0, -1, 9, 5], [7, -1, -1, -1]]


def test_words(tmp_path: Path) -> None:
    keys = {"vocabulary": ["b", "äö", "a", "c"]}
    assert computed(written(tmp_path, "StringLookup", keys), WORDS).tolist() == [[1, 0, 0, 3], [2, 3, 4, 0]]
    masked = keys | {"mask_token": ""}
    assert computed(written(tmp_path, "StringLookup", masked), WORDS).tolist() == [[2, 0, 1, 4], [3, 4, 5, 1]]
    words = decoded(computed(written(tmp_path, "StringLookup", keys | {"invert": True}), PLACES))
    assert words.tolist() == [["[UNK]", "b", "äö", "a"], ["c", "[UNK]", "[UNK]", "[UNK]"]]


@pytest.mark.parametrize(("kind", "text"), [("IntegerLookup", "-1\n9\n5\n7"), ("StringLookup", "[UNK]\nb\na\n\u00e4\u00f6")])
def test_what_was_learnt_is_in_a_file(kind: str, text: str, tmp_path: Path) -> None:
    made = computed(written(tmp_path, kind, {"vocabulary": None}, text), NUMBERS if kind == "IntegerLookup" else WORDS)
    assert made[0].tolist() == ([2, 1, 3, 0] if kind == "IntegerLookup" else [1, 0, 0, 2])


@pytest.mark.parametrize(
    ("kind", "options", "text", "reason"),
    [
        ("IntegerLookup", {"vocabulary": None}, "", "it has no vocabulary"),
        ("IntegerLookup", {"vocabulary": None}, "9\nx", "holds something else"),
        ("IntegerLookup", {"vocabulary": ["a"]}, "", "holds more than whole numbers"),
        ("IntegerLookup", I3 | {"num_oov_indices": -1}, "", "`num_oov_indices` is -1"),
        ("IntegerLookup", I3 | {"output_mode": "tf_idf"}, "", "`output_mode` is"),
        ("IntegerLookup", I3 | {"num_oov_indices": 2, "oov_method": "farmhash"}, "", "need a hash"),
        ("StringLookup", {"vocabulary": ["a"], "num_oov_indices": 2}, "", "need a hash"),
        ("Flatten", {}, "", ""),
    ],
)
def test_a_refusal_says_why(kind: str, options: Changes, text: str, reason: str, tmp_path: Path) -> None:
    if kind == "Flatten":
        path, reason = written(tmp_path, "StringLookup", {"vocabulary": ["a"]}), "it takes strings, which only `StringLookup` does"
        with zipfile.ZipFile(path) as archive:
            content = {name: archive.read(name).replace(b'"StringLookup"', b'"Flatten"') for name in archive.namelist()}
        with zipfile.ZipFile(path, "w") as out:
            for name, data in content.items():
                out.writestr(name, data)
    else:
        path = written(tmp_path, kind, options, text)
    with pytest.raises(ModelError, match=reason):
        load(path, dims={}, shapes={})


@pytest.mark.slow
def test_keras_on_tensorflow_agrees() -> None:
    done = ran(environment("tensorflow", "tensorflow-cpu"), ROOT / "tests" / "support" / "keras_lookups.py")
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[:-1][-2:] == ["learnt ok", "package ok"]
