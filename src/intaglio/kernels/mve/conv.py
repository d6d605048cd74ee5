"""Convolutions and matrix products of bytes by rows: rows are read where they are, windows copied, two at a time (`rows.py`).

With MVE, and on cores with neither it nor the DSP extension, whose compilers get a tile of two rows and two channels in plain C."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.columns import Row, write_columns
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.dsp.pairs import small
from intaglio.kernels.dsp.scaling import WORDS, Scaled, scaled_of
from intaglio.kernels.dsp.variants import Finish
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Buffer, Expr, Place, idx
from intaglio.kernels.mve.rows import four_rows, is_quick, rows, window
from intaglio.ops.quantised import QConv


@dataclass(frozen=True, slots=True)
class Rows:
    """A window is a row of bytes. `windows` is None where rows are read from x."""

    problem: Problem
    x: Buffer
    windows: Buffer | None
    w: Buffer
    scale: Buffer
    y: Buffer
    finish: Finish
    zero: int
    fours: bool = False

    @property
    def widths(self) -> tuple[int, ...]:
        return (4, 3, 2, 1) if self.fours else (2, 1)

    def gather(self, k: Builder, row: Row, first: Expr, count: int) -> Place:
        p = self.problem
        if self.windows is None:
            return Place(self.x, row.base + first * p.channels)
        for c in range(count):
            left = (first + c) * p.strides[1] - p.pads[1]
            k.call(
                window(self.x.dtype), Place(self.x, row.base), row.top, left, p.height, p.width, p.channels, *p.kernel,
                *p.dilations, p.depth, self.zero, Place(self.windows, idx(c * p.taps)),
            )  # fmt: skip
        return Place(self.windows, idx(0))

    def multiply(self, k: Builder, columns: Place, count: int, g: Expr, out: Expr) -> None:
        p = self.problem
        size = p.columns + p.columns % 2
        w, scale = Place(self.w, g * (size * p.taps)), Place(self.scale, g * (size * WORDS))
        routine = four_rows(self.finish) if self.fours else rows(count, self.x.dtype, self.finish)
        more = (idx(count),) if self.fours else ()
        k.call(routine, w, scale, columns, p.taps, p.taps, p.columns, Place(self.y, out), p.out_channels, *more)


@fact
def facts(job: Job) -> Scaled | str:
    """What a kernel needs, or why there is none."""
    op = job.node.op
    if job.isa.name != "mve" and (job.isa.dsp or not job.target.bare):
        return "the target has no MVE, and has the DSP extension or is not a microcontroller"
    if isinstance(op, QConv) and op.epilogue:
        return "another layer is fused into it"
    known = scaled_of(job)
    if isinstance(known, str):
        return known
    if known.problem.group > 1 and known.problem.depth == 1:
        return "every group has one input channel"
    return known if small(known.numbers.weights) else "the weights do not fit 8 bits"


def contraction_rows(job: Job) -> Lowered:
    known = facts(job)
    assert isinstance(known, Scaled)
    p, numbers = known.problem, known.numbers
    x = job.operand(0, "x")
    w, scale = _packed(job, known)
    y = job.writes()
    finish = known.scales.finish
    fours = job.isa.name == "mve" and x.dtype is DType.I8 and is_quick(finish)
    windows = None if p.pointwise else job.scratch((4 if fours else 2) * p.taps, "windows", x.dtype)
    write_columns(job, p, Rows(p, x, windows, w, scale, y, finish, numbers.x_zero, fours))
    about = known.title + ("" if p.pointwise else "\nNHWC, windows as rows")
    return job.done(known.stem, about, f"{known.name}_rows({x.dtype.value}_{finish})")


def _packed(job: Job, known: Scaled) -> tuple[Buffer, Buffer]:
    """Weights and records, channel after channel; an odd last one of a group has zeros beside it."""
    p, numbers = known.problem, known.numbers
    channels = numbers.runs(p.group, True).reshape(p.group, p.columns, -1)
    records = known.scales.records.reshape(p.group, p.columns, WORDS).copy()
    if numbers.x is DType.U8:  # bytes are moved by 128 when they are read
        records[:, :, 0] += (128 * channels.sum(axis=2)).astype(np.int32)
    beside = ((0, 0), (0, p.columns % 2), (0, 0))
    w = job.packed(np.pad(channels, beside).astype(np.int8).reshape(-1), "w", DType.I8)
    return w, job.packed(np.pad(records, beside).reshape(-1), "scale", DType.I32)
