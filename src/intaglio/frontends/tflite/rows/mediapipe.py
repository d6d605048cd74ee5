"""MediaPipe's custom operators that its segmentation models use: a transposed convolution with a bias, maxima with their places,
and maxima put back to these places. Their options are plain structs of 32-bit numbers: padding, strides (x, y), kernel (x, y), ...

What they compute is that of MediaPipe's kernels for the CPU (mediapipe/util/tflite/operations).
"""

from __future__ import annotations

import math
import struct

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.rows.activation import activate
from intaglio.frontends.tflite.rows.convolution import bias_of, filter_of
from intaglio.frontends.tflite.walk import LARGEST, TFLiteCall, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType, Layout
from intaglio.ops.binary import Add, Equal, Where
from intaglio.ops.conv import ConvTranspose
from intaglio.ops.convert import Cast
from intaglio.ops.index import ScatterNd
from intaglio.ops.move import Reshape, Transpose
from intaglio.ops.reduce import ArgReduce, Reduce

_SAME, _VALID = 1, 2
_PLACE = 0.1  # MediaPipe adds it to a place, so that cutting it off is safe


def _numbers(call: TFLiteCall, count: int) -> tuple[int, ...]:
    data = bytes(call.operator.custom)
    if len(data) < 4 * count:
        raise Fault("bad-attribute", "its options are cut short", "the file is damaged")
    return struct.unpack_from(f"<{count}i", data)


@importer("CUSTOM Convolution2DTransposeBias")
def transposed_convolution(call: TFLiteCall) -> None:
    padding, stride_x, stride_y = _numbers(call, 3)
    x, weights = call.value(0), filter_of(call, 1)
    assert weights.data is not None
    fits = x.type.rank == weights.type.rank == 4 and weights.shape[3] == x.shape[3] and x.dtype is DType.F32
    if not fits or min(stride_x, stride_y) < 1 or padding not in (_SAME, _VALID):
        raise Fault("shape-mismatch", f"an image of {list(x.shape)} and a filter of {list(weights.shape)} do not fit together")
    strides, kernel = (stride_y, stride_x), weights.shape[1:3]
    total = [max(0, k - (n - 1) % s - 1) if padding == _SAME else 0 for n, k, s in zip(x.shape[1:3], kernel, strides, strict=True)]
    before = [n // 2 for n in total]
    pads = (*before, *(n - b for n, b in zip(total, before, strict=True)))
    w = constant(np.ascontiguousarray(weights.data.transpose(3, 0, 1, 2)), weights.dtype, weights.origin)
    call.give(call.emit(ConvTranspose(strides, pads, (1, 1), 1, (0, 0), Layout.NHWC), x, w, bias_of(call, 2)))


def _tiles(call: TFLiteCall) -> tuple[int, int, int]:
    """(rows, columns, activation) of windows that lie side by side: those of every known model."""
    _, stride_x, stride_y, width, height, activation = _numbers(call, 6)
    if (stride_x, stride_y) != (width, height) or min(width, height) < 1:
        raise Fault("unsupported-operator", f"windows of {height}x{width} in steps of {stride_y}x{stride_x} are not supported")
    return height, width, activation


@importer("CUSTOM MaxPoolingWithArgmax2D")
def maximum_and_place(call: TFLiteCall) -> None:
    rows, columns, activation = _tiles(call)
    x = call.value(0)
    if x.type.rank != 4 or x.dtype is not DType.F32 or x.shape[1] % rows or x.shape[2] % columns:
        raise Fault("unsupported-operator", f"windows of {rows}x{columns} do not divide an image of {list(x.shape)}")
    n, h, w, c = x.shape
    apart = call.emit(Reshape((n, h // rows, rows, w // columns, columns, c)), x)
    sides = call.emit(Transpose((0, 1, 3, 2, 4, 5)), apart)
    windows = call.emit(Reshape((n, h // rows, w // columns, rows * columns, c)), sides)
    call.give(activate(call, call.emit(Reduce("max", (3,), False), windows), activation), 0)
    place = call.emit(Cast(DType.F32), call.emit(ArgReduce("max", 3, False), windows))
    call.give(call.emit(Add(), place, constant(np.asarray(_PLACE, np.float32))), 1)


@importer("CUSTOM MaxUnpooling2D", "CUSTOM LiteRtMaxUnpooling2D")
def put_back(call: TFLiteCall) -> None:
    """Places are floats within a window (MediaPipe), or whole numbers within the image that is made (LiteRT's perception ops)."""
    x, places = call.value(0), call.value(1)
    if x.type.rank != 4 or x.dtype is not DType.F32 or places.shape != x.shape:
        raise Fault("shape-mismatch", f"an image of {list(x.shape)} and places of {list(places.shape)} do not fit together")
    if places.dtype is DType.I32:
        _put_into_image(call, x, places)
        return
    rows, columns, _ = _tiles(call)
    n, h, w, c = x.shape
    chosen = call.emit(Reshape((n, h, w, 1, c)), call.emit(Cast(DType.I32), places))
    each = constant(np.arange(rows * columns, dtype=np.int32).reshape(1, 1, 1, -1, 1))
    value: Value = call.emit(Reshape((n, h, w, 1, c)), x)
    spread = call.emit(Where(), call.emit(Equal(), chosen, each), value, constant(np.asarray(0.0, np.float32)))
    sides = call.emit(Reshape((n, h, w, rows, columns, c)), spread)
    call.give(call.emit(Reshape((n, h * rows, w * columns, c)), call.emit(Transpose((0, 1, 3, 2, 4, 5)), sides)))


def _put_into_image(call: TFLiteCall, x: Value, places: Value) -> None:
    padding, stride_x, stride_y, width, height = _numbers(call, 5)
    if padding not in (_SAME, _VALID) or min(stride_x, stride_y, width, height) < 1:
        raise Fault("bad-attribute", f"windows of {height}x{width} in steps of {stride_y}x{stride_x} are not possible")
    n, h, w, c = x.shape
    same = padding == _SAME
    shape = (n, h * stride_y, w * stride_x, c) if same else (n, (h - 1) * stride_y + height, (w - 1) * stride_x + width, c)
    each, count = h * w * c, math.prod(shape)
    if count > LARGEST:
        raise Fault("bad-tensor", f"its result would be {list(shape)}, which is too large")
    first = constant(np.repeat(np.arange(n, dtype=np.int32) * np.int32(count // max(n, 1)), each))
    at = call.emit(Add(), call.emit(Reshape((n * each,)), places), first)
    flat = constant(np.zeros(count, np.float32))
    made = call.emit(ScatterNd(), flat, call.emit(Reshape((n * each, 1)), at), call.emit(Reshape((n * each,)), x))
    call.give(call.emit(Reshape(shape), made))
