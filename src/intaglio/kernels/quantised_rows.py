"""Integer kernels by tables and rows: 16-bit functions and softmax, log-softmax, norms, 16-bit products. Exact to the reference."""

from __future__ import annotations

import math

import numpy as np

from intaglio.ir.types import DType
from intaglio.kernels.builder import Builder
from intaglio.kernels.contraction.hybrid import round_away
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import IDX, Buffer, Expr, Load, Num, Op, Type, cast, select
from intaglio.kernels.whole_numbers import I32, I64, bounded, number, scaled, whole
from intaglio.ops.fixed_point import INT32_MIN
from intaglio.ops.quantised_functions import sigmoid_table
from intaglio.ops.quantised_norms import QDense, QL2Norm, QLogSoftmax
from intaglio.ops.quantised_tables import QSoftmax16, ResizeBytes, Squash16

F32, F64 = Type("f32"), Type("f64")


def plus(a: Expr, b: Expr | int, kind: Type = I32) -> Expr:
    return Op("add", (a, number(b, kind) if isinstance(b, int) else b), kind)


def minus(a: Expr, b: Expr | int, kind: Type = I32) -> Expr:
    return Op("sub", (a, number(b, kind) if isinstance(b, int) else b), kind)


def times(a: Expr, b: Expr | int, kind: Type = I32) -> Expr:
    return Op("mul", (a, number(b, kind) if isinstance(b, int) else b), kind)


def right(a: Expr, bits: Expr | int, kind: Type = I32) -> Expr:
    return Op("shift_right", (a, number(bits, kind) if isinstance(bits, int) else bits), kind)


def inside(k: Builder, value: Expr, low: int, high: int) -> Expr:
    value = k.let("v", value)
    return k.let("inside", Op("min", (Op("max", (value, number(low)), I32), number(high)), I32))


def interpolated(k: Builder, value: Expr, table: Buffer) -> Expr:
    """A 16-bit number between two of 513 entries: 9 bits choose, 7 bits are the place between."""
    at = k.let("at", cast(plus(right(value, 7), 256), IDX))
    base = k.let("base", whole(table, at))
    slope = cast(cast(minus(whole(table, at + 1), base), Type("i16")), I32)
    part = Op("bit_and", (value, number(127)), I32)
    total = plus(base, right(plus(times(slope, part), 64), 7))
    return k.let("y16", cast(cast(total, Type("i16")), I32))


def lookup16(job: Job) -> Lowered:
    k = job.k
    x, table, y = job.operand(0, "x"), job.operand(1, "table"), job.writes()
    with k.loop("i", 0, job.node.output.type.elements) as i:
        value = k.let("value", whole(x, i))
        k.store(y, i, cast(interpolated(k, value, table), Type("i16")))
    return job.done("lookup16", f"lookup16 in a table of 513, {list(job.type(0).shape)}", in_place=True)


def squash16(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, Squash16)
    x = job.operand(0, "x")
    table = job.packed(sigmoid_table().astype(np.int32), "table")
    y = job.writes()
    logistic = op.kind == "logistic"
    with k.loop("i", 0, job.node.output.type.elements) as i:
        lifted = plus(times(whole(x, i), op.multiplier), 1 << op.shift >> 1) if op.shift else times(whole(x, i), op.multiplier)
        value = k.let("value", right(lifted, op.shift) if op.shift else lifted)
        size = k.let("size", select(value.compare("lt", number(0)), Op("neg", (value,), I32), value))
        place = k.let("place", right(size, op.bits))
        at = k.let("at", cast(Op("min", (place, number(254)), I32), IDX))
        base = k.let("base", whole(table, at))
        part = Op("bit_and", (size, number((1 << op.bits) - 1)), I32)
        between = plus(times(base, 1 << op.bits), times(part, minus(whole(table, at + 1), base)))
        top = 0x7FFF << 10 if logistic else 0xFFFF << 8
        curve = k.let("curve", select(place.compare("ge", number(255)), number(top), between))
        up, down = (plus(curve, 512), minus(number((1 << 25) + 511), curve))
        if not logistic:
            up, down = (plus(curve, 128 - (1 << 23)), minus(number((1 << 23) + 127), curve))
        signed = k.let("signed", select(value.compare("ge", number(0)), up, down))
        k.store(y, i, cast(right(signed, 10 if logistic else 8), Type("i16")))
    return job.done(f"squash16_{op.kind}", f"squash16 by {op.kind}, {list(job.type(0).shape)}", in_place=True)


