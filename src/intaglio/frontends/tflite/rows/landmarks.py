"""MediaPipe's custom operators on landmarks, as its kernels for the CPU compute them (mediapipe/util/tflite/operations):

    Landmarks2TransformMatrix     the affine map from a cropped, upright picture back to the one that the landmarks are in
    TransformTensorBilinear       the cropped picture: every pixel is read where the map puts it, 0 outside
    TransformLandmarks            landmarks of the cropped picture, in the whole one

Version 1 of the first has its own ranges (`landmarks_range`, `input_hw`); version 2 works in pixels, with centres at one half.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.frontends.building import concat, reshape, transpose
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import TFLiteCall, constant, importer
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, Div, Equal, Less, LogicalOr, Mul, Sub, Where
from intaglio.ops.index import Gather
from intaglio.ops.reduce import Reduce
from intaglio.ops.sample import GridSample
from intaglio.ops.unary import Atan, Cos, Neg, Sin, Sqrt


@dataclass(frozen=True, slots=True)
class _Arithmetic:
    """f32 scalars and arrays; numbers of Python are constants."""

    call: TFLiteCall

    def of(self, x: Value | float) -> Value:
        return x if isinstance(x, Value) else constant(np.asarray(x, np.float32))

    def add(self, a: Value, b: Value | float) -> Value:
        return self.call.emit(Add(), a, self.of(b))

    def sub(self, a: Value | float, b: Value | float) -> Value:
        return self.call.emit(Sub(), self.of(a), self.of(b))

    def mul(self, a: Value, b: Value | float) -> Value:
        return self.call.emit(Mul(), a, self.of(b))

    def div(self, a: Value, b: Value | float) -> Value:
        return self.call.emit(Div(), a, self.of(b))

    def neg(self, a: Value) -> Value:
        return self.call.emit(Neg(), a)

    def turned(self, x: Value, y: Value, cos: Value, sin: Value) -> tuple[Value, Value]:
        return self.sub(self.mul(x, cos), self.mul(y, sin)), self.add(self.mul(x, sin), self.mul(y, cos))


def _options(call: TFLiteCall) -> dict[str, Any]:
    try:
        from flatbuffers import flexbuffers

        fields = flexbuffers.Loads(bytes(call.operator.custom))
    except Exception:  # flexbuffers follows offsets wherever they lead
        raise Fault("bad-attribute", "its options cannot be read", "the file is damaged") from None
    if not isinstance(fields, dict):
        raise Fault("bad-attribute", "its options cannot be read", "the file is damaged")
    return fields


def _number(fields: dict[str, Any], name: str) -> float:
    value = fields.get(name)
    if not isinstance(value, (int, float)) or not math.isfinite(value):
        raise Fault("bad-attribute", f"its option `{name}` is missing or no number")
    return float(np.float32(value))


def _list(fields: dict[str, Any], name: str, count: int = 0) -> list[int]:
    value = fields.get(name)
    if (
        not isinstance(value, (list, tuple))
        or not value
        or count not in (0, len(value))
        or not all(isinstance(n, int) for n in value)
    ):
        raise Fault("bad-attribute", f"its option `{name}` is missing or no list of whole numbers")
    return list(value)


def _landmark(call: TFLiteCall, points: Value, index: float) -> tuple[Value, Value]:
    """(x, y) of one."""
    if not 0 <= index < points.shape[0]:
        raise Fault("bad-attribute", f"there is no landmark {int(index)} among {points.shape[0]}")
    row = call.emit(Gather(0), points, constant(np.asarray(int(index), np.int64)))
    x, y = (call.emit(Gather(0), row, constant(np.asarray(n, np.int64))) for n in (0, 1))
    return x, y


def _subset(call: TFLiteCall, points: Value, places: list[int]) -> tuple[Value, Value]:
    if not all(0 <= n < points.shape[0] for n in places):
        raise Fault("bad-attribute", f"it names a landmark that is not among {points.shape[0]}")
    rows = call.emit(Gather(0), points, constant(np.asarray(places, np.int64)))
    x, y = (call.emit(Gather(1), rows, constant(np.asarray(n, np.int64))) for n in (0, 1))
    return x, y


def _box(call: TFLiteCall, x: Value, y: Value, cos: Value, sin: Value) -> tuple[list[Value], list[Value]]:
    """(largest, smallest) of the points when they are turned."""
    sides = _Arithmetic(call).turned(x, y, cos, sin)
    return [call.emit(Reduce("max", (0,), False), v) for v in sides], [call.emit(Reduce("min", (0,), False), v) for v in sides]


def _matrix(call: TFLiteCall, linear: list[Value], shift: list[Value]) -> None:
    """The map as 4 x 4 numbers; z stays as it is."""

    def row(*items: Value | float) -> list[Value]:
        return [reshape(call, v if isinstance(v, Value) else constant(np.asarray(v, np.float32)), (1,)) for v in items]

    rows = [*row(linear[0], linear[1], 0.0, shift[0]), *row(linear[2], linear[3], 0.0, shift[1])]
    rest = constant(np.asarray([0, 0, 1, 0, 0, 0, 0, 1], np.float32))
    call.give(reshape(call, concat(call, [*rows, rest], 0), (1, 4, 4)))


@importer("CUSTOM Landmarks2TransformMatrix", "CUSTOM Landmarks2TransformMatrixV2")
def transform_matrix(call: TFLiteCall) -> None:
    x, fields = call.value(0), _options(call)
    if x.dtype is not DType.F32 or x.type.elements % 3:
        raise Fault("unsupported-operator", f"landmarks of {x.type} are not supported")
    points = reshape(call, x, (x.type.elements // 3, 3))
    (_second if "subset_idxs" in fields else _first)(call, points, fields)


def _second(call: TFLiteCall, points: Value, fields: dict[str, Any]) -> None:
    e = _Arithmetic(call)
    left, right = (_landmark(call, points, _number(fields, name)) for name in ("left_rotation_idx", "right_rotation_idx"))
    dx, dy = e.sub(right[0], left[0]), e.sub(right[1], left[1])
    length = call.emit(Sqrt(), e.add(e.mul(dx, dx), e.mul(dy, dy)))
    none = call.emit(Equal(), length, e.of(0.0))  # both in one place: not turned
    divisor = call.emit(Where(), none, e.of(1.0), length)
    c, s = call.emit(Where(), none, e.of(1.0), e.div(dx, divisor)), e.div(dy, divisor)
    target = _number(fields, "target_rotation_radians") if "target_rotation_radians" in fields else 0.0
    cos = e.add(e.mul(c, math.cos(target)), e.mul(s, math.sin(target)))  # of target - atan2(dy, dx)
    sin = e.sub(e.mul(c, math.sin(target)), e.mul(s, math.cos(target)))
    high, low = _box(call, *_subset(call, points, _list(fields, "subset_idxs")), cos, sin)
    middle = [e.div(e.add(a, b), 2.0) for a, b in zip(low, high, strict=True)]
    back = e.turned(middle[0], middle[1], cos, e.neg(sin))
    sizes = [_number(fields, "output_width"), _number(fields, "output_height")]
    if min(sizes) <= 0:
        raise Fault("bad-attribute", f"its output is {sizes}")
    scale = [
        e.div(e.mul(e.sub(a, b), _number(fields, name)), size)
        for a, b, name, size in zip(high, low, ("scale_x", "scale_y"), sizes, strict=True)
    ]
    linear = [e.mul(cos, scale[0]), e.mul(sin, scale[1]), e.neg(e.mul(sin, scale[0])), e.mul(cos, scale[1])]
    shift = [e.sub(back[n], e.add(e.mul(linear[2 * n], sizes[0] / 2), e.mul(linear[2 * n + 1], sizes[1] / 2))) for n in (0, 1)]
    _matrix(call, linear, shift)


def _first(call: TFLiteCall, points: Value, fields: dict[str, Any]) -> None:
    e = _Arithmetic(call)
    left, right = (_landmark(call, points, _number(fields, name)) for name in ("left_rotation_idx", "right_rotation_idx"))
    angle = e.neg(call.emit(Atan(), e.div(e.sub(right[1], left[1]), e.sub(right[0], left[0]))))
    cos, sin = call.emit(Cos(), angle), call.emit(Sin(), angle)
    high, low = _box(call, *_subset(call, points, _list(fields, "subset")), cos, sin)
    span, factor = _number(fields, "landmarks_range"), _number(fields, "bbox_size_multiplier")
    (in_h, in_w), (out_h, out_w) = _list(fields, "input_hw", 2), _list(fields, "output_hw", 2)
    if span <= 0 or min(in_h, in_w) < 1 or min(out_h, out_w) < 2:
        raise Fault("bad-attribute", f"its range is {span}, its sizes {[in_h, in_w]} and {[out_h, out_w]}")
    scale = [e.div(e.mul(e.sub(a, b), factor), span) for a, b in zip(high, low, strict=True)]
    middle = [e.div(e.add(a, b), 2.0) for a, b in zip(high, low, strict=True)]
    places = [e.sub(e.mul(e.div(v, span), 2.0), 1.0) for v in e.turned(middle[0], middle[1], cos, e.neg(sin))]
    turned = [e.mul(cos, scale[0]), e.mul(sin, scale[1]), e.neg(e.mul(sin, scale[0])), e.mul(cos, scale[1])]
    halves, steps = [(in_w - 1) / 2, (in_h - 1) / 2], [2 / (out_w - 1), 2 / (out_h - 1)]
    linear = [e.mul(v, halves[n // 2] * steps[n % 2]) for n, v in enumerate(turned)]
    shift = []
    for n in (0, 1):
        start = e.sub(places[n], e.add(turned[2 * n], turned[2 * n + 1]))
        shift.append(e.add(e.mul(start, halves[n]), halves[n]))
    _matrix(call, linear, shift)


def _rows(call: TFLiteCall, matrix: Value) -> list[list[Value]]:
    """The numbers of the first two rows."""
    if matrix.type.elements != 16 or matrix.dtype is not DType.F32:
        raise Fault("shape-mismatch", f"its matrix is {matrix.type}, not 4 x 4")
    flat = reshape(call, matrix, (16,))
    return [[call.emit(Gather(0), flat, constant(np.asarray(4 * r + c, np.int64))) for c in range(4)] for r in (0, 1)]


@importer("CUSTOM TransformTensorBilinear", "CUSTOM TransformTensorBilinearV2")
def transform_tensor(call: TFLiteCall) -> None:
    x, e = call.value(0), _Arithmetic(call)
    shape = call.out().shape
    if x.type.rank != 4 or len(shape) != 4 or x.shape[0] != 1 or x.dtype is not DType.F32 or shape[3] != x.shape[3]:
        raise Fault("unsupported-operator", f"a picture of {x.type} that becomes {list(shape)} is not supported")
    centred = call.operator.version >= 2 or call.operator.op.endswith("V2")
    rows: Array = np.arange(shape[1], dtype=np.float32).reshape(1, -1, 1)
    columns: Array = np.arange(shape[2], dtype=np.float32).reshape(1, 1, -1)
    grid, outside = [], constant(np.zeros((1, 1, 1), np.bool_))
    for (a, b, _, d), size in zip(_rows(call, call.value(1)), (x.shape[2], x.shape[1]), strict=True):
        start = e.sub(e.add(d, e.add(e.mul(a, 0.5), e.mul(b, 0.5))), 0.5) if centred else d
        place = e.add(e.add(e.mul(a, constant(columns)), e.mul(b, constant(rows))), start)
        beyond = call.emit(LogicalOr(), call.emit(Less(), place, e.of(0.0)), call.emit(Less(), e.of(size - 1.0), place))
        outside = call.emit(LogicalOr(), outside, beyond)
        scaled = e.sub(e.mul(place, 2 / (size - 1)), 1.0) if size > 1 else e.mul(place, 0.0)
        grid.append(reshape(call, scaled, (1, shape[1], shape[2], 1)))
    sample = GridSample("linear", "border", True)
    read = call.emit(sample, transpose(call, x, (0, 3, 1, 2)), concat(call, grid, 3))
    masked = call.emit(Where(), reshape(call, outside, (1, 1, shape[1], shape[2])), e.of(0.0), read)
    call.give(transpose(call, masked, (0, 2, 3, 1)))


@importer("CUSTOM TransformLandmarks", "CUSTOM TransformLandmarksV2")
def transform_landmarks(call: TFLiteCall) -> None:
    x, e = call.value(0), _Arithmetic(call)
    second = x.type.rank == 3  # version 2: a landmark per row
    fields = {} if second else _options(call)
    size = x.shape[-1] if second else int(fields.get("dimensions", 3))
    factor = 1.0 if second or "scale" not in fields else _number(fields, "scale")
    if x.dtype is not DType.F32 or size not in (2, 3) or x.type.elements % size:
        raise Fault("unsupported-operator", f"landmarks of {x.type} with {size} numbers each are not supported")
    points = reshape(call, x, (x.type.elements // size, size))
    px, py = (call.emit(Gather(1), points, constant(np.asarray([n], np.int64))) for n in (0, 1))
    sides = [e.add(e.add(e.mul(px, a), e.mul(py, b)), e.mul(d, factor)) for a, b, _, d in _rows(call, call.value(1))]
    rest = [call.emit(Gather(1), points, constant(np.asarray([2], np.int64)))] if size == 3 else []
    call.give(reshape(call, concat(call, [*sides, *rest], 1), x.shape))
