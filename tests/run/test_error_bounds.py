"""Bounds of errors hold for what kernels compute, and say nothing where there is nothing to say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import Op
from intaglio.ops.binary import Add, Mul
from intaglio.ops.reduce import ArgReduce
from intaglio.ops.unary import Expm1, Log1p, Sin, Tan
from intaglio.run.error_bounds import error_bounds, outside, some_error_bounds
from intaglio.targets.target import find_target
from support.kernel_running import Case, interpreted
from support.tree_models import TREES, forest_case

F = np.float32


def graph_of(*ops: Op, shape: tuple[int, ...] = (64,)) -> Graph:
    """One after the other; those of two operands take the last result twice."""
    x = Value("x", TensorType(DType.F32, shape))
    nodes: list[Node] = []
    last = x
    for n, op in enumerate(ops):
        operands = (last, last) if isinstance(op, (Add, Mul)) else (last,)
        (made,) = op.infer(*(v.type for v in operands))
        last = Value(f"y{n}", made)
        nodes.append(Node(op, [*operands], [last]))
    return Graph("g", [x], [last], nodes)


@pytest.mark.parametrize("op", [Expm1(), Log1p()])
@pytest.mark.parametrize("scale", [1e-6, 1.0])
def test_errors_of_operands_go_through_functions(op: Op, scale: float) -> None:
    """`x * x` is rounded; what f32 makes of it all lies within the bound, which is not far from it near zero either."""
    x = (np.random.default_rng(0).standard_normal(64) * scale).astype(F)
    bounds = error_bounds(graph_of(Mul(), op), {"x": x})
    assert bounds is not None
    got = op.reference(x * x)[0].astype(F)
    assert outside(got, bounds["y1"]) == 0
    assert (bounds["y1"].error <= 64 * 2.0**-24 * np.abs(bounds["y1"].value) + 2.0**-120).all()
    assert outside(got * F(1 + 2.0**-16), bounds["y1"]) > 0


def test_a_logarithm_of_what_may_be_zero_has_no_bound() -> None:
    bounds = error_bounds(graph_of(Add(), Log1p()), {"x": np.full(64, -0.5, F)})
    assert bounds is not None and np.isinf(bounds["y1"].error).all()


def tree_bounds(case: Case, x: Array) -> tuple[Graph, Value]:
    node = case.node()
    assert node.inputs[0] is not None
    return Graph("g", [node.inputs[0]], list(node.outputs), [node]), node.outputs[0]


@pytest.mark.parametrize("core", ["cortex-m4f", "cortex-m0+", "x86-64-v3"])
@pytest.mark.parametrize("name", ["trees", "trees of several targets", "trees, average", "trees with missing values"])
def test_sums_of_trees_are_within_their_bound(name: str, core: str) -> None:
    case = TREES[name]
    x = case.operands[0]
    assert x is not None
    graph, y = tree_bounds(case, x)
    bounds = error_bounds(graph, {graph.inputs[0].name: x})
    assert bounds is not None
    code, (got,) = interpreted(replace(case, using=""), find_target(core))
    assert code == 0 and outside(got, bounds[y.name]) == 0
    assert outside(got + F(1e-4), bounds[y.name]) > 0


def test_features_that_may_be_on_either_side_have_no_bound() -> None:
    case = forest_case(9)
    x = np.full((9, 6), 0.25, F)
    node = case.node()
    source = node.inputs[0]
    assert source is not None
    scaled = Value("scaled", source.type)
    graph = Graph("g", [source], list(node.outputs), [Node(Add(), [source, source], [scaled]), replace_input(node, scaled)])
    assert error_bounds(graph, {source.name: x}) is None  # 0.5 is a threshold
    assert error_bounds(graph, {source.name: x + F(0.01)}) is not None


def replace_input(node: Node, value: Value) -> Node:
    return Node(node.op, [value, *node.inputs[1:]], node.outputs)


def test_what_comes_before_an_operator_without_a_rule_keeps_its_bounds() -> None:
    graph, x = graph_of(Sin(), Tan(), Add(), ArgReduce("max", 0)), np.linspace(0, 1, 64, dtype=F)
    assert error_bounds(graph, {"x": x}) is None
    assert set(some_error_bounds(graph, {"x": x})) == {"x", "y0"}
