"""Arithmetic of reals between bytes, as models with QDQ pairs have it around a sum: two vectors of floats at a time.

    y = chain(a, b, steps=[dequantize(a), dequantize(b), add, quantize])      16 bytes of each side with AVX2
      lo, hi = widen(widen(a[i..]) - a_zero)                                  32 bits, exact
      t = tofloat(lo) * a_scale                                               then the steps of the chain, as for one number
      y[i..] = bytes(adds(narrow(toint(t / scale), ...), zero))

Every number is computed by the operations of `elementwise.py`, which takes what is left over of a row, and all else: scales that
are not one known number, functions that vectors compute in another way (`EXACT` lists those that they do not), other types.

One or two operands of bytes have at most 65536 values together. So it is tried out, when a model is compiled, whether a product can
take the place of the division: where all of them give the same bytes, it does. A sum takes a seventh less time then (Zen 3).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType, strides_of
from intaglio.kernels.contraction.quantised import BYTES
from intaglio.kernels.contraction.scaling import Bytes, i32, nearest
from intaglio.kernels.elementwise import broadcast_strides, merge_axes, offset_of, one_lane, steps_of
from intaglio.kernels.expressions import apply
from intaglio.kernels.integer_elementwise import HALVES, repeated, widened
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import Buffer, Expr, Load, Num, Op, Type
from intaglio.ops.base import Elementwise, Step, apply_steps
from intaglio.ops.convert import Dequantize, Quantize

MOST_TRIED = 2  # operands of bytes
NEIGHBOURS = (0, 1, -1, 2, -2)  # of the reciprocal of a scale: floats that are tried in its place
EXACT = frozenset({"abs", "add", "clip", "div", "max", "min", "mul", "neg", "relu", "sub"})


@dataclass(frozen=True, slots=True)
class Facts:
    values: tuple[Value, ...]
    steps: tuple[Step, ...]
    zeros: dict[int, int]  # of the operands that are bytes
    sizes: list[int]
    walks: list[list[int]]
    out: list[int]
    product: float | None  # what the last step may multiply by instead of dividing


def _number(value: Value) -> float | None:
    return None if value.data is None or value.data.size != 1 else float(value.data.reshape(-1)[0])


def _operands(steps: tuple[Step, ...], values: tuple[Value, ...]) -> dict[int, int] | str:
    """The zero points of operands that are bytes, or what stands against vectors."""
    zeros: dict[int, int] = {}
    floats = {n for n, v in enumerate(values) if v.dtype is DType.F32}
    for n, step in enumerate(steps):
        op, (first, *rest) = step.op, step.args
        if isinstance(op, Dequantize | Quantize):
            scale, zero = (_number(values[a]) if a < len(values) else None for a in rest)
            if scale is None or zero is None or values[rest[0]].dtype is not DType.F32:
                return "a scale or zero point is not one known number"
            if isinstance(op, Dequantize):
                if first >= len(values) or values[first].dtype not in BYTES or op.to is not DType.F32:
                    return "what is dequantised is no operand of bytes"
                if zeros.setdefault(first, int(zero)) != int(zero):
                    return "an operand has two zero points"
            elif op.half_away or op.to not in BYTES or n != len(steps) - 1 or first not in floats:
                return "it is not quantised to bytes at its end, half to even"
            if not isinstance(op, Dequantize):
                continue
        elif op.NAME not in EXACT or any(a not in floats for a in step.args):
            return f"`{op.NAME}` is not computed in vectors as it is one by one"
        floats.add(len(values) + n)
    return zeros


def _every_operand(values: tuple[Value, ...]) -> list[Array] | None:
    """All that the operands can be, in all combinations; None where they are too many."""
    found: list[Array] = []
    bytes_ = [v for v in values if v.data is None or v.data.size != 1]
    if len(bytes_) > MOST_TRIED or any(v.dtype not in BYTES for v in bytes_):
        return None
    for value in values:
        if value.data is not None and value.data.size == 1:
            found.append(value.data.reshape(()))
            continue
        info = np.iinfo(value.dtype.numpy)
        numbers = np.arange(info.min, info.max + 1).astype(value.dtype.numpy)
        found.append(numbers[:, None] if value is bytes_[0] else numbers)
    return found


def _product(steps: tuple[Step, ...], values: tuple[Value, ...]) -> float | None:
    """A factor that gives the byte of the division by the scale for everything that the operands can be."""
    op, last = steps[-1].op, steps[-1].args
    operands = _every_operand(values) if isinstance(op, Quantize) else None
    scale, zero = (_number(values[a]) if a < len(values) else None for a in last[1:]) if isinstance(op, Quantize) else (None, None)
    if operands is None or not isinstance(op, Quantize) or scale is None or zero is None or last[0] != len(values) + len(steps) - 2:
        return None
    with np.errstate(all="ignore"):
        real, expected = apply_steps(steps[:-1], operands), apply_steps(steps, operands)
        factor = np.float32(1.0) / np.float32(scale)
        for away in NEIGHBOURS:
            tried = (factor.view(np.int32) + np.int32(away)).view(np.float32)
            product = (real * tried).astype(np.float32)
            inside = bool((np.abs(product) < 2.0**30).all())  # and so are numbers: they need no limits
            if inside and np.array_equal(np.clip(np.rint(product) + zero, op.low, op.high), expected):
                return float(tried)
    return None


@fact
def byte_chain_of(job: Job) -> Facts | str:
    """What the kernel needs, or why it does not apply."""
    op, out = job.node.op, job.node.output.type
    assert isinstance(op, Elementwise)
    values = tuple(v for v in job.node.inputs if v is not None)
    if not job.isa.integers.dots:
        return "the target has no integer vectors"
    steps = steps_of(op, len(values))
    if out.dtype not in (*BYTES, DType.F32) or not any(isinstance(step.op, Dequantize | Quantize) for step in steps):
        return "neither operands nor the result are bytes that stand for reals"
    zeros = _operands(steps, values)
    if isinstance(zeros, str):
        return zeros
    sizes, walks = merge_axes(out.shape, [broadcast_strides(v.shape, out.shape) for v in values] + [strides_of(out.shape)])
    if not sizes or sizes[-1] < 2 * job.isa.lanes:
        return f"the last axis does not fill a vector of {2 * job.isa.lanes}"
    if any(w[-1] not in (0, 1) for w in walks[:-1]):
        return "an operand is not read in order along the last axis"
    return Facts(values, steps, zeros, sizes, walks[:-1], walks[-1], _product(steps, values))


def byte_chain(job: Job) -> Lowered:
    op, k, known = job.node.op, job.k, byte_chain_of(job)
    assert isinstance(op, Elementwise) and not isinstance(known, str)
    buffers = [job.reads(v, f"x{n}") for n, v in enumerate(known.values)]
    y, out = job.writes(), job.node.output.type
    wide, outer = 2 * job.isa.lanes, len(known.sizes) - 1
    with k.loops([f"i{n}" for n in range(outer)], known.sizes[:outer]) as at:
        bases = [k.let(f"at{n}", offset_of(at, w[:outer])) for n, w in enumerate(known.walks)]
        to = k.let("to", offset_of(at, known.out[:outer]))
        done = known.sizes[-1] // wide * wide
        with k.loop("i", 0, done, wide) as i:
            places = [base + i * walk[-1] for base, walk in zip(bases, known.walks, strict=True)]
            halves = _halves(job, known, buffers, places)
            _store(job, known, y, to + i, [_computed(job, known, values) for values in halves])
        with k.loop("i", done, known.sizes[-1]) as i:
            one_lane(k, known.steps, buffers, [b + i * w[-1] for b, w in zip(bases, known.walks, strict=True)], y, to + i)
    name = "_".join(s.op.NAME for s in known.steps[:4])
    shapes = " ".join(f"{v.dtype.value}{list(v.shape)}" for v in known.values if v.data is None)
    about = f"{' '.join(s.op.NAME for s in known.steps)} {shapes} -> {out.dtype.value}{list(out.shape)}"
    return job.done(name, about, f"byte_chain(lanes={wide})", in_place=True)


def _halves(job: Job, known: Facts, buffers: list[Buffer], places: list[Expr]) -> list[list[Expr]]:
    """Two vectors of every operand: of bytes as whole numbers without their zero point, in floats."""
    k, e, isa = job.k, job.vector, job.isa
    halves: list[list[Expr]] = [[], []]
    for n, (value, buffer, place, walk) in enumerate(zip(known.values, buffers, places, known.walks, strict=True)):
        if n in known.zeros:
            read = widened if walk[-1] else repeated
            short = read(k, isa, buffer, place, known.zeros[n], n)
            for half, values in zip(HALVES, halves, strict=True):
                whole = Op(f"vwiden_{half}", (short,), i32(isa))
                values.append(k.let(f"x{n}_{half}", Op("vtofloat", (whole,), e.type)))
            continue
        for h, values in enumerate(halves):
            if walk[-1]:
                values.append(k.let(f"x{n}_{HALVES[h]}", e.load(buffer, place + h * isa.lanes)))
            else:  # a scale, a zero point, or one float of a row
                one: Expr = Load(buffer, place, Type("f32")) if value.dtype is DType.F32 else Num(0.0, Type("f32"))
                values.append(e.splat(one))
    return halves


def _computed(job: Job, known: Facts, values: list[Expr]) -> Expr:
    """The steps of the chain, up to the nearest whole number where it ends in bytes."""
    k, e = job.k, job.vector
    values = list(values)
    for step in known.steps:
        args = [values[a] for a in step.args]
        match step.op:
            case Dequantize():
                result = e.mul(args[0], args[1])
            case Quantize() if known.product is not None:
                result = nearest(e, e.mul(args[0], e.const(known.product)), small=True)
            case Quantize():
                result = nearest(e, e.div(args[0], args[1]))
            case _:
                result = apply(k, e, (Step(step.op, tuple(range(len(args)))),), args)
        values.append(k.let("t", result))
    return values[-1]


def _store(job: Job, known: Facts, y: Buffer, to: Expr, results: list[Expr]) -> None:
    last = known.steps[-1]
    if isinstance(last.op, Quantize):
        zero = _number(known.values[last.args[2]])
        assert zero is not None
        Bytes(job.isa, int(zero), last.op.low, last.op.high, last.op.to).store(job.k, y, to, 2 * job.isa.lanes, results)
        return
    for h, result in enumerate(results):
        job.k.store(y, to + h * job.isa.lanes, result)
