"""Around the body of a loop: what it carries is copied, rows that it collects are put one behind the other."""

from __future__ import annotations

import math

from intaglio.ir.sizes import Size
from intaglio.ir.types import DType
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import SIZE_OUT_OF_BOUNDS, Load, Num, Type, cast, either, idx
from intaglio.ops.loops import LoopEnd, Room

I64, U16 = Type("i64"), Type("u16")


def loop_start(job: Job) -> Lowered:
    for n, value in enumerate(job.node.outputs):
        x, y = job.operand(n, f"x{n}"), job.writes(n, f"y{n}")
        job.k.copy(y, 0, x, 0, value.type.elements)
    return job.done("loop_start", "what a loop starts with")


def loop_end(job: Job) -> Lowered:
    op = job.node.op
    assert isinstance(op, LoopEnd)
    for n, value in enumerate(job.node.outputs[: op.carried]):
        x, y = job.operand(op.carried + n, f"x{n}"), job.writes(n, f"y{n}")
        job.k.copy(y, 0, x, 0, value.type.elements)
    return job.done("loop_end", "what a loop goes on with")


def room(job: Job) -> Lowered:
    op, k, y = job.node.op, job.k, job.writes()
    assert isinstance(op, Room)
    kind = Type(y.dtype.value)
    bits = y.dtype in (DType.F16, DType.BF16)
    with k.loop("i", 0, math.prod(op.shape)) as i:
        k.store(y, i, cast(Num(0, Type("f32")), kind) if bits else Num(0, kind))
    return job.done("room", f"room for {y.dtype.value}{list(op.shape)}")


def put_row(job: Job) -> Lowered:
    k, (rows, *row) = job.k, job.type(0).shape
    x, at, y = job.operand(1, "x"), job.operand(2, "at"), job.writes()
    number = k.let("number", cast(Load(at, idx(0), Type(at.dtype.value)), I64))
    end = cast(idx(rows), I64) if isinstance(rows, Size) else Num(rows, I64)
    with k.when(either(number.compare("lt", Num(0, I64)), number.compare("ge", end))):
        k.fail(SIZE_OUT_OF_BOUNDS)
    k.copy(y, cast(number, idx(0).type) * math.prod(row), x, 0, math.prod(row))
    return job.done("put_row", f"a row of {y.dtype.value}{list(job.type(0).shape)}")
