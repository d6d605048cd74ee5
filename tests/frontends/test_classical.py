"""Linear models, support vector machines, scalers and encoders of ai.onnx.ml against ONNX Runtime."""

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
from intaglio.ops.evaluate import evaluate_graph
from support.onnx_models import saved
from support.tree_models import ml_model

F = np.float32
RNG = np.random.default_rng(17)


def numbers(*shape: int) -> list[float]:
    return [float(v) for v in RNG.standard_normal(shape).astype(F).reshape(-1)]


X = RNG.standard_normal((30, 5)).astype(F)
HOLES = np.where(RNG.random((30, 5)) < 0.2, F(np.nan), X)
WHOLE = RNG.integers(0, 4, (30, 5)).astype(np.int64)


def machine(kind: str, classes: int, transform: str = "NONE", platt: bool = False) -> dict[str, Any]:
    sizes = [4, 6, 3][:classes]
    pairs = classes * (classes - 1) // 2
    platts = {"prob_a": [-abs(v) - 0.5 for v in numbers(pairs)], "prob_b": numbers(pairs)} if platt else {}
    return {
        "classlabels_ints": [7, 4, 9][:classes], "vectors_per_class": sizes, "kernel_type": kind, "rho": numbers(pairs),
        "kernel_params": [0.3, 0.5, 3.0], "support_vectors": numbers(sum(sizes), 5), "post_transform": transform,
        "coefficients": numbers(classes - 1, sum(sizes)), **platts,
    }  # fmt: skip


def regressor(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kernel_type": kind, "kernel_params": [0.3, 0.5, 2.0], "n_supports": 7, "support_vectors": numbers(7, 5),
            "coefficients": numbers(7), "rho": [0.25], **fields}  # fmt: skip


def linear(classes: int, rows: int, transform: str) -> dict[str, Any]:
    return {"coefficients": numbers(rows, 5), "intercepts": numbers(rows), "classlabels_ints": [5, 3, 8][:classes],
            "post_transform": transform}  # fmt: skip


KINDS = ("LINEAR", "POLY", "RBF", "SIGMOID")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
# Operator, features, attributes, outputs.
CASES: dict[str, tuple[str, Array, dict[str, Any], int]] = {
    "LinearRegressor": ("LinearRegressor", X, {"coefficients": numbers(5), "intercepts": [0.5]}, 1),
    "LinearRegressor of 3": ("LinearRegressor", X, {"coefficients": numbers(3, 5), "intercepts": numbers(3), "targets": 3}, 1),
    **{
        f"LinearClassifier of {n} by {rows} {t}": ("LinearClassifier", X, linear(n, rows, t), 2)
        for n, rows in ((3, 3), (2, 2), (2, 1))
        for t in (TRANSFORMS if rows > 1 else ("LOGISTIC",))
    },
    **{f"SVMRegressor {k}": ("SVMRegressor", X, regressor(k), 1) for k in KINDS},
    "SVMRegressor of one class": ("SVMRegressor", X, regressor("RBF", one_class=1), 1),
    **{f"SVMClassifier {k} of {n}": ("SVMClassifier", X, machine(k, n), 2) for k in KINDS for n in (2, 3)},
    **{f"SVMClassifier with Platt's numbers of {n}": ("SVMClassifier", X, machine("RBF", n, platt=True), 2) for n in (2, 3)},
    "Scaler": ("Scaler", X, {"offset": numbers(5), "scale": numbers(5)}, 1),
    "Scaler of whole numbers by one": ("Scaler", WHOLE, {"offset": [1.0], "scale": [0.25]}, 1),
    **{f"Normalizer {n}": ("Normalizer", np.concatenate([X, np.zeros((1, 5), F)]), {"norm": n}, 1) for n in ("MAX", "L1", "L2")},
    "Binarizer": ("Binarizer", X, {"threshold": 0.25}, 1),
    "Imputer": ("Imputer", HOLES, {"imputed_value_floats": numbers(5), "replaced_value_float": float("nan")}, 1),
    "Imputer by one": ("Imputer", HOLES, {"imputed_value_floats": [2.0], "replaced_value_float": float("nan")}, 1),
    "Imputer of whole numbers": ("Imputer", WHOLE, {"imputed_value_int64s": [9], "replaced_value_int64": 2}, 1),
    "OneHotEncoder": ("OneHotEncoder", WHOLE[:, 0], {"cats_int64s": [0, 2, 3], "zeros": 1}, 1),
    "OneHotEncoder of floats": ("OneHotEncoder", WHOLE[:, :1].astype(F), {"cats_int64s": [0, 1, 2, 3], "zeros": 0}, 1),
    "LabelEncoder": ("LabelEncoder", WHOLE, {"keys_int64s": [0, 2, 3], "values_floats": [0.5, 1.5, -2.0], "default_float": 9.0}, 1),
    "LabelEncoder of floats": (
        "LabelEncoder", HOLES, {"keys_floats": [float(X[0, 0]), float("nan")], "values_int64s": [4, 5], "default_int64": 6}, 1
    ),
    "FeatureVectorizer": ("FeatureVectorizer", X, {"inputdimensions": [5]}, 1),
}  # fmt: skip


