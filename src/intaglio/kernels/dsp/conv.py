"""Convolutions and matrix products of bytes on the DSP extension: windows are gathered as columns of 16-bit pairs, four at a time,
and multiplied by two channels at once (`tiles.py`).

    for oh, ow in steps of 4:
        gather4(x at the window of ow)  ... of ow + 3        or edge4, where the window reaches over the border
        tile4(w, scales, columns, y)                         all channels

What is left of a row is taken two columns at a time, then one. A pointwise convolution is a matrix product: its pixels are one row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.contraction.problem import Problem as Geometry
from intaglio.kernels.contraction.problem import problem_of
from intaglio.kernels.contraction.quantised import BYTES, Numbers, constants_of, size_of
from intaglio.kernels.dsp.dense import CHANNELS, dense, dense_scales, pack_dense
from intaglio.kernels.dsp.gather import edge, gather, paired
from intaglio.kernels.dsp.scaling import Scales, scales_of
from intaglio.kernels.dsp.sums import sum_record
from intaglio.kernels.dsp.tiles import UNROLL, can_join, joined_starts, pack_weights, tile, word_bytes
from intaglio.kernels.dsp.variants import Finish, Layout, Sum, Variant, parse_variant
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Buffer, Expr, Num, Place, both, idx
from intaglio.ops.quantised import QAdd, QConv, QMatMul


@dataclass(frozen=True, slots=True)
class Product:
    """Channels ready to be multiplied: packed weights and scales, and which variant of the routines takes them."""

    w: Buffer
    scale: Buffer
    pairs: int
    outs: int
    variant: Variant


def takes(job: Job, to: DType) -> bool:
    """Bytes in, bytes out, on a core with the DSP extension."""
    weights = job.node.inputs[1]
    fits = job.type(0).dtype in BYTES and weights is not None and weights.dtype in (*BYTES, DType.I16) and to in BYTES
    return fits and job.isa.dsp and job.node.output.type.elements > 0


def channel_scales(
    runs: Array, bias: Array | None, multiplier: Array, shift: Array | None, numbers: Numbers, x: DType
) -> tuple[Scales, Array] | None:
    """Scales of channels whose weights are [outs, ...] (zero point subtracted), and how large their sums may become."""
    if bias is not None and bias.dtype == np.float32:
        return None
    flat = runs.reshape(len(runs), -1).astype(np.int64)
    b = np.zeros(len(runs), np.int64) if bias is None else bias.astype(np.int64)
    reach = np.abs(flat).sum(axis=1) * size_of(x, numbers.x_zero) + np.abs(b)
    starts = (b - numbers.x_zero * flat.sum(axis=1)).astype(np.int32)  # wraps as the sums do
    scales = scales_of(numbers.scaling, starts, reach, multiplier, shift, numbers.y_zero, numbers.low, numbers.high, numbers.to)
    return None if isinstance(scales, str) else (scales, reach)


def padded_pairs(runs: Array) -> Array:
    """[outs, runs, length] as [outs, pairs, 2], pairs a multiple of what the inner loop takes at once."""
    outs = len(runs)
    pairs = paired(runs).reshape(outs, -1, 2)
    whole = np.zeros((outs, -(-pairs.shape[1] // UNROLL) * UNROLL, 2), np.int64)
    whole[:, : pairs.shape[1]] = pairs
    return whole


def product_of(
    job: Job, groups: int, runs: Array, bias: Array | None, multiplier: Array, shift: Array | None, numbers: Numbers,
    single: bool = False,
) -> Product | None:  # fmt: skip
    """`runs` is [groups * outs, runs, length], zero point of the weights subtracted; `single`: there is one column only."""
    found = channel_scales(runs, bias, multiplier, shift, numbers, job.type(0).dtype)
    if found is None or runs.size == 0 or (job.target.optimize == "size" and not small(runs)):
        return None
    scales, reach = found
    return pack_product(job, groups, runs, scales.records, reach, scales.finish, single)


def small(weights: Array) -> bool:
    """Bytes, once their zero point is subtracted?"""
    return int(weights.min()) >= -128 and int(weights.max()) <= 127


def pack_product(job: Job, groups: int, runs: Array, records: Array, reach: Array, finish: Finish, single: bool) -> Product:
    """Weights and records as the routines read them."""
    pairs = padded_pairs(runs)
    split = np.split(np.arange(len(runs)), groups)
    layout = _layout(job, runs, all(can_join(pairs[part], reach[part]) for part in split), single)
    kept = []
    for part in split:
        own = records[part].copy()
        own[:, 0] = joined_starts(own[:, 0], layout is Layout.JOINED)
        kept.append(np.concatenate([own, np.zeros((-len(part) % (CHANNELS if single else 2), own.shape[1]), own.dtype)]))
    pack = pack_dense if single else pack_weights
    w = job.packed(np.concatenate([pack(pairs[part], layout) for part in split]), "w", DType.I8)
    words, shared = np.concatenate(kept), None
    if single:
        shared, words = dense_scales(words, finish.real)
    scale = job.packed(words.reshape(-1), "scale", DType.I32)
    return Product(w, scale, pairs.shape[1], len(runs) // groups, Variant(layout, finish, shared=shared))


def _layout(job: Job, runs: Array, joined: bool, single: bool) -> Layout:
    """What an edited IR file names, where it can be done; `joined`: two channels fit a half word."""
    fits = {Layout.JOINED: small(runs) and joined, Layout.APART: small(runs), Layout.WIDE: not single}
    asked = parse_variant(job.asked)
    if asked is not None and fits[asked.layout]:
        return asked.layout
    if fits[Layout.WIDE] and (job.target.optimize == "speed" or not small(runs)):
        return Layout.WIDE
    return Layout.JOINED if fits[Layout.JOINED] else Layout.APART


def widths(job: Job) -> tuple[int, ...]:
    """How many columns at a time: four need a float register to spare."""
    return (4, 2, 1) if job.target.fpu != "none" else (2, 1)


def tiled(job: Job, count: int, write: Callable[[Expr, int], None]) -> None:
    """`write(first, columns)` for tiles that cover `count` columns."""
    k, done = job.k, 0
    for columns in widths(job):
        whole = (count - done) // columns * columns
        if whole:
            with k.loop("at", done, done + whole, columns) as at, k.block():
                write(at, columns)
            done += whole


def qconv_dsp(job: Job) -> Lowered | None:
    op = job.node.op
    assert isinstance(op, QConv)
    known = constants_of(job) if takes(job, op.to) else None
    if known is None:
        return None
    weights, bias, multiplier, shift = known
    geo = problem_of(job)
    if geo.depth == 1 and geo.group > 1:
        return None
    numbers = Numbers(op.x_zero, op.w_zero, op.y_zero, op.low, op.high, op.to, op.scaling)
    centred = weights.astype(np.int64) - op.w_zero
    if geo.kernel == (1, 1) and geo.strides == (1, 1) and not any(op.pads) and op.group == 1 and not op.epilogue:
        rows = geo.batch * geo.out_height * geo.out_width
        return matrix(job, rows, centred.reshape(geo.out_channels, 1, -1), bias, multiplier, shift, numbers, "qconv1x1")
    beside = _beside(job, op)
    if op.epilogue and beside is None:
        return None
    joint = geo.dilations[1] == 1 and geo.group == 1
    runs = centred.transpose(0, 2, 3, 1).reshape(geo.out_channels, geo.kernel[0] * (1 if joint else geo.kernel[1]), -1)
    x = job.operand(0, "x")
    product = product_of(job, geo.group, runs, bias, multiplier, shift, numbers)
    if product is None:
        return None
    other = Beside(job.operand(5, "other"), job.packed(beside[1], "record", DType.I32)) if beside is not None else None
    if beside is not None:
        product = replace(product, variant=replace(product.variant, sum=beside[0]))
    y = job.writes()
    columns = job.scratch(2 * widths(job)[0] * product.pairs, "columns", DType.I16)

    def more(out: Expr) -> tuple[Place | Expr, ...]:
        return () if other is None else (Place(other.beside, out), Place(other.record, idx(0)))

    write_image(job, geo, x, columns, y, product, joint, idx(numbers.x_zero), more)
    kh, kw = geo.kernel
    about = (
        f"qconv {kh}x{kw}, {geo.channels} -> {geo.out_channels} channels, {geo.height}x{geo.width} -> "
        f"{geo.out_height}x{geo.out_width}, stride {geo.strides[0]}x{geo.strides[1]}, group {geo.group}, {x.dtype.value}\n"
        f"NHWC, windows as columns of pairs, weights packed [channel / 2][pair][2][2]"
    )
    stem = "" if other is None else "_sum"
    over = None if other is None else other.beside
    return job.done(f"qconv{kh}x{kw}_{geo.channels}_{geo.out_channels}{stem}", about, f"qconv_dsp({product.variant})", over=over)


@dataclass(frozen=True, slots=True)
class Beside:
    """Another tensor of the result's shape, added to it."""

    beside: Buffer
    record: Buffer


