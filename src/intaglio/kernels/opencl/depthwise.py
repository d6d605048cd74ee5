"""Depthwise convolution and pooling on a device, NHWC: a work-item has a vector of channels and a few neighbouring pixels.

Each column of the input is loaded once and used in every window that covers it; what is outside of the image is left out.
"""

from __future__ import annotations

import numpy as np

from intaglio.ir.types import Layout
from intaglio.kernels.contraction.problem import Problem as Geometry
from intaglio.kernels.contraction.problem import problem_of
from intaglio.kernels.contraction.windows import Window, combine
from intaglio.kernels.epilogue import Epilogue, epilogue_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Builder, Expr, Op, both, idx, imax, imin
from intaglio.kernels.opencl.conv import FLOATS, takes
from intaglio.kernels.opencl.isa import vector
from intaglio.kernels.opencl.launch import Launch, Variant, global_id, group_for
from intaglio.kernels.opencl.registry import device_kernel, launch_of, on_device
from intaglio.kernels.opencl.tiles import pad_to, store_part
from intaglio.ops.conv import Conv
from intaglio.ops.pool import AveragePool, MaxPool, Pool

WIDE = 16  # weights and biases are padded to whole vectors of any size


@on_device(Conv)
def depthwise(job: Job) -> Lowered | None:
    op, node = job.node.op, job.node
    assert isinstance(op, Conv)
    channels = job.type(0).shape[-1]
    if not takes(job, op) or op.group != channels or node.output.shape[-1] != channels:
        return None
    weights, bias = node.inputs[1], job.optional(2)
    assert weights is not None and weights.data is not None
    geo = problem_of(job)
    x = job.operand(0, "x")
    taps = weights.data.reshape(channels, -1).T
    pitch = -(-channels // WIDE) * WIDE
    w = job.packed(np.pad(taps, ((0, 0), (0, pitch - channels))).reshape(-1), "w", weights.dtype)
    b = job.packed(pad_to(bias.data.astype(np.float32), WIDE), "b") if bias is not None and bias.data is not None else None
    epilogue = epilogue_of(job, op.epilogue, [v for v in node.inputs[3:] if v is not None], node.output.shape)
    y = job.writes()
    kh, kw = geo.kernel
    about = (
        f"depthwise conv {kh}x{kw}, {channels} channels, {geo.height}x{geo.width} -> {geo.out_height}x{geo.out_width}, stride "
        f"{geo.strides[0]}x{geo.strides[1]}" + "".join(f" + {s.op.NAME}" for s in op.epilogue)
    )
    window = Window("depthwise", x, y, w, b, None, 1.0, epilogue, pitch)
    return device_kernel(
        job, f"depthwise{kh}x{kw}_{channels}", about, _variants(job, geo, window, about), epilogue.over, halves=True
    )


@on_device(MaxPool, AveragePool)
def pool(job: Job) -> Lowered | None:
    op, node = job.node.op, job.node
    assert isinstance(op, Pool)
    floats = job.type(0).dtype in FLOATS and node.output.dtype in FLOATS
    if op.layout is not Layout.NHWC or job.type(0).rank != 4 or not floats or node.output.type.elements == 0:
        return None
    n, h, w, c = job.type(0).shape
    _, oh, ow, _ = node.output.shape
    geo = Geometry(
        n, h, w, c, oh, ow, c, (op.kernel[0], op.kernel[1]), (op.strides[0], op.strides[1]), (op.pads[0], op.pads[1]),
        (op.dilations[0], op.dilations[1]), c,
    )  # fmt: skip
    x = job.operand(0, "x")
    reciprocals, scale = None, 1.0
    if isinstance(op, AveragePool):
        counts = np.broadcast_to(op.counts((h, w)), (oh, ow))
        if counts.min() == counts.max():
            scale = 1.0 / float(counts.flat[0])
        else:
            reciprocals = job.packed((1.0 / np.maximum(counts, 1)).astype(np.float32).reshape(-1), "r")
    y = job.writes()
    kind = "average" if isinstance(op, AveragePool) else "max"
    about = (
        f"{kind} pool {geo.kernel[0]}x{geo.kernel[1]}, {c} channels, {h}x{w} -> {oh}x{ow}, stride {geo.strides[0]}x{geo.strides[1]}"
    )
    window = Window(kind, x, y, None, None, reciprocals, scale, Epilogue((), ()))
    return device_kernel(
        job, f"{kind}_pool{geo.kernel[0]}x{geo.kernel[1]}_{c}", about, _variants(job, geo, window, about), halves=True
    )


def _variants(job: Job, geo: Geometry, window: Window, about: str) -> list[Variant]:
    lanes = (4,) if geo.channels < 8 else (4, 8)
    found: list[Variant] = []
    for n in lanes:
        for pixels in (4, 1) if geo.out_width >= 4 and geo.kernel[1] <= 7 else (1,):
            about_it = f"{about}\n{pixels} pixels x {n} channels"
            cpu = n == lanes[-1] and not any(v.cpu for v in found)
            found.append(Variant(f"{pixels}x{n}", (_launch(job, geo, window, pixels, n, about_it),), cpu))
    return found


def _launch(job: Job, geo: Geometry, window: Window, pixels: int, lanes: int, about: str) -> Launch:
    k = Builder()
    k.reserve(*(p.name for p in job.params))
    vectors, tiles, lines = -(-geo.channels // lanes), -(-geo.out_width // pixels), geo.batch * geo.out_height
    size = (vectors, tiles, lines)
    part, tile, line = k.let("part", global_id(0)), k.let("tile", global_id(1)), k.let("line", global_id(2))
    with k.when(both(both(part.compare("lt", vectors), tile.compare("lt", tiles)), line.compare("lt", lines))):
        c, ow = k.let("c", part * lanes), k.let("ow", tile * pixels)
        rest = geo.channels % lanes
        if not rest:
            _pixels(k, geo, window, pixels, lanes, 0, c, ow, line)
        elif geo.channels < lanes:
            _pixels(k, geo, window, pixels, lanes, rest, c, ow, line)
        else:
            with k.when(c.compare("le", geo.channels - lanes)):
                _pixels(k, geo, window, pixels, lanes, 0, c, ow, line)
            with k.otherwise():
                _pixels(k, geo, window, pixels, lanes, rest, c, ow, line)
    return launch_of(
        k, f"{window.kind}{geo.kernel[0]}x{geo.kernel[1]}_{pixels}x{lanes}", list(job.params), size, group_for(size, 64, 16),
        group_for(size, 64, 16), about=about,
    )  # fmt: skip


def _pixels(k: Builder, geo: Geometry, window: Window, pixels: int, lanes: int, some: int, c: Expr, ow: Expr, line: Expr) -> None:
    """`some`: only so many channels are real."""
    e = vector(lanes)
    oh, n = k.let("oh", line % geo.out_height), k.let("n", line // geo.out_height)
    top, left = k.let("top", oh * geo.strides[0] - geo.pads[0]), k.let("left", ow * geo.strides[1] - geo.pads[1])
    step = geo.dilations[0]
    low, high = idx(0), idx(geo.kernel[0])
    if geo.pads[0]:
        low = k.let("kh_first", imax(0, (0 - top + (step - 1)) // step))
    if (geo.out_height - 1) * geo.strides[0] - geo.pads[0] + (geo.kernel[0] - 1) * step >= geo.height:
        high = k.let("kh_last", imin(geo.kernel[0], (idx(geo.height + step - 1) - top) // step))
    start = e.const(float("-inf")) if window.kind == "max" else e.const(0.0)
    if window.bias is not None:
        start = k.let("bias", e.load(window.bias, c))
    acc = [k.var(f"acc{p}", start) for p in range(pixels)]
    reach = (-(-geo.out_width // pixels) * pixels - 1) * geo.strides[1] - geo.pads[1] + (geo.kernel[1] - 1) * geo.dilations[1]
    tested = geo.pads[1] > 0 or reach >= geo.width
    with k.loop("kh", low, high) as kh:
        row = k.let("row", ((n * geo.height + top + kh * step) * geo.width + left) * geo.channels + c)
        columns: dict[int, Expr] = {}
        inside: dict[int, Expr] = {}
        for kw in range(geo.kernel[1]):
            weight: Expr | None = None
            if window.weights is not None:
                weight = k.let("w", e.load(window.weights, (kh * geo.kernel[1] + kw) * window.pitch + c))
            for p in range(pixels):
                at = p * geo.strides[1] + kw * geo.dilations[1]
                if at not in columns:
                    value = e.load(window.x, row + at * geo.channels, some)
                    if tested:
                        spot = left + at
                        inside[at] = both(spot.compare("ge", 0), spot.compare("lt", geo.width))
                        empty = e.const(float("-inf") if window.kind == "max" else 0.0)
                        value = Op("select", (inside[at], value, empty), value.type)
                    columns[at] = k.let("x", value)
                k.assign(acc[p], combine(e, window.kind, acc[p], columns[at], weight))
    ragged = geo.out_width % pixels != 0
    for p in range(pixels):
        place = k.let("to", (line * geo.out_width + ow + p) * geo.channels + c)
        if ragged and p:
            with k.when((ow + p).compare("lt", geo.out_width)):
                _finish(k, e, geo, window, acc[p], oh, ow + p, c, place, some)
        else:
            _finish(k, e, geo, window, acc[p], oh, ow + p, c, place, some)


def _finish(
    k: Builder, e: Lanes, geo: Geometry, window: Window, acc: Expr, oh: Expr, ow: Expr, c: Expr, place: Expr, some: int
) -> None:
    value = acc
    if window.kind == "average":
        scale = e.const(window.scale)
        if window.reciprocals is not None:
            scale = e.splat(Lanes.scalar().load(window.reciprocals, oh * geo.out_width + ow))
        value = e.mul(value, scale)
    if window.epilogue.steps:
        value = window.epilogue.finish(k, e, value, c, place, some or e.lanes)
    store_part(k, window.y, place, value, some)
