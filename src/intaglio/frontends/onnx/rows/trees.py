"""Decision trees: TreeEnsembleRegressor and TreeEnsembleClassifier of ai.onnx.ml 1 to 3, TreeEnsemble of version 5.

Features of f16 and integers are compared as f32, those of f64 as f64, as in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio.frontends.building import cast, part
from intaglio.frontends.onnx.call import Answer, Item, OnnxCall, Unusable, importer
from intaglio.frontends.onnx.classes import ML, Classes, above, best, binary_scores, classes_of, labelled, post_transform, rows_of
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.trees import MODES, Forest, Pairs, Split
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.trees import TreeEnsemble

_AGGREGATES = {"SUM": "sum", "AVERAGE": "average", "MIN": "min", "MAX": "max"}
_DAMAGED = "the model is damaged or was edited; export it again"


def _features(call: OnnxCall) -> Value:
    x = rows_of(call, call.value(0))
    return x if x.dtype is DType.F64 else cast(call, x, DType.F32)


def _emit(call: OnnxCall, forest: Forest, x: Value, base: Sequence[float], targets: int, aggregate: str) -> Value:
    if forest.features and not 0 <= min(forest.features) <= max(forest.features) < x.shape[1]:
        raise Fault("shape-mismatch", f"the trees read feature {max(forest.features)}, and the input has {x.shape[1]} columns",
                    "give the input its shape with `--shape`")  # fmt: skip
    if any(not 0 <= target < targets for leaf in forest.leaves for target, _ in leaf):
        raise Fault("bad-attribute", f"a leaf names a target that the model does not have (0 to {targets - 1})", _DAMAGED)
    if targets > 1 and any(base) and not {n for n, value in enumerate(base) if value} <= forest.certain():
        raise unsupported("base values of targets that no leaf may name are not supported: ONNX Runtime leaves them out there, and "
                          "ONNX adds them", "add them behind the trees, with `Add`")  # fmt: skip
    return call.emit(TreeEnsemble(targets, aggregate), x, *[call.constant(a) for a in forest.tables(base)])


# ai.onnx.ml 1 to 3 ----------------------------------------------------------------------------------------------------------


def _numbers(call: OnnxCall, name: str) -> list[float]:
    """Floats, or since version 3 a tensor of doubles in their place."""
    given = call.tensor(f"{name}_as_tensor")
    if given is not None and given.data is not None and given.data.size:
        return [float(v) for v in given.data.reshape(-1)]
    return call.floats(name) or []


def _same_length(call: OnnxCall, **lists: Sequence[object]) -> None:
    if len({len(values) for values in lists.values()}) > 1:
        told = ", ".join(f"`{name}` {len(values)}" for name, values in lists.items())
        raise Fault("bad-attribute", f"the attributes of `{call.op}` have different lengths: {told}", _DAMAGED)


def _listed_forest(call: OnnxCall, dtype: DType, prefix: str) -> Forest:
    """The forest of the attributes `nodes_*` and of the leaves that `target_*` or `class_*` list."""
    trees, ids = call.ints("nodes_treeids") or [], call.ints("nodes_nodeids") or []
    modes, features = call.texts("nodes_modes") or [], call.ints("nodes_featureids") or []
    yes, no = call.ints("nodes_truenodeids") or [], call.ints("nodes_falsenodeids") or []
    values = _numbers(call, "nodes_values")
    tracks = call.ints("nodes_missing_value_tracks_true") or [0] * len(ids)
    _same_length(call, nodes_treeids=trees, nodes_nodeids=ids, nodes_modes=modes, nodes_featureids=features,
                 nodes_truenodeids=yes, nodes_falsenodeids=no, nodes_values=values,
                 nodes_missing_value_tracks_true=tracks)  # fmt: skip
    where = {(tree, node): n for n, (tree, node) in enumerate(zip(trees, ids, strict=True))}
    if len(where) != len(ids):
        raise Fault("bad-attribute", f"two nodes of `{call.op}` have the same number", _DAMAGED)
    leaves = _listed_leaves(call, prefix, where)

    def node(n: int) -> Split | Pairs:
        if modes[n] == "LEAF":
            return leaves.get(n, ())
        if modes[n] not in MODES[:6]:
            raise unsupported(f"nodes of the mode `{modes[n]}` are not supported")
        try:
            there, elsewhere = where[trees[n], yes[n]], where[trees[n], no[n]]
        except KeyError:
            raise Fault("bad-attribute", f"node {ids[n]} of tree {trees[n]} has a child that is not there", _DAMAGED) from None
        return Split(modes[n], features[n], values[n], there, elsewhere, bool(tracks[n]))

    forest = Forest(dtype)
    firsts = dict(zip(reversed(trees), reversed(range(len(trees))), strict=True))
    for n in sorted(firsts.values()):  # the root of a tree is the node that is listed first
        forest.tree(n, node)
    if not forest.roots:
        raise Fault("bad-attribute", f"`{call.op}` has no trees", _DAMAGED)
    return forest


def _listed_leaves(call: OnnxCall, prefix: str, where: dict[tuple[int, int], int]) -> dict[int, Pairs]:
    trees, nodes = call.ints(f"{prefix}_treeids") or [], call.ints(f"{prefix}_nodeids") or []
    ids, weights = call.ints(f"{prefix}_ids") or [], _numbers(call, f"{prefix}_weights")
    if not len(trees) == len(nodes) == len(ids) == len(weights):
        raise Fault("bad-attribute", f"the attributes `{prefix}_*` of `{call.op}` have different lengths", _DAMAGED)
    leaves: dict[int, Pairs] = {}
    for tree, node, target, weight in zip(trees, nodes, ids, weights, strict=True):
        if (tree, node) not in where:
            raise Fault("bad-attribute", f"a weight is for node {node} of tree {tree}, which is not there", _DAMAGED)
        n = where[tree, node]
        leaves[n] = (*leaves.get(n, ()), (target, weight))
    return leaves


def _base(call: OnnxCall, targets: int) -> list[float]:
    base = _numbers(call, "base_values")
    if base and len(base) != targets:
        raise unsupported(f"`{call.op}` has {len(base)} base values for {targets} targets", "export the model again")
    return base or [0.0] * targets


@importer("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(call: OnnxCall) -> Answer:
    x = _features(call)
    aggregate, targets = call.text("aggregate_function", "SUM"), call.integer("n_targets", 1)
    if aggregate not in _AGGREGATES or targets < 1:
        raise unsupported(f"the aggregate function `{aggregate}` with {targets} targets is not supported")
    forest = _listed_forest(call, x.dtype, "target")
    scores = _emit(call, forest, x, _base(call, targets), targets, _AGGREGATES[aggregate])
    return cast(call, post_transform(call, scores, call.text("post_transform", "NONE")), DType.F32)


@importer("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(call: OnnxCall) -> Answer:
    x, classes = _features(call), classes_of(call, "classlabels_int64s")
    transform = call.text("post_transform", "NONE")
    ids, weights = call.ints("class_ids") or [], _numbers(call, "class_weights")
    if classes.count < 2:
        raise unsupported("a classifier with a single class is not supported", "train it with two classes or more")
    if classes.count == 2:
        return _two_classes(call, x, classes, set(ids), transform, min(weights, default=0.0) >= 0)
    scores = _emit(call, _listed_forest(call, x.dtype, "class"), x, _base(call, classes.count), classes.count, "sum")
    label = labelled(call, classes, best(call, scores))
    return [label, cast(call, post_transform(call, scores, transform), DType.F32)]


def _two_classes(call: OnnxCall, x: Value, classes: Classes, ids: set[int], transform: str, all_positive: bool) -> Answer:
    """As ONNX Runtime does it. Leaves that have the weight of class 0 alone, which is how most tools write it, mean the score of
    class 1: 1 - p and p, or -s and s."""
    base = _numbers(call, "base_values")
    if ids == {0} and len(base) < 2:
        score = _emit(call, _listed_forest(call, x.dtype, "class"), x, base or [0.0], 1, "sum")
        first, both = binary_scores(call, classes, score, transform, all_positive)
        return [first, cast(call, both, DType.F32)]
    if any(base):
        raise unsupported("base values of two classes are not supported: ONNX Runtime and ONNX differ about them",
                          "export the model again, with weights for class 0 alone")  # fmt: skip
    forest = _listed_forest(call, x.dtype, "class")
    scores = _emit(call, forest, x, [0.0, 0.0], 2, "sum")
    second = part(call, scores, 1, 1, 1)
    label: Item = Unusable("the label of two classes that both have weights, about which ONNX Runtime and ONNX differ",
                           "remove this output, and look up the larger score")  # fmt: skip
    if ids == {1}:
        label = labelled(call, classes, above(call, second, 0.5 if all_positive else 0.0))
    elif classes.numbers == (0, 1) and all(_opposite(leaf) for leaf in forest.leaves):
        label = above(call, second, 0.0)
    return [label, cast(call, post_transform(call, scores, transform), DType.F32)]


def _opposite(leaf: Pairs) -> bool:
    """Are the scores -s and s, as CatBoost writes them? Then the sign of the second is the larger score."""
    weights = dict(leaf)
    return len(leaf) == 2 and set(weights) == {0, 1} and weights[0] == -weights[1]


# ai.onnx.ml 5 ---------------------------------------------------------------------------------------------------------------

_AGGREGATE_NUMBERS = ("average", "sum", "min", "max")
_TRANSFORM_NUMBERS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


def _flat(call: OnnxCall, name: str) -> Array:
    given = call.tensor(name)
    return np.zeros(0) if given is None or given.data is None else given.data.reshape(-1)


def _memberships(call: OnnxCall, modes: Sequence[int]) -> dict[int, tuple[float, ...]]:
    """By node: the numbers until the next NaN, in the order of the nodes."""
    asked = [n for n, mode in enumerate(modes) if mode == MODES.index("BRANCH_MEMBER")]
    values = _flat(call, "membership_values").astype(np.float64)
    parts = np.split(values, np.flatnonzero(np.isnan(values)) + 1)[: len(asked)]
    if len(parts) < len(asked):
        raise Fault("bad-attribute", "`membership_values` has too few sets", _DAMAGED)
    return {n: tuple(float(v) for v in part[~np.isnan(part)]) for n, part in zip(asked, parts, strict=True)}


@importer("TreeEnsemble", domain=ML)
def tree_ensemble(call: OnnxCall) -> Answer:
    stored, x = call.value(0), _features(call)
    features, modes = call.ints("nodes_featureids") or [], [int(m) for m in _flat(call, "nodes_modes")]
    splits = _flat(call, "nodes_splits").astype(np.float64).tolist()
    yes, no = call.ints("nodes_truenodeids") or [], call.ints("nodes_falsenodeids") or []
    yes_leaf, no_leaf = call.ints("nodes_trueleafs") or [], call.ints("nodes_falseleafs") or []
    tracks = call.ints("nodes_missing_value_tracks_true") or [0] * len(modes)
    _same_length(call, nodes_featureids=features, nodes_modes=modes, nodes_splits=splits, nodes_truenodeids=yes,
                 nodes_falsenodeids=no, nodes_trueleafs=yes_leaf, nodes_falseleafs=no_leaf,
                 nodes_missing_value_tracks_true=tracks)  # fmt: skip
    ids, weights = call.ints("leaf_targetids") or [], _flat(call, "leaf_weights").astype(np.float64).tolist()
    _same_length(call, leaf_targetids=ids, leaf_weights=weights)
    members = _memberships(call, modes)

    def node(key: int) -> Split | Pairs:
        if not -len(ids) <= key < len(modes):
            raise Fault("bad-attribute", "a tree has a child that is not there", _DAMAGED)
        if key < 0:
            return ((ids[-1 - key], weights[-1 - key]),)
        if not 0 <= modes[key] < len(MODES):
            raise unsupported(f"nodes of the mode {modes[key]} are not supported")
        there, elsewhere = (-1 - k if leaf else k for k, leaf in ((yes[key], yes_leaf[key]), (no[key], no_leaf[key])))
        return Split(MODES[modes[key]], features[key], splits[key], there, elsewhere, bool(tracks[key]), members.get(key, ()))

    forest = Forest(x.dtype)
    for root in call.ints("tree_roots") or []:
        forest.tree(root, node)
    targets, aggregate = call.integer("n_targets", 1), call.integer("aggregate_function", 1)
    transform = call.integer("post_transform", 0)
    if not (0 <= aggregate < len(_AGGREGATE_NUMBERS) and 0 <= transform < len(_TRANSFORM_NUMBERS) and targets >= 1):
        raise unsupported(f"aggregate function {aggregate} and post transform {transform} are not supported")
    scores = _emit(call, forest, x, [0.0] * targets, targets, _AGGREGATE_NUMBERS[aggregate])
    return cast(call, post_transform(call, scores, _TRANSFORM_NUMBERS[transform]), stored.dtype)
