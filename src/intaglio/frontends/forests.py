"""What skl2onnx loses of scikit-learn's trees, put back while it converts: converters of classes, which work in pipelines too.

    trees with missing values   where a NaN goes at a node: `nodes_missing_value_tracks_true`
    votes of many trees         weights become multiples of 2^-24, so that f32 adds them exactly, in any order: classes that are
                                tied in scikit-learn's doubles stay tied, and the first of them wins as there
                                (probabilities are off by up to 2e-5)
    isolation forests           one ensemble whose leaves are path lengths, instead of several nodes for each tree
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Converter = Callable[[Any, Any, Any], None]  # scope, operator, container
_PLACES = 24  # of a sum below 1 in f32
_MOST_OFF = 2e-5  # of a probability: with more trees than that allows, weights stay as they are
_FORESTS = (
    ("sklearn.ensemble", ("RandomForestClassifier", "RandomForestRegressor", "ExtraTreesClassifier", "ExtraTreesRegressor")),
    ("sklearn.tree", ("DecisionTreeClassifier", "DecisionTreeRegressor", "ExtraTreeClassifier", "ExtraTreeRegressor")),
)



def converters() -> dict[type, Converter]:
    """By class, as `skl2onnx.to_onnx(custom_conversion_functions=...)` takes them."""
    names = importlib.import_module("skl2onnx._supported_operators").sklearn_operator_name_map
    get = importlib.import_module("skl2onnx.common._registration").get_converter
    found: dict[type, Converter] = {}
    for module, classes in _FORESTS:
        for one in (getattr(importlib.import_module(module), name) for name in classes):
            if one in names:
                found[one] = _mended(get(names[one]))
    ensemble = importlib.import_module("sklearn.ensemble")
    found[ensemble.IsolationForest] = _isolation_forest
    return found


def _mended(usual: Converter) -> Converter:
    def convert(scope: Any, operator: Any, container: Any) -> None:
        before = len(container.nodes)
        usual(scope, operator, container)
        trees = _trees(operator.raw_operator)
        made = [node for node in container.nodes[before:] if node.op_type.startswith("TreeEnsemble")]
        if len(made) == 1 and sum(tree.node_count for tree in trees) == len(_ints(made[0], "nodes_nodeids")):
            _missing(made[0], trees)
            if len(trees) > 1:
                _exact_votes(made[0])
        # Several outputs have an ensemble for each tree; what is lost there is found by comparing (`frontends/converted.py`).

    return convert


def _trees(model: Any) -> list[Any]:
    return [one.tree_ for one in getattr(model, "estimators_", [model])]


def _attribute(node: Any, name: str) -> Any:
    return next((one for one in node.attribute if one.name == name), None)


def _ints(node: Any, name: str) -> list[int]:
    found = _attribute(node, name)
    return [] if found is None else list(found.ints)


def _missing(node: Any, trees: list[Any]) -> None:
    if not any(np.any(getattr(tree, "missing_go_to_left", False)) for tree in trees):
        return
    places = zip(_ints(node, "nodes_treeids"), _ints(node, "nodes_nodeids"), strict=True)
    left = [int(trees[tree].missing_go_to_left[at]) for tree, at in places]
    tracks = _attribute(node, "nodes_missing_value_tracks_true")
    del tracks.ints[:]
    tracks.ints.extend(left)


def _exact_votes(node: Any) -> None:
    weights = _attribute(node, "class_weights")
    if weights is None or not weights.floats:
        return
    exact = np.array(weights.floats, np.float64)
    places = exact * 2**_PLACES
    # Whole votes are rounded down, or the sum of all could be above 1; parts of votes are rounded to the nearest.
    rounded = np.floor(places) if len(np.unique(exact[exact > 0])) == 1 else np.round(places)
    off = np.abs(rounded - places).max() / 2**_PLACES * (max(_ints(node, "nodes_treeids")) + 1)
    if exact.min() >= 0 and exact.max() <= 1 and off <= _MOST_OFF:
        del weights.floats[:]
        weights.floats.extend((rounded / 2**_PLACES).tolist())


# Isolation forests ------------------------------------------------------------------------------------------------------------


def _isolation_forest(scope: Any, operator: Any, container: Any) -> None:
    """scores = -2^(-sum of path lengths / (trees * the mean of a search)) - offset; below 0, the label is -1."""
    model = operator.raw_operator
    name, label, score = operator.inputs[0].full_name, operator.outputs[0].full_name, operator.outputs[1].full_name
    onnx = importlib.import_module("onnx")

    def temporary(words: str) -> str:
        return str(scope.get_unique_variable_name(words))

    def constant(words: str, value: float, kind: int) -> str:
        made = temporary(words)
        container.add_initializer(made, kind, [], [value])
        return made

    def node(op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        container.add_node(op, inputs, output, name=scope.get_unique_operator_name(op), **attributes)
        return output

    real, whole = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    if operator.inputs[0].type.__class__.__name__ != "FloatTensorType":
        name = node("Cast", [name], temporary("floats"), to=real)
    lengths = temporary("lengths")
    node("TreeEnsembleRegressor", [name], lengths, op_domain="ai.onnx.ml", op_version=1, **_path_lengths(model))
    of_all = len(model.estimators_) * float(_mean_search(np.array([model._max_samples]))[0])
    if of_all:
        scaled = node("Mul", [lengths, constant("factor", -np.log(2) / of_all, real)], temporary("scaled"))
    else:  # of one sample: 2^-1
        zero = node("Mul", [lengths, constant("zero", 0.0, real)], temporary("zero"))
        scaled = node("Add", [zero, constant("half", -np.log(2), real)], temporary("scaled"))
    power = node("Exp", [scaled], temporary("power"))
    node("Sub", [node("Neg", [power], temporary("anomaly")), constant("offset", float(model.offset_), real)], score)
    below = node("Less", [score, constant("zero", 0.0, real)], temporary("below"))
    node("Where", [below, constant("outside", -1, whole), constant("inside", 1, whole)], label)


def _path_lengths(model: Any) -> dict[str, Any]:
    """An ensemble whose leaves are the lengths of the ways to them, and what a search among their samples would take."""
    nodes: dict[str, list[Any]] = {
        name: [] for name in ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids",
                              "missing_value_tracks_true", "hitrates")
    }  # fmt: skip
    leaves: dict[str, list[Any]] = {name: [] for name in ("treeids", "nodeids", "ids", "weights")}
    for number, (tree, features) in enumerate(zip(_trees(model), model.estimators_features_, strict=True)):
        missing = getattr(tree, "missing_go_to_left", np.zeros(tree.node_count, np.uint8))
        for at, depth in _depths(tree):
            leaf = tree.children_left[at] < 0
            row = (
                number, at, 0 if leaf else int(features[tree.feature[at]]), "LEAF" if leaf else "BRANCH_LEQ",
                0.0 if leaf else below(tree.threshold[at]), max(int(tree.children_left[at]), 0),
                max(int(tree.children_right[at]), 0), 0 if leaf else int(missing[at]), 1.0,
            )  # fmt: skip
            for column, value in zip(nodes.values(), row, strict=True):
                column.append(value)
            if leaf:
                length = depth + float(_mean_search(tree.n_node_samples[at : at + 1])[0])
                for column, value in zip(leaves.values(), (number, at, 0, length), strict=True):
                    column.append(value)
    found = {f"nodes_{name}": column for name, column in nodes.items()} | {f"target_{name}": c for name, c in leaves.items()}
    return found | {"n_targets": 1, "aggregate_function": "SUM", "post_transform": "NONE"}


def _depths(tree: Any) -> Iterator[tuple[int, int]]:
    """Every node and how many branches are above it, in the order of their numbers."""
    depth = np.zeros(tree.node_count, int)
    for at in range(tree.node_count):  # parents come before their children
        for child in (tree.children_left[at], tree.children_right[at]):
            if child >= 0:
                depth[child] = depth[at] + 1
        yield at, int(depth[at])


def below(threshold: float) -> float:
    """Every f32 is at most this f32 if and only if it is at most the threshold."""
    with np.errstate(over="ignore"):
        near = float(np.float32(threshold))
        return near if near <= threshold else float(np.nextafter(np.float32(near), np.float32(-np.inf)))


def _mean_search(samples: Any) -> Any:
    """The mean length of a search in a binary tree of so many samples that does not find."""
    n = np.asarray(samples, np.float64)
    with np.errstate(all="ignore"):
        many = 2.0 * (np.log(n - 1.0) + np.euler_gamma) - 2.0 * (n - 1.0) / n
    return np.where(n <= 1, 0.0, np.where(n == 2, 1.0, many))
