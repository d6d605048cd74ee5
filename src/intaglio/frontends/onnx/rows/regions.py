"""Regions of pictures, wherever they lie: MaxRoiPool, the largest number of each of a few bins; CropAndResize, points of a grid.

The maximum of a span is that of two spans, each as long as a power of two, which may overlap. Those of every place are made first:

    level 0: x,   level k: max(level k - 1, level k - 1 moved by 2 ** (k - 1))        along rows, then along columns
    bin of rows a..b, columns c..d = max of four numbers: at (a or b - 2 ** i, c or d - 2 ** j) of the levels i, j
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.frontends.building import cast, concat, part, reshape, transpose, unsqueeze
from intaglio.frontends.onnx.call import Answer, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.activation import Clip
from intaglio.ops.binary import Add, Div, GreaterEqual, LessEqual, LogicalAnd, Max, Mul, Sub, Where
from intaglio.ops.index import Gather
from intaglio.ops.unary import Ceil, Floor


@dataclass(frozen=True, slots=True)
class Bins:
    """Of one axis, i64[regions, bins]: where the two spans begin, and their level. `full`: there is something in the bin."""

    first: Value
    second: Value
    level: Value
    full: Value


@importer("MaxRoiPool")
def max_roi_pool(call: OnnxCall) -> Answer:
    x, regions, pooled = call.value(0), call.value(1), call.ints("pooled_shape") or []
    if len(x.shape) != 4 or regions.shape[1:] != (5,) or len(pooled) != 2 or min(pooled) < 1:
        raise Fault("bad-attribute", f"`MaxRoiPool` of {list(x.shape)} and {list(regions.shape)} into {pooled} is not valid")
    images, channels, height, width = x.shape
    levels = _levels(call, transpose(call, x, (0, 2, 3, 1)), 1)
    levels = [one for level in levels for one in _levels(call, level, 2)]
    table = reshape(call, concat(call, levels, 0), (len(levels) * images * height * width, channels))
    rows, columns = _bins(call, regions, 2, pooled[0], height), _bins(call, regions, 1, pooled[1], width)
    image = _image(call, part(call, regions, 1, 0, 1), images)
    level = _plus(call, unsqueeze(call, rows.level, 2), width.bit_length(), unsqueeze(call, columns.level, 1))
    start = _plus(call, level, images, image)
    found = None
    for down in (rows.first, rows.second):
        for right in (columns.first, columns.second):
            at = _plus(call, _plus(call, start, height, unsqueeze(call, down, 2)), width, unsqueeze(call, right, 1))
            one = call.emit(Gather(0), table, at)
            found = one if found is None else call.emit(Max(), found, one)
    assert found is not None
    full = call.emit(LogicalAnd(), unsqueeze(call, rows.full, 2), unsqueeze(call, columns.full, 1))
    y = call.emit(Where(), unsqueeze(call, full, 3), found, call.like(0.0, found))
    return transpose(call, y, (0, 3, 1, 2))


def _image(call: OnnxCall, number: Value, images: int) -> Value:
    """i64[regions, 1, 1]: the picture of each region."""
    index = cast(call, reshape(call, number, (number.type.elements, 1, 1)), DType.I64)
    return call.emit(Gather(0), call.constant(np.arange(images, dtype=np.int64)), index)  # which is checked there


def _plus(call: OnnxCall, index: Value, size: int, inner: Value) -> Value:
    """The index of a place in an axis of this size, inside of another."""
    return call.emit(Add(), call.emit(Mul(), index, call.like(size, index)), inner)


def _levels(call: OnnxCall, x: Value, axis: int) -> list[Value]:
    """The largest of 1, 2, 4, ... numbers from each place on; of those at the end, nobody asks."""
    size, step, levels = x.shape[axis], 1, [x]
    while 2 * step <= size:
        moved = concat(call, [part(call, x, axis, step, size - step), part(call, x, axis, 0, step)], axis)
        x = call.emit(Max(), x, moved)
        levels.append(x)
        step *= 2
    return levels


def _bins(call: OnnxCall, regions: Value, column: int, bins: int, size: int) -> Bins:
    """Where bins begin and end, as ONNX Runtime rounds."""
    low, high = (_rounded(call, part(call, regions, 1, at, 1)) for at in (column, column + 2))
    one = call.like(1, low)
    length = call.emit(Max(), call.emit(Add(), call.emit(Sub(), high, low), one), one)
    each = call.emit(Div(), cast(call, length, regions.dtype), call.like(bins, regions))
    number = np.arange(bins + 1, dtype=regions.dtype.numpy)
    ends = [
        call.emit(op, call.emit(Mul(), each, call.constant(number[cut], regions.dtype)))
        for op, cut in ((Floor(), slice(bins)), (Ceil(), slice(1, bins + 1)))
    ]
    start, end = (call.emit(Clip(0, size), call.emit(Add(), cast(call, place, DType.I64), low)) for place in ends)
    full = call.emit(GreaterEqual(), end, call.emit(Add(), start, one))
    length = call.emit(Where(), full, call.emit(Sub(), end, start), one)
    start = call.emit(Where(), full, start, call.like(0, start))
    power = np.array([0, *(n.bit_length() - 1 for n in range(1, size + 1))], np.int64)
    level, span = (call.emit(Gather(0), call.constant(table), length) for table in (power, 2**power))
    return Bins(start, call.emit(Sub(), call.emit(Add(), start, length), span), level, full)


def _rounded(call: OnnxCall, place: Value) -> Value:
    """Times the scale, to the nearest whole number."""
    return _nearest(call, call.emit(Mul(), place, call.like(call.real("spatial_scale", 1.0), place)))


def _nearest(call: OnnxCall, x: Value) -> Value:
    """A half goes away from 0."""
    whole = cast(call, x, DType.I64)
    rest = call.emit(Sub(), x, cast(call, whole, x.dtype))
    up = cast(call, call.emit(GreaterEqual(), rest, call.like(0.5, rest)), DType.I64)
    down = cast(call, call.emit(LessEqual(), rest, call.like(-0.5, rest)), DType.I64)
    return call.emit(Sub(), call.emit(Add(), whole, up), down)


# CropAndResize --------------------------------------------------------------------------------------------------------------


@importer("CropAndResize", domain="com.microsoft")
def crop_and_resize(call: OnnxCall) -> Answer:
    """A grid of points from corner to corner of each region, between four numbers or at the nearest."""
    x, regions, size = call.value(0), call.value(1), call.int_list(3, "crop size")
    mode = call.text("mode", "bilinear")
    if len(x.shape) != 4 or regions.shape[1:] != (4,) or len(size) != 2 or min(size) < 1 or mode not in ("bilinear", "nearest"):
        what = f"`CropAndResize` of {list(x.shape)} and {list(regions.shape)} to {size}, {mode}, is not valid"
        raise Fault("bad-attribute", what)
    images, channels, height, width = x.shape
    table = reshape(call, transpose(call, x, (0, 2, 3, 1)), (images * height * width, channels))
    image = _image(call, call.value(2), images)
    rows = unsqueeze(call, _points(call, regions, 0, size[0], height), 2)
    columns = unsqueeze(call, _points(call, regions, 1, size[1], width), 1)
    inside = call.emit(LogicalAnd(), _within(call, rows, height), _within(call, columns, width))

    def at(row: Value, column: Value) -> Value:
        places = (call.emit(Clip(0, n - 1), place) for place, n in ((row, height), (column, width)))
        down, right = places
        return call.emit(Gather(0), table, _plus(call, _plus(call, image, height, down), width, right))

    if mode == "nearest":
        y = at(_nearest(call, rows), _nearest(call, columns))
    else:
        (top, bottom, down), (left, right, across) = (_between(call, place) for place in (rows, columns))
        above, below = (_mixed(call, at(row, left), at(row, right), across) for row in (top, bottom))
        y = _mixed(call, above, below, down)
    y = call.emit(Where(), unsqueeze(call, inside, 3), y, call.like(call.real("extrapolation_value", 0.0), y))
    return transpose(call, y, (0, 3, 1, 2))


def _points(call: OnnxCall, regions: Value, column: int, count: int, size: int) -> Value:
    """f32[regions, count]: from the first corner to the second; one alone is in the middle."""
    last = call.like(size - 1, regions)
    first, second = (part(call, regions, 1, at, 1) for at in (column, column + 2))
    if count == 1:
        middle = call.emit(Mul(), call.emit(Add(), first, second), call.like(0.5, regions))
        return call.emit(Mul(), middle, last)
    step = call.emit(Div(), call.emit(Mul(), call.emit(Sub(), second, first), last), call.like(count - 1, regions))
    begin, end = (call.emit(Mul(), corner, last) for corner in (first, second))
    between = call.constant(np.arange(count - 1, dtype=regions.dtype.numpy), regions.dtype)
    return concat(call, [call.emit(Add(), begin, call.emit(Mul(), step, between)), end], 1)


def _within(call: OnnxCall, place: Value, size: int) -> Value:
    low = call.emit(GreaterEqual(), place, call.like(0, place))
    return call.emit(LogicalAnd(), low, call.emit(LessEqual(), place, call.like(size - 1, place)))


def _between(call: OnnxCall, place: Value) -> tuple[Value, Value, Value]:
    """The two neighbours, and how far from the first."""
    low, high = call.emit(Floor(), place), call.emit(Ceil(), place)
    return cast(call, low, DType.I64), cast(call, high, DType.I64), unsqueeze(call, call.emit(Sub(), place, low), 3)


def _mixed(call: OnnxCall, a: Value, b: Value, share: Value) -> Value:
    return call.emit(Add(), a, call.emit(Mul(), call.emit(Sub(), b, a), share))
