"""Operators that move data without looking at it."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.building import cast, expand, padded, part, reshape, resolved_shape, transpose
from intaglio.frontends.onnx.call import Answer, Item, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Value
from intaglio.ir.sizes import array_of, cut, larger, most, smaller
from intaglio.ir.types import DType, broadcast_shapes
from intaglio.ops.binary import Add, Div, Equal, Less, Max, Min, Mul, Sub, Where
from intaglio.ops.control import AssertTrue
from intaglio.ops.convert import Cast
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Concat, Pad, ReverseSequence, Slice, Tile, Trilu
from intaglio.ops.reduce import Reduce
from intaglio.ops.sample import Col2Im
from intaglio.ops.sizes import Iota


@importer("Reshape")
def reshape_row(call: OnnxCall) -> Answer:
    x = call.value(0)
    wanted = call.int_list(1, "shape") if call.version >= 5 else (call.ints("shape") or [])
    return reshape(call, x, resolved_shape(call, x, wanted, bool(call.integer("allowzero"))))


@importer("Flatten")
def flatten(call: OnnxCall) -> Answer:
    x = call.value(0)
    axis = call.integer("axis", 1)
    if not -len(x.shape) <= axis <= len(x.shape):
        raise Fault("bad-attribute", f"`axis` {axis} of `Flatten` is out of range for rank {len(x.shape)}")
    axis = axis + len(x.shape) if axis < 0 else axis
    return reshape(call, x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@importer("Squeeze")
def squeeze(call: OnnxCall) -> Answer:
    x = call.value(0)
    axes = call.axes(1, len(x.shape))
    if axes is None:
        axes = tuple(i for i, n in enumerate(x.shape) if n == 1)
    if any(x.shape[a] != 1 for a in axes):
        raise Fault("shape-mismatch", f"`Squeeze` of {list(x.shape)} along axes {list(axes)}, which are not all 1")
    return reshape(call, x, [n for i, n in enumerate(x.shape) if i not in axes])


@importer("Unsqueeze")
def unsqueeze(call: OnnxCall) -> Answer:
    x = call.value(0)
    given = call.ints("axes")
    if given is None:
        given = call.int_list(1, "axes")
    axes = call.checked_axes(given, len(x.shape) + len(given))
    rest = iter(x.shape)
    return reshape(call, x, [1 if i in axes else next(rest) for i in range(len(x.shape) + len(axes))])


@importer("Transpose")
def transpose_row(call: OnnxCall) -> Answer:
    x = call.value(0)
    perm = call.ints("perm")
    rank = len(x.shape)
    if perm is None:
        perm = list(range(rank))[::-1]
    if sorted(perm) != list(range(rank)):
        raise Fault("bad-attribute", f"perm {perm} is not a permutation of the axes of {list(x.shape)}")
    return transpose(call, x, perm)


@importer("Expand")
def expand_row(call: OnnxCall) -> Answer:
    x = call.value(0)
    first = call.value(1).type.elements - len(x.shape)  # position of the first axis of x in the shape
    there = {first + n: size for n, size in enumerate(x.shape) if size != 1 and first + n >= 0}
    wanted = tuple(call.sizes(1, "shape", there=there))
    try:
        return expand(call, x, broadcast_shapes(x.shape, wanted))
    except ValueError as error:
        raise Fault("shape-mismatch", str(error)) from None


@importer("Tile")
def tile(call: OnnxCall) -> Answer:
    x = call.value(0)
    if call.version < 6:
        times, axis = (int(call.numbers(i, "tiles").reshape(-1)[0]) for i in (1, 2))
        repeats = [1] * len(x.shape)
        repeats[call.checked_axis(axis, len(x.shape))] = times
    else:
        repeats = call.sizes(1, "repeats")
    return x if all(n == 1 for n in repeats) else call.emit(Tile(tuple(repeats)), x)


@importer("Concat")
def concat_row(call: OnnxCall) -> Answer:
    values = call.values()
    if not values:
        raise Fault("bad-graph", "`Concat` has no operands")
    if "axis" not in call.attributes and call.version >= 4:
        raise Fault("bad-attribute", "`Concat` has no axis")
    axis = call.axis(len(values[0].shape), 1)
    # Empty parts are what exporters leave behind; ONNX Runtime ignores the rank of an empty vector.
    kept = [v for v in values if v.type.elements != 0 or v.shape != (0,)] or values[:1]
    return kept[0] if len(kept) == 1 else call.emit(Concat(axis), *kept)


@importer("Split")
def split(call: OnnxCall) -> Answer:
    x = call.value(0)
    axis = call.axis(len(x.shape), 0)
    sizes = call.ints("split")
    if sizes is None and call.has(1) and call.value(1).data is None:
        return _computed_split(call, x, axis)
    if sizes is None:
        sizes = call.maybe_int_list(1, "split sizes")
    if sizes is None:
        count = call.integer("num_outputs", call.outputs)
        if count < 1 or count > max(call.outputs, x.shape[axis]):
            raise Fault("bad-attribute", f"{x.shape[axis]} elements cannot be split into {count} parts")
        each = -(-x.shape[axis] // count)
        sizes = [smaller(each, larger(0, x.shape[axis] - i * each)) for i in range(count)]
    if sum(sizes) != x.shape[axis] or any(n < 0 for n in sizes) or len(sizes) < call.outputs:
        raise Fault("bad-attribute", f"{x.shape[axis]} elements cannot be split into parts of {sizes}")
    results, start = [], 0
    for size in sizes:
        results.append(part(call, x, axis, start, size))
        start += size
    return results


def _computed_split(call: OnnxCall, x: Value, axis: int) -> list[Item | None]:
    """Parts whose sizes are known when it runs."""
    sizes, whole = cast(call, call.value(1), DType.I64), x.shape[axis]
    if sizes.shape != (call.outputs,):
        raise Fault("bad-attribute", f"`Split` into {call.outputs} parts by sizes of {list(sizes.shape)} is not valid")
    total = call.emit(Reduce("sum", (0,), True), sizes)
    same = call.emit(Equal(), total, call.walk.at_run_time(call.constant(array_of([whole]), DType.I64)))
    call.emit(AssertTrue(f"the split sizes of `Split` do not add up to {whole}"), same)
    results: list[Item | None] = []
    start = call.constant(np.zeros(1, np.int64))
    for n in range(call.outputs):
        number = part(call, sizes, 0, n, 1)
        found = call.size(number, f"part_{n}", 0, most(whole), whole)
        results.append(call.emit(Gather(axis), x, call.emit(Add(), call.emit(Iota(found)), start)))
        start = call.emit(Add(), start, number)
    return results


@importer("Slice")
def slice_row(call: OnnxCall) -> Answer:
    x = call.value(0)
    rank = len(x.shape)
    if call.version < 10:
        starts, ends, axes = call.ints("starts"), call.ints("ends"), call.ints("axes")
        steps = None
        if starts is None or ends is None:
            raise Fault("bad-attribute", "`Slice` needs starts and ends")
    else:
        if any(call.value(i).data is None for i in (1, 2)):
            return _computed_slice(call, x)
        starts, ends = call.int_list(1, "starts"), call.int_list(2, "ends")
        axes, steps = call.maybe_int_list(3, "axes"), call.maybe_int_list(4, "steps")
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Fault("bad-attribute", "starts, ends, axes and steps of `Slice` differ in length")
    first, step, shape = [0] * rank, [1] * rank, list(x.shape)
    for start, end, axis, stride in zip(starts, ends, call.checked_axes(axes, rank), steps, strict=True):
        if stride == 0:
            raise Fault("bad-attribute", "the step of `Slice` is 0")
        size = x.shape[axis]
        # As in Python, an end below -size of a backward slice is before the first element; but a start there is the first element.
        start = larger(start, -size) if stride < 0 and start < 0 else start
        first[axis], shape[axis] = cut(start, end, stride, size)
        step[axis] = 1 if most(shape[axis]) <= 1 else stride
    if shape == list(x.shape) and set(step) <= {1}:
        return x
    return call.emit(Slice(tuple(first), tuple(step), tuple(shape)), x)


def _computed_slice(call: OnnxCall, x: Value) -> Value:
    """Bounds that are known when it runs: as many places as there are then, found by their numbers."""
    steps, axes = call.maybe_int_list(4, "steps"), call.maybe_int_list(3, "axes")
    starts, ends = (reshape(call, cast(call, call.value(i), DType.I64), (call.value(i).type.elements,)) for i in (1, 2))
    count = starts.shape[0]
    steps, axes = steps or [1] * count, list(range(count)) if axes is None else axes
    if not len(axes) == len(steps) == count == ends.shape[0] or 0 in steps:
        raise Fault("bad-attribute", f"`Slice` has {count} starts, {ends.shape[0]} ends, the axes {axes} and the steps {steps}")
    zero, one = (call.constant(np.full(1, n, np.int64)) for n in (0, 1))
    for n, (axis, step) in enumerate(zip(call.checked_axes(axes, len(x.shape)), steps, strict=True)):
        size = call.walk.at_run_time(call.constant(array_of([x.shape[axis]]), DType.I64))
        bounds = [part(call, side, 0, n, 1) for side in (starts, ends)]
        bounds = [call.emit(Where(), call.emit(Less(), v, zero), call.emit(Add(), v, size), v) for v in bounds]
        before, high = (zero, size) if step > 0 else (call.constant(np.full(1, -1, np.int64)), call.emit(Sub(), size, one))
        first, last = (call.emit(Min(), call.emit(Max(), v, low), high) for v, low in zip(bounds, (zero, before), strict=True))
        every, width, up = (call.constant(np.full(1, n, np.int64)) for n in (step, abs(step), abs(step) - 1))
        distance = call.emit(Sub(), last, first) if step > 0 else call.emit(Sub(), first, last)
        number = call.emit(Max(), call.emit(Div(), call.emit(Add(), distance, up), width), zero)
        found = call.size(number, f"axis_{axis}", 0, -(-most(x.shape[axis]) // abs(step)))
        places = call.emit(Add(), call.emit(Mul(), call.emit(Iota(found)), every), first)
        x = call.emit(Gather(axis), x, places)
    return x


@importer("Pad")
def pad(call: OnnxCall) -> Answer:
    x = call.value(0)
    rank = len(x.shape)
    mode = call.text("mode", "constant")
    value = 0.0
    if call.version < 11:
        pads = call.ints("pads") or call.ints("paddings") or []
        value = call.real("value", 0.0)
    else:
        pads = call.sizes(1, "pads")
        fill = call.maybe_numbers(2, "padding value")
        if fill is not None and fill.size:
            value = float(fill.reshape(-1)[0])
        axes = call.maybe_int_list(3, "axes")
        if axes is not None:
            if len(pads) != 2 * len(axes):
                raise Fault("bad-attribute", f"`Pad` has {len(pads)} pads for {len(axes)} axes")
            full = [0] * (2 * rank)
            for i, axis in enumerate(call.checked_axes(axes, rank)):
                full[axis], full[axis + rank] = pads[i], pads[i + len(axes)]
            pads = full
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise Fault("bad-attribute", f"`Pad` in the mode `{mode}` is not valid")
    if len(pads) != 2 * rank:
        raise Fault("bad-attribute", f"`Pad` has {len(pads)} pads for rank {rank}")
    return padded(call, x, pads, mode, value)


@importer("DepthToSpace")
def depth_to_space(call: OnnxCall) -> Answer:
    x, b = call.value(0), call.integer("blocksize")
    mode = call.text("mode", "DCR")
    if b < 1 or len(x.shape) != 4 or x.shape[1] % (b * b):
        raise Fault("bad-attribute", f"`DepthToSpace` of {list(x.shape)} with block size {b} is not valid")
    n, c, h, w = x.shape
    c //= b * b
    if mode == "DCR":
        y = transpose(call, reshape(call, x, (n, b, b, c, h, w)), (0, 3, 4, 1, 5, 2))
    elif mode == "CRD":
        y = transpose(call, reshape(call, x, (n, c, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    else:
        raise Fault("bad-attribute", f"`DepthToSpace` in the mode `{mode}` is not valid")
    return reshape(call, y, (n, c, h * b, w * b))


@importer("SpaceToDepth")
def space_to_depth(call: OnnxCall) -> Answer:
    x, b = call.value(0), call.integer("blocksize")
    if b < 1 or len(x.shape) != 4 or x.shape[2] % b or x.shape[3] % b:
        raise Fault("bad-attribute", f"`SpaceToDepth` of {list(x.shape)} with block size {b} is not valid")
    n, c, h, w = x.shape
    mode = call.text("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise Fault("bad-attribute", f"`SpaceToDepth` in the mode `{mode}` is not valid")
    perm = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    y = transpose(call, reshape(call, x, (n, c, h // b, b, w // b, b)), perm)
    return reshape(call, y, (n, c * b * b, h // b, w // b))


@importer("Trilu")
def trilu(call: OnnxCall) -> Answer:
    k = call.maybe_numbers(1, "diagonal")
    offset = 0 if k is None else int(k.reshape(-1)[0])
    return call.emit(Trilu(bool(call.integer("upper", 1)), offset), call.value(0))


@importer("ReverseSequence")
def reverse_sequence(call: OnnxCall) -> Answer:
    op = ReverseSequence(call.integer("batch_axis", 1), call.integer("time_axis", 0))
    return call.emit(op, call.value(0), call.value(1))


@importer("CenterCropPad")
def center_crop_pad(call: OnnxCall) -> Answer:
    x = call.value(0)
    wanted = call.int_list(1, "shape")
    given = call.ints("axes")
    axes = call.checked_axes(given if given is not None else range(len(x.shape)), len(x.shape))
    if len(axes) != len(wanted):
        raise Fault("bad-attribute", "`CenterCropPad` has different numbers of axes and sizes")
    for axis, size in zip(axes, wanted, strict=True):
        have = x.shape[axis]
        if size < have:
            x = part(call, x, axis, (have - size) // 2, size)
        elif size > have:
            pads = [0] * (2 * len(x.shape))
            pads[axis] = (size - have) // 2
            pads[axis + len(x.shape)] = size - have - pads[axis]
            x = call.emit(Pad(tuple(pads)), x)
    return x


@importer("Col2Im")
def col2im(call: OnnxCall) -> Answer:
    image, block = call.int_list(1, "image shape"), call.int_list(2, "block shape")
    n = len(image)
    op = Col2Im(
        tuple(image), tuple(block), tuple(call.ints("strides") or [1] * n), tuple(call.ints("pads") or [0] * 2 * n),
        tuple(call.ints("dilations") or [1] * n),
    )  # fmt: skip
    return call.emit(op, call.value(0))


@importer("AffineGrid")
def affine_grid(call: OnnxCall) -> Answer:
    """theta [N,d,d+1] times the homogeneous coordinates of a grid, which are constants."""
    theta = call.value(0)
    size = call.int_list(1, "size")
    align = bool(call.integer("align_corners"))
    spatial = size[2:]
    if len(spatial) not in (2, 3) or min(size) < 1:
        raise unsupported(f"`AffineGrid` for the size {size} is not supported")
    lines = []
    for n in spatial:
        centres = (np.arange(n) * 2 + 1) / n - 1
        lines.append(centres if not align else np.linspace(-1, 1, n) if n > 1 else np.zeros(n))
    mesh = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*[m.reshape(-1) for m in mesh[::-1]], np.ones(math.prod(spatial))], axis=1)
    grid = call.constant(points.astype(np.float64))
    grid = call.emit(Cast(theta.dtype), grid) if theta.dtype.value != "f64" else grid
    y = call.emit(MatMul(transpose_b=True), grid, theta)
    return reshape(call, y, (size[0], *spatial, len(spatial)))
