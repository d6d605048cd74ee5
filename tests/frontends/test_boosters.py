"""XGBoost and LightGBM objects, read from their own JSON: predictions as the library gives them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import VotingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from frontends.test_sklearn import data, holes, results
from intaglio.errors import ModelError
from intaglio.frontends.objects import save_object
from intaglio.ir.graph import Array

xgboost = pytest.importorskip("xgboost", reason="xgboost is not installed")
lightgbm = pytest.importorskip("lightgbm", reason="lightgbm is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")
X, Y = holes(data(3)[0])[:400], data(3)[1][:400]
NUMBERS = np.stack([data(3)[0][:400, 0] * 2 + Y, data(3)[0][:400, 2] ** 2], axis=1)
POSITIVE = np.abs(NUMBERS[:, 0]) + 0.01
CODES = np.concatenate([np.arange(400)[:, None] % 7, X[:, 1:]], axis=1).astype(np.float32)  # a category, then numbers
ZEROS = np.where(np.random.default_rng(1).random(X.shape) < 0.1, np.float32(0), np.nan_to_num(X))
LABELS = np.stack([Y > 0, Y > 1], axis=1).astype(int)
QUERIES = np.arange(400) // 10


def xgb(kind: str, **settings: Any) -> Any:
    return getattr(xgboost, f"XGB{kind}")(**{"n_estimators": 8, "max_depth": 4, "n_jobs": 1, **settings})


def lgb(kind: str, **settings: Any) -> Any:
    return getattr(lightgbm, f"LGBM{kind}")(**{"n_estimators": 8, "num_leaves": 9, "n_jobs": 1, "verbose": -1, **settings})


# Model, features, target, arguments of `fit`. Sums of XGBoost are the same bits: f32 in its order.
SUMS: dict[str, tuple[Any, Array, Array, dict[str, Any]]] = {
    "two targets": (xgb("Regressor"), X, NUMBERS, {}),
    "quantiles": (xgb("Regressor", objective="reg:quantileerror", quantile_alpha=[0.1, 0.9]), X, POSITIVE, {}),
    "a forest": (xgb("RFRegressor", subsample=0.5), X, POSITIVE, {}),
    "a ranker": (xgb("Ranker"), X, Y, {"qid": QUERIES}),
    "raw scores": (xgb("Classifier", objective="binary:logitraw"), X, Y > 0, {}),
    "a number for missing": (xgb("Regressor", missing=-9.0), np.nan_to_num(X, nan=-9), POSITIVE, {}),
    "no tree that splits": (xgb("Regressor", gamma=1e9), X, POSITIVE, {}),
    "stopped early": (
        xgb("Regressor", early_stopping_rounds=2, learning_rate=1.0, n_estimators=30), X, POSITIVE,
        {"eval_set": [(X[:99], POSITIVE[::-1][:99])], "verbose": False},
    ),
    "categories": (
        xgb("Regressor", enable_categorical=True, feature_types=["c"] + ["q"] * 9), CODES, POSITIVE + CODES[:, 0] % 3, {}
    ),
}  # fmt: skip
OTHERS: dict[str, tuple[Any, Array, Array, dict[str, Any]]] = {
    "xgboost: dropped trees": (xgb("Regressor", booster="dart", rate_drop=0.5), X, POSITIVE, {}),
    "xgboost: dropped trees of three classes": (xgb("Classifier", booster="dart", rate_drop=0.5), X, Y, {}),
    "xgboost: linear": (xgb("Regressor", booster="gblinear"), X, POSITIVE, {}),
    "xgboost: linear of three classes": (xgb("Classifier", booster="gblinear"), X, Y, {}),
    "xgboost: forests of two classes": (xgb("Classifier", num_parallel_tree=3, subsample=0.5), X, Y > 0, {}),
    "xgboost: forests of three classes": (xgb("Classifier", num_parallel_tree=3, subsample=0.5), X, Y, {}),
    "xgboost: softmax": (xgb("Classifier", objective="multi:softmax"), X, Y, {}),
    "xgboost: several labels": (xgb("Classifier"), X, LABELS, {}),
    "xgboost: hinge": (xgb("Classifier", objective="binary:hinge"), X, Y > 0, {}),
    **{f"xgboost: {o}": (xgb("Regressor", objective=o), X, POSITIVE, {}) for o in ("count:poisson", "reg:gamma", "reg:tweedie")},
    "xgboost: reg:logistic": (xgb("Regressor", objective="reg:logistic"), X, POSITIVE / POSITIVE.max(), {}),
    "lightgbm: forest": (lgb("Regressor", boosting_type="rf", bagging_freq=1, bagging_fraction=0.5), X, POSITIVE, {}),
    "lightgbm: forest of classes": (lgb("Classifier", boosting_type="rf", bagging_freq=1, bagging_fraction=0.5), X, Y, {}),
    "lightgbm: dropped trees": (lgb("Regressor", boosting_type="dart"), X, POSITIVE, {}),
    "lightgbm: one for each class": (lgb("Classifier", objective="multiclassova", sigmoid=2.0), X, Y, {}),
    "lightgbm: cross entropy": (lgb("Regressor", objective="cross_entropy"), X, POSITIVE / POSITIVE.max(), {}),
    "lightgbm: its other form": (lgb("Regressor", objective="cross_entropy_lambda"), X, POSITIVE / POSITIVE.max(), {}),
    "lightgbm: roots": (lgb("Regressor", reg_sqrt=True), X, POSITIVE, {}),
    "lightgbm: zeros are missing": (lgb("Regressor", zero_as_missing=True), ZEROS, POSITIVE + 5 * (ZEROS[:, 0] == 0), {}),
    "lightgbm: nothing is missing": (lgb("Regressor", use_missing=False), X, POSITIVE, {}),
    "lightgbm: categories": (
        lgb("Regressor", min_data_per_group=5, cat_smooth=1), CODES, POSITIVE + 3 * np.isin(CODES[:, 0], [1, 4]),
        {"categorical_feature": [0]},
    ),
    "lightgbm: a ranker": (lgb("Ranker"), X, Y, {"group": [10] * 40}),
    "lightgbm: classes with other numbers": (lgb("Classifier"), X, Y * 2 + 3, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", SUMS)
def test_sums_are_the_same_bits(name: str, tmp_path: Path) -> None:
    model, x, y, more = SUMS[name]
    model.fit(x, y, **more)
    notes: list[str] = []
    found = next(iter(results(model, x, tmp_path, notes).values()))
    wanted = model.predict(x)
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)
    assert notes == []


@pytest.mark.parametrize("name", OTHERS)
def test_predictions_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    model, x, y, more = OTHERS[name]
    model.fit(x, y, **more)
    first, *others = results(model, x, tmp_path).values()
    if first.dtype.kind == "i":
        np.testing.assert_array_equal(first, model.predict(x))
        np.testing.assert_allclose(others[0], model.predict_proba(x), rtol=0, atol=1e-6)
    else:
        np.testing.assert_allclose(first.reshape(-1), model.predict(x), rtol=2e-6, atol=2e-6)


def test_a_booster_without_an_interface_has_all_trees(tmp_path: Path) -> None:
    booster = xgb("Regressor").fit(X, POSITIVE).get_booster()
    np.testing.assert_array_equal(results(booster, X, tmp_path)["variable"][:, 0], booster.predict(xgboost.DMatrix(X)))


def test_strings_are_numbers_of_classes(tmp_path: Path) -> None:
    notes: list[str] = []
    model = lgb("Classifier").fit(X, np.array(["ant", "bee", "cat"])[Y])
    found = results(model, X, tmp_path, notes)
    np.testing.assert_array_equal(model.classes_[found["label"]], model.predict(X))
    assert notes == ["labels are the index of the class: 0 `ant`, 1 `bee`, 2 `cat`"]


def test_a_table_with_names_is_one_input(tmp_path: Path) -> None:
    table = pytest.importorskip("pandas").DataFrame(X, columns=[f"column {n}" for n in range(10)])
    for model in (xgb("Regressor"), lgb("Regressor")):
        notes: list[str] = []
        model.fit(table, POSITIVE)
        save_object(model, (table,), tmp_path, notes.append)
        assert notes == []


@pytest.mark.parametrize("made", [xgb, lgb])
def test_a_booster_may_end_a_pipeline(made: Any, tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    model = make_pipeline(StandardScaler(), made("Classifier")).fit(X, Y)
    found = results(model, X, tmp_path)
    np.testing.assert_array_equal(found["label"], model.predict(X))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), rtol=0, atol=1e-5)


def test_a_search_for_a_booster_is_the_best_one(tmp_path: Path) -> None:
    model = GridSearchCV(xgb("Regressor"), {"max_depth": [3]}, cv=2).fit(X, POSITIVE)
    np.testing.assert_array_equal(results(model, X, tmp_path)["variable"][:, 0], model.predict(X))


def test_a_booster_inside_of_another_estimator_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("skl2onnx")
    model = VotingRegressor([("a", xgb("Regressor")), ("b", Ridge())]).fit(np.nan_to_num(X), POSITIVE)
    with pytest.raises(ModelError, match="no converter for `XGBRegressor` inside of `VotingRegressor`") as caught:
        save_object(model, (X,), tmp_path)
    assert "last step of a pipeline" in caught.value.hint


REFUSED: dict[str, tuple[Any, Array, str]] = {
    "leaves of vectors": (xgb("Regressor", multi_strategy="multi_output_tree", tree_method="hist"), NUMBERS, "`multi_strategy="),
    "linear trees": (lgb("Regressor", linear_tree=True), POSITIVE, "`linear_tree=True`"),
    "its own objective": (lgb("Regressor", objective=lambda a, b: (b - a, np.ones_like(a))), POSITIVE, "`objective='custom'`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_option_that_is_not_supported_is_named(name: str, tmp_path: Path) -> None:
    model, y, told = REFUSED[name]
    with pytest.raises(ModelError, match=told) as caught:
        save_object(model.fit(X, y), (X,), tmp_path)
    assert type(model).__name__ in caught.value.message
    assert caught.value.hint
