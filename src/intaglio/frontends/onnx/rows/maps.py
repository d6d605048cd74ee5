"""Maps of ai.onnx.ml. A map is two tensors, its keys and its values, with room for a largest number of entries; of entries with
equal keys the first counts, so the rest of the room may repeat an entry.

    keys [n], vocabulary [v]  ->  the place of each key in the vocabulary, v where it is none
    places [n]                ->  the first entry of each place, n where there is none
    values [n] and a zero     ->  the value of each place
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from intaglio.errors import quoted
from intaglio.frontends.building import cast, concat, part, reshape
from intaglio.frontends.lookup import place_of_number
from intaglio.frontends.onnx.call import Answer, Entries, Item, OnnxCall, Texts, importer, texts
from intaglio.frontends.onnx.classes import ML
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.strings import place_of, widened
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import GreaterEqual, Less, Where
from intaglio.ops.control import AssertTrue
from intaglio.ops.index import Gather, ScatterElements
from intaglio.ops.reduce import Reduce, TopK

ABSENT = "0.f"  # ONNX Runtime's string for an entry that a sparse map does not have


@importer("ZipMap", domain=ML)
def zip_map(call: OnnxCall) -> Answer:
    """Probabilities by class: a column each, instead of a map for each row."""
    names = call.texts("classlabels_strings") or [str(n) for n in call.ints("classlabels_int64s") or []]
    x = call.value(0)
    told = ", ".join(quoted(name) for name in names[:20]) + (", ..." if len(names) > 20 else "")
    call.walk.notes.append(f"the map of {call.op} is a tensor {x.type}; its columns are the classes {told}")
    return x


def _entries(call: OnnxCall) -> tuple[Item, Item]:
    item = call.item(0)
    if not isinstance(item, Entries):
        raise Fault("unsupported-type", f"operand 0 of `{call.op}` is not a map among the model's inputs", "make it an input")
    return item.keys, item.values


@importer("DictVectorizer", domain=ML)
def dict_vectorizer(call: OnnxCall) -> Answer:
    """A row with a column for each key of the vocabulary."""
    keys, values = _entries(call)
    words, numbers = call.texts("string_vocabulary"), call.ints("int64_vocabulary")
    vocabulary: Sequence[str | int] = (words if isinstance(keys, Texts) else numbers) or []
    if not vocabulary:
        kind = "strings" if isinstance(keys, Texts) else "whole numbers"
        raise Fault("bad-attribute", f"`DictVectorizer` has no vocabulary for a map whose keys are {kind}")
    known = {key: n for n, key in enumerate(dict.fromkeys(vocabulary))}
    if isinstance(keys, Texts):
        place = place_of(call, keys.value, [str(key) for key in known])
    else:
        place = place_of_number(call, _whole(call, keys), np.array(list(known), np.int64))
    entry = _first_entries(call, place, len(known))
    if len(known) < len(vocabulary):
        entry = call.emit(Gather(0), entry, call.constant(np.array([known[key] for key in vocabulary], np.int64)))
    return _chosen(call, values, entry, "")


def _whole(call: OnnxCall, keys: Item) -> Value:
    if not isinstance(keys, Value) or keys.dtype is not DType.I64:
        raise Fault("unsupported-type", f"`{call.op}` takes maps whose keys are strings or int64")
    return keys


def _first_entries(call: OnnxCall, place: Value, count: int) -> Value:
    """i64[count]: for each place the first entry that has it, as many as there are entries where none has."""
    size = place.shape[0]
    start = call.constant(np.full(count + 1, size, np.int64))
    found = call.emit(ScatterElements(0, "min"), start, place, call.constant(np.arange(size, dtype=np.int64)))
    return part(call, found, 0, 0, count)


def _chosen(call: OnnxCall, values: Item, entry: Value, absent: str) -> Item:
    """A row of the values of these entries; behind the last entry is what counts for none."""
    shape = (1, *entry.shape)
    if isinstance(values, Texts):
        more = call.words([absent]).value
        width = max(values.width, more.shape[-1])
        rows = concat(call, [widened(call, values.value, width), widened(call, more, width)], 0)
        return texts(reshape(call, call.emit(Gather(0), rows, entry), (*shape, width)))
    assert isinstance(values, Value)
    rows = concat(call, [values, call.constant(np.zeros(1, values.dtype.numpy), values.dtype)], 0)
    return reshape(call, call.emit(Gather(0), rows, entry), shape)


@importer("CastMap", domain=ML)
def cast_map(call: OnnxCall) -> Answer:
    """The values of a map in the order of its keys (DENSE), or each in the column that its key says (SPARSE)."""
    keys, values = _entries(call)
    numbers, form = _whole(call, keys), call.text("map_form", "DENSE")
    if form not in ("DENSE", "SPARSE"):
        raise Fault("bad-attribute", f"`CastMap` has the form `{form}`", "there are DENSE and SPARSE")
    entry = _in_order(call, numbers) if form == "DENSE" else _by_column(call, numbers, call.integer("max_map", 1))
    return _chosen(call, _cast_values(call, values), entry, ABSENT)


def _cast_values(call: OnnxCall, values: Item) -> Item:
    to = call.text("cast_to", "TO_FLOAT")
    if to not in ("TO_FLOAT", "TO_INT64", "TO_STRING"):
        raise Fault("bad-attribute", f"`CastMap` has `cast_to` `{to}`", "there are TO_FLOAT, TO_INT64 and TO_STRING")
    if isinstance(values, Texts) != (to == "TO_STRING"):
        what = "from strings to numbers" if isinstance(values, Texts) else "from numbers to strings"
        raise unsupported(f"`CastMap` {what} is not supported", "give the model a map of numbers, or remove this output")
    return cast(call, values, DType.F32 if to == "TO_FLOAT" else DType.I64) if isinstance(values, Value) else values


def _in_order(call: OnnxCall, keys: Value) -> Value:
    """The entries by their keys, which must differ: the result has as many columns as there is room for entries."""
    size = keys.shape[0]
    rising, order = call.emit_all(TopK(size, 0, False), keys)
    if size > 1:
        apart = call.emit(Less(), part(call, rising, 0, 0, size - 1), part(call, rising, 0, 1, size - 1))
        message = f"`CastMap` takes a map of {size} entries, whose keys differ"
        call.emit(AssertTrue(message), call.emit(Reduce("all", (0,), True), apart))
    return order


def _by_column(call: OnnxCall, keys: Value, count: int) -> Value:
    if count < 1:
        raise Fault("bad-attribute", f"`CastMap` to {count} columns is not valid")
    valid = call.emit(GreaterEqual(), keys, call.like(0, keys))
    call.emit(AssertTrue("`CastMap` to columns takes no negative keys"), call.emit(Reduce("all", (0,), True), valid))
    inside = call.emit(Less(), keys, call.like(count, keys))
    return _first_entries(call, call.emit(Where(), inside, keys, call.like(count, keys)), count)
