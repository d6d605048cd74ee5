"""Random operators of TFLite: numbers of our own generator, as distributed, or inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intaglio.errors import UserError
from intaglio.frontends.reading import read_source
from intaglio.frontends.tflite import load
from intaglio.ir.graph import Array, Graph
from intaglio.ops.evaluate import evaluate_graph
from intaglio.ops.random import RUN_STATE
from support.tflite_models import Tensor, one_operator

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
SIZE = 4000


def random(op: str, seed: int = 0) -> bytes:
    shape = Tensor((2,), "int32", data=np.asarray([2, SIZE], np.int32))
    return one_operator(op, [shape], Tensor((2, SIZE), "float32"), "RandomOptions", {"seed": seed, "seed2": 0}, 1)


def multinomial() -> bytes:
    count = Tensor((), "int32", data=np.asarray(SIZE, np.int32))
    given = [Tensor((2, 3), "float32"), count]
    return one_operator("MULTINOMIAL", given, Tensor((2, SIZE), "int64"), "RandomOptions", {"seed": 5, "seed2": 1}, 1)


def graph_of(data: bytes, folder: Path, random: str = "0") -> Graph:
    (folder / "m.tflite").write_bytes(data)
    return load(folder / "m.tflite", dims={}, shapes={}, random=random)[0]


def drawn(graph: Graph, run: int = 0, **given: Array) -> Array:
    feeds = {graph.inputs[n].name: array for n, array in enumerate(given.values())}
    values = evaluate_graph(graph, {**feeds, RUN_STATE: np.asarray([run], np.uint32)}, keep=True)
    assert values[graph.states[0].output.name].tolist() == [run + 1]
    return values[graph.outputs[0].name]


@pytest.mark.parametrize(("op", "mean", "deviation"), [("RANDOM_UNIFORM", 0.5, 12**-0.5), ("RANDOM_STANDARD_NORMAL", 0.0, 1.0)])
def test_numbers_are_distributed_as_the_operator_says(op: str, mean: float, deviation: float, tmp_path: Path) -> None:
    graph = graph_of(random(op), tmp_path)
    first, again, next_ = drawn(graph), drawn(graph), drawn(graph, 1)
    assert abs(first.mean() - mean) < 0.03 and abs(first.std() - deviation) < 0.03
    assert np.array_equal(first, again) and not np.array_equal(first, next_)
    assert not np.array_equal(drawn(graph_of(random(op, 7), tmp_path)), first)
    assert not np.array_equal(drawn(graph_of(random(op), tmp_path, "3")), first)


def test_classes_come_as_often_as_their_probability_says(tmp_path: Path) -> None:
    chances = np.asarray([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5]], np.float32)
    classes = drawn(graph_of(multinomial(), tmp_path), logits=np.log(np.maximum(chances, 1e-30)))
    found = [[float((row == c).mean()) for c in range(3)] for row in classes]
    assert np.allclose(found, chances, atol=0.03)


@pytest.mark.parametrize("data", [random("RANDOM_STANDARD_NORMAL"), multinomial()], ids=["normal", "multinomial"])
def test_numbers_can_be_an_input(data: bytes, tmp_path: Path) -> None:
    graph = graph_of(data, tmp_path, "input")
    assert not graph.states and graph.inputs[-1].name == "out" and graph.inputs[-1].shape == (2, SIZE)


def test_other_front_ends_have_no_random_operators(tmp_path: Path) -> None:
    (tmp_path / "m.keras").write_bytes(b"PK\x03\x04")
    with pytest.raises(UserError, match="for ONNX, PyTorch and TFLite"):
        read_source(tmp_path / "m.keras", {}, {}, None, {}, lambda _: None, random="input")
