"""`Resize` along an axis whose size before or after has a range: places and weights are computed when it runs.

    nearest    y = gather(x, round(place))
    linear     y = gather(x, floor(place)) * (1 - rest) + gather(x, floor(place) + 1) * rest

`place` is where an element of the result lies in x, computed as the tables of `Resize` are made, in single precision for `nearest`
and in doubles for `linear`: with another one, it may be another element. Where the quotient of the sizes is one number for all of
them and says where elements are, `Resize` itself does it, with such a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from intaglio.frontends.building import cast, one_factor, reshape
from intaglio.frontends.emitting import Emits
from intaglio.frontends.onnx.faults import unsupported
from intaglio.ir.graph import Value
from intaglio.ir.sizes import is_size, least, moves, smaller
from intaglio.ir.types import DType
from intaglio.ops.base import Op
from intaglio.ops.binary import Add, Div, Max, Min, Mul, Sub
from intaglio.ops.index import Gather
from intaglio.ops.resize import HALF
from intaglio.ops.sizes import Dimensions, Iota
from intaglio.ops.unary import Ceil, Floor

COORDINATES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")
OF_SIZES = ("align_corners", "pytorch_half_pixel")  # whose places follow from the sizes, whatever their quotient is
HINT = "use `nearest` or `linear`, give one size (`--dim NAME=N`), or a factor instead of a size"


@dataclass(frozen=True, slots=True)
class Way:
    """How to resize. `scale`: of an axis, where it is given instead of the size. `torch`: places of `nearest` are products."""

    mode: str
    coordinate: str
    rounding: str = "round_prefer_floor"
    scale: float | None = None
    torch: bool = False


def resized(call: Emits, x: Value, sizes: Mapping[int, int], ways: Mapping[int, Way]) -> tuple[Value, list[int]]:
    """Along the axes whose places are computed when it runs, and which these are; `Resize` has tables for the others."""
    axes = [axis for axis, size in sizes.items() if _needs_places(ways[axis], x.shape[axis], size)]
    if moves((*x.shape, *sizes.values())) and any(way.coordinate in OF_SIZES for way in ways.values()):
        # `Resize` itself takes no range then
        axes = [axis for axis, size in sizes.items() if x.shape[axis] != size]
    for axis in axes:
        x = resized_axis(call, x, axis, sizes[axis], ways[axis])
    return x, axes


def _needs_places(way: Way, before: int, after: int) -> bool:
    if not (is_size(before) or is_size(after)) or least(before) < 1 or (before == after and way.scale in (None, 1.0)):
        return False
    return way.coordinate in OF_SIZES or (way.scale is None and one_factor(after, before) is None)


def resized_axis(call: Emits, x: Value, axis: int, size: int, way: Way) -> Value:
    """x with `size` elements along this axis."""
    mode, coordinate = way.mode, way.coordinate
    if mode not in ("nearest", "linear") or coordinate not in COORDINATES or x.dtype is not DType.F32:
        raise unsupported(f"`Resize` by `{mode}` and `{coordinate}` to a size that has a range is not supported", HINT)
    place = _place(call, way, x.shape[axis], size, DType.F32 if mode == "nearest" else DType.F64)
    last = _number(call, x.shape[axis] - 1)
    if mode == "nearest":
        return call.emit(Gather(axis), x, _index(call, _rounded(call, place, way.rounding), last))
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


def _place(call: Emits, way: Way, before: int, after: int, dtype: DType) -> Value:
    """f64[after], rounded at every step as `dtype` is."""
    if way.coordinate == "align_corners":
        return _between_corners(call, before, after)
    start = 0.5 if "half_pixel" in way.coordinate else 0.0
    steps = cast(call, call.emit(Iota(after, start, 1, DType.F64)), dtype)
    if way.torch and way.mode == "nearest":
        return cast(call, call.emit(Mul(), steps, cast(call, _quotient(call, before, after, way.scale), dtype)), DType.F64)
    scale = _float(call, way.scale) if way.scale is not None else call.emit(Div(), _number(call, after), _number(call, before))
    place = call.emit(Div(), steps, cast(call, scale, dtype))
    moved = call.emit(Sub(), place, cast(call, _float(call, 0.5), dtype)) if start else place
    if way.coordinate == "pytorch_half_pixel":  # 0 where there is one
        moved = call.emit(Mul(), moved, cast(call, _number(call, smaller(after - 1, 1)), dtype))
    return cast(call, moved, DType.F64)


def _quotient(call: Emits, before: int, after: int, scale: float | None) -> Value:
    """How far apart elements of the result are in x."""
    if scale is not None:
        return _float(call, 1 / scale)
    return call.emit(Div(), _number(call, before), _number(call, after))


def _between_corners(call: Emits, before: int, after: int) -> Value:
    """i * (before - 1) / (after - 1), in whole numbers as far as it goes: division by a constant may be off in the last bit, and a
    place that is an element must not become the next one."""
    room = call.emit(Max(), _whole(call, after - 1), call.constant(np.array([1], np.int64)))
    product = call.emit(Mul(), call.emit(Iota(after)), _whole(call, before - 1))
    whole = call.emit(Div(), product, room)
    left = call.emit(Sub(), product, call.emit(Mul(), whole, room))
    rest = call.emit(Div(), cast(call, left, DType.F64), cast(call, room, DType.F64))
    return call.emit(Add(), cast(call, whole, DType.F64), rest)


def _rounded(call: Emits, place: Value, rounding: str) -> Value:
    kinds: dict[str, tuple[type[Op], float]] = {
        "round_prefer_floor": (Ceil, -0.5 - HALF), "round_prefer_ceil": (Floor, 0.5 + HALF),
        "floor": (Floor, 0.0), "ceil": (Ceil, 0.0),
    }  # fmt: skip
    kind, offset = kinds[rounding]
    return call.emit(kind(), call.emit(Add(), place, _float(call, offset)) if offset else place)


def _index(call: Emits, place: Value, last: Value) -> Value:
    return cast(call, call.emit(Max(), call.emit(Min(), place, last), _float(call, 0.0)), DType.I64)


def _whole(call: Emits, size: int) -> Value:
    return call.emit(Dimensions((size,), (1,))) if is_size(size) else call.constant(np.array([size], np.int64))


def _number(call: Emits, size: int) -> Value:
    return cast(call, _whole(call, size), DType.F64) if is_size(size) else _float(call, float(size))


def _float(call: Emits, number: float) -> Value:
    return call.constant(np.array([number], np.float64))
