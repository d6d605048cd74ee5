"""Pools of bytes on the DSP extension, four channels at a time.

    max:      SSUB8 compares four bytes, SEL takes the larger of each
    average:  SXTAB16 adds two bytes to two sums of 16 bits, which hold up to 256 pixels

Windows that may leave the image are cut by the bounds of their loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, Layout
from intaglio.kernels.contraction.quantised import BYTES
from intaglio.kernels.dsp.primitives import BASE, C, no_dsp, operations
from intaglio.kernels.dsp.variants import C_TYPES
from intaglio.kernels.integer_pool import Span, all_inside, pool_windows
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Expr, Place
from intaglio.kernels.routines import Routine, no_meaning, routine_of
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised_rows import QAveragePool

MOST_PIXELS = 256


def _window(x: Array, channels: int, rows: int, cols: int, row: int) -> Array:
    return np.stack([x[i * row + j * channels :][:channels] for i in range(rows) for j in range(cols)]).astype(np.int64)


@cache
def highest(kind: DType) -> Routine:
    def meaning(x: Array, channels: int, rows: int, cols: int, row: int, y: Array) -> None:
        y[:channels] = _window(x, channels, rows, cols, row).max(axis=0)

    largest = routine_of(C / "max4.c", f"max4_{kind.value}", no_meaning, (BASE,), TYPE=C_TYPES[kind], SIGNED=kind is DType.I8)
    needs = (*operations("put_word"), largest)
    return routine_of(C / "highest.c", f"highest_{kind.value}", meaning, needs, TYPE=C_TYPES[kind], MAX4=f"ig_{largest.name}")


@cache
def average(kind: DType) -> Routine:
    def meaning(x: Array, channels: int, rows: int, cols: int, row: int, low: int, high: int, y: Array) -> None:
        total, count = _window(x, channels, rows, cols, row).sum(axis=0), rows * cols
        lifted = np.where(total > 0, total + count // 2, total - count // 2)
        mean = np.sign(lifted) * (np.abs(lifted) // count)
        y[:channels] = np.clip(mean, low, high)

    take = "sxtab16" if kind is DType.I8 else "uxtab16"
    return routine_of(
        C / "average.c", f"average_{kind.value}", meaning, operations(take, f"{take}_odd"), TYPE=C_TYPES[kind],
        HALF="int16_t" if kind is DType.I8 else "uint16_t", WIDEN_ADD=f"ig_{take}", WIDEN_ADD_ODD=f"ig_{take}_odd",
        MOST_PIXELS=MOST_PIXELS,
    )  # fmt: skip


def _unlike(job: Job, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]) -> str | None:
    """Why this is not a pool of an NHWC image of bytes."""
    x = job.type(0)
    if reason := no_dsp(job):
        return reason
    if x.dtype not in BYTES or x.rank != 4:
        return f"the input is {x.dtype.value}{list(x.shape)}, not an image of bytes"
    if job.node.output.type.elements == 0:
        return "the result is empty"
    return None if all_inside(job, kernel, strides, pads) else "a window has no pixel"


def max_pool_applies(job: Job) -> str | None:
    op = job.node.op
    assert isinstance(op, MaxPool)
    if op.layout is not Layout.NHWC:
        return f"the layout is {op.layout.value}, not NHWC"
    return "the window is dilated" if any(d != 1 for d in op.dilations) else _unlike(job, op.kernel, op.strides, op.pads)


def max_pool_dsp(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, MaxPool)
    x, y = job.operand(0, "x"), job.writes()
    _, _, w, c = job.type(0).shape

    def window(out: Expr, rows: Span, cols: Span, pixel: Callable[[Expr, Expr], Expr]) -> None:
        first = Place(x, pixel(rows.first, cols.first))
        k.call(highest(x.dtype), first, c, rows.count, cols.count, w * c, Place(y, out))

    pool_windows(job, op.kernel, op.strides, op.pads, window)
    about = f"max_pool {list(op.kernel)}, {list(job.type(0).shape)} -> {list(job.node.output.shape)}, four channels at a time"
    return job.done("max_pool", about, "max_pool_dsp")


def qaverage_pool_applies(job: Job) -> str | None:
    op = job.node.op
    assert isinstance(op, QAveragePool)
    if (pixels := math.prod(op.kernel)) > MOST_PIXELS:
        return f"the window has {pixels} pixels, more than {MOST_PIXELS}"
    return _unlike(job, op.kernel, op.strides, op.pads)


def qaverage_pool_dsp(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, QAveragePool)
    x, y = job.operand(0, "x"), job.writes()
    _, _, w, c = job.type(0).shape

    def window(out: Expr, rows: Span, cols: Span, pixel: Callable[[Expr, Expr], Expr]) -> None:
        first = Place(x, pixel(rows.first, cols.first))
        counts = (rows.count, cols.count)
        k.call(average(x.dtype), first, c, *counts, w * c, op.low, op.high, Place(y, out))

    pool_windows(job, op.kernel, op.strides, op.pads, window)
    about = f"qaverage_pool {list(op.kernel)}, {list(job.type(0).shape)} -> {list(job.node.output.shape)}, four channels at a time"
    return job.done("qaverage_pool", about, "qaverage_pool_dsp")
