"""Shapes, slices, joins, gathers: data movement, the same for floats and for integers of one quantisation."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import other_elements
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.container import COMPLEX, Tensor
from intaglio.frontends.tflite.rows import lists
from intaglio.frontends.tflite.rows.activation import activate
from intaglio.frontends.tflite.walk import LARGEST, TFLiteCall, axis_of, constant, importer
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.index import Gather
from intaglio.ops.move import Concat, Expand, Pad, Reshape, Slice, Tile, Transpose
from intaglio.ops.quantised import Lookup, Requantize
from intaglio.ops.quantised_rows import QResize
from intaglio.ops.quantised_tables import ResizeBytes
from intaglio.ops.resize import Resize  # fmt: skip

_QUANTISED = (DType.I8, DType.U8, DType.I16)


def to_quant(call: TFLiteCall, value: Value, source: Tensor, out: Tensor) -> Value:
    """The value in the quantisation of the result, where it differs."""
    if value.dtype not in _QUANTISED or source.quant is None or out.quant is None:
        return value
    x_scale, x_zero = call.quant(source)
    y_scale, y_zero = call.quant(out)
    if (x_scale, x_zero) == (y_scale, y_zero):
        return value
    info = np.iinfo(value.dtype.numpy)
    multiplier, shift = quantize_multiplier(x_scale / y_scale)
    return call.emit(Requantize(x_zero, multiplier, shift, y_zero, int(info.min), int(info.max), value.dtype), value)


@importer("RESHAPE")
def reshape(call: TFLiteCall) -> None:
    x = call.value(0)
    if call.has(1):
        shape = [int(d) for d in call.known(1, "shape").reshape(-1)]
    elif call.operator.options is not None:
        o = call.operator.options
        shape = [int(o.NewShape(i)) for i in range(o.NewShapeLength())]
    else:
        shape = list(call.out().shape)
    if shape.count(-1) > 1 or any(d < -1 for d in shape):
        raise Fault("bad-attribute", f"a reshape to {shape} is not valid")
    pair = _pair(call)
    if -1 in shape:
        rest = math.prod(d for d in (*shape, *pair) if d != -1)
        shape[shape.index(-1)] = x.type.elements // rest if rest else 0
    call.give(call.emit(Reshape((*shape, *pair)), x))


def _pair(call: TFLiteCall) -> tuple[int, ...]:
    """The last axis of complex numbers, which the file does not have."""
    return (2,) if call.tensor(0).kind == COMPLEX else ()


@importer("SQUEEZE", "EXPAND_DIMS")
def other_shape(call: TFLiteCall) -> None:
    x, pair = call.value(0), _pair(call)
    shape = list(x.shape[: x.type.rank - len(pair)])
    if call.operator.op == "EXPAND_DIMS":
        shape.insert(axis_of(int(call.known(1, "axis").reshape(-1)[0]), len(shape) + 1), 1)
    else:
        o = call.options
        axes = [axis_of(int(o.SqueezeDims(i)), len(shape)) for i in range(o.SqueezeDimsLength())]
        shape = [d for n, d in enumerate(shape) if not (n in axes if axes else d == 1)]
    call.give(call.emit(Reshape((*shape, *pair)), x))


@importer("DENSIFY")
def densify(call: TFLiteCall) -> None:
    """Sparse constants are dense once they are read."""
    call.give(call.value(0))


@importer("SHAPE")
def shape_of(call: TFLiteCall) -> None:
    kind = call.out().dtype or DType.I32
    call.give(constant(np.asarray(call.value(0).shape, kind.numpy)))


@importer("RANK")
def rank_of(call: TFLiteCall) -> None:
    call.give(constant(np.asarray(call.value(0).type.rank, np.int32)))


@importer("RANGE")
def range_of(call: TFLiteCall) -> None:
    start, limit, delta = (call.known(n, "range").reshape(-1)[0].item() for n in range(3))
    if not delta or not 0 <= (limit - start) / delta <= LARGEST:
        raise Fault("bad-attribute", f"a range from {start} to {limit} by {delta} is not valid")
    call.give(constant(np.arange(start, limit, delta).astype(call.value(0).dtype.numpy)))


@importer("FILL")
def fill(call: TFLiteCall) -> None:
    shape = tuple(int(d) for d in call.known(0, "shape").reshape(-1))
    call.give(call.emit(Expand(shape), call.value(1)))


@importer("ZEROS_LIKE")
def zeros_like(call: TFLiteCall) -> None:
    x = call.value(0)
    call.give(constant(np.zeros(x.shape, x.dtype.numpy)))


@importer("TRANSPOSE")
def transpose(call: TFLiteCall) -> None:
    perm = tuple(int(p) for p in call.known(1, "permutation").reshape(-1))
    x = call.value(0)
    call.give(call.emit(Transpose(tuple(axis_of(p, x.type.rank) for p in perm)), x))


@importer("STRIDED_SLICE")
def strided_slice(call: TFLiteCall) -> None:
    o, x = call.options, call.value(0)
    begin: Array = call.known(1, "begin").reshape(-1)
    end: Array = call.known(2, "end").reshape(-1)
    step: Array = call.known(3, "step").reshape(-1)
    if not len(begin) == len(end) == len(step):
        raise Fault("bad-attribute", f"{len(begin)} begins, {len(end)} ends and {len(step)} steps")
    end = begin + end if getattr(o, "Offset", bool)() else end
    if getattr(o, "EllipsisMask", int)() or getattr(o, "NewAxisMask", int)():
        begin, end, step, masks = _spread(x, o, begin, end, step)
    else:
        masks = (o.BeginMask(), o.EndMask(), o.ShrinkAxisMask(), 0)
    starts, steps, sizes, shape = [], [], [], []
    source = 0
    for n in range(len(begin)):
        if masks[3] >> n & 1:
            shape.append(1)
            continue
        if source >= x.type.rank:
            raise Fault("bad-attribute", f"a slice of {len(begin)} axes of {list(x.shape)} is not valid")
        size, s = x.shape[source], int(step[n])
        if s == 0:
            raise Fault("bad-attribute", "a slice with step 0 is not valid")
        first, last = (
            _clipped(int(begin[n]), size, s, bool(masks[0] >> n & 1), True),
            _clipped(int(end[n]), size, s, bool(masks[1] >> n & 1), False),
        )
        if masks[2] >> n & 1:
            first = int(begin[n]) + (size if begin[n] < 0 else 0)
            if not 0 <= first < size:
                raise Fault("bad-attribute", f"index {int(begin[n])} is out of range for an axis of {size}")
            count, s = 1, 1
        else:
            count = max(0, math.ceil((last - first) / s))
            shape.append(count)
        starts.append(first)
        steps.append(s)
        sizes.append(count)
        source += 1
    for size in x.shape[source:]:
        starts.append(0)
        steps.append(1)
        sizes.append(size)
        shape.append(size)
    cut = call.emit(Slice(tuple(starts), tuple(steps), tuple(sizes)), x)
    call.give(call.emit(Reshape(tuple(shape)), cut) if tuple(shape) != cut.shape else cut)


def _clipped(at: int, size: int, step: int, masked: bool, is_begin: bool) -> int:
    if masked:
        return (0 if step > 0 else size - 1) if is_begin else (size if step > 0 else -1)
    at = at + size if at < 0 else at
    return min(max(at, 0), size) if step > 0 else min(max(at, -1), size - 1)


def _spread(x: Value, o: object, begin: Array, end: Array, step: Array) -> tuple[Array, Array, Array, tuple[int, int, int, int]]:
    """Write an ellipsis out, so that every entry is one axis."""
    ellipsis, fresh = o.EllipsisMask(), o.NewAxisMask()  # type: ignore[attr-defined]
    masks = [o.BeginMask(), o.EndMask(), o.ShrinkAxisMask()]  # type: ignore[attr-defined]
    rows: list[tuple[int, int, int, int, int, int, int]] = []
    named = len(begin) - bin(ellipsis).count("1") - bin(fresh).count("1")
    for n in range(len(begin)):
        if ellipsis >> n & 1:
            rows += [(0, 0, 1, 1, 1, 0, 0)] * max(x.type.rank - named, 0)
        else:
            bits = [m >> n & 1 for m in masks]
            rows.append(
                (int(begin[n]), int(end[n]), int(step[n]), bits[0], bits[1], bits[2] if not fresh >> n & 1 else 0, fresh >> n & 1)
            )
    packed = [sum(row[k] << i for i, row in enumerate(rows)) for k in (3, 4, 5, 6)]
    columns = [np.asarray([row[k] for row in rows], np.int64) for k in range(3)]
    return columns[0], columns[1], columns[2], (packed[0], packed[1], packed[2], packed[3])


@importer("SLICE")
def slice_(call: TFLiteCall) -> None:
    x = call.value(0)
    if any(call.value(n).data is None for n in (1, 2)):
        lists.cut(call)
        return
    begin, size = (call.known(n, "bounds").reshape(-1) for n in (1, 2))
    shape = tuple(x.shape[n] - int(begin[n]) if int(s) == -1 else int(s) for n, s in enumerate(size))
    call.give(call.emit(Slice(tuple(int(b) for b in begin), (1,) * x.type.rank, shape), x))


@importer("CONCATENATION")
def concatenation(call: TFLiteCall) -> None:
    if lists.joins_cuts(call):
        lists.set_item(call)
        return
    o, out = call.options, call.out()
    values = [call.value(n) for n in range(len(call.operator.inputs))]
    if values[0].dtype in (DType.I8, DType.U8):  # 16-bit numbers are joined as they are
        rescaled = to_quant if values[0].dtype is DType.I8 else _by_table
        values = [rescaled(call, v, call.tensor(n), out) for n, v in enumerate(values)]
    axis = axis_of(o.Axis(), values[0].type.rank)
    call.give(activate(call, call.emit(Concat(axis), *values), 0 if values[0].dtype in _QUANTISED else o.FusedActivationFunction()))


def _by_table(call: TFLiteCall, value: Value, source: Tensor, out: Tensor) -> Value:
    """Bytes in the quantisation of the result: LiteRT joins them through float."""
    if source.quant is None or out.quant is None or call.quant(source) == call.quant(out):
        return value
    (x_scale, x_zero), (y_scale, y_zero) = call.quant(source), call.quant(out)
    scale = np.float32(x_scale) * (np.float32(1.0) / np.float32(y_scale))
    real = np.arange(256, dtype=np.float32) * scale + np.float32(-x_zero) * scale
    table = np.clip(np.sign(real) * np.floor(np.abs(real) + np.float32(0.5)) + y_zero, 0, 255)
    return call.emit(Lookup(), value, constant(table.astype(np.uint8)))


@importer("PACK")
def pack(call: TFLiteCall) -> None:
    values = [to_quant(call, call.value(n), call.tensor(n), call.out()) for n in range(len(call.operator.inputs))]
    rank = values[0].type.rank
    axis = axis_of(call.options.Axis(), rank + 1)
    shape = (*values[0].shape[:axis], 1, *values[0].shape[axis:])
    call.give(call.emit(Concat(axis), *[call.emit(Reshape(shape), v) for v in values]))


@importer("UNPACK")
def unpack(call: TFLiteCall) -> None:
    x = call.value(0)
    axis = axis_of(call.options.Axis(), x.type.rank)
    for n in range(len(call.operator.outputs)):
        part = _part(call, x, axis, n, 1)
        call.give(call.emit(Reshape((*x.shape[:axis], *x.shape[axis + 1 :])), part), n)


def _part(call: TFLiteCall, x: Value, axis: int, first: int, size: int) -> Value:
    starts = tuple(first if n == axis else 0 for n in range(x.type.rank))
    shape = tuple(size if n == axis else d for n, d in enumerate(x.shape))
    return call.emit(Slice(starts, (1,) * x.type.rank, shape), x)


@importer("SPLIT", "SPLIT_V")
def split(call: TFLiteCall) -> None:
    count = len(call.operator.outputs)
    if call.operator.op == "SPLIT":
        x = call.value(1)
        axis = axis_of(int(call.known(0, "axis").reshape(-1)[0]), x.type.rank)
        if count == 0 or x.shape[axis] % count:
            raise Fault("shape-mismatch", f"an axis of {x.shape[axis]} cannot be split into {count} equal parts")
        sizes = [x.shape[axis] // count] * count
    else:
        x = call.value(0)
        axis = axis_of(int(call.known(2, "axis").reshape(-1)[0]), x.type.rank)
        sizes = [int(s) for s in call.known(1, "sizes").reshape(-1)]
        if -1 in sizes:
            sizes[sizes.index(-1)] = x.shape[axis] - sum(s for s in sizes if s != -1)
        if min(sizes, default=0) < 0 or sum(sizes) != x.shape[axis] or len(sizes) != count:
            raise Fault("shape-mismatch", f"an axis of {x.shape[axis]} cannot be split into parts of {sizes}")
    first = 0
    for n, size in enumerate(sizes):
        call.give(_part(call, x, axis, first, size), n)
        first += size


@importer("DILATE")
def dilate(call: TFLiteCall) -> None:
    """Room between the numbers along each axis: one more axis that is padded, and what stands behind the last number cut off."""
    x, steps = call.value(0), [int(n) for n in call.known(1, "steps").reshape(-1)]
    if len(steps) != x.type.rank or min(steps, default=1) < 1:
        raise Fault("bad-attribute", f"steps {steps} do not fit {list(x.shape)}")
    fill = float(call.known(2, "number between").reshape(-1)[0])
    for axis, step in enumerate(steps):
        if step == 1 or 0 in x.shape:
            continue
        before, size, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
        cut = call.emit(Reshape((*before, size, 1, *behind)), x)
        rank = cut.type.rank
        apart = call.emit(Pad((0,) * rank + tuple((step - 1) * (a == axis + 1) for a in range(rank)), "constant", fill), cut)
        whole = call.emit(Reshape((*before, size * step, *behind)), apart)
        shape = (*before, (size - 1) * step + 1, *behind)
        x = call.emit(Slice((0,) * len(shape), (1,) * len(shape), shape), whole)
    call.give(x)


@importer("PAD", "PADV2")
def pad(call: TFLiteCall) -> None:
    x = call.value(0)
    table = call.known(1, "padding")
    value = 0.0
    if call.operator.op == "PADV2" and call.has(2):
        value = float(call.known(2, "value").reshape(-1)[0])
    elif x.dtype in _QUANTISED and call.tensor(0).quant is not None:
        value = float(call.quant(call.out())[1])
    pads = tuple(int(p) for p in table[:, 0]) + tuple(int(p) for p in table[:, 1])
    call.give(call.emit(Pad(pads, "constant", value), x))


@importer("MIRROR_PAD")
def mirror_pad(call: TFLiteCall) -> None:
    x, table = call.value(0), call.known(1, "padding")
    if call.options.Mode() != 0:  # symmetric: the edge is repeated, which a reflection of one more does not give
        index = [np.pad(np.arange(d), tuple(int(p) for p in row), mode="symmetric") for d, row in zip(x.shape, table, strict=True)]
        for axis, places in enumerate(index):
            if len(places) != x.shape[axis]:
                x = call.emit(Gather(axis), x, constant(places.astype(np.int32)))
        call.give(x)
        return
    pads = tuple(int(p) for p in table[:, 0]) + tuple(int(p) for p in table[:, 1])
    call.give(call.emit(Pad(pads, "reflect"), x))


@importer("TILE")
def tile(call: TFLiteCall) -> None:
    call.give(call.emit(Tile(tuple(int(r) for r in call.known(1, "repeats").reshape(-1))), call.value(0)))


@importer("BROADCAST_TO")
def broadcast_to(call: TFLiteCall) -> None:
    call.give(call.emit(Expand(tuple(int(d) for d in call.known(1, "shape").reshape(-1))), call.value(0)))


@importer("REVERSE_V2")
def reverse(call: TFLiteCall) -> None:
    x = call.value(0)
    axes = {axis_of(int(a), x.type.rank) for a in call.known(1, "axes").reshape(-1)}
    starts = tuple(d - 1 if n in axes else 0 for n, d in enumerate(x.shape))
    call.give(call.emit(Slice(starts, tuple(-1 if n in axes else 1 for n in range(x.type.rank)), x.shape), x))


@importer("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def space_and_depth(call: TFLiteCall) -> None:
    x, b = call.value(0), call.options.BlockSize()
    if b < 1 or x.type.rank != 4:
        raise Fault("bad-attribute", f"block {b} of {list(x.shape)} is not valid")
    n, h, w, c = x.shape
    if call.operator.op == "SPACE_TO_DEPTH":
        split_ = call.emit(Reshape((n, h // b, b, w // b, b, c)), x)
        call.give(call.emit(Reshape((n, h // b, w // b, b * b * c)), call.emit(Transpose((0, 1, 3, 2, 4, 5)), split_)))
    else:
        split_ = call.emit(Reshape((n, h, w, b, b, c // (b * b))), x)
        call.give(call.emit(Reshape((n, h * b, w * b, c // (b * b))), call.emit(Transpose((0, 1, 3, 2, 4, 5)), split_)))


@importer("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def space_and_batch(call: TFLiteCall) -> None:
    x = call.value(0)
    blocks = [int(b) for b in call.known(1, "block").reshape(-1)]
    table = call.known(2, "padding or crops").reshape(-1, 2)
    m = len(blocks)
    rest = x.shape[1 + m :]
    if call.operator.op == "SPACE_TO_BATCH_ND":
        zero = float(call.quant(call.tensor(0))[1]) if x.dtype in _QUANTISED else 0.0
        begin = (0, *[int(p) for p in table[:, 0]], *[0] * len(rest))
        end = (0, *[int(p) for p in table[:, 1]], *[0] * len(rest))
        padded = call.emit(Pad(begin + end, "constant", zero), x)
        inner = [n for d, b in zip(padded.shape[1 : 1 + m], blocks, strict=True) for n in (d // b, b)]
        cut = call.emit(Reshape((padded.shape[0], *inner, *rest)), padded)
        perm = [2 + 2 * i for i in range(m)] + [0] + [1 + 2 * i for i in range(m)] + list(range(1 + 2 * m, 1 + 2 * m + len(rest)))
        turned = call.emit(Transpose(tuple(perm)), cut)
        small = [d // b for d, b in zip(padded.shape[1 : 1 + m], blocks, strict=True)]
        call.give(call.emit(Reshape((padded.shape[0] * math.prod(blocks), *small, *rest)), turned))
        return
    batch = x.shape[0] // math.prod(blocks)
    cut = call.emit(Reshape((*blocks, batch, *x.shape[1:])), x)
    perm = [m] + [p for i in range(m) for p in (m + 1 + i, i)] + list(range(1 + 2 * m, cut.type.rank))
    wide = [d * b for d, b in zip(x.shape[1 : 1 + m], blocks, strict=True)]
    joined = call.emit(Reshape((batch, *wide, *rest)), call.emit(Transpose(tuple(perm)), cut))
    starts = (0, *[int(c) for c in table[:, 0]], *[0] * len(rest))
    shape = (batch, *[w - int(a) - int(b) for w, (a, b) in zip(wide, table, strict=True)], *rest)
    call.give(call.emit(Slice(starts, (1,) * joined.type.rank, shape), joined))


@importer("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
def resize(call: TFLiteCall) -> None:
    o, x = call.options, call.value(0)
    asked = [int(d) for d in call.known(1, "size").reshape(-1)]
    if len(asked) != 2 or min(asked) < 1 or math.prod(asked) > LARGEST or x.type.rank != 4:
        raise Fault("bad-attribute", f"a resize of {list(x.shape)} to {asked} is not valid")
    height, width = asked
    shape = (x.shape[0], height, width, x.shape[3])
    corners, half = bool(o.AlignCorners()), bool(o.HalfPixelCenters())
    bilinear = call.operator.op == "RESIZE_BILINEAR"
    if bilinear and x.dtype is DType.U8:  # the reference goes through float here
        call.give(call.emit(ResizeBytes(shape, corners, half), x))
        return
    if bilinear and x.dtype in (DType.I8, DType.I16):
        call.give(call.emit(QResize(shape, corners, half), x))
        return
    scales = (1.0, height / x.shape[1], width / x.shape[2], 1.0)
    mode = "align_corners" if corners else "half_pixel" if half else "asymmetric"
    if bilinear:
        call.give(call.emit(Resize(shape, scales, (), "linear", mode), x))
        return
    factors = {}
    for axis, size in ((1, height), (2, width)):
        less = int(corners and size > 1)
        factors[axis] = float(np.float32(x.shape[axis] - less) / np.float32(size - less))
    op = Resize(shape, scales, (), "nearest", mode, "round_prefer_ceil" if corners else "floor")
    tables = other_elements(x, op, factors, 0.5 if half else 0.0, rounds=corners)
    for axis, table in tables.items():
        x = call.emit(Gather(axis), x, constant(table.astype(np.int32)))
    call.give(x if tables else call.emit(op, x))
