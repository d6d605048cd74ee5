"""Masks of `Embedding(mask_zero=True)` and `Masking` in attention and softmax, as the Keras that wrote the file has them."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from intaglio.errors import ModelError
from intaglio.frontends.keras import accepted, load
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph
from support.keras_models import assert_like_keras, fill, keras

L: Any = keras.layers
Input, Model = keras.Input, keras.Model
if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 10):
    pytest.skip("the masks of Keras 3.10 and newer are compared", allow_module_level=True)


def words(steps: int = 6, name: str = "words") -> tuple[Any, Any]:
    given = Input((steps,), dtype="int32", name=name)
    return given, L.Embedding(7, 8, mask_zero=True)(given)


def built(make: Callable[[Any], Any], steps: int = 6) -> Any:
    given, x = words(steps)
    return fill(Model(given, make(x)))


def two(make: Callable[[Any, Any], Any]) -> Any:
    """Of a sequence and another one of another length."""
    (a, x), (b, y) = words(), words(5, "memory")
    return fill(Model([a, b], make(x, y)))


def block(x: Any, before: bool, **options: Any) -> Any:
    """Of a transformer, with the normalisation before or behind attention."""
    y = L.LayerNormalization()(x) if before else x
    x = L.Add()([x, L.Dropout(0.1)(L.MultiHeadAttention(2, 4, **options)(y, y))])
    return x if before else L.LayerNormalization()(x)


def softmax_with_mask() -> Any:
    x, mask = Input((4, 6), name="x"), Input((4, 6), dtype="bool", name="mask")
    return Model([x, mask], L.Softmax()(x, mask))


def scores_with_mask(**options: Any) -> Any:
    x, mask = Input((6, 8), name="x"), Input((6, 6), dtype="bool", name="mask")
    made = L.MultiHeadAttention(2, 4, **options)(L.Masking()(x), x, attention_mask=mask, return_attention_scores=True)
    return fill(Model([x, mask], made))


def with_masks() -> Any:
    x, a, b = Input((6, 8), name="x"), Input((6,), dtype="bool", name="a"), Input((6,), dtype="bool", name="b")
    return fill(Model([x, a, b], L.MultiHeadAttention(2, 4)(x, x, query_mask=a, value_mask=b)))


MODELS: dict[str, Callable[[], Any]] = {
    "self": lambda: built(lambda x: L.MultiHeadAttention(2, 4)(x, x)),
    "key": lambda: two(lambda x, y: L.MultiHeadAttention(2, 4)(x, y, y)),
    "other key": lambda: two(lambda x, y: L.MultiHeadAttention(2, 4)(x, y, L.Dense(8)(y))),
    "by name": lambda: two(lambda x, y: L.MultiHeadAttention(2, 4)(query=x, value=y)),
    "causal": lambda: built(lambda x: L.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)),
    "window": lambda: built(lambda x: L.MultiHeadAttention(2, 4, sliding_window=2)(x, x)),
    "with dropout": lambda: built(lambda x: L.MultiHeadAttention(2, 4, dropout=0.1)(x, x, use_causal_mask=True)),
    "with scores": scores_with_mask,
    "groups": lambda: two(lambda x, y: L.GroupQueryAttention(4, 4, 2)(x, y)),
    "groups, causal": lambda: built(lambda x: L.GroupQueryAttention(4, 4, 2)(x, x, use_causal_mask=True)),
    "then mean": lambda: built(lambda x: L.GlobalAveragePooling1D()(L.MultiHeadAttention(2, 4)(x, x))),
    "then lstm": lambda: built(lambda x: L.LSTM(4)(L.MultiHeadAttention(2, 4)(x, x))),
    "dot": lambda: two(lambda x, y: L.Attention()([x, y])),
    "dot, causal": lambda: built(lambda x: L.Attention(use_scale=True)([x, x], use_causal_mask=True)),
    "additive": lambda: two(lambda x, y: L.AdditiveAttention()([x, y])),
    "one given": lambda: two(lambda x, y: L.Attention()([x, y], mask=[None, y._keras_mask])),
    "attention, then mean": lambda: built(lambda x: L.GlobalAveragePooling1D()(L.Attention()([x, x]))),
    "softmax": softmax_with_mask,
    "blocks before": lambda: built(lambda x: L.GlobalAveragePooling1D()(block(block(x, True), True))),
    "blocks behind": lambda: built(lambda x: L.GlobalAveragePooling1D()(block(block(x, False), False))),
    "blocks of softmax": lambda: built(lambda x: block(block(x, False, dropout=0.1), False, dropout=0.1)),
    "decoder": lambda: two(lambda x, y: (a := L.MultiHeadAttention(2, 4), L.MultiHeadAttention(2, 4)(a(x, y), y))[1]),
    "a query mask, which is ignored": with_masks,
    "sum": lambda: two(lambda x, y: L.GlobalAveragePooling1D()(L.Concatenate(axis=1)([x, y]))),
    "side by side": lambda: built(lambda x: L.GlobalAveragePooling1D()(L.Concatenate()([x, L.Dense(3)(x)]))),
}


@pytest.mark.parametrize("kind", list(MODELS))
def test_masks_are_those_of_keras(kind: str, tmp_path: Path) -> None:
    assert_like_keras(MODELS[kind](), tmp_path, (".keras",))


def rewritten(path: Path, version: str) -> Path:
    """A file as if an older Keras had written it."""
    target = path.with_name(f"{version}.keras")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            new.writestr(name, json.dumps({**json.loads(data), "keras_version": version}) if name == "metadata.json" else data)
    return target


def results(path: Path, given: Array) -> Array:
    graph, _ = load(path, dims={}, shapes={})
    (made,) = (evaluate_graph(graph, {graph.inputs[0].name: given})[v.name] for v in graph.outputs)
    return made


def test_in_older_files_a_second_block_has_a_mask_too(tmp_path: Path) -> None:
    """Until 3.7, attention left the masks on its inputs. Words behind the end change nothing then."""
    built(lambda x: block(block(x, False), False)[:, :3]).save(tmp_path / "m.keras")
    before = rewritten(tmp_path / "m.keras", "3.7.0")
    given = np.array([[3, 1, 5, 0, 0, 0]], np.int32)
    whole, older = results(tmp_path / "m.keras", given), results(before, given)
    assert np.abs(whole - older).max() > 1e-3
    short = built(lambda x: block(block(x, False), False), 3)
    wanted = keras.ops.convert_to_numpy(short(given[:, :3]))
    assert np.allclose(older, wanted, atol=1e-5)
    assert not accepted(tmp_path / "m.keras", {}).differences
    (told,) = accepted(before, {}).differences
    assert "Keras 3.7.0, which wrote the file: attention leaves masks" in told


def test_a_mask_that_depends_on_an_order_is_refused(tmp_path: Path) -> None:
    model = built(lambda x: L.Add()([L.MultiHeadAttention(2, 4)(x, x), L.MultiHeadAttention(2, 4)(x, x)]))
    model.save(tmp_path / "m.keras")
    with pytest.raises(ModelError, match="depends on the version of Keras, or on an order") as caught:
        load(tmp_path / "m.keras", dims={}, shapes={})
    assert "attention_mask" in caught.value.hint
