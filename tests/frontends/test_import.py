"""What the ONNX front end makes of small models: names, outputs, pinned shapes, folding."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from intaglio.frontends.onnx import load
from intaglio.frontends.onnx.names import Names, identifier
from intaglio.ir.graph import Array, Graph
from intaglio.ops.control import Copy
from intaglio.ops.evaluate import evaluate_graph
from support.onnx_models import INT64, ints, model, node, onnx, saved, value


def imported(proto: Any, folder: Path, **options: Any) -> Graph:
    return load(saved(proto, folder), **options)[0]


def run(graph: Graph, *inputs: Array) -> list[Array]:
    values = evaluate_graph(graph, {v.name: a for v, a in zip(graph.inputs, inputs, strict=True)})
    return [values[v.name] for v in graph.outputs]


HOSTILE = [
    "*/ int f(void){} /*", "a\nb", "end\\", "??/", '"quoted"', "%s", "float", "main", "log", "NULL", "errno", "",
    "x" * 1_000_000, "nul\0", "\u202eright", "3d", "../../etc", "_Reserved", "__x", "kernel",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_becomes_a_short_clean_identifier(name: str) -> None:
    clean = identifier(name)
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", clean)
    assert len(clean) <= 48
    assert clean.lower() not in {"float", "main", "log", "null", "errno", "kernel"}


def test_names_that_collide_after_cleaning_or_without_case_stay_apart() -> None:
    names = Names()
    taken = [names.take(n) for n in ("a.b", "a_b", "A_B", "a/b", "a_b_1", "log", "LOG")]
    assert len({n.lower() for n in taken}) == len(taken)


def test_the_raw_names_are_kept_for_people(tmp_path: Path) -> None:
    proto = model([node("Relu", "in:0", "out:0")], [value("in:0", [2])], [value("out:0", None)])
    graph = imported(proto, tmp_path)
    assert (graph.inputs[0].name, graph.inputs[0].origin) == ("in_0", "in:0")
    assert (graph.outputs[0].name, graph.output_names) == ("out_0", ["out:0"])
    assert graph.nodes[0].source == "Relu_0"


def test_an_output_that_is_an_input_or_appears_twice_is_copied(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "r")], outputs=[value("x", [1, 4]), value("r", None), value("r", None)])
    graph = imported(proto, tmp_path)
    assert len(set(graph.outputs)) == 3
    assert not set(graph.outputs) & set(graph.inputs)
    assert sum(isinstance(n.op, Copy) for n in graph.nodes) == 2
    x = np.array([[-1, 2, -3, 4]], np.float32)
    assert [a.tolist() for a in run(graph, x)] == [x.tolist(), [[0, 2, 0, 4]], [[0, 2, 0, 4]]]


def test_a_constant_output_is_a_copy_of_a_constant(tmp_path: Path) -> None:
    graph = imported(model([node("Shape", "x", "y")], outputs=[value("y", [2], INT64)]), tmp_path)
    assert run(graph, np.zeros((1, 4), np.float32))[0].tolist() == [1, 4]


def test_unused_inputs_stay_and_initializers_are_no_inputs(tmp_path: Path) -> None:
    inputs = [value("unused", [3]), value("x", [1, 4]), value("c", [4])]
    proto = model([node("Add", "x c", "y")], inputs, constants={"c": np.ones(4, np.float32)})
    assert [v.origin for v in imported(proto, tmp_path).inputs] == ["unused", "x"]


def test_a_batch_dimension_is_one_and_says_so(tmp_path: Path) -> None:
    proto = model([node("Add", "x z", "y")], [value("x", ["N", 4]), value("z", [3, "N", 4])])
    graph, notes = load(saved(proto, tmp_path))
    assert [v.shape for v in graph.inputs] == [(1, 4), (3, 1, 4)]
    assert notes == ["the batch dimension `N` of input `x` is set to 1"]


def test_dimensions_are_pinned_by_name_and_by_shape(tmp_path: Path) -> None:
    proto = model([node("Add", "x z", "y")], [value("x", ["N", "T"]), value("z", ["T"])])
    assert imported(proto, tmp_path, dims={"N": 2, "T": 5}).outputs[0].shape == (2, 5)
    assert imported(proto, tmp_path, shapes={"in0": (3, 7)}).outputs[0].shape == (3, 7)


def test_shape_arithmetic_folds_away(tmp_path: Path) -> None:
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s i", "n"), node("Mul", "n two", "m"),
        node("Concat", "m minus", "t", axis=0), node("Reshape", "x t", "y"),
    ]  # fmt: skip
    constants = {"i": ints(0), "two": ints(2), "minus": ints(-1)}
    graph = imported(model(nodes, [value("x", [3, 8])], constants=constants), tmp_path)
    assert [n.op.NAME for n in graph.nodes] == ["reshape"]
    assert graph.outputs[0].shape == (6, 4)


def test_an_input_fixed_to_a_value_decides_shapes(tmp_path: Path) -> None:
    proto = model([node("Reshape", "x s", "y")], [value("x", [1, 4]), value("s", [2], INT64)])
    graph = imported(proto, tmp_path, constants={"s": ints(2, 2)})
    assert ([v.origin for v in graph.inputs], graph.outputs[0].shape) == (["x"], (2, 2))


def test_a_state_pairs_an_input_with_an_output(tmp_path: Path) -> None:
    proto = model([node("Add", "x h", "y")], [value("x", [2]), value("h", [2])])
    graph = imported(proto, tmp_path, states=[("h", "y")])
    assert [(s.input.origin, s.output.origin) for s in graph.states] == [("h", "y")]


def test_a_local_function_is_inlined_with_its_attributes(tmp_path: Path) -> None:
    make, opsets = onnx.helper, [onnx.helper.make_opsetid("", 21)]
    inner = make.make_node("LeakyRelu", ["a"], ["b"])
    inner.attribute.append(onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope"))
    function = make.make_function("own", "Leak", ["a"], ["b"], [inner], opsets, ["slope"])
    call = make.make_node("Leak", ["x"], ["y"], domain="own", slope=0.5)
    proto = model([call], functions=[function], opsets=[make.make_opsetid("own", 1)])
    x = np.array([[-2, -4, 2, 4]], np.float32)
    assert run(imported(proto, tmp_path), x)[0].tolist() == [[-1, -2, 2, 4]]


@pytest.mark.slow
def test_a_hundred_thousand_dead_nodes_are_passed_over_quickly(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", f"d{i}") for i in range(100_000)]
    path = saved(model([*nodes, node("Relu", "x", "y")]), tmp_path)
    start = time.process_time()
    graph, _ = load(path)
    assert len(graph.nodes) == 1
    assert time.process_time() - start < 5


def test_of_an_opset_that_is_declared_twice_the_last_counts(tmp_path: Path) -> None:
    proto = model([node("Relu", "x", "y")])
    proto.opset_import.insert(0, onnx.helper.make_opsetid("", 0))
    assert [n.op.NAME for n in imported(proto, tmp_path).nodes] == ["relu"]


def test_a_norm_from_before_opset_17_has_the_type_of_its_scale(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float16)
    nodes = [node("LayerNormalization", "x scale", "y")]
    constants = {"scale": np.arange(8, dtype=np.float32)}
    proto = model(nodes, [value("x", [2, 8], onnx.TensorProto.FLOAT16)], constants=constants, opset=12)
    (got,) = run(imported(proto, tmp_path), x)
    wide = x.astype(np.float32)
    want = (wide - wide.mean(1, keepdims=True)) / wide.std(1, keepdims=True) * np.arange(8)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, atol=2e-2)


@pytest.mark.parametrize(("opset", "mask"), [(9, [0.0, 0.0]), (10, [False, False]), (12, [True, True])])
def test_the_mask_of_a_dropout_that_drops_nothing_is_that_of_onnx_runtime(opset: int, mask: list[object], tmp_path: Path) -> None:
    kind = onnx.TensorProto.FLOAT if opset < 10 else onnx.TensorProto.BOOL
    proto = model([node("Dropout", "x", "y m")], [value("x", [2])], [value("y", [2]), value("m", [2], kind)], opset=opset)
    proto.ir_version = 6
    x = np.ones(2, np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    assert session.run(["m"], {"x": x})[0].tolist() == mask
    assert run(imported(proto, tmp_path), x)[1].tolist() == mask


def test_the_same_file_gives_the_same_names(tmp_path: Path) -> None:
    proto = model([node("Exp", "x", "a/b"), node("Log", "a/b", "a.b"), node("Add", "a/b a.b", "y")])
    first, second = (imported(proto, tmp_path) for _ in range(2))
    assert [v.name for v in first.values()] == [v.name for v in second.values()]
