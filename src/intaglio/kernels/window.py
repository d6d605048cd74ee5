"""Depthwise convolution, max and average pooling in NHWC: each channel for itself, channels in the lanes.

    for oh, for ow step 4, for c step 8:           4 output pixels of 8 channels
      for kh:  load the (4-1)*stride + kw input columns once, use each in every window that covers it

Windows at the left and right border are written out without the taps outside; rows above and below are skipped by the bounds of
the loop over kh. The divisor of an average is a constant, or a table of reciprocals where windows overhang.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.types import DType, Layout
from intaglio.kernels.conv import Geometry, geometry
from intaglio.kernels.epilogue import Epilogue, epilogue_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Builder, Expr, Var, idx, imax, imin
from intaglio.ops.conv import Conv
from intaglio.ops.pool import AveragePool, Pool


@dataclass(frozen=True, slots=True)
class Window:
    """How a window is reduced: `kind` is depthwise, max or average."""

    kind: str
    x: Buffer
    y: Buffer
    weights: Buffer | None
    bias: Buffer | None
    reciprocals: Buffer | None
    scale: float
    epilogue: Epilogue
    pitch: int = 0  # numbers in a row of weights: small ones are loaded as whole vectors


def depthwise(job: Job) -> Lowered | None:
    op, node = job.node.op, job.node
    assert isinstance(op, Conv)
    weights, bias = node.inputs[1], job.optional(2)
    channels = job.type(0).shape[-1]
    if (
        op.layout is not Layout.NHWC
        or job.type(0).rank != 4
        or job.type(0).dtype is not DType.F32
        or node.output.type.elements == 0
    ):
        return None
    if weights is None or weights.data is None or op.group != channels or node.output.shape[-1] != channels:
        return None
    if bias is not None and bias.data is None:
        return None
    geo = geometry(job, op)
    x = job.operand(0, "x")
    taps = weights.data.reshape(channels, -1).T  # [kh*kw, C]
    pitch = channels if weights.dtype is DType.F32 else -(-channels // job.isa.lanes) * job.isa.lanes
    w = job.packed(np.pad(taps, ((0, 0), (0, pitch - channels))).reshape(-1), "w")
    b = job.packed(bias.data.astype(np.float32), "b") if bias is not None and bias.data is not None else None
    epilogue = epilogue_of(job, op.epilogue, [v for v in node.inputs[3:] if v is not None], node.output.shape)
    y = job.writes()
    columns = _columns(job, geo)
    _write(job, geo, Window("depthwise", x, y, w, b, None, 1.0, epilogue, pitch), columns)
    kh, kw = geo.kernel
    about = (
        f"depthwise conv {kh}x{kw}, {channels} channels, {geo.height}x{geo.width} -> {geo.out_height}x{geo.out_width}, stride "
        f"{geo.strides[0]}x{geo.strides[1]}" + "".join(f" + {s.op.NAME}" for s in op.epilogue)
        + f"\nNHWC, {columns} pixels x {job.isa.lanes} channels at a time, weights packed [kh][kw][c]"
    )  # fmt: skip
    return job.done(f"depthwise{kh}x{kw}_{channels}", about, f"depthwise_nhwc(pixels={columns})", over=epilogue.over)


def pool_nhwc(job: Job) -> Lowered | None:
    op, node = job.node.op, job.node
    assert isinstance(op, Pool)
    if (
        op.layout is not Layout.NHWC
        or job.type(0).rank != 4
        or job.type(0).dtype is not DType.F32
        or node.output.type.elements == 0
    ):
        return None
    n, h, w, c = job.type(0).shape
    _, oh, ow, _ = node.output.shape
    geo = Geometry(
        n, h, w, c, oh, ow, c, (op.kernel[0], op.kernel[1]), (op.strides[0], op.strides[1]), (op.pads[0], op.pads[1]),
        (op.dilations[0], op.dilations[1]), c,
    )  # fmt: skip
    x = job.operand(0, "x")
    reciprocals: Buffer | None = None
    scale = 1.0
    if isinstance(op, AveragePool):
        counts = np.broadcast_to(op.counts((h, w)), (oh, ow))
        if counts.min() == counts.max():
            scale = 1.0 / float(counts.flat[0])
        else:
            reciprocals = job.packed((1.0 / np.maximum(counts, 1)).astype(np.float32).reshape(-1), "r")
    y = job.writes()
    kind = "average" if isinstance(op, AveragePool) else "max"
    columns = _columns(job, geo)
    _write(job, geo, Window(kind, x, y, None, None, reciprocals, scale, Epilogue((), ())), columns)
    kh, kw = geo.kernel
    about = (
        f"{kind} pool {kh}x{kw}, {c} channels, {h}x{w} -> {oh}x{ow}, stride {geo.strides[0]}x{geo.strides[1]}\n"
        f"NHWC, {columns} pixels x {job.isa.lanes} channels at a time"
    )
    return job.done(f"{kind}_pool{kh}x{kw}_{c}", about, f"{kind}_pool_nhwc(pixels={columns})")


def _columns(job: Job, geo: Geometry) -> int:
    """Output pixels at a time: their accumulators and the input columns they share must fit the registers."""
    for columns in (4, 3, 2):
        span = (columns - 1) * geo.strides[1] + (geo.kernel[1] - 1) * geo.dilations[1] + 1
        if columns + min(span, geo.kernel[1] * columns) + 1 <= job.target.registers and columns <= geo.out_width:
            return columns
    return 1


def _write(job: Job, geo: Geometry, window: Window, columns: int) -> None:
    k = job.k
    with k.loop("n", 0, geo.batch) as n, k.loop("oh", 0, geo.out_height) as oh:
        top = k.let("top", oh * geo.strides[0] - geo.pads[0])
        step = geo.dilations[0]
        low: Expr = idx(0)
        if geo.pads[0]:
            low = k.let("kh_first", imax(0, (0 - top + (step - 1)) // step))
        high: Expr = idx(geo.kernel[0])
        if (geo.out_height - 1) * geo.strides[0] - geo.pads[0] + (geo.kernel[0] - 1) * step >= geo.height:
            high = k.let("kh_last", imin(geo.kernel[0], (idx(geo.height + step - 1) - top) // step))
        line = k.let("line", (n * geo.height + top) * (geo.width * geo.channels))
        out = k.let("out", (n * geo.out_height + oh) * (geo.out_width * geo.channels))
        inner = [c for c in range(0, geo.out_width - columns + 1, columns) if geo.all_inside(c, columns)]
        known = set(inner)
        for c in range(0, geo.out_width, columns):
            if inner and c == inner[0]:
                with k.loop("ow", inner[0], inner[-1] + columns, columns) as ow:
                    _pixels(job, geo, window, ow, columns, None, low, high, line, out, oh)
            elif c not in known:
                with k.block():
                    _pixels(job, geo, window, idx(c), min(columns, geo.out_width - c), c, low, high, line, out, oh)


def _pixels(
    job: Job, geo: Geometry, window: Window, ow: Expr, count: int, edge: int | None, low: Expr, high: Expr, line: Expr, out: Expr,
    oh: Expr,
) -> None:  # fmt: skip
    k, lanes = job.k, job.isa.lanes
    whole = geo.channels // lanes * lanes
    with k.loop("c", 0, whole, lanes) as c:
        _vector(k, job.vector, geo, window, ow, count, edge, low, high, line, out, oh, c, lanes)
    if geo.channels > whole:
        with k.block():
            _vector(k, job.vector, geo, window, ow, count, edge, low, high, line, out, oh, idx(whole), geo.channels - whole)


def _vector(
    k: Builder, e: Lanes, geo: Geometry, window: Window, ow: Expr, count: int, edge: int | None, low: Expr, high: Expr, line: Expr,
    out: Expr, oh: Expr, c: Expr, lanes: int,
) -> None:  # fmt: skip
    part = lanes if e.vector else 0
    first: Expr = e.const(0.0)
    if window.kind == "max":
        first = e.const(float("-inf"))
    elif window.bias is not None:
        first = k.let("bias", e.load(window.bias, c, part))
    acc = [k.var(f"acc{p}", first, e.type) for p in range(count)]
    with k.loop("kh", low, high) as kh:
        start = k.let(
            "start",
            line + kh * (geo.dilations[0] * geo.width * geo.channels) + (ow * geo.strides[1] - geo.pads[1]) * geo.channels + c,
        )
        loaded: dict[int, Expr] = {}
        for kw in range(geo.kernel[1]):
            inside = range(count) if edge is None else geo.valid_rows(edge, count, kw)
            weight: Expr | None = None
            if window.weights is not None and inside:
                some = part if window.pitch == geo.channels else 0
                weight = k.let(f"w{kw}", e.load(window.weights, (kh * geo.kernel[1] + kw) * window.pitch + c, some))
            for p in inside:
                at = p * geo.strides[1] + kw * geo.dilations[1]
                if at not in loaded:
                    loaded[at] = k.let(f"x{at}", e.load(window.x, start + at * geo.channels, part))
                k.assign(acc[p], combine(e, window.kind, acc[p], loaded[at], weight))
    for p in range(count):
        value: Expr = acc[p]
        place = out + (ow + p) * geo.channels + c
        if window.kind == "average":
            scale = e.const(window.scale)
            if window.reciprocals is not None:
                scale = e.splat(Lanes.scalar().load(window.reciprocals, oh * geo.out_width + ow + p))
            value = e.mul(value, scale)
        if window.epilogue.steps:
            value = window.epilogue.finish(k, e, value, c, place, lanes)
        k.store(window.y, place, value, part)


def combine(e: Lanes, kind: str, acc: Var, x: Expr, weight: Expr | None) -> Expr:
    if weight is not None:
        return e.fma(x, weight, acc)
    return e.highest(acc, x) if kind == "max" else e.add(acc, x)
