"""Columns of a deformable convolution: every tap reads where the data says. A product with the weights follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, TensorType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.control import need


@dataclass(frozen=True, slots=True)
class DeformColumns(Op):
    """deform_columns(x [n,c,h,w], offsets [n,g*taps*2,oh,ow], mask [n,g*taps,oh,ow]) -> [n,c,taps,oh*ow]

    Tap (i, j) of output (p, q) reads x at (p*stride - pad + i*dilation + dy, ... + dx), by bilinear interpolation with zeros
    outside, times the mask. Channels are in `groups` with offsets of their own."""

    NAME: ClassVar[str] = "deform_columns"
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)  # above, left
    dilations: tuple[int, int] = (1, 1)
    groups: int = 1

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        x, offsets = need(self.NAME, types, 2, 3)
        mask = types[2] if len(types) > 2 else None
        taps = self.kernel[0] * self.kernel[1]
        fits = x.rank == offsets.rank == 4 and x.shape[0] == offsets.shape[0] and x.shape[1] % self.groups == 0
        if not fits or offsets.shape[1] != self.groups * taps * 2:
            raise BadOperator(f"`deform_columns` of {x} by offsets {offsets} with {taps} taps in {self.groups} groups")
        if mask is not None and mask.shape != (x.shape[0], self.groups * taps, *offsets.shape[2:]):
            raise BadOperator(f"`deform_columns` has a mask {mask} that does not fit {offsets}")
        if {t.dtype for t in (x, offsets, mask) if t is not None} != {DType.F32}:
            raise BadOperator("`deform_columns` takes f32")
        return (TensorType(DType.F32, (*x.shape[:2], taps, offsets.shape[2] * offsets.shape[3])),)

    def reference(self, *arrays: Array | None) -> tuple[Array, ...]:
        x, offsets, mask = [*arrays, None][:3]
        assert x is not None and offsets is not None
        n, c = x.shape[:2]
        rows, columns = offsets.shape[2:]
        taps = self.kernel[0] * self.kernel[1]
        moved = offsets.reshape(n, self.groups, taps, 2, rows, columns)
        p, q = np.arange(rows, dtype=np.float32)[:, None], np.arange(columns, dtype=np.float32)[None]
        out = np.zeros((n, c, taps, rows * columns), np.float32)
        each = c // self.groups
        for tap in range(taps):
            i, j = divmod(tap, self.kernel[1])
            for group in range(self.groups):
                down = p * self.strides[0] + np.float32(i * self.dilations[0] - self.pads[0]) + moved[:, group, tap, 0]
                right = q * self.strides[1] + np.float32(j * self.dilations[1] - self.pads[1]) + moved[:, group, tap, 1]
                chosen = slice(group * each, (group + 1) * each)
                found = np.stack([_between(x[b, chosen], down[b], right[b]) for b in range(n)])
                if mask is not None:
                    found = found * mask.reshape(n, self.groups, taps, 1, rows, columns)[:, group, tap]
                out[:, chosen, tap] = found.reshape(n, each, rows * columns)
        return (out,)


def _between(x: Array, down: Array, right: Array) -> Array:
    high, wide = x.shape[1:]
    with np.errstate(all="ignore"):
        top, left = np.floor(down), np.floor(right)
        below, beside = (down - top).astype(np.float32), (right - left).astype(np.float32)
        total = np.zeros((x.shape[0], *down.shape), np.float32)
        for dy, dx in ((0, 0), (0, 1), (1, 0), (1, 1)):
            row, column = top + dy, left + dx
            inside = (row >= 0) & (row < high) & (column >= 0) & (column < wide)
            pixel = x[:, np.where(inside, row, 0).astype(int), np.where(inside, column, 0).astype(int)]
            weight = (below if dy else 1 - below) * (beside if dx else 1 - beside)
            total += np.where(inside, pixel * weight, 0).astype(np.float32)
    return total
