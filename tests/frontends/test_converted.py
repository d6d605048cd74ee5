"""Fitted objects that converters change: what is put back, and what is refused because it would be another model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import compose, ensemble, linear_model, neighbors, neural_network, preprocessing, tree
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from frontends.test_sklearn import data, holes, results
from intaglio.errors import ModelError
from intaglio.frontends.objects import save_object
from intaglio.frontends.onnx import load
from intaglio.ir.strings import encoded
from intaglio.ops.evaluate import evaluate_graph

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("skl2onnx") is None, reason="skl2onnx is not installed"),
    pytest.mark.filterwarnings("ignore"),
]
TREES: list[Any] = [
    tree.DecisionTreeClassifier(max_depth=5, random_state=0),
    ensemble.RandomForestClassifier(9, random_state=0),
    ensemble.ExtraTreesClassifier(9, random_state=0),
    tree.DecisionTreeRegressor(max_depth=5, random_state=0),
    ensemble.RandomForestRegressor(9, random_state=0),
]


@pytest.mark.parametrize("model", TREES, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("scaled", [False, True])
def test_missing_values_go_where_they_went(model: Any, scaled: bool, tmp_path: Path) -> None:
    x, y = data(3)
    x = holes(x)
    fitted = (make_pipeline(preprocessing.StandardScaler(), model) if scaled else model).fit(x, y)
    found = next(iter(results(fitted, x, tmp_path).values()))
    np.testing.assert_allclose(found.reshape(-1), fitted.predict(x), rtol=0, atol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("trees", [20, 50])
def test_classes_that_are_level_are_the_first_of_them(trees: int, classes: int, tmp_path: Path) -> None:
    x, y = data(classes)
    model = ensemble.ExtraTreesClassifier(trees, random_state=0, max_features=1).fit(x[:300], y[:300])
    scores = np.sort(model.predict_proba(x), axis=1)
    assert (scores[:, -1] == scores[:, -2]).sum() > 2
    found = results(model, x, tmp_path)
    np.testing.assert_array_equal(found["label"], model.predict(x))
    np.testing.assert_allclose(found["probabilities"], model.predict_proba(x), rtol=0, atol=2e-5)
    assert found["probabilities"].min() >= 0


@pytest.mark.parametrize("settings", [{}, {"max_features": 0.5}, {"contamination": 0.1}, {"max_samples": 1}], ids=str)
def test_an_isolation_forest_is_one_ensemble(settings: dict[str, Any], tmp_path: Path) -> None:
    x, _ = data(2)
    x[:20] *= 4
    model = ensemble.IsolationForest(n_estimators=25, random_state=0, **settings).fit(x)
    found = results(model, x, tmp_path)
    np.testing.assert_allclose(found["scores"].reshape(-1), model.decision_function(x), rtol=0, atol=1e-6)
    clear = np.abs(model.decision_function(x)) > 1e-6
    np.testing.assert_array_equal(found["label"].reshape(-1)[clear], model.predict(x)[clear])


def multilabel(y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.stack([y > 0, y > 1], axis=1).astype(int)


OTHERS: dict[str, tuple[Any, str]] = {
    "weights by distance": (neighbors.KNeighborsClassifier(weights="distance"), "`predict` differs"),
    "largest of absolute values": (preprocessing.Normalizer("max"), "`transform` differs"),
    "another loss": (ensemble.HistGradientBoostingRegressor(loss="poisson", max_iter=10), "`predict` differs"),
    "several labels": (neural_network.MLPClassifier((4,), max_iter=5), r"gives \[512, 2\], the converted model \[512, 4\]"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_model_is_refused(name: str, tmp_path: Path) -> None:
    model, told = OTHERS[name]
    x, y = data(3)
    model.fit(x, multilabel(y) if name == "several labels" else y)
    with pytest.raises(ModelError, match=told) as caught:
        save_object(model, (x,), tmp_path)
    assert "converts the model to something else" in caught.value.message
    assert "such as categories" in caught.value.hint


def test_missing_values_of_the_example_are_refused_where_they_go_another_way(tmp_path: Path) -> None:
    x, y = data(3)
    model = ensemble.RandomForestClassifier(5, random_state=0).fit(holes(x), multilabel(y))
    with pytest.raises(ModelError, match=r"with missing values|of the example"):
        save_object(model, (holes(x),), tmp_path)
    notes: list[str] = []
    save_object(model, (x,), tmp_path, notes.append)
    assert any("rows with missing values give other results" in note for note in notes)


def test_categories_of_the_example_stay_categories(tmp_path: Path) -> None:
    """Numbers that are no category would be told apart as no user's are."""
    x = np.random.default_rng(0).integers(0, 4, (60, 3)).astype(np.float32)
    notes: list[str] = []
    save_object(preprocessing.OneHotEncoder(handle_unknown="ignore").fit(x), (x,), tmp_path, notes.append)


