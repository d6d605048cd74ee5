"""Does a converted model compute what its object computes?

Converters drop what they do not know without a word: weights by distance, categories, links of losses, trees per round. So the
object predicts some rows, and the operators of the import compute the same rows: those of the example (up to 512), of its spread,
at thresholds of trees, whole numbers, zeros, and with missing values where the object takes them. Labels have to be equal; numbers
may be off by 1e-3 of their standard deviation, and a few rows by more, with a note, since floats of 32 bits may cross a threshold.
Missing values that the example does not have may go another way; a note says so. Where the example has features that f32 does not
hold, the object predicts rounded ones too, and may not say much else.
"""

from __future__ import annotations

import copy
import importlib
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from intaglio.errors import ModelError
from intaglio.frontends.estimators import names, reading
from intaglio.frontends.onnx import load
from intaglio.frontends.tree_sums import MEMBER
from intaglio.ir.graph import Array, Graph, Value
from intaglio.ir.strings import encoded, is_text
from intaglio.ops.base import BadOperator
from intaglio.ops.evaluate import evaluate_graph

ROWS, MOST_ROWS = 32, 512  # of each kind: as many as the example has, between these
OFF = 1e-3  # of the standard deviation of the predictions
NOISE = 4e-6  # of the largest of them: rounding errors of f32
TIED = 1e-4  # classes whose scores differ by less are tied
SHARE = 0.1  # of the rows of a kind that may be off
SHARE_OF_EXAMPLE = 0.02
EXAMPLE, MISSING, UNKNOWN = "of the example", "with missing values", "with strings that are not in the example"
_HINT = "train it without what the converter does not know, such as categories, weights by distance or another objective"
_MISSING_HINT = "the converter does not know where missing values go: replace them before the model"


_DIGITS_HINT = "train it with smaller numbers, such as the time since a start; an example of float32 compiles it as it is"


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the object says of some rows. `tied`: rows whose best classes have nearly the same score."""

    name: str
    numbers: Array
    tied: Array | None = None


def check_converted(model: Any, framework: str, made: Any, example: Any, tool: str, note: Callable[[str], None]) -> list[str]:
    """`made`: the ONNX model, for any number of rows. The result: outputs that have an axis more than the object's."""
    count = min(max(ROWS, len(example) if hasattr(example, "shape") else 0), MOST_ROWS)
    graph = reading(tool, model, lambda: _graph(made, count))
    several = has_columns(example) or has_strings(example)
    complete = getattr(getattr(example, "dtype", None), "kind", "") != "f" or bool(np.isfinite(example).all())
    _check_digits(model, framework, example, note)
    flat: list[str] = []
    compared, reason = False, ""
    for kind, rows, feeds in _mixed(graph, example, count) if several else _tables(model, made, graph, example, count):
        try:
            wanted = _asked(model, framework, rows)
        except Exception as error:  # the object does not take such rows
            reason = next(iter(str(error).splitlines()), "")
            continue
        try:
            found = evaluate_graph(graph, feeds)
        except BadOperator as error:  # a size that it was not converted for
            if kind == UNKNOWN:
                note(f"rows {UNKNOWN} stop the run, where the object gives results: {error}")
                continue
            what = f"`{tool}` converts {names(model)} to a model for other rows: {error}"
            raise ModelError("cannot-export", what, hint=_HINT) from None
        compared = True
        outputs = [found[value.name] for value in graph.outputs]
        flat = [name for name, array in zip(graph.output_names, outputs, strict=True) if array.shape == (1, count) != (count, 1)]
        lost, many = _lost(wanted, outputs, SHARE_OF_EXAMPLE if kind == EXAMPLE else SHARE)
        if lost and kind == MISSING and complete:
            if many:
                note(f"rows {MISSING} give other results than the object's: the converter does not know where these go")
        elif many and kind == UNKNOWN:
            note(f"rows {UNKNOWN} give other results than the object's: {lost}")
        elif many:
            what = f"`{tool}` converts the model to something else: {lost} {kind}"
            raise ModelError("cannot-export", what, hint=_MISSING_HINT if kind == MISSING else _HINT)
        elif lost and kind == EXAMPLE:
            note(f"{lost} {kind}: floats of 32 bits go another way there")
        if kind == EXAMPLE or not complete:
            _check_scores(model, rows, dict(zip(graph.output_names, outputs, strict=True)), note)
    if not compared:
        note(f"the result was not compared with the object, which does not take rows like the example: {reason}")
    return flat


