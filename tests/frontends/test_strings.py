"""Strings, sequences, optionals and random operators: compiled, against ONNX Runtime or what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

import intaglio
from intaglio.errors import ModelError, UserError
from intaglio.frontends.onnx import load
from intaglio.ir.strings import decoded, encoded
from intaglio.ops.evaluate import evaluate_graph
from intaglio.run.package import Package
from support.commands import Intaglio
from support.onnx_models import BOOL, FLOAT, INT64, ints, model, node, saved, value

STRING = TensorProto.STRING
ML = {"domain": "ai.onnx.ml"}
OPSETS = [helper.make_opsetid("ai.onnx.ml", 4)]


def words(*texts: str) -> Any:
    return np.array(texts, object)


def tokens() -> Any:
    """Words by their tables, and everything that moves them."""
    nodes = [
        node("LabelEncoder", "s", "id", keys_strings=["dog", "cat", "möwe"], values_int64s=[5, 3, 7], default_int64=-1, **ML),
        node("LabelEncoder", "id", "back", keys_int64s=[3, 5], values_strings=["Cat", "Dog"], default_string="?", **ML),
        node("LabelEncoder", "s", "upper", keys_strings=["dog", "cat"], values_strings=["DOG", "CAT"], default_string="-", **ML),
        node("OneHotEncoder", "s", "hot", cats_strings=["cat", "dog"], **ML),
        node("CategoryMapper", "s", "mapped", cats_strings=["dog", "cat"], cats_int64s=[2, 1], **ML),
        node("Equal", "s other", "same"),
        node("Reshape", "s square", "table"), node("Transpose", "table", "turned", perm=[1, 0]),
        node("Concat", "turned turned", "twice", axis=0), node("Gather", "s which", "chosen"),
        node("Where", "same s other", "picked"), node("Slice", "s one four", "cut"), node("Shape", "table", "shape"),
        node("RegexFullMatch", "s", "short", pattern="[a-z]{3}"), node("StringConcat", "s other", "joined"),
        node("StringSplit", "sentences", "pieces numbers", delimiter=" ", maxsplit=2),
        node("TfIdfVectorizer", "s", "counts", mode="TF", ngram_counts=[0, 2], ngram_indexes=[0, 1, 2], max_skip_count=1,
             pool_strings=["cat", "dog", "cat", "dog"], min_gram_length=1, max_gram_length=2),
    ]  # fmt: skip
    constants = {"square": ints(2, 3), "one": ints(1), "four": ints(4)}
    inputs = [value("s", [6], STRING), value("other", [6], STRING), value("which", [2], INT64), value("sentences", [2], STRING)]
    strings = ["back", "upper", "twice", "chosen", "picked", "cut", "joined", "pieces"]
    outputs = [*(value(n, None, STRING) for n in strings), *(value(n, None, INT64) for n in ("id", "mapped", "shape", "numbers"))]
    outputs += [value("hot", None), value("counts", None), value("same", None, BOOL), value("short", None, BOOL)]
    return model(nodes, inputs, outputs, constants, opset=20, opsets=OPSETS)


INPUTS = {
    "s": words("cat", "dog", "", "möwe", "cats", "dog"), "other": words("cat", "x", "", "y", "cats", "z"), "which": ints(4, -1),
    "sentences": words("a b c d", " x"),
}  # fmt: skip


@pytest.fixture(scope="module")
def text_package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("text")
    return intaglio.compile(saved(tokens(), folder), output=folder / "package", max={"s": 16, "other": 9})


def test_strings_are_what_onnx_runtime_makes_of_them(text_package: Package) -> None:
    session = onnxruntime.InferenceSession(tokens().SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    for name, want in zip(names, session.run(None, INPUTS), strict=True):
        got = text_package.run(INPUTS)[name]
        assert got.shape == want.shape and got.tolist() == want.tolist(), name


def test_a_package_with_strings_validates_and_tests_itself(text_package: Package) -> None:
    assert text_package.validate().ok
    assert text_package.validation is not None and "onnxruntime" in text_package.validation.reference


def test_words_over_a_range_are_looked_up_too(tmp_path: Path) -> None:
    one = node("LabelEncoder", "s", "y", keys_strings=["a", "b"], values_int64s=[5, 3], default_int64=-1, **ML)
    proto = model([one], [value("s", ["n"], STRING)], [value("y", None, INT64)], opset=17, opsets=OPSETS)
    package = intaglio.compile(saved(proto, tmp_path), output=tmp_path / "package", dims={"n": "1..6"})
    assert package.run({"s": words("b", "c", "a")})["y"].tolist() == [3, -1, 5]
    assert set(np.load(package.folder / "test" / "out0.npy").tolist()) == {5, 3, -1}


def test_a_string_that_is_too_long_is_told(text_package: Package) -> None:
    with pytest.raises(UserError, match="has 17 bytes, at most 16 fit") as caught:
        text_package.run({**INPUTS, "s": words(*["x" * 17] * 6)})
    assert "--max s=N" in caught.value.hint


def tokenized(made: Any, folder: Path) -> Path:
    contributed = [helper.make_opsetid("com.microsoft", 1)]
    return saved(model([made], [value("x", [3], STRING)], [value("y", None, STRING)], opsets=contributed), folder)


@pytest.mark.parametrize("pad", ["#", "none"])
@pytest.mark.parametrize("tokens", ["[a-zA-Z0-9_]+", r"\w+", "[a-c]+"])
def test_words_are_those_of_the_tokenizer_of_onnx_runtime(tokens: str, pad: str, tmp_path: Path) -> None:
    made = node("Tokenizer", "x", "y", mark=0, mincharnum=1, pad_value=pad, tokenexp=tokens, domain="com.microsoft")
    path = tokenized(made, tmp_path)
    given = np.array(["red, green; blue_1", "  é tea été ", "x"])
    (wanted,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": given.astype(object)})
    graph, _ = load(path)
    found = evaluate_graph(graph, {"x": encoded(given, graph.inputs[0].type.shape[-1])})
    assert decoded(found[graph.outputs[0].name]).tolist() == wanted.tolist()


def test_a_tokenizer_by_another_expression_is_refused(tmp_path: Path) -> None:
    made = node("Tokenizer", "x", "y", mark=0, mincharnum=1, pad_value="#", tokenexp="a|b", domain="com.microsoft")
    with pytest.raises(ModelError, match="a set of ASCII characters"):
        load(tokenized(made, tmp_path))


def test_words_are_normalised(tmp_path: Path) -> None:
    """ONNX Runtime's needs a locale that not every machine has."""
    one = node("StringNormalizer", "s", "y", case_change_action="UPPER", stopwords=["Monday"], is_case_sensitive=0)
    proto = model([one], [value("s", [1, 3], STRING)], [value("y", None, STRING)])
    package = intaglio.compile(saved(proto, tmp_path), output=tmp_path / "package")
    assert package.run({"s": words("monday", "möwe", "Tuesday").reshape(1, 3)})["y"].tolist() == [["MÖWE", "TUESDAY"]]
    assert package.run({"s": words("monday", "MONDAY", "Monday").reshape(1, 3)})["y"].tolist() == [[""]]


