"""Converters of skl2onnx with what they lose put back, and those that it does not have.

    OneHotEncoder     rare categories, unknown ones that are taken for these, and names for its checks of categories
    selections        of the first column alone, which is taken for none
    voting            with the default of `flatten_transform`
    histograms        plain numbers for protobuf
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from intaglio.frontends import forests, sklearn_own
from intaglio.frontends.forests import Converter
from intaglio.frontends.sklearn_own import drawing
from intaglio.ir.graph import Array

_SELECTIONS = ("SelectKBest", "SelectPercentile", "SelectFpr", "SelectFdr", "SelectFwe", "SelectFromModel", "VarianceThreshold",
               "GenericUnivariateSelect", "RFE", "RFECV")  # fmt: skip

CHECK = "known category of"  # the name of a node


def converters() -> dict[type, Converter]:
    """By class, as `skl2onnx.to_onnx(custom_conversion_functions=...)` takes them."""
    names = importlib.import_module("skl2onnx._supported_operators").sklearn_operator_name_map
    get = importlib.import_module("skl2onnx.common._registration").get_converter
    sklearn_own.register()
    found = forests.converters()
    for module, name, wrap in _WRAPPED:
        one = getattr(importlib.import_module(f"sklearn.{module}"), name)
        if one in names:
            found[one] = wrap(get(names[one]))
    return found


# One-hot encoders -------------------------------------------------------------------------------------------------------------


def _one_hot(usual: Converter) -> Converter:
    def convert(scope: Any, operator: Any, container: Any) -> None:
        model = operator.raw_operator
        if model.handle_unknown in ("error", "ignore") and not model._infrequent_enabled:
            with _adding(container, lambda op, attributes: attributes | _checked(model, op, container)):
                usual(scope, operator, container)
            return
        _with_rare(scope, operator, container)

    return convert


def _checked(model: Any, op: str, container: Any) -> dict[str, str]:
    """A name for the check of a column; the message says it when the check fails."""
    if op != "OneHotEncoder" or model.handle_unknown != "error":
        return {}
    n = sum(node.name.startswith(CHECK) for node in container.nodes)
    names = getattr(model, "feature_names_in_", None)
    return {"name": f"{CHECK} {n}" if names is None or n >= len(names) else f"{CHECK} {names[n]}"}


def _with_rare(scope: Any, operator: Any, container: Any) -> None:
    """Each category as the encoder itself encodes it, and what is none of them as the rare ones, or as zeros."""
    model, ends, done = operator.raw_operator, np.cumsum(operator.raw_operator._n_features_outs), []
    first = np.array([[column[0] for column in model.categories_]], dtype=object)
    place = 0
    for given in operator.inputs:
        for n in range(given.type.shape[1]):
            categories = model.categories_[place]
            rows = np.repeat(first, len(categories), axis=0)
            rows[:, place] = categories
            encoded = _encoded(model, rows)[:, ends[place] - model._n_features_outs[place] : ends[place]]
            done.append(_column(scope, container, given, n, categories, encoded, _rare(model, place, encoded)))
            place += 1
    container.add_node("Concat", done, operator.outputs[0].full_name, name=scope.get_unique_operator_name("Concat"), axis=1)


def _encoded(model: Any, rows: Array) -> Array:
    names = getattr(model, "feature_names_in_", None)
    table = rows if names is None else importlib.import_module("pandas").DataFrame(rows, columns=names)
    encoded = model.transform(table)
    return np.asarray(encoded.toarray() if hasattr(encoded, "toarray") else encoded, np.float32)


def _rare(model: Any, place: int, encoded: Array) -> Array:
    """What an unknown category is encoded as."""
    rare = model.infrequent_categories_[place] if model._infrequent_enabled else None
    if model.handle_unknown == "ignore" or rare is None or not len(rare):
        return np.zeros(encoded.shape[1], np.float32)
    return np.asarray(encoded[list(model.categories_[place]).index(rare[0])])


def _column(scope: Any, container: Any, given: Any, n: int, categories: Any, encoded: Array, rare: Array) -> str:
    node = drawing(scope, container)
    column = node("Gather", given.full_name, np.array([n]), axis=1)
    if given.type.__class__.__name__ == "StringTensorType":
        known: dict[str, Any] = {"cats_strings": [str(one).encode() for one in categories]}
    else:
        known = {"cats_int64s": [int(one) for one in categories]}
        if known["cats_int64s"] != list(categories):
            raise ValueError("categories of `OneHotEncoder` must be strings or whole numbers")
        column = node("Cast", column, to=7)  # TensorProto.INT64
    hot = node("OneHotEncoder", column, op_domain="ai.onnx.ml", zeros=1, **known)
    flat = node("Reshape", hot, np.array([-1, len(categories)]))
    # x @ (encoded - rare) + rare: a row without a category is `rare`
    return node("Add", node("MatMul", flat, encoded - rare), rare)


# Others -----------------------------------------------------------------------------------------------------------------------


def _selecting(usual: Converter) -> Converter:
    """Where the first column alone is selected, the converter takes it for none."""

    def convert(scope: Any, operator: Any, container: Any) -> None:
        if operator.raw_operator.get_support(indices=True).tolist() != [0]:
            usual(scope, operator, container)
            return
        column = scope.get_unique_variable_name("column")
        container.add_initializer(column, importlib.import_module("onnx").TensorProto.INT64, [1], [0])
        names = [operator.inputs[0].full_name, column], operator.outputs[0].full_name
        container.add_node("Gather", *names, name=scope.get_unique_operator_name("Gather"), axis=1)

    return convert


def _voting(usual: Converter) -> Converter:
    """`flatten_transform` is about `transform` alone, and its default is refused."""

    def convert(scope: Any, operator: Any, container: Any) -> None:
        model = operator.raw_operator
        kept, model.flatten_transform = model.flatten_transform, False
        try:
            usual(scope, operator, container)
        finally:
            model.flatten_transform = kept

    return convert


def _plain(usual: Converter) -> Converter:
    """Its attributes are lists with truth values and numbers of numpy, which protobuf 7 does not take."""

    def convert(scope: Any, operator: Any, container: Any) -> None:
        with _adding(container, lambda _, attributes: {name: _plain_numbers(value) for name, value in attributes.items()}):
            usual(scope, operator, container)

    return convert


def _plain_numbers(value: Any) -> Any:
    if not isinstance(value, (list, np.ndarray)):
        return value
    plain = [one.item() if isinstance(one, np.generic) else one for one in value]
    return [int(one) if isinstance(one, bool) else one for one in plain]


@contextlib.contextmanager
def _adding(container: Any, changed: Callable[[str, dict[str, Any]], dict[str, Any]]) -> Iterator[None]:
    """Nodes are added with changed attributes."""
    add = container.add_node

    def add_changed(op: str, *given: Any, **attributes: Any) -> Any:
        return add(op, *given, **changed(op, attributes))

    container.add_node = add_changed
    try:
        yield
    finally:
        del container.add_node


_WRAPPED: tuple[tuple[str, str, Callable[[Converter], Converter]], ...] = (
    ("preprocessing", "OneHotEncoder", _one_hot),
    ("preprocessing", "FunctionTransformer", sklearn_own.function_transformer),
    ("linear_model", "SGDClassifier", sklearn_own.modified_huber),
    ("ensemble", "VotingClassifier", _voting),
    ("ensemble", "HistGradientBoostingClassifier", _plain),
    ("ensemble", "HistGradientBoostingRegressor", _plain),
    *(("feature_selection", name, _selecting) for name in _SELECTIONS),
)
