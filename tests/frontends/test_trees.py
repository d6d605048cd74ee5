"""Trees of ai.onnx.ml, from the file to the numbers, against ONNX Runtime: sums bit for bit, transforms within a bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import numpy_helper

from intaglio.errors import ModelError
from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.ops.evaluate import evaluate_graph
from support.onnx_models import saved
from support.tree_models import MODES, attributes, features, ml_model

BOUND = 1e-6
PROBIT_BOUND = 2e-4  # near 0, where its formula takes the difference of equal numbers


def both(proto: Any, x: Array, folder: Path) -> tuple[list[Array], list[Array]]:
    """The outputs of ONNX Runtime on one thread, and ours."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    path = saved(proto, folder)
    wanted = onnxruntime.InferenceSession(str(path), options).run(None, {"x": x})
    graph, _ = load(path)
    results = evaluate_graph(graph, {graph.inputs[0].name: x})
    return wanted, [results[v.name] for v in graph.outputs]


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("modes", [*[(m,) for m in MODES], MODES], ids=str)
@pytest.mark.parametrize("ids", [(0,), (0, 1, 2), None], ids=str)
def test_a_regressor_gives_the_bits_of_onnx_runtime(aggregate: str, modes: tuple[str, ...], ids: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x, targets = features(rng, 40), 1 if ids == (0,) else 3
    fields = attributes(rng, "target", ids, modes=modes, targets=targets) | {"aggregate_function": aggregate}
    for base in ({}, {"base_values": [1.5, -2.0, 0.25][:targets]}):
        proto = ml_model("TreeEnsembleRegressor", x, ["y"], n_targets=targets, **(fields | base))
        wanted, results = both(proto, x, tmp_path)
        np.testing.assert_array_equal(results[0], wanted[0])


def test_features_of_doubles_are_compared_as_doubles(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    x = features(rng, 40).astype(np.float64)
    fields = attributes(rng, "target", (0,))
    fields["nodes_values_as_tensor"] = numpy_helper.from_array(np.array(fields.pop("nodes_values")) + 1e-12)
    fields["target_weights_as_tensor"] = numpy_helper.from_array(np.array(fields.pop("target_weights")) / 3)
    wanted, results = both(ml_model("TreeEnsembleRegressor", x, ["y"], n_targets=1, **fields), x, tmp_path)
    np.testing.assert_array_equal(results[0], wanted[0])


TRANSFORMS = ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize(("ids", "classes"), [((0, 1, 2), 3), (None, 3), ((0,), 2), ((1,), 2)])
@pytest.mark.parametrize("positive", [True, False])
def test_a_classifier_gives_the_labels_and_scores_of_onnx_runtime(
    transform: str, ids: Any, classes: int, positive: bool, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    x = features(rng, 60)
    fields = attributes(rng, "class", ids, positive=positive) | {"classlabels_int64s": [7, 4, 9][:classes]}
    if ids == (0,):
        fields["base_values"] = [0.125]
    proto = ml_model("TreeEnsembleClassifier", x, ["label", "p"], post_transform=transform, **fields)
    if transform == "PROBIT" and ids == (0,):
        with pytest.raises(ModelError, match="PROBIT"):
            load(saved(proto, tmp_path))
        return
    wanted, results = both(proto, x, tmp_path)
    np.testing.assert_array_equal(results[0], wanted[0])
    bound = {"NONE": 0.0, "PROBIT": PROBIT_BOUND}.get(transform, BOUND)
    np.testing.assert_allclose(results[1], wanted[1], rtol=0, atol=bound)


def test_sets_of_version_5_are_chains_of_comparisons(tmp_path: Path) -> None:
    x = np.array([[1.0, 0.0], [2.0, 0.0], [5.0, 0.0], [3.0, 1.0], [3.0, -1.0], [np.nan, 0.0]], np.float32)
    fields = {
        "nodes_featureids": [0, 1], "nodes_truenodeids": [0, 1], "nodes_trueleafs": [1, 1], "nodes_falsenodeids": [1, 2],
        "nodes_falseleafs": [0, 1], "tree_roots": [0], "leaf_targetids": [0, 1, 0], "n_targets": 2,
        "nodes_modes": np.array([6, 3], np.uint8), "nodes_splits": np.array([0.0, 0.5], np.float32),
        "leaf_weights": np.array([10.0, 20.0, 30.0], np.float32), "membership_values": np.array([1.0, 5.0, np.nan], np.float32),
        "nodes_missing_value_tracks_true": [1, 0],
    }  # fmt: skip
    tensors = {n: numpy_helper.from_array(a, n) if isinstance(a, np.ndarray) else a for n, a in fields.items()}
    graph, _ = load(saved(ml_model("TreeEnsemble", x, ["y"], 5, **tensors), tmp_path))
    results = evaluate_graph(graph, {graph.inputs[0].name: x})[graph.outputs[0].name]
    np.testing.assert_array_equal(results, [[10, 0], [30, 0], [10, 0], [0, 20], [30, 0], [10, 0]])


def test_labels_that_are_strings_are_rows_of_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    x = features(rng, 4)
    fields = attributes(rng, "class", (0, 1, 2)) | {"classlabels_strings": ["a", "b", "long"]}
    graph = load(saved(ml_model("TreeEnsembleClassifier", x, ["label", "p"], **fields), tmp_path))[0]
    assert graph.output_names == ["label", "p"]
    assert str(graph.outputs[0].type.shape[-1]) == "4" and graph.outputs[0].dtype is DType.U8


def damaged(change: Any) -> Any:
    rng = np.random.default_rng(5)
    fields = attributes(rng, "target", (0,), modes=MODES[:1]) | {"n_targets": 1}
    change(fields)
    return ml_model("TreeEnsembleRegressor", features(rng, 4), ["y"], **fields)


def _cycle(fields: Any) -> None:
    fields["nodes_truenodeids"][1] = 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (_cycle, "a tree has a cycle"),
        (lambda f: f["nodes_featureids"].__setitem__(0, 77), "the trees read feature 77, and the input has 6 columns"),
        (lambda f: f["nodes_falsenodeids"].__setitem__(0, 777), "has a child that is not there"),
        (lambda f: f["nodes_modes"].pop(), "have different lengths"),
        (lambda f: f["target_ids"].__setitem__(0, 5), "a leaf names a target that the model does not have"),
        (lambda f: f["target_nodeids"].__setitem__(0, 555), "which is not there"),
        (lambda f: f.update(base_values=[1.0, 2.0]), "2 base values for 1 targets"),
        (lambda f: f.update(post_transform="LOGISTIC"), "ONNX Runtime leaves it out, ONNX does not"),
        (lambda f: f.update(aggregate_function="MODE"), "the aggregate function `MODE`"),
    ],
)
def test_trees_that_do_not_fit_together_are_refused(change: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=reason):
        load(saved(damaged(change), tmp_path))


def test_two_classes_that_both_have_weights_have_scores_and_no_label(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    x = features(rng, 9)
    proto = ml_model("TreeEnsembleClassifier", x, ["label", "p"], classlabels_int64s=[0, 1], **attributes(rng, "class", (0, 1)))
    with pytest.raises(ModelError, match="about which ONNX Runtime and ONNX differ"):
        load(saved(proto, tmp_path))
    del proto.graph.output[0]
    wanted, results = both(proto, x, tmp_path)
    np.testing.assert_array_equal(results[0], wanted[0])


def test_two_classes_with_opposite_weights_have_the_label_of_onnx_runtime(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    x = features(rng, 60)
    fields = attributes(rng, "class", (0, 1))
    fields["class_weights"] = [w if n % 2 else -fields["class_weights"][n + 1] for n, w in enumerate(fields["class_weights"])]
    wanted, results = both(ml_model("TreeEnsembleClassifier", x, ["label", "p"], classlabels_int64s=[0, 1], **fields), x, tmp_path)
    np.testing.assert_array_equal(results[0], wanted[0])
    np.testing.assert_array_equal(results[1], wanted[1])


def test_a_base_value_of_a_target_that_no_leaf_may_name_is_refused(tmp_path: Path) -> None:
    """ONNX Runtime gives 0 there."""
    rng = np.random.default_rng(3)
    x = features(rng, 8)
    for base, right in (([1.0, 0.0], True), ([1.0, 2.0], False)):
        proto = ml_model("TreeEnsembleRegressor", x, ["y"], n_targets=2, **attributes(rng, "target", (0,)), base_values=base)
        if right:
            wanted, results = both(proto, x, tmp_path)
            np.testing.assert_array_equal(results[0], wanted[0])
        else:
            with pytest.raises(ModelError, match="base values of targets that no leaf may name"):
                load(saved(proto, tmp_path))
