"""`Resize` along an axis whose size before or after has a range: places and weights are computed when it runs.

    nearest    y = gather(x, round(place))
    linear     y = gather(x, floor(place)) * (1 - rest) + gather(x, floor(place) + 1) * rest

`place` is where an element of the result lies in x, computed as the tables of `Resize` are made, in single precision for `nearest`
and in doubles for `linear`: with another one, it may be another element. Where the quotient of the sizes is one number for all of
them, `Resize` itself does it, with such a table."""

from __future__ import annotations

import numpy as np

from intaglio.frontends.building import cast, reshape
from intaglio.frontends.onnx.call import OnnxCall
from intaglio.frontends.onnx.faults import unsupported
from intaglio.ir.graph import Value
from intaglio.ir.sizes import is_size, least
from intaglio.ir.types import DType
from intaglio.ops.base import Op
from intaglio.ops.binary import Add, Div, Max, Min, Mul, Sub
from intaglio.ops.index import Gather
from intaglio.ops.resize import HALF
from intaglio.ops.sizes import Dimensions, Iota
from intaglio.ops.unary import Ceil, Floor

COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
HINT = "use `nearest` or `linear`, give one size (`--dim NAME=N`), or a factor instead of a size"


def resized_axis(call: OnnxCall, x: Value, axis: int, size: int) -> Value:
    """x with `size` elements along this axis."""
    mode, coordinate = call.text("mode", "nearest"), call.text("coordinate_transformation_mode", "half_pixel")
    if mode == "cubic" or call.integer("antialias") or coordinate not in COORDINATES or x.dtype is not DType.F32:
        raise unsupported(f"`Resize` by `{mode}` and `{coordinate}` to a size that has a range is not supported", HINT)
    if coordinate == "pytorch_half_pixel" and not least(size) > 1:
        raise unsupported(f"`Resize` by `{coordinate}` to a size that may be 1 is not supported", HINT)
    place = _place(call, coordinate, x.shape[axis], size, DType.F32 if mode == "nearest" else DType.F64)
    last = _number(call, x.shape[axis] - 1)
    if mode == "nearest":
        return call.emit(Gather(axis), x, _index(call, _rounded(call, place), last))
    inside = call.emit(Max(), call.emit(Min(), place, last), _float(call, 0.0))
    below = call.emit(Floor(), inside)
    first, second = _index(call, below, last), _index(call, call.emit(Add(), below, _float(call, 1.0)), last)
    shape = (size, *[1] * (x.type.rank - axis - 1))
    rest = call.emit(Sub(), inside, below)
    one_less, rest = (
        reshape(call, cast(call, part, x.dtype), shape) for part in (call.emit(Sub(), _float(call, 1.0), rest), rest)
    )
    sides = [call.emit(Mul(), call.emit(Gather(axis), x, at), by) for at, by in ((first, one_less), (second, rest))]
    return call.emit(Add(), *sides)


def _place(call: OnnxCall, coordinate: str, before: int, after: int, dtype: DType) -> Value:
    """f64[after], rounded at every step as `dtype` is."""
    if coordinate == "align_corners":
        return _between_corners(call, before, after)
    start = 0.5 if "half_pixel" in coordinate else 0.0
    steps = cast(call, call.emit(Iota(after, start, 1, DType.F64)), dtype)
    scale = cast(call, call.emit(Div(), _number(call, after), _number(call, before)), dtype)
    place = call.emit(Div(), steps, scale)
    moved = call.emit(Sub(), place, cast(call, _float(call, 0.5), dtype)) if start else place
    return cast(call, moved, DType.F64)


def _between_corners(call: OnnxCall, before: int, after: int) -> Value:
    """i * (before - 1) / (after - 1), in whole numbers as far as it goes: division by a constant may be off in the last bit, and a
    place that is an element must not become the next one."""
    room = call.emit(Max(), _whole(call, after - 1), call.constant(np.array([1], np.int64)))
    product = call.emit(Mul(), call.emit(Iota(after)), _whole(call, before - 1))
    whole = call.emit(Div(), product, room)
    left = call.emit(Sub(), product, call.emit(Mul(), whole, room))
    rest = call.emit(Div(), cast(call, left, DType.F64), cast(call, room, DType.F64))
    return call.emit(Add(), cast(call, whole, DType.F64), rest)


def _rounded(call: OnnxCall, place: Value) -> Value:
    kinds: dict[str, tuple[type[Op], float]] = {
        "round_prefer_floor": (Ceil, -0.5 - HALF), "round_prefer_ceil": (Floor, 0.5 + HALF),
        "floor": (Floor, 0.0), "ceil": (Ceil, 0.0),
    }  # fmt: skip
    kind, offset = kinds[call.text("nearest_mode", "round_prefer_floor")]
    return call.emit(kind(), call.emit(Add(), place, _float(call, offset)) if offset else place)


def _index(call: OnnxCall, place: Value, last: Value) -> Value:
    return cast(call, call.emit(Max(), call.emit(Min(), place, last), _float(call, 0.0)), DType.I64)


def _whole(call: OnnxCall, size: int) -> Value:
    return call.emit(Dimensions((size,), (1,))) if is_size(size) else call.constant(np.array([size], np.int64))


def _number(call: OnnxCall, size: int) -> Value:
    return cast(call, _whole(call, size), DType.F64) if is_size(size) else _float(call, float(size))


def _float(call: OnnxCall, number: float) -> Value:
    return call.constant(np.array([number], np.float64))