def qsoftmax16(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, QSoftmax16)
    shape = job.type(0).shape
    size, (multiplier, shift) = shape[-1], op.factor()
    x = job.operand(0, "x")
    exps, inverses = (job.packed(t, name) for t, name in zip(op.tables(), ("exps", "inverses"), strict=True))
    y = job.writes()
    with k.loop("o", 0, math.prod(shape[:-1])) as o:
        row = k.let("row", o * size)
        top = k.var("top", whole(x, row))
        with k.loop("j", 1, size) as j:
            k.assign(top, Op("max", (top, whole(x, row + j)), I32))
        total = k.var("total", number(0), I32)
        with k.loop("j", 0, size) as j:
            difference = scaled(minus(whole(x, row + j), top), number(multiplier), number(shift), "scale32")
            exp = interpolated(k, inside(k, plus(difference, 32767), -32768, 32767), exps)
            k.store(y, row + j, cast(exp, Type("i16")))
            k.assign(total, plus(total, exp))
        zeros = k.let("zeros", Op("fn_leading_zeros", (total,), I32))
        lifted = Op("shift_left", (cast(total, I64), cast(minus(zeros, 1), I64)), I64)
        shifted = cast(right(plus(lifted, 1 << 13, I64), 14, I64), I32)
        inverse = interpolated(k, inside(k, minus(shifted, (1 << 15) + (1 << 16)), -32768, 32767), inverses)
        bits = k.let("bits", minus(number(31), zeros))
        half = k.let("half", Op("shift_left", (number(1), minus(bits, 1)), I32))
        with k.loop("j", 0, size) as j:
            share = right(plus(times(whole(y, row + j), inverse), half), bits)
            k.store(y, row + j, bounded(k.let("share", share), 0, 32767, DType.I16))
    return job.done("qsoftmax16", f"qsoftmax16 along the last axis, {list(shape)}, step {op.scale}, beta {op.beta}")


def qlog_softmax(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, QLogSoftmax)
    shape = job.type(0).shape
    size, (back, back_shift) = shape[-1], op.back()
    x = job.operand(0, "x")
    steps, exps = (job.packed(t.astype(np.int32), name) for t, name in zip(op.differences(), ("steps", "exps"), strict=True))
    y = job.writes()
    info = np.iinfo(y.dtype.numpy)
    with k.loop("o", 0, math.prod(shape[:-1])) as o:
        row = k.let("row", o * size)
        top = k.var("top", whole(x, row))
        with k.loop("j", 1, size) as j:
            k.assign(top, Op("max", (top, whole(x, row + j)), I32))
        total = k.var("total", number(0), I32)
        with k.loop("j", 0, size) as j:
            k.assign(total, plus(total, whole(exps, cast(minus(top, whole(x, row + j)), IDX))))
        log_sum = k.let("log_sum", Op("fn_log_of_sum", (total,), I32))
        least = k.let("least", scaled(plus(log_sum, INT32_MIN), number(back), number(back_shift), "scale32"))
        lowest = k.let("lowest", Op("max", (least, number(op.factors()[2] - 1)), I32))
        with k.loop("j", 0, size) as j:
            below = k.let("below", minus(top, whole(x, row + j)))
            step = whole(steps, cast(below, IDX))
            value = plus(Op("fn_rounding_shift", (minus(step, log_sum), number(22)), I32), int(info.max))
            stored = select(minus(number(0), below).compare("gt", lowest), value, number(int(info.min)))
            k.store(y, row + j, bounded(k.let("v", stored), int(info.min), int(info.max), y.dtype))
    return job.done("qlog_softmax", f"qlog_softmax along the last axis, {list(shape)}, step {op.scale}")


