"""Convolution on a device, NHWC: a work-item computes neighbouring pixels of some channels in registers.

    gpu   neighbouring items are neighbouring channels: they read the same pixels and consecutive weights
    cpu   neighbouring items are neighbouring pixels: a block of weights stays in the cache
    1x1   a matrix product (`matmul.py`), with local memory as one of the variants

Tiles that touch the border go through a second loop in which taps outside are zeros; the others test nothing.
"""

from __future__ import annotations

import numpy as np

from intaglio.ir.types import DType, Layout
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.fma import computed
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.epilogue import Epilogue, epilogue_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Buffer, Expr, both, idx
from intaglio.kernels.opencl.launch import Launch, Variant, device_kernel, global_id, group_for, launch_of
from intaglio.kernels.opencl.matmul import Product, product_variants
from intaglio.kernels.opencl.tiles import Accumulators, Tile, block_width, loaded, pack_blocks, pad_to, store_tile, tiles_for
from intaglio.ops.conv import Conv
from intaglio.ops.pool import Pool

FLOATS = (DType.F32, DType.F16)


def not_an_image(job: Job) -> str | None:
    """Why this is not a convolution or pool of an NHWC image of floats."""
    op, out = job.node.op, job.node.output
    assert isinstance(op, Conv | Pool)
    if op.layout is not Layout.NHWC:
        return f"the layout is {op.layout.value}, not NHWC"
    if job.type(0).rank != 4:
        return "the number of spatial axes is not 2"
    if wrong := [t.value for t in (job.type(0).dtype, out.dtype) if t not in FLOATS]:
        return f"the type is {wrong[0]}, not f32 or f16"
    return "the result is empty" if out.type.elements == 0 else None


def image_conv(job: Job) -> str | None:
    """Why this is not a convolution of an NHWC image of floats with constant weights."""
    if reason := not_an_image(job) or computed(job):
        return reason
    weights = job.node.inputs[1]
    assert weights is not None
    return None if weights.dtype in FLOATS else f"the weights are {weights.dtype.value}, not f32 or f16"


def conv_applies(job: Job) -> str | None:
    if reason := image_conv(job):
        return reason
    return "it is depthwise" if problem_of(job).depthwise else None


def packed_bias(job: Job, op: Conv, wide: int) -> Buffer | None:
    bias = job.optional(2)
    if bias is None or bias.data is None:
        return None
    parts = [pad_to(part.astype(np.float32), wide) for part in np.split(bias.data.reshape(-1), op.group)]
    return job.packed(np.concatenate(parts), "b")


def conv(job: Job) -> Lowered:
    op, node = job.node.op, job.node
    assert isinstance(op, Conv)
    weights = node.inputs[1]
    assert weights is not None and weights.data is not None
    geo = problem_of(job)
    wide = block_width(geo.columns)
    x = job.operand(0, "x")
    matrices = [m.reshape(-1, geo.columns) for m in geo.matrices(weights.data)]
    w = job.packed(np.concatenate([pack_blocks(m, wide) for m in matrices]), "w", weights.dtype)
    b = packed_bias(job, op, wide)
    epilogue = epilogue_of(job, op.epilogue, [v for v in node.inputs[3:] if v is not None], node.output.shape)
    y = job.writes()
    about = geo.title("conv") + "".join(f" + {s.op.NAME}" for s in op.epilogue)
    if geo.pointwise:
        product = Product(geo.rows, geo.channels, geo.out_channels, x, w, b, y, epilogue)
        variants = product_variants(job, product, about)
    else:
        variants = []
        for tile in tiles_for(geo.out_width, geo.columns):
            made = _image(job, geo, tile, x, w, b, y, epilogue, f"{about}\n{tile.rows} pixels x {tile.width} channels")
            variants.append(Variant(str(tile), (made,), tile.cpu))
    return device_kernel(job, geo.stem("conv"), about, variants, epilogue.over, halves=True)


