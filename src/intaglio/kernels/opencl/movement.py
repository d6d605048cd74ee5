"""Data movement on a device where the loops for one core would be many launches: concat and pad by where each output comes from.

Transposes that turn rows into columns go through local memory, so that both sides are read and written in runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from intaglio.ir.types import strides_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.elementwise import merge_axes, offset_of
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Array, Barrier, Buffer, Expr, Load, Num, Op, Type, both, cast, idx
from intaglio.kernels.opencl.launch import Launch, Variant, device_kernel, global_id, group_for, launch_of, local_id
from intaglio.ops.move import Concat, Pad, Transpose

SIDE = 8  # of a tile that is turned
TOGETHER = 12  # operands of a concat in one launch


def concat_applies(job: Job) -> str | None:
    return "the result is empty" if job.node.output.type.elements == 0 else None


def concat(job: Job) -> Lowered:
    """One item per element of the output; which operand it is from is a chain of comparisons along the axis. Many operands are
    taken a few at a time."""
    op, node = job.node.op, job.node
    assert isinstance(op, Concat)
    values = [v for v in node.inputs if v is not None]
    axis = op.axis % node.output.type.rank
    inner = math.prod(node.output.shape[axis + 1 :])
    outer = math.prod(node.output.shape[:axis])
    parts = [(job.reads(v, f"x{n}"), v.shape[axis] * inner) for n, v in enumerate(values)]
    y = job.writes()
    long = node.output.shape[axis] * inner
    about = f"concat of {len(values)} along axis {axis} -> {y.dtype.value}{list(node.output.shape)}"
    launches = []
    first = 0
    for n in range(0, len(parts), TOGETHER):
        some = parts[n : n + TOGETHER]
        run = sum(count for _, count in some)
        if run:
            launches.append(_joined(some, y, first, long, outer, about))
        first += run
    return device_kernel(job, "concat", about, [Variant("elements", tuple(launches), cpu=True)])


def _joined(parts: list[tuple[Buffer, int]], y: Buffer, start: int, long: int, outer: int, about: str) -> Launch:
    """Operands with as many elements a row, one after the other from `start` on."""
    k = Builder()
    k.reserve(y.name, *(buffer.name for buffer, _ in parts))
    run = sum(count for _, count in parts)
    kind = Type(y.dtype.value)
    i, o = k.let("i", global_id(0)), k.let("o", global_id(1))
    with k.when(both(i.compare("lt", run), o.compare("lt", outer))):
        value: Expr | None = None
        first = run
        for buffer, count in reversed(parts):
            first -= count
            loaded = Load(buffer, o * count + i - first, kind)
            value = loaded if value is None else Op("select", (i.compare("lt", first + count), loaded, value), kind)
        assert value is not None
        k.store(y, o * long + i + start, value)
    size = (run, outer)
    params = [*(buffer for buffer, _ in parts), y]
    return launch_of(k, "concat", params, size, group_for(size, 64, 64), group_for(size, 256, 256), about=about)


def pad_applies(job: Job) -> str | None:
    op = job.node.op
    assert isinstance(op, Pad)
    if op.mode != "constant":
        return f"the mode is {op.mode}, not constant"
    return "a tensor is empty" if 0 in (job.node.output.type.elements, job.type(0).elements) else None


def pad(job: Job) -> Lowered:
    op, k, node = job.node.op, job.k, job.node
    assert isinstance(op, Pad)
    shape, out = job.type(0).shape, node.output.shape
    x, y = job.operand(0, "x"), job.writes()
    rank = len(shape)
    to, source = strides_of(out), strides_of(shape)
    kind = "f32" if y.dtype.is_float else y.dtype.value
    filler = cast(Num(float(op.value) if y.dtype.is_float else int(op.value), Type(kind)), Type(y.dtype.value))
    total = node.output.type.elements
    i = k.let("i", global_id(0))
    with k.when(i.compare("lt", total)):
        inside: Expr | None = None
        place: Expr = idx(0)
        for n in range(rank):
            at = k.let(f"i{n}", (i // to[n]) % out[n] if n else i // to[0])
            if out[n] != shape[n] or op.pads[n]:
                at = k.let(f"a{n}", at - op.pads[n])
                test = both(at.compare("ge", 0), at.compare("lt", shape[n]))
                inside = test if inside is None else both(inside, test)
            place = place + at * source[n]
        value: Expr = Load(x, place, Type(x.dtype.value))
        k.store(y, i, value if inside is None else Op("select", (inside, value, filler), value.type))
    about = f"pad {list(op.pads)} with {op.value}, {x.dtype.value}{list(shape)} -> {list(out)}"
    size = (total,)
    launch = launch_of(k, "pad", list(job.params), size, (64,), group_for(size, 256, 256), about=about)
    return device_kernel(job, "pad", about, [Variant("elements", (launch,), cpu=True)])


@dataclass(frozen=True, slots=True)
class _Turned:
    """The merged axes of a transpose: sizes, strides in the output and the input, and which is the input's last; -1: none."""

    sizes: tuple[int, ...]
    to: tuple[int, ...]
    source: tuple[int, ...]
    fast: int


