"""Other operators of com.microsoft: complex numbers, inverses, hashes, windows, and what forbids words that were said before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from intaglio.frontends.building import cast, concat, expand, padded, part, reshape, transpose, unsqueeze
from intaglio.frontends.onnx.call import TABLE, Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.pooling import pool_window
from intaglio.frontends.onnx.rows.signal import by_matrix, dft_matrix, real_inverse
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import (
    Add,
    BitwiseOr,
    BitwiseXor,
    Div,
    Equal,
    LogicalOr,
    Max,
    Mul,
    ShiftLeft,
    ShiftRight,
    Sub,
    Where,
)
from intaglio.ops.index import Gather, GatherElements, ScatterElements
from intaglio.ops.move import Slice
from intaglio.ops.reduce import ArgReduce, Reduce
from intaglio.ops.small import BitCast
from intaglio.ops.unary import Abs, IsInf, IsNan, LogicalNot

MS = "com.microsoft"
MOST_ROWS = 64  # of a matrix to invert: each becomes some fifteen nodes


@importer("ConvTransposeWithDynamicPads", domain=MS)
def conv_transpose(call: OnnxCall) -> Answer:
    """ONNX's, with pads that are an operand."""
    import onnx

    pads = call.maybe_int_list(2, "pads")
    attributes = call.attributes if pads is None else call.attributes | {"pads": onnx.helper.make_attribute("pads", pads)}
    inner = replace(call, op="ConvTranspose", domain="", version=11, attributes=attributes)
    inner.inputs = [call.item(0), call.item(1), call.item(3)]
    return TABLE["", "ConvTranspose"](inner)


@importer("UnfoldTensor", domain=MS)
def unfold(call: OnnxCall) -> Answer:
    """All slices of a length along an axis, which become the last axis."""
    x = call.value(0)
    axis, length, step = call.axis(len(x.shape), -1, "dim"), call.integer("size"), call.integer("step", 1)
    if step < 1 or not 1 <= length <= x.shape[axis]:
        raise Fault("bad-attribute", f"`UnfoldTensor` of {x.shape[axis]} numbers into {length}, every {step}, is not valid")
    count = (x.shape[axis] - length) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(length)[None]
    y = call.emit(Gather(axis), x, call.constant(places.astype(np.int64)))
    order = [n for n in range(len(y.shape)) if n != axis + 1]
    return transpose(call, y, [*order, axis + 1])


@importer("IsAllFinite", domain=MS)
def is_all_finite(call: OnnxCall) -> Answer:
    inf, nan = not call.integer("isnan_only"), not call.integer("isinf_only")
    found = None
    for x in call.values():
        kinds = [call.emit(op, x) for op, asked in ((IsInf(), inf), (IsNan(), nan)) if asked]
        for one in kinds:
            bad = call.emit(Reduce("any", tuple(range(len(x.shape))), False), one) if x.shape else one
            found = bad if found is None else call.emit(LogicalOr(), found, bad)
    if found is None:
        raise Fault("bad-attribute", "`IsAllFinite` of nothing is not valid")
    return call.emit(LogicalNot(), found)


