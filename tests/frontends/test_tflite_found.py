"""UNIQUE and WHERE: results whose number depends on data, with room for the most."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import intaglio
from intaglio.frontends.tflite import load
from support.tflite_models import Tensor, all_by_litert, one_operator

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")


def unique(dtype: str, index: str) -> bytes:
    outs = [Tensor((6,), dtype, signature=(-1,)), Tensor((6,), index)]
    fields: dict[str, object] = {"idxOutType": {"int32": 2, "int64": 4}[index]}
    return one_operator("UNIQUE", [Tensor((6,), dtype)], outs, "UniqueOptions", fields, 1)


@pytest.mark.parametrize(("dtype", "index"), [("int32", "int32"), ("float32", "int64")])
def test_unique_is_that_of_litert(dtype: str, index: str, tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    path.write_bytes(unique(dtype, index))
    graph, _ = load(path, dims={}, shapes={})
    assert list(graph.counts) == ["unique"] and [v.name for v in graph.outputs] == ["out", "out1"]
    package = intaglio.compile(path, output=tmp_path / "p")
    for numbers in ([3, 1, 3, 2, 1, 3], [5, 5, 5, 5, 5, 5], [6, 5, 4, 3, 2, 1]):
        x = np.asarray(numbers, dtype)
        made, wanted = package.run({"in0": x}), all_by_litert(path, [[x]])[0]
        assert all(np.array_equal(got, want) for got, want in zip(made.values(), wanted, strict=True))
    assert package.validate().ok


@pytest.mark.parametrize(("dtype", "shape"), [("bool", (6,)), ("float32", (2, 3))])
def test_the_places_of_what_is_true_are_those_of_litert(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "m.tflite"
    out = Tensor((6, len(shape)), "int64", signature=(-1, len(shape)))
    path.write_bytes(one_operator("WHERE", [Tensor(shape, dtype)], out, version=1))
    package = intaglio.compile(path, output=tmp_path / "p")
    for numbers in ([1, 0, 0, 1, 0, 1], [1] * 6):
        x = np.asarray(numbers, dtype).reshape(shape)
        (made,), (wanted,) = package.run({"in0": x}).values(), all_by_litert(path, [[x]])[0]
        assert made.shape == wanted.shape and np.array_equal(made, wanted)
    (none,) = package.run({"in0": np.zeros(shape, dtype)}).values()  # LiteRT has no such tensor
    assert none.shape == (0, len(shape))
    assert package.validate().ok
