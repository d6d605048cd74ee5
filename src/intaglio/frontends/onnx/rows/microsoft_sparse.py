"""SparseAttention of com.microsoft: each head looks only at some blocks of keys. Keys and values go into caches.

    first [batch]: how many keys are there before; 0 for a prompt
    place of query s: first + s         seen: keys up to there, in blocks that the layout of the head has for its block
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from intaglio.frontends.building import cast, expand, reshape, transpose
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.onnx.rows.microsoft_attention import Scores, attend, grouped, joined_heads, repeated, rotated
from intaglio.frontends.onnx.rows.microsoft_weights import constant_of
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Clip
from intaglio.ops.binary import Add, Div, Equal, GreaterEqual, Less, LessEqual, LogicalAnd, Sub, Where
from intaglio.ops.index import Gather, GatherElements

MS = "com.microsoft"


@importer("SparseAttention", domain=MS)
def sparse_attention(call: OnnxCall) -> Answer:
    heads, groups, block = call.integer("num_heads"), call.integer("kv_num_heads"), call.integer("sparse_block_size")
    room = call.value(3).shape[2]
    layout = _layout(constant_of(call, 5, "rows of blocks"), constant_of(call, 6, "columns of blocks"))
    if groups < 1 or heads % groups or block < 1 or heads % len(layout) or layout.shape[1] * block < room:
        raise Fault("bad-attribute", f"`{call.op}` of {heads} heads in {groups} groups with blocks of {block} is not valid")
    q, k, v = grouped(call, heads, groups)
    batch, length = q.shape[0], q.shape[2]
    places = _places(call, batch, length)
    if call.integer("do_rotary"):
        turns = [call.emit(Gather(0), call.value(n), places) for n in (9, 10)]
        q, k = (rotated(call, x, turns[0], turns[1], bool(call.integer("rotary_interleaved"))) for x in (q, k))
    keys, values = (_put(call, call.value(at), new, places) for at, new in ((3, k), (4, v)))
    allowed = _allowed(call, places, layout, room, block)
    scale = call.real("scale", 0.0) or 1 / math.sqrt(q.shape[3])
    each = heads // groups
    wide = call.emit(Gather(1), allowed, call.constant(np.arange(heads) % len(layout)))
    y = attend(call, q, repeated(call, keys, each), repeated(call, values, each), Scores(scale, 0.0, None, wide))
    return [joined_heads(call, y), keys, values][: max(call.outputs, 1)]


def _layout(rows: Array, columns: Array) -> Array:
    """bool[layouts, blocks, blocks], from where the rows of each begin and its columns."""
    if rows.ndim != 2 or columns.ndim != 2 or len(rows) != len(columns):
        raise Fault("shape-mismatch", f"`SparseAttention` has rows of blocks {list(rows.shape)}, and columns {list(columns.shape)}")
    blocks = rows.shape[1] - 1
    found = np.zeros((len(rows), blocks, blocks), bool)
    for one, starts, places in zip(found, rows, columns, strict=True):
        for row, (start, end) in enumerate(pairwise(starts)):
            inside = places[start:end]
            if start > end or end > len(places) or (inside < 0).any() or (inside >= blocks).any():
                raise Fault("bad-attribute", f"`SparseAttention` has blocks that are not among {blocks} by {blocks}")
            one[row, inside] = True
    return found


def _places(call: OnnxCall, batch: int, length: int) -> Value:
    """i64[batch, length]: of the queries. A prompt begins at 0."""
    total, lengths = (cast(call, call.value(n), DType.I64) for n in (7, 8))
    size = call.like(length, lengths)
    before = call.emit(Sub(), reshape(call, lengths, (batch, 1)), size)
    prompt = call.emit(Equal(), reshape(call, total, (1, 1)), size)
    first = call.emit(Where(), prompt, call.like(0, before), before)
    return call.emit(Add(), first, call.constant(np.arange(length, dtype=np.int64)[None]))


def _put(call: OnnxCall, cache: Value, new: Value, places: Value) -> Value:
    """The rows of the cache that the new ones replace."""
    batch, groups, room, size = cache.shape
    length = new.shape[2]
    first = reshape(call, call.emit(Gather(1), places, call.constant(np.zeros(1, np.int64))), (batch, 1, 1, 1))
    which = call.emit(Sub(), call.constant(np.arange(room, dtype=np.int64).reshape(1, 1, room, 1)), first)
    above, below = call.emit(GreaterEqual(), which, call.like(0, which)), call.emit(Less(), which, call.like(length, which))
    inside = call.emit(LogicalAnd(), above, below)
    index = expand(call, call.emit(Clip(0, length - 1), which), (batch, groups, room, size))
    return call.emit(Where(), inside, call.emit(GatherElements(2), new, index), cache)


def _allowed(call: OnnxCall, places: Value, layout: Array, room: int, block: int) -> Value:
    """bool[batch, layouts, queries, keys]."""
    keys = np.arange(room)
    by_key = call.constant(np.ascontiguousarray(layout[:, :, keys // block].transpose(1, 0, 2)))
    rows = call.emit(Gather(0), by_key, call.emit(Div(), places, call.like(block, places)))
    batch, length = places.shape
    causal = call.emit(LessEqual(), call.constant(keys.astype(np.int64)), reshape(call, places, (batch, length, 1, 1)))
    both = call.emit(LogicalAnd(), rows, causal)
    return transpose(call, both, (0, 2, 1, 3))