@fact
def _turned(job: Job) -> _Turned:
    op, out = job.node.op, job.node.output.shape
    assert isinstance(op, Transpose)
    strides = strides_of(job.type(0).shape)
    sizes, (to, source) = merge_axes(out, [strides_of(out), tuple(strides[p] for p in op.perm)])
    return _Turned(tuple(sizes), tuple(to), tuple(source), next((n for n, s in enumerate(source) if s == 1), -1))


def transpose_applies(job: Job) -> str | None:
    axes = _turned(job)
    if axes.fast < 0 or axes.fast == len(axes.sizes) - 1:
        return "the last axis stays the last"
    return f"an axis is shorter than {SIDE}" if min(axes.sizes[axes.fast], axes.sizes[-1]) < SIDE else None


def transpose(job: Job) -> Lowered:
    """Where the last axis of the output is not that of the input: tiles of SIDE x SIDE through local memory."""
    op, k, node, axes = job.node.op, job.k, job.node, _turned(job)
    assert isinstance(op, Transpose)
    shape, out = job.type(0).shape, node.output.shape
    sizes, to, source, fast = axes.sizes, axes.to, axes.source, axes.fast
    x, y = job.operand(0, "x"), job.writes()
    tile = Buffer("turned", y.dtype, False, "local")
    k.reserve("turned")
    k.emit(Array(tile, SIDE * (SIDE + 1)))
    lx, ly = k.let("lx", local_id(0)), k.let("ly", local_id(1))
    gx, gy = k.let("gx", global_id(0) - lx), k.let("gy", global_id(1) - ly)  # first of the group: along sizes[-1] and sizes[fast]
    rest = [n for n in range(len(sizes) - 1) if n != fast]
    left: Expr = global_id(2)
    at: list[Expr] = []
    for n in reversed(rest):
        at.insert(0, left % sizes[n] if n != rest[0] else left)
        left = left // sizes[n]
    base_in = k.let("from", offset_of(at, [source[n] for n in rest]))
    base_out = k.let("to", offset_of(at, [to[n] for n in rest]))
    kind = Type(y.dtype.value)
    i, j = k.let("i", gy + lx), k.let("j", gx + ly)  # read along the input's rows
    with k.when(both(i.compare("lt", sizes[fast]), j.compare("lt", sizes[-1]))):
        k.store(tile, ly * (SIDE + 1) + lx, Load(x, base_in + i + j * source[-1], kind))
    k.emit(Barrier())
    i, j = k.let("i", gy + ly), k.let("j", gx + lx)
    with k.when(both(i.compare("lt", sizes[fast]), j.compare("lt", sizes[-1]))):
        k.store(y, base_out + i * to[fast] + j, Load(tile, lx * (SIDE + 1) + ly, kind))
    about = f"transpose perm {list(op.perm)}, {x.dtype.value}{list(shape)} -> {list(out)}"
    size = (-(-sizes[-1] // SIDE) * SIDE, -(-sizes[fast] // SIDE) * SIDE, math.prod(sizes[n] for n in rest))
    launch = launch_of(k, "transpose", list(job.params), size, (SIDE, SIDE, 1), (SIDE, SIDE, 1), fixed=True, about=about)
    return device_kernel(job, "transpose", about, [Variant("local", (launch,), cpu=True)])
