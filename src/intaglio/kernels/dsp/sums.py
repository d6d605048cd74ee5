"""The sum and the product of two quantised bytes, alone; the sum also as the last step of a convolution.

Both sides are brought to a common step, half of which is that of the larger side: that side is a shift, exact. The other one is
scaled and rounded (SMMLAR, sign, shift), then the sum is. A record of eight words: multiplier, offset and shift of the smaller
side, its zero point lifted, minus the zero point of the larger side lifted, then multiplier, offset and shift of the sum.

The names say which side is the larger one: `left`, `right`, or `both`, where the steps are equal.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.contraction.quantised import size_of
from intaglio.kernels.dsp.primitives import BASE, C, no_dsp, operations
from intaglio.kernels.dsp.scaling import Scales, finish_routine, finished, scales_of
from intaglio.kernels.dsp.variants import C_TYPES, Finish, Side, Sum, range_of
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Place, idx
from intaglio.kernels.routines import Routine, no_meaning, routine_of
from intaglio.ops.fixed_point import scale32
from intaglio.ops.quantised import QAdd, QMul

LIFT = 20
_HALF = (1 << 30, 0)


def sum_record(op: QAdd, swapped: bool) -> tuple[Sum, Array] | str:
    """The variant and its record; or why the quick way is not exact. `swapped`: the left side is the operator's second."""
    sides = [(op.a_zero, op.a_multiplier, op.a_shift), (op.b_zero, op.b_multiplier, op.b_shift)]
    left, right = reversed(sides) if swapped else sides
    if op.to not in (DType.I8, DType.U8) or op.lift != LIFT:
        return f"the result is {op.to.value} with a shift of {op.lift} bits, not bytes with {LIFT}"
    if op.subtract:
        return "the layer subtracts"
    halves = (left[1:] == _HALF, right[1:] == _HALF)
    which = {(True, True): Side.BOTH, (True, False): Side.LEFT, (False, True): Side.RIGHT}.get(halves)
    if which is None:
        return "neither side has half of the common step, so no factor is a shift"
    small, large = (left, right) if which is Side.RIGHT else (right, left)
    shifts = [op.shift] if which is Side.BOTH else [op.shift, small[2]]
    if any(not -31 <= shift <= -1 for shift in shifts) or op.multiplier < 0 or (which is not Side.BOTH and small[1] < 0):
        return "a factor is negative, or at least 1"
    record = [0, 0, 0, 0, 0, op.multiplier, (1 << (-op.shift - 1)) + (op.y_zero << -op.shift), -op.shift]
    if which is Side.BOTH:
        record[4] = -(left[0] + right[0]) << (LIFT - 1)
    else:
        record[:5] = [small[1], 1 << (-small[2] - 1), -small[2], small[0] << (LIFT + 1), -large[0] << (LIFT - 1)]
    if any(not -(2**31) <= word < 2**31 for word in record) or abs(record[6]) >= 2**30 or record[1] >= 2**30:
        return "a zero point and its shift do not fit 32 bits"
    return Sum(which, range_of(op.to, op.low, op.high)), np.asarray(record, np.int32)


@cache
def sum_routine(added: Sum) -> Routine:
    """`ig_sum_VARIANT(left, right, record)`."""
    small, large = ("left", "right") if added.larger is Side.RIGHT else ("right", "left")
    needs = operations("smmlar", f"sat_{added.out.to.value}")
    macros = {"BOTH": added.larger is Side.BOTH, "SMALL": small, "LARGE": large, **added.out.macros()}
    return routine_of(C / "sum.c", f"sum_{added}", no_meaning, needs, **macros)


