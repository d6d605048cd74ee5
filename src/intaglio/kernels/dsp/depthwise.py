"""Depthwise convolutions of bytes on small cores: 3x3 by sliding windows (`slide.py`), along the longer axis."""

from __future__ import annotations

import numpy as np

from intaglio.ir.types import DType
from intaglio.kernels.contraction.problem import Problem as Geometry
from intaglio.kernels.contraction.problem import problem_of
from intaglio.kernels.contraction.quantised import BYTES, Numbers, constants_of
from intaglio.kernels.dsp.conv import channel_scales, takes
from intaglio.kernels.dsp.slide import FIRST_MISSING, FULL, LAST_MISSING, pack_records, slide
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Expr, Place, idx
from intaglio.ops.quantised import QConv


def _takes(job: Job, to: DType) -> bool:
    """Also on cores that have neither pairs nor vectors."""
    if job.isa.dsp or job.isa.lanes > 1 or not job.target.bare:
        return takes(job, to)
    weights = job.node.inputs[1]
    return job.type(0).dtype in BYTES and weights is not None and weights.dtype in BYTES and to in BYTES


def _slides(length: int, out: int, stride: int, pad: int) -> bool:
    """Windows of three along this axis, at most one position outside at each end."""
    return pad <= 1 and stride in (1, 2) and (out - 1) * stride - pad + 2 <= length


def _crosses(length: int, out: int, stride: int, pad: int) -> bool:
    """At most one of three rows is missing."""
    last = (out - 1) * stride - pad + 2
    return pad <= 1 and last <= length and not (pad and out == 1 and last >= length)


def qdepthwise_dsp(job: Job) -> Lowered | None:
    op = job.node.op
    assert isinstance(op, QConv)
    known = constants_of(job) if _takes(job, op.to) and not op.epilogue else None
    if known is None:
        return None
    weights, bias, multiplier, shift = known
    geo = problem_of(job)
    if geo.kernel != (3, 3) or geo.dilations != (1, 1) or geo.depth != 1 or geo.columns != 1:
        return None
    centred = weights.astype(np.int64)[:, 0] - op.w_zero  # [c, kh, kw]
    if int(np.abs(centred).max()) > 16383:
        return None
    numbers = Numbers(op.x_zero, op.w_zero, op.y_zero, op.low, op.high, op.to, op.scaling)
    found = channel_scales(centred, bias, multiplier, shift, numbers, job.type(0).dtype)
    along = _axis(geo)
    if found is None or along is None:
        return None
    scales, _ = found
    k, kind = job.k, job.type(0).dtype
    x = job.operand(0, "x")
    taps = centred if along == 0 else centred.transpose(0, 2, 1)  # [c, along, across]
    record = job.packed(pack_records(taps, scales), "record", DType.I32)
    y = job.writes()
    c = geo.channels
    lengths, outs, strides, pads = (geo.height, geo.width), (geo.out_height, geo.out_width), geo.strides, geo.pads
    steps, y_steps = (geo.width * c, c), (geo.out_width * c, c)
    cross = 1 - along
    before = pads[along]
    after = int((outs[along] - 1) * strides[along] - pads[along] + 2 >= lengths[along])
    routine = slide(strides[along], kind, scales.finish, pairs=job.isa.dsp)

    def row(start: Expr, to: Expr, missing: int) -> None:
        k.call(
            routine, Place(x, start), steps[along], steps[cross], Place(y, to), y_steps[along], outs[along], before, after, missing,
            numbers.x_zero, c, Place(record, idx(0)),
        )  # fmt: skip

    with k.loop("n", 0, geo.batch) as n:
        image = k.let("image", n * (geo.height * geo.width * c))
        result = k.let("result", n * (geo.out_height * geo.out_width * c))
        first = 1 if pads[cross] else 0
        last = outs[cross] - int((outs[cross] - 1) * strides[cross] - pads[cross] + 2 >= lengths[cross])
        if first:
            row(image, result, FIRST_MISSING)
        with k.loop("i", first, last) as i:
            row(image + (i * strides[cross] - pads[cross]) * steps[cross], result + i * y_steps[cross], FULL)
        if last < outs[cross]:
            at = last * strides[cross] - pads[cross]
            row(image + at * steps[cross], result + last * y_steps[cross], LAST_MISSING)
    about = (
        f"qdepthwise 3x3, {c} channels, {geo.height}x{geo.width} -> {geo.out_height}x{geo.out_width}, "
        f"stride {strides[0]}x{strides[1]}, {kind.value}\nNHWC, windows slide along {'the columns' if along == 0 else 'the rows'}"
    )
    return job.done(f"qdepthwise3x3_{c}", about, f"qdepthwise_{'dsp' if job.isa.dsp else 'plain'}({scales.finish})")


def _axis(geo: Geometry) -> int | None:
    """Along which axis windows slide: the longer one, where borders allow it."""
    size = ((geo.height, geo.width), (geo.out_height, geo.out_width), geo.strides, geo.pads)
    fits = [along for along in (1, 0) if _slides(*(part[along] for part in size)) and _crosses(*(part[1 - along] for part in size))]
    return max(fits, key=lambda a: (geo.out_height, geo.out_width)[a], default=None)
