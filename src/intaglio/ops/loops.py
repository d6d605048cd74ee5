"""Loops whose number of turns is known when they run: what they carry from turn to turn, and what they collect.

    c, h = loop_start(true, x)
    ...
    c2, y = loop_end(c, h, d, a, carried=2)

`ir/loops.py` says what is between them. The condition is the first that is carried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need


@dataclass(frozen=True, slots=True)
class LoopStart(Op):
    """loop_start(condition, ...): copies of its operands, in memory that each turn writes anew."""

    NAME: ClassVar[str] = "loop_start"
    EFFECT: ClassVar[bool] = True
    LOOP: ClassVar[str] = "start"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        given = need(self.NAME, types, max(1, len(types)), max(1, len(types)))
        _need_condition(self.NAME, given[0])
        return tuple(given)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        return tuple(np.array(a) for a in arrays)


@dataclass(frozen=True, slots=True)
class LoopEnd(Op):
    """loop_end(condition, ..., next condition, next ..., rows ...): what was carried, after the last turn, and of each collection
    the first `count` rows. Between two turns, what comes next is written over what was carried."""

    NAME: ClassVar[str] = "loop_end"
    EFFECT: ClassVar[bool] = True
    LOOP: ClassVar[str] = "end"
    carried: int = 1
    count: int = 0  # how many turns there were, where rows are collected

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        given = need(self.NAME, types, len(types), len(types))
        n = self.carried
        if len(given) < 2 * n or n < 1:
            raise BadOperator(f"`loop_end` carries {n} values and has {len(given)} operands")
        _need_condition(self.NAME, given[0])
        for old, new in zip(given[:n], given[n : 2 * n], strict=True):
            if (old.dtype, old.shape) != (new.dtype, new.shape):
                raise BadOperator(f"`loop_end` carries {old}, the next one is {new}")
        rows = given[2 * n :]
        if any(t.rank < 1 for t in rows):
            raise BadOperator("`loop_end` collects rows, got a single number")
        return (*given[:n], *(TensorType(t.dtype, (self.count, *t.shape[1:])) for t in rows))

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        n = self.carried
        rows = [a[: self.count] for a in arrays[2 * n :] if a is not None]
        return (*(np.array(a) for a in arrays[n : 2 * n]), *rows)

    def shares(self, operands: int) -> tuple[tuple[int, int], ...]:
        n = self.carried
        return (*((k, k) for k in range(n)), *((n + k, 2 * n + k) for k in range(operands - 2 * n)))


@dataclass(frozen=True, slots=True)
class Room(Op):
    """room(): zeros, in memory that `put_row` writes."""

    NAME: ClassVar[str] = "room"
    EFFECT: ClassVar[bool] = True  # two of the same type are not one
    shape: tuple[int, ...] = ()
    dtype: DType = DType.F32

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        if types:
            raise BadOperator("`room` takes no operands")
        return (TensorType(self.dtype, self.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        return (np.zeros(self.shape, np.float32 if self.dtype in (DType.F16, DType.BF16) else self.dtype.numpy),)


@dataclass(frozen=True, slots=True)
class PutRow(Op):
    """put_row(room, row, n): the room with row n, in its own memory. A row that it does not have is an error of the run."""

    NAME: ClassVar[str] = "put_row"
    EFFECT: ClassVar[bool] = True

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        room, row, n = need(self.NAME, types, 3, 3)
        if room.dtype is not row.dtype or room.shape[1:] != row.shape or room.rank < 1:
            raise BadOperator(f"`put_row` of {row} into {room}")
        if n.elements != 1 or n.dtype not in (DType.I64, DType.I32):
            raise BadOperator(f"`put_row` takes one whole number, got {n}")
        return (room,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        room, row, at = arrays
        assert room is not None and row is not None and at is not None
        n = int(at.reshape(-1)[0])
        if not 0 <= n < room.shape[0]:
            raise BadOperator(f"there is no row {n} among {room.shape[0]}")
        made = np.array(room)
        made[n] = row
        return (made,)

    def shares(self, operands: int) -> tuple[tuple[int, int], ...]:
        return ((0, 0),)


def _need_condition(name: str, condition: TensorType) -> None:
    if condition.dtype is not DType.BOOL or condition.elements != 1:
        raise BadOperator(f"the condition of `{name}` must be one bool, got {condition}")
