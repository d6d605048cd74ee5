"""Random numbers by a hash of their place (`ops/random.py`)."""

from __future__ import annotations

import math

from intaglio.kernels.builder import Builder
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import Expr, Load, Num, Op, Type, cast
from intaglio.ops.random import FIRST, PLACE, RUN, SECOND, STREAM, RandomUniform

U32, F32 = Type("u32"), Type("f32")


def _number(n: int) -> Num:
    return Num(n & 0xFFFFFFFF, U32)


def _folded(k: Builder, h: Expr, by: int) -> Expr:
    return k.let("h", Op("bit_xor", (h, Op("shift_right", (h, _number(by)), U32)), U32))


def _mix(k: Builder, h: Expr) -> Expr:
    h = _folded(k, k.let("h", h), 16)
    h = _folded(k, k.let("h", h * _number(FIRST)), 13)
    return _folded(k, k.let("h", h * _number(SECOND)), 16)


def random_uniform(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, RandomUniform)
    run, y = job.operand(0, "run"), job.writes()
    start = _mix(k, Load(run, Num(0), U32) * _number(RUN) + _number(op.seed))
    key = k.let("key", _mix(k, start + _number(op.stream * STREAM)))
    with k.loop("i", 0, math.prod(op.shape)) as i:
        bits = _mix(k, _mix(k, cast(i, U32) * _number(PLACE) + key) + key)
        k.store(y, i, cast(Op("shift_right", (bits, _number(8)), U32), F32) * Num(2.0**-24, F32))
    return job.done("random_uniform", f"random_uniform {list(op.shape)}, seed {op.seed}, stream {op.stream}")
