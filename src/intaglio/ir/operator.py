"""What an operator is to the graph: a frozen dataclass that registers itself by name.

The operators themselves are in `intaglio.ops`; the graph, its text and its verifier need only this much of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType


class BadOperator(Exception):
    """An operator cannot be applied to these operands. The text says why; the caller knows where."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint


REGISTRY: dict[str, type[Op]] = {}


@dataclass(frozen=True, slots=True)
class Op:
    NAME: ClassVar[str] = ""
    EFFECT: ClassVar[bool] = False  # kept even when nobody reads its outputs
    LOOP: ClassVar[str] = ""  # `start` or `end` of a loop

    def __init_subclass__(cls) -> None:
        if cls.NAME:
            REGISTRY[cls.NAME] = cls

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        raise NotImplementedError(self.NAME)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        raise NotImplementedError(self.NAME)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        """Multiply-accumulates; operators without them count one per output element where they compute."""
        return 0

    def overlay(self, types: list[TensorType | None], out: TensorType) -> tuple[int, ...] | None:
        """For an operator that only moves data: at which element of the result each operand starts (negative: the result
        starts inside of the operand), where the memory of one can be the memory of the other. None: it has to copy."""
        return None

    def row_widths(self, types: list[TensorType | None], out: TensorType) -> tuple[int, ...] | None:
        """For an operator that puts rows of its operands side by side: how many elements of each operand are in a row of the
        result. None: it does something else."""
        return None

    def shares(self, operands: int) -> tuple[tuple[int, int], ...]:
        """Results that are in the memory of an operand, always: (result, operand)."""
        return ()

    def evaluate(self, arrays: list[Array | None], types: list[TensorType | None]) -> tuple[Array, ...]:
        """`reference` on stored arrays: f16 and bf16 widened before, results rounded to their stored type after."""
        outs = self.infer(*types)
        wide = [None if a is None or t is None else widen(a, t.dtype) for a, t in zip(arrays, types, strict=True)]
        with np.errstate(all="ignore"):
            results = self.reference(*wide)
        stored = [(narrow(np.asarray(r), t.dtype), t) for r, t in zip(results, outs, strict=False)]
        return tuple(r if t.moves else r.reshape(t.shape) for r, t in stored)  # as many as were found


@dataclass(frozen=True, slots=True)
class Step:
    """One elementwise operator inside a fused expression. `args` count the operands first, then earlier steps."""

    op: Op
    args: tuple[int, ...]


def widen(array: Array, dtype: DType) -> Array:
    if dtype is DType.BF16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    if dtype is DType.F16:
        return array.astype(np.float32)
    return array


def narrow(array: Array, dtype: DType) -> Array:
    if dtype is DType.BF16:
        return f32_to_bf16(array.astype(np.float32))
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy, copy=False)


def f32_to_bf16(array: Array) -> Array:
    """Round to nearest even; NaN stays NaN."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(array)
    return np.where(nan, ((bits >> 16) | 0x40).astype(np.uint16), rounded).reshape(array.shape)
