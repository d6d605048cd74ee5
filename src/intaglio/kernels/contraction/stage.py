"""Rows of an image, or of a matrix, in the type that a dot product takes, with the padding written out.

    stage row:  | x_zero ... | the row of x, widened | x_zero ... |      `rows` of them, as many as a stripe of the result reads

A stripe is small enough to stay in L1 while all output channels are computed from it; no tile has borders.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio.ir.sizes import Size, larger, most, moves, smaller
from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.gather import Line, Span
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.isa import Isa
from intaglio.kernels.job import Job
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Op, Type, cast, idx, imax, imin
from intaglio.targets import Target

I32 = Type("i32")
SLACK = 64  # elements behind the last row that a vector may read


def offset_of_type(x: DType, to: DType) -> int:
    """What a number changes by on its way into the stage."""
    if to is DType.I16 or to is x:
        return 0
    return 128 if to is DType.U8 else -128


def convert_run(k: Builder, isa: Isa, x: Buffer, x_at: Expr, to: Buffer, at: Expr, count: int) -> None:
    """`count` neighbouring numbers into the type of the stage. The last vector overlaps the one before it."""
    if to.dtype is x.dtype:
        k.copy(to, at, x, x_at, count)
        return
    lanes = 2 * isa.lanes
    source, target = Type(x.dtype.value, lanes), Type(to.dtype.value, lanes)
    name = f"vwiden_{x.dtype.value}" if to.dtype is DType.I16 else f"vflip_{x.dtype.value}"
    if most(count) < lanes or isinstance(count, Size):
        whole = count // lanes * lanes
        if most(whole):
            with k.loop("i", 0, whole, lanes) as i:
                k.store(to, at + i, Op(name, (Load(x, x_at + i, source),), target))
        shift = offset_of_type(x.dtype, to.dtype)
        with k.loop("i", whole, count) as i:
            value = cast(Load(x, x_at + i, Type(x.dtype.value)), I32)
            k.store(to, at + i, cast(Op("add", (value, Num(shift, I32)), I32) if shift else value, Type(to.dtype.value)))
        return
    with k.loop("i", 0, count // lanes * lanes, lanes) as i:
        k.store(to, at + i, Op(name, (Load(x, x_at + i, source),), target))
    if count % lanes:
        k.store(to, at + (count - lanes), Op(name, (Load(x, x_at + (count - lanes), source),), target))


def fill_run(k: Builder, to: Buffer, at: Expr, count: int, value: int | Expr) -> None:
    with k.loop("i", 0, count) as i:
        k.store(to, at + i, Num(value, Type(to.dtype.value)) if isinstance(value, int) else value)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a stripe of the input waits. `direct`: x is as wanted already, nothing is copied."""

    isa: Isa
    problem: Problem
    x: Buffer
    buffer: Buffer
    direct: bool
    stripe: int  # output rows at a time; where the caller gives the width, as many as fit
    zero: int | Expr  # what padding is filled with; an expression in the type of the buffer
    apart: int = 0  # numbers from one row to the next, if they do not lie side by side

    @property
    def columns(self) -> int:
        """Input columns that windows cover, padding included."""
        p = self.problem
        if self.direct:
            return p.width
        return (p.out_width - 1) * p.strides[1] + (p.kernel[1] - 1) * p.dilations[1] + 1

    @property
    def pitch(self) -> int:
        return self.apart or self.columns * self.problem.channels

    def prepare(self, k: Builder) -> None:
        """Left and right padding, once: rows keep it."""
        p = self.problem
        left, right = self._sides()
        if self.direct or not (most(left) or most(right)):
            return
        with k.loop("r", 0, self.needed(idx(0))) as r:
            at = k.let("at", r * self.pitch)
            fill_run(k, self.buffer, at, left * p.channels, self.zero)
            fill_run(k, self.buffer, at + (self.columns - right) * p.channels, right * p.channels, self.zero)

    def rows(self, stripe: int = 0) -> int:
        p = self.problem
        return ((stripe or self.stripe) - 1) * p.strides[0] + (p.kernel[0] - 1) * p.dilations[0] + 1

    def needed(self, first: Expr) -> Expr:
        """The rows that the stripe from output row `first` on reads: fewer than there is room for where the caller says how high
        the image is, and it is lower."""
        p = self.problem
        if not moves((p.out_height, self.stripe)):
            return idx(self.rows())
        here = imin(self.stripe, p.out_height - first)
        return (here - 1) * p.strides[0] + (self.rows(1))

    def _sides(self) -> tuple[int, int]:
        p = self.problem
        left = smaller(p.pads[1], self.columns)
        return left, larger(0, self.columns - left - p.width)

    def load(self, k: Builder, n: Expr, first: Expr, x_base: Expr) -> Expr:
        """The input rows of the stripe of image `n` whose first output row is `first`; where that image starts in x."""
        p = self.problem
        base = k.let("base", n * (p.height * p.width * p.channels) + x_base)
        if not self.direct:
            self._fill(k, base, first)
        return base

    def _fill(self, k: Builder, base: Expr, first: Expr) -> None:
        p = self.problem
        left, right = self._sides()
        copied = (self.columns - left - right) * p.channels
        line = p.width * p.channels
        rows = k.let("rows", self.needed(first)) if moves((p.out_height, self.stripe)) else idx(self.rows())
        top = k.let("top", first * p.strides[0] - p.pads[0])
        low: Expr = idx(0)
        if p.pads[0]:
            low = k.let("inside", imin(rows, imax(0, 0 - top)))
            with k.loop("r", 0, low) as r:
                fill_run(k, self.buffer, k.let("at", r * self.pitch + left * p.channels), copied, self.zero)
        high = rows
        stripes = (p.out_height + self.stripe - 1) // self.stripe
        if most((stripes - 1) * self.stripe * p.strides[0] - p.pads[0] + self.rows() - p.height) > 0:
            high = k.let("outside", imax(low, imin(rows, p.height - top)))
        if copied == line == self.pitch and low == idx(0) and high == idx(self.rows()):  # rows lie side by side in both
            convert_run(k, self.isa, self.x, k.let("from", base + top * line), self.buffer, idx(0), self.rows() * line)
            return
        with k.loop("r", low, high) as r:
            convert_run(
                k, self.isa, self.x, k.let("from", base + (top + r) * line), self.buffer,
                k.let("at", r * self.pitch + left * p.channels), copied,
            )  # fmt: skip
        with k.loop("r", high, rows) as r:
            fill_run(k, self.buffer, k.let("at", r * self.pitch + left * p.channels), copied, self.zero)

    def place(self, oh: Expr, first: Expr, base: Expr) -> Expr:
        """Where the windows of output row `oh` start."""
        p = self.problem
        if self.direct:
            return base + oh * (p.strides[0] * self.pitch)
        return (oh - first) * (p.strides[0] * self.pitch)

    @property
    def left(self) -> int:
        return 0

    @property
    def image(self) -> Problem:
        return replace(self.problem, width=self.columns, pads=(self.problem.pads[0], 0))

    def line(self, k: Builder, n: Expr, oh: Expr, first: Expr, base: Expr, g: Expr) -> Line:
        p = self.problem
        return Line(k.let("line", self.place(oh, first, base) + g * p.depth), idx(0), idx(p.kernel[0]))

    def spans(self, k: Builder, rows: int, write: Span) -> None:
        p = self.problem
        full = p.out_width // rows * rows
        if isinstance(full, Size):  # what is left is written by the loops
            write(idx(0), idx(full), [])
        else:
            write(idx(0), idx(full), [full] if full < p.out_width else [])

    def taps_inside(self, column: int, rows: int) -> list[list[int]] | None:
        return None


