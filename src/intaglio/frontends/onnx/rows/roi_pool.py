"""MaxRoiPool: the largest number of each of a few bins of a region, wherever regions lie.

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
    count = regions.shape[0]
    image = cast(call, reshape(call, part(call, regions, 1, 0, 1), (count, 1, 1)), DType.I64)
    image = call.emit(Gather(0), call.constant(np.arange(images, dtype=np.int64)), image)  # which is checked there
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
    """Times the scale, to the next whole number, a half away from 0."""
    x = call.emit(Mul(), place, call.like(call.real("spatial_scale", 1.0), place))
    whole = cast(call, x, DType.I64)
    rest = call.emit(Sub(), x, cast(call, whole, x.dtype))
    up = cast(call, call.emit(GreaterEqual(), rest, call.like(0.5, rest)), DType.I64)
    down = cast(call, call.emit(LessEqual(), rest, call.like(-0.5, rest)), DType.I64)
    return call.emit(Sub(), call.emit(Add(), whole, up), down)
