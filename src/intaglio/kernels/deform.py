"""Columns of a deformable convolution. A place may be anything, NaN included: a pixel is read only where it is inside."""

from __future__ import annotations

from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import IDX, Expr, Type, both, cast, idx, select
from intaglio.ops.deform import DeformColumns


def deform_columns(job: Job) -> Lowered:
    op, k, e = job.node.op, job.k, Lanes.scalar()
    assert isinstance(op, DeformColumns)
    x, offsets, y = job.operand(0, "x"), job.operand(1, "offsets"), job.writes()
    mask = job.reads(job.optional(2), "mask") if job.optional(2) is not None else None
    batch, channels, high, wide = job.type(0).shape
    rows, columns = job.type(1).shape[2:]
    taps, each, places = op.kernel[0] * op.kernel[1], channels // op.groups, rows * columns
    with k.loops(["n", "g", "i", "j", "p", "q"], [batch, op.groups, *op.kernel, rows, columns]) as (n, g, i, j, p, q):
        tap = k.let("tap", (n * op.groups + g) * taps + i * op.kernel[1] + j)
        place = k.let("place", p * columns + q)
        spots = []
        for axis, (name, at, inner) in enumerate((("down", p, i), ("right", q, j))):
            whole = at * op.strides[axis] + inner * op.dilations[axis] - op.pads[axis]
            moved = e.load(offsets, (tap * 2 + axis) * places + place)
            spots.append(k.let(name, e.add(cast(whole, e.type), moved)))
        first = [k.let(f"{name}_0", e.call("floor", s)) for name, s in zip(("top", "left"), spots, strict=True)]
        part = [k.let("part", e.sub(s, f)) for s, f in zip(spots, first, strict=True)]
        sides: list[list[tuple[Expr, Expr, Expr]]] = []
        for name, start, share, size in (("row", first[0], part[0], high), ("column", first[1], part[1], wide)):
            pair = []
            for step in (0, 1):
                spot = e.add(start, e.const(1.0)) if step else start
                inside = k.let("inside", both(e.compare("ge", spot, e.const(0.0)), e.compare("lt", spot, e.const(float(size)))))
                index = k.let(name, select(inside, cast(cast(spot, Type("i64")), IDX), idx(0)))
                pair.append((index, inside, share if step else k.let("rest", e.sub(e.const(1.0), share))))
            sides.append(pair)
        corners = [(r, c, k.let("both", both(ri, ci)), k.let("weight", e.mul(rw, cw)))
                   for r, ri, rw in sides[0] for c, ci, cw in sides[1]]  # fmt: skip
        with k.loop("c", 0, each) as c:
            plane = k.let("plane", (n * channels + g * each + c) * (high * wide))
            total = k.var("total", e.const(0.0))
            for row, column, inside, weight in corners:
                pixel = e.choose(inside, e.mul(e.load(x, plane + row * wide + column), weight), e.const(0.0))
                k.assign(total, e.add(total, pixel))
            result = total if mask is None else e.mul(total, e.load(mask, tap * places + place))
            at = ((n * channels + g * each + c) * taps + i * op.kernel[1] + j) * places + place
            k.store(y, at, result)
    about = f"deform_columns {list(job.type(0).shape)} by {list(op.kernel)} taps -> {list(job.node.output.shape)}"
    return job.done("deform_columns", about)
