"""Random trees: as attributes of ONNX's operators, and as cases of the kernel tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ValueInfoProto, helper

from intaglio.frontends.onnx.trees import Forest, Pairs, Split
from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.coupling import PairwiseCoupling
from intaglio.ops.trees import THRESHOLDS, TreeEnsemble
from support.kernel_running import Case, case

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
FEATURES = 6


def features(rng: np.random.Generator, rows: int, missing: bool = True, count: int = FEATURES) -> Array:
    """Many are equal to a threshold; some are missing, infinite or a negative zero."""
    x = (rng.integers(-4, 5, (rows, count)) * 0.5).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = -0.0
    if missing:
        x[rng.random(x.shape) < 0.1] = np.nan
        x[0], x[1] = np.inf, -np.inf
    return x


def splits(
    rng: np.random.Generator, depth: int, modes: Sequence[str], tracks: bool, count: int = FEATURES
) -> list[Split | None]:  # fmt: skip
    """One tree, its root first; None is a leaf."""
    nodes: list[Split | None] = []

    def grow(left: int) -> int:
        here = len(nodes)
        nodes.append(None)
        if left and (here == 0 or rng.random() < 0.8):
            mode, feature = modes[int(rng.integers(len(modes)))], int(rng.integers(count))
            value, missing = float(rng.integers(-3, 4) * 0.5), bool(rng.integers(2)) and tracks
            yes = grow(left - 1)
            nodes[here] = Split(mode, feature, value, yes, grow(left - 1), missing)
        return here

    grow(depth)
    return nodes


def forest_case(
    trees: int, targets: int = 1, leaves: str = "all", aggregate: str = "sum", depth: int = 4, rows: int = 9,
    tracks: bool = False, dtype: DType = DType.F32, seed: int = 1, count: int = FEATURES,
) -> Case:  # fmt: skip
    """`leaves`: `all` have all targets, those of a tree have `one`, or each has `any`. Whole features are a hundred times
    as large. The bound is for cores that add whole numbers; elsewhere results are the same bits (`test_trees.py`)."""
    rng = np.random.default_rng(seed)
    forest = Forest(dtype if dtype.is_float else DType.F32)
    for t in range(trees):
        nodes = splits(rng, depth, MODES if tracks else MODES[:1], tracks, count)
        chosen = {"all": list(range(targets)), "one": [t % targets]}
        kept: dict[int, Pairs] = {}
        for n in (n for n, node in enumerate(nodes) if node is None):
            ids = chosen.get(leaves) or sorted(set(rng.integers(0, targets, 2).tolist()))
            kept[n] = tuple((i, float(rng.standard_normal())) for i in ids)
        forest.tree(0, lambda key, nodes=nodes, kept=kept: nodes[key] or kept[key])  # type: ignore[misc]
    x, tables = features(rng, rows, count=count), forest.tables([0.5] * targets)
    if not dtype.is_float:
        x = np.nan_to_num(x * 100, posinf=1e4, neginf=-1e4)
        tables[1] = np.floor(tables[1] * 100).astype(dtype.numpy)
    return case(TreeEnsemble(targets, aggregate), x.astype(dtype.numpy), *tables, constant=range(1, 10), bound=1e-6)


def far_thresholds(*others: float) -> Case:
    """Missing values that go left at some nodes; thresholds and features of many magnitudes, next to each other, without zeros but
    for `others`."""
    given = forest_case(12, 3, depth=6, rows=60, tracks=True)
    rng = np.random.default_rng(4)
    x, thresholds = given.operands[0], given.operands[THRESHOLDS]
    assert x is not None and thresholds is not None
    sizes = np.float32(2.0) ** rng.integers(-40, 60, 12).astype(np.float32) * np.float32(1.25)
    chosen = np.concatenate([sizes, -sizes, np.array([np.inf, *others], np.float32)])
    thresholds[:] = np.resize(rng.permutation(chosen), len(thresholds))
    near = [np.nextafter(chosen, np.float32(side)) for side in (np.inf, -np.inf)]
    x[:] = rng.choice(np.concatenate([chosen, *near, [0, -0.0, 1e-45, 3e38, -np.inf]]).astype(np.float32), x.shape)
    x[rng.random(x.shape) < 0.2] = np.nan
    return given


def attributes(
    rng: np.random.Generator, prefix: str, ids: Sequence[int] | None, trees: int = 7, modes: Sequence[str] = MODES,
    targets: int = 3, positive: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Of TreeEnsembleRegressor (`target`) or TreeEnsembleClassifier (`class`). `ids` are the targets of every leaf; None: one of
    them, by tree."""
    found: dict[str, list[Any]] = {}

    def add(**fields: object) -> None:
        for name, value in fields.items():
            found.setdefault(name, []).append(value)

    for t in range(trees):
        for n, s in enumerate(splits(rng, 4, modes, True)):
            add(nodes_treeids=t, nodes_nodeids=n, nodes_modes=s.mode if s else "LEAF", nodes_featureids=s.feature if s else 0,
                nodes_values=s.value if s else 0.0, nodes_truenodeids=s.yes if s else 0, nodes_falsenodeids=s.no if s else 0,
                nodes_missing_value_tracks_true=int(s.tracks) if s else 0)  # fmt: skip
            for i in () if s else ids if ids is not None else [t % targets]:
                weight = float(np.float32(rng.standard_normal()))
                weight = abs(weight) / trees if positive else weight
                add(**{f"{prefix}_treeids": t, f"{prefix}_nodeids": n, f"{prefix}_ids": i, f"{prefix}_weights": weight})
    return found


def ml_model(op: str, x: Array, outputs: Sequence[str], version: int = 3, **fields: Any) -> Any:
    """One operator of ai.onnx.ml on rows of features."""
    step = helper.make_node(op, ["x"], list(outputs), domain="ai.onnx.ml", **fields)
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    graph = helper.make_graph([step], "g", [given], [ValueInfoProto(name=o) for o in outputs])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def _likely(rows: int, pairs: int) -> Array:
    return np.random.default_rng(2).uniform(0.01, 0.99, (rows, pairs)).astype(np.float32)


TREES: dict[str, Case] = {
    "trees": forest_case(11),
    "trees of several targets": forest_case(10, 3),
    "trees with one target each": forest_case(9, 3, "one"),
    "trees with leaves of every kind": forest_case(9, 4, "any"),
    "trees, average": forest_case(5, 2, aggregate="average"),
    "trees, smallest": forest_case(5, 1, aggregate="min"),
    "trees, largest of those there": forest_case(5, 4, "any", "max"),
    "trees with missing values": forest_case(9, 2, tracks=True),
    "trees of many magnitudes": far_thresholds(),
    "trees of many magnitudes and zero": far_thresholds(0.0),
    "trees down to the lowest": far_thresholds(-np.inf),
    "trees in f64": forest_case(9, 2, tracks=True, dtype=DType.F64),
    "trees of bytes": forest_case(9, 2, dtype=DType.I8),
    "trees of 16 bits": forest_case(9, 3, "one", dtype=DType.I16),
    "trees of 16 bits, many nodes": forest_case(40, 3, depth=5, dtype=DType.I16),
    "one tree": forest_case(1, 2),
    "trees without nodes": forest_case(3, 2, depth=0),
    "trees, one row": forest_case(17, rows=2),
    "coupling of 2": case(PairwiseCoupling(2), _likely(5, 1), bound=1e-5),
    "coupling of 4": case(PairwiseCoupling(4), _likely(7, 6), bound=1e-5),
    "trees walked": replace(forest_case(11), using="trees_walked"),
}
