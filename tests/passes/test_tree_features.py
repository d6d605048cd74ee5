"""Trees compare the whole numbers that their features were computed from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from intaglio.ir.graph import Array, Graph, Value
from intaglio.ir.types import DType, TensorType
from intaglio.ops.binary import Add, Mul, Sub
from intaglio.ops.convert import Cast
from intaglio.ops.evaluate import evaluate_graph
from intaglio.ops.trees import THRESHOLDS, TreeEnsemble
from intaglio.passes import PASSES
from intaglio.passes.context import Context
from intaglio.passes.tree_features import compare_whole_features
from intaglio.targets.target import find_target
from support.tree_models import FEATURES, forest_case

Steps = Callable[[Graph, Value], Value]
COLUMNS = np.arange(FEATURES, dtype=np.float32)


def graph_of(steps: Steps, dtype: DType) -> Graph:
    """`steps` between the input and the trees."""
    graph = Graph("g")
    x = graph.value("x", TensorType(dtype, (40, FEATURES)))
    graph.inputs = [x]
    tables = [graph.constant("c", np.asarray(o)) for o in forest_case(9, 2, tracks=False).operands[1:]]
    graph.outputs = [graph.add(TreeEnsemble(2), [steps(graph, x), *tables], "y")]
    return graph


def scaled(by: float) -> Steps:
    def steps(graph: Graph, x: Value) -> Value:
        floats = graph.add(Cast(DType.F32), [x], "floats")
        centred = graph.add(Sub(), [floats, graph.constant("mean", COLUMNS)], "d")
        return graph.add(Mul(), [centred, graph.constant("scale", np.float32(by) / (COLUMNS + 1))], "s")

    return steps


def rows(dtype: DType) -> Array:
    limits = np.iinfo(dtype.numpy)
    return np.random.default_rng(3).integers(limits.min, limits.max, (40, FEATURES), endpoint=True).astype(dtype.numpy)


@pytest.mark.parametrize("dtype", [DType.I8, DType.U8, DType.I16, DType.U16])
def test_every_row_reaches_the_same_leaves(dtype: DType) -> None:
    steps = scaled(4.0 / np.iinfo(dtype.numpy).max)
    before, after = graph_of(steps, dtype), compare_whole_features(graph_of(steps, dtype), Context(find_target("generic")))
    node = after.nodes[-1]
    thresholds = node.inputs[THRESHOLDS]
    assert node.inputs[0] is after.inputs[0] and thresholds is not None and thresholds.dtype is dtype
    x = rows(dtype)
    want, got = (evaluate_graph(g, {"x": x})[g.outputs[0].name] for g in (before, after))
    assert len(np.unique(want, axis=0)) > 10
    np.testing.assert_array_equal(got, want)


def falling(graph: Graph, x: Value) -> Value:
    return scaled(-0.01)(graph, x)


def of_rows(graph: Graph, x: Value) -> Value:
    floats = graph.add(Cast(DType.F32), [x], "floats")
    return graph.add(Add(), [floats, graph.constant("each", np.arange(40, dtype=np.float32)[:, None])], "s")


def of_itself(graph: Graph, x: Value) -> Value:
    floats = graph.add(Cast(DType.F32), [x], "floats")
    return graph.add(Mul(), [floats, floats], "s")


@pytest.mark.parametrize(
    ("steps", "dtype"), [(falling, DType.I8), (of_rows, DType.I8), (of_itself, DType.I8), (scaled(0.01), DType.I32)]
)
def test_other_features_stay_floats(steps: Steps, dtype: DType) -> None:
    graph = compare_whole_features(graph_of(steps, dtype), Context(find_target("generic")))
    given = graph.nodes[-1].inputs[0]
    assert given is not None and given.dtype is DType.F32


def test_it_is_one_of_the_passes() -> None:
    assert "compare_whole_features" in {p.name for p in PASSES}
