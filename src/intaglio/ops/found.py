"""Results whose number depends on data: as many as are found, with room for the most. The last result is how many there are.

`count` is a size that is known when the operator has run (`Graph.counts`): what reads the results has it in its types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need
from intaglio.ops.detection import overlap

COUNT, REAL = TensorType(DType.I64, ()), TensorType(DType.F32, ())


@dataclass(frozen=True, slots=True)
class AsSize(Op):
    """as_size(n): a number that is computed becomes a size. Outside of its bounds, the run ends with an error."""

    NAME: ClassVar[str] = "as_size"
    EFFECT: ClassVar[bool] = True
    count: int = 0
    low: int = 0
    high: int = 0
    limit: int = -1  # another size that it must not pass; -1: none

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        given = need(self.NAME, types, 1, 1)[0]
        if given.elements != 1 or given.dtype not in (DType.I64, DType.I32):
            raise BadOperator(f"`as_size` takes one whole number, got {given}")
        return (COUNT,)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        number = int(arrays[0].reshape(-1)[0])
        if not self.low <= number <= self.high or (self.limit != -1 and number > self.limit):
            raise BadOperator(f"a size is {number}, which is not within {self.low}..{self.high}")
        return (np.asarray(number, np.int64),)


@dataclass(frozen=True, slots=True)
class NonZero(Op):
    """nonzero(x) -> indices i64[rank, count], count: where x is not zero, in order."""

    NAME: ClassVar[str] = "nonzero"
    count: int = 0

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        return TensorType(DType.I64, (max(x.rank, 1), self.count)), COUNT

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        found = np.array(np.nonzero(np.atleast_1d(arrays[0])), np.int64)
        return found, np.asarray(found.shape[1], np.int64)


@dataclass(frozen=True, slots=True)
class NonMaxSuppression(Op):
    """non_max_suppression(boxes [B,N,4], scores [B,C,N], limit, overlap, score) -> (batch, class, box) i64[count, 3], count.

    For each batch and class the best box is taken, those that overlap it by more than `overlap` are left out, and so on, up to
    `most`, and up to the limit, where there is one. Boxes are two opposite corners (y, x), or `centred` (x, y, width, height).
    The last three operands are for what is computed; `overlap` and `least_score` are not looked at where there is one."""

    NAME: ClassVar[str] = "non_max_suppression"
    count: int = 0
    most: int = 0
    overlap: float = 0.0
    least_score: float = -np.inf  # scores must be larger
    centred: bool = False

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        boxes, scores = need(self.NAME, types, 2, 5)
        for given, wanted in zip(types[2:], (COUNT, REAL, REAL), strict=False):
            if given is not None and given != wanted:
                raise BadOperator(f"a limit of `non_max_suppression` is {given}, not {wanted}")
        fits = boxes.rank == scores.rank == 3 and boxes.shape[2] == 4 and boxes.shape[0] == scores.shape[0]
        if not fits or boxes.shape[1] != scores.shape[2] or boxes.dtype is not DType.F32 or scores.dtype is not DType.F32:
            raise BadOperator(f"`non_max_suppression` of {boxes} and {scores}")
        return TensorType(DType.I64, (self.count, 3)), COUNT

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        boxes, scores, asked, overlap, least_score = [*arrays, None, None, None][:5]
        assert boxes is not None and scores is not None
        limit = self.most if asked is None else min(self.most, int(asked))
        known = ((self.overlap, overlap), (self.least_score, least_score))
        limits = [np.float32(number if given is None else given) for number, given in known]
        rows: list[tuple[int, int, int]] = []
        for batch, (some, tables) in enumerate(zip(boxes, scores, strict=True)):
            corners = self.corners(some)
            for kind, table in enumerate(tables):
                rows += [(batch, kind, n) for n in _chosen(corners, table, limit, *limits)]
        return np.array(rows, np.int64).reshape(-1, 3), np.asarray(len(rows), np.int64)

    def corners(self, boxes: Array) -> Array:
        """As (low, low, high, high)."""
        if self.centred:
            half = boxes[:, 2:] / np.float32(2)
            return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
        return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return self.most * types[1].elements * 4 if types[1] is not None else 0


def _chosen(boxes: Array, scores: Array, limit: int, most_overlap: np.float32, least_score: np.float32) -> list[int]:
    active = scores > least_score
    chosen: list[int] = []
    while active.any() and len(chosen) < limit:
        best = int(np.argmax(np.where(active, scores, -np.inf)))
        chosen.append(best)
        active &= ~(overlap(boxes[best], boxes) > most_overlap)
        active[best] = False
    return chosen


@dataclass(frozen=True, slots=True)
class Unique(Op):
    """unique(x [n, width]) -> rows [count, width], first [count], inverse [n], numbers [count], count.

    Each row once, in order of first appearance or `sorted`; where it was first, which one each row is, how often it is there."""

    NAME: ClassVar[str] = "unique"
    count: int = 0
    sorted: bool = True

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x = need(self.NAME, types, 1, 1)[0]
        if x.rank != 2:
            raise BadOperator(f"`unique` takes rows, got {x}")
        some, all_of_them = TensorType(DType.I64, (self.count,)), TensorType(DType.I64, x.shape[:1])
        return TensorType(x.dtype, (self.count, x.shape[1])), some, all_of_them, some, COUNT

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x = arrays[0]
        assert x is not None
        rows, first, inverse, numbers = np.unique(x, True, True, True, axis=0)
        inverse = inverse.reshape(-1)
        if not self.sorted:
            order = np.argsort(first, kind="stable")
            place = np.argsort(order, kind="stable")
            rows, first, numbers, inverse = rows[order], first[order], numbers[order], place[inverse]
        found = [a.astype(np.int64) for a in (first, inverse, numbers)]
        return rows, found[0], found[1], found[2], np.asarray(len(rows), np.int64)
