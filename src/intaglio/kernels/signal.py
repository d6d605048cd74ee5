"""Kernels of TFLite Micro's integer signal processing: `ops/signal.py` says what they compute."""

from __future__ import annotations

import math

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import IDX, Buffer, Expr, Load, Num, Op, Type, both, cast, idx, select
from intaglio.ops.signal import FULL, FixedRfft, stages

I16, I32, U32, U64 = Type("i16"), Type("i32"), Type("u32"), Type("u64")
Pair = tuple[Expr, Expr]


def auto_scale(job: Job) -> Lowered:
    k, count = job.k, job.type(0).shape[0]
    x, y, bits = job.operand(0, "x"), job.writes(0), job.writes(1, "bits")
    top = k.var("top", Num(0, I32), I32)
    with k.loop("i", 0, count) as i:
        value = k.let("value", cast(Load(x, i, I16), I32))
        magnitude = k.let("magnitude", select(value.compare("gt", top), value, Num(0, I32) - value))
        with k.when(magnitude.compare("gt", top)):
            k.assign(top, _short(magnitude))
    shift = k.var("shift", Num(0, I32), I32)
    with k.during(both(top.compare("gt", Num(0, I32)), top.compare("lt", Num(1 << 14, I32)))):
        k.assign(top, top + top)
        k.assign(shift, shift + Num(1, I32))
    factor = k.let("factor", Op("shift_left", (Num(1, I32), shift), I32))
    with k.loop("i", 0, count) as i:
        k.store(y, i, cast(cast(Load(x, i, I16), I32) * factor, I16))
    k.store(bits, 0, shift)
    return job.done("auto_scale", f"auto_scale of {count} numbers")


def rounded_root(job: Job) -> Lowered:
    """Two bits of the number make one of its root."""
    k, count = job.k, job.type(0).elements
    x, y = job.operand(0, "x"), job.writes()
    with k.loop("i", 0, count) as i:
        left = k.var("left", Load(x, i, U64), U64)
        small = k.let("small", select(left.compare("lt", Num(1 << 32, U64)), Num(1, IDX), Num(0, IDX)))
        bit = k.var("bit", select(small.compare("ne", 0), Num(1 << 30, U64), Num(1 << 62, U64)), U64)
        root = k.var("root", Num(0, U64), U64)
        with k.during(bit.compare("ne", Num(0, U64))):
            tried = k.let("tried", root + bit)
            k.assign(root, _right(root, 1))
            with k.when(left.compare("ge", tried)):
                k.assign(left, left - tried)
                k.assign(root, root + bit)
            k.assign(bit, _right(bit, 2))
        limit = select(small.compare("ne", 0), Num(0xFFFF, U64), Num(0xFFFFFFFF, U64))
        with k.when(both(left.compare("gt", root), root.compare("ne", limit))):
            k.assign(root, root + Num(1, U64))
        k.store(y, i, cast(root, U32))
    return job.done("rounded_root", f"rounded_root of {count} numbers")


def _right(value: Expr, bits: int) -> Expr:
    return Op("shift_right", (value, Num(bits, value.type)), value.type)


def _short(value: Expr) -> Expr:
    return cast(cast(value, I16), I32)


def _rounded(value: Expr) -> Expr:
    return _short(_right(value + Num(16384, I32), 15))


