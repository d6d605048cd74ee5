"""Einsum by one loop per letter, and the determinant by elimination: for what no faster operator takes."""

from __future__ import annotations

import math

from intaglio.ir.types import DType, strides_of
from intaglio.kernels.elementwise import offset_of
from intaglio.kernels.expressions import computed_in
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.lanes import Lanes
from intaglio.kernels.loop import Expr, Load, Type, both, cast, idx
from intaglio.ops.matmul import Einsum, einsum_terms
from intaglio.ops.sample import Col2Im


def _letters(term: str, rank: int, dots: int) -> list[str]:
    """One name per axis; the axes that `...` stands for are numbered from the right."""
    before, ellipsis, after = term.partition("...")
    hidden = rank - len(before) - len(after) if ellipsis else 0
    return [*before, *[f"dot{dots - hidden + n}" for n in range(hidden)], *after]


def einsum(job: Job) -> Lowered:
    op, k, node = job.node.op, job.k, job.node
    assert isinstance(op, Einsum)
    values = [v for v in node.inputs if v is not None]
    terms, right = einsum_terms(op.equation, len(values))
    sizes, dots = op.sizes([v.type for v in values])
    for n, size in enumerate(dots):
        sizes[f"dot{n}"] = size
    buffers = [job.reads(v, f"x{n}") for n, v in enumerate(values)]
    y = job.writes()
    e = Lanes.scalar(computed_in(node.output.dtype))
    out = _letters(right, node.output.type.rank, len(dots))
    used = [_letters(t, v.type.rank, len(dots)) for t, v in zip(terms, values, strict=True)]
    summed = sorted({letter for term in used for letter in term} - set(out))
    with k.loops([f"i_{letter}" for letter in out], [sizes[c] for c in out]) as at:
        place = dict(zip(out, at, strict=True))
        total = k.var("total", e.const(0))
        with k.loops([f"s_{letter}" for letter in summed], [sizes[c] for c in summed]) as inner:
            where = {**place, **dict(zip(summed, inner, strict=True))}
            product: Expr | None = None
            for buffer, value, letters in zip(buffers, values, used, strict=True):
                strides = strides_of(value.shape)
                spot: Expr = idx(0)
                for letter, stride, size in zip(letters, strides, value.shape, strict=True):
                    spot = spot + (where[letter] * stride if size > 1 else idx(0))
                factor = e.load(buffer, spot)
                product = factor if product is None else e.mul(product, factor)
            assert product is not None
            k.assign(total, e.add(total, product))
        k.store(y, offset_of(at, list(strides_of(node.output.shape))), cast(total, Type(y.dtype.value)))
    return job.done("einsum", f"einsum {op.equation}, {' '.join(str(list(v.shape)) for v in values)} -> {list(node.output.shape)}")


def det(job: Job) -> Lowered:
    """Gaussian elimination with partial pivots, in double."""
    k = job.k
    shape = job.type(0).shape
    n = shape[-1]
    x = job.operand(0, "x")
    a = job.scratch(n * n, "a", DType.F64)
    y = job.writes()
    e = Lanes.scalar("f64")
    with k.loop("m", 0, math.prod(shape[:-2])) as m:
        with k.loop("i", 0, n * n) as i:
            k.store(
                a,
                i,
                cast(Load(x, m * (n * n) + i, Type(x.dtype.value)), e.type)
                if x.dtype in (DType.F32, DType.F64)
                else cast(Lanes.scalar().load(x, m * (n * n) + i), e.type),
            )
        product = k.var("product", e.const(1.0))
        with k.loop("c", 0, n) as c:
            pivot = k.var("pivot", c)
            with (
                k.loop("r", c + 1, n) as r,
                k.when(e.compare("gt", e.abs(e.load(a, r * n + c)), e.abs(e.load(a, pivot * n + c)))),
            ):
                k.assign(pivot, r)
            with k.when(pivot.compare("ne", c)):
                k.assign(product, e.neg(product))
                with k.loop("j", 0, n) as j:
                    held = k.let("held", e.load(a, c * n + j))
                    k.store(a, c * n + j, e.load(a, pivot * n + j))
                    k.store(a, pivot * n + j, held)
            lead = k.let("lead", e.load(a, c * n + c))
            k.assign(product, e.mul(product, lead))
            with k.when(e.compare("ne", lead, e.const(0.0))), k.loop("r", c + 1, n) as r:
                factor = k.let("factor", e.div(e.load(a, r * n + c), lead))
                with k.loop("j", c, n) as j:
                    k.store(a, r * n + j, e.sub(e.load(a, r * n + j), e.mul(factor, e.load(a, c * n + j))))
        k.store(y, m, cast(cast(product, Type(computed_in(y.dtype))), Type(y.dtype.value)))
    return job.done("det", f"det of {list(shape)}")


def col2im(job: Job) -> Lowered:
    op, k = job.node.op, job.k
    assert isinstance(op, Col2Im)
    x, y = job.operand(0, "x"), job.writes()
    out = job.node.output.shape
    rank = len(op.image)
    steps = op.steps()
    e = Lanes.scalar(computed_in(y.dtype))
    planes = out[0] * out[1]
    block, columns = math.prod(op.block), math.prod(steps)
    with k.loop("p", 0, planes) as p, k.loops([f"i{n}" for n in range(rank)], list(op.image)) as at:
        total = k.var("total", e.const(0))
        with k.loops([f"k{n}" for n in range(rank)], list(op.block)) as tap:
            cond: Expr | None = None
            place: Expr = idx(0)
            for n in range(rank):
                far = k.let(f"f{n}", at[n] + op.pads[n] - tap[n] * op.dilations[n])
                step = k.let(f"s{n}", far // op.strides[n])
                tests = [far.compare("ge", 0), step.compare("lt", steps[n])]
                if op.strides[n] > 1:
                    tests.append((step * op.strides[n]).compare("eq", far))
                for test in tests:
                    cond = test if cond is None else both(cond, test)
                place = place * steps[n] + step
            assert cond is not None
            with k.when(cond):
                row = (p * block + offset_of(tap, list(strides_of(op.block)))) * columns
                k.assign(total, e.add(total, e.load(x, row + place)))
        k.store(y, p * math.prod(op.image) + offset_of(at, list(strides_of(op.image))), cast(total, Type(y.dtype.value)))
    return job.done("col2im", f"col2im {list(job.type(0).shape)} -> {list(out)}")