def summed(added: Sum, left: Array, right: Array, s: Array) -> Array:
    """What the C gives."""
    a, b, words = left.astype(np.int64), right.astype(np.int64), [int(w) for w in s[:8]]
    if added.larger is Side.BOTH:
        total = ((a + b) << (LIFT - 1)) + words[4]
    else:
        small, large = (a, b) if added.larger is Side.RIGHT else (b, a)
        lifted = ((small << (LIFT + 1)) - words[3]) >> 1
        total = scale32(lifted, np.asarray(words[0]), np.asarray(-words[2])) + (large << (LIFT - 1)) + words[4]
    zero = (words[6] - (1 << (words[7] - 1))) >> words[7]
    scaled = scale32(total, np.asarray(words[5]), np.asarray(-words[7])) + zero
    return np.asarray(np.clip(scaled, *added.out.bounds)).astype(added.out.to.numpy)


@cache
def add(added: Sum) -> Routine:
    def meaning(left: Array, right: Array, y: Array, count: int, record: Array) -> None:
        y[:count] = summed(added, left[:count], right[:count], record)

    needs = (BASE, sum_routine(added))
    return routine_of(C / "add.c", f"add_{added}", meaning, needs, TYPE=C_TYPES[added.out.to], SUM=f"ig_sum_{added}")


def _unlike(job: Job, to: DType) -> str | None:
    return no_dsp(job) or not_alike(job, to)


def not_alike(job: Job, to: DType) -> str | None:
    """Why this is not one byte with one byte after the other."""
    types = [job.type(0), job.type(1)]
    if to not in (DType.I8, DType.U8) or any(t.dtype is not to for t in types):
        return f"the types are {types[0].dtype.value}, {types[1].dtype.value} and {to.value}, not one type of bytes"
    return "one side is repeated" if any(t.shape != job.node.output.shape for t in types) else None


@fact
def sum_of(job: Job) -> tuple[Sum, Array] | str:
    op = job.node.op
    assert isinstance(op, QAdd)
    return _unlike(job, op.to) or sum_record(op, swapped=False)


def qadd_dsp(job: Job) -> Lowered:
    known = sum_of(job)
    assert not isinstance(known, str)
    return _written(job, "qadd", add(known[0]), known[0], known[1])


def _written(job: Job, name: str, routine: Routine, variant: Sum | Finish, words: Array) -> Lowered:
    out = job.node.output
    left, right = job.operand(0, "a"), job.operand(1, "b")
    record = job.packed(words, "record", DType.I32)
    y = job.writes()
    low, high = job.share("i", out.type.elements, 4)
    count = high - low
    job.k.call(routine, *(Place(b, low, count) for b in (left, right, y)), count, Place(record, idx(0)))
    return job.done(name, f"{name}, {out.type.elements} {out.dtype.value}", f"{name}_dsp({variant})", in_place=True)


@cache
def mul(finish: Finish) -> Routine:
    """The record: zero points, multiplier, offset, right."""

    def meaning(left: Array, right: Array, y: Array, count: int, s: Array) -> None:
        products = (left[:count].astype(np.int64) - int(s[0])) * (right[:count].astype(np.int64) - int(s[1]))
        y[:count] = finished(products[:, None], np.asarray([[0, s[2], s[3], s[4]]], np.int32), finish)[:, 0]

    needs = (BASE, finish_routine(finish))
    return routine_of(C / "mul.c", f"mul_{finish}", meaning, needs, TYPE=C_TYPES[finish.out.to], **finish.macros())


@fact
def product_of(job: Job) -> Scales | str:
    op = job.node.op
    assert isinstance(op, QMul)
    if reason := _unlike(job, op.to):
        return reason
    reach = np.asarray([size_of(op.to, op.a_zero) * size_of(op.to, op.b_zero)])
    multiplier, shift = np.asarray([op.multiplier]), np.asarray([op.shift])
    return scales_of("twice", np.zeros(1, np.int64), reach, multiplier, shift, op.y_zero, op.low, op.high, op.to)


def qmul_dsp(job: Job) -> Lowered:
    op, known = job.node.op, product_of(job)
    assert isinstance(op, QMul) and isinstance(known, Scales)
    words = np.asarray([op.a_zero, op.b_zero, *known.records[0, 1:]], np.int32)
    return _written(job, "qmul", mul(known.finish), known.finish, words)
