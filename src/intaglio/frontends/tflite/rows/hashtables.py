"""Tables of words and numbers, which a subgraph fills before the first run: constants after all. LiteRT has those from strings to
whole numbers of 64 bits, and back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.frontends.lookup import place_of_number, place_of_text, text_table
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.container import STRING
from intaglio.frontends.tflite.walk import Table, TFLiteCall, importer
from intaglio.ir.graph import Array
from intaglio.ir.types import DType, Layout
from intaglio.ops.index import Gather

_MOST = 1 << 24  # comparisons of numbers


def _table(call: TFLiteCall) -> Table:
    key = f"{id(call.graph)}:{call.tensor(0).index}"
    if key not in call.walk.tables:
        raise Fault("bad-graph", "its table has no handle")
    return call.walk.tables[key]


@importer("HASHTABLE")
def hashtable(call: TFLiteCall) -> None:
    shared = call.walk.tables.setdefault(f"id:{int(call.options.TableId())}", Table())
    call.walk.tables[f"{id(call.graph)}:{call.out().index}"] = shared


def _stored(call: TFLiteCall, i: int) -> Array:
    """A constant of whole numbers, or of strings."""
    tensor = call.tensor(i)
    if tensor.data is None or (tensor.kind != STRING and tensor.dtype is not DType.I64):
        raise Fault("unsupported-operator", "its entries are not constant strings and whole numbers of 64 bits")
    return tensor.data.reshape(-1)


@importer("HASHTABLE_IMPORT")
def hashtable_import(call: TFLiteCall) -> None:
    table, keys, values = _table(call), _stored(call, 1), _stored(call, 2)
    if len(keys) != len(values):
        raise Fault("shape-mismatch", f"it has {len(keys)} keys and {len(values)} values")
    if table.keys is None:  # LiteRT does not change a table that is there
        table.keys, table.values = keys, values


@importer("HASHTABLE_SIZE")
def hashtable_size(call: TFLiteCall) -> None:
    keys, _ = _filled(call)
    different = {key if isinstance(key, bytes) else int(key) for key in keys}
    call.give(call.constant(np.array([len(different)], np.int64)))


def _filled(call: TFLiteCall) -> tuple[Array, Array]:
    table = _table(call)
    if table.keys is None or table.values is None or not len(table.keys):
        raise Fault("unsupported-operator", "nothing fills its table", "export the model with what initialises it")
    return table.keys, table.values


@importer("HASHTABLE_FIND")
def hashtable_find(call: TFLiteCall) -> None:
    """The value of the first key that is the same, else the one that is given for all others."""
    (keys, values), other = _filled(call), _stored(call, 2)
    texts = keys.dtype == object
    if texts == (values.dtype == object) or (other.dtype == object) == texts or len(other) != 1:
        raise Fault("unsupported-operator", "tables from strings to whole numbers of 64 bits, and back, are supported")
    x = call.values.get(call.tensor(1).index)
    if x is None or (x.type.layout is Layout.TEXT) != texts or (not texts and x.dtype is not DType.I64):
        raise Fault("shape-mismatch", "what it looks up is not of the type of the keys")
    rows = np.concatenate([values, other])
    if texts:
        place = place_of_text(call, x, [_word(key) for key in keys])
        call.give(call.emit(Gather(0), call.constant(rows.astype(np.int64)), place))
        return
    if x.type.elements * len(keys) > _MOST:
        raise Fault("too-large", f"{len(keys)} numbers for {list(x.shape)} are not supported")
    words = call.emit(Gather(0), text_table(call, [_word(row) for row in rows]), place_of_number(call, x, keys))
    words.type = replace(words.type, layout=Layout.TEXT)
    words.origin = call.out().name
    call.keep(words)


def _word(row: bytes) -> str:
    try:
        return row.decode("utf-8")
    except UnicodeDecodeError:
        raise Fault("unsupported-type", "a string is not UTF-8", "store words as UTF-8") from None