def _image(
    job: Job, geo: Problem, tile: Tile, x: Buffer, w: Buffer, b: Buffer | None, y: Buffer, epilogue: Epilogue, about: str
) -> Launch:
    k = Builder()
    k.reserve(*(p.name for p in job.params))
    wide = block_width(geo.columns)
    per_group = -(-geo.columns // tile.width)
    tiles = -(-geo.out_width // tile.rows)
    blocks, lines = per_group * geo.group, geo.batch * geo.out_height
    size = (tiles, lines, blocks) if tile.cpu else (blocks, tiles, lines)
    order = (2, 0, 1) if tile.cpu else (0, 1, 2)
    block, t, line = (k.let(name, global_id(d)) for name, d in zip(("block", "tile", "line"), order, strict=True))
    with k.when(both(both(block.compare("lt", blocks), t.compare("lt", tiles)), line.compare("lt", lines))):
        _tile(k, geo, tile, wide, per_group, block, t, line, x, w, b, y, epilogue)
    params = list(job.params)
    gpu = group_for(size, 64, 16)
    cpu = (min(16, tiles), 1, 1) if tile.cpu else group_for(size, 64, 16)
    return launch_of(k, f"conv{geo.kernel[0]}x{geo.kernel[1]}_{tile}", params, size, gpu, cpu, about=about)


def _tile(
    k: Builder, geo: Problem, tile: Tile, wide: int, per_group: int, block: Expr, t: Expr, line: Expr, x: Buffer, w: Buffer,
    b: Buffer | None, y: Buffer, epilogue: Epilogue,
) -> None:  # fmt: skip
    taps = geo.taps
    stored = -(-geo.columns // wide) * wide
    g = k.let("g", block // per_group) if geo.group > 1 else idx(0)
    column = k.let("column", (block % per_group if geo.group > 1 else block) * tile.width)
    ow = k.let("ow", t * tile.rows)
    oh = k.let("oh", line % geo.out_height)
    n = k.let("n", line // geo.out_height)
    top, left = k.let("top", oh * geo.strides[0] - geo.pads[0]), k.let("left", ow * geo.strides[1] - geo.pads[1])
    panel = k.let("panel", g * (stored * taps) + (column // wide) * (wide * taps) + column % wide)
    acc = Accumulators(k, tile, b, g * stored + column)
    low, high = geo.rows_inside(k, top)
    base = k.let("base", (n * geo.height + top) * (geo.width * geo.channels) + g * geo.depth)
    span = (tile.rows - 1) * geo.strides[1] + (geo.kernel[1] - 1) * geo.dilations[1]
    tested = geo.pads[1] > 0 or geo.out_width % tile.rows != 0 or geo.reaches_over(1)

    def taps_of(checked: bool) -> None:
        with k.loop("kh", low, high) as kh, k.loop("kw", 0, geo.kernel[1]) as kw:
            at = k.let("at", base + kh * (geo.dilations[0] * geo.width * geo.channels))
            firsts = [k.let(f"i{r}", left + r * geo.strides[1] + kw * geo.dilations[1]) for r in range(tile.rows)]
            inside: list[Expr | None] = [None] * tile.rows
            if checked:
                inside = [both(f.compare("ge", 0), f.compare("lt", geo.width)) for f in firsts]
            places = [k.let(f"p{r}", at + f * geo.channels) for r, f in enumerate(firsts)]
            from_ = k.let("wat", panel + (kh * geo.kernel[1] + kw) * (geo.depth * wide))
            lanes = 4 if geo.depth % 4 == 0 and not tile.cpu else 1
            with k.loop("j", 0, geo.depth, lanes) as j:
                values = loaded(k, x, [p + j for p in places], lanes, inside)
                acc.step(w, from_ + j * wide, values, wide)

    if span >= geo.width:  # no tile is inside with all of its taps
        taps_of(True)
    elif tested:
        with k.when(both(left.compare("ge", 0), left.compare("lt", geo.width - span))):
            taps_of(False)
        with k.otherwise():
            taps_of(True)
    else:
        taps_of(False)
    channel = k.let("channel", g * geo.columns + column)
    out = k.let("out", (line * geo.out_width + ow) * geo.out_channels + channel)
    ragged = geo.out_width % tile.rows != 0
    real = [(ow + r).compare("lt", geo.out_width) if ragged and r else None for r in range(tile.rows)]
    store_tile(k, acc, epilogue, y, geo.columns, column, channel, [out + r * geo.out_channels for r in range(tile.rows)], real)
