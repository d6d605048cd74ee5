"""Operators around control flow: select between branches, copy, and the check that a forbidden branch is not taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.sizes import is_size, most
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op, same_dtype


def need(name: str, types: tuple[TensorType | None, ...], least: int, most: int) -> list[TensorType]:
    """The first `least` operands, which must be there."""
    if not least <= len(types) <= most:
        raise BadOperator(f"`{name}` takes {least} to {most} operands, got {len(types)}")
    given = [t for t in types[:least] if t is not None]
    if len(given) != least:
        raise BadOperator(f"`{name}` lacks an operand that it needs")
    return given


@dataclass(frozen=True, slots=True)
class Select(Op):
    """All of `a` where the condition (one bool) holds, else all of `b`. The other one may not have been computed."""

    NAME: ClassVar[str] = "select"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        condition, a, b = need(self.NAME, types, 3, 3)
        if condition.dtype is not DType.BOOL or condition.elements != 1:
            raise BadOperator(f"the condition of `select` must be one bool, got {condition}")
        same_dtype(self.NAME, a.dtype, b.dtype)
        if a.shape != b.shape:
            raise BadOperator(f"`select` between different shapes {list(a.shape)} and {list(b.shape)}")
        return (a,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        condition, a, b = arrays
        assert condition is not None
        chosen = a if bool(condition.ravel()[0]) else b
        assert chosen is not None
        return (chosen,)


@dataclass(frozen=True, slots=True)
class SelectSized(Op):
    """The same of operands of different shapes: `shape` has sizes that follow from the condition."""

    NAME: ClassVar[str] = "select_sized"
    shape: tuple[int, ...] = ()

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        condition, a, b = need(self.NAME, types, 3, 3)
        if condition.dtype is not DType.BOOL or condition.elements != 1:
            raise BadOperator(f"the condition of `select_sized` must be one bool, got {condition}")
        same_dtype(self.NAME, a.dtype, b.dtype)
        if not a.rank == b.rank == len(self.shape):
            raise BadOperator(f"`select_sized` between {a} and {b}")
        for low, high, size in zip(a.shape, b.shape, self.shape, strict=True):
            known = not is_size(size) and size in (low, high)  # when it has run
            if max(most(low), most(high)) > most(size) and not known:
                raise BadOperator(f"`select_sized` between {a} and {b} has no room in {list(self.shape)}")
        return (TensorType(a.dtype, self.shape),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        condition, a, b = arrays
        assert condition is not None
        chosen = a if bool(condition.ravel()[0]) else b
        assert chosen is not None
        return (chosen,)


@dataclass(frozen=True, slots=True)
class Copy(Op):
    NAME: ClassVar[str] = "copy"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        return (need(self.NAME, types, 1, 1)[0],)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        return (np.array(arrays[0]),)


@dataclass(frozen=True, slots=True)
class AssertTrue(Op):
    """Stops the run with `message` when the condition is false; gives the condition otherwise."""

    NAME: ClassVar[str] = "assert_true"
    EFFECT: ClassVar[bool] = True
    message: str = ""

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        condition = need(self.NAME, types, 1, 1)[0]
        if condition.dtype is not DType.BOOL or condition.elements != 1:
            raise BadOperator(f"`assert_true` takes one bool, got {condition}")
        return (condition,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        if not bool(arrays[0].ravel()[0]):
            raise BadOperator(self.message)
        return (arrays[0],)
