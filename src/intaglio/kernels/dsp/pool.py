"""Pools of bytes on the DSP extension, four channels at a time.

    max:      SSUB8 compares four bytes, SEL takes the larger of each
    average:  SXTAB16 adds two bytes to two sums of 16 bits, which hold up to 256 pixels

Windows at the border are cut by the bounds of their loops.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType, Layout
from intaglio.kernels.contraction.quantised import BYTES
from intaglio.kernels.dsp.primitives import BASE, C, operations
from intaglio.kernels.dsp.variants import C_TYPES
from intaglio.kernels.integer_pool import all_inside, pool_windows
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


def _takes(job: Job, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]) -> bool:
    shape = job.type(0).shape
    bytes_ = job.isa.dsp and job.type(0).dtype in BYTES and len(shape) == 4 and job.node.output.type.elements > 0
    return bytes_ and all_inside(job, kernel, strides, pads)


def max_pool_dsp(job: Job) -> Lowered | None:
    op, k = job.node.op, job.k
    assert isinstance(op, MaxPool)
    if op.layout is not Layout.NHWC or any(d != 1 for d in op.dilations) or not _takes(job, op.kernel, op.strides, op.pads):
        return None
    x, y = job.operand(0, "x"), job.writes()
    _, _, w, c = job.type(0).shape

    def window(out: Expr, rows: tuple[Expr, Expr], cols: tuple[Expr, Expr], pixel: Callable[[Expr, Expr], Expr]) -> None:
        first = Place(x, pixel(rows[0], cols[0]))
        k.call(highest(x.dtype), first, c, rows[1] - rows[0], cols[1] - cols[0], w * c, Place(y, out))

    pool_windows(job, op.kernel, op.strides, op.pads, window)
    about = f"max_pool {list(op.kernel)}, {list(job.type(0).shape)} -> {list(job.node.output.shape)}, four channels at a time"
    return job.done("max_pool", about, "max_pool_dsp")


def qaverage_pool_dsp(job: Job) -> Lowered | None:
    op, k = job.node.op, job.k
    assert isinstance(op, QAveragePool)
    if not _takes(job, op.kernel, op.strides, op.pads) or math.prod(op.kernel) > MOST_PIXELS:
        return None
    x, y = job.operand(0, "x"), job.writes()
    _, _, w, c = job.type(0).shape

    def window(out: Expr, rows: tuple[Expr, Expr], cols: tuple[Expr, Expr], pixel: Callable[[Expr, Expr], Expr]) -> None:
        first = Place(x, pixel(rows[0], cols[0]))
        counts = (rows[1] - rows[0], cols[1] - cols[0])
        k.call(average(x.dtype), first, c, *counts, w * c, op.low, op.high, Place(y, out))

    pool_windows(job, op.kernel, op.strides, op.pads, window)
    about = f"qaverage_pool {list(op.kernel)}, {list(job.type(0).shape)} -> {list(job.node.output.shape)}, four channels at a time"
    return job.done("qaverage_pool", about, "qaverage_pool_dsp")
