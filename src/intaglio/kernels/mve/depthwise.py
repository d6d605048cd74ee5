"""Depthwise convolutions of bytes with MVE: four channels at a time, in lanes of 32 bits, tap by tap.

    acc = start[c..];   for each tap inside of the image:  acc += (x[c..] - zero) * w[tap][c..];   scale, clip, store four bytes

Scaling is VQRDMULH and VRSHL, with the sign added in between: VRSHL rounds half up, the reference half away from zero.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.contraction.problem import problem_of
from intaglio.kernels.contraction.quantised import constants_of
from intaglio.kernels.dsp.primitives import BASE
from intaglio.kernels.dsp.variants import C_TYPES, Range, range_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Place, idx
from intaglio.kernels.mve.conv import takes
from intaglio.kernels.mve.rows import MVE, C
from intaglio.kernels.routines import Routine, routine_of
from intaglio.ops.fixed_point import scale32
from intaglio.ops.quantised import QConv


@cache
def taps(kind: DType, out: Range) -> Routine:
    low, high = out.bounds

    def meaning(
        x: Array, top: int, left: int, height: int, width: int, channels: int, rows: int, cols: int, down: int, across: int,
        zero: int, w: Array, scale: Array, y_zero: int, y: Array,
    ) -> None:  # fmt: skip
        words = scale[: 4 * channels].reshape(4, channels).astype(np.int64)
        total = words[0].copy()
        for i in range(rows):
            for j in range(cols):
                h, v = top + i * down, left + j * across
                if 0 <= h < height and 0 <= v < width:
                    at, tap = (h * width + v) * channels, (i * cols + j) * channels
                    total += (x[at : at + channels].astype(np.int64) - zero) * w[tap : tap + channels]
        y[:channels] = np.clip(scale32(total, words[1], words[2] + words[3]) + y_zero, low, high).astype(out.to.numpy)

    return routine_of(
        C / "taps.c", f"taps_{kind.value}_{out}", meaning, (BASE, MVE), ("ig_scale32_i32",), X_TYPE=C_TYPES[kind],
        Y_TYPE=C_TYPES[out.to], X_SIGNED=kind is DType.I8, Y_SIGNED=out.to is DType.I8, LOW=low, HIGH=high,
    )  # fmt: skip


def qdepthwise_mve(job: Job) -> Lowered | None:
    op = job.node.op
    assert isinstance(op, QConv)
    known = constants_of(job) if takes(job, op.to, plain=False) and not op.epilogue and op.scaling == "twice" else None
    if known is None:
        return None
    weights, bias, multiplier, shift = known
    geo, k = problem_of(job), job.k
    centred = weights.astype(np.int64)[:, 0] - op.w_zero  # [c, kh, kw]
    if geo.depth != 1 or geo.columns != 1 or shift is None or bias is None or int(np.abs(centred).max()) > 127:
        return None
    right = np.broadcast_to(shift, (geo.channels,)).astype(np.int64)
    reach = np.abs(centred).reshape(geo.channels, -1).sum(axis=1) * 255 + np.abs(bias.astype(np.int64))
    if (reach << np.maximum(right, 0)).max() >= 2**31:
        return None
    x = job.operand(0, "x")
    w = job.packed(np.ascontiguousarray(centred.transpose(1, 2, 0)).reshape(-1).astype(np.int8), "w", DType.I8)
    factors = [bias.astype(np.int64), np.broadcast_to(multiplier, (geo.channels,)), np.maximum(right, 0), np.minimum(right, 0)]
    scale = job.packed(np.stack(factors).astype(np.int32).reshape(-1), "scale", DType.I32)
    y = job.writes()
    routine = taps(x.dtype, range_of(op.to, op.low, op.high))
    (kh, kw), (sh, sw), (dh, dw) = geo.kernel, geo.strides, geo.dilations
    with k.loop("n", 0, geo.batch) as n, k.loop("oh", 0, geo.out_height) as oh, k.loop("ow", 0, geo.out_width) as ow:
        image = k.let("image", n * (geo.height * geo.width * geo.channels))
        k.call(
            routine, Place(x, image), oh * sh - geo.pads[0], ow * sw - geo.pads[1], geo.height, geo.width, geo.channels, kh, kw, dh,
            dw, op.x_zero, Place(w, idx(0)), Place(scale, idx(0)), op.y_zero,
            Place(y, ((n * geo.out_height + oh) * geo.out_width + ow) * geo.channels),
        )  # fmt: skip
    about = f"qdepthwise {kh}x{kw}, {geo.channels} channels, {geo.height}x{geo.width} -> {geo.out_height}x{geo.out_width}"
    return job.done(f"qdepthwise{kh}x{kw}_{geo.channels}", about, "qdepthwise_mve")
