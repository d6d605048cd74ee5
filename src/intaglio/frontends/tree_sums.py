"""Sums of trees as ONNX: `TreeEnsemble` of ai.onnx.ml 5, and what makes predictions of its sums.

    x -> [missing numbers] -> TreeEnsemble or MatMul -> [mean] -> link -> label, probabilities
                                                                  link -> variable
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from intaglio.ir.graph import Array

AT_MOST, BELOW, MEMBER = 0, 1, 6  # modes of nodes
_OPSETS = {"": 18, "ai.onnx.ml": 5}
_FLOAT, _INT64 = 1, 7


@dataclass(slots=True)
class Trees:
    """Under construction, leaves first. A place is the number of a node, or -1 - L for the leaf L."""

    nodes: list[tuple[int, int, float, int, int, bool]] = field(default_factory=list)  # mode, feature, value, yes, no, NaN: yes
    members: list[float] = field(default_factory=list)
    leaves: list[tuple[int, float]] = field(default_factory=list)
    roots: list[int] = field(default_factory=list)

    def leaf(self, target: int, weight: float) -> int:
        self.leaves.append((target, weight))
        return -len(self.leaves)

    def split(self, mode: int, feature: int, value: float, yes: int, no: int, missing: bool) -> int:
        """`missing`: where the feature is not a number, the answer is yes."""
        self.nodes.append((mode, feature, value, yes, no, missing))
        return len(self.nodes) - 1

    def among(self, feature: int, categories: Sequence[int], yes: int, no: int, missing: bool) -> int:
        """Is the feature one of these?"""
        self.members += [*map(float, categories), np.nan]
        return self.split(MEMBER, feature, 0.0, yes, no, missing)

    def root(self, place: int) -> None:
        self.roots.append(self.split(AT_MOST, 0, 0.0, place, place, False) if place < 0 else place)

    def attributes(self, targets: int) -> dict[str, Any]:
        numpy_helper = importlib.import_module("onnx").numpy_helper
        mode, feature, value, yes, no, missing = zip(*self.nodes, strict=True)
        ids, weights = zip(*self.leaves, strict=True)

        def tensor(values: Sequence[float], kind: type) -> Any:
            return numpy_helper.from_array(np.array(values, kind))

        found = {
            "tree_roots": self.roots, "nodes_modes": tensor(mode, np.uint8), "nodes_featureids": feature,
            "nodes_splits": tensor(value, np.float32), "nodes_missing_value_tracks_true": [int(one) for one in missing],
            "nodes_truenodeids": [max(n, -1 - n) for n in yes], "nodes_trueleafs": [int(n < 0) for n in yes],
            "nodes_falsenodeids": [max(n, -1 - n) for n in no], "nodes_falseleafs": [int(n < 0) for n in no],
            "leaf_targetids": ids, "leaf_weights": tensor(weights, np.float32),
            "n_targets": targets, "aggregate_function": 1, "post_transform": 0,
        }  # fmt: skip
        return found | ({"membership_values": tensor(self.members, np.float32)} if self.members else {})


@dataclass(frozen=True, slots=True)
class Missing:
    """A number that counts as missing, with all within `reach` of it, in these columns or in all."""

    value: float
    reach: float = 0.0
    columns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Sums:
    """What a booster adds up, and what it makes of the sums."""

    features: int
    targets: int
    trees: Trees | Array  # an array: weights of features by targets
    link: str  # one of LINKS
    base: tuple[float, ...] = ()  # is added to the product with an array
    factor: float = 1.0  # of the sums, before the link
    missing: Missing | None = None


@dataclass(slots=True)
class Drawing:
    """Nodes of an ONNX graph that is drawn from its input to its outputs."""

    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def node(self, op: str, *inputs: str | Array, output: str = "", domain: str = "", **attributes: Any) -> str:
        onnx = importlib.import_module("onnx")
        names = []
        for given in inputs:
            if not isinstance(given, str):
                self.constants.append(onnx.numpy_helper.from_array(np.asarray(given), f"c{len(self.constants)}"))
            names.append(given if isinstance(given, str) else f"c{len(self.constants) - 1}")
        output = output or f"v{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, names, [output], domain=domain, **attributes))
        return output


def _one(value: float) -> Array:
    return np.array(value, np.float32)


def _signed_square(d: Drawing, s: str) -> str:
    return d.node("Mul", s, d.node("Abs", s))


LINKS: dict[str, Callable[[Drawing, str], str]] = {
    "identity": lambda d, s: s,
    "logistic": lambda d, s: d.node("Sigmoid", s),
    "softmax": lambda d, s: d.node("Softmax", s, axis=1),
    "exp": lambda d, s: d.node("Exp", s),
    "log1p exp": lambda d, s: d.node("Softplus", s),
    "sign": lambda d, s: d.node("Cast", d.node("Greater", s, _one(0)), to=_FLOAT),
    "signed square": _signed_square,
}


def _without_missing(d: Drawing, x: str, missing: Missing, features: int) -> str:
    away = d.node("Abs", d.node("Sub", x, _one(missing.value)) if missing.value else x)
    there = d.node("LessOrEqual", away, _one(missing.reach))
    if missing.columns:
        there = d.node("And", there, np.isin(np.arange(features), missing.columns))
    return d.node("Where", there, _one(np.nan), x)


def as_onnx(sums: Sums, classes: Array | None, several: bool = False) -> Any:
    """`classes`: whole numbers, for labels and probabilities instead of one output of numbers. `several`: labels are a 0 or 1 for
    each target."""
    d, x = Drawing(), "x"
    if sums.missing is not None:
        x = _without_missing(d, x, sums.missing, sums.features)
    if isinstance(sums.trees, Trees):
        total = d.node("TreeEnsemble", x, domain="ai.onnx.ml", **sums.trees.attributes(sums.targets))
    else:
        known = d.node("Where", d.node("IsNaN", x), _one(0), x)
        total = d.node("Add", d.node("MatMul", known, sums.trees.astype(np.float32)), np.array(sums.base, np.float32))
    if sums.factor != 1:
        total = d.node("Mul", total, _one(sums.factor))
    linked = LINKS[sums.link](d, total)
    if classes is None:
        d.node("Identity", linked, output="variable")
        return _model(d, sums, {"variable": (_FLOAT, 2)})
    if several:
        d.node("Cast", d.node("Greater", linked, _one(0.5)), to=_INT64, output="label")
        d.node("Identity", linked, output="probabilities")
        return _model(d, sums, {"label": (_INT64, 2), "probabilities": (_FLOAT, 2)})
    if sums.targets == 1:
        flat = d.node("Reshape", linked, np.array([-1], np.int64))
        index = d.node("Cast", d.node("Greater", flat, _one(0.5)), to=_INT64)
        d.node("Concat", d.node("Sub", _one(1), linked), linked, axis=1, output="probabilities")
    else:
        index = d.node("ArgMax", total, axis=1, keepdims=0)
        d.node("Identity", linked, output="probabilities")
    if np.array_equal(classes, np.arange(len(classes))):
        d.node("Identity", index, output="label")
    else:
        d.node("Gather", classes.astype(np.int64), index, output="label")
    return _model(d, sums, {"label": (_INT64, 1), "probabilities": (_FLOAT, 2)})


def _model(d: Drawing, sums: Sums, outputs: dict[str, tuple[int, int]]) -> Any:
    helper = importlib.import_module("onnx").helper
    given = helper.make_tensor_value_info("x", _FLOAT, [None, sums.features])
    made = [helper.make_tensor_value_info(name, kind, [None] * rank) for name, (kind, rank) in outputs.items()]
    graph = helper.make_graph(d.nodes, "booster", [given], made, d.constants)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid(*one) for one in _OPSETS.items()])
