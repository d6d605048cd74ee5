"""Sampling of images at places that are data: grid_sample and roi_align, in double, one place after the other.

    for n, for each place of the grid:      per axis: index, weight and "is it inside?" of each neighbour
      for c:  y[...] = sum over the neighbours of weight * (inside ? x[...] : 0)

A place may be anything, NaN and infinity included. grid_sample reads a pixel only behind the test that its index is inside;
roi_align ends the run with an error code when a region belongs to no image, is not a number or is absurdly large (the number of
its samples would be).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from intaglio.ir.types import strides_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import (
    IDX,
    INDEX_OUT_OF_RANGE,
    Buffer,
    Expr,
    Load,
    Type,
    Var,
    both,
    cast,
    either,
    idx,
    imin,
    select,
)
from intaglio.kernels.reduce import fold
from intaglio.ops.sample import CUBIC, GridSample, RoiAlign

_REAL = Lanes.scalar("f64")
_LARGEST_REGION = 65536.0  # pixels from the origin


def _whole(value: Expr) -> Expr:
    """A double as an index; saturates, NaN is 0."""
    return cast(cast(value, Type("i64")), IDX)


@dataclass(frozen=True, slots=True)
class _Neighbour:
    """One neighbour along one axis; nearest has no weights."""

    index: Expr
    inside: Expr
    weight: Expr | None


def grid_sample(job: Job) -> Lowered:
    op, k, e = job.node.op, job.k, _REAL
    assert isinstance(op, GridSample)
    x, grid, y = job.operand(0, "x"), job.operand(1, "grid"), job.writes()
    batch, channels, *spatial = job.type(0).shape
    places = math.prod(job.type(1).shape[1:-1])
    d, pixels, strides = len(spatial), math.prod(spatial), strides_of(tuple(spatial))
    with k.loop("n", 0, batch) as n, k.loop("p", 0, places) as p:
        at = k.let("at", (n * places + p) * d)
        axes = [_neighbours(k, op, e.load(grid, at + (d - 1 - i)), spatial[i], str(i)) for i in range(d)]
        with k.loop("c", 0, channels) as c:
            plane = k.let("plane", (n * channels + c) * pixels)
            total = k.var("total", e.const(0.0))
            for chosen in itertools.product(*axes):
                place: Expr = plane
                inside, weight = chosen[0].inside, chosen[0].weight
                for i, neighbour in enumerate(chosen):
                    place = place + neighbour.index * strides[i]
                    if i:
                        inside = both(inside, neighbour.inside)
                    if i and weight is not None and neighbour.weight is not None:
                        weight = e.mul(weight, neighbour.weight)
                pixel = k.let("pixel", e.choose(inside, e.load(x, place), e.const(0.0)))
                k.assign(total, e.add(total, pixel if weight is None else e.mul(pixel, weight)))
            k.store(y, (n * channels + c) * places + p, cast(total, Type(y.dtype.value)))
    about = (
        f"grid_sample {op.mode}, {op.padding_mode} outside{', aligned corners' if op.align_corners else ''}\n"
        f"{list(job.type(0).shape)} at {list(job.type(1).shape)} -> {list(job.node.output.shape)}"
    )
    return job.done(f"grid_sample_{op.mode}", about)


def _neighbours(k: Builder, op: GridSample, g: Expr, size: int, axis: str) -> list[_Neighbour]:
    """Those that take part along one axis, for the grid's number `g`."""
    e = _REAL
    from_start = e.add(g, e.const(1.0))
    if op.align_corners:
        place = e.mul(e.div(from_start, e.const(2.0)), e.const(size - 1.0))
    else:
        place = e.div(e.sub(e.mul(from_start, e.const(float(size))), e.const(1.0)), e.const(2.0))
    place = k.let(f"place{axis}", place)
    if op.mode != "cubic":
        place = k.let(f"place{axis}", _inside(k, op, place, size))
    base = k.let(f"base{axis}", e.call("round" if op.mode == "nearest" else "floor", place))
    part = e.const(0.0) if op.mode == "nearest" else k.let(f"part{axis}", e.sub(place, base))
    out = []
    for step in {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}[op.mode]:
        spot = k.let(f"spot{axis}", _inside(k, op, e.add(base, e.const(float(step))), size))
        test = both(e.compare("ge", spot, e.const(0.0)), e.compare("lt", spot, e.const(float(size))))
        inside = k.let(f"in{axis}", test)
        index = k.let(f"i{axis}", select(inside, _whole(spot), idx(0)))
        weight: Expr | None = None
        if op.mode == "linear":
            weight = part if step else k.let(f"w{axis}", e.sub(e.const(1.0), part))
        elif op.mode == "cubic":
            weight = k.let(f"w{axis}", _cubic(k, e.sub(part, e.const(float(step)))))
        out.append(_Neighbour(index, inside, weight))
    return out


