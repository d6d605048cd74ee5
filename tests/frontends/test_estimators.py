"""What the user of an object is told: what differs, and which estimator or option is not supported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import compose, ensemble, impute, linear_model, multiclass, pipeline, preprocessing, svm
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.feature_selection import SelectKBest
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.manifold import Isomap

import intaglio
from frontends.test_sklearn import data, holes, results
from intaglio.errors import AnswerIsNo, ModelError, UserError
from intaglio.frontends import converted, estimators
from intaglio.frontends.converted import Wanted
from intaglio.frontends.objects import save_object
from intaglio.frontends.onnx import load
from intaglio.ir.strings import encoded
from intaglio.ops.evaluate import evaluate_graph

pytest.importorskip("skl2onnx")
pytestmark = pytest.mark.filterwarnings("ignore")
X, Y = data(3)
LINEAR = linear_model.LogisticRegression()

REFUSED: dict[str, tuple[Any, str]] = {
    "an indicator": (pipeline.make_pipeline(impute.SimpleImputer(add_indicator=True), LINEAR), "with `add_indicator=True`"),
    "neighbours of holes": (pipeline.make_pipeline(impute.KNNImputer(), LINEAR), "`KNNImputer` is not supported"),
    "steps of probabilities": (CalibratedClassifierCV(LINEAR, method="isotonic", cv=2), "with `method='isotonic'`"),
    "Gaussian processes": (GaussianProcessClassifier(), "`GaussianProcessClassifier` is not supported"),
    "without a converter": (pipeline.make_pipeline(Isomap(n_components=2), LINEAR), "no converter for `Isomap`"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_estimator_is_named(name: str, tmp_path: Path) -> None:
    model, told = REFUSED[name]
    model.fit(X[:60] if name != "an indicator" else holes(X[:60]), Y[:60])
    with pytest.raises(ModelError, match=told) as caught:
        save_object(model, (X[:9],), tmp_path)
    assert caught.value.hint
    assert "fitted" not in caught.value.hint
    assert caught.value.exit_code == 2


def test_the_cause_of_an_error_is_told_not_what_was_raised_last() -> None:
    def convert() -> None:
        try:
            raise TypeError("Expected an int, got a boolean")
        except TypeError as error:
            raise RuntimeError("Unable to create node with attributes={'base_values': array([0.05]),") from error

    with pytest.raises(ModelError, match="Expected an int, got a boolean"):
        estimators.converting("skl2onnx", LINEAR, convert)


def test_a_node_that_is_not_supported_is_told_as_an_estimator() -> None:
    def read() -> None:
        raise ModelError("unsupported-operator", "`Loop` in node `N2`", hint="edit the file")

    with pytest.raises(ModelError, match=r"`Pipeline` \(of `StandardScaler`, `Ridge`\)") as caught:
        estimators.reading("skl2onnx", pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.Ridge()), read)
    assert "estimator" in caught.value.hint


@pytest.mark.parametrize("trees", [ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor])
def test_attributes_are_plain_numbers_for_protobuf(trees: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Newer versions of protobuf refuse truth values and numbers of numpy."""
    from skl2onnx.common._container import ModelComponentContainer

    usual = ModelComponentContainer.add_node
    seen: list[type] = []

    def add(self: Any, *given: Any, **attributes: Any) -> Any:
        seen.extend(type(one) for value in attributes.values() if isinstance(value, list) for one in value)
        return usual(self, *given, **attributes)

    monkeypatch.setattr(ModelComponentContainer, "add_node", add)
    with pytest.importorskip("threadpoolctl").threadpool_limits(1):
        save_object(trees(max_iter=2, max_depth=3).fit(holes(X[:200]), Y[:200]), (X[:50],), tmp_path)
    assert set(seen) <= {int, float, str, bytes}


def test_a_column_of_a_union_may_be_the_first(tmp_path: Path) -> None:
    model = pipeline.make_union(PCA(1), SelectKBest(k=1)).fit(X[:, :2], X[:, 0] > 0)
    found = results(model, X[:, :2], tmp_path)
    np.testing.assert_allclose(next(iter(found.values())), model.transform(X[:, :2]), rtol=0, atol=1e-5)


# How much may differ --------------------------------------------------------------------------------------------------------


def test_numbers_are_compared_by_their_spread() -> None:
    numbers = 101325 + np.random.default_rng(0).standard_normal(100)
    count, _ = converted._off(Wanted("predict", numbers), numbers + 0.5)
    assert count == 100
    assert converted._off(Wanted("predict", numbers), numbers.astype(np.float32))[0] == 0


def test_all_rows_of_the_example_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    asked = converted._asked

    def counting(model: Any, framework: str, rows: Any) -> list[Wanted]:
        sizes.append(len(rows))
        return asked(model, framework, rows)

    monkeypatch.setattr(converted, "_asked", counting)
    save_object(linear_model.Ridge().fit(X, Y), (X[:100],), tmp_path)
    assert set(sizes) == {100}


def test_a_few_rows_of_the_example_that_are_off_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def lost(wanted: Any, found: Any, share: float) -> tuple[str, bool]:
        return ("" if share == converted.SHARE else "`predict` differs"), False

    monkeypatch.setattr(converted, "_lost", lost)
    notes: list[str] = []
    save_object(linear_model.Ridge().fit(X, Y), (X,), tmp_path, notes.append)
    assert notes == ["`predict` differs of the example: floats of 32 bits go another way there"]