def _load(k: Builder, buffer: Buffer, at: Expr, name: str, by: int = 1) -> Pair:
    """A pair, a half or a quarter of it."""
    values = [cast(Load(buffer, at + n, I16), I32) for n in range(2)]
    a, b = (k.let(name, value if by == 1 else _rounded(value * Num(FULL // by, I32))) for value in values)
    return a, b


def _turned(k: Builder, a: Pair, w: Pair) -> Pair:
    real, imaginary = a[0] * w[0] - a[1] * w[1], a[0] * w[1] + a[1] * w[0]
    return k.let("turned", _rounded(real)), k.let("turned", _rounded(imaginary))


def _sum(k: Builder, a: Pair, b: Pair) -> Pair:
    return k.let("sum", _short(a[0] + b[0])), k.let("sum", _short(a[1] + b[1]))


def _difference(k: Builder, a: Pair, b: Pair) -> Pair:
    return k.let("apart", _short(a[0] - b[0])), k.let("apart", _short(a[1] - b[1]))


def _store(k: Builder, buffer: Buffer, at: Expr, value: Pair) -> None:
    for n, part in enumerate(value):
        k.store(buffer, at + n, cast(part, I16))


def fixed_rfft(job: Job) -> Lowered:
    op, k, given = job.node.op, job.k, job.type(0).shape
    assert isinstance(op, FixedRfft)
    half, length, rows = op.points // 2, given[-1], math.prod(given[:-1])
    x, order, turns, split = (job.operand(n, name) for n, name in enumerate(("x", "order", "turns", "split")))
    y, work = job.writes(), job.scratch(op.points, "work", DType.I16)
    with k.loop("row", 0, rows) as row:
        with k.loop("t", 0, half) as t:
            source = k.let("source", cast(Load(order, t, I16), IDX) * 2)
            for n in range(2):
                with k.when((source + n).compare("lt", length)):
                    k.store(work, t * 2 + n, Load(x, row * length + source + n, I16))
                with k.otherwise():
                    k.store(work, t * 2 + n, Num(0, I16))
        for radix, legs, blocks in stages(half):
            with k.loop("block", 0, blocks) as block, k.loop("leg", 0, legs) as leg:
                _butterfly(k, work, turns, radix, legs, blocks, (block * (radix * legs) + leg) * 2, leg)
        _bins(k, work, split, y, half, row * (op.points + 2))
    return job.done("fixed_rfft", f"fixed_rfft of {rows} x {length} in {op.points} points")


def _butterfly(k: Builder, work: Buffer, turns: Buffer, radix: int, legs: int, blocks: int, at: Expr, leg: Expr) -> None:
    places = [k.let("at", at + n * legs * 2) for n in range(radix)]
    first, *others = [_load(k, work, place, "v", radix) for place in places]
    a = [_turned(k, other, _load(k, turns, leg * (2 * blocks * (n + 1)), "w")) for n, other in enumerate(others)]
    if radix == 2:
        made = [_sum(k, first, a[0]), _difference(k, first, a[0])]
    else:
        less, more = _difference(k, first, a[1]), _sum(k, first, a[1])
        total, apart = _sum(k, a[0], a[2]), _difference(k, a[0], a[2])
        across = apart[1], Num(0, I32) - apart[0]
        made = [_sum(k, more, total), _sum(k, less, across), _difference(k, more, total), _difference(k, less, across)]
    for place, value in zip(places, made, strict=True):
        _store(k, work, place, value)


def _bins(k: Builder, work: Buffer, split: Buffer, y: Buffer, half: int, base: Expr) -> None:
    """Of m complex numbers, the m + 1 bins of the real transform."""
    real, imaginary = _load(k, work, idx(0), "v", 2)
    zero = Num(0, I32)
    _store(k, y, base, (real + imaginary, zero))
    _store(k, y, base + 2 * half, (real - imaginary, zero))
    with k.loop("bin", 1, half // 2 + 1) as n:
        near = _load(k, work, n * 2, "near", 2)
        far_real, far_imaginary = (cast(Load(work, (half - n) * 2 + part, I16), I32) for part in range(2))
        halved = Num(FULL // 2, I32)
        far = k.let("far", _rounded(far_real * halved)), k.let("far", _rounded(_short(zero - far_imaginary) * halved))
        together, apart = _sum(k, near, far), _difference(k, near, far)
        turned = _turned(k, apart, _load(k, split, (n - 1) * 2, "w"))
        _store(k, y, base + n * 2, (_right(together[0] + turned[0], 1), _right(together[1] + turned[1], 1)))
        _store(k, y, base + (half - n) * 2, (_right(together[0] - turned[0], 1), _right(turned[1] - together[1], 1)))
