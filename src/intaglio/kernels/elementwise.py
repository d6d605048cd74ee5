"""Elementwise operators and chains of them: one loop over the output, as few and as long loops as broadcasting allows.

    y = chain(x[64,56,56], s[64,1,1], steps=[mul(0,1), relu(2)])
      for i0 in 0..64:  for i1 in 0..3136 step 8:  y[...] = max(0, x[...] * splat(s[i0]))

Axes that every operand walks in the same way are merged. The last axis runs in vectors when all arithmetic is f32; the rest of
it, and every other type, runs one lane at a time. Works in place.
"""

from __future__ import annotations

from intaglio.ir.sizes import most
from intaglio.ir.types import DType, Shape, strides_of
from intaglio.kernels.builder import Builder
from intaglio.kernels.expressions import apply, vectorizable
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Buffer, Expr, Load, Type, cast, idx
from intaglio.ops.base import Chain, Elementwise, Step


def broadcast_strides(shape: Shape, out: Shape) -> tuple[int, ...]:
    """Strides of an operand along the axes of the output; 0 where it repeats."""
    strides = strides_of(shape)
    lead = len(out) - len(shape)
    return tuple(0 if a < lead or shape[a - lead] == 1 else strides[a - lead] for a in range(len(out)))


def merge_axes(sizes: Shape, walks: list[tuple[int, ...]]) -> tuple[list[int], list[list[int]]]:
    """Join neighbouring axes that all operands walk as one. Returns sizes and strides per operand."""
    kept: list[int] = []
    strides: list[list[int]] = [[] for _ in walks]
    for axis, size in enumerate(sizes):
        if size == 1:
            continue
        if kept and all(s[-1] == w[axis] * size for s, w in zip(strides, walks, strict=True)):
            kept[-1] *= size
            for s, w in zip(strides, walks, strict=True):
                s[-1] = w[axis]
        else:
            kept.append(size)
            for s, w in zip(strides, walks, strict=True):
                s.append(w[axis])
    return kept, strides


def offset_of(indices: list[Expr], strides: list[int]) -> Expr:
    total: Expr = idx(0)
    for i, s in zip(indices, strides, strict=True):
        total = total + i * s
    return total


def steps_of(op: Elementwise, operands: int) -> tuple[Step, ...]:
    """Those of a chain; any other operator is one step."""
    return op.steps if isinstance(op, Chain) else (Step(op, tuple(range(operands))),)


def elementwise(job: Job) -> Lowered:
    node, k = job.node, job.k
    assert isinstance(node.op, Elementwise)
    values = [v for v in node.inputs if v is not None]
    steps = steps_of(node.op, len(values))
    buffers = [job.reads(v, f"x{n}") for n, v in enumerate(values)]
    y = job.writes()
    out = node.output.type
    sizes, strides = merge_axes(out.shape, [broadcast_strides(v.shape, out.shape) for v in values] + [strides_of(out.shape)])
    *walks, out_walk = strides
    vector = out.dtype is DType.F32 and vectorizable(steps, [v.dtype for v in values]) and job.isa.lanes > 1
    ok = vector and bool(sizes) and all(w[-1] in (0, 1) for w in walks) and most(sizes[-1]) >= job.isa.lanes
    outer = len(sizes) - 1 if sizes else 0
    with k.loops([f"i{n}" for n in range(outer)], sizes[:outer]) as at:
        bases = [k.let(f"at{n}", offset_of(at, w[:outer])) for n, w in enumerate(walks)]
        to = k.let("to", offset_of(at, out_walk[:outer]))
        last, inner = (sizes[-1], [w[-1] for w in walks]) if sizes else (1, [0] * len(walks))
        done = last // job.isa.lanes * job.isa.lanes if ok else 0
        if most(done):
            invariant = [s == 0 for s in inner]
            held = [
                k.let(f"v{n}", job.vector.splat(Load(b, bases[n], Type("f32")))) if invariant[n] else None
                for n, b in enumerate(buffers)
            ]
            with k.loop("i", 0, done, job.isa.lanes) as i:
                given = [held[n] or k.let(f"v{n}", job.vector.load(b, bases[n] + i)) for n, b in enumerate(buffers)]
                k.store(y, to + i, apply(k, job.vector, steps, given))
        with k.loop("i", done, last) as i:
            one_lane(
                k,
                steps,
                buffers,
                [bases[n] + i * s for n, s in enumerate(inner)],
                y,
                to + i * (out_walk[-1] if sizes else 0),
            )
    name = node.op.NAME if not isinstance(node.op, Chain) else "_".join(s.op.NAME for s in steps[:4])
    shapes = " ".join(f"{v.dtype.value}{list(v.shape)}" for v in values)
    about = f"{_expression(steps, len(values))}\n{shapes} -> {out.dtype.value}{list(out.shape)}"
    lanes = f"(lanes={job.isa.lanes})" if ok else ""
    return job.done(name, about, f"elementwise{lanes}", in_place=True)


def one_lane(k: Builder, steps: tuple[Step, ...], buffers: list[Buffer], places: list[Expr], y: Buffer, to: Expr) -> None:
    given = [k.let(f"v{n}", Load(b, p, Type(b.dtype.value))) for n, (b, p) in enumerate(zip(buffers, places, strict=True))]
    value = apply(k, Lanes.scalar(), steps, given)
    k.store(y, to, cast(value, Type(y.dtype.value)))


def _expression(steps: tuple[Step, ...], operands: int) -> str:
    """The fused expression as a formula of x0, x1, ..."""
    texts = [f"x{n}" for n in range(operands)]
    for step in steps:
        texts.append(f"{step.op.NAME}({', '.join(texts[a] for a in step.args)})")
    return f"y = {texts[-1]}"[:200]
