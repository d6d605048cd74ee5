"""From sums to bytes: what each output channel is scaled by, as records of four words, and the C that applies one.

    start        where the sums begin: the bias, with the zero point of x folded into it
    multiplier   31 bits
    offset       2^(right - 1) + (y_zero << right): rounding and zero point in one addition
    right        the shift

`twice` (a convolution of TFLite) is SMMLAR, an addition of the sign, a shift, SSAT; `once` (fully connected) is SMMLA, a shift,
SSAT. `clipped` is `twice` without the sign, where a ReLU follows: the sign changes results of negative sums only, which the limit
at the zero point makes equal. It is for the DSP extension; other cores gain nothing. All take the sum doubled. They are exact where
every channel shifts right by at least one bit and no sum can overflow or hit a tie of `once`; where that is not so, `slow` and
`slowonce` do what the reference does, step by step; `float` is ONNX Runtime's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import assert_never

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.quantised import Quantised, not_bytes, quantised_of
from intaglio.kernels.dsp.primitives import C, operations
from intaglio.kernels.dsp.variants import Finish, How, range_of
from intaglio.kernels.job import Job, fact
from intaglio.kernels.routines import Routine, no_meaning, routine_of
from intaglio.ops.fixed_point import scale32, scale_float, scale_once
from intaglio.ops.quantised import QConv, QMatMul

WORDS = 4


@dataclass(frozen=True, slots=True)
class Scales:
    """`records` is [channels, 4]."""

    finish: Finish
    records: Array


def scales_of(
    scaling: str, starts: Array, reach: Array, multiplier: Array, shift: Array | None, y_zero: int, low: int, high: int, to: DType,
    *, dsp: bool = True,
) -> Scales | str:  # fmt: skip
    """Records for these channels, or why there are none; `reach` is the largest size of each channel's sum, bias included."""
    count = starts.size
    records = np.zeros((count, WORDS), np.int64)
    records[:, 0] = starts
    out = range_of(to, low, high)
    if scaling == "float":
        records[:, 1] = np.broadcast_to(multiplier, (count,)).astype(np.float32).view(np.int32)
        records[:, 2] = y_zero
        return Scales(Finish(How.FLOAT, out), records.astype(np.int32))
    if scaling not in ("twice", "once") or shift is None:
        return f"sums are scaled by `{scaling}`"
    if int(reach.max(initial=0)) >= 2**31:
        return "a sum may not fit 32 bits"
    m = np.broadcast_to(multiplier, (count,)).astype(np.int64)
    right = -np.broadcast_to(shift, (count,)).astype(np.int64)
    records[:, 1] = m
    if not _quick(scaling, m, right, reach, y_zero):
        records[:, 2], records[:, 3] = y_zero, -right
        return Scales(Finish(How.SLOW if scaling == "twice" else How.SLOWONCE, out), records.astype(np.int32))
    records[:, 2] = (1 << (right - 1)) + (y_zero << right)
    records[:, 3] = right
    clipped = dsp and scaling == "twice" and out.bounds[0] >= y_zero
    return Scales(Finish(How.CLIPPED if clipped else How(scaling), out), records.astype(np.int32))


def _quick(scaling: str, m: Array, right: Array, reach: Array, y_zero: int) -> bool:
    if (m < 0).any() or (right < 1).any() or (right > 31).any() or (reach >= 2**30).any():
        return False
    top = reach + (1 << (right - 1)) + (abs(y_zero) << right) + 1
    if (top >= 2**31).any():
        return False
    if scaling == "once":  # a tie needs 30 + right zeros at the end of sum * multiplier
        zeros = np.asarray([(int(x) & -int(x)).bit_length() - 1 if x else 64 for x in m])
        return bool((zeros + np.asarray([int(r).bit_length() for r in reach]) < 30 + right).all())
    return True


@dataclass(frozen=True, slots=True)
class Scaled:
    """A contraction of bytes with known weights: pointwise convolutions and products are matrices."""

    name: str
    problem: Problem
    numbers: Quantised
    scales: Scales

    @property
    def stem(self) -> str:
        p = self.problem
        return p.stem("qconv") if self.name == "qconv" else f"{self.name}_{p.channels}_{p.out_channels}"

    @property
    def title(self) -> str:
        """The first line of a kernel's comment."""
        p, kind = self.problem, self.numbers.x.value
        if self.name == "qconv":
            return f"{p.title('qconv')}, {kind}"
        return f"{self.name} of {p.rows} rows, {p.channels} -> {p.out_channels}, {kind}"


