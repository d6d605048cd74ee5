"""Operators of com.microsoft whose weights are small: blocks of 2, 4 or 8 bits, or quantised attention. Blocks become floats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.frontends.building import reshape, transpose
from intaglio.frontends.onnx.call import TABLE, Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.microsoft import counted
from intaglio.frontends.onnx.rows.microsoft_attention import packed_attention
from intaglio.frontends.onnx.rows.microsoft_quantised import float_product
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.base import widen
from intaglio.ops.binary import Add
from intaglio.ops.convert import Dequantize
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.norm import LayerNorm

MS = "com.microsoft"


def unpacked(packed: Array, bits: int) -> Array:
    """Numbers along the last axis, low bits first."""
    if bits == 8:
        return packed
    parts = [(packed >> np.uint8(at)) & np.uint8(2**bits - 1) for at in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*packed.shape[:-1], -1)


def constant_of(call: OnnxCall, index: int, what: str) -> Array:
    value = call.value(index)
    if value.data is None:
        raise unsupported(f"the {what} of `{call.op}` depend on data", "make them constants")
    return value.data


@importer("MatMulNBits", domain=MS)
def matmul_nbits(call: OnnxCall) -> Answer:
    """x times weights [n, k] in blocks along k, each with a scale and perhaps a zero point. An order says of each k its block."""
    x, rows, columns = call.value(0), call.integer("K"), call.integer("N")
    bits, block = call.integer("bits", 4), call.integer("block_size")
    if bits not in (2, 4, 8) or block < 1:
        raise unsupported(f"`MatMulNBits` with {bits} bits and blocks of {block} is not supported")
    if call.has(3) and call.has(4):
        what = "`MatMulNBits` with an order and with zero points, where ONNX Runtime ignores the zero points"
        raise unsupported(what, "quantise symmetrically, or without an order of activations")
    blocks = -(-rows // block)
    stored = constant_of(call, 1, "weights")
    if stored.size * 8 // bits != columns * blocks * block or x.shape[-1] != rows:
        raise Fault("shape-mismatch", f"`MatMulNBits` of {list(x.shape)} with weights {list(stored.shape)} for {rows} x {columns}")
    codes = unpacked(stored.reshape(columns, -1), bits).reshape(columns, -1)[:, :rows].astype(np.float32)
    order = constant_of(call, 4, "order").reshape(-1)[:rows] if call.has(4) else np.arange(rows) // block
    if order.size != rows or order.min() < 0 or order.max() >= blocks:
        raise Fault("bad-attribute", f"`MatMulNBits` has an order that does not name {blocks} blocks for {rows} rows")
    scales = widen(constant_of(call, 2, "scales"), call.value(2).dtype).astype(np.float32).reshape(columns, blocks)
    zero = _zero_points(call, bits, columns, blocks)[:, order] if call.has(3) else np.asarray(2 ** (bits - 1), np.float32)
    weights = (codes - zero) * scales[:, order]
    wide = call.constant(np.ascontiguousarray(weights.astype(np.float32)))
    wide = wide if x.dtype is DType.F32 else call.constant(weights.astype(x.dtype.numpy), x.dtype)
    return call.emit(MatMul(False, True), x, wide, call.maybe(5))


FP4 = (0.0, 1 / 192, 2 / 3, 1.0, 1 / 3, 1 / 2, 1 / 6, 1 / 4)  # and the same below zero
NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip


@importer("MatMulBnb4", domain=MS)
def matmul_bnb4(call: OnnxCall) -> Answer:
    """x times weights [n, k] as bitsandbytes stores them: the first in the high bits, places in a table, a scale for each block."""
    x, rows, columns = call.value(0), call.integer("K"), call.integer("N")
    block, turned = call.integer("block_size"), bool(call.integer("transB", 1))
    stored, count = constant_of(call, 1, "weights").reshape(-1), rows * columns
    scales = widen(constant_of(call, 2, "scales"), call.value(2).dtype).astype(np.float32).reshape(-1)
    if block < 1 or stored.size != -(-count // 2) or scales.size != -(-count // block):
        what = f"`MatMulBnb4` of {rows} x {columns} numbers in blocks of {block}"
        raise Fault("shape-mismatch", f"{what}, with {stored.size} bytes and {scales.size} scales, is not valid")
    table = np.array(NF4 if call.integer("quant_type") == 1 else [*FP4, *(-n for n in FP4)], np.float32)
    codes = np.stack([stored >> np.uint8(4), stored & np.uint8(15)], axis=-1).reshape(-1)[:count]
    weights = table[codes] * np.repeat(scales, block)[:count]
    wide = call.constant(weights.reshape(columns, rows).astype(x.dtype.numpy), x.dtype)
    return call.emit(MatMul(False, turned), x, wide)


def _zero_points(call: OnnxCall, bits: int, columns: int, blocks: int) -> Array:
    given = call.value(3)
    found = constant_of(call, 3, "zero points")
    if given.dtype.is_float:
        return widen(found, given.dtype).astype(np.float32).reshape(columns, blocks)
    flat = unpacked(found.reshape(columns, -1).astype(np.uint8), bits)[:, :blocks]
    return flat.astype(np.float32).reshape(columns, blocks)


@importer("GatherBlockQuantized", domain=MS)
def gather_block_quantized(call: OnnxCall) -> Answer:
    """Rows of a table whose numbers are in blocks along an axis; the table becomes floats."""
    table, block, bits = call.value(0), call.integer("block_size", 128), call.integer("bits", 4)
    stored, scale = constant_of(call, 0, "table"), call.value(2)
    if table not in call.walk.packed:
        stored = unpacked(stored, bits)
    axis = call.checked_axis(call.integer("quantize_axis", 1), stored.ndim)
    scales = np.repeat(widen(constant_of(call, 2, "scales"), scale.dtype), block, axis)
    zero: Array = np.full(stored.shape, 0 if table in call.walk.packed else 2 ** (bits - 1), np.float32)
    if call.has(3):
        points = constant_of(call, 3, "zero points")
        points = points if call.value(3) in call.walk.packed else unpacked(points, bits)
        zero = np.repeat(points[tuple(slice(n) for n in scale.shape)].astype(np.float32), block, axis)
    cut = tuple(slice(n) for n in stored.shape)
    wide = (stored.astype(np.float32) - zero[cut]) * scales[cut].astype(np.float32)
    floats = call.constant(wide.astype(scale.dtype.numpy), scale.dtype)
    return call.emit(Gather(call.axis(len(stored.shape), 0, "gather_axis")), floats, call.value(1))


@importer("QAttention", domain=MS)
def q_attention(call: OnnxCall) -> Answer:
    """Attention whose projection is a product of bytes."""
    x, w, bias, x_scale, w_scale = (call.value(n) for n in range(5))
    sums = float_product(call, x, w, x_scale, w_scale, call.maybe(6), call.maybe(7), bias)
    return packed_attention(call, sums, [w.shape[1] // 3] * 3, call.maybe(5))


@importer("QLinearConv", domain=MS)
def qlinear_conv(call: OnnxCall) -> Answer:
    """ONNX's own, for pictures that may have their channels last."""
    inner = replace(call, domain="", version=10)
    if not call.integer("channels_last"):
        return TABLE["", "QLinearConv"](inner)
    x, rank = call.value(0), len(call.value(0).shape)
    inner.inputs = [transpose(call, x, (0, rank - 1, *range(1, rank - 1))), *call.inputs[1:]]
    made = TABLE["", "QLinearConv"](inner)
    assert isinstance(made, Value)
    return transpose(call, made, (0, *range(2, rank), 1))


