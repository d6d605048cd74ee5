"""Run by an interpreter that has TensorFlow, Keras and Intaglio: layers that look up words and numbers, compared with Keras on
TensorFlow. Prints a line per model."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"
NUMBERS = [[5, 9, 7, -3], [0, 5, 100, 9], [-1, -2, 7, 7]]
WORDS = [["b", "", "zz", "a"], ["\u00e4\u00f6", "a", "c", "cc"]]


def models() -> dict[str, tuple[Callable[[], Any], str]]:
    import keras

    L = keras.layers

    def of(kind: Any, width: int, **options: Any) -> Callable[[], Any]:
        dtype = "string" if kind is L.StringLookup and not options.get("invert") else "int64"
        keys = ["b", "\u00e4\u00f6", "a", "c"] if kind is L.StringLookup else [9, 5, 7]
        return lambda: keras.Sequential([keras.Input((width,), dtype=dtype, name="x"), kind(vocabulary=keys, **options)])

    def learnt() -> Any:
        words, numbers = L.StringLookup(), L.IntegerLookup(output_mode="one_hot", mask_token=0)
        words.adapt(["a", "b", "a", "cc"])
        numbers.adapt([4, 4, 7, 100, 100, 100])
        x, n = keras.Input((4,), dtype="string", name="x"), keras.Input((1,), dtype="int64", name="n")
        embedded = keras.Sequential([words, L.Embedding(words.vocabulary_size(), 3), L.Flatten()])(x)
        return keras.Model([x, n], L.Dense(2)(L.Concatenate()([embedded, numbers(n)])))

    numbers, words = L.IntegerLookup, L.StringLookup
    return {
        "numbers": (of(numbers, 4), "numbers"), "three for others": (of(numbers, 4, num_oov_indices=3), "numbers"),
        "a mask": (of(numbers, 4, mask_token=0), "numbers"),
        "a mask and two": (of(numbers, 4, mask_token=0, num_oov_indices=2), "numbers"),
        "several": (of(numbers, 4, output_mode="multi_hot"), "numbers"),
        "several with a mask": (of(numbers, 4, output_mode="multi_hot", mask_token=0, num_oov_indices=2), "numbers"),
        "counted": (of(numbers, 4, output_mode="count", pad_to_max_tokens=True, max_tokens=9), "numbers"),
        "one": (of(numbers, 4, output_mode="one_hot", mask_token=0), "numbers"), "back": (of(numbers, 4, invert=True), "numbers"),
        "back with a mask": (of(numbers, 4, invert=True, mask_token=0), "numbers"),
        "words": (of(words, 4), "words"), "words with a mask": (of(words, 4, mask_token=""), "words"),
        "words, one": (of(words, 4, mask_token="", output_mode="one_hot"), "words"),
        "words, several": (of(words, 4, output_mode="multi_hot"), "words"),
        "back to words": (of(words, 4, invert=True), "places"),
        "back to words with a mask": (of(words, 4, invert=True, mask_token=""), "places"), "learnt": (learnt, "both"),
    }  # fmt: skip


def main(folder: Path) -> None:
    import numpy as np
    import tensorflow as tf

    import intaglio
    from intaglio.frontends.keras import load
    from intaglio.ir.strings import decoded, encoded
    from intaglio.ops.evaluate import evaluate_graph

    places = [[0, 1, 2, 3], [4, 5, 6, -1]]
    for name, (make, data) in models().items():
        model = make()
        given: dict[str, list[Any]] = {"numbers": [NUMBERS], "words": [WORDS], "places": [places], "both": [WORDS, [[4], [0]]]}
        arrays = [np.array(rows) for rows in given[data]]
        want = np.asarray(model([tf.constant(a) for a in arrays] if len(arrays) > 1 else tf.constant(arrays[0])))
        for suffix in (".keras", *((".h5",) if name != "learnt" else ())):
            model.save(folder / f"m{suffix}")
            graph, _ = load(folder / f"m{suffix}", dims={"batch": len(arrays[0])}, shapes={})
            pairs = zip(graph.inputs, arrays, strict=True)
            feeds = {v.name: encoded(a, v.shape[-1]) if a.dtype.kind == "U" else a for v, a in pairs}
            (got,) = evaluate_graph(graph, feeds).values()
            if want.dtype.kind == "O":
                assert decoded(got).tolist() == [[word.decode() for word in row] for row in want], (name, got, want)
                continue
            assert got.shape == want.shape and got.dtype == want.dtype, (name, got, want)
            assert np.allclose(got, want, atol=1e-5), (name, got, want)
        print(f"{name} ok")
    package = intaglio.compile(folder / "m.keras", output=folder / "out", cflags="-O0")
    made = package.run({"x": np.array(WORDS[:1]), "n": np.array([[100]])})
    assert np.allclose(next(iter(made.values())), model([tf.constant(WORDS[:1]), tf.constant([[100]])]), atol=1e-5)
    checked = package.validate()
    assert checked.ok and "keras" in str(checked), checked
    print("package ok")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(sys.argv[1] if len(sys.argv) > 1 else place))
