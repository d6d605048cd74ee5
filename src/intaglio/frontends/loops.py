"""Loops that stay loops, for all front ends: a body is imported once, between `loop_start` and `loop_end`.

A loop carries a condition, the number of the turn and the values of the model. What each turn collects is a row of a room that is
as large as the bound says. The number of turns is a size (`Emitter.found`) where it is not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from intaglio.frontends.emitting import Emitter
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Value
from intaglio.ir.sizes import Size, most, names_of
from intaglio.ir.types import DType, TensorType
from intaglio.ops.binary import Add, Less, LogicalAnd
from intaglio.ops.convert import Cast
from intaglio.ops.loops import LoopEnd, LoopStart, PutRow, Room
from intaglio.ops.move import Reshape

NO_LIMIT = 1 << 31  # exporters write a number like this where a loop has no limit


@dataclass(frozen=True, slots=True)
class Turn:
    """What a body gives: whether there is another turn (None: nothing but the limit says), what is carried, what is collected, and
    in which places (none: in order)."""

    again: Value | None
    carried: Sequence[Value]
    rows: Sequence[Value] = ()
    places: Sequence[Value | None] = ()


@dataclass(frozen=True, slots=True)
class Limit:
    """How often a loop may run: a number, a size of the caller, a value that is computed, or None. `bound` is the most that there
    is room for, where a number does not say."""

    turns: int | Value | None = None
    bound: int | None = None
    hint: str = ""

    @property
    def known(self) -> int | None:
        """As a number or a size."""
        known = self.turns if not isinstance(self.turns, Value) else None
        return None if known is None or (not isinstance(known, Size) and known >= NO_LIMIT) else known

    def most(self) -> int | None:
        found = [most(n) for n in (self.known, self.bound) if n is not None]
        return min(found) if found else None


Body = Callable[[Value, list[Value]], Turn]  # of the number of the turn, and what is carried


def run_loop(
    walk: Emitter, stem: str, limit: Limit, condition: Value | None, carried: Sequence[Value], body: Body
) -> tuple[list[Value], list[Value]]:
    """What is carried after the last turn, and what was collected."""
    known = limit.known
    bounded = known is not None or isinstance(limit.turns, Value)
    edge = _edge(walk, limit) if bounded else None
    first = _yes(walk) if condition is None else _single(walk, condition)
    zero, one = (walk.constant(np.asarray(n, np.int64)) for n in (0, 1))
    begin = first if edge is None else _and(walk, first, walk.emit(Less(), [zero, edge])[0])
    at = len(walk.nodes)
    given = [walk.at_run_time(v) for v in carried]
    start = walk.emit(LoopStart(), [begin, zero, *given])
    outer, walk.turn = walk.turn, start[0]
    try:
        turn = body(start[1], list(start[2:]))
        following = [_single(walk, turn.again)] if turn.again is not None else [_yes(walk)]
        if edge is None and turn.again is None:
            raise Fault("too-large", "the loop never ends: it has no limit, and its condition always holds")
        turn = replace(turn, carried=_checked(walk, start[2:], turn.carried))
        number = walk.emit(Add(), [start[1], one])[0]
        if edge is not None:
            following[0] = _and(walk, following[0], walk.emit(Less(), [number, edge])[0])
        exact = known is not None and turn.again is None and condition is None and limit.most() == most(known)
        room = known if exact and isinstance(known, Size) else limit.most()  # a result may be no larger than its caller says
        places = turn.places or [None] * len(turn.rows)
        rows = [_collected(walk, at, room, limit, row, place or start[1]) for row, place in zip(turn.rows, places, strict=True)]
    finally:
        walk.turn = outer
    operands: list[Value | None] = [*start, *following, number, *[walk.at_run_time(v) for v in turn.carried], *rows]
    n = len(start)
    if not rows or exact:
        made = walk.emit(LoopEnd(n, 0 if known is None or not rows else known), operands)
    else:
        high = limit.most()
        assert high is not None
        made = walk.found(f"{stem}_count", 0, high, lambda count: LoopEnd(n, count), operands, at=1)
    return list(made[2:n]), list(made[n:])


def _edge(walk: Emitter, limit: Limit) -> Value:
    """The number of turns as data."""
    if isinstance(limit.turns, Value):
        return _whole(walk, limit.turns)
    if isinstance(limit.turns, Size):
        sizes = np.empty((), object)
        sizes[()] = limit.turns
        return walk.at_run_time(walk.constant(sizes, DType.I64))
    return walk.constant(np.asarray(limit.turns, np.int64))


def _collected(walk: Emitter, at: int, high: int | None, limit: Limit, row: Value, number: Value) -> Value:
    """The row in its room, for `high` rows. The room is made in front of the loop."""
    if high is None:
        raise unsupported("how often a loop runs depends on data, and with it the shape of its results", limit.hint)
    moving = names_of(row.type.shape) & walk.counts.keys()
    if moving and any(walk.counts[name] in {out for node in walk.nodes[at:] for out in node.outputs} for name in moving):
        raise unsupported("a loop collects rows whose size changes from turn to turn")
    row = walk.at_run_time(row)
    before, walk.turn = walk.turn, None
    (room,) = walk.emit(Room((high if isinstance(high, Size) else max(high, 1), *row.shape), row.dtype), [])
    walk.turn = before
    walk.nodes.insert(at, walk.nodes.pop())
    return walk.emit(PutRow(), [room, row, number])[0]


class Changed(Fault):
    """A body gives other types than it takes; `types` are those that it gives where they differ, by place."""

    def __init__(self, what: str, types: dict[int, TensorType]) -> None:
        found = unsupported(f"a value that a loop carries changes from turn to turn ({what})")
        super().__init__(found.slug, found.reason, found.hint)
        self.types = types


def _checked(walk: Emitter, old: Sequence[Value], new: Sequence[Value]) -> list[Value]:
    """What a body gives, of the types that it takes."""
    if len(old) != len(new):
        raise Fault("bad-graph", f"a loop carries {len(old)} values, and its body gives {len(new)}")
    new = [_of_rank(walk, a, b) for a, b in zip(old, new, strict=True)]
    pairs = {n: pair for n, pair in enumerate(zip(old, new, strict=True)) if _kind(pair[0]) != _kind(pair[1])}
    for a, b in pairs.values():
        what = f"{list(a.shape)} becomes {list(b.shape)}" if a.dtype is b.dtype else f"{a.dtype.value} becomes {b.dtype.value}"
        raise Changed(what, {n: after.type for n, (_, after) in pairs.items()})
    return new


def _of_rank(walk: Emitter, old: Value, new: Value) -> Value:
    """A single number keeps the rank that it had: exporters mix [] and [1]."""
    if old.shape == new.shape or not old.type.elements == new.type.elements == 1:
        return new
    return walk.emit(Reshape(old.shape), [new])[0]


def _kind(value: Value) -> tuple[DType, tuple[int, ...]]:
    return value.dtype, value.shape


def _yes(walk: Emitter) -> Value:
    return walk.constant(np.asarray(True))


def _single(walk: Emitter, value: Value) -> Value:
    if value.dtype is not DType.BOOL or value.type.elements != 1:
        raise Fault("bad-graph", "the condition of a loop is not one bool")
    return value if not value.shape else walk.emit(Reshape(()), [value])[0]


def _whole(walk: Emitter, value: Value) -> Value:
    value = walk.at_run_time(value)
    value = value if not value.shape else walk.emit(Reshape(()), [value])[0]
    return value if value.dtype is DType.I64 else walk.emit(Cast(DType.I64), [value])[0]


def _and(walk: Emitter, a: Value, b: Value) -> Value:
    """Both; constants fold."""
    for known, other in ((a, b), (b, a)):
        if known.data is not None:
            return other if bool(known.data.reshape(-1)[0]) else known
    return walk.emit(LogicalAnd(), [a, b])[0]
