"""Depthwise convolutions of bytes on small cores: 3x3 by sliding windows, along the longer axis. Cores with the DSP extension keep
rows in a ring (`ring.py`) unless memory has a limit; then, and on others, sums are in flight (`slide.py`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.sizes import least, most
from intaglio.ir.types import DType
from intaglio.kernels.contraction.halves_parts import finishes, other_core
from intaglio.kernels.contraction.problem import Problem
from intaglio.kernels.contraction.quantised import BYTES
from intaglio.kernels.dsp.ring import SCALES, lanes_of, ring, ring_words
from intaglio.kernels.dsp.scaling import Scaled, scaled_of
from intaglio.kernels.dsp.slide import FIRST_MISSING, FULL, LAST_MISSING, WORDS, pack_records, slide
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Buffer, Expr, Place, idx
from intaglio.ops.quantised import QConv


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of windows of three: sizes, and positions from one pixel to the next in x and y."""

    length: int
    out: int
    stride: int
    pad: int
    step: int
    y_step: int

    @property
    def last(self) -> int:
        """The last position that a window covers."""
        return (self.out - 1) * self.stride - self.pad + 2

    @property
    def after(self) -> int:
        """Positions behind the image."""
        return int(self.last >= self.length)

    def slides(self) -> bool:
        """At most one position is outside at each end."""
        return self.pad <= 1 and self.stride in (1, 2) and self.last <= self.length

    def crosses(self) -> bool:
        """At most one of three rows is missing."""
        alone = self.pad and least(self.out) == 1 and most(self.last - self.length) >= 0  # a row between two that are missing
        return self.pad <= 1 and self.last <= self.length and not alone


def axes_of(p: Problem) -> tuple[Axis, Axis]:
    steps, y_steps = (p.width * p.channels, p.channels), (p.out_width * p.channels, p.channels)
    sizes = ((p.height, p.width), (p.out_height, p.out_width), p.strides, p.pads, steps, y_steps)
    down, across = (Axis(*(part[a] for part in sizes)) for a in (0, 1))
    return down, across


@dataclass(frozen=True, slots=True)
class Facts:
    scaled: Scaled
    along: int  # the axis that windows slide along: 0 is down the image
    narrow: bool  # sums become bytes by products of 16 by 16 bits


@fact
def facts(job: Job) -> Facts | str:
    """What the kernel needs, or why it does not apply."""
    op, weights, isa = job.node.op, job.node.inputs[1], job.isa
    assert isinstance(op, QConv) and weights is not None
    if not isa.dsp and (isa.lanes > 1 or not job.target.bare):
        return "the target has vectors, or is not a microcontroller"
    if not isa.dsp and weights.dtype not in BYTES:
        return f"the weights are {weights.dtype.value}, and the core has no DSP extension"
    if op.epilogue:
        return "another layer is fused into it"
    known = scaled_of(job)
    if isinstance(known, str):
        return known
    p = known.problem
    if not p.depth == p.columns == 1:
        return "it is not depthwise"
    if p.kernel != (3, 3):
        return f"the window is {p.kernel[0]}x{p.kernel[1]}, this kernel takes 3x3"
    if p.dilations != (1, 1):
        return "the window is dilated"
    if int(np.abs(known.numbers.weights).max()) > 16383:
        return "the weights need more than 15 bits"
    axes = axes_of(p)
    fits = [along for along in (1, 0) if axes[along].slides() and axes[1 - along].crosses()]
    if not fits:
        return "windows reach over the border by more than one pixel, or strides are more than 2"
    narrow = other_core(job) is None and finishes(known.scales.finish, known.numbers.reach)
    return Facts(known, max(fits, key=lambda a: most(axes[a].out)), narrow)


def qdepthwise_dsp(job: Job) -> Lowered:
    found = facts(job)
    assert isinstance(found, Facts)
    p, finish = found.scaled.problem, found.scaled.scales.finish
    ringed = job.isa.dsp and not job.target.limited  # the ring is working memory
    (_in_ring if ringed else _in_flight)(job, found, axes_of(p)[found.along], axes_of(p)[1 - found.along])
    direction = "the columns" if found.along == 0 else "the rows"
    about = f"{p.title('qdepthwise', apart=True)}, {found.scaled.numbers.x.value}\nNHWC, windows slide along {direction}"
    same = ringed and p.strides == (1, 1) and p.channels % lanes_of(p.channels) == 0
    using = f"qdepthwise_{'dsp' if job.isa.dsp else 'plain'}({finish})"
    return job.done(p.stem("qdepthwise", apart=True), about, using, in_place=same)


def _record(job: Job, found: Facts, first: int) -> Buffer:
    """Taps and scales; `first` is the axis whose three positions are kept apart: 0 is down the image."""
    taps = found.scaled.numbers.weights[:, 0]
    packed = pack_records(taps if first == 0 else taps.transpose(0, 2, 1), found.scaled.scales, found.narrow)
    return job.packed(packed, "record", DType.I32)


def _in_ring(job: Job, found: Facts, along: Axis, cross: Axis) -> None:
    known, p = found.scaled, found.scaled.problem
    x, record, y = job.operand(0, "x"), _record(job, found, 1 - found.along), job.writes()
    lanes = lanes_of(p.channels)
    rows = ring_words(along.out, along.stride, lanes)
    memory = job.scratch(rows + lanes * SCALES, "ring", DType.I32, own=True)
    low, high = job.share("c", p.channels, lanes, least=lanes)  # the last ones are computed twice where they do not fill a round
    channels = high - low
    routine = ring(along.stride, lanes, x.dtype, known.scales.finish)
    with job.k.loop("n", 0, p.batch) as n:
        image, result = n * (p.height * p.width * p.channels), n * (p.out_height * p.out_width * p.channels)
        job.k.call(
            routine, Place(x, image + low, channels, idx(p.height * p.width), p.channels), along.step, cross.step, along.length,
            cross.length, along.pad, cross.pad, cross.stride,
            Place(y, result + low, channels, idx(p.out_height * p.out_width), p.channels), along.y_step, cross.y_step, along.out,
            cross.out, known.numbers.x_zero, channels, Place(record, low * WORDS), Place(memory, idx(0)), Place(memory, idx(rows)),
        )  # fmt: skip


def _in_flight(job: Job, found: Facts, along: Axis, cross: Axis) -> None:
    known, p, k = found.scaled, found.scaled.problem, job.k
    x, record, y = job.operand(0, "x"), _record(job, found, found.along), job.writes()
    routine = slide(along.stride, x.dtype, known.scales.finish, job.isa.dsp, found.narrow)

    low, high = job.share("c", p.channels, 1)
    channels = high - low

    def row(start: Expr, to: Expr, missing: int) -> None:
        results = Place(y, to + low, channels, idx(along.out), along.y_step)
        k.call(
            routine, Place(x, start + low), along.step, cross.step, results, along.y_step, along.out, along.pad, along.after,
            missing, known.numbers.x_zero, channels, Place(record, low * WORDS),
        )  # fmt: skip

    with k.loop("n", 0, p.batch) as n:
        image = k.let("image", n * (p.height * p.width * p.channels))
        result = k.let("result", n * (p.out_height * p.out_width * p.channels))
        last = cross.out - cross.after
        if cross.pad:
            row(image, result, FIRST_MISSING)
        with k.loop("i", cross.pad, last) as i:
            row(image + (i * cross.stride - cross.pad) * cross.step, result + i * cross.y_step, FULL)
        if cross.after:
            at = last * cross.stride - cross.pad
            row(image + at * cross.step, result + last * cross.y_step, LAST_MISSING)
