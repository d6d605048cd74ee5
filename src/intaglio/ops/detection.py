"""Non-maximum suppression with a fixed number of places: what TFLite's detection models end with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need


def overlap(a: Array, b: Array) -> Array:
    """Intersection over union of one box with many, as (y0, x0, y1, x1); 0 where a box has no area."""
    area = (a[2] - a[0]) * (a[3] - a[1])
    areas = (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])
    high = np.maximum(np.minimum(a[2], b[:, 2]) - np.maximum(a[0], b[:, 0]), np.float32(0))
    wide = np.maximum(np.minimum(a[3], b[:, 3]) - np.maximum(a[1], b[:, 1]), np.float32(0))
    shared = high * wide
    real = (areas > 0) & (area > 0)
    return np.where(real, shared / np.where(real, area + areas - shared, np.float32(1)), np.float32(0))


@dataclass(frozen=True, slots=True)
class SelectBoxes(Op):
    """select_boxes(boxes [N,4], scores [N]) -> indices i32 [most], count i32 [1]. Of scores [C,N]: indices [C,most], count [C].

    The best box is taken, those that overlap it by more than `overlap` are left out, and so on; free places are -1."""

    NAME: ClassVar[str] = "select_boxes"
    most: int = 1
    least_score: float = 0.0
    overlap: float = 0.5

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        boxes, scores = need(self.NAME, types, 2, 2)
        if boxes.rank != 2 or boxes.shape[1] != 4 or scores.shape[-1:] != boxes.shape[:1] or scores.rank > 2 or self.most < 1:
            raise BadOperator(f"`select_boxes` of {boxes} and {scores}")
        if boxes.dtype is not DType.F32 or scores.dtype is not DType.F32:
            raise BadOperator(f"`select_boxes` takes floats, got {boxes.dtype.value} and {scores.dtype.value}")
        classes = scores.shape[:-1]
        return TensorType(DType.I32, (*classes, self.most)), TensorType(DType.I32, classes or (1,))

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        boxes, scores = arrays
        assert boxes is not None and scores is not None
        if scores.ndim == 1:
            return self._one_class(boxes, scores)
        indices, counts = zip(*(self._one_class(boxes, row) for row in scores), strict=True)
        return np.stack(indices), np.concatenate(counts)

    def _one_class(self, boxes: Array, scores: Array) -> tuple[Array, Array]:
        active = scores >= np.float32(self.least_score)
        chosen: list[int] = []
        while active.any() and len(chosen) < self.most:
            best = int(np.argmax(np.where(active, scores, -np.inf)))
            chosen.append(best)
            active &= ~(overlap(boxes[best], boxes) > np.float32(self.overlap))
            active[best] = False
        indices = np.full(self.most, -1, np.int32)
        indices[: len(chosen)] = chosen
        return indices, np.asarray([len(chosen)], np.int32)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return self.most * types[0].elements if types[0] is not None else 0


@dataclass(frozen=True, slots=True)
class SuppressBoxes(Op):
    """suppress_boxes(boxes [N,4], scores [N], overlap, least score, sigma) -> indices i32[most], scores f32[most], count i32[1].

    TFLite's NON_MAX_SUPPRESSION_V4 and V5. The best of a heap is compared with the boxes that were taken since it was last there:
    one that overlaps it by `overlap` strikes it out, others lower its score where sigma is above 0. It is taken where its score is
    as before, and goes back. So a box without an area is taken again and again, as by LiteRT. Equal scores come in the order of
    libstdc++'s heap."""

    NAME: ClassVar[str] = "suppress_boxes"
    most: int = 1

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        boxes, scores, *limits = need(self.NAME, types, 5, 5)
        if boxes.rank != 2 or boxes.shape[1] != 4 or scores.shape != (boxes.shape[0],) or self.most < 0:
            raise BadOperator(f"`suppress_boxes` of {boxes} and {scores}")
        if any(t.dtype is not DType.F32 for t in (boxes, scores, *limits)) or any(t.elements != 1 for t in limits):
            raise BadOperator("`suppress_boxes` takes floats, and one number for each limit")
        return TensorType(DType.I32, (self.most,)), TensorType(DType.F32, (self.most,)), TensorType(DType.I32, (1,))

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        boxes, scores, *limits = [a for a in arrays if a is not None]
        corners = np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])], axis=1)
        most_overlap, least, sigma = (np.float32(a.reshape(-1)[0]) for a in limits)
        factor = np.float32(-0.5 / float(sigma)) if sigma > 0 else np.float32(0)
        worth, since, heap = scores.copy(), np.zeros(len(scores), np.int64), _Heap()
        for n in np.flatnonzero(scores > least):
            heap.push(int(n), worth)
        places, chosen, shown = min(self.most, len(heap.items)), list[int](), list[np.float32]()
        while len(chosen) < places and heap.items:
            best = heap.pop(worth)
            before, score, struck = worth[best], worth[best], False
            for other in reversed(chosen[since[best] :]):
                part = overlap(corners[other], corners[best : best + 1])[0]
                struck = bool(part >= most_overlap)
                score = score if struck or sigma <= 0 else score * np.exp(factor * part * part)
                if struck or score <= least:
                    break
            since[best], worth[best] = len(chosen), score
            if not struck and score == before:
                chosen.append(best)
                shown.append(score)
            if not struck and score > least:
                heap.push(best, worth)
        free = self.most - len(chosen)
        indices, found = np.array([*chosen, *[0] * free], np.int32), np.array([*shown, *[0] * free], np.float32)
        return indices, found, np.asarray([len(chosen)], np.int32)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        return self.most * types[0].elements if types[0] is not None else 0


class _Heap:
    """Numbers of boxes by what they are worth, as libstdc++ keeps them."""

    def __init__(self) -> None:
        self.items: list[int] = []

    def push(self, n: int, worth: Array) -> None:
        self.items.append(n)
        self._rise(len(self.items) - 1, n, worth)

    def _rise(self, at: int, n: int, worth: Array) -> None:
        items = self.items
        while at > 0 and worth[items[(at - 1) // 2]] < worth[n]:
            items[at] = items[(at - 1) // 2]
            at = (at - 1) // 2
        items[at] = n

    def pop(self, worth: Array) -> int:
        items = self.items
        top, last = items[0], items.pop()
        count, at = len(items), 0
        if not count:
            return top
        while at < (count - 1) // 2:
            child = 2 * at + 2
            child -= int(worth[items[child]] < worth[items[child - 1]])
            items[at], at = items[child], child
        if count % 2 == 0 and at == (count - 2) // 2:
            items[at], at = items[2 * at + 1], 2 * at + 1
        self._rise(at, last, worth)
        return top
