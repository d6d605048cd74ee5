"""Float activations with 8-bit weights on the DSP extension: quantised as they come, then multiplied as bytes are (`pairs.py`).

The zero point is known at run time only: a record's first word is the sum of the channel's weights, and sums start at minus the
zero point times that. Results are floats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.contraction.columns import write_columns
from intaglio.kernels.contraction.hybrid import quantize_into
from intaglio.kernels.contraction.problem import Problem, problem_of
from intaglio.kernels.contraction.quantised import runs_of
from intaglio.kernels.dsp.gather import gather
from intaglio.kernels.dsp.pairs import Pairs, Product, columns_of, multiply_single, pack, small, widths_of
from intaglio.kernels.dsp.primitives import no_dsp
from intaglio.kernels.dsp.scaling import WORDS
from intaglio.kernels.dsp.variants import Finish, How, Range
from intaglio.kernels.job import Job, Lowered, fact
from intaglio.kernels.loop import IDX, Place, cast, idx
from intaglio.ops.hybrid import HybridConv, HybridMatMul


@dataclass(frozen=True, slots=True)
class Facts:
    problem: Problem  # of one image, or one row
    weights: Array  # [O, I / group, kh, kw]
    records: Array
    reach: Array


@fact
def facts(job: Job) -> Facts | str:
    """What a kernel needs, or why there is none."""
    op, (weights, scale, bias) = job.node.op, (job.optional(i) for i in (1, 2, 3))
    if reason := no_dsp(job):
        return reason
    if weights is None or scale is None or weights.data is None or scale.data is None or (bias is not None and bias.data is None):
        return "weights, scales or bias are computed"
    if job.type(0).shape[0] != 1:
        return f"the batch has {job.type(0).shape[0]} images or rows, not 1"
    if isinstance(op, HybridConv):
        p, w = problem_of(job), weights.data.astype(np.int64)
        if p.group > 1 and p.depth == 1:
            return "every group has one input channel"
        p = Problem.matrix(p.rows, p.channels, p.out_channels) if p.pointwise else p
    else:
        assert isinstance(op, HybridMatMul)
        w = weights.data.astype(np.int64)[:, :, None, None]
        p = Problem.matrix(1, w.shape[1], w.shape[0])
    if w.size == 0 or not small(w):
        return "the weights are not bytes"
    flat = w.reshape(len(w), -1)
    reach = np.abs(flat).sum(axis=1) * 255
    if int(reach.max()) >= 2**31:
        return "a sum may not fit 32 bits"
    records = np.zeros((len(w), WORDS), np.int32)
    records[:, 0] = flat.sum(axis=1)
    for word, value in ((1, scale), (2, bias)):
        if value is not None and value.data is not None:
            records[:, word] = np.broadcast_to(value.data.reshape(-1).astype(np.float32), (len(w),)).view(np.int32)
    return Facts(p, w, records, reach)


def _packed(job: Job, known: Facts, how: How, single: bool) -> Product:
    p = known.problem
    runs = runs_of(known.weights, p.group, p.joined)
    return pack(job, runs, known.records, known.reach, Finish(how, Range(DType.F32)), single)


def hybrid_conv_dsp(job: Job) -> Lowered:
    op, known, original = job.node.op, facts(job), problem_of(job)
    assert isinstance(op, HybridConv) and isinstance(known, Facts)
    p, count = known.problem, original.height * original.width * original.channels
    x = job.operand(0, "x")
    product = _packed(job, known, How.REAL, single=False)
    q = job.scratch(-(-count // 8) * 8, "q", DType.I8)
    columns = columns_of(job, p, product)
    y = job.writes()
    step, zero = quantize_into(job.k, x, idx(0), count, q, op.asymmetric)
    outside = job.k.let("outside", cast(zero, IDX))
    write_columns(job, p, Pairs(p, product, q, columns, y, outside, widths_of(job), (zero, step)))
    about = f"{original.title('hybrid_conv')}, weights i8"
    return job.done(original.stem("hybrid_conv"), about, f"hybrid_conv_dsp({product.variant})")


def hybrid_matmul_dsp(job: Job) -> Lowered:
    op, k, known = job.node.op, job.k, facts(job)
    assert isinstance(op, HybridMatMul) and isinstance(known, Facts)
    depth, outs = known.problem.channels, known.problem.out_channels
    x = job.operand(0, "x")
    product = _packed(job, known, How.REALROW, single=True)
    q = job.scratch(-(-depth // 8) * 8, "q", DType.I8)
    column = job.scratch(2 * product.pairs, "column", DType.I16)
    y = job.writes()
    step, zero = quantize_into(k, x, idx(0), depth, q, op.asymmetric)
    k.call(gather(1, DType.I8), Place(q, idx(0)), 0, 1, depth, Place(column, idx(0)))
    multiply_single(k, product, column, (idx(0), idx(outs)), y, zero, step)
    about = f"hybrid_matmul [1,{depth}] x i8[{outs},{depth}]"
    return job.done(f"hybrid_matmul_{depth}_{outs}", about, f"hybrid_dense_dsp({product.variant})")
