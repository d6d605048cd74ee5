"""Depthwise convolution and pooling on a device, NHWC: a work-item has a vector of channels and a few neighbouring pixels.

Each column of the input is loaded once and used in every window that covers it; what is outside of the image is left out.
"""

from __future__ import annotations

import numpy as np

from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.windows import Window, combine, pool_window
from intaglio.kernels.epilogue import epilogue_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Expr, Op, both
from intaglio.kernels.opencl.conv import image_conv
from intaglio.kernels.opencl.isa import vector
from intaglio.kernels.opencl.launch import Launch, Variant, device_kernel, global_id, group_for, launch_of
from intaglio.kernels.opencl.tiles import pad_to, store_part
from intaglio.ops.conv import Conv

WIDE = 16  # weights and biases are padded to whole vectors of any size


def depthwise_applies(job: Job) -> str | None:
    if reason := image_conv(job):
        return reason
    p = problem_of(job)
    return None if p.group == p.channels == p.out_channels else "it is not depthwise"


def depthwise(job: Job) -> Lowered:
    op, node = job.node.op, job.node
    assert isinstance(op, Conv)
    weights, bias = node.inputs[1], job.optional(2)
    assert weights is not None and weights.data is not None
    geo = problem_of(job)
    channels = geo.channels
    x = job.operand(0, "x")
    taps = weights.data.reshape(channels, -1).T
    pitch = -(-channels // WIDE) * WIDE
    w = job.packed(np.pad(taps, ((0, 0), (0, pitch - channels))).reshape(-1), "w", weights.dtype)
    b = job.packed(pad_to(bias.data.astype(np.float32), WIDE), "b") if bias is not None and bias.data is not None else None
    epilogue = epilogue_of(job, op.epilogue, [v for v in node.inputs[3:] if v is not None], node.output.shape)
    y = job.writes()
    about = geo.title("depthwise conv", apart=True) + "".join(f" + {s.op.NAME}" for s in op.epilogue)
    window = Window("depthwise", x, y, w, b, None, 1.0, epilogue, pitch=pitch)
    variants = _variants(job, geo, window, about)
    return device_kernel(job, geo.stem("depthwise", apart=True), about, variants, epilogue.over, halves=True)


def pool(job: Job) -> Lowered:
    geo, window = problem_of(job), pool_window(job)
    about = geo.title(f"{window.kind} pool", apart=True)
    variants = _variants(job, geo, window, about)
    return device_kernel(job, geo.stem(f"{window.kind}_pool", apart=True), about, variants, halves=True)


def _variants(job: Job, geo: Problem, window: Window, about: str) -> list[Variant]:
    lanes = (4,) if geo.channels < 8 else (4, 8)
    found: list[Variant] = []
    for n in lanes:
        for pixels in (4, 1) if geo.out_width >= 4 and geo.kernel[1] <= 7 else (1,):
            about_it = f"{about}\n{pixels} pixels x {n} channels"
            cpu = n == lanes[-1] and not any(v.cpu for v in found)
            found.append(Variant(f"{pixels}x{n}", (_launch(job, geo, window, pixels, n, about_it),), cpu))
    return found


def _launch(job: Job, geo: Problem, window: Window, pixels: int, lanes: int, about: str) -> Launch:
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


def _pixels(k: Builder, geo: Problem, window: Window, pixels: int, lanes: int, some: int, c: Expr, ow: Expr, line: Expr) -> None:
    """`some`: only so many channels are real."""
    e = vector(lanes)
    oh, n = k.let("oh", line % geo.out_height), k.let("n", line // geo.out_height)
    top, left = k.let("top", oh * geo.strides[0] - geo.pads[0]), k.let("left", ow * geo.strides[1] - geo.pads[1])
    low, high = geo.rows_inside(k, top)
    start = e.const(float("-inf")) if window.kind == "max" else e.const(0.0)
    if window.bias is not None:
        start = k.let("bias", e.load(window.bias, c))
    acc = [k.var(f"acc{p}", start) for p in range(pixels)]
    reach = (-(-geo.out_width // pixels) * pixels - 1) * geo.strides[1] - geo.pads[1] + (geo.kernel[1] - 1) * geo.dilations[1]
    tested = geo.pads[1] > 0 or reach >= geo.width
    with k.loop("kh", low, high) as kh:
        row = k.let("row", ((n * geo.height + top + kh * geo.dilations[0]) * geo.width + left) * geo.channels + c)
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
    k: Builder, e: Lanes, geo: Problem, window: Window, acc: Expr, oh: Expr, ow: Expr, c: Expr, place: Expr, some: int
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
