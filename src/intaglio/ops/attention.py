"""Attention: scores, masks, softmax and the weighted sum of values as one operator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op


@dataclass(frozen=True, slots=True)
class Attention(Op):
    """attention(q, k, v, *masks): softmax(q k^T * scale + masks) v, for every batch and head.

    `sizes` are batch, heads, rows, keys, depth and width. `q`, `k` and `v` say where the numbers are in the operands: the first
    one, then the steps of batch, head, row and element; so all three may be the result of one product. `masks` has the same for
    each mask: the first number, then the steps of batch, head, row and key. The result is [batch, heads, rows, width], or `joined`
    [batch, rows, heads, width]. A row whose scores are all minus infinity is not a number, or zeros with `hidden_zero`."""

    NAME: ClassVar[str] = "attention"
    sizes: tuple[int, ...] = ()
    q: tuple[int, ...] = ()
    k: tuple[int, ...] = ()
    v: tuple[int, ...] = ()
    masks: tuple[tuple[int, ...], ...] = ()
    scale: float = 1.0
    joined: bool = False
    hidden_zero: bool = False

    def _walks(self) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
        """Name, extents and walk of every operand."""
        batch, heads, rows, keys, depth, width = self.sizes
        sides = [("q", rows, depth, self.q), ("k", keys, depth, self.k), ("v", keys, width, self.v)]
        sides += [("mask", rows, keys, walk) for walk in self.masks]
        return [(name, (batch, heads, high, wide), walk) for name, high, wide, walk in sides]

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        given = [t for t in types if t is not None]
        if len(given) != len(types) or len(types) != 3 + len(self.masks):
            raise BadOperator(f"`attention` with {len(self.masks)} masks takes {3 + len(self.masks)} operands, got {len(given)}")
        if len(self.sizes) != 6 or any(n < 1 for n in self.sizes):
            raise BadOperator("`attention` has six sizes, each at least 1: batch, heads, rows, keys, depth and width")
        if any(t.dtype is not DType.F32 for t in given):
            raise BadOperator(f"`attention` is for f32, got {', '.join(t.dtype.value for t in given)}")
        for (name, extents, walk), type_ in zip(self._walks(), given, strict=True):
            if len(walk) != 5 or any(n < 0 for n in walk):
                raise BadOperator(f"`attention` needs five numbers, none negative, for `{name}`")
            if (name in "qv" and walk[4] != 1) or (name == "mask" and walk[4] > 1):
                raise BadOperator(f"the numbers of a row of `{name}` must be neighbours")
            if walk[0] + sum((n - 1) * step for n, step in zip(extents, walk[1:], strict=True)) >= type_.elements:
                raise BadOperator(f"`attention` reads behind the end of `{name}`, {list(type_.shape)}")
        batch, heads, rows, _, _, width = self.sizes
        return (TensorType(DType.F32, (batch, rows, heads, width) if self.joined else (batch, heads, rows, width)),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        found = []
        for (_, extents, walk), array in zip(self._walks(), arrays, strict=True):
            assert array is not None
            flat = np.ascontiguousarray(array).reshape(-1)
            steps = [step * flat.itemsize for step in walk[1:]]
            found.append(np.lib.stride_tricks.as_strided(flat[walk[0] :], extents, steps, writeable=False))
        q, k, v, *masks = found
        scores = np.multiply(np.matmul(q, k.swapaxes(-1, -2)), np.asarray(self.scale, q.dtype))
        for mask in masks:
            scores = np.add(scores, mask)
        largest = np.max(scores, axis=-1, keepdims=True)
        hidden = np.logical_and(np.isneginf(largest), self.hidden_zero)
        weights = np.exp(np.subtract(scores, np.where(hidden, 0, largest)))
        total = np.where(hidden, 1, np.sum(weights, axis=-1, keepdims=True))
        y = np.matmul(np.divide(weights, total).astype(q.dtype), v)
        return (np.ascontiguousarray(y.swapaxes(1, 2)) if self.joined else y,)

    def macs(self, types: list[TensorType | None], out: TensorType) -> int:
        batch, heads, rows, keys, depth, width = self.sizes
        return batch * heads * rows * keys * (depth + width)