def _inside(k: Builder, op: GridSample, place: Expr, size: int) -> Expr:
    """The border rule; NaN stays NaN."""
    e = _REAL
    if op.padding_mode == "border":
        return e.lowest(e.const(size - 1.0), e.highest(e.const(0.0), place))
    if op.padding_mode == "zeros":
        return place
    low, high = (0.0, size - 1.0) if op.align_corners else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return e.const(0.0)
    rest = k.let("rest", e.call("fmod", e.sub(place, e.const(low)), e.const(2 * span)))
    rest = k.let("rest", e.choose(e.compare("lt", rest, e.const(0.0)), e.add(rest, e.const(2 * span)), rest))
    folded = e.choose(e.compare("gt", rest, e.const(span)), e.sub(e.const(2 * span), rest), rest)
    return e.add(e.const(low), folded)


def _cubic(k: Builder, far: Expr) -> Expr:
    """Keys' kernel, as in ops/sample.py."""
    e = _REAL
    x = k.let("x", e.abs(far))
    near = e.sub(e.mul(e.const(CUBIC + 2), x), e.const(CUBIC + 3))
    near = e.add(e.mul(e.mul(near, x), x), e.const(1.0))
    tail = e.add(e.mul(e.sub(e.mul(e.const(CUBIC), x), e.const(5 * CUBIC)), x), e.const(8 * CUBIC))
    tail = e.sub(e.mul(tail, x), e.const(4 * CUBIC))
    rest = e.choose(e.compare("lt", x, e.const(2.0)), tail, e.const(0.0))
    return e.choose(e.compare("le", x, e.const(1.0)), near, rest)


def roi_align(job: Job) -> Lowered:
    op, k, e = job.node.op, job.k, _REAL
    assert isinstance(op, RoiAlign)
    x, rois, which, y = job.operand(0, "x"), job.operand(1, "rois"), job.operand(2, "batch"), job.writes()
    images, channels, height, width = job.type(0).shape
    high, wide = op.output_height, op.output_width
    with k.loop("r", 0, job.type(1).shape[0]) as r:
        image = k.let("image", cast(Load(which, r, Type(which.dtype.value)), IDX))
        with k.when(either(image.compare("lt", 0), image.compare("ge", images))):
            k.fail(INDEX_OUT_OF_RANGE)
        shift = e.const(0.5 if op.half_pixel else 0.0)
        corners = [
            k.let(name, e.sub(e.mul(e.load(rois, r * 4 + n), e.const(op.spatial_scale)), shift))
            for n, name in enumerate(("x1", "y1", "x2", "y2"))
        ]
        for corner in corners:
            sane = k.let("sane", e.compare("le", e.abs(corner), e.const(_LARGEST_REGION)))
            with k.when(sane.compare("eq", 0)):
                k.fail(INDEX_OUT_OF_RANGE)
        x1, y1, x2, y2 = corners
        bin_h, grid_h = _bins(k, op, e.sub(y2, y1), high, "h")
        bin_w, grid_w = _bins(k, op, e.sub(x2, x1), wide, "w")
        with k.loops(["i", "j", "c"], [high, wide, channels]) as (i, j, c):
            plane = k.let("plane", (image * channels + c) * (height * width))
            top = k.let("top", e.add(y1, e.mul(cast(i, e.type), bin_h)))
            left = k.let("left", e.add(x1, e.mul(cast(j, e.type), bin_w)))
            result = _sampled(k, op, x, plane, (height, width), (top, left), (bin_h, bin_w), (grid_h, grid_w))
            k.store(y, ((r * channels + c) * high + i) * wide + j, cast(result, Type(y.dtype.value)))
    about = f"roi_align {op.mode}, {list(job.type(0).shape)} at {job.type(1).shape[0]} regions -> {list(job.node.output.shape)}"
    return job.done(f"roi_align_{op.mode}", about)