def _asked(model: Any, framework: str, rows: Any) -> list[Wanted]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return list(_wanted(model, framework, rows))


def _check_digits(model: Any, framework: str, example: Any, note: Callable[[str], None]) -> None:
    """Does the object say the same of features that are rounded to f32?"""
    rounded = _rounded(example[:MOST_ROWS]) if hasattr(example, "shape") else None
    if rounded is None:
        return
    try:
        wanted, others = (_asked(model, framework, rows) for rows in (example[:MOST_ROWS], rounded))
    except Exception:
        return
    lost, many = _lost(wanted, [other.numbers for other in others], SHARE_OF_EXAMPLE)
    if many:
        what = f"the features of the example lose digits as f32, and with them the model gives other results: {lost} {EXAMPLE}"
        raise ModelError("cannot-export", what, hint=_DIGITS_HINT)
    if lost:
        note(f"the features of the example lose digits as f32: {lost} {EXAMPLE}")


def _rounded(example: Any) -> Any:
    """The same rows with features that f32 holds, or None if it holds these."""
    if has_columns(example):
        changed = {name: one for name in example.columns if (one := _rounded(example[name].to_numpy())) is not None}
        return example.assign(**{str(n): c for n, c in changed.items()}) if changed else None
    if not isinstance(example, np.ndarray) or example.dtype.kind not in "fiu":
        return None
    with np.errstate(all="ignore"):
        rounded = example.astype(np.float32).astype(example.dtype)
    return None if np.array_equal(rounded, example, equal_nan=example.dtype.kind == "f") else rounded


