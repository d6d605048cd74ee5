"""Float activations with 8-bit weights on the DSP extension: quantised as they come, then multiplied as bytes are (`conv.py`).

The zero point is known at run time only: a record's first word is the sum of the channel's weights, and sums start at minus the
zero point times that. Results are floats.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.ir.graph import Array
from intaglio.ir.types import DType
from intaglio.kernels.contraction.problem import Problem as Geometry
from intaglio.kernels.dsp.conv import Product, pack_product, widths, write_image
from intaglio.kernels.dsp.dense import dense
from intaglio.kernels.dsp.gather import gather
from intaglio.kernels.dsp.variants import Finish, How, Range
from intaglio.kernels.hybrid import quantize_into
from intaglio.kernels.job import Job, Lowered
from intaglio.kernels.loop import IDX, Expr, Place, cast, idx
from intaglio.ops.hybrid import HybridConv, HybridMatMul


def _product(job: Job, groups: int, runs: Array, finish: Finish, single: bool) -> Product | None:
    """Weights [outs, runs, length] of a hybrid operator, with its scales and bias."""
    scale, bias = job.optional(2), job.optional(3)
    known = scale is not None and scale.data is not None and (bias is None or bias.data is not None)
    if not job.isa.dsp or not known or scale is None or scale.data is None or runs.size == 0 or int(runs.min()) < -128:
        return None
    outs = len(runs)
    records = np.zeros((outs, 4), np.int32)
    records[:, 0] = runs.reshape(outs, -1).sum(axis=1)
    records[:, 1] = np.broadcast_to(scale.data.reshape(-1).astype(np.float32), (outs,)).view(np.int32)
    if bias is not None and bias.data is not None:
        records[:, 2] = np.broadcast_to(bias.data.reshape(-1).astype(np.float32), (outs,)).view(np.int32)
    reach = np.abs(runs.reshape(outs, -1)).sum(axis=1) * 255
    return pack_product(job, groups, runs, records, reach, finish, single) if int(reach.max()) < 2**31 else None


def hybrid_conv_dsp(job: Job) -> Lowered | None:
    op, weights = job.node.op, job.node.inputs[1]
    assert isinstance(op, HybridConv)
    if weights is None or weights.data is None or job.type(0).shape[0] != 1 or weights.shape[1] < 2 <= op.group:
        return None
    _, h, w, c = job.type(0).shape
    _, oh, ow, outs = job.node.output.shape
    kh, kw = weights.shape[2:]
    (sh, sw), (dh, dw) = op.strides, op.dilations
    geo = Geometry(1, h, w, c, oh, ow, outs, (kh, kw), (sh, sw), (op.pads[0], op.pads[1]), (dh, dw), op.group)
    if (kh, kw) == (sh, sw) == (1, 1) and not any(op.pads) and op.group == 1:  # all pixels are one row
        geo = Geometry(1, 1, h * w, c, 1, oh * ow, outs, (1, 1), (1, 1), (0, 0), (1, 1), 1)
    joint = dw == 1 and op.group == 1
    runs = weights.data.astype(np.int64).transpose(0, 2, 3, 1).reshape(outs, kh * (1 if joint else kw), -1)
    x = job.operand(0, "x")
    product = _product(job, op.group, runs, Finish(How.REAL, Range(DType.F32)), single=False)
    if product is None:
        return None
    q = job.scratch(-(-h * w * c // 8) * 8, "q", DType.I8)
    columns = job.scratch(2 * widths(job)[0] * product.pairs, "columns", DType.I16)
    y = job.writes()
    step, zero = quantize_into(job.k, x, idx(0), h * w * c, q, op.asymmetric)

    def more(_: Expr) -> tuple[Place | Expr, ...]:
        return (zero, step)

    write_image(job, geo, q, columns, y, product, joint, job.k.let("outside", cast(zero, IDX)), more)
    about = f"hybrid_conv {kh}x{kw}, {c} -> {outs} channels, {h}x{w} -> {oh}x{ow}, weights i8"
    return job.done(f"hybrid_conv{kh}x{kw}_{c}_{outs}", about, f"hybrid_conv_dsp({product.variant})")


def hybrid_matmul_dsp(job: Job) -> Lowered | None:
    op, weights = job.node.op, job.node.inputs[1]
    assert isinstance(op, HybridMatMul)
    if weights is None or weights.data is None or job.type(0).shape[0] != 1:
        return None
    columns, depth = weights.shape
    x = job.operand(0, "x")
    product = _product(job, 1, weights.data.astype(np.int64)[:, None, :], Finish(How.REALROW, Range(DType.F32)), single=True)
    if product is None:
        return None
    k = job.k
    q = job.scratch(-(-depth // 8) * 8, "q", DType.I8)
    column = job.scratch(2 * product.pairs, "column", DType.I16)
    y = job.writes()
    step, zero = quantize_into(k, x, idx(0), depth, q, op.asymmetric)
    k.call(gather(1, DType.I8), Place(q, idx(0)), 0, 1, depth, Place(column, idx(0)))
    places = [Place(buffer, idx(0)) for buffer in (product.w, product.scale, column)]
    k.call(dense(replace(product.variant, column="column")), *places, product.pairs, product.outs, Place(y, idx(0)), zero, step)
    about = f"hybrid_matmul [1,{depth}] x i8[{columns},{depth}]"
    return job.done(f"hybrid_matmul_{depth}_{columns}", about, f"hybrid_dense_dsp({product.variant})")