@pytest.mark.parametrize(("most", "slug"), [({"t": 9}, "unknown-input"), ({"s": 100_000}, "too-large")])
def test_room_for_strings_that_cannot_be_is_told(most: dict[str, int], slug: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        load(saved(model([node("Identity", "s", "y")], [value("s", [2], STRING)], [value("y", [2], STRING)]), tmp_path), most=most)
    assert caught.value.slug == slug and caught.value.hint


# Sequences ------------------------------------------------------------------------------------------------------------------


def sequence(name: str, dims: Any = None) -> Any:
    return helper.make_tensor_sequence_value_info(name, FLOAT, dims)


def optional(name: str, shape: list[int]) -> Any:
    return helper.make_value_info(name, helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, shape)))


def longer() -> Any:
    nodes = [node("SequenceInsert", "s x", "t"), node("ConcatFromSequence", "t", "y", axis=0)]
    return model(nodes, [sequence("s", ["n", 3]), value("x", [2, 3])], [value("y", None), sequence("t")])


def test_members_of_sequences_are_inputs_and_outputs_of_their_own(tmp_path: Path) -> None:
    package = intaglio.compile(
        saved(longer(), tmp_path), output=tmp_path / "p", lengths={"s": 2}, shapes={"s.0": (1, 3), "s.1": (4, 3)}
    )
    assert [i.name for i in package.manifest.outputs] == ["y", "t.0", "t.1", "t.2"]
    result = package.validate()
    assert result.ok and "onnxruntime" in result.reference