def _bins(k: Builder, op: RoiAlign, extent: Expr, count: int, axis: str) -> tuple[Expr, Expr]:
    """How long a bin is, and how many samples it has."""
    e = _REAL
    if not op.half_pixel:
        extent = e.highest(e.const(1.0), extent)
    length = k.let(f"bin_{axis}", e.div(extent, e.const(float(count))))
    samples = idx(op.sampling_ratio) if op.sampling_ratio else k.let(f"grid_{axis}", _whole(e.call("ceil", length)))
    return length, samples


def _sampled(
    k: Builder, op: RoiAlign, x: Buffer, plane: Expr, size: tuple[int, int], first: tuple[Expr, Expr], length: tuple[Expr, Expr],
    samples: tuple[Expr, Expr],
) -> Expr:  # fmt: skip
    e = _REAL
    total = k.var("total", e.const(0.0 if op.mode == "avg" else float("-inf")))
    count = k.var("count", e.const(0.0))

    def place(which: Expr, n: int) -> Expr:
        middle = e.add(cast(which, e.type), e.const(0.5))
        return e.add(first[n], e.div(e.mul(middle, length[n]), cast(samples[n], e.type)))

    with k.loop("p", 0, samples[0]) as p:
        down = k.let("down", place(p, 0))
        with k.loop("q", 0, samples[1]) as q:
            right = k.let("right", place(q, 1))
            k.assign(count, e.add(count, e.const(1.0)))
            outside = [e.compare("lt", v, e.const(-1.0)) for v in (down, right)]
            outside += [e.compare("gt", v, e.const(float(n))) for v, n in zip((down, right), size, strict=True)]
            far = k.let("far", either(either(outside[0], outside[2]), either(outside[1], outside[3])))
            with k.when(far.compare("eq", 0)):
                _corners(k, op, x, plane, size, down, right, total)
            if op.mode == "max":
                with k.otherwise():
                    k.assign(total, fold(e, "max", total, e.const(0.0)))
    if op.mode == "avg":
        return e.div(total, e.highest(e.const(1.0), count))
    return e.choose(e.compare("gt", count, e.const(0.0)), total, e.const(0.0))


def _corners(
    k: Builder, op: RoiAlign, x: Buffer, plane: Expr, size: tuple[int, int], down: Expr, right: Expr, total: Var
) -> None:  # fmt: skip
    """Add the four weighted neighbours of a place. ONNX's maximum is over these products, not over their sum."""
    e = _REAL
    pairs: list[list[tuple[Expr, Expr]]] = []
    for name, value, length in (("y", down, size[0]), ("x", right, size[1])):
        at = k.let(name, e.highest(e.const(0.0), value))
        low = k.let(f"{name}_low", imin(_whole(at), length - 1))
        after = k.let(f"{name}_high", imin(low + 1, length - 1))
        inner = low.compare("lt", length - 1)
        part = k.let(f"{name}_part", e.choose(inner, e.sub(at, cast(low, e.type)), e.const(0.0)))
        pairs.append([(low, k.let(f"{name}_rest", e.sub(e.const(1.0), part))), (after, part)])
    terms = []
    for (row, weight), (column, other) in itertools.product(*pairs):
        pixel = e.load(x, plane + row * size[1] + column)
        terms.append(k.let("term", e.mul(pixel, e.mul(weight, other))))
    if op.mode == "max":
        for term in terms:
            k.assign(total, fold(e, "max", total, term))
        return
    together = terms[0]
    for term in terms[1:]:
        together = e.add(together, term)
    k.assign(total, e.add(total, together))
