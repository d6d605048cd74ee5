"""Resize: the coordinates are arithmetic at compile time; the kernel reads a table of source indices and weights per axis.

Axes that keep their size at the end (channels in NHWC) are one run: copied whole by `nearest`, computed in vectors by the others.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from intaglio.ir.sizes import Size, Undecided, largest, most
from intaglio.ir.types import DType, strides_of
from intaglio.kernels.elementwise import offset_of
from intaglio.kernels.expressions import computed_in
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import BOOL, IDX, Buffer, Expr, Load, Num, Op, Type, cast, idx, imin
from intaglio.ops.resize import Resize, Taps


def resize(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, Resize)
    shape, out = job.type(0).shape, job.node.output.shape
    x = job.operand(0, "x")
    taps = [_taps(op, a, shape[a]) for a in range(len(out))]
    moved = [a for a in range(len(out)) if not (shape[a] == out[a] and _keeps(op, a, shape[a], taps[a]))]
    real = DType.F32 if x.dtype in (DType.F32, DType.F16, DType.BF16) else DType.F64
    tables = {a: _table(job, a, taps[a], None if op.mode == "nearest" else real) for a in moved}
    y = job.writes()
    if math.prod(out) == 0 or not moved:
        k.copy(y, 0, x, 0, math.prod(out))
        return job.done("resize", f"resize {list(shape)} to {list(out)}: nothing moves")
    first = max(moved, default=-1) + 1
    inner = math.prod(out[first:])
    source, to = strides_of(shape), strides_of(out)
    with k.loops([f"i{a}" for a in range(first)], list(out[:first])) as at:
        place = k.let("to", offset_of(at, list(to[:first])))
        outside = _outside(job, {a: taps[a] for a in moved}, tables, at)
        if op.mode == "nearest":
            spots = [_source(tables[a][0], at[a], 1, idx(0), shape[a]) if a in tables else at[a] for a in range(first)]
            base = k.let("from", offset_of(spots, list(source[:first])))
            if outside is None:
                k.copy(y, place, x, base, inner)
            else:
                with k.loop("c", 0, inner) as c:
                    kind = Type(computed_in(y.dtype))
                    value = Op(
                        "select",
                        (
                            outside,
                            Num(op.extrapolation_value, kind),
                            cast(Load(x, base + c, Type(x.dtype.value)), kind),
                        ),
                        kind,
                    )
                    k.store(y, place + c, cast(value, Type(y.dtype.value)))
        else:
            _interpolate(job, op, x, y, at, tables, taps, first, inner, place, outside)
    about = f"resize {op.mode} ({op.coordinate_mode}), {list(shape)} -> {list(out)}"
    return job.done(f"resize_{op.mode}", about)


_BY_SCALE = ("half_pixel", "asymmetric")  # coordinates follow from the scale alone
_FAR = 1 << 24


def _taps(op: Resize, axis: int, size: int) -> Taps:
    """Where the caller gives the size: the table of the largest, whose indices the kernel keeps inside of the axis."""
    if not isinstance(size, Size):
        return op.taps(axis, size)
    if op.coordinate_mode not in _BY_SCALE or op.exclude_outside or op.antialias:
        raise Undecided(f"coordinates by `{op.coordinate_mode}` depend on the size `{size}`")
    return replace(op, shape=largest(op.shape)).taps(axis, _FAR)


def _keeps(op: Resize, axis: int, size: int, taps: Taps) -> bool:
    return op.scales[axis] == 1.0 if isinstance(size, Size) else taps.is_identity


def _table(job: Job, axis: int, taps: Taps, real: DType | None) -> tuple[Buffer, Buffer | None, Buffer | None]:
    """Indices, weights of type `real`, and which elements are inside, where some are not."""
    index = job.packed(np.asarray(taps.indices, np.int32).reshape(-1), f"at{axis}")
    weight: Buffer | None = None
    if real is not None:
        joined = np.asarray([_joined(at, w) for at, w in zip(taps.indices, taps.weights, strict=True)])
        weight = job.packed(joined.astype(real.numpy).reshape(-1), f"w{axis}")
    inside = None if all(taps.inside) else job.packed(np.asarray(taps.inside, np.uint8), f"in{axis}")
    return index, weight, inside


def _joined(indices: tuple[int, ...], weights: tuple[float, ...]) -> list[float]:
    """Taps that the border bent onto one element weigh as one: 0.3 x + 0.7 x would not always be x."""
    total = {j: sum(w for i, w in zip(indices, weights, strict=True) if i == j) for j in indices}
    return [total[j] if j not in indices[:n] else 0.0 for n, j in enumerate(indices)]


def _source(index: Buffer, i: Expr, width: int, tap: Expr, size: int) -> Expr:
    at = cast(Load(index, i * width + tap, Type("i32")), IDX)
    return imin(at, size - 1) if isinstance(size, Size) else at


def _outside(
    job: Job, taps: dict[int, Taps], tables: dict[int, tuple[Buffer, Buffer | None, Buffer | None]], at: list[Expr]
) -> Expr | None:
    cond: Expr | None = None
    for axis in taps:
        inside = tables[axis][2]
        if inside is not None:
            test = Load(inside, at[axis], Type("u8")).compare("eq", Num(0, Type("u8")))
            cond = test if cond is None else Op("or", (cond, test), BOOL)
    return None if cond is None else job.k.let("outside", cond)


def _interpolate(
    job: Job, op: Resize, x: Buffer, y: Buffer, at: list[Expr], tables: dict[int, tuple[Buffer, Buffer | None, Buffer | None]],
    taps: list[Taps], first: int, inner: int, place: Expr, outside: Expr | None,
) -> None:  # fmt: skip
    k = job.k
    kind = computed_in(y.dtype) if y.dtype.is_float else "f64"
    one = Lanes.scalar(kind)
    lanes = job.isa.lanes
    fast = x.dtype is DType.F32 and most(inner) >= lanes > 1 and outside is None
    source = strides_of(job.type(0).shape)
    moved = sorted(tables)
    widths = [len(taps[a].indices[0]) for a in moved]

    def run(e: Lanes, c: Expr) -> None:
        acc = k.var("acc", e.const(0.0), e.type)
        with k.loops([f"t{a}" for a in moved], widths) as tap:
            spots = list(at)
            weight: Expr | None = None
            for n, a in enumerate(moved):
                spots[a] = _source(tables[a][0], at[a], widths[n], tap[n], job.type(0).shape[a])
                table = tables[a][1]
                assert table is not None
                part = cast(Load(table, at[a] * widths[n] + tap[n], Type(table.dtype.value)), Type(kind))
                weight = part if weight is None else Op("mul", (weight, part), Type(kind))
            assert weight is not None
            spot = k.let("from", offset_of(spots, list(source[:first])) + c)
            k.assign(
                acc,
                e.fma(
                    e.splat(k.let("weight", weight)),
                    cast(e.load(x, spot), e.type) if not e.vector else e.load(x, spot),
                    acc,
                ),
            )
        value: Expr = acc
        if outside is not None:
            value = Op("select", (outside, Num(float(op.extrapolation_value), Type(kind)), acc), Type(kind))
        k.store(y, place + c, value if e.vector else cast(value, Type(y.dtype.value)))

    done = inner // lanes * lanes if fast else 0
    with k.loop("c", 0, done, lanes) as c:
        run(job.vector, c)
    with k.loop("c", done, inner) as c:
        run(one, c)