BAD_LENGTHS: dict[str, tuple[dict[str, Any], str, str]] = {
    "none": ({}, "dynamic-dimension", "is not known at compile time"),
    "of something else": ({"lengths": {"s": 1, "x": 2}}, "unknown-input", "no sequence `x`"),
    "far too many": ({"lengths": {"s": 5000}}, "too-large", "more than 4096"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_LENGTHS)
def test_lengths_that_do_not_fit_are_told(name: str, tmp_path: Path) -> None:
    options, slug, reason = BAD_LENGTHS[name]
    with pytest.raises(ModelError, match=reason) as caught:
        load(saved(longer(), tmp_path), **options)
    assert caught.value.slug == slug and caught.value.hint


@pytest.mark.parametrize(("lengths", "there"), [({}, True), ({"o": 1}, True), ({"o": 0}, False)])
def test_an_optional_is_there_unless_its_length_is_0(lengths: dict[str, int], there: bool, tmp_path: Path) -> None:
    proto = model([node("OptionalHasElement", "o", "y")], [optional("o", [2])], [value("y", [], BOOL)])
    graph, _ = load(saved(proto, tmp_path), lengths=lengths)
    assert len(graph.inputs) == there and next(iter(graph.nodes[0].operands())).data == np.asarray(there)
    with pytest.raises(ModelError, match="is there"):
        load(saved(proto, tmp_path), lengths={"o": 2})


def test_a_label_of_one_letter_stays_a_string(tmp_path: Path) -> None:
    """As scikit-learn's voting classifiers end: a row of letters has the shape of the labels."""
    nodes = [node("ArgMax", "x", "best", axis=1), node("Gather", "classes best", "label"), node("Reshape", "label shape", "y")]
    constants = {"classes": np.array(["A", "B"], object), "shape": np.array([-1])}
    proto = model(nodes, [value("x", [1, 2])], [value("y", None, TensorProto.STRING)], constants)
    package = intaglio.compile(saved(proto, tmp_path), output=tmp_path / "p")
    assert package.manifest.outputs[0].text and package.validate().ok


# Random operators -----------------------------------------------------------------------------------------------------------


def noisy() -> Any:
    nodes = [node("RandomNormalLike", "x", "noise", scale=2.0, mean=1.0), node("Add", "x noise", "y"),
             node("RandomUniform", "_", "u", shape=[200], low=-1.0, high=3.0), node("Multinomial", "x", "m", sample_size=50),
             node("Bernoulli", "half", "b"), node("Dropout", "x half2 yes", "d")]  # fmt: skip
    nodes[2].input.clear()
    constants = {"half": np.full((1, 400), 0.25, np.float32), "half2": np.asarray(0.5, np.float32), "yes": np.asarray(True)}
    outputs = [*(value(n, None) for n in "yubd"), value("m", None, TensorProto.INT32)]
    return model(nodes, [value("x", [1, 300])], outputs, constants, opset=17)


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Package:
    folder = tmp_path_factory.mktemp("noise")
    return intaglio.compile(saved(noisy(), folder), output=folder / "p", random="7")


def test_random_numbers_have_the_distribution_that_the_model_asks_for(noise: Package) -> None:
    x = np.zeros((1, 300), np.float32)
    noise.reset()
    runs = [noise.run({"x": x}) for _ in range(20)]
    y, u, b = (np.stack([r[n] for r in runs]) for n in "yub")
    assert abs(y.mean() - 1) < 0.1 and abs(y.std() - 2) < 0.1
    assert u.min() >= -1 and u.max() < 3 and abs(u.mean() - 1) < 0.1
    assert abs(b.mean() - 0.25) < 0.02 and set(np.unique(b)) == {0, 1}
    assert runs[0]["m"].min() >= 0 and runs[0]["m"].max() < 300 and len(np.unique(runs[0]["m"])) > 30
    d = noise.run({"x": np.ones((1, 300), np.float32)})["d"]
    assert set(np.unique(d)) == {0, 2} and 100 < (d > 0).sum() < 200
    assert not np.array_equal(runs[0]["y"], runs[1]["y"])
    noise.reset()
    assert np.array_equal(noise.run({"x": x})["y"], runs[0]["y"]), "a reset starts the same numbers again"


def test_a_package_with_random_numbers_is_compared_with_its_own_meaning(noise: Package) -> None:
    result = noise.validate()
    assert result.ok and "numpy" in result.reference


def test_random_numbers_as_inputs_are_compared_with_onnx_runtime(tmp_path: Path) -> None:
    nodes = [node("RandomNormalLike", "x", "noise"), node("Add", "x noise", "y")]
    package = intaglio.compile(saved(model(nodes), tmp_path), output=tmp_path / "p", random="input")
    assert [i.name for i in package.manifest.inputs] == ["x", "noise"]
    result = package.validate()
    assert result.ok and "onnxruntime" in result.reference


@pytest.mark.parametrize("word", ["-1", "seed", "4294967296"])
def test_a_seed_that_is_none_is_told(word: str, intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", saved(model([node("Relu", "x", "y")]), tmp_path), "-o", tmp_path / "p", f"--random={word}")
    assert said.code == 2 and "bad-option" in said.err and "as the seed" in said.err
