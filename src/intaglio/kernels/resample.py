"""Resize: the coordinates are arithmetic at compile time; the kernel reads a table of source indices and weights per axis.

Axes that keep their size at the end (channels in NHWC) are one run: copied whole by `nearest`, computed in vectors by the others.
Where the caller gives the size, the table is that of the largest, and sources beyond the end are the last element. Few columns at
the end have such sources: they are a loop of their own, so that the others need no test. Rows that `nearest` repeats are copied.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from intaglio.ir.sizes import Size, Undecided, larger, largest, most, values_of
from intaglio.ir.types import DType, strides_of
from intaglio.kernels.elementwise import offset_of
from intaglio.kernels.expressions import computed_in
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import BOOL, IDX, Buffer, Expr, Load, Num, Op, Type, both, cast, idx, imax, imin
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

    def column(at: list[Expr], ends: list[int]) -> None:
        place = k.let("to", offset_of(at, list(to[:first])))
        outside = _outside(job, {a: taps[a] for a in moved}, tables, at)
        if op.mode == "nearest":
            spots = [_source(tables[a][0], at[a], 1, idx(0), ends[a]) if a in tables else at[a] for a in range(first)]
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
            _interpolate(job, op, x, y, at, tables, taps, first, inner, place, outside, ends)

    last = first - 1

    def row(outer: list[Expr]) -> None:
        free = _free(taps[last], shape[last], out[last])
        for low, high, end in ((0, free, 0), (free, out[last], shape[last])):
            if low != high:
                with k.loop(f"i{last}", low, high) as i:
                    column([*outer, i], [*shape[:last], end])

    with k.loops([f"i{a}" for a in range(last)], list(out[:last])) as outer:
        if op.mode == "nearest" and isinstance(out[last], Size) and last - 1 in moved and op.scales[last - 1] >= 2:
            with k.when(_same_source(tables[last - 1][0], outer[-1])):
                place = k.let("to", offset_of(outer, list(to[:last])))
                k.copy(y, place, y, place - to[last - 1], to[last - 1])
            with k.otherwise():
                row(outer)
        else:
            row(outer)
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


def _free(taps: Taps, size: int, out: int) -> int:
    """So many elements from the start on have no source beyond the end, however large the axis is."""
    if not isinstance(size, Size):
        return out
    furthest = np.maximum.accumulate([max(at) for at in taps.indices])
    tail = int(np.max(values_of(out) - np.searchsorted(furthest, values_of(size))))
    return larger(out - tail, 0) if tail > 0 else out


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


def _source(index: Buffer, i: Expr, width: int, tap: Expr, end: int) -> Expr:
    """The index in the table; the last before `end` at most, where the caller gives it."""
    at = cast(Load(index, i * width + tap, Type("i32")), IDX)
    return imin(at, end - 1) if isinstance(end, Size) else at


def _same_source(index: Buffer, i: Expr) -> Expr:
    """Does this row have the source of the one before?"""
    return both(i.compare("gt", 0), Load(index, i, Type("i32")).compare("eq", Load(index, imax(i, 1) - 1, Type("i32"))))


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
    taps: list[Taps], first: int, inner: int, place: Expr, outside: Expr | None, ends: list[int],
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
                spots[a] = _source(tables[a][0], at[a], widths[n], tap[n], ends[a])
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
