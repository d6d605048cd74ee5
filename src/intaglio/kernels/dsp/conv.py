"""Convolutions and matrix products of bytes on the DSP extension, by the micro-kernel of `pairs.py`.

A sum with another tensor that follows a convolution is its last step. Does not apply to depthwise convolutions (`depthwise.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.contraction.columns import by_outs, write_columns
from intaglio.kernels.dsp.dense import shared_by
from intaglio.kernels.dsp.gather import gather
from intaglio.kernels.dsp.pairs import Added, Pairs, Product, columns_of, multiply_single, pack, small, widest, widths_of
from intaglio.kernels.dsp.primitives import no_dsp
from intaglio.kernels.dsp.scaling import Scaled, scaled_of
from intaglio.kernels.dsp.sums import sum_record
from intaglio.kernels.dsp.variants import Sum
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Buffer, Place, idx
from intaglio.ops.quantised import QAdd, QConv


@dataclass(frozen=True, slots=True)
class Facts:
    scaled: Scaled
    beside: tuple[Sum, Array] | None  # the sum that follows, with its record


@fact
def facts(job: Job) -> Facts | str:
    """What a kernel needs, or why there is none."""
    op = job.node.op
    if reason := no_dsp(job):
        return reason
    known = scaled_of(job)
    if isinstance(known, str):
        return known
    p = known.problem
    if p.group > 1 and p.depth == 1:
        return "every group has one input channel"
    if job.target.optimize == "size" and not small(known.numbers.weights):
        return "the weights need 16 bits each, and `--optimize size` is set"
    beside = beside_of(job, op) if isinstance(op, QConv) and op.epilogue else None
    return beside if isinstance(beside, str) else Facts(known, beside)


def beside_of(job: Job, op: QConv) -> tuple[Sum, Array] | str:
    """The variant and record of the one sum that follows."""
    step = op.epilogue[0] if len(op.epilogue) == 1 else None
    other = job.optional(5)
    if step is None or not isinstance(step.op, QAdd) or other is None or sorted(step.args) != [0, 1]:
        return "the fused layers are not one sum"
    if other.shape != job.node.output.shape or other.dtype is not op.to or step.op.to is not op.to or other.is_const:
        return "the tensor that is added has another shape or type, or is constant"
    return sum_record(step.op, swapped=step.args == (1, 0))


def contraction_dsp(job: Job) -> Lowered:
    found = facts(job)
    assert isinstance(found, Facts)
    known, p, numbers = found.scaled, found.scaled.problem, found.scaled.numbers
    single = p.rows == 1 and p.pointwise and found.beside is None and small(numbers.weights)
    x = job.operand(0, "x")
    runs, scales = numbers.runs(p.group, p.joined), known.scales
    product = pack(job, runs, scales.records, numbers.reach, scales.finish, single)
    if single:
        return _single(job, known, x, product)
    over, added, most = None, None, widest(job, p)
    stem, windows = known.stem, "rows" if p.pointwise else "NHWC, windows"
    if found.beside is not None:
        over, record = job.operand(5, "other"), job.packed(found.beside[1], "record", DType.I32)
        added = Added(found.beside[0], over, record, job.scratch(most * p.columns, "results", numbers.to, own=True))
        product = replace(product, variant=replace(product.variant, sum=found.beside[0]))
        stem += "_sum"
    y, columns, largest = job.writes(), columns_of(job, p, product), p.most()
    tiles = p.out_height if largest.out_height > 1 else p.out_width // most
    odd = largest.out_height == 1 and largest.out_width % most > 0  # what is left over takes nearly as long as a tile
    by_channels = added is None and not p.moves and by_outs(job, tiles + odd, p.columns)
    outs = job.share("o", p.columns, 2) if by_channels else None
    micro = Pairs(p, product, x, columns, y, idx(numbers.x_zero), widths_of(job), added=added, outs=outs)
    write_columns(job, p, micro, shared=not by_channels)
    about = f"{known.title}\n{windows} as columns of pairs, weights packed [channel / 2][pair][2][2]"
    # A tile is gathered before its results are written, to the same pixels; another part may have yet to gather it.
    same = p.pointwise and not by_channels
    return job.done(stem, about, f"{known.name}_dsp({product.variant})", in_place=same and over is None, over=over)


def _single(job: Job, known: Scaled, x: Buffer, product: Product) -> Lowered:
    """One row: bytes as they are where they fill whole steps, else as a column of pairs."""
    p, y, column = known.problem, job.writes(), x
    if p.channels != 2 * product.pairs:
        column = job.scratch(2 * product.pairs, "column", DType.I16, own=True)
        job.k.call(gather(1, x.dtype), Place(x, idx(0)), 0, 1, p.channels, Place(column, idx(0)))
    share = job.share("o", p.out_channels, *shared_by(product.variant.sixes))
    variant = multiply_single(job.k, product, column, share, y)
    packed = "six channels at a time, then two" if variant.sixes else "[channel / 4][pair / 2][2][2][2][2]"
    about = f"{known.name}, {p.channels} -> {p.out_channels}, {x.dtype.value}\nweights packed {packed}"
    return job.done(known.stem, about, f"dense_dsp({variant})")
