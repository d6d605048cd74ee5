"""Encoders of ai.onnx.ml: whole numbers, floats and strings by tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio.frontends.building import cast, reshape, unsqueeze
from intaglio.frontends.lookup import first_match, matches
from intaglio.frontends.onnx.call import Answer, Item, OnnxCall, Texts, importer, of_strings, texts
from intaglio.frontends.onnx.classes import ML
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.strings import find, place_of
from intaglio.frontends.onnx.tensors import STRING
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.binary import LogicalAnd, LogicalOr, Where
from intaglio.ops.control import AssertTrue
from intaglio.ops.index import Gather
from intaglio.ops.reduce import ArgReduce, Reduce
from intaglio.ops.unary import IsNan

Listed = Array | list[str]


@importer("OneHotEncoder", domain=ML)
def one_hot_encoder(call: OnnxCall) -> Answer:
    x = call.value(0)
    if call.texts("cats_strings"):
        raise unsupported("`OneHotEncoder` has categories that are strings, and its input is numbers", "give it strings")
    wide = cast(call, x, DType.I64) if x.dtype.is_float else x
    return _one_hot(call, matches(call, wide, np.array(call.ints("cats_int64s") or [], np.int64)))


@of_strings("OneHotEncoder", domain=ML)
def one_hot_of_strings(call: OnnxCall) -> Answer:
    categories = call.texts("cats_strings") or []
    place = place_of(call, call.strings(0), categories)
    return _one_hot(call, matches(call, place, np.arange(len(categories))))


def _one_hot(call: OnnxCall, hot: Value) -> Value:
    axes = tuple(range(len(hot.shape) - 1))
    if not call.integer("zeros", 1):
        known = call.emit(Reduce("any", (len(axes),), False), hot)
        call.emit(AssertTrue(), reshape(call, call.emit(Reduce("all", axes, True), known), (1,)))
    return cast(call, hot, DType.F32)


# LabelEncoder ---------------------------------------------------------------------------------------------------------------


def _listed(call: OnnxCall, name: str) -> Listed | None:
    """`keys_*` or `values_*` as numbers or strings; None where there are none of this kind."""
    if (words := call.texts(f"{name}_strings")) is not None:
        return words
    if (whole := call.ints(f"{name}_int64s")) is not None:
        return np.array(whole, np.int64)
    if (real := call.floats(f"{name}_floats")) is not None:
        return np.array(real, np.float32)
    return _tensor(call, f"{name}_tensor")


def _tensor(call: OnnxCall, name: str) -> Listed | None:
    attribute = call.attributes.get(name)
    if attribute is not None and attribute.t.data_type == STRING:
        return [bytes(word).decode("utf-8", "replace") for word in attribute.t.string_data]
    given = call.tensor(name)
    return None if given is None or given.data is None else given.data.reshape(-1)


def _tables(call: OnnxCall) -> tuple[Listed, Listed]:
    keys, values = _listed(call, "keys"), _listed(call, "values")
    classes = call.texts("classes_strings")
    if classes is not None and keys is None and values is None:  # opset 1: both ways
        numbers = np.arange(len(classes), dtype=np.int64)
        return (classes, numbers) if isinstance(call.item(0), Texts) else (numbers, classes)
    if keys is None or values is None:
        raise unsupported("`LabelEncoder` without keys and values is not supported", "export the model again")
    if len(keys) != len(values) or not len(keys):
        raise Fault("bad-attribute", f"`LabelEncoder` has {len(keys)} keys and {len(values)} values")
    return keys, values


def _default(call: OnnxCall, values: Listed) -> str | Array:
    given = _tensor(call, "default_tensor")
    if isinstance(values, list):
        return given[0] if isinstance(given, list) and given else call.text("default_string", "_Unused")
    if given is not None and not isinstance(given, list):
        return given.reshape(-1)[:1].astype(values.dtype).reshape(())
    usual = call.integer("default_int64", -1) if values.dtype.kind == "i" else call.real("default_float", -0.0)
    return np.array(usual, values.dtype)


@importer("LabelEncoder", domain=ML)
def label_encoder(call: OnnxCall) -> Answer:
    keys, values = _tables(call)
    if isinstance(keys, list):
        raise unsupported("`LabelEncoder` has keys that are strings, and its input is numbers", "give it strings")
    x, default = call.value(0), _default(call, values)
    hits = matches(call, x, keys)
    if call.version >= 4 and keys.dtype.kind == "f" and np.isnan(keys).any():
        missing = call.emit(IsNan(), unsqueeze(call, x, len(x.shape)))
        hits = call.emit(LogicalOr(), hits, call.emit(LogicalAnd(), missing, call.constant(np.isnan(keys))))
    which, known = first_match(call, hits)
    if isinstance(values, list):
        none = call.constant(np.asarray(len(values), np.int64))
        return _words(call, call.emit(Where(), known, which, none), [*values, str(default)])
    return call.emit(Where(), known, call.emit(Gather(0), call.constant(values), which), call.constant(np.asarray(default)))


@of_strings("LabelEncoder", domain=ML)
def label_encoder_of_strings(call: OnnxCall) -> Answer:
    keys, values = _tables(call)
    if not isinstance(keys, list):
        raise unsupported("`LabelEncoder` has keys that are numbers, and its input is strings", "give it numbers")
    return _looked_up(call, call.strings(0), keys, values, _default(call, values))


def _looked_up(call: OnnxCall, x: Value, keys: list[str], values: Listed, default: str | Array) -> Item:
    found, order = find(call, x, keys)  # -1, none, counts from the end
    if isinstance(values, list):
        return _words(call, found, [*(values[n] for n in order), str(default)])
    table = np.concatenate([values[order], np.asarray(default, values.dtype).reshape(1)])
    return call.emit(Gather(0), call.constant(table), found)


def _words(call: OnnxCall, which: Value, words: Sequence[str]) -> Texts:
    return texts(call.emit(Gather(0), call.words(words).value, which))


# CategoryMapper -------------------------------------------------------------------------------------------------------------


@importer("CategoryMapper", domain=ML)
def category_mapper(call: OnnxCall) -> Answer:
    words, numbers = call.texts("cats_strings") or [], np.array(call.ints("cats_int64s") or [], np.int64)
    if len(words) != len(numbers) or not words:
        raise Fault("bad-attribute", f"`CategoryMapper` has {len(words)} strings and {len(numbers)} numbers")
    x, last = call.value(0), len(call.value(0).shape)
    hits = matches(call, x, numbers)
    which = call.emit(ArgReduce("max", last, False), cast(call, hits, DType.I32))
    none = call.constant(np.asarray(len(words), np.int64))
    which = call.emit(Where(), call.emit(Reduce("any", (last,), False), hits), which, none)
    return _words(call, which, [*words, call.text("default_string", "_Unused")])


@of_strings("CategoryMapper", domain=ML)
def category_mapper_of_strings(call: OnnxCall) -> Answer:
    words, numbers = call.texts("cats_strings") or [], np.array(call.ints("cats_int64s") or [], np.int64)
    if len(words) != len(numbers) or not words:
        raise Fault("bad-attribute", f"`CategoryMapper` has {len(words)} strings and {len(numbers)} numbers")
    return _looked_up(call, call.strings(0), words, numbers, np.array(call.integer("default_int64", -1), np.int64))