@importer("QEmbedLayerNormalization", domain=MS)
def q_embed_layer_norm(call: OnnxCall) -> Answer:
    """Tables of bytes, with scales behind them."""
    ids, segments = call.value(0), call.maybe(1)
    tables: list[Value | None] = []
    for n in range(5):  # words, positions, segments, gamma, beta
        stored = call.maybe(2 + n)
        scale, zero = call.maybe(8 + n), call.maybe(13 + n)
        if stored is None or scale is None:
            tables.append(None)
            continue
        zero = zero if zero is not None else call.constant(np.zeros((), stored.dtype.numpy), stored.dtype)
        tables.append(call.emit(Dequantize(DType.F32), stored, reshape(call, scale, ()), reshape(call, zero, ())))
    words, positions, kinds, gamma, beta = tables
    if words is None or positions is None or gamma is None or beta is None:
        raise unsupported("`QEmbedLayerNormalization` without its tables is not supported")
    steps = call.constant(np.arange(ids.shape[1], dtype=np.int64))
    total = call.emit(Add(), call.emit(Gather(0), words, ids), call.emit(Gather(0), positions, steps))
    if segments is not None and kinds is not None:
        total = call.emit(Add(), total, call.emit(Gather(0), kinds, segments))
    return [call.emit(LayerNorm(-1, call.real("epsilon", 1e-12)), total, gamma, beta), counted(call, ids, 7)]
