"""Fourier transforms. A complex number is a pair of floats along one more, last axis.

RFFT2D is a product with a constant matrix of cosines and sines; audio models have one row only, so a second product is rare.
"""

from __future__ import annotations

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.container import COMPLEX
from intaglio.frontends.tflite.walk import TFLiteCall, constant, importer
from intaglio.ir.graph import Array, Value
from intaglio.ir.types import DType
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Pad, Reshape, Slice, Transpose
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Sqrt

MOST_POINTS = 1 << 13


def is_complex(call: TFLiteCall, i: int = 0) -> bool:
    return call.tensor(i).kind == COMPLEX


def waves(length: int, bins: int) -> Array:
    """Cosine and minus sine of every bin, [length, bins, 2]."""
    turns = np.outer(np.arange(length), np.arange(bins)) % length / length * 2.0 * np.pi
    return np.stack([np.cos(turns), -np.sin(turns)], -1)


@importer("RFFT2D")
def rfft2d(call: TFLiteCall) -> None:
    x, asked = call.value(0), [int(d) for d in call.known(1, "length").reshape(-1)]
    if x.type.rank < 2 or x.dtype is not DType.F32 or len(asked) != 2 or min(asked) < 1:
        raise Fault("bad-attribute", f"a transform of {x.dtype.value}{list(x.shape)} in {asked} points")
    if call.out().kind != COMPLEX:
        raise Fault("bad-tensor", "its result is not of complex numbers", "the file is damaged")
    if max(asked) > MOST_POINTS:
        raise Fault("unsupported-operator", f"a transform of {asked} points is too large", "use shorter windows")
    rows, points = asked
    x = _fitted(call, x, rows, points)
    lead, bins = x.shape[:-2], points // 2 + 1
    count = x.type.elements // points
    flat = call.emit(Reshape((count, points)), x)
    y = call.emit(MatMul(), flat, constant(waves(points, bins).reshape(points, -1).astype(np.float32)))
    if rows > 1:
        y = _down(call, y, count // rows, rows, bins)
    call.give(call.emit(Reshape((*lead, rows, bins, 2)), y))


def _fitted(call: TFLiteCall, x: Value, rows: int, points: int) -> Value:
    """Cut off, or followed by zeros."""
    lead, (high, wide) = x.shape[:-2], x.shape[-2:]
    kept = (*lead, min(high, rows), min(wide, points))
    if kept != x.shape:
        x = call.emit(Slice((0,) * x.type.rank, (1,) * x.type.rank, kept), x)
    more = (*[0] * len(lead), rows - kept[-2], points - kept[-1])
    return call.emit(Pad((*[0] * x.type.rank, *more)), x) if any(more) else x


def _down(call: TFLiteCall, y: Value, images: int, rows: int, bins: int) -> Value:
    """The transform along the rows, of complex numbers: (a + ib)(c + is) as a matrix of four."""
    turned = call.emit(Transpose((0, 2, 1, 3)), call.emit(Reshape((images, rows, bins, 2)), y))
    cos, sin = np.moveaxis(waves(rows, rows), -1, 0)
    matrix = np.stack([np.stack([cos, sin], -1), np.stack([-sin, cos], -1)], 1)  # [row, part, bin, part]
    flat = call.emit(Reshape((images * bins, rows * 2)), turned)
    made = call.emit(MatMul(), flat, constant(matrix.reshape(rows * 2, rows * 2).astype(np.float32)))
    return call.emit(Transpose((0, 2, 1, 3)), call.emit(Reshape((images, bins, rows, 2)), made))


def part_of(call: TFLiteCall, z: Value, part: int) -> Value:
    """The real or the imaginary parts."""
    cut = call.emit(Slice((*[0] * (z.type.rank - 1), part), (1,) * z.type.rank, (*z.shape[:-1], 1)), z)
    return call.emit(Reshape(z.shape[:-1]), cut)


@importer("REAL", "IMAG", "COMPLEX_ABS")
def parts(call: TFLiteCall) -> None:
    if not is_complex(call):
        raise Fault("unsupported-type", "its input is not of complex numbers")
    z = call.value(0)
    if call.operator.op == "COMPLEX_ABS":
        call.give(call.emit(Sqrt(), call.emit(Reduce("sum_square", (z.type.rank - 1,), False), z)))
    else:
        call.give(part_of(call, z, 0 if call.operator.op == "REAL" else 1))