@fact
def scaled_of(job: Job) -> Scaled | str:
    """What is known about a contraction of bytes, or why it is none that routines take."""
    op = job.node.op
    if reason := not_bytes(job, (DType.I16,)):
        return reason
    if isinstance(op, QMatMul) and job.type(1).rank != 2:
        return "the right side is not a matrix"
    n = quantised_of(job)
    if isinstance(n, str):
        return n
    if n.real_bias is not None:
        return "the bias is a float"
    starts = n.starts(n.x_zero)
    scales = scales_of(n.scaling, starts, n.reach, n.multiplier, n.shift, n.y_zero, n.low, n.high, n.to, dsp=job.isa.dsp)
    if isinstance(scales, str):
        return scales
    if isinstance(op, QMatMul):
        return Scaled("qmatmul", Problem.matrix(job.node.output.type.elements // n.outs, n.weights.shape[1], n.outs), n, scales)
    p = problem_of(job)
    if p.pointwise and isinstance(op, QConv) and not op.epilogue:
        return Scaled("qconv1x1", Problem.matrix(p.rows, p.channels, p.out_channels), n, scales)
    return Scaled("qconv", p, n, scales)


def real_results(sums: Array, records: Array, finish: Finish, step: float) -> Array:
    """Sums [..., channels] as floats; `multiplier` and `offset` are the bits of scale and bias."""
    scale, bias = (records[:, i].astype(np.int32).view(np.float32) for i in (1, 2))
    real = sums.astype(np.float32)
    scaled = real * scale * np.float32(step) if finish.how is How.REAL else real * (np.float32(step) * scale)
    return np.asarray(scaled + bias, np.float32)


def finished(sums: Array, records: Array, finish: Finish) -> Array:
    """Sums [..., channels] as bytes, as the C does it."""
    multiplier, offset, right = (records[:, i].astype(np.int64) for i in (1, 2, 3))
    match finish.how:
        case How.FLOAT:
            scaled = scale_float(sums, records[:, 1].astype(np.int32).view(np.float32)) + offset
        case How.SLOW:
            scaled = scale32(sums, multiplier, right) + offset
        case How.SLOWONCE:
            scaled = scale_once(sums, multiplier, right) + offset
        case How.TWICE:
            wide = 2 * sums.astype(np.int64)
            scaled = ((wide * multiplier + (1 << 31) >> 32) + offset + (wide >> 63)) >> right
        case How.CLIPPED:
            scaled = ((2 * sums.astype(np.int64) * multiplier + (1 << 31) >> 32) + offset) >> right
        case How.ONCE:
            scaled = ((2 * sums.astype(np.int64) * multiplier >> 32) + offset) >> right
        case How.REAL | How.REALROW:
            raise AssertionError("floats: real_results")
        case _:
            assert_never(finish.how)
    return np.asarray(np.clip(scaled, *finish.out.bounds)).astype(finish.out.to.numpy)


_CALLS = {How.TWICE: ("smmlar",), How.CLIPPED: ("smmlar",), How.ONCE: ("smmla",), How.FLOAT: ("as_float",)}
_FUNCTIONS = {How.SLOW: ("ig_scale32_i32",), How.SLOWONCE: ("ig_scale_once_i32",), How.FLOAT: ("ig_scale_float_i32",)}


@cache
def finish_routine(finish: Finish) -> Routine:
    """`ig_finish_VARIANT(sum, multiplier, offset, right)`: the sum doubled where the quick ways want it."""
    name = f"finish_{finish}"
    if finish.real:
        needs = operations("as_float")
        return routine_of(C / "finish_real.c", name, no_meaning, needs, REALROW=finish.how is How.REALROW)
    needs = operations(*_CALLS.get(finish.how, ()), f"sat_{finish.out.to.value}")
    ways = {how.name: finish.how is how for how in (How.TWICE, How.CLIPPED, How.ONCE, How.SLOW, How.SLOWONCE)}
    return routine_of(C / "finish.c", name, no_meaning, needs, _FUNCTIONS.get(finish.how, ()), **finish.out.macros(), **ways)
