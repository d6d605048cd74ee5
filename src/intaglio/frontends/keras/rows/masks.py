"""Steps that a mask leaves out of a recurrent layer: those that count move to the front, and their number is the length.

    mask      0 1 0 1 1        x   a b c d e      ->   b d e . .  with the length 3      (y: p q r . .)
    results   - p p q r   forwards: of the last step that counted;  p p q q r  backwards: of the next one
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.frontends.building import cast, concat, part, reshape
from intaglio.frontends.keras.walk import KerasCall
from intaglio.ir.graph import Value
from intaglio.ir.sizes import is_size, moves
from intaglio.ir.types import DType
from intaglio.ops.binary import Mul, Sub, Where
from intaglio.ops.index import GatherNd, ScatterNd
from intaglio.ops.move import Expand
from intaglio.ops.reduce import Cumsum
from intaglio.ops.sizes import Dimensions, Iota


@dataclass(frozen=True, slots=True)
class Packed:
    """The steps that count, in order, [batch, time, features]; how many there are, i32[batch]; and up to each step, i64."""

    x: Value
    lengths: Value
    counts: Value
    mask: Value


def _zeros(call: KerasCall, shape: tuple[int, ...], dtype: DType) -> Value:
    """Sizes are known now, or the caller says them."""
    if moves(shape):
        return call.emit(Expand(shape), call.constant(np.zeros((1,) * len(shape), dtype.numpy), dtype))
    return call.constant(np.zeros(shape, dtype.numpy), dtype)


def _pairs(call: KerasCall, at: Value) -> Value:
    """(batch, step) for every element of `at` [batch, time]."""
    batch, time = at.shape
    if moves(at.shape):
        rows = call.emit(Expand((batch, time, 1)), reshape(call, call.emit(Iota(batch)), (batch, 1, 1)))
    else:
        rows = call.constant(np.repeat(np.arange(batch, dtype=np.int64)[:, None], time, 1)[..., None])
    return concat(call, [rows, reshape(call, at, (batch, time, 1))], 2)


def packed(call: KerasCall, x: Value, mask: Value) -> Packed:
    batch, time, features = x.shape
    counts = call.emit(Cumsum(1), cast(call, mask, DType.I64))
    one = call.constant(np.asarray(1, np.int64))
    beyond = call.emit(Dimensions((time,), ())) if is_size(time) else call.constant(np.asarray(time, np.int64))
    at = call.emit(Where(), mask, call.emit(Sub(), counts, one), beyond)
    room = _zeros(call, (batch, time + 1, features), x.dtype)
    moved = part(call, call.emit(ScatterNd(), room, _pairs(call, at), x), 1, 0, time)
    lengths = cast(call, reshape(call, part(call, counts, 1, time - 1, 1), (batch,)), DType.I32)
    return Packed(moved, lengths, counts, mask)


def unpacked(call: KerasCall, y: Value, found: Packed, backwards: bool, zeros: bool) -> Value:
    """The result of every step. `zeros`: of those that do not count it is 0."""
    empty = _zeros(call, (y.shape[0], 1, y.shape[2]), y.dtype)
    if backwards:
        at = call.emit(Sub(), found.counts, cast(call, found.mask, DType.I64))
        rows = concat(call, [y, empty], 1)
    else:
        at, rows = found.counts, concat(call, [empty, y], 1)
    every = call.emit(GatherNd(), rows, _pairs(call, at))
    if not zeros:
        return every
    return call.emit(Mul(), every, cast(call, reshape(call, found.mask, (*found.mask.shape, 1)), y.dtype))
