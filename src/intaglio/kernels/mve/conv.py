"""Convolutions and matrix products of bytes by rows: rows are read where they are, windows copied, two at a time (`rows.py`).

With MVE, and on cores with neither it nor the DSP extension, whose compilers get a tile of two rows and two channels in plain C."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.contraction.problem import problem_of
from intaglio.kernels.contraction.quantised import BYTES, Numbers, constants_of
from intaglio.kernels.dsp.conv import channel_scales
from intaglio.kernels.dsp.variants import Finish
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Buffer, Expr, Place, idx
from intaglio.kernels.mve.rows import rows, window
from intaglio.ops.quantised import QConv, QMatMul


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels ready to be multiplied: packed weights and scales, and how sums become bytes."""

    w: Buffer
    scale: Buffer
    depth: int
    outs: int
    finish: Finish


def takes(job: Job, to: DType, *, plain: bool) -> bool:
    """Bytes in, bytes out, with MVE; `plain`: also on cores that have plain C only."""
    weights = job.node.inputs[1]
    fits = job.type(0).dtype in BYTES and weights is not None and weights.dtype in (*BYTES, DType.I16) and to in BYTES
    core = job.isa.name == "mve" or (plain and job.target.bare and not job.isa.dsp)
    return fits and core and job.node.output.type.elements > 0


def product_of(
    job: Job, groups: int, channels: Array, bias: Array | None, multiplier: Array, shift: Array | None, numbers: Numbers
) -> Channels | None:
    """Channels [groups * outs, depth] one after the other; an odd last one of a group has zeros beside it."""
    kind = job.type(0).dtype
    found = channel_scales(channels, bias, multiplier, shift, numbers, kind)
    if found is None or channels.size == 0 or int(channels.min()) < -128 or int(channels.max()) > 127:
        return None
    scales, _ = found
    records = scales.records.copy()
    if kind is DType.U8:  # bytes are moved by 128 when they are read
        records[:, 0] += (128 * channels.sum(axis=1)).astype(np.int32)
    outs, depth = len(channels) // groups, channels.shape[1]
    odd = outs % 2
    w = np.zeros((groups, outs + odd, depth), np.int8)
    w[:, :outs] = channels.reshape(groups, outs, depth)
    padded = np.zeros((groups, outs + odd, records.shape[1]), np.int32)
    padded[:, :outs] = records.reshape(groups, outs, -1)
    weights = job.packed(w.reshape(-1), "w", DType.I8)
    scale = job.packed(padded.reshape(-1), "scale", DType.I32)
    return Channels(weights, scale, depth, outs, scales.finish)


def qconv_mve(job: Job) -> Lowered | None:
    op = job.node.op
    assert isinstance(op, QConv)
    known = constants_of(job) if takes(job, op.to, plain=True) and not op.epilogue else None
    if known is None:
        return None
    weights, bias, multiplier, shift = known
    geo, k = problem_of(job), job.k
    if geo.depth == 1 and geo.group > 1:
        return None
    numbers = Numbers(op.x_zero, op.w_zero, op.y_zero, op.low, op.high, op.to, op.scaling)
    centred = (weights.astype(np.int64) - op.w_zero).transpose(0, 2, 3, 1).reshape(geo.out_channels, -1)
    if geo.kernel == (1, 1) and geo.strides == (1, 1) and not any(op.pads) and op.group == 1:
        return _matrix(job, geo.batch * geo.out_height * geo.out_width, centred, bias, multiplier, shift, numbers, "qconv1x1")
    x = job.operand(0, "x")
    product = product_of(job, geo.group, centred, bias, multiplier, shift, numbers)
    if product is None:
        return None
    y = job.writes()
    depth = product.depth
    windows = job.scratch(2 * depth, "windows", x.dtype)
    (kh, kw), (sh, sw), (dh, dw) = geo.kernel, geo.strides, geo.dilations
    size = product.outs + product.outs % 2
    with k.loop("n", 0, geo.batch) as n, k.loop("g", 0, geo.group) as g, k.loop("oh", 0, geo.out_height) as oh:
        base = k.let("base", n * (geo.height * geo.width * geo.channels) + g * geo.depth)
        top = k.let("top", oh * sh - geo.pads[0])

        def tile(first: Expr, count: int) -> None:
            for c in range(count):
                k.call(
                    window(x.dtype), Place(x, base), top, (first + c) * sw - geo.pads[1], geo.height, geo.width,
                    geo.channels, kh, kw, dh, dw, geo.depth, op.x_zero, Place(windows, idx(c * depth)),
                )  # fmt: skip
            out = k.let("out", ((n * geo.out_height + oh) * geo.out_width + first) * geo.out_channels + g * product.outs)
            k.call(
                rows(count, x.dtype, product.finish), Place(product.w, g * (size * depth)), Place(product.scale, g * (size * 4)),
                Place(windows, idx(0)), depth, depth, product.outs, Place(y, out), geo.out_channels,
            )  # fmt: skip

        _by_two(job, geo.out_width, tile)
    about = (
        f"qconv {kh}x{kw}, {geo.channels} -> {geo.out_channels} channels, {geo.height}x{geo.width} -> "
        f"{geo.out_height}x{geo.out_width}, stride {sh}x{sw}, group {geo.group}, {x.dtype.value}\nNHWC, windows as rows"
    )
    return job.done(f"qconv{kh}x{kw}_{geo.channels}_{geo.out_channels}", about, f"qconv_rows({x.dtype.value}_{product.finish})")


def _by_two(job: Job, count: int, write: object) -> None:
    assert callable(write)
    with job.k.loop("at", 0, count // 2 * 2, 2) as at:
        write(at, 2)
    if count % 2:
        with job.k.block():
            write(idx(count - 1), 1)


def _matrix(
    job: Job, height: int, channels: Array, bias: Array | None, multiplier: Array, shift: Array | None, numbers: Numbers, stem: str
) -> Lowered | None:
    x = job.operand(0, "x")
    product = product_of(job, 1, channels, bias, multiplier, shift, numbers)
    if product is None:
        return None
    y = job.writes()
    depth, outs = product.depth, product.outs

    def tile(first: Expr, count: int) -> None:
        job.k.call(
            rows(count, x.dtype, product.finish), Place(product.w, idx(0)), Place(product.scale, idx(0)), Place(x, first * depth),
            depth, depth, outs, Place(y, first * outs), outs,
        )  # fmt: skip

    _by_two(job, height, tile)
    about = f"{stem} of {height} rows, {depth} -> {outs}, {x.dtype.value}"
    return job.done(f"{stem}_{depth}_{outs}", about, f"{stem}_rows({x.dtype.value}_{product.finish})")


def qmatmul_mve(job: Job) -> Lowered | None:
    op = job.node.op
    assert isinstance(op, QMatMul)
    known = constants_of(job) if takes(job, op.to, plain=True) else None
    if known is None or len(job.type(1).shape) != 2:
        return None
    weights, bias, multiplier, shift = known
    numbers = Numbers(op.a_zero, op.b_zero, op.y_zero, op.low, op.high, op.to, op.scaling)
    right = weights.astype(np.int64) - op.b_zero
    channels = right if op.transpose_b else right.T
    height = job.node.output.type.elements // max(len(channels), 1)
    return _matrix(job, height, channels, bias, multiplier, shift, numbers, "qmatmul")
