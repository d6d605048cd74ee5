"""Maps as inputs (`DictVectorizer`, `CastMap`), compiled, against ONNX Runtime; scikit-learn's DictVectorizer against itself."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from sklearn.feature_extraction import DictVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import intaglio
from intaglio.errors import AnswerIsNo, IntaglioError, ModelError, UserError
from intaglio.frontends.onnx import load
from intaglio.run.package import Package
from support.commands import Intaglio
from support.onnx_models import FLOAT, INT64, ints, model, node, saved, value

STRING, DOUBLE = TensorProto.STRING, TensorProto.DOUBLE
OPSETS = [helper.make_opsetid("ai.onnx.ml", 3)]
WORDS: dict[str, Any] = {"string_vocabulary": ["cat", "dog", "", "cat", "möwe"]}
NUMBERS: dict[str, Any] = {"int64_vocabulary": [7, -2, 400, 0]}


def of_map(op: str, key: int, kind: int, result: int | None = None, extra: list[Any] | None = None, **fields: Any) -> Any:
    one = node(op, "m", "y", domain="ai.onnx.ml", **fields)
    info = helper.make_value_info("m", helper.make_map_type_proto(key, helper.make_tensor_type_proto(kind, [])))
    return model([one], [info, *(extra or [])], [value("y", None, kind if result is None else result)], opset=17, opsets=OPSETS)


def package_of(proto: Any, folder: Path, entries: int, **options: Any) -> Package:
    return intaglio.compile(saved(proto, folder), output=folder / "p", lengths={"m": entries}, **options)


def row_of(package: Package, given: dict[Any, Any]) -> Any:
    return package.run({"m": given})["y"]


def by_onnx_runtime(proto: Any, given: dict[Any, float]) -> Any:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"m": given})[0]


VECTORISED: dict[str, tuple[Any, list[dict[Any, float]]]] = {
    "words": (of_map("DictVectorizer", STRING, FLOAT, **WORDS), [{"dog": 2.5, "": -1.0, "cow": 9.0}, {"möwe": 1, "cat": 3}]),
    "numbers": (of_map("DictVectorizer", INT64, FLOAT, **NUMBERS), [{7: 1.5, 0: -0.5, -2: 3.0}, {5: 2.0}, {400: 1.0, 8: 2.0}]),
    "sparse": (of_map("CastMap", INT64, FLOAT, map_form="SPARSE", max_map=5), [{3: 1.5, 9: 2.0}, {4: 1.0, 1: 8.0, 0: 7}]),
    "sparse, whole": (
        of_map("CastMap", INT64, FLOAT, INT64, map_form="SPARSE", max_map=5, cast_to="TO_INT64"), [{3: 1.5, 9: 2}, {0: -2.75}]),
    "dense": (of_map("CastMap", INT64, FLOAT), [{3: 1.5, -9: 2.0, 5: 4.0, 1: -0.5}]),
    "dense, whole": (of_map("CastMap", INT64, FLOAT, INT64, cast_to="TO_INT64"), [{3: 1.5, -9: -2.75, 5: 4.0, 1: 0.5}]),
}  # fmt: skip


@pytest.mark.parametrize("name", VECTORISED)
def test_a_map_gives_the_row_that_onnx_runtime_gives(name: str, tmp_path: Path) -> None:
    proto, maps = VECTORISED[name]
    package = package_of(proto, tmp_path, 4)
    assert [i.name for i in package.manifest.inputs] == ["m_keys", "m_values"]
    for given in maps:
        got = row_of(package, given)
        want = by_onnx_runtime(proto, given)
        assert got.dtype == want.dtype and np.array_equal(got, want), given
    result = package.validate()
    assert result.ok and "onnxruntime" in result.reference


@pytest.mark.parametrize("kind", [INT64, DOUBLE, STRING])
def test_values_that_python_cannot_give_onnx_runtime_are_moved_as_they_are(kind: int, tmp_path: Path) -> None:
    proto = of_map("DictVectorizer", INT64, kind, **NUMBERS)
    package = package_of(proto, tmp_path, 3, **({"max": {"m_values": 5}} if kind == STRING else {}))
    values = np.array(["one", "two", "other"]) if kind == STRING else np.array([3, 2**40, 9], helper.tensor_dtype_to_np_dtype(kind))
    row = package.run({"m_keys": ints(-2, 0, 0), "m_values": values})["y"]  # of equal keys the first counts
    nothing = "" if kind == STRING else 0
    assert row.tolist() == [[nothing, values[0], nothing, values[1]]]
    assert package.validate().ok


def test_strings_of_a_map_are_moved_into_columns(tmp_path: Path) -> None:
    proto = of_map("CastMap", INT64, STRING, STRING, cast_to="TO_STRING", map_form="SPARSE", max_map=3)
    package = package_of(proto, tmp_path, 2)
    assert row_of(package, {2: "x", 5: "y"}).tolist() == [["0.f", "0.f", "x"]]


def test_room_for_more_entries_is_filled_with_zeros_or_with_entries_again(tmp_path: Path) -> None:
    package = package_of(VECTORISED["words"][0], tmp_path, 3)
    for keys, values in ((["dog", "", ""], [2, 0, 0]), (["dog", "dog", "dog"], [2, 3, 4])):
        row = package.run({"m_keys": np.array(keys), "m_values": np.array(values, np.float32)})["y"]
        assert row.tolist() == [[0, 2, 0, 0, 0]]
    assert row_of(package, {}).tolist() == [[0, 0, 0, 0, 0]]


def test_words_of_the_vocabulary_are_among_the_test_vectors(tmp_path: Path) -> None:
    package = package_of(VECTORISED["words"][0], tmp_path, 4)
    assert np.count_nonzero(np.load(package.folder / "test" / "out0.npy")) >= 3


def test_a_number_that_the_keys_have_no_room_for_is_told(tmp_path: Path) -> None:
    package = package_of(VECTORISED["numbers"][0], tmp_path, 2)
    with pytest.raises(UserError, match="does not fit `m_keys`"):
        row_of(package, {2**70: 1})


def test_a_dense_map_that_is_not_full_is_told(tmp_path: Path) -> None:
    package = package_of(VECTORISED["dense"][0], tmp_path, 3)
    with pytest.raises(AnswerIsNo, match="contradicts what the model was compiled for"):
        row_of(package, {3: 1, 4: 2})


def test_negative_keys_have_no_column(tmp_path: Path) -> None:
    package = package_of(VECTORISED["sparse"][0], tmp_path, 3)
    with pytest.raises(AnswerIsNo, match="contradicts what the model was compiled for"):
        row_of(package, {-1: 2.0})


@pytest.mark.parametrize(("given", "reason"), [
    ({"a": 1, "b": 2, "c": 3}, "has 3 entries, at most 2 fit"), ({1: 1}, "needs strings for `m_keys`"),
    ({"a": "b"}, "needs numbers for `m_values`"), ({"a": None}, "needs numbers for `m_values`"),
])  # fmt: skip
def test_maps_that_do_not_fit_are_told(given: dict[Any, Any], reason: str, tmp_path: Path) -> None:
    package = package_of(VECTORISED["words"][0], tmp_path, 2)
    with pytest.raises(UserError, match=reason) as caught:
        row_of(package, given)
    assert caught.value.hint


REFUSED: dict[str, tuple[Any, dict[str, int], str, str]] = {
    "no length": (VECTORISED["words"][0], {}, "dynamic-dimension", "entries of the map `m` is not known"),
    "no entries": (VECTORISED["words"][0], {"m": 0}, "dynamic-dimension", "entries of the map `m` is not known"),
    "no vocabulary": (of_map("DictVectorizer", STRING, FLOAT, **NUMBERS), {"m": 2}, "bad-attribute", "no vocabulary for a map"),
    "other keys": (of_map("DictVectorizer", TensorProto.INT32, FLOAT, **NUMBERS), {"m": 2}, "unsupported-type", "strings or int64"),
    "a form": (of_map("CastMap", INT64, FLOAT, map_form="THIN"), {"m": 2}, "bad-attribute", "the form `THIN`"),
    "a kind": (of_map("CastMap", INT64, FLOAT, cast_to="TO_BYTES"), {"m": 2}, "bad-attribute", "`TO_BYTES`"),
    "no columns": (of_map("CastMap", INT64, FLOAT, map_form="SPARSE", max_map=0), {"m": 2}, "bad-attribute", "to 0 columns"),
    "numbers to strings": (
        of_map("CastMap", INT64, FLOAT, STRING, cast_to="TO_STRING"), {"m": 2}, "unsupported-operator", "from numbers to strings"),
    "strings to numbers": (
        of_map("CastMap", INT64, STRING, FLOAT), {"m": 2}, "unsupported-operator", "from strings to numbers"),
    "another operator": (
        model([node("Relu", "m", "y")], [of_map("CastMap", INT64, FLOAT).graph.input[0]], opsets=OPSETS), {"m": 2},
        "unsupported-operator", "is a map"),
    "an output": (
        model([node("Relu", "x", "y")], [of_map("CastMap", INT64, FLOAT).graph.input[0], value("x", [2])],
              [value("y", None), of_map("CastMap", INT64, FLOAT).graph.input[0]], opsets=OPSETS), {"m": 2},
        "unsupported-type", "the output `m` is a map"),
    "a tensor": (
        model([node("DictVectorizer", "x", "y", domain="ai.onnx.ml", **NUMBERS)], opsets=OPSETS), {},
        "unsupported-type", "is not a map"),
    "a name that is there": (
        of_map("CastMap", INT64, FLOAT, extra=[value("m_keys", [2])]), {"m": 2},
        "bad-graph", "two inputs would be called `m_keys`"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_supported_is_told(name: str, tmp_path: Path) -> None:
    proto, lengths, slug, reason = REFUSED[name]
    with pytest.raises(ModelError, match=reason) as caught:
        load(saved(proto, tmp_path), lengths=lengths)
    assert caught.value.slug == slug and caught.value.hint


def test_the_command_says_what_to_give(intaglio: Intaglio, tmp_path: Path) -> None:
    path = saved(VECTORISED["words"][0], tmp_path)
    said = intaglio("compile", path, "-o", tmp_path / "p")
    assert said.code == 2 and "give `--length m=N`; its entries are the inputs `m_keys` and `m_values`" in said.err


needs_skl2onnx = pytest.mark.skipif(importlib.util.find_spec("skl2onnx") is None, reason="skl2onnx is not installed")
ROWS: list[dict[str, Any]] = [{"size": 1.5, "city": "Rome"}, {"size": 0.5, "age": 2.0}, {"age": 9.0, "city": "Oslo"}, {"size": 4.0}]


@needs_skl2onnx
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sparse", [True, False])
def test_a_pipeline_that_begins_with_a_dict_vectorizer_is_compiled(sparse: bool, tmp_path: Path) -> None:
    fitted = make_pipeline(DictVectorizer(sparse=sparse), LogisticRegression()).fit(ROWS, [0, 1, 1, 0])
    package = intaglio.compile(fitted, output=tmp_path / "p", lengths={"x": 5})
    for row in [*ROWS, {"size": 2.0, "other": 7.0}]:
        given = {f"{k}={v}" if isinstance(v, str) else k: 1.0 if isinstance(v, str) else v for k, v in row.items()}
        found = package.run({"x": given})
        assert found["label"][0] == fitted.predict([row])[0]
        np.testing.assert_allclose(found["probabilities"], fitted.predict_proba([row]), rtol=0, atol=1e-6)
    assert package.validate().ok


@needs_skl2onnx
@pytest.mark.filterwarnings("ignore")
def test_the_same_pipeline_without_a_length_is_told(tmp_path: Path) -> None:
    fitted = make_pipeline(DictVectorizer(), LogisticRegression()).fit(ROWS, [0, 1, 1, 0])
    with pytest.raises(IntaglioError, match="entries of the map `x` is not known") as caught:
        intaglio.compile(fitted, output=tmp_path / "p")
    assert "`lengths='x=N'`" in caught.value.hint
