"""Quantisation of models that find things: rounding may change how many, and layers behind work on what was found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import intaglio as api
from intaglio.errors import UserError
from intaglio.ir.graph import Array
from intaglio.quantize.difference import output_error, relative, side_by_side
from intaglio.quantize.statistics import run_where_there_is_room
from support.commands import Intaglio
from support.ir_text import graph_of
from support.onnx_models import BOOL, INT64, ints, model, node, saved, value

RANDOM = np.random.default_rng(5)
SAMPLES = {"x": RANDOM.standard_normal((2, 1, 3, 6, 6)).astype(np.float32)}
CONSTANTS: dict[str, Array] = {"w": RANDOM.standard_normal((4, 3, 1, 1)).astype(np.float32)}


def finder(folder: Path) -> Path:
    """A convolution and what is not zero in it: on a grid, more is."""
    nodes = [node("Conv", "x w", "c"), node("NonZero", "c", "found")]
    return saved(model(nodes, [value("x", [1, 3, "H", 6])], [value("found", None, INT64)], CONSTANTS), folder)


def detector(folder: Path) -> Path:
    """Layers in front of what finds, and behind it."""
    v = RANDOM.standard_normal((1, 8)).astype(np.float32)
    constants = {**CONSTANTS, "row": ints(-1), "zero": np.float32(0.5), "first": ints(0), "wide": ints(-1, 1), "v": v}
    nodes = [
        node("Conv", "x w", "c"), node("Reshape", "c row", "r"), node("Greater", "r zero", "g"), node("NonZero", "g", "found"),
        node("Squeeze", "found first", "s"), node("Gather", "r s", "chosen"), node("Reshape", "chosen wide", "column"),
        node("MatMul", "column v", "m"), node("Relu", "m", "y"),
    ]  # fmt: skip
    return saved(model(nodes, [value("x", [1, 3, "H", 6])], [value("y", None)], constants), folder)


@pytest.mark.parametrize("height", [6, (3, 6)])
def test_a_count_that_rounding_changes_is_no_obstacle(height: int | tuple[int, int], tmp_path: Path) -> None:
    package = api.compile(finder(tmp_path), dims={"H": height}, quantize="int8", calibrate=SAMPLES)
    x = SAMPLES["x"][0]
    assert package.run({"x": x})["found"].shape[1] != 4 * 36, "the case is too tame to show anything"
    assert package.validate().ok


@pytest.mark.parametrize("height", [6, (3, 6)])
def test_layers_behind_what_was_found_are_quantised(height: int | tuple[int, int], tmp_path: Path) -> None:
    package = api.compile(detector(tmp_path), dims={"H": height}, quantize="int8", calibrate=SAMPLES)
    assert {"qconv", "qmatmul"} <= {layer.op for layer in package.manifest.layers}
    assert package.validate().ok


def test_integers_that_find_more_than_there_is_room_for_are_wrong_and_no_obstacle() -> None:
    graph = graph_of("""
        size n = 0..1 of count
        input x: f32[4]
        y: i64[1,n<=1], count: i64[] = nonzero(x, count={n})
        output y
    """)
    runs = run_where_there_is_room(graph, [{"x": np.asarray(x, np.float32)} for x in ([0, 1, 0, 0], [1, 1, 0, 0])])
    few, many = runs
    assert few is not None and few["y"].shape == (1, 1) and many is None


def test_what_only_one_side_found_is_wrong_by_all_of_it() -> None:
    want, got = np.asarray([[3.0, 4.0], [1.0, 2.0]]), np.asarray([[3.0, 4.0]])
    a, b = side_by_side(want, got)
    assert np.array_equal(a, want) and np.array_equal(b, [[3, 4], [0, 0]])
    assert relative(want, got) == pytest.approx(np.sqrt(5 / 30)) and relative(got, want) == pytest.approx(np.sqrt(5 / 25))
    assert relative(want, np.zeros((0, 2))) == 1.0 and relative(np.zeros((0, 2)), np.zeros((0, 2))) == 0.0
    error = output_error("y", [(want, got), (want, want)])
    assert error.relative == pytest.approx(np.sqrt(5 / 60)) and error.largest == 2.0


def turning(folder: Path) -> Path:
    """A convolution, then products until their sum is large, then another product."""
    go = helper.make_tensor_value_info("again", onnx.TensorProto.BOOL, [])
    inside = [node("MatMul", "h u", "p"), node("Add", "p h", "after"), node("ReduceSum", "after", "sum", keepdims=0)]
    inside += [node("Abs", "sum", "size"), node("Less", "size limit", "again")]
    body = helper.make_graph(
        inside, "turn", [value("i", [], INT64), helper.make_tensor_value_info("go", BOOL, []), value("h", [1, 16])],
        [go, value("after", [1, 16])],
    )  # fmt: skip
    nodes = [
        node("Conv", "x w", "c"), node("Relu", "c", "r"), node("ReduceMean", "r", "m", axes=[2, 3], keepdims=0),
        node("MatMul", "m wide", "start"), node("Loop", "most yes start", "end", body=body, name="turns"),
        node("MatMul", "end v", "y"),
    ]  # fmt: skip
    random = np.random.default_rng(2)
    products = {"u": np.abs(random.standard_normal((16, 16))) / 16, "v": random.standard_normal((16, 4)), "wide": np.ones((4, 16))}
    constants: dict[str, Array] = {name: array.astype(np.float32) for name, array in products.items()} | CONSTANTS
    constants |= {"limit": np.asarray(500, np.float32), "most": np.asarray(100), "yes": np.asarray(True)}
    return saved(model(nodes, [value("x", [1, 3, 6, 6])], [value("y", None)], constants, opset=13), folder)


def test_layers_around_a_loop_are_quantised_and_those_inside_stay_floats(tmp_path: Path, intaglio: Intaglio) -> None:
    np.savez(tmp_path / "x.npz", x=SAMPLES["x"])
    said = intaglio("compile", turning(tmp_path), "--quantize", "int8", "--calibrate", tmp_path / "x.npz", "-o", tmp_path / "p")
    assert said.code == 0, said.err
    assert "in the loop `turns` stay in floating point" in " ".join((said.out + said.err).split())
    ops = [layer["op"] for layer in json.loads((tmp_path / "p" / "manifest.json").read_text())["layers"]]
    start, end = ops.index("loop_start"), ops.index("loop_end")
    assert "qconv" in ops[:start] and "matmul" in ops[start:end] and "qmatmul" in ops[end:]
    assert not any(op.startswith("q") for op in ops[start:end])
    assert intaglio("validate", tmp_path / "p").code == 0


def test_a_loop_that_does_not_end_with_the_data_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intaglio.quantize.statistics._SECONDS", -1.0)
    with pytest.raises(UserError, match="the model does not take the calibration data: a loop has not ended"):
        api.compile(turning(tmp_path), quantize="int8", calibrate=SAMPLES)