def _check_scores(model: Any, rows: Any, found: dict[str, Array], note: Callable[[str], None]) -> None:
    """Of models without probabilities: are they those of `decision_function`?"""
    if "scores" not in found or hasattr(model, "predict_proba") or not hasattr(model, "classes_"):
        return
    ask = getattr(model, "decision_function", None)
    if ask is None:
        note("`scores` are no probabilities: use the labels")
        return
    scores = found["scores"].reshape(len(rows), -1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = Wanted("decision_function", np.asarray(ask(rows)).reshape(len(rows), -1))
    same = [got for got in (scores, scores[:, -1:]) if got.shape == want.numbers.shape and not _off(want, got)[0]]
    if not same:
        note("`scores` are other numbers than those of `decision_function`: use the labels")


def _graph(made: Any, rows: int) -> Graph:
    onnx = importlib.import_module("onnx")
    several = copy.deepcopy(made)
    for given in several.graph.input:
        given.type.tensor_type.shape.dim[0].dim_value = rows
    for output in several.graph.output:
        output.type.tensor_type.ClearField("shape")
    with tempfile.TemporaryDirectory(prefix="intaglio-") as folder:
        path = Path(folder) / "converted.onnx"
        onnx.save(several, path)
        return load(path)[0]


# Rows -------------------------------------------------------------------------------------------------------------------------


def has_columns(example: Any) -> bool:
    """Is it a table with names and types of its columns, as those of pandas?"""
    return hasattr(example, "columns") and hasattr(example, "dtypes")


def has_strings(example: Any) -> bool:
    """A table of strings, or one text a row."""
    if not isinstance(example, np.ndarray) or example.ndim not in (1, 2) or not is_text(example):
        return False
    return all(isinstance(one, (str, bytes)) for one in example.reshape(-1).tolist())


Rows = Iterator[tuple[str, Any, dict[str, Array]]]  # their kind, as the object takes them, as the graph does


def _mixed(graph: Graph, example: Any, count: int) -> Rows:
    """Of the example, with each column in another order, and with other strings here and there."""
    source = np.random.default_rng(0)
    same = np.arange(count) % max(1, len(example))
    for kind in (EXAMPLE, "with columns of the example", UNKNOWN):
        columns = example.shape[1] if len(example.shape) > 1 else 1
        order = [same if kind == EXAMPLE else source.permutation(same) for _ in range(columns)]
        if has_columns(example):
            parts = {name: example[name].to_numpy()[at] for name, at in zip(example.columns, order, strict=True)}
            if kind == UNKNOWN:
                parts = {name: _others(column) for name, column in parts.items()}
            rows = type(example)(parts)
            arrays = {str(name): column.reshape(-1, 1) for name, column in parts.items()}
        else:
            table = example.reshape(len(example), -1)
            rows = np.stack([table[at, n] for n, at in enumerate(order)], axis=1)
            rows = _others(rows) if kind == UNKNOWN else rows
            arrays = {graph.inputs[0].name: rows}
            rows = rows.reshape(count, *example.shape[1:])
        fed = zip(graph.inputs, arrays.values(), strict=True)  # in the order of the columns; names may be cleaner
        yield kind, rows, {value.name: _fed(array, value) for value, array in fed}


def _others(column: Array) -> Array:
    """Every fourth string is one that nobody uses."""
    if not is_text(column):
        return column
    changed = column.astype(object)
    changed.reshape(-1)[::4] = "@@"
    return changed


def _fed(array: Array, value: Value) -> Array:
    return encoded(array, value.type.shape[-1]) if is_text(array) else array.astype(np.float32)


def _tables(model: Any, made: Any, graph: Graph, example: Any, count: int) -> Rows:
    source = np.random.default_rng(0)
    known = isinstance(example, np.ndarray) and example.ndim == 2 and example.dtype.kind in "fiub"
    numbers = np.asarray(example, np.float32) if known else None
    for kind, rows in _rows(made, numbers, (count, graph.inputs[0].type.shape[1]), source):
        if kind != "of whole numbers" or "Neighbors" not in type(model).__name__:  # neighbours at equal distances are all right
            yield kind, rows, {graph.inputs[0].name: rows}


def _rows(made: Any, example: Array | None, shape: tuple[int, int], source: np.random.Generator) -> Iterator[tuple[str, Array]]:
    normal = source.standard_normal(shape).astype(np.float32)
    if example is not None and len(example) and np.isfinite(example).any():
        yield EXAMPLE, example[np.arange(shape[0]) % len(example)]
        middle, spread = np.nanmean(example, axis=0), np.nanstd(example, axis=0)
        spread = np.where(spread > 0, spread, np.maximum(np.abs(middle), 1.0))
        normal = np.nan_to_num(middle + normal * spread).astype(np.float32)
        whole = (np.isnan(example) | (example == np.round(example))).all(axis=0)  # categories and counts stay such
        normal = np.where(whole, np.round(normal), normal)
    yield "like the example" if example is not None else "of normal numbers", normal
    at = _thresholds(made, shape[1])
    if any(len(numbers) > 1 for numbers in at):
        yield "near thresholds", np.stack([_between(numbers, normal[:, n], source) for n, numbers in enumerate(at)], axis=1)
    yield "of whole numbers", source.integers(0, 6, shape).astype(np.float32)
    yield "with zeros", np.where(source.random(shape) < 0.3, np.float32(0), normal)
    yield MISSING, np.where(source.random(shape) < 0.2, np.float32(np.nan), normal)


def _thresholds(made: Any, columns: int) -> list[Array]:
    numpy_helper = importlib.import_module("onnx").numpy_helper
    found: list[list[float]] = [[] for _ in range(columns)]
    for node in made.graph.node:
        given = {one.name: one for one in node.attribute}
        if "nodes_values" in given:
            values, asked = given["nodes_values"].floats, [mode != b"LEAF" for mode in given["nodes_modes"].strings]
        elif "nodes_splits" in given:
            values = numpy_helper.to_array(given["nodes_splits"].t).tolist()
            asked = (numpy_helper.to_array(given["nodes_modes"].t) < MEMBER).tolist()
        else:
            continue
        for feature, value, branch in zip(given["nodes_featureids"].ints, values, asked, strict=False):
            if branch and feature < columns:
                found[feature].append(value)
    return [np.unique(np.array(numbers, np.float64)) for numbers in found]


def _between(numbers: Array, otherwise: Array, source: np.random.Generator) -> Array:
    """In the middle between two neighbours: a threshold that is rounded is not crossed."""
    if len(numbers) < 2:
        return otherwise
    at = source.integers(0, len(numbers) - 1, len(otherwise))
    return ((numbers[at] + numbers[at + 1]) / 2).astype(np.float32)


# What the object says ---------------------------------------------------------------------------------------------------------


def _wanted(model: Any, framework: str, rows: Array) -> Iterator[Wanted]:
    if type(model).__name__ == "Booster":
        yield _of_booster(model, framework, rows)
        return
    if not hasattr(model, "predict"):
        yield Wanted("transform", _dense(model.transform(rows)))
        return
    scores = _scores(model, rows)
    answers = np.asarray(model.predict(rows))
    classes = getattr(model, "classes_", None)
    if answers.dtype.kind in "OUS" and classes is not None:
        answers = np.searchsorted(np.asarray(classes), answers.reshape(len(rows)))
    yield Wanted("predict", answers, None if scores is None else _tied(scores))
    if hasattr(model, "predict_proba") and isinstance(probabilities := model.predict_proba(rows), np.ndarray):
        yield Wanted("predict_proba", probabilities)


def _of_booster(model: Any, framework: str, rows: Array) -> Wanted:
    given = importlib.import_module("xgboost").DMatrix(rows, feature_names=model.feature_names) if framework == "xgboost" else rows
    return Wanted("Booster.predict", np.asarray(model.predict(given)))


def _dense(numbers: Any) -> Array:
    return np.asarray(numbers.toarray() if hasattr(numbers, "toarray") else numbers)


def _scores(model: Any, rows: Array) -> Array | None:
    ask: Callable[[Array], Any] | None = getattr(model, "decision_function", None) or getattr(model, "predict_proba", None)
    if ask is None:
        return None
    scores = ask(rows)
    return scores.astype(np.float64) if isinstance(scores, np.ndarray) else None


def _tied(scores: Array) -> Array:
    near = TIED * max(1.0, float(np.nanmax(np.abs(scores), initial=0)))
    if scores.ndim == 1 or scores.shape[1] == 1:
        return np.abs(scores.reshape(-1)) < near
    ordered = np.sort(scores, axis=1)
    return np.asarray(ordered[:, -1] - ordered[:, -2] < near)


# Comparing --------------------------------------------------------------------------------------------------------------------


def _lost(wanted: list[Wanted], found: list[Array], share: float) -> tuple[str, bool]:
    """What differs, or nothing; and in more rows than this share?"""
    if wanted[0].name == "Booster.predict":  # probabilities of class 1, of all classes, labels, or numbers
        views = [view for array in found for view in (array, *([array[:, 1]] if array.ndim == 2 and array.shape[1] == 2 else []))]
        fitting = [view for view in views if view.size == wanted[0].numbers.size]
        counts = [_off(wanted[0], view)[0] for view in fitting]
        found = [fitting[int(np.argmin(counts))]] if fitting else found[:1]
    lost = ""
    for want, got in zip(wanted[-len(found) :], found, strict=False):  # labels that are strings may have been left out
        if got.size != want.numbers.size:
            return f"`{want.name}` gives {[*want.numbers.shape]}, the converted model {[*got.shape]}, for rows", True
        count, most = _off(want, got)
        told = f"`{want.name}` differs by up to {most:.3g} in {count} of {len(want.numbers)} rows"
        if count > share * len(want.numbers):
            return told, True
        lost = lost or (told if count else "")
    return lost, False


def _off(want: Wanted, got: Array) -> tuple[int, float]:
    """Rows that are off, and the largest difference."""
    a, b = want.numbers.astype(np.float64), np.asarray(got, np.float64).reshape(want.numbers.shape)
    with np.errstate(all="ignore"):
        difference = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.nan_to_num(np.abs(a - b), nan=np.inf, posinf=np.inf))
    rows = (difference > _bound(want)).reshape(len(a), -1).any(axis=1)
    if want.tied is not None:
        rows &= ~want.tied
    return int(rows.sum()), float(difference.max(initial=0.0))


def _bound(want: Wanted) -> Any:
    """What numbers may be off by, for each column."""
    if want.name == "predict" and want.tied is not None:
        return 0.5  # labels
    if want.name == "predict_proba":
        return OFF
    numbers = want.numbers.astype(np.float64)
    known = np.where(np.isfinite(numbers), numbers, np.nan)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        spread, largest = np.nan_to_num(np.nanstd(known, axis=0)), np.nan_to_num(np.nanmax(np.abs(known), axis=0))
    flat = np.where(spread > NOISE * largest.max(initial=0.0), largest, largest.max(initial=0.0))  # a column of rounding errors
    return np.maximum(OFF * spread, np.maximum(NOISE * flat, 1e-30))
