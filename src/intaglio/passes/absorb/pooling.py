"""Means over windows and images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Node, Value
from intaglio.ir.sizes import moves
from intaglio.ir.types import DType, Layout
from intaglio.ops.base import normal_axes
from intaglio.ops.move import Reshape, Transpose
from intaglio.ops.pool import AveragePool
from intaglio.ops.quantised_real import QRealMean
from intaglio.ops.quantised_rows import QAveragePool, QMean, QSoftmax, mean_factor
from intaglio.ops.reduce import Reduce, Softmax
from intaglio.passes.absorb.products import Body, body_of
from intaglio.passes.absorb.real import Absorber, Grid, Real


def mean(work: Absorber, node: Node, grid: Grid) -> Value | None:
    body = body_of(work, node, grid)
    if body is None:
        return None
    real = work.real(body.core.inputs[0]) if body.core.inputs else None
    if real is None or not real.single or real.stored.data is not None:
        return None
    match body.core.op:
        case AveragePool():
            return _pool(work, node, grid, body, body.core.op, real)
        case Reduce(kind="mean"):
            return _reduce(work, node, grid, body, body.core.op, real)
        case Softmax():
            return _softmax(work, node, grid, body.core.op, real)
    return None


def _on_grids(window: QRealMean, real: Real, grid: Grid, body: Body) -> QRealMean:
    return replace(
        window, x_scale=float(real.step), x_zero=real.origin, y_scale=float(grid.step), y_zero=grid.origin,
        low=body.low, high=body.high, to=grid.to,
    )  # fmt: skip


def _pool(work: Absorber, node: Node, grid: Grid, body: Body, op: AveragePool, real: Real) -> Value | None:
    x = real.stored
    plain = len(op.kernel) == 2 and op.dilations == (1, 1) and not op.counted_pads
    if not plain or grid.to is not x.dtype:
        return None
    first = op.layout is not Layout.NHWC
    image = work.emit(Transpose((0, 2, 3, 1)), [x], node) if first else x
    padding_counts = op.count_include_pad and any(op.pads)
    if work.fixed and not padding_counts:
        if not real.like(grid):
            return None
        y = work.emit(QAveragePool(op.kernel, op.strides, op.pads, body.low, body.high), [image], node)
    else:
        if x.dtype not in (DType.I8, DType.U8):
            return None
        whole = op.kernel == image.shape[1:3] and not any(op.pads)
        order = "rows" if not op.columns_first else "lanes" if whole else "columns"
        window = QRealMean(op.kernel, op.strides, op.pads, op.count_include_pad, order)
        y = work.emit(_on_grids(window, real, grid, body), [image], node)
    return work.emit(Transpose((0, 3, 1, 2)), [y], node) if first else y


def _reduce(work: Absorber, node: Node, grid: Grid, body: Body, op: Reduce, real: Real) -> Value | None:
    x = real.stored
    axes = normal_axes(op.axes, x.type.rank)
    if grid.to is not x.dtype or not axes:
        return None
    if work.fixed and not moves([x.shape[a] for a in axes]):
        count = int(np.prod([x.shape[a] for a in axes]))
        factor = mean_factor(float(real.step) / float(grid.step), count)
        mean = QMean(axes, op.keepdims, real.origin, *factor, grid.origin, body.low, body.high)
        return work.emit(mean, [x], node)
    known = ((4, (2, 3)), (4, (1, 2)), *(((3, (1,)), (3, (2,))) if work.fixed else ()))
    if (x.type.rank, axes) not in known or x.dtype not in (DType.I8, DType.U8):
        return None
    first = axes[-1] == x.type.rank - 1
    if x.type.rank == 3:  # an image one pixel wide
        n, a, b = x.shape
        x = work.emit(Reshape((n, a, b, 1) if first else (n, a, 1, b)), [x], node)
    image = work.emit(Transpose((0, 2, 3, 1)), [x], node) if first else x
    window = QRealMean(image.shape[1:3], order="lanes")
    y = work.emit(_on_grids(window, real, grid, body), [image], node)
    return work.emit(Reshape(node.output.shape), [y], node)


def _softmax(work: Absorber, node: Node, grid: Grid, op: Softmax, real: Real) -> Value | None:
    """Along the last axis, on the grid that probabilities have in TFLite."""
    x = real.stored
    info = np.iinfo(grid.to.numpy)
    usual = grid.step == np.float32(1 / 256) and grid.origin == info.min and grid.to in (DType.I8, DType.U8)
    if not work.fixed or x.dtype is not grid.to or not usual or op.axis % x.type.rank != x.type.rank - 1:
        return None
    return work.emit(QSoftmax(float(real.step), 1.0, grid.to), [x], node)
