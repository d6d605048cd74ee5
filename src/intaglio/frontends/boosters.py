"""XGBoost and LightGBM objects as sums of trees: read from the JSON that each library writes itself.

XGBoost compares f32 with `<` and adds f32 in the order of its trees, as the ensemble does. The base score is what it starts with,
so it is in the leaves of the first tree of each target; weights of dropped trees (`dart`) are in the leaves too. LightGBM compares
doubles with `<=`, which is the same for every f32 if the threshold is rounded down, and adds doubles: sums are within a rounding
error of f32 for each tree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from intaglio.errors import ModelError, quoted
from intaglio.frontends.forests import below
from intaglio.frontends.tree_sums import AT_MOST, BELOW, Missing, Sums, Trees, as_onnx
from intaglio.ir.graph import Array

_KEPT = "train it with another setting, or compute it in your application"
Note = Callable[[str], None]


def booster_model(model: Any, framework: str, columns: int | None, note: Note) -> Any:
    """The ONNX model of a booster, or of what scikit-learn's interface holds of it. Without `columns`, it is behind other steps."""
    sums, kind = _xgboost(model, columns is None) if framework == "xgboost" else _lightgbm(model)
    if columns is not None and sums.features != columns:
        what = f"the example has {columns} columns, and the model was trained with {sums.features}"
        raise ModelError("shape-mismatch", what, hint="give the example the columns of the training data")
    classes = None
    if kind in ("classes", "labels"):
        found = np.asarray(getattr(model, "classes_", np.arange(max(sums.targets, 2))))
        whole = found.dtype.kind in "iub" or (found.dtype.kind == "f" and bool((found == np.round(found)).all()))
        classes = found if whole else np.arange(len(found))
        if not whole:
            told = ", ".join(f"{n} {quoted(str(one))}" for n, one in enumerate(found[:20]))
            note(f"labels are the index of the class: {told}" + (", ..." if len(found) > 20 else ""))
    return as_onnx(sums, classes, kind == "labels")


def _refused(model: Any, what: str, hint: str = _KEPT) -> ModelError:
    return ModelError("cannot-export", f"`{type(model).__name__}` {what}", hint=hint)


# XGBoost ----------------------------------------------------------------------------------------------------------------------


# Thresholds are numbers of the training data. Behind a scaler, these are rounded another way than in training, and would go another
# way than they did: so thresholds are a little less there.
_STEPS = 2.0**-21


def _logit(p: Array) -> Array:
    return np.asarray(-np.log(np.float32(1) / p - np.float32(1)))


def _same(p: Array) -> Array:
    return p


# Objective: the link of predictions, the inverse that makes a sum of the base score, and what a booster without a class predicts.
XGBOOST: dict[str, tuple[str, Callable[[Array], Array], str]] = {
    "binary:logistic": ("logistic", _logit, "classes"),
    "reg:logistic": ("logistic", _logit, "numbers"),
    "binary:logitraw": ("identity", _same, "numbers"),
    "binary:hinge": ("sign", _same, "numbers"),
    "multi:softprob": ("softmax", _same, "classes"),
    "multi:softmax": ("softmax", _same, "classes"),
    **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie", "survival:cox", "survival:aft"), ("exp", np.log, "numbers")),
    **dict.fromkeys(
        ("reg:squarederror", "reg:squaredlogerror", "reg:pseudohubererror", "reg:absoluteerror", "reg:quantileerror",
         "rank:pairwise", "rank:ndcg", "rank:map"),
        ("identity", _same, "numbers"),
    ),
}  # fmt: skip


