"""The sum of two quantised tensors of bytes with MVE, four numbers at a time. Records and rounding are those of `dsp/sums.py`."""

from __future__ import annotations

from functools import cache

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.dsp.primitives import BASE
from intaglio.kernels.dsp.sums import not_alike, sum_record, summed
from intaglio.kernels.dsp.variants import C_TYPES, Side, Sum
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Place, idx
from intaglio.kernels.mve.rows import MVE, C
from intaglio.kernels.routines import Routine, routine_of
from intaglio.ops.quantised import QAdd


@cache
def add(added: Sum) -> Routine:
    def meaning(left: Array, right: Array, y: Array, count: int, record: Array) -> None:
        y[:count] = summed(added, left[:count], right[:count], record)

    (low, high), kind = added.out.bounds, added.out.to
    small, large = ("left", "right") if added.larger is Side.RIGHT else ("right", "left")
    return routine_of(
        C / "add.c", f"vector_add_{added}", meaning, (BASE, MVE), TYPE=C_TYPES[kind], SIGNED=kind is DType.I8,
        BOTH=added.larger is Side.BOTH, SMALL=small, LARGE=large, LOW=low, HIGH=high,
    )  # fmt: skip


@fact
def sum_of(job: Job) -> tuple[Sum, Array] | str:
    """What the kernel needs, or why it does not apply."""
    op = job.node.op
    assert isinstance(op, QAdd)
    if job.isa.name != "mve":
        return "the core has no MVE"
    return not_alike(job, op.to) or sum_record(op, swapped=False)


def qadd_mve(job: Job) -> Lowered:
    known, out = sum_of(job), job.node.output
    assert not isinstance(known, str)
    left, right = job.operand(0, "a"), job.operand(1, "b")
    record, y = job.packed(np.asarray(known[1], np.int32), "record", DType.I32), job.writes()
    places = [Place(buffer, idx(0)) for buffer in (left, right, y)]
    job.k.call(add(known[0]), *places, out.type.elements, Place(record, idx(0)))
    return job.done("qadd", f"qadd, {out.type.elements} {out.dtype.value}", f"qadd_mve({known[0]})", in_place=True)
