"""One distribution over classes that fits the probabilities of all pairs (Wu, Lin and Weng 2004, their second method), as libsvm
and ONNX Runtime compute it: an iteration that stops when no class is further than 0.005 / classes from the minimum.

    p = pairwise_coupling(r, classes=3)        r[.., n]: how likely i is, of the n-th pair i < j
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need
from intaglio.ops.numeric import Numeric, numeric

MOST_TURNS = 100


def tolerance(classes: int) -> float:
    return 0.005 / classes


@dataclass(frozen=True, slots=True)
class PairwiseCoupling(Op):
    NAME: ClassVar[str] = "pairwise_coupling"
    classes: int = 2

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        r = need(self.NAME, types, 1, 1)[0]
        if r.dtype is not DType.F32 or r.rank != 2 or r.shape[1] * 2 != self.classes * (self.classes - 1) or self.classes < 2:
            raise BadOperator(f"`{self.NAME}` of {self.classes} classes takes f32 rows of a number per pair, got {r}")
        return (TensorType(r.dtype, (r.shape[0], self.classes)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        assert arrays[0] is not None
        rows = [self._row(row) for row in numeric(arrays[0])]
        return (np.array(rows, np.float32).reshape(len(rows), self.classes),)

    def _row(self, row: Numeric) -> Numeric:
        count = self.classes
        likely = np.zeros((count, count), row.dtype)
        likely[np.triu_indices(count, 1)] = row
        likely += np.tril(1 - likely.T, -1)
        q = -likely.T * likely
        np.fill_diagonal(q, np.square(likely).sum(axis=0))
        p = np.full(count, 1 / count, row.dtype)
        for _ in range(max(MOST_TURNS, count)):
            qp = q @ p
            whole = p @ qp
            if np.abs(qp - whole).max() < tolerance(count):
                break
            for t in range(count):
                step = (whole - qp[t]) / q[t, t]
                p[t] += step
                whole = (whole + step * (step * q[t, t] + 2 * qp[t])) / ((1 + step) * (1 + step))
                qp = (qp + step * q[t]) / (1 + step)
                p = p / (1 + step)
        return p