def ql2_norm(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, QL2Norm)
    shape = job.type(0).shape
    size = shape[-1]
    x, y = job.operand(0, "x"), job.writes()
    unsigned = y.dtype is DType.U8
    with k.loop("o", 0, math.prod(shape[:-1])) as o:
        row = k.let("row", o * size)
        total = k.var("total", number(0), I32)
        with k.loop("j", 0, size) as j:
            value = k.let("value", minus(whole(x, row + j), op.x_zero))
            k.assign(total, plus(total, times(value, value)))
        multiplier = k.let("multiplier", Op("fn_inv_sqrt", (total,), I32))
        shift = k.let("shift", Op("fn_inv_sqrt_shift", (total,), I32))
        with k.loop("j", 0, size) as j:
            value = minus(whole(x, row + j), op.x_zero)
            if unsigned:
                value = plus(scaled(times(value, 128), multiplier, shift, "scale32"), 128)
            else:
                value = scaled(value, multiplier, plus(shift, 7), "scale32")
            k.store(y, row + j, bounded(k.let("v", value), 0 if unsigned else -128, 255 if unsigned else 127, y.dtype))
    return job.done("ql2_norm", f"ql2_norm along the last axis, {list(shape)}")


def qdense(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, QDense)
    (rows, depth), columns = job.type(0).shape, job.type(1).shape[0]
    x, w = job.operand(0, "x"), job.operand(1, "w")
    bias = job.optional(2)
    b = job.reads(bias, "bias") if bias is not None else None
    scale, y = job.operand(3, "scale"), job.writes()
    with k.loop("m", 0, rows) as m, k.loop("n", 0, columns) as n:
        total = k.var("total", whole(b, n, I64) if b is not None else number(0, I64), I64)
        with k.loop("j", 0, depth) as j:
            product = times(whole(x, m * depth + j), whole(w, n * depth + j))
            k.assign(total, plus(total, cast(product, I64), I64))
        real = k.let("real", Op("mul", (cast(total, F64), Load(scale, n, F64)), F64))
        limited = Op("min", (Op("max", (real, Num(-1e9, F64)), F64), Num(1e9, F64)), F64)
        k.store(y, m * columns + n, bounded(k.let("v", round_away(k, Lanes.scalar("f64"), limited)), op.low, op.high, y.dtype))
    return job.done(f"qdense_{depth}_{columns}", f"qdense i16[{rows},{depth}] x i8[{columns},{depth}], scaled in doubles")


def resize_bytes(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, ResizeBytes)
    n_, h, w, c_ = job.type(0).shape
    x = job.operand(0, "x")
    places: list[tuple[Buffer, Buffer, Buffer]] = []
    for axis, size in ((1, h), (2, w)):
        low, high, weight = op.places(axis, size)
        sources = [job.packed(t.astype(np.int32), f"{name}{axis}") for t, name in ((low, "low"), (high, "high"))]
        places.append((sources[0], sources[1], job.packed(weight, f"weight{axis}")))
    y = job.writes()
    _, oh_, ow_, _ = op.shape
    with k.loop("n", 0, n_) as n, k.loop("oh", 0, oh_) as oh:
        rows = [k.let(f"row{m}", (n * h + whole(places[0][m], oh, IDX)) * w) for m in (0, 1)]
        down = k.let("down", Load(places[0][2], oh, F32))
        stay = k.let("stay", minus(Num(1.0, F32), down, F32))
        with k.loop("ow", 0, ow_) as ow:
            cols = [k.let(f"col{m}", whole(places[1][m], ow, IDX)) for m in (0, 1)]
            over = k.let("over", Load(places[1][2], ow, F32))
            before = k.let("before", minus(Num(1.0, F32), over, F32))
            with k.loop("c", 0, c_) as c:
                total = k.var("total", Num(0.0, F32), F32)
                for j, across in ((0, before), (1, over)):
                    for i, along in ((0, stay), (1, down)):
                        pixel = cast(Load(x, (rows[i] + cols[j]) * c_ + c, Type("u8")), F32)
                        part = times(times(pixel, along, F32), across, F32)
                        k.assign(total, plus(total, part, F32))
                k.store(y, ((n * oh_ + oh) * ow_ + ow) * c_ + c, cast(plus(total, Num(0.5, F32), F32), Type("u8")))
    return job.done("resize_bytes", f"resize_bytes bilinear, {list(job.type(0).shape)} -> {list(op.shape)}")
