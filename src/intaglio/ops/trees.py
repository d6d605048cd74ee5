"""Decision trees: random forests, gradient boosting, isolation forests. One operator for all of them.

A node compares one feature with a threshold and goes left where `x <= threshold`, else right. `missing` says which nodes go left
where the feature is not a number; the others go right. All comparisons of ONNX are nodes of this one kind (`frontends/trees.py`).

    y = tree_ensemble(x, features, thresholds, children, missing, roots, starts, target_ids, weights, base, targets=3)

    children[n]        left and right: the number of a node, or -1 - L for the leaf L
    starts[L]          leaf L adds weights[starts[L] : starts[L+1]] to the targets target_ids[starts[L] : starts[L+1]]
    base               is added to every target at the end

Nodes may share subtrees and leaves. The sum of a target is rounded tree by tree, in the order of `roots`, in the type of the
weights: that of x; or f32 or f64 where features, and thresholds with them, are whole numbers of at most 16 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op, same_dtype
from intaglio.ops.control import need
from intaglio.ops.numeric import numeric

AGGREGATES = ("sum", "average", "min", "max")
FEATURES, THRESHOLDS, CHILDREN, MISSING, ROOTS, STARTS, TARGET_IDS, WEIGHTS, BASE = range(1, 10)
WHOLE = (DType.I8, DType.U8, DType.I16, DType.U16)  # features
_WHOLE = {FEATURES: "features", CHILDREN: "children", ROOTS: "roots", STARTS: "starts", TARGET_IDS: "target_ids"}


@dataclass(frozen=True, slots=True)
class TreeEnsemble(Op):
    NAME: ClassVar[str] = "tree_ensemble"
    targets: int = 1
    aggregate: str = "sum"

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        given = need(self.NAME, types, 10, 10)
        x = given[0]
        if x.rank != 2 or x.dtype not in (DType.F32, DType.F64, *WHOLE):
            raise BadOperator(f"`{self.NAME}` takes rows of f32, f64, or of whole numbers of at most 16 bits, got {x}")
        if self.aggregate not in AGGREGATES:
            raise BadOperator(f"`{self.NAME}` does not know the aggregate `{self.aggregate}`")
        result = given[WEIGHTS].dtype
        if result not in (DType.F32, DType.F64):
            raise BadOperator(f"the weights of `{self.NAME}` must be f32 or f64, got {result.value}")
        same_dtype(self.NAME, x.dtype, given[THRESHOLDS].dtype)
        same_dtype(self.NAME, result, given[BASE].dtype, *([x.dtype] if x.dtype.is_float else []))
        for n, name in _WHOLE.items():
            if given[n].dtype is not DType.I32:
                raise BadOperator(f"the {name} of `{self.NAME}` must be i32, got {given[n].dtype.value}")
        if given[MISSING].dtype is not DType.BOOL:
            raise BadOperator(f"the missing directions of `{self.NAME}` must be bool, got {given[MISSING].dtype.value}")
        nodes, pairs = given[FEATURES].shape, given[WEIGHTS].shape
        fits = given[CHILDREN].shape == (*nodes, 2) and given[THRESHOLDS].shape == given[MISSING].shape == nodes
        if not fits or given[TARGET_IDS].shape != pairs or given[STARTS].elements < 1 or given[BASE].shape != (self.targets,):
            raise BadOperator(f"the tables of `{self.NAME}` do not have the same length")
        return (TensorType(result, (x.shape[0], self.targets)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, _, _, children, _, roots, starts, ids, weights, base = (numeric(a) for a in arrays if a is not None)
        depth_of(children, roots)
        total = np.zeros((len(x), self.targets), weights.dtype)
        seen = np.zeros((len(x), self.targets), bool)
        rows = np.arange(len(x))
        for root in roots.tolist():
            leaves = self._leaves(root, *arrays[:5])
            for n in range(int(np.diff(starts).max(initial=0))):  # leaves have few targets each
                at = starts[leaves] + n
                some = at < starts[leaves + 1]
                row, target, weight = rows[some], ids[at[some]], weights[at[some]]
                total[row, target] = self._joined(total[row, target], weight, seen[row, target])
                seen[row, target] = True
        if self.aggregate == "average":
            total = np.divide(total, weights.dtype.type(len(roots)))
        return (np.add(total, base),)

    def _leaves(self, root: int, *arrays: Array | None) -> Array:
        """The leaf of each row in one tree."""
        x, features, thresholds, children, missing = (a for a in arrays if a is not None)
        at = np.full(len(x), root, np.int64)
        rows = np.arange(len(x))
        while (walking := at >= 0).any():
            row, here = rows[walking], at[walking]
            value = x[row, features[here]]
            left = np.logical_or(np.less_equal(value, thresholds[here]), np.logical_and(np.isnan(value), missing[here]))
            at[walking] = children[here, np.where(left, 0, 1)]
        return np.subtract(-1, at)

    def _joined(self, total: Array, weight: Array, seen: Array) -> Array:
        match self.aggregate:
            case "min":
                return np.where(seen, np.minimum(total, weight), weight)
            case "max":
                return np.where(seen, np.maximum(total, weight), weight)
        return np.add(total, weight)


def depth_of(children: Array, roots: Array) -> int:
    """How many nodes the longest way from a root to a leaf has. A way that does not end is an error."""
    level, depth = np.unique(roots[roots >= 0]), 0
    while level.size:
        depth += 1
        if depth > len(children):
            raise BadOperator("a tree has a cycle")
        below = children[level].reshape(-1)
        level = np.unique(below[below >= 0])
    return depth