def _beside(job: Job, op: QConv) -> tuple[Sum, Array] | None:
    """The variant and record of the one sum that follows; None where there is none, or another epilogue."""
    step = op.epilogue[0] if len(op.epilogue) == 1 else None
    other = job.optional(5)
    if step is None or not isinstance(step.op, QAdd) or other is None or sorted(step.args) != [0, 1]:
        return None
    if other.shape != job.node.output.shape or other.dtype is not op.to or step.op.to is not op.to or other.is_const:
        return None
    found = sum_record(step.op, swapped=step.args == (1, 0))
    return None if isinstance(found, str) else found


def write_image(
    job: Job, geo: Geometry, x: Buffer, columns: Buffer, y: Buffer, product: Product, joint: bool, zero: Expr,
    more: Callable[[Expr], tuple[Place | Expr, ...]],
) -> None:  # fmt: skip
    """All tiles of an image. `zero` is what is outside of it, `more` are the last arguments of a tile with results at a place."""
    k = job.k
    (kh, kw), (sh, sw), (dh, dw) = geo.kernel, geo.strides, geo.dilations
    reach_h, reach_w = (kh - 1) * dh, (kw - 1) * dw
    low_h, high_h = 0 - geo.pads[0], (geo.out_height - 1) * sh - geo.pads[0]
    low_w, high_w = 0 - geo.pads[1], (geo.out_width - 1) * sw - geo.pads[1]
    size = -(-product.outs // 2)
    with k.loop("n", 0, geo.batch) as n, k.loop("g", 0, geo.group) as g, k.loop("oh", 0, geo.out_height) as oh:
        base = k.let("base", n * (geo.height * geo.width * geo.channels) + g * geo.depth)
        top = k.let("top", oh * sh - geo.pads[0])

        def fetch(left: Expr, columns_: int, to: Expr) -> None:
            place = Place(columns, to)
            inside: Expr | None = None
            outside = False
            for at, low, high, room in ((top, low_h, high_h, geo.height - reach_h), (left, low_w, high_w, geo.width - reach_w)):
                if isinstance(at, Num):
                    outside = outside or not 0 <= at.value < room
                    continue
                outside = outside or room <= 0
                for needed, test in ((low < 0, at.compare("ge", 0)), (high >= room, at.compare("lt", room))):
                    if needed:
                        inside = test if inside is None else both(inside, test)

            def within() -> None:
                start = k.let("start", base + (top * geo.width + left) * geo.channels)
                if joint:
                    k.call(gather(columns_, x.dtype), Place(x, start), dh * geo.width * geo.channels, kh, kw * geo.depth, place)
                else:
                    pairs = -(-geo.depth // 2) * kw
                    with k.loop("i", 0, kh) as i:
                        row, target = start + i * (dh * geo.width * geo.channels), to + i * (2 * columns_ * pairs)
                        k.call(gather(columns_, x.dtype), Place(x, row), dw * geo.channels, kw, geo.depth, Place(columns, target))

            def over() -> None:
                k.call(
                    edge(columns_, x.dtype), Place(x, base), top, left, geo.height, geo.width, geo.channels, kh, kw, dh, dw,
                    geo.depth, int(joint), zero, place,
                )  # fmt: skip

            if outside or inside is None:
                (over if outside else within)()
                return
            with k.when(inside):
                within()
            with k.otherwise():
                over()

        def write(first: Expr, columns_: int) -> None:
            with k.loop("c", 0, columns_) as c:
                fetch(k.let("left", (first + c) * sw - geo.pads[1]), columns_, c * 2)
            out = k.let("out", ((n * geo.out_height + oh) * geo.out_width + first) * geo.out_channels + g * product.outs)
            k.call(
                tile(columns_, product.variant), Place(product.w, g * (size * product.pairs * word_bytes(product.variant.layout))),
                Place(product.scale, g * (size * 8)), Place(columns, idx(0)), product.pairs, product.outs, Place(y, out),
                geo.out_channels, *more(out),
            )  # fmt: skip

        tiled(job, geo.out_width, write)


def matrix(
    job: Job, rows: int, runs: Array, bias: Array | None, multiplier: Array, shift: Array | None, numbers: Numbers, stem: str
) -> Lowered | None:
    """Rows of x, each one run, times channels [outs, 1, depth]."""
    k, outs, depth = job.k, len(runs), runs.shape[-1]
    x = job.operand(0, "x")
    product = product_of(job, 1, runs, bias, multiplier, shift, numbers, single=rows == 1 and small(runs))
    if product is None:
        return None
    y = job.writes()
    if rows == 1 and small(runs):
        return _single(job, x, y, product, depth, stem)
    columns = job.scratch(2 * min(widths(job)[0], max(rows, 1)) * product.pairs, "columns", DType.I16)

    def write(first: Expr, columns_: int) -> None:
        with k.loop("c", 0, columns_) as c:
            k.call(gather(columns_, x.dtype), Place(x, (first + c) * depth), 0, 1, depth, Place(columns, c * 2))
        k.call(
            tile(columns_, product.variant), Place(product.w, idx(0)), Place(product.scale, idx(0)), Place(columns, idx(0)),
            product.pairs, outs, Place(y, first * outs), outs,
        )  # fmt: skip

    tiled(job, rows, write)
    packed = "rows as columns of pairs, weights packed [channel / 2][pair][2][2]"
    about = f"{stem} of {rows} rows, {depth} -> {outs}, {x.dtype.value}\n{packed}"
    return job.done(f"{stem}_{depth}_{outs}", about, f"{stem}_dsp({product.variant})")


def _single(job: Job, x: Buffer, y: Buffer, product: Product, depth: int, stem: str) -> Lowered:
    """One row: bytes as they are where they fill whole steps, else as a column of pairs."""
    k, kind = job.k, x.dtype.value
    column = x
    if depth != 2 * product.pairs:
        column = job.scratch(2 * product.pairs, "column", DType.I16)
        k.call(gather(1, x.dtype), Place(x, idx(0)), 0, 1, depth, Place(column, idx(0)))
    variant = replace(product.variant, column=kind if column is x else "column")
    places = [Place(buffer, idx(0)) for buffer in (product.w, product.scale, column)]
    k.call(dense(variant), *places, product.pairs, product.outs, Place(y, idx(0)))
    about = f"{stem}, {depth} -> {product.outs}, {kind}\nweights packed [channel / 4][pair / 2][2][2][2][2]"
    return job.done(f"{stem}_{depth}_{product.outs}", about, f"dense_dsp({variant})")


def qmatmul_dsp(job: Job) -> Lowered | None:
    op = job.node.op
    assert isinstance(op, QMatMul)
    known = constants_of(job) if takes(job, op.to) else None
    if known is None or len(job.type(1).shape) != 2:
        return None
    weights, bias, multiplier, shift = known
    numbers = Numbers(op.a_zero, op.b_zero, op.y_zero, op.low, op.high, op.to, op.scaling)
    right = weights.astype(np.int64) - op.b_zero
    channels = right if op.transpose_b else right.T
    rows = job.node.output.type.elements // max(len(channels), 1)
    return matrix(job, rows, channels[:, None, :], bias, multiplier, shift, numbers, "qmatmul")
