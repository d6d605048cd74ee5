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
    """select_boxes(boxes [N,4], scores [N]) -> indices i32 [most], count i32 [1].

    The best box is taken, those that overlap it by more than `overlap` are left out, and so on; free places are -1."""

    NAME: ClassVar[str] = "select_boxes"
    most: int = 1
    least_score: float = 0.0
    overlap: float = 0.5

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        boxes, scores = need(self.NAME, types, 2, 2)
        if boxes.rank != 2 or boxes.shape[1] != 4 or scores.shape != (boxes.shape[0],) or self.most < 1:
            raise BadOperator(f"`select_boxes` of {boxes} and {scores}")
        if boxes.dtype is not DType.F32 or scores.dtype is not DType.F32:
            raise BadOperator(f"`select_boxes` takes floats, got {boxes.dtype.value} and {scores.dtype.value}")
        return TensorType(DType.I32, (self.most,)), TensorType(DType.I32, (1,))

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        boxes, scores = arrays
        assert boxes is not None and scores is not None
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
