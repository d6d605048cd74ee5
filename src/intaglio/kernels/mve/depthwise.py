"""Depthwise convolutions of bytes with MVE: eight channels at a time, as products of 16 by 16 bits, where sums are scaled quickly
(`eights`). At the border, a list of pointers has the taps of a pixel; those outside point to zero points. Others four at a time:

    acc = start[c..];   for each tap inside of the image:  acc += (x[c..] - zero) * w[tap][c..];   scale, clip, store four bytes

Scaling is VQRDMULH and VRSHL, with the sign added in between: VRSHL rounds half up, the reference half away from zero.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.dsp.primitives import BASE
from intaglio.kernels.dsp.scaling import Scaled, finished, scaled_of
from intaglio.kernels.dsp.variants import C_TYPES, Finish, How, Range
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Place, idx
from intaglio.kernels.mve.rows import MVE, C, is_quick
from intaglio.kernels.routines import Routine, routine_of
from intaglio.ops.fixed_point import scale32
from intaglio.ops.quantised import QConv

EIGHT = 8
MOST_TAPS = 49  # pointers on the stack


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


@cache
def eights(rows: int, cols: int, kind: DType, finish: Finish) -> Routine:
    """One pixel, eight channels at a time."""
    (low, high), taps = finish.out.bounds, rows * cols

    def meaning(
        x: Array, outside: Array, top: int, left: int, height: int, width: int, channels: int, down: int, across: int, w: Array,
        scale: Array, y: Array,
    ) -> None:  # fmt: skip
        blocks = -(-channels // EIGHT)
        weights = w[: blocks * taps * EIGHT].reshape(blocks, taps, EIGHT).transpose(1, 0, 2).reshape(taps, -1)[:, :channels]
        words = scale[: blocks * EIGHT * 4].reshape(blocks, 4, 2, 4).transpose(1, 0, 3, 2).reshape(4, -1)[:, :channels]
        records = np.stack([words[0], words[1], words[2], -words[3]], axis=1).astype(np.int64)
        total = records[:, 0].copy()
        for i in range(rows):
            for j in range(cols):
                h, v = top + i * down, left + j * across
                at = (h * width + v) * channels
                values = x[at : at + channels] if 0 <= h < height and 0 <= v < width else outside[:channels]
                total += values.astype(np.int64) * weights[i * cols + j]
        y[:channels] = finished(total, records, finish)

    return routine_of(
        C / "eights.c", f"eights_{rows}x{cols}_{kind.value}_{finish}", meaning, (BASE, MVE), X_TYPE=C_TYPES[kind], ROWS=rows,
        COLS=cols, Y_TYPE=C_TYPES[finish.out.to], X_SIGNED=kind is DType.I8, Y_SIGNED=finish.out.to is DType.I8,
        SIGN=finish.how is How.TWICE, LOW=low, HIGH=high,
    )  # fmt: skip


def _by_eights(channels: Array) -> Array:
    """[..., channels] as [channel / 8][...][8], with zeros at the end."""
    padded = np.pad(channels, (*((0, 0) for _ in channels.shape[:-1]), (0, -channels.shape[-1] % EIGHT)))
    return np.ascontiguousarray(np.moveaxis(padded.reshape(*channels.shape[:-1], -1, EIGHT), -2, 0))


def _in_eights(job: Job, known: Scaled) -> Lowered:
    p, n, k = known.problem, known.numbers, job.k
    x, taps = job.operand(0, "x"), p.kernel[0] * p.kernel[1]
    outside = job.packed(np.full(p.channels, n.x_zero, x.dtype.numpy), "outside", x.dtype) if p.padded else x
    weights = n.weights[:, 0].transpose(1, 2, 0).reshape(taps, p.channels)
    w = job.packed(_by_eights(weights).reshape(-1).astype(np.int8), "w", DType.I8)
    records = known.scales.records.astype(np.int64)
    words = _by_eights(np.stack([records[:, 0], records[:, 1], records[:, 2], -records[:, 3]]))  # [block][word][8]
    words = words.reshape(len(words), 4, 4, 2).transpose(0, 1, 3, 2)
    scale = job.packed(np.ascontiguousarray(words).reshape(-1).astype(np.int32), "scale", DType.I32)
    y = job.writes()
    routine = eights(*p.kernel, x.dtype, known.scales.finish)
    with k.loop("n", 0, p.batch) as image, k.loop("oh", 0, p.out_height) as oh, k.loop("ow", 0, p.out_width) as ow:
        start = k.let("image", image * (p.height * p.width * p.channels))
        k.call(
            routine, Place(x, start), Place(outside, idx(0)), oh * p.strides[0] - p.pads[0], ow * p.strides[1] - p.pads[1],
            p.height, p.width, p.channels, *p.dilations, Place(w, idx(0)), Place(scale, idx(0)),
            Place(y, ((image * p.out_height + oh) * p.out_width + ow) * p.channels),
        )  # fmt: skip
    using = f"qdepthwise_mve(eights_{known.scales.finish})"
    return job.done(p.stem("qdepthwise", apart=True), p.title("qdepthwise", apart=True), using)


@fact
def facts(job: Job) -> Scaled | str:
    """What the kernel needs, or why it does not apply."""
    op = job.node.op
    assert isinstance(op, QConv)
    if job.isa.name != "mve":
        return "the core has no MVE"
    if op.epilogue:
        return "another layer is fused into it"
    known = scaled_of(job)
    if isinstance(known, str):
        return known
    p, n = known.problem, known.numbers
    if not p.depth == p.columns == 1:
        return "it is not depthwise"
    if n.scaling != "twice" or n.shift is None or n.bias is None:
        return "it has no bias, or its scaling differs from that of TFLite"
    if int(np.abs(n.weights).max()) > 127:
        return "the weights do not fit 8 bits"
    reach = np.abs(n.weights).reshape(p.channels, -1).sum(axis=1) * 255 + np.abs(n.whole_bias)
    if (reach << np.maximum(np.broadcast_to(n.shift, (p.channels,)).astype(np.int64), 0)).max() >= 2**31:
        return "a sum may not fit 32 bits"
    return known


def qdepthwise_mve(job: Job) -> Lowered:
    known, k = facts(job), job.k
    assert isinstance(known, Scaled)
    p, n = known.problem, known.numbers
    assert n.shift is not None
    if is_quick(known.scales.finish) and p.kernel[0] * p.kernel[1] <= MOST_TAPS:
        return _in_eights(job, known)
    x = job.operand(0, "x")
    w = job.packed(np.ascontiguousarray(n.weights[:, 0].transpose(1, 2, 0)).reshape(-1).astype(np.int8), "w", DType.I8)
    multiplier, right = (np.broadcast_to(part, (p.channels,)).astype(np.int64) for part in (n.multiplier, n.shift))
    factors = [n.whole_bias, multiplier, np.maximum(right, 0), np.minimum(right, 0)]
    scale = job.packed(np.stack(factors).astype(np.int32).reshape(-1), "scale", DType.I32)
    y = job.writes()
    routine = taps(x.dtype, known.scales.finish.out)
    with k.loop("n", 0, p.batch) as image, k.loop("oh", 0, p.out_height) as oh, k.loop("ow", 0, p.out_width) as ow:
        start = k.let("image", image * (p.height * p.width * p.channels))
        k.call(
            routine, Place(x, start), oh * p.strides[0] - p.pads[0], ow * p.strides[1] - p.pads[1], p.height, p.width, p.channels,
            *p.kernel, *p.dilations, n.x_zero, Place(w, idx(0)), Place(scale, idx(0)), n.y_zero,
            Place(y, ((image * p.out_height + oh) * p.out_width + ow) * p.channels),
        )  # fmt: skip
    return job.done(p.stem("qdepthwise", apart=True), p.title("qdepthwise", apart=True), "qdepthwise_mve")