@pytest.mark.parametrize("names", [False, True])
def test_features_that_lose_digits_are_refused(names: bool, tmp_path: Path) -> None:
    """A time of today in seconds: f32 has steps of 128 there."""
    late = X.astype(np.float64)[:, :3] + [0, 1e6, 1.7e9]
    table = pytest.importorskip("pandas").DataFrame(late, columns=["a", "b", "time"]) if names else late
    model = pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.Ridge()).fit(table, X[:, 2])
    with pytest.raises(ModelError, match="lose digits as f32") as caught:
        save_object(model, (table[:64],), tmp_path)
    assert "smaller numbers" in caught.value.hint


# Names and shapes of outputs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "noted"),
    [
        (svm.LinearSVC(), ""),
        (multiclass.OneVsRestClassifier(svm.LinearSVC()), "other numbers than those of `decision_function`"),
        (ensemble.VotingClassifier([("a", LINEAR), ("b", LINEAR)], voting="hard"), "no probabilities"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_scores_are_not_called_probabilities(model: Any, noted: str, tmp_path: Path) -> None:
    notes: list[str] = []
    found = results(model.fit(X, Y), X, tmp_path, notes)
    assert list(found) == ["label", "scores"]
    np.testing.assert_array_equal(found["label"], model.predict(X))
    assert any(noted in note for note in notes) if noted else notes == []


def test_a_label_for_each_row(tmp_path: Path) -> None:
    model = QuadraticDiscriminantAnalysis().fit(X, Y)
    found = results(model, X, tmp_path)
    assert found["label"].shape == (len(X),)
    np.testing.assert_array_equal(found["label"], model.predict(X))


def test_a_package_takes_tables_and_names_as_they_are(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    columns = {"in come": X[:40, 0].astype(np.float64), "größe": np.arange(40), "city": ["Rome", "Oslo"] * 20, "y": 1}
    table = pandas.DataFrame(columns)
    parts = [("n", preprocessing.StandardScaler(), ["in come", "größe"]), ("c", preprocessing.OneHotEncoder(), ["city"])]
    model = pipeline.make_pipeline(compose.ColumnTransformer(parts), linear_model.Ridge()).fit(table, X[:40, 1])
    package = intaglio.compile(model, example_inputs=(table[:8].assign(y=0),), output=tmp_path / "p", library_only=True)
    assert any("`in come` is `in_come`, `größe` is `gr_e`" in note for note in package.notes)
    names = {name: package.manifest.inputs[n].name for n, name in enumerate(table)}
    assert names == {name: name for name in table}
    wanted = model.predict(table[:8])
    np.testing.assert_allclose(package.run(table[:8])["variable"][:, 0], wanted, rtol=0, atol=1e-5)
    given = {name: table[name][:8].to_numpy() for name in ("in come", "größe", "y")}
    numbers = {name: column.astype(np.float32).reshape(8, 1) for name, column in given.items()}
    found = package.run({**numbers, "city": table[["city"]][:8].to_numpy(str)})
    np.testing.assert_allclose(found["variable"][:, 0], wanted, rtol=0, atol=1e-5)
    with pytest.raises(UserError, match="has no column `größe`"):
        package.run(table[:8].drop(columns="größe"))


TOWNS = np.array(["Rome", "Oslo", "Bern", "Rome", "Oslo"] * 8 + ["Kiel", "Lund"])


@pytest.mark.parametrize(
    "settings",
    [
        {"handle_unknown": "infrequent_if_exist", "min_frequency": 3},
        {"handle_unknown": "infrequent_if_exist"},
        {"handle_unknown": "ignore", "max_categories": 3},
        {"handle_unknown": "infrequent_if_exist", "min_frequency": 3, "drop": "first"},
    ],
    ids=str,
)
@pytest.mark.parametrize("names", [False, True])
def test_rare_and_unknown_categories_are_encoded_as_the_object_does(settings: dict[str, Any], names: bool, tmp_path: Path) -> None:
    table: Any = np.stack([TOWNS, TOWNS[::-1]], axis=1)
    if names:
        table = pytest.importorskip("pandas").DataFrame(table, columns=["from", "to"])
    model = preprocessing.OneHotEncoder(sparse_output=False, **settings).fit(table)
    notes: list[str] = []
    graph, _ = load(save_object(model, (table,), tmp_path, notes.append))
    assert notes == []
    other = np.where(np.arange(84).reshape(42, 2) % 5 == 0, "Nowhere", np.asarray(table).astype(str))
    width = graph.inputs[0].type.shape[-1]
    fed = [encoded(part, width) for part in (other[:, :1], other[:, 1:])] if names else [encoded(other, width)]
    found = evaluate_graph(graph, {value.name: one for value, one in zip(graph.inputs, fed, strict=True)})
    wanted = model.transform(type(table)(other, columns=["from", "to"]) if names else other)
    np.testing.assert_allclose(found[graph.outputs[0].name], wanted, rtol=0, atol=1e-6)


def test_an_unknown_category_is_named_where_it_stops_the_run(tmp_path: Path) -> None:
    table = pytest.importorskip("pandas").DataFrame({"town": TOWNS})
    package = intaglio.compile(
        preprocessing.OneHotEncoder().fit(table), example_inputs=(table[:4],), output=tmp_path / "p", library_only=True
    )
    assert package.run(table[:4])
    with pytest.raises(AnswerIsNo, match="the check `known category of town` fails"):
        package.run(table[:4].replace("Rome", "Nowhere"))
