"""Estimators of scikit-learn that skl2onnx does not have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import covariance, linear_model, pipeline, preprocessing
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.multioutput import ClassifierChain, RegressorChain
from sklearn.neighbors import NearestCentroid

from frontends.test_sklearn import data, results
from intaglio.errors import ModelError
from intaglio.frontends.objects import save_object

pytest.importorskip("skl2onnx")
pytestmark = pytest.mark.filterwarnings("ignore")
X, Y = (part[:200] for part in data(3))
POSITIVE = np.abs(X)
RIDGE = linear_model.Ridge()


def target(**settings: Any) -> TransformedTargetRegressor:
    return TransformedTargetRegressor(linear_model.Ridge(), **settings)


MODELS: dict[str, Any] = {
    **{
        f"bins, {encode}": pipeline.make_pipeline(preprocessing.KBinsDiscretizer(4, encode=encode), RIDGE)
        for encode in ("onehot", "onehot-dense", "ordinal")
    },
    "bins of some columns": pipeline.make_pipeline(ColumnTransformer([("b", preprocessing.KBinsDiscretizer(3), [0, 2])]), RIDGE),
    **{f"kernel ridge, {kernel}": KernelRidge(kernel=kernel, alpha=0.5) for kernel in ("linear", "rbf", "poly")},
    **{
        f"{function.__name__} of features": pipeline.make_pipeline(preprocessing.FunctionTransformer(function), RIDGE)
        for function in (np.log1p, np.sqrt, np.square, np.expm1, np.log10, np.abs)
    },
    "a logarithm of the target": target(func=np.log1p, inverse_func=np.expm1),
    "a scaled target": target(transformer=preprocessing.StandardScaler()),
    "a target within limits": target(transformer=preprocessing.MinMaxScaler((-1, 3))),
    "a target in a pipeline": pipeline.make_pipeline(preprocessing.StandardScaler(), target(func=np.log, inverse_func=np.exp)),
}


@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_of_the_object(name: str, tmp_path: Path) -> None:
    model = MODELS[name].fit(POSITIVE, POSITIVE[:, 0] + Y + 1)
    notes: list[str] = []
    found = results(model, POSITIVE, tmp_path, notes)
    np.testing.assert_allclose(found["variable"][:, 0], model.predict(POSITIVE), rtol=1e-4, atol=1e-4)
    assert notes == []


def test_labels_follow_scores_where_probabilities_are_clipped(tmp_path: Path) -> None:
    x, y = data(3)
    model = linear_model.SGDClassifier(loss="modified_huber", random_state=0).fit(x, y)
    found = results(model, x, tmp_path)
    np.testing.assert_array_equal(found["label"], model.predict(x))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(x), rtol=0, atol=1e-5)


def test_an_envelope_is_a_distance(tmp_path: Path) -> None:
    model = covariance.EllipticEnvelope(random_state=0).fit(X[:, :4])
    found = results(model, X[:, :4], tmp_path)
    np.testing.assert_allclose(found["scores"].reshape(-1), model.decision_function(X[:, :4]), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(found["label"].reshape(-1), model.predict(X[:, :4]))


@pytest.mark.parametrize("settings", [{}, {"priors": "empirical"}, {"priors": [0.2, 0.3, 0.5]}], ids=str)
def test_centroids(settings: dict[str, Any], tmp_path: Path) -> None:
    model = NearestCentroid(**settings).fit(X, Y + 3)
    found = results(model, X, tmp_path)
    np.testing.assert_array_equal(found["label"], model.predict(X))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(X), rtol=0, atol=1e-5)


@pytest.mark.parametrize("order", [None, [2, 0, 1]])
def test_chains_of_regressors(order: Any, tmp_path: Path) -> None:
    model = RegressorChain(linear_model.Ridge(), order=order).fit(X[:, :5], X[:, 5:8])
    found = next(iter(results(model, X[:, :5], tmp_path).values()))
    np.testing.assert_allclose(found, model.predict(X[:, :5]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_chains_of_classifiers(method: str, tmp_path: Path) -> None:
    labels = np.stack([Y > 0, Y > 1, X[:, 0] > 0], axis=1).astype(int)
    model = ClassifierChain(linear_model.LogisticRegression(), chain_method=method, order=[1, 2, 0]).fit(X, labels)
    label, probabilities = results(model, X, tmp_path).values()
    np.testing.assert_array_equal(label, model.predict(X))
    np.testing.assert_allclose(probabilities, model.predict_proba(X), rtol=0, atol=1e-5)


REFUSED: dict[str, tuple[Any, str]] = {
    "its own function": (
        pipeline.make_pipeline(preprocessing.FunctionTransformer(lambda x: x + 1), RIDGE), "`FunctionTransformer` with"
    ),
    "another inverse": (target(func=np.log, inverse_func=lambda y: np.exp(y)), "`TransformedTargetRegressor` with"),
    "another transformer": (target(transformer=preprocessing.PowerTransformer()), "with `PowerTransformer` is not supported"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_other_functions_are_refused(name: str, tmp_path: Path) -> None:
    model, told = REFUSED[name]
    model.fit(POSITIVE, POSITIVE[:, 0] + 1)
    with pytest.raises(ModelError, match=told) as caught:
        save_object(model, (POSITIVE,), tmp_path)
    assert caught.value.hint