def both(proto: Any, x: Array, folder: Path) -> tuple[list[Array], list[Array]]:
    path = saved(proto, folder)
    wanted = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    graph, _ = load(path)
    results = evaluate_graph(graph, {graph.inputs[0].name: x})
    return wanted, [results[v.name] for v in graph.outputs]


@pytest.mark.parametrize("name", CASES)
def test_the_result_is_that_of_onnx_runtime(name: str, tmp_path: Path) -> None:
    op, x, fields, outputs = CASES[name]
    wanted, results = both(ml_model(op, x, ["y", "z"][:outputs], 4 if op == "LabelEncoder" else 1, **fields), x, tmp_path)
    for result, want in zip(results, wanted, strict=True):
        assert result.shape == want.shape
        if want.dtype.kind == "i":
            np.testing.assert_array_equal(result, want)
        else:
            np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-5)


def test_columns_are_taken_by_number(tmp_path: Path) -> None:
    proto = ml_model("ArrayFeatureExtractor", X, ["y"])
    proto.graph.node[0].input.append("columns")
    proto.graph.initializer.append(numpy_helper.from_array(np.array([3, 0], np.int64), "columns"))
    wanted, results = both(proto, X, tmp_path)
    np.testing.assert_array_equal(results[0], wanted[0])


def test_one_score_of_two_classes_has_a_label_and_no_scores(tmp_path: Path) -> None:
    proto = ml_model("LinearClassifier", X, ["y", "z"], **linear(2, 1, "NONE"))
    with pytest.raises(ModelError, match="about which ONNX Runtime"):
        load(saved(proto, tmp_path))
    del proto.graph.output[1]
    wanted, results = both(proto, X, tmp_path)
    np.testing.assert_array_equal(results[0], wanted[0])


def test_a_map_of_probabilities_is_a_tensor_with_a_note(tmp_path: Path) -> None:
    graph, notes = load(saved(ml_model("ZipMap", X, ["y"], classlabels_strings=list("abcde")), tmp_path))
    assert graph.outputs[0].shape == X.shape
    assert "its columns are the classes `a`, `b`, `c`, `d`, `e`" in notes[-1]


def test_a_domain_that_the_file_does_not_declare_is_the_newest(tmp_path: Path) -> None:
    proto = ml_model("Normalizer", X, ["y"], norm="L2")
    del proto.opset_import[1]
    wanted, results = both(proto, X, tmp_path)
    np.testing.assert_allclose(results[0], wanted[0], rtol=1e-6)


REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "half of the categories": ("CategoryMapper", {"cats_int64s": [1], "cats_strings": ["a", "b"]}, "2 strings and 1 numbers"),
    "keys of another kind": ("LabelEncoder", {"keys_strings": ["a"], "values_int64s": [1]}, "its input is numbers"),
    "categories of another kind": ("OneHotEncoder", {"cats_strings": ["a"]}, "its input is numbers"),
    "an unknown norm": ("Normalizer", {"norm": "L3"}, "the norm `L3`"),
    "an unknown kernel": ("SVMRegressor", regressor("CUBIC"), "the kernel `CUBIC`"),
    "too few coefficients": ("LinearRegressor", {"coefficients": numbers(4)}, "weights for 4 features"),
    "too few scales": ("Scaler", {"offset": [0.0], "scale": [1.0, 2.0]}, "`scale` has 2 numbers for 5 columns"),
    "a machine without vectors": ("SVMClassifier", {"classlabels_ints": [0, 1]}, "without support vectors"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_computed_is_refused_with_a_hint(name: str, tmp_path: Path) -> None:
    op, fields, reason = REFUSED[name]
    with pytest.raises(ModelError, match=reason) as caught:
        load(saved(ml_model(op, X, ["y"], 2 if op == "LabelEncoder" else 1, **fields), tmp_path))
    assert caught.value.hint