def stage_bytes(target: Target, column_bytes: int) -> int:
    """Room for x, whose weights have `column_bytes` for each output column. All weights are read again for each stripe: where those
    of a block are larger than L1 they come from L2 or behind it, and x, of which a line serves many steps, may wait in L2 too."""
    near, block = target.l1_bytes // 2, column_bytes * 2 * target.lanes
    return near if target.bare or target.limited or block <= near else max(near, target.l2_bytes // 4)


def stage_of(job: Job, p: Problem, x: Buffer, dtype: DType, zero: int | Expr, direct: bool, name: str = "stage") -> Stage:
    """Stripes that fit half of the L1 cache, or a part of L2 where weights do not stay in L1 either."""
    height = most(p.out_height)
    whole = Stage(job.isa, p, x, x, direct, max(1, height), zero)
    if direct:
        return whole
    row_bytes = most(whole.pitch) * dtype.bytes
    rows = max(1, stage_bytes(job.target, p.taps * DType.I8.bytes) // max(row_bytes, 1))
    fixed = (p.kernel[0] - 1) * p.dilations[0] + 1
    stripe = max(1, min(height, (rows - fixed) // p.strides[0] + 1))
    stripe = max(1, -(-height // max(1, -(-height // stripe))))
    sized = Stage(job.isa, p, x, x, False, stripe, zero)
    if isinstance(sized.pitch, Size):  # of narrower images, more rows in the same memory
        fit = sized.rows() * most(sized.pitch) // sized.pitch
        stripe = larger(1, smaller((fit - fixed) // p.strides[0] + 1, p.out_height))
        sized = replace(sized, stripe=stripe)
    buffer = job.scratch(sized.rows() * sized.pitch + SLACK, name, dtype, own=True)
    return replace(sized, buffer=buffer)