def _xgboost(model: Any, behind: bool) -> tuple[Sums, str]:
    booster = model.get_booster() if hasattr(model, "get_booster") else model
    learner = json.loads(booster.save_raw("json"))["learner"]
    objective = learner["objective"]["name"]
    if objective not in XGBOOST:
        raise _refused(model, f"with `objective={objective!r}` is not supported", _known(XGBOOST))
    link, inverse, kind = XGBOOST[objective]
    if hasattr(model, "predict_proba"):
        kind = "classes"
    settings, inner = learner["learner_model_param"], learner["gradient_booster"]
    features = int(settings["num_feature"])
    targets = max(int(settings["num_class"]), int(settings.get("num_target", 1)), 1)
    scale = np.ones(0, np.float32)
    if "gbtree" in inner:  # `dart`
        scale, inner = np.array(inner["weight_drop"], np.float32), inner["gbtree"]
    forest = inner["model"]
    targets = max([targets, *(n + 1 for n in forest.get("tree_info", ()))])
    score = [float(one) for one in str(settings["base_score"]).strip("[]").split(",")]
    with np.errstate(divide="ignore"):
        base = np.asarray(inverse(np.array(score * (targets // len(score)), np.float32)), np.float32)
    given = getattr(model, "missing", None)
    missing = None if given is None or np.isnan(given) else Missing(float(given))
    if int(settings["num_class"]) == 0 and targets > 1 and kind == "classes":
        kind = "labels"
    if "weights" in forest:  # `gblinear`
        weights = np.array(forest["weights"], np.float32).reshape(-1, targets)
        base = base[:1]  # XGBoost adds the first of them to all targets
        return Sums(features, targets, weights[:-1], link, tuple((weights[-1] + base).tolist()), missing=missing), kind
    trees = _xgboost_trees(model, forest, scale, base, _STEPS if behind else 0.0)
    return Sums(features, targets, trees, link, missing=missing), kind


def _xgboost_trees(model: Any, forest: dict[str, Any], scale: Array, base: Array, steps: float) -> Trees:
    made, started = Trees(), set[int]()
    count = len(forest["trees"])
    best = getattr(model, "best_iteration", None) if hasattr(model, "get_booster") and _stopped(model) else None
    if best is not None:  # of early stopping: the interface of scikit-learn predicts with the best trees alone
        count = forest["iteration_indptr"][best + 1]
    for n, (tree, target) in enumerate(zip(forest["trees"][:count], forest["tree_info"], strict=False)):
        if int(tree["tree_param"]["size_leaf_vector"]) > 1:
            what = "with `multi_strategy='multi_output_tree'` is not supported"
            raise _refused(model, what, "train it with `multi_strategy='one_output_per_tree'`")
        weights = np.array(tree["split_conditions"], np.float32)
        if len(scale):
            weights = np.where(np.array(tree["left_children"]) < 0, weights * scale[n], weights)
        if target not in started:
            weights = np.where(np.array(tree["left_children"]) < 0, weights + base[target], weights)
        started.add(target)
        if steps:
            weights = np.where(np.array(tree["left_children"]) < 0, weights, weights - steps * np.maximum(np.abs(weights), 1))
        made.root(_xgboost_tree(made, tree, target, weights))
    for target in range(len(base)):
        if target not in started:
            made.root(made.leaf(target, float(base[target])))
    return made


def _stopped(model: Any) -> bool:
    return model.get_booster().attr("best_iteration") is not None


def _xgboost_tree(made: Trees, tree: dict[str, Any], target: int, values: Array) -> int:
    left, right, feature, default = (tree[name] for name in ("left_children", "right_children", "split_indices", "default_left"))
    ends = np.cumsum([0, *tree["categories_sizes"]])
    chosen = {node: tree["categories"][ends[n] : ends[n + 1]] for n, node in enumerate(tree["categories_nodes"])}
    places: dict[int, int] = {}
    for n in _children_first(0, lambda n: () if left[n] < 0 else (left[n], right[n])):
        value = float(values[n])
        if left[n] < 0:
            places[n] = made.leaf(target, value)
        elif n in chosen:  # these go right
            places[n] = made.among(feature[n], chosen[n], places[right[n]], places[left[n]], not default[n])
        else:
            places[n] = made.split(BELOW, feature[n], value, places[left[n]], places[right[n]], bool(default[n]))
    return places[0]


def _children_first(root: Any, children: Callable[[Any], tuple[Any, ...]]) -> Iterator[Any]:
    order: list[Any] = []
    pending = [root]
    while pending:
        order.append(pending.pop())
        pending += children(order[-1])
    yield from reversed(order)


def _known(table: dict[str, Any]) -> str:
    return "supported objectives: " + ", ".join(quoted(name) for name in table)


# LightGBM ---------------------------------------------------------------------------------------------------------------------

# The first word of the objective: the link, and what a booster without a class predicts.
LIGHTGBM: dict[str, tuple[str, str]] = {
    "binary": ("logistic", "classes"),
    "multiclass": ("softmax", "classes"),
    "multiclassova": ("logistic", "classes"),
    "cross_entropy": ("logistic", "numbers"),
    "cross_entropy_lambda": ("log1p exp", "numbers"),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), ("exp", "numbers")),
    **dict.fromkeys(
        ("regression", "regression_l1", "huber", "fair", "quantile", "mape", "lambdarank", "rank_xendcg"), ("identity", "numbers")
    ),
}
_ZERO = 1e-35  # numbers up to this are zeros


def _lightgbm(model: Any) -> tuple[Sums, str]:
    booster = getattr(model, "booster_", model)
    told = booster.dump_model()
    objective, *settings = told.get("objective", "custom").split() or ["custom"]
    if objective not in LIGHTGBM:
        raise _refused(model, f"with `objective={objective!r}` is not supported", _known(LIGHTGBM))
    link, kind = LIGHTGBM[objective]
    if hasattr(model, "predict_proba"):
        kind = "classes"
    given = dict(one.split(":", 1) for one in settings if ":" in one)
    factor = float(given.get("sigmoid", 1))
    targets = int(told["num_tree_per_iteration"])
    if "sqrt" in settings:
        link = "signed square"
    if told.get("average_output"):  # `rf`
        factor /= max(1, len(told["tree_info"]) // targets)
    made = Trees()
    zeros: dict[int, bool] = {}  # by feature: does a zero count as missing?
    for n, tree in enumerate(told["tree_info"]):
        made.root(_lightgbm_tree(model, made, tree["tree_structure"], n % targets, zeros))
    features = int(told["max_feature_idx"]) + 1
    columns = tuple(feature for feature in range(features) if zeros.get(feature))
    return Sums(features, targets, made, link, factor=factor, missing=Missing(0.0, _ZERO, columns) if columns else None), kind


def _lightgbm_tree(model: Any, made: Trees, root: dict[str, Any], target: int, zeros: dict[int, bool]) -> int:
    places: dict[int, int] = {}

    def children(node: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        return (node["left_child"], node["right_child"]) if "left_child" in node else ()

    for node in _children_first(root, children):
        if not children(node):
            if "leaf_coeff" in node:
                raise _refused(model, "with `linear_tree=True` is not supported: leaves are sums of features", "train it without")
            places[id(node)] = made.leaf(target, float(node["leaf_value"]))
        else:
            yes, no = (places[id(child)] for child in children(node))
            feature, kind = int(node["split_feature"]), node["missing_type"]
            if zeros.setdefault(feature, kind == "Zero") != (kind == "Zero"):
                raise _refused(model, f"whose trees take zeros of feature {feature} for missing and for numbers is not supported")
            places[id(node)] = _lightgbm_split(made, node, feature, yes, no)
    return places[id(root)]


def _lightgbm_split(made: Trees, node: dict[str, Any], feature: int, yes: int, no: int) -> int:
    if node["decision_type"] == "==":
        return made.among(feature, [int(one) for one in str(node["threshold"]).split("||")], yes, no, False)
    limit = float(node["threshold"])
    missing = limit >= 0 if node["missing_type"] == "None" else bool(node["default_left"])  # "None": as a zero
    return made.split(AT_MOST, feature, below(limit), yes, no, missing)