@importer("MaxpoolWithMask", domain=MS)
def max_pool_with_mask(call: OnnxCall) -> Answer:
    """A window takes the numbers of each of its rows up to the first that is masked. The very first of a picture masks nothing."""
    x, mask = call.value(0), call.value(1)
    kernel, strides, dilations, pads, _ = pool_window(call, x)
    rank = len(kernel)
    if mask.shape != (1, 1, *x.shape[2:]) or set(dilations) != {1} or x.dtype is not DType.F32:
        what = f"`MaxpoolWithMask` of {list(x.shape)} with a mask of {list(mask.shape)} is not supported"
        raise unsupported(what, "give one mask for all channels")
    seen = call.emit(LogicalNot(), call.emit(Equal(), mask, call.like(0, mask)))
    if rank > 1:
        first = np.zeros(mask.shape, bool)
        first.flat[0] = True
        seen = call.emit(LogicalOr(), seen, call.constant(first))
    around = [0, 0, *pads[:rank], 0, 0, *pads[rank:]]
    lowest = float(np.finfo(np.float32).min)
    wide = padded(call, x, around, value=lowest)
    inside = padded(call, cast(call, seen, DType.U8), around, value=1.0)
    counts = [(n - k) // s + 1 for n, k, s in zip(wide.shape[2:], kernel, strides, strict=True)]
    steps, y, so_far = (1, 1, *strides), None, inside
    for place in np.ndindex(*kernel):
        here, now = (call.emit(Slice((0, 0, *place), steps, (*v.shape[:2], *counts)), v) for v in (wide, inside))
        so_far = now if place[-1] == 0 else call.emit(Mul(), so_far, now)
        one = call.emit(Where(), cast(call, so_far, DType.BOOL), here, call.like(lowest, here))
        y = one if y is None else call.emit(Max(), y, one)
    return y


# Complex numbers: the last axis is a real and an imaginary part -------------------------------------------------------------


@importer("ComplexMul", "ComplexMulConj", domain=MS)
def complex_mul(call: OnnxCall) -> Answer:
    (a, b), (c, d) = (_parts(call, call.value(n)) for n in (0, 1))
    ac, bd, ad, bc = (call.emit(Mul(), one, two) for one, two in ((a, c), (b, d), (a, d), (b, c)))
    if call.op == "ComplexMul":
        real, imaginary = call.emit(Sub(), ac, bd), call.emit(Add(), ad, bc)
    else:
        real, imaginary = call.emit(Add(), ac, bd), call.emit(Sub(), bc, ad)
    return concat(call, [real, imaginary], len(real.shape) - 1)


def _parts(call: OnnxCall, x: Value) -> tuple[Value, Value]:
    last = len(x.shape) - 1
    if last < 0 or x.shape[last] != 2:
        raise Fault("shape-mismatch", f"`{call.op}` of {list(x.shape)}; the last axis must be a real and an imaginary part")
    return part(call, x, last, 0, 1), part(call, x, last, 1, 1)


@importer("Rfft", "Irfft", domain=MS)
def rfft(call: OnnxCall) -> Answer:
    """Of the last axis of real numbers; and back."""
    x = call.value(0)
    if call.integer("signal_ndim", 1) != 1 or call.integer("normalized") or not call.integer("onesided", 1) or len(x.shape) < 2:
        raise unsupported(f"`{call.op}` over several axes, normalised or two-sided is not supported", "use `DFT` of opset 17")
    if call.op == "Irfft":
        y = real_inverse(call, x, len(x.shape) - 2, 2 * (x.shape[-2] - 1))
        return reshape(call, y, y.shape[:-1])
    bins = x.shape[-1] // 2 + 1
    return reshape(call, by_matrix(call, x, dft_matrix(x.shape[-1], bins, 1, False)), (*x.shape[:-1], bins, 2))


# Inverse --------------------------------------------------------------------------------------------------------------------


@importer("Inverse", domain=MS)
def inverse(call: OnnxCall) -> Answer:
    """By Gauss and Jordan, a column after the other: the row with the largest number there is next."""
    x = call.value(0)
    size = x.shape[-1] if x.shape else 0
    if len(x.shape) < 2 or x.shape[-2] != size or not 1 <= size <= MOST_ROWS:
        raise unsupported(f"`Inverse` of {list(x.shape)} is not supported", f"give square matrices of at most {MOST_ROWS} rows")
    count = x.type.elements // size**2
    wide = cast(call, reshape(call, x, (count, size, size)), DType.F32 if x.dtype is not DType.F64 else DType.F64)
    one = call.constant(np.eye(size, dtype=wide.dtype.numpy)[None])
    both = concat(call, [wide, expand(call, one, (count, size, size))], 2)
    places = call.constant(np.arange(size, dtype=np.int64).reshape(1, size, 1))
    for column in range(size):
        both = _eliminated(call, both, places, column)
    return cast(call, reshape(call, part(call, both, 2, size, size), x.shape), x.dtype)


def _eliminated(call: OnnxCall, both: Value, places: Value, column: int) -> Value:
    """With 1 in this place of this column, and 0 above and below."""
    count, size, width = both.shape
    here = call.constant(np.asarray(column, np.int64))
    if column + 1 < size:
        sizes = call.emit(Abs(), part(call, part(call, both, 2, column, 1), 1, column, size - column))
        chosen = call.emit(Add(), call.emit(ArgReduce("max", 1, True), sizes), here)
        swapped = call.emit(Where(), call.emit(Equal(), places, chosen), here, places)
        order = call.emit(Where(), call.emit(Equal(), places, here), chosen, swapped)
        both = call.emit(GatherElements(1), both, expand(call, order, (count, size, width)))
    row = part(call, both, 1, column, 1)
    row = call.emit(Div(), row, part(call, row, 2, column, 1))
    less = call.emit(Sub(), both, call.emit(Mul(), part(call, both, 2, column, 1), row))
    return call.emit(Where(), call.emit(Equal(), places, here), row, less)


# Words ----------------------------------------------------------------------------------------------------------------------


@importer("NGramRepeatBlock", domain=MS)
def ngram_repeat_block(call: OnnxCall) -> Answer:
    """Words that would end a group of words that was there before get the score -inf."""
    ids, scores, size = call.value(0), call.value(1), call.integer("ngram_size")
    if size < 1 or len(ids.shape) != 2 or len(scores.shape) != 2:
        raise Fault("bad-attribute", f"`NGramRepeatBlock` of {list(ids.shape)} in groups of {size} is not valid")
    count = ids.shape[1] - size + 1
    if count < 1:
        return scores
    said = part(call, ids, 1, size - 1, count)
    updates = expand(call, call.like(-np.inf, scores), said.shape)
    if size > 1:
        last = part(call, ids, 1, ids.shape[1] - size + 1, size - 1)
        places = np.arange(count)[:, None] + np.arange(size - 1)[None]
        groups = call.emit(Gather(1), ids, call.constant(places.astype(np.int64)))
        same = call.emit(Reduce("all", (2,), False), call.emit(Equal(), groups, unsqueeze(call, last, 1)))
        updates = call.emit(Where(), same, call.like(-np.inf, scores), call.like(np.inf, scores))
    return call.emit(ScatterElements(1, "min"), scores, said, updates)


@importer("MurmurHash3", domain=MS)
def murmur_hash(call: OnnxCall) -> Answer:
    """MurmurHash3 for 32 bits, of the bytes of each number."""
    x = call.value(0)
    if x.dtype.bytes not in (4, 8):
        raise unsupported(f"`MurmurHash3` of {x.dtype.value} is not supported", "cast it to int32 or int64")
    seed = call.integer("seed") & 0xFFFFFFFF
    mixed = expand(call, call.constant(np.asarray(seed, np.uint32)), x.shape)
    for block in _blocks(call, x):
        k = _times(call, _turned(call, _times(call, block, 0xCC9E2D51), 15), 0x1B873593)
        mixed = _turned(call, call.emit(BitwiseXor(), mixed, k), 13)
        mixed = call.emit(Add(), _times(call, mixed, 5), call.like(0xE6546B64, mixed))
    mixed = call.emit(BitwiseXor(), mixed, call.like(x.dtype.bytes, mixed))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        mixed = call.emit(BitwiseXor(), mixed, call.emit(ShiftRight(), mixed, call.like(shift, mixed)))
        mixed = mixed if factor == 1 else _times(call, mixed, factor)
    return mixed if call.integer("positive", 1) else call.emit(BitCast(DType.I32), mixed)


def _blocks(call: OnnxCall, x: Value) -> list[Value]:
    """The bytes of numbers as u32, low ones first."""
    if x.dtype.bytes == 4:
        return [x if x.dtype is DType.U32 else call.emit(BitCast(DType.U32), x)]
    wide = x if x.dtype is DType.U64 else call.emit(BitCast(DType.U64), x)
    high = call.emit(ShiftRight(), wide, call.like(32, wide))
    low = call.emit(BitwiseXor(), wide, call.emit(ShiftLeft(), high, call.like(32, wide)))
    return [cast(call, low, DType.U32), cast(call, high, DType.U32)]


def _times(call: OnnxCall, x: Value, factor: int) -> Value:
    return call.emit(Mul(), x, call.constant(np.asarray(factor, np.uint32)))


def _turned(call: OnnxCall, x: Value, bits: int) -> Value:
    left, right = (call.emit(op, x, call.like(n, x)) for op, n in ((ShiftLeft(), bits), (ShiftRight(), 32 - bits)))
    return call.emit(BitwiseOr(), left, right)
