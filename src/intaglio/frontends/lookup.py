"""Numbers and strings that are looked up in a list: the place of the first key that is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from intaglio.frontends.building import cast, unsqueeze
from intaglio.frontends.emitting import Emits
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Array, Value
from intaglio.ir.strings import stacked
from intaglio.ir.types import DType, Layout
from intaglio.ops.binary import Equal, Where
from intaglio.ops.index import Gather
from intaglio.ops.reduce import ArgReduce, Reduce
from intaglio.ops.strings import TextFind


def matches(call: Emits, x: Value, keys: Array) -> Value:
    """bool[..., keys]: which key each element is."""
    return call.emit(Equal(), unsqueeze(call, x, len(x.shape)), call.constant(keys.astype(x.dtype.numpy), x.dtype))


def first_match(call: Emits, hits: Value) -> tuple[Value, Value]:
    """Along the last axis, the place of the first key that matches, and whether one does."""
    last = len(hits.shape) - 1
    which = call.emit(ArgReduce("max", last, False), cast(call, hits, DType.I32))
    return which, call.emit(Reduce("any", (last,), False), hits)


def place_of_number(call: Emits, x: Value, keys: Array) -> Value:
    """Which key each number is, by its place in the list; as many as there are where it is none."""
    which, known = first_match(call, matches(call, x, keys))
    return call.emit(Where(), known, which, call.constant(np.asarray(len(keys), np.int64)))


def text_table(call: Emits, words: Sequence[str]) -> Value:
    """Constant strings, each a row of bytes."""
    rows = [word.encode("utf-8") for word in words]
    if any(0 in row for row in rows):
        raise Fault("unsupported-type", "a string has a byte 0, which ends strings here", "use other strings")
    value = call.constant(stacked(rows, max([1, *map(len, rows)])))
    value.type = replace(value.type, layout=Layout.TEXT)
    return value


def in_order(keys: Sequence[str]) -> tuple[list[str], Array]:
    """The keys, sorted, and which each of them was: the first of equal ones counts."""
    encoded = [key.encode("utf-8") for key in keys]
    first = {key: n for n, key in reversed(list(enumerate(encoded)))}
    order = [first[key] for key in sorted(first)]
    return [keys[n] for n in order], np.array(order, np.int64)


def place_of_text(call: Emits, x: Value, keys: Sequence[str]) -> Value:
    """Which key each string is, by its place in the list; as many as there are where it is none."""
    words, order = in_order(keys)
    found = call.emit(TextFind(), x, text_table(call, words))
    return call.emit(Gather(0), call.constant(np.array([*order, len(keys)], np.int64)), found)  # -1 counts from the end