CITIES = np.array([["Rome", "x"], ["Oslo", "y"], ["Bern", "x"], ["Oslo", "x"]] * 10, dtype=object)


@pytest.mark.parametrize("kind", [object, str])
def test_a_table_of_strings_is_an_input_of_strings(kind: type, tmp_path: Path) -> None:
    y = np.arange(len(CITIES)) % 4 // 2
    model = make_pipeline(preprocessing.OneHotEncoder(handle_unknown="ignore"), tree.DecisionTreeClassifier()).fit(CITIES, y)
    graph, _ = load(save_object(model, (CITIES[:4].astype(kind),), tmp_path))
    (given,) = graph.inputs
    found = evaluate_graph(graph, {given.name: encoded(CITIES[:4].astype(str), given.type.shape[-1])})
    np.testing.assert_array_equal(found[graph.outputs[0].name], model.predict(CITIES[:4]))


def test_a_table_with_names_has_an_input_for_each_column(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    x, y = data(2)
    table = pandas.DataFrame({"a": x[:, 0], "long name": x[:, 1], "city": CITIES[:, 0].repeat(25)})
    parts = [("n", preprocessing.StandardScaler(), ["a", "long name"]), ("c", preprocessing.OneHotEncoder(), ["city"])]
    model = make_pipeline(compose.ColumnTransformer(parts), tree.DecisionTreeClassifier(max_depth=4)).fit(table, y)
    graph, _ = load(save_object(model, (table[:4],), tmp_path))
    assert [value.name for value in graph.inputs] == ["a", "long_name", "city"]
    columns = [*(table[name][:4].to_numpy().reshape(4, 1) for name in ("a", "long name"))]
    columns.append(encoded(table["city"][:4].to_numpy(str).reshape(4, 1), graph.inputs[2].type.shape[-1]))
    found = evaluate_graph(graph, {value.name: array for value, array in zip(graph.inputs, columns, strict=True)})
    np.testing.assert_array_equal(found[graph.outputs[0].name], model.predict(table[:4]))


TEXTS = ["red green blue", "Blue blue", "green tea, and red wine", "tea time", "wine and blue"] * 4


@pytest.mark.parametrize("kind", [list, np.array])
def test_texts_are_counted_as_the_library_counts_them(kind: Any, tmp_path: Path) -> None:
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), linear_model.LogisticRegression()).fit(TEXTS, [0, 1, 0, 1, 1] * 4)
    graph, _ = load(save_object(model, (kind(TEXTS[:5]),), tmp_path))
    (given,) = graph.inputs
    found = evaluate_graph(graph, {given.name: encoded(np.array(TEXTS[:5]).reshape(-1, 1), given.type.shape[-1])})
    np.testing.assert_array_equal(found[graph.outputs[0].name], model.predict(TEXTS[:5]))
    np.testing.assert_allclose(found[graph.outputs[1].name], model.predict_proba(TEXTS[:5]), rtol=0, atol=1e-5)


def test_words_of_one_letter_between_others_are_refused(tmp_path: Path) -> None:
    """scikit-learn leaves them out before it makes pairs of words; the converter does not."""
    texts = [text.replace("and", "a") for text in TEXTS]
    model = make_pipeline(TfidfVectorizer(ngram_range=(1, 2)), linear_model.LogisticRegression()).fit(texts, [0, 1, 0, 1, 1] * 4)
    with pytest.raises(ModelError, match="`predict_proba` differs"):
        save_object(model, (texts[:5],), tmp_path)


def test_a_table_of_mixed_objects_is_refused(tmp_path: Path) -> None:
    model = preprocessing.OneHotEncoder().fit(CITIES)
    with pytest.raises(ModelError, match=r"does not convert the model|something else|other rows"):
        save_object(model, (np.array([["Rome", 1.0]], dtype=object),), tmp_path)


def test_another_type_of_the_example_is_noted(tmp_path: Path) -> None:
    x, y = data(2)
    notes: list[str] = []
    save_object(tree.DecisionTreeClassifier(max_depth=2).fit(x, y), (x.astype(np.float64),), tmp_path, notes.append)
    assert any('`X.astype("float32")`, not float64' in note for note in notes)
