"""Fitted models of scikit-learn, XGBoost and LightGBM: classes and numbers as the library gives them, on 1,000 rows."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import cluster, ensemble, linear_model, mixture, naive_bayes, neighbors, neural_network, preprocessing, svm, tree
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import intaglio
from intaglio.errors import IntaglioError, ModelError, ToolError, UserError
from intaglio.frontends.objects import save_object
from intaglio.frontends.onnx import load
from intaglio.ir.graph import Array
from intaglio.ops.evaluate import evaluate_graph

ROWS = 1000
needs_skl2onnx = pytest.mark.skipif(importlib.util.find_spec("skl2onnx") is None, reason="skl2onnx is not installed")


def data(classes: int) -> tuple[Array, Array]:
    x, y = make_classification(ROWS, 10, n_informative=6, n_redundant=0, n_classes=classes, random_state=1)
    return x.astype(np.float32), y


def holes(x: Array) -> Array:
    return np.where(np.random.default_rng(0).random(x.shape) < 0.1, np.float32(np.nan), x)


def results(model: Any, x: Array, folder: Path, notes: list[str] | None = None) -> dict[str, Array]:
    path = save_object(model, (x,), folder, (notes if notes is not None else []).append)
    graph, _ = load(path)
    found = evaluate_graph(graph, {graph.inputs[0].name: x})
    return {name: found[value.name] for name, value in zip(graph.output_names, graph.outputs, strict=True)}


MODELS: dict[str, Any] = {
    "random forest": ensemble.RandomForestClassifier(20, max_depth=6, random_state=0),
    "extra trees": ensemble.ExtraTreesClassifier(20, max_depth=6, random_state=0),
    "gradient boosting": ensemble.GradientBoostingClassifier(n_estimators=20, random_state=0),
    "decision tree": tree.DecisionTreeClassifier(max_depth=6, random_state=0),
    "AdaBoost": ensemble.AdaBoostClassifier(n_estimators=3, random_state=0),
    "logistic regression": linear_model.LogisticRegression(),
    "linear SVC": svm.LinearSVC(random_state=0),
    "SVC": svm.SVC(),
    "SVC of polynomials": svm.SVC(kernel="poly"),
    "SVC of sigmoids": svm.SVC(kernel="sigmoid"),
    "perceptrons": neural_network.MLPClassifier((8,), max_iter=30, random_state=0),
    "naive Bayes": naive_bayes.GaussianNB(),
    "k nearest neighbours": neighbors.KNeighborsClassifier(3),
    "k-means": cluster.KMeans(4, n_init=1, random_state=0),
    "Gaussian mixture": mixture.GaussianMixture(2, random_state=0),
    "isolation forest": ensemble.IsolationForest(n_estimators=5, random_state=0),
    "vote": ensemble.VotingClassifier([("a", tree.DecisionTreeClassifier(max_depth=4, random_state=0)),
                                       ("b", linear_model.LogisticRegression())], voting="soft"),
    "scaled PCA": make_pipeline(preprocessing.StandardScaler(), PCA(4), linear_model.LogisticRegression()),
    "scaled SVC": make_pipeline(preprocessing.MinMaxScaler(), svm.SVC()),
    "bins": make_pipeline(preprocessing.KBinsDiscretizer(3, encode="onehot-dense"), linear_model.LogisticRegression()),
}  # fmt: skip
NO_PROBABILITIES = ("linear SVC", "SVC", "SVC of polynomials", "SVC of sigmoids", "k-means", "isolation forest", "scaled SVC")


@needs_skl2onnx
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_classes_and_probabilities_are_those_of_the_library(name: str, classes: int, tmp_path: Path) -> None:
    x, y = data(classes)
    model = MODELS[name].fit(x, y)
    found = list(results(model, x, tmp_path).values())
    np.testing.assert_array_equal(found[0].reshape(-1), model.predict(x))
    if name not in NO_PROBABILITIES:
        np.testing.assert_allclose(found[1], model.predict_proba(x), rtol=0, atol=1e-5)


REGRESSORS: dict[str, Any] = {
    "gradient boosting": ensemble.GradientBoostingRegressor(n_estimators=20, random_state=0),
    "imputed, normalised forest": make_pipeline(SimpleImputer(), preprocessing.Normalizer(), ensemble.RandomForestRegressor(9)),
    "scaled SVR": make_pipeline(preprocessing.RobustScaler(), svm.SVR()),
    "ridge": linear_model.Ridge(),
    "k nearest neighbours": neighbors.KNeighborsRegressor(3),
}


@needs_skl2onnx
@pytest.mark.parametrize("name", REGRESSORS)
def test_numbers_are_those_of_the_library(name: str, tmp_path: Path) -> None:
    x, y = data(3)
    model = REGRESSORS[name].fit(x, y)
    if name.startswith("imputed"):
        x = holes(x)
    found = next(iter(results(model, x, tmp_path).values()))
    np.testing.assert_allclose(found.reshape(-1), model.predict(x), rtol=0, atol=2e-5)


@needs_skl2onnx
def test_thresholds_are_met_exactly(tmp_path: Path) -> None:
    """Features that are thresholds, rounded to f32 and one unit above and below: each goes the way that it goes in the library."""
    x, y = data(3)
    model = tree.DecisionTreeClassifier(max_depth=8, random_state=0).fit(x, y)
    inner = model.tree_.feature >= 0
    tried = np.repeat(x[:1], 3 * int(inner.sum()), axis=0)
    for n, (feature, threshold) in enumerate(zip(model.tree_.feature[inner], model.tree_.threshold[inner], strict=True)):
        rounded = np.float32(threshold)
        ways = (np.nextafter(rounded, np.float32(-np.inf)), rounded, np.nextafter(rounded, np.float32(np.inf)))
        tried[3 * n : 3 * n + 3, feature] = ways
    np.testing.assert_array_equal(results(model, tried, tmp_path)["label"], model.predict(tried))


@needs_skl2onnx
@pytest.mark.parametrize("name", ["random forest", "logistic regression", "SVC"])
def test_classes_that_are_strings_become_their_index_with_a_note(name: str, tmp_path: Path) -> None:
    x, y = data(3)
    model = MODELS[name].fit(x, np.array(["ant", "bee", "cat"])[y])
    notes: list[str] = []
    found = results(model, x, tmp_path, notes)
    assert notes == ["labels are the index of the class: 0 `ant`, 1 `bee`, 2 `cat`"]
    np.testing.assert_array_equal(model.classes_[found["label"]], model.predict(x))


@pytest.mark.parametrize(("home", "name"), [("xgboost", "XGB"), ("lightgbm", "LGBM")])
def test_boosting_libraries_are_converted_too(home: str, name: str, tmp_path: Path) -> None:
    library = pytest.importorskip(home, reason=f"{home} is not installed")
    quiet = {"n_jobs": 1} | ({"verbose": -1} if home == "lightgbm" else {})
    for classes in (2, 3):
        x, y = data(classes)
        x = holes(x)
        model = getattr(library, f"{name}Classifier")(n_estimators=20, max_depth=4, **quiet).fit(x, y)
        found = results(model, x, tmp_path)
        np.testing.assert_array_equal(found["label"], model.predict(x))
        np.testing.assert_allclose(found["probabilities"], model.predict_proba(x), rtol=0, atol=1e-5)
    number = getattr(library, f"{name}Regressor")(n_estimators=20, max_depth=4, **quiet).fit(x, y)
    np.testing.assert_allclose(results(number, x, tmp_path)["variable"].reshape(-1), number.predict(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
def test_catboost_writes_onnx_itself(classes: int, tmp_path: Path) -> None:
    library = pytest.importorskip("catboost", reason="catboost is not installed")
    x, y = data(classes)
    settings = {"iterations": 20, "depth": 4, "verbose": 0, "allow_writing_files": False}
    model = library.CatBoostClassifier(**settings).fit(x, y)
    found = results(model, x, tmp_path)
    np.testing.assert_array_equal(found["label"], model.predict(x).reshape(-1))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(x), rtol=0, atol=1e-5)
    number = library.CatBoostRegressor(**settings).fit(x, y)
    np.testing.assert_allclose(results(number, x, tmp_path)["predictions"].reshape(-1), number.predict(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("loss", ["Poisson", "MultiClassOneVsAll", "MultiRMSE"])
def test_links_of_catboost(loss: str, tmp_path: Path) -> None:
    library = pytest.importorskip("catboost", reason="catboost is not installed")
    x, y = data(3)
    settings = {"iterations": 20, "depth": 4, "verbose": 0, "allow_writing_files": False, "loss_function": loss}
    if loss == "MultiRMSE":
        with pytest.raises(ModelError, match="`CatBoostRegressor` with several targets is not supported"):
            save_object(library.CatBoostRegressor(**settings).fit(x, np.stack([y, x[:, 0]], axis=1)), (x,), tmp_path)
    elif loss == "Poisson":
        number = library.CatBoostRegressor(**settings).fit(x, y)
        np.testing.assert_allclose(results(number, x, tmp_path)["predictions"].reshape(-1), number.predict(x), rtol=1e-5)
    else:
        model = library.CatBoostClassifier(**settings).fit(x, y)
        np.testing.assert_allclose(results(model, x, tmp_path)["probabilities"], model.predict_proba(x), rtol=0, atol=1e-5)


@needs_skl2onnx
def test_a_search_is_its_best_estimator(tmp_path: Path) -> None:
    x, y = data(2)
    model = GridSearchCV(linear_model.Ridge(), {"alpha": [1.0]}).fit(x, y)
    found = results(model, x, tmp_path)
    np.testing.assert_allclose(found["variable"][:, 0], model.predict(x), rtol=0, atol=1e-5)


@needs_skl2onnx
@pytest.mark.filterwarnings("ignore")
def test_a_pipeline_is_compiled_into_a_package_that_runs(tmp_path: Path) -> None:
    x, y = data(3)
    model = make_pipeline(preprocessing.StandardScaler(), ensemble.GradientBoostingClassifier(n_estimators=9, random_state=0))
    model.fit(x, y)
    package = intaglio.compile(model, example_inputs=(x,), output=tmp_path / "p", library_only=True)
    found = package.run({"in0": x})
    np.testing.assert_array_equal(found["label"], model.predict(x))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(x), rtol=0, atol=1e-5)
    one = intaglio.compile(model, output=tmp_path / "one", library_only=True)
    np.testing.assert_array_equal(one.run({"in0": x[:1]})["label"], model.predict(x[:1]))


# Mistakes -------------------------------------------------------------------------------------------------------------------


@needs_skl2onnx
def test_a_model_that_is_not_fitted_has_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not say how many features") as caught:
        save_object(svm.SVC(), None, tmp_path)
    assert "example_inputs=(X[:1],)" in caught.value.hint
    with pytest.raises(IntaglioError, match="`skl2onnx` does not convert the model") as refused:
        save_object(svm.SVC(), (np.zeros((1, 3), np.float32),), tmp_path)
    assert "has to be fitted" in refused.value.hint


def test_examples_that_are_no_table_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="one table of features"):
        save_object(svm.SVC(), (np.zeros(3),), tmp_path)


def test_without_the_converter_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(2)
    monkeypatch.setitem(sys.modules, "skl2onnx", None)
    with pytest.raises(ToolError, match="`skl2onnx` is needed") as caught:
        save_object(linear_model.LogisticRegression().fit(x, y), (x,), tmp_path)
    assert "'.[sklearn]'" in caught.value.hint


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    path = tmp_path / "model.pkl"
    path.write_bytes(b"\x80\x04cos\nsystem\n(S'touch pwned'\ntR.")
    with pytest.raises(IntaglioError, match=r"model.pkl` is a pickle") as caught:
        intaglio.compile(path, output=tmp_path / "p")
    assert "give the fitted object itself" in caught.value.hint


@needs_skl2onnx
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_an_example_of_whole_numbers_gives_an_input_of_them(dtype: str, tmp_path: Path) -> None:
    """And trees behind a scaler compare them as they are."""
    x, y = data(3)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    whole = np.clip(np.round(x * high / 4 + (low == 0) * high / 2), low, high).astype(dtype)
    forest = ensemble.RandomForestClassifier(8, max_depth=5, random_state=0)
    model = make_pipeline(preprocessing.StandardScaler(), forest).fit(whole, y)
    package = intaglio.compile(model, example_inputs=(whole[:200],), output=tmp_path / "out", name="whole")
    assert package.manifest.inputs[0].dtype == {"int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16"}[dtype]
    assert [layer.op for layer in package.manifest.layers] == ["tree_ensemble", "arg_reduce"]
    np.testing.assert_array_equal(package.run({"x": whole[:200]})["label"], model.predict(whole[:200]))
    assert package.validate().ok
