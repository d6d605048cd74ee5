"""Contractions of integers whose weights, bias and scaling are known when the model is compiled.

    sum over (x - x_zero) * (w - w_zero)  =  sum over x * centred  -  x_zero * sum over centred

So the zero point of the weights is subtracted from them when they are packed, and that of x goes into the number that a sum
starts from. Every micro-kernel of integers packs what is here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.job import Job, fact
from intaglio.ops.quantised import QConv, QMatMul

BYTES = (DType.I8, DType.U8)


def size_of(x: DType, zero: int) -> int:
    """The largest |x - zero|."""
    info = np.iinfo(x.numpy)
    return max(int(info.max) - zero, zero - int(info.min))


@dataclass(frozen=True, slots=True)
class Quantised:
    """`weights` is [O, I / group, kh, kw] for a convolution, [O, I, 1, 1] for a product; their zero point is subtracted."""

    weights: Array
    bias: Array | None  # of whole numbers, or of floats that are added after scaling
    multiplier: Array
    shift: Array | None
    x: DType
    to: DType
    x_zero: int
    y_zero: int
    low: int
    high: int
    scaling: str

    @property
    def outs(self) -> int:
        return len(self.weights)

    @property
    def real_bias(self) -> Array | None:
        return self.bias if self.bias is not None and self.bias.dtype == np.float32 else None

    @property
    def whole_bias(self) -> Array:
        """What is added to a sum of products, one number per channel."""
        if self.bias is None or self.real_bias is not None:
            return np.zeros(self.outs, np.int64)
        return self.bias.astype(np.int64)

    @property
    def reach(self) -> Array:
        """The largest size that each channel's sum can have."""
        flat = np.abs(self.weights).reshape(self.outs, -1).sum(axis=1)
        return np.asarray(flat * size_of(self.x, self.x_zero) + np.abs(self.whole_bias))

    def starts(self, zero: int) -> Array:
        """What sums start from when x comes with zero point `zero`; it wraps as the sums do."""
        flat = self.weights.reshape(self.outs, -1)
        return np.asarray((self.whole_bias - zero * flat.sum(axis=1)).astype(np.int32))

    def runs(self, groups: int, joined: bool) -> Array:
        """Weights in the order in which windows lie in memory: [groups, columns, runs, length]."""
        return runs_of(self.weights, groups, joined)


def runs_of(weights: Array, groups: int, joined: bool) -> Array:
    """Weights [O, I, kh, kw] as [groups, columns, runs, length]: a run is what lies side by side in a window."""
    outs, depth, kh, kw = weights.shape
    count = kh if joined else kh * kw
    return np.asarray(weights.transpose(0, 2, 3, 1).reshape(groups, outs // groups, count, kh * kw * depth // max(count, 1)))


def constants_of(job: Job) -> tuple[Array, Array | None, Array, Array | None] | None:
    """Weights, bias, multipliers, shifts: all known, or None."""
    values = [job.optional(i) for i in (1, 2, 3, 4)]
    if any(v is not None and v.data is None for v in values) or values[0] is None or values[2] is None:
        return None
    data = [None if v is None else v.data for v in values]
    assert data[0] is not None and data[2] is not None
    return data[0], data[1], data[2], data[3]


@fact
def quantised_of(job: Job) -> Quantised | str:
    """The numbers of a quantised convolution or product, or why they are not known."""
    op, known, x = job.node.op, constants_of(job), job.type(0)
    if known is None:
        return "weights, bias or scaling are computed"
    weights, bias, multiplier, shift = known
    if isinstance(op, QConv):
        centred = weights.astype(np.int64) - op.w_zero
        return Quantised(
            centred, bias, multiplier, shift, x.dtype, op.to, op.x_zero, op.y_zero, op.low, op.high, op.scaling
        )  # fmt: skip
    assert isinstance(op, QMatMul)
    if math.prod(weights.shape[:-2]) != 1:
        return "there are several right sides"
    matrix = weights.reshape(weights.shape[-2:]).astype(np.int64) - op.b_zero
    matrix = matrix if op.transpose_b else matrix.T
    if bias is not None and bias.size != len(matrix):
        return "the bias is not one number per column"
    return Quantised(
        matrix[:, :, None, None], bias, multiplier, shift, x.dtype, op.to, op.a_zero, op.y_zero, op.low, op.high, op.scaling
    )  # fmt: skip


def not_bytes(job: Job, more: tuple[DType, ...] = ()) -> str | None:
    """Why this is not a contraction of bytes to bytes; `more` are further types that weights may have."""
    op, weights = job.node.op, job.node.inputs[1]
    assert isinstance(op, (QConv, QMatMul)) and weights is not None
    if job.type(0).dtype not in BYTES or op.to not in BYTES or weights.dtype not in (*BYTES, *more):
        return f"the types are {job.type(0).dtype.value}, {weights.dtype.value} and {op.to.value}, not bytes"
    if job.node.output.type.elements == 0 or job.type(0).elements == 0:
        return "a tensor is empty"
    return None
