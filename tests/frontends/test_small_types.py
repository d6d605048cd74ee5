"""Types smaller than a byte, and floats of one: stored in bytes, cast and quantised, and never taken for whole numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from intaglio.errors import ModelError
from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph
from intaglio.ops.small import FORMATS
from support.onnx_models import FLOAT, ints, model, node, saved, value

E4M3, E5M2, UINT4, INT4, INT2 = 17, 19, 21, 22, 26
X = np.array([[-9.0, -0.3, 0.06, 500.0, 2.25, 1.0]], np.float32)


def run(folder: Path, nodes: list[object], kind: int, **constants: Array) -> Array:
    inputs, outputs = [value("x", [1, 6])], [value("y", None, kind)]
    graph, _ = load(saved(model(nodes, inputs, outputs, constants, opset=23), folder))
    return evaluate_graph(graph, {"x": X})["y"]


def test_floats_of_a_byte_there_and_back(tmp_path: Path) -> None:
    there = [node("Cast", "x", "a", to=E4M3), node("Reshape", "a shape", "b"), node("Cast", "b", "y", to=FLOAT)]
    got = run(tmp_path, there, FLOAT, shape=ints(6, 1))
    assert got.reshape(-1).tolist() == [-9.0, -0.3125, 0.0625 - 0.00390625, 448.0, 2.25, 1.0] and got.shape == (6, 1)


def test_codes_are_the_output(tmp_path: Path) -> None:
    codes = run(tmp_path, [node("Cast", "x", "y", to=E5M2)], E5M2)
    assert codes.dtype == np.uint8 and FORMATS["f8e5m2"].table()[codes].tolist() == [[-8.0, -0.3125, 0.0625, 512.0, 2.0, 1.0]]


@pytest.mark.parametrize(("kind", "want"), [(INT4, [7, 0, 0, 4, 2, 1]), (UINT4, [7, 0, 0, 4, 2, 1]), (INT2, [-1, 0, 0, 0, -2, 1])])
def test_few_bits_wrap(kind: int, want: list[int], tmp_path: Path) -> None:
    assert run(tmp_path, [node("Cast", "x", "y", to=kind)], kind).tolist() == [want]


def test_quantised_to_codes_and_back(tmp_path: Path) -> None:
    nodes = [node("QuantizeLinear", "x scale", "q", output_dtype=E4M3), node("DequantizeLinear", "q scale", "y")]
    got = run(tmp_path, nodes, FLOAT, scale=np.asarray(2.0, np.float32))
    assert got.tolist() == [[-9.0, -0.3125, 0.0625 - 0.00390625, 512.0, 2.25, 1.0]]


def test_codes_are_not_numbers(tmp_path: Path) -> None:
    path = saved(model([node("Cast", "x", "a", to=E4M3), node("Add", "a a", "y")], [value("x", [1, 6])]), tmp_path)
    with pytest.raises(ModelError, match="`Add` of FLOAT8E4M3FN is not supported") as caught:
        load(path)
    assert caught.value.slug == "unsupported-type" and "cast it to float" in caught.value.hint
