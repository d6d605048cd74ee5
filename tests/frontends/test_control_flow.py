"""If, Loop, Scan and sequences: folded, unrolled or guarded; never silently wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array, Graph
from intaglio.ops.base import BadOperator
from intaglio.ops.control import AssertTrue
from intaglio.ops.evaluate import evaluate_graph
from support.onnx_models import BOOL, INT64, ints, model, node, saved, value


def imported(proto: Any, folder: Path, **options: Any) -> Graph:
    return load(saved(proto, folder), **options)[0]


def run(graph: Graph, *inputs: Array) -> Array:
    values = evaluate_graph(graph, {v.name: np.asarray(a) for v, a in zip(graph.inputs, inputs, strict=True)})
    return values[graph.outputs[0].name]


def branch(*nodes: Any) -> Any:
    return helper.make_graph(list(nodes), "branch", [], [value(nodes[-1].output[0], None)])


X = np.array([[-1, 4, -9, 16]], np.float32)
CHOICE = [value("x", [1, 4]), value("c", [], BOOL)]


def test_a_constant_condition_takes_its_branch(tmp_path: Path) -> None:
    one = node("If", "c", "y", then_branch=branch(node("Abs", "x", "a")), else_branch=branch(node("Neg", "x", "b")))
    graph = imported(model([one], constants={"c": np.array(False)}), tmp_path)
    assert [n.op.NAME for n in graph.nodes] == ["neg"]


def test_a_condition_on_shapes_folds(tmp_path: Path) -> None:
    nodes = [
        node("Size", "x", "n"), node("Equal", "n four", "c"),
        node("If", "c", "y", then_branch=branch(node("Abs", "x", "a")), else_branch=branch(node("Neg", "x", "b"))),
    ]  # fmt: skip
    graph = imported(model(nodes, constants={"four": np.array(4)}), tmp_path)
    assert [n.op.NAME for n in graph.nodes] == ["abs"]


def test_a_condition_that_is_data_guards_both_branches(tmp_path: Path) -> None:
    one = node("If", "c", "y", then_branch=branch(node("Abs", "x", "a")), else_branch=branch(node("Neg", "x", "b")))
    graph = imported(model([one], CHOICE), tmp_path)
    guards = {n.op.NAME: n.when.name for n in graph.nodes if n.when is not None}
    assert set(guards) == {"abs", "neg"}
    assert len(set(guards.values())) == 2
    assert run(graph, X, np.array(True)).tolist() == np.abs(X).tolist()
    assert run(graph, X, np.array(False)).tolist() == (-X).tolist()


@pytest.mark.parametrize("outer", [True, False])
@pytest.mark.parametrize("inner", [True, False])
def test_conditions_nest(outer: bool, inner: bool, tmp_path: Path) -> None:
    deep = node("If", "e", "t", then_branch=branch(node("Abs", "x", "a")), else_branch=branch(node("Neg", "x", "b")))
    flag = node("Not", "d", "e")
    one = node("If", "c", "y", then_branch=branch(flag, deep), else_branch=branch(node("Sqrt", "x", "r")))
    graph = imported(model([one], [*CHOICE, value("d", [], BOOL)]), tmp_path)
    expected = (np.abs(X) if not inner else -X) if outer else np.sqrt(X)
    np.testing.assert_array_equal(run(graph, X, np.array(outer), np.array(inner)), expected)


@pytest.mark.filterwarnings("ignore")
def test_a_branch_that_cannot_be_is_left_out_and_fails_when_taken(tmp_path: Path) -> None:
    wrong = branch(node("Reshape", "x s", "a"))
    one = node("If", "c", "y", then_branch=wrong, else_branch=branch(node("Neg", "x", "b")))
    graph, notes = load(saved(model([one], CHOICE, constants={"s": ints(3, 3)}), tmp_path))
    assert "then-branch" in notes[0]
    assert any(isinstance(n.op, AssertTrue) for n in graph.nodes)
    assert run(graph, X, np.array(False)).tolist() == (-X).tolist()
    with pytest.raises(BadOperator, match="left out"):
        run(graph, X, np.array(True))


def test_branches_of_different_shapes_keep_one(tmp_path: Path) -> None:
    one = node(
        "If", "c", "y", then_branch=branch(node("Squeeze", "x z", "a")), else_branch=branch(node("Neg", "x", "b"))
    )
    graph, notes = load(saved(model([one], CHOICE, constants={"z": ints(0)}), tmp_path))
    assert "different shapes" in notes[0]
    assert graph.outputs[0].shape == (4,)
    with pytest.raises(BadOperator, match="left out"):
        run(graph, X, np.array(False))


def loop_body(*nodes: Any, carried: str = "v", out: str = "w", extra: tuple[str, ...] = ()) -> Any:
    inputs = [value("i", [], INT64), value("go", [], BOOL), value(carried, None)]
    outputs = [value("on", [], BOOL), value(out, None), *[value(n, None) for n in extra]]
    return helper.make_graph(list(nodes), "body", inputs, outputs)


def test_a_loop_is_unrolled_and_its_results_stacked(tmp_path: Path) -> None:
    body = loop_body(
        node("Identity", "go", "on"), node("Add", "v x", "w"), node("Identity", "w", "row"), extra=("row",)
    )
    one = node("Loop", "m t x", "last y", body=body)
    graph = imported(model([one], constants={"m": np.array(3), "t": np.array(True)}), tmp_path)
    assert run(graph, X).tolist() == np.stack([2 * X, 3 * X, 4 * X]).tolist()


def test_a_loop_that_ends_by_data_stops_there(tmp_path: Path) -> None:
    body = loop_body(node("ReduceSum", "w", "s", keepdims=0), node("Less", "s", "on"), node("Add", "v x", "w"))
    body.node[1].input.append("limit")
    one = node("Loop", "m t x", "y", body=body)
    constants = {"m": np.array(10), "t": np.array(True), "limit": np.array(10, np.float32)}
    graph = imported(model([one], constants=constants), tmp_path)
    assert run(graph, np.ones((1, 4), np.float32)).tolist() == [[3, 3, 3, 3]]
    assert run(graph, np.full((1, 4), 5, np.float32)).tolist() == [[10, 10, 10, 10]]


def test_a_scan_walks_along_an_axis(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("Add", "h e", "n"), node("Identity", "n", "o")], "body",
        [value("h", [2]), value("e", [2])], [value("n", [2]), value("o", [2])],
    )  # fmt: skip
    one = node("Scan", "h0 x", "last y", body=body, num_scan_inputs=1)
    outputs = [value("y", None)]
    graph = imported(model([one], [value("x", [3, 2])], outputs, {"h0": np.zeros(2, np.float32)}), tmp_path)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert run(graph, x).tolist() == np.cumsum(x, axis=0).tolist()


def test_a_sequence_exists_only_during_the_import(tmp_path: Path) -> None:
    nodes = [
        node("SplitToSequence", "x", "s", axis=1), node("SequenceAt", "s two", "a"),
        node("SequenceInsert", "s a", "t"), node("ConcatFromSequence", "t", "y", axis=1),
    ]  # fmt: skip
    graph = imported(model(nodes, constants={"two": np.array(2)}), tmp_path)
    assert run(graph, X).tolist() == [[-1, 4, -9, 16, -9]]


@pytest.mark.parametrize("trips", [3, 100])
def test_a_body_may_declare_its_turn_as_a_list_of_one(trips: int, tmp_path: Path) -> None:
    """As older exporters do, which squeeze it."""
    steps = [node("Squeeze", "turn zero", "at"), node("Gather", "x at", "row"), node("Add", "sum row", "more"),
             node("Identity", "go", "again")]  # fmt: skip
    ins = [value("turn", [1], INT64), value("go", [], BOOL), value("sum", [4])]
    inner = helper.make_graph(steps, "body", ins, [value("again", [], BOOL), value("more", [4])])
    proto = model(
        [node("Loop", "trips yes start", "y", body=inner)], [value("x", [trips, 4])],
        constants={"trips": np.asarray(trips), "yes": np.asarray(True), "start": np.zeros(4, np.float32), "zero": ints(0)},
    )  # fmt: skip
    x = np.random.default_rng(0).standard_normal((trips, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    got = run(imported(proto, tmp_path), x)
    np.testing.assert_allclose(got, session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
