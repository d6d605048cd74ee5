"""Data movement: copies between strided boxes. Transpose, slice, expand, tile, concat, pad, copy, select.

Axes that both sides walk as one are merged. What is contiguous on both sides is a memcpy; where the two sides disagree about
the fastest axis (a transpose) the copy goes in 8x8 blocks, so that both sides use whole cache lines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from intaglio.ir.sizes import Size, Undecided, least, most, moves, names_of, pinned
from intaglio.ir.types import DType, Shape, strides_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.elementwise import broadcast_strides, merge_axes, offset_of
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import ASSERTION_FAILED, Buffer, Expr, Load, Num, Operand, Type, cast, idx, imax, imin
from intaglio.ops.control import AssertTrue
from intaglio.ops.move import Concat, Pad, Roll, Slice, Tile, Transpose, Trilu

_BLOCK = 8


def strided_copy(
    k: Builder, to: Buffer, to_base: Expr, source: Buffer, source_base: Expr, sizes: Shape, to_strides: tuple[int, ...],
    source_strides: tuple[int, ...], short: bool = True,
) -> None:  # fmt: skip
    """`short`: code is not repeated for each of a few sizes."""
    if math.prod(sizes) == 0:
        return
    merged, (to_walk, source_walk) = merge_axes(sizes, [to_strides, source_strides])
    if merged and to_walk[-1] == 1 and source_walk[-1] == 1:
        with k.loops([f"i{n}" for n in range(len(merged) - 1)], merged[:-1]) as at:
            k.copy(
                to,
                to_base + offset_of(at, to_walk[:-1]),
                source,
                source_base + offset_of(at, source_walk[:-1]),
                merged[-1],
            )
        return
    kind = Type(source.dtype.value)
    fast = next((n for n, s in enumerate(source_walk) if s == 1), None)
    if fast is None or len(merged) < 2 or fast == len(merged) - 1 or most(merged[fast]) < _BLOCK or most(merged[-1]) < _BLOCK:
        with k.loops([f"i{n}" for n in range(len(merged))], merged) as at:
            k.store(to, to_base + offset_of(at, to_walk), Load(source, source_base + offset_of(at, source_walk), kind))
        return
    outer = [n for n in range(len(merged) - 1) if n != fast]
    with k.loops([f"i{n}" for n in outer], [merged[n] for n in outer]) as at:
        to_at = k.let("to", to_base + offset_of(at, [to_walk[n] for n in outer]))
        source_at = k.let("from", source_base + offset_of(at, [source_walk[n] for n in outer]))
        if moves((merged[-1], merged[fast])):
            turned = _Turned(to, to_at, to_walk[fast], source, source_at, source_walk[-1], (merged[-1], merged[fast]))
            (_blocks_of_sizes if short else _by_size)(k, turned)
            return
        with (
            k.loop("bj", 0, merged[-1], _BLOCK) as bj,
            k.loop("bi", 0, merged[fast], _BLOCK) as bi,
            k.loop("j", bj, imin(bj + _BLOCK, merged[-1])) as j,
            k.loop("i", bi, imin(bi + _BLOCK, merged[fast])) as i,
        ):
            k.store(to, to_at + j + i * to_walk[fast], Load(source, source_at + i + j * source_walk[-1], kind))


@dataclass(frozen=True, slots=True)
class _Turned:
    """Axes j and i, of which the result walks the first by steps of 1 and the source the second."""

    to: Buffer
    to_at: Expr
    to_pitch: int
    source: Buffer
    source_at: Expr
    source_pitch: int
    sizes: tuple[int, int]  # of j, of i

    def copy(self, k: Builder, first: tuple[str, Operand, Operand], second: tuple[str, Operand, Operand]) -> None:
        with k.loop(*first) as a, k.loop(*second) as b:
            i, j = (a, b) if second[0] == "j" else (b, a)
            at = self.source_at + i + j * self.source_pitch
            k.store(self.to, self.to_at + j + i * self.to_pitch, Load(self.source, at, Type(self.source.dtype.value)))


def _by_size(k: Builder, turned: _Turned) -> None:
    """Fewer numbers than a block along the axis that moves: a loop for each number of them, of which compilers make moves of
    vectors. A single one is a copy."""
    (j, i), pitches = turned.sizes, (turned.to_pitch, turned.source_pitch)
    moving = j if isinstance(j, Size) else i
    names = names_of((j, i, pitches))
    if moves((j,)) == moves((i,)) or len(names) > 1 or not isinstance(moving, Size):
        _blocks_of_sizes(k, turned)
        return
    (name,) = names
    few: dict[int, set[tuple[int, ...]]] = {}  # for each number of them: both sizes and both pitches, which it has to tell
    for point in moving.bounds.ranges[name].numbers:
        if 0 < moving.at({name: point}) < _BLOCK:
            few.setdefault(moving.at({name: point}), set()).add(pinned((j, i, *pitches), {name: point}))
    if not few or any(len(forms) > 1 for forms in few.values()):
        _blocks_of_sizes(k, turned)
        return
    there = k.let("there", moving)
    for count, ((high, wide, to_pitch, source_pitch),) in few.items():
        one = replace(turned, to_pitch=to_pitch, source_pitch=source_pitch, sizes=(high, wide))
        with k.when(there.compare("eq", count)):
            one.copy(k, ("j", 0, high), ("i", 0, wide))
    if most(moving) >= _BLOCK:
        with k.when(there.compare("ge", _BLOCK)):
            _blocks_of_sizes(k, turned)


def _blocks_of_sizes(k: Builder, turned: _Turned) -> None:
    """Where the caller gives a size, compilers turn a block into moves of vectors only if it is known to be whole, and the axis
    that moves is the inner one."""
    sizes = turned.sizes
    whole_j, whole_i = (size // _BLOCK * _BLOCK for size in sizes)
    with k.loop("bj", 0, whole_j, _BLOCK) as bj, k.loop("bi", 0, whole_i, _BLOCK) as bi:
        block = ("j", bj, bj + _BLOCK), ("i", bi, bi + _BLOCK)
        turned.copy(k, *(block[::-1] if isinstance(sizes[0], Size) else block))
    turned.copy(k, ("i", whole_i, sizes[1]), ("j", 0, whole_j))
    turned.copy(k, ("i", 0, sizes[1]), ("j", whole_j, sizes[0]))


def _about(job: Job, extra: str = "") -> str:
    node = job.node
    shapes = " ".join(f"{v.dtype.value}{list(v.shape)}" for v in node.inputs if v is not None)
    return f"{node.op.NAME} {extra}\n{shapes} -> {node.output.dtype.value}{list(node.output.shape)}"


def transpose(job: Job) -> Lowered:
    op = job.node.op
    assert isinstance(op, Transpose)
    x, y = job.operand(0, "x"), job.writes()
    strides = strides_of(job.type(0).shape)
    out = job.node.output.shape
    strided_copy(job.k, y, idx(0), x, idx(0), out, strides_of(out), tuple(strides[p] for p in op.perm), job.target.bare)
    return job.done("transpose", _about(job, f"perm {list(op.perm)}"))


def slice_(job: Job) -> Lowered:
    op = job.node.op
    assert isinstance(op, Slice)
    x, y = job.operand(0, "x"), job.writes()
    strides = strides_of(job.type(0).shape)
    base = sum(s * w for s, w in zip(op.starts, strides, strict=True))
    out = job.node.output.shape
    strided_copy(
        job.k,
        y,
        idx(0),
        x,
        idx(base),
        out,
        strides_of(out),
        tuple(s * w for s, w in zip(op.steps, strides, strict=True)),
    )
    return job.done("slice", _about(job, f"starts {list(op.starts)} steps {list(op.steps)}"))


def expand(job: Job) -> Lowered:
    x, y = job.operand(0, "x"), job.writes()
    out = job.node.output.shape
    strided_copy(job.k, y, idx(0), x, idx(0), out, strides_of(out), broadcast_strides(job.type(0).shape, out))
    return job.done("expand", _about(job))


def tile(job: Job) -> Lowered:
    """Every axis twice: how often, then how long."""
    op = job.node.op
    assert isinstance(op, Tile)
    x, y = job.operand(0, "x"), job.writes()
    shape, out = job.type(0).shape, strides_of(job.node.output.shape)
    strides = strides_of(shape)
    sizes = tuple(n for r, d in zip(op.repeats, shape, strict=True) for n in (r, d))
    to = tuple(n for d, s in zip(shape, out, strict=True) for n in (d * s, s))
    strided_copy(job.k, y, idx(0), x, idx(0), sizes, to, tuple(n for s in strides for n in (0, s)))
    return job.done("tile", _about(job, f"repeats {list(op.repeats)}"))


def copy(job: Job) -> Lowered:
    x, y = job.operand(0, "x"), job.writes()
    job.k.copy(y, 0, x, 0, job.node.output.type.elements)
    return job.done("copy", _about(job))


def bit_cast(job: Job) -> Lowered:
    """Bytes are copied: only these may be read and written as another type."""
    x, y = job.bytes_of(job.node.inputs[0], "x"), job.bytes_of(job.node.output, "y", const=False)
    job.k.copy(y, 0, x, 0, job.node.output.type.elements * job.node.output.dtype.bytes)
    return job.done("bit_cast", _about(job))


def concat(job: Job) -> Lowered:
    op, node = job.node.op, job.node
    assert isinstance(op, Concat)
    buffers = [(job.reads(v, f"x{n}"), v) for n, v in enumerate(node.inputs) if v is not None]
    y = job.writes()
    axis = op.axis % len(node.output.shape)
    to = strides_of(node.output.shape)
    at = 0
    for buffer, value in buffers:
        strided_copy(job.k, y, idx(at * to[axis]), buffer, idx(0), value.shape, to, strides_of(value.shape))
        at += value.shape[axis]
    return job.done("concat", _about(job, f"axis {axis}"))


def roll(job: Job) -> Lowered:
    """Row by row upwards, so that the result may be where the rows were."""
    op, k = job.node.op, job.k
    assert isinstance(op, Roll)
    kept, new = job.type(0), job.type(1)
    axis = op.axis % kept.rank
    lead, row = math.prod(kept.shape[:axis]), math.prod(kept.shape[axis + 1 :])
    rows, more = kept.shape[axis], new.shape[axis]
    x, n, y = job.operand(0, "kept"), job.operand(1, "new"), job.writes()
    with k.loop("lead", 0, lead) as at:
        with k.loop("r", 0, rows - more) as r:
            k.copy(y, (at * rows + r) * row, x, (at * rows + r + more) * row, row)
        k.copy(y, (at * rows + (rows - more)) * row, n, at * (more * row), more * row)
    return job.done("roll", _about(job, f"axis {axis}"), over=x)


def select_(job: Job) -> Lowered:
    cond, a, b, y = job.operand(0, "cond"), job.operand(1, "a"), job.operand(2, "b"), job.writes()
    k = job.k
    with k.when(Load(cond, idx(0), Type("bool")).compare("ne", Num(0, Type("bool")))):
        k.copy(y, 0, a, 0, job.type(1).elements)
    with k.otherwise():
        k.copy(y, 0, b, 0, job.type(2).elements)
    return job.done("select", _about(job))


def assert_true(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, AssertTrue)
    cond, y = job.operand(0, "cond"), job.writes()
    with k.when(Load(cond, idx(0), Type("bool")).compare("eq", Num(0, Type("bool")))):
        k.fail(ASSERTION_FAILED)
    k.store(y, 0, Num(1, Type("bool")))
    return job.done("assert_true", f"assert: {op.message}")


def pad(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, Pad)
    x, y = job.operand(0, "x"), job.writes()
    shape, out = job.type(0).shape, job.node.output.shape
    rank = len(shape)
    begin = op.pads[:rank]
    to, source = strides_of(out), strides_of(shape)
    if op.mode == "constant":
        kind = "f64" if y.dtype is DType.F64 else "f32" if y.dtype.is_float else y.dtype.value
        value = Num(float(op.value) if y.dtype.is_float else int(op.value), Type(kind))
        filler = k.let("filler", cast(value, Type(y.dtype.value)))
        _fill_border(k, y, filler, out, shape, begin)
        strided_copy(k, y, idx(sum(b * s for b, s in zip(begin, to, strict=True))), x, idx(0), shape, to, source)
        return job.done("pad", _about(job, f"pads {list(op.pads)} with {op.value}"))
    with k.loops([f"i{n}" for n in range(rank)], list(out)) as at:
        place: Expr = idx(0)
        for n in range(rank):
            place = place + _source_index(k, at[n], begin[n], shape[n], out[n], op.mode) * source[n]
        k.store(y, offset_of(at, list(to)), Load(x, place, Type(x.dtype.value)))
    return job.done("pad", _about(job, f"pads {list(op.pads)} {op.mode}"))


def _fill_border(k: Builder, y: Buffer, filler: Expr, out: Shape, shape: Shape, begin: tuple[int, ...]) -> None:
    """Each axis fills what lies before and after along it, inside the part that earlier axes left open."""
    to = strides_of(out)
    low, size = [0] * len(out), list(out)
    for axis in range(len(out)):
        for first, count in ((0, begin[axis]), (begin[axis] + shape[axis], out[axis] - begin[axis] - shape[axis])):
            if count != 0:  # a size may be 0 too: its loops do nothing then
                box, base = list(size), list(low)
                box[axis], base[axis] = count, first
                merged, (walk,) = merge_axes(tuple(box), [to])
                with k.loops([f"i{n}" for n in range(len(merged))], merged) as at:
                    k.store(y, offset_of(at, walk) + sum(b * s for b, s in zip(base, to, strict=True)), filler)
        low[axis], size[axis] = begin[axis], shape[axis]


def _source_index(k: Builder, i: Expr, begin: int, size: int, out: int, mode: str) -> Expr:
    """Where output index `i` reads, by the rule of the mode."""
    if begin == 0 and out == size:
        return i
    at = i - begin
    if mode == "edge":
        return k.let("at", imin(imax(at, 0), size - 1))
    if mode == "wrap":
        shift = -(-begin // least(size)) * size
        return k.let("at", (at + shift) % size)
    if size == 1:
        return idx(0)
    if least(size) < 2:
        raise Undecided(f"a size of 1 is not reflected, and `{size}` may be 1")
    period = 2 * (size - 1)  # reflect: back and forth without repeating the edge
    shift = -(-begin // least(period)) * period
    turn = k.let("turn", (at + shift) % period)
    return k.let("at", imin(turn, idx(period) - turn))


def trilu(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, Trilu)
    x, y = job.operand(0, "x"), job.writes()
    shape = job.node.output.shape
    rows, columns = shape[-2:]
    zero = (
        Num(0, Type(y.dtype.value))
        if not y.dtype.is_float or y.dtype is DType.F16 or y.dtype is DType.BF16
        else Num(0.0, Type(y.dtype.value))
    )
    with k.loops(["b", "r", "c"], [math.prod(shape[:-2]), rows, columns]) as (b, r, c):
        place = k.let("at", b * (rows * columns) + r * columns + c)
        keep = c.compare("ge", r + op.k) if op.upper else c.compare("le", r + op.k)
        with k.when(keep):
            k.store(y, place, Load(x, place, Type(x.dtype.value)))
        with k.otherwise():
            k.store(y, place, zero)
    return job.done("trilu", _about(job))
