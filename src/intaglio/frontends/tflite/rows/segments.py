"""Sums by segment, boxes that do not overlap, tables of borders: rows that are made of scatters, comparisons and reductions."""

from __future__ import annotations

import math

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import LARGEST, TFLiteCall, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType, broadcast_shapes
from intaglio.ops.activation import Clip
from intaglio.ops.binary import Add, GreaterEqual, Less, Mul, Sub, Where
from intaglio.ops.convert import Cast
from intaglio.ops.detection import SuppressBoxes
from intaglio.ops.index import Gather, ScatterNd
from intaglio.ops.move import Reshape, Slice
from intaglio.ops.reduce import Reduce
from intaglio.ops.small import BitCast
from intaglio.ops.unary import Floor

REDUCTIONS = {"SUM": "add", "PROD": "mul", "MAX": "max", "MIN": "min"}


def _first(kind: str, dtype: DType) -> float:
    """What a segment without members is."""
    if kind in ("SUM", "PROD"):
        return float(kind == "PROD")
    info = np.finfo(dtype.numpy) if dtype.is_float else np.iinfo(dtype.numpy)
    return info.min if kind == "MAX" else info.max


def _by_segment(call: TFLiteCall, kind: str, ids: Value, segments: int) -> Value:
    """Members of a segment below 0 do not count: they go to a row of their own, which is cut off."""
    x = call.value(0)
    rank = ids.type.rank
    if x.shape[:rank] != ids.shape or ids.dtype not in (DType.I32, DType.I64):
        raise Fault("shape-mismatch", f"segments of {list(ids.shape)} do not fit {list(x.shape)}")
    rest = x.shape[rank:]
    if not 0 <= segments <= LARGEST // max(math.prod(rest), 1):
        raise Fault("bad-attribute", f"{segments} segments are not possible")
    count = math.prod(ids.shape)
    rows = call.emit(Reshape((count, *rest)), x)
    zero = constant(np.asarray(0, ids.dtype.numpy))
    none = constant(np.asarray(segments, ids.dtype.numpy))
    flat = call.emit(Reshape((count,)), ids)
    at = call.emit(Reshape((count, 1)), call.emit(Where(), call.emit(Less(), flat, zero), none, flat))
    start = constant(np.full((segments + 1, *rest), _first(kind, x.dtype), x.dtype.numpy))
    summed = call.emit(ScatterNd(REDUCTIONS[kind]), start, at, rows)
    return call.emit(Slice((0,) * (1 + len(rest)), (1,) * (1 + len(rest)), (segments, *rest)), summed)


@importer("SEGMENT_SUM")
def segment_sum(call: TFLiteCall) -> None:
    ids = call.known(1, "segments").reshape(-1)
    if ids.size and (ids.min() < 0 or (np.diff(ids) < 0).any()):
        raise Fault("bad-tensor", "its segments are not in order")
    call.give(_by_segment(call, "SUM", call.value(1), int(ids[-1]) + 1 if ids.size else 0))


@importer(*(f"UNSORTED_SEGMENT_{kind}" for kind in REDUCTIONS))
def unsorted_segment(call: TFLiteCall) -> None:
    segments = int(call.known(2, "number of segments").reshape(-1)[0])
    call.give(_by_segment(call, call.operator.op.rpartition("_")[2], call.value(1), segments))


# Boxes ----------------------------------------------------------------------------------------------------------------------


@importer("NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5")
def non_max_suppression(call: TFLiteCall) -> None:
    boxes, soft = call.value(0), call.operator.op.endswith("V5")
    if boxes.type.rank != 2 or boxes.shape[1] != 4:
        raise Fault("shape-mismatch", f"boxes of {list(boxes.shape)} are not possible")
    most = call.size(2, "number of boxes", boxes.shape[0])
    sigma = call.value(5) if soft else constant(np.asarray(0, np.float32))
    indices, scores, count = call.emit_all(SuppressBoxes(most), boxes, *[call.value(n) for n in (1, 3, 4)], sigma)
    call.give(indices)
    if soft:
        call.give(scores, 1)
    call.give(call.emit(Reshape(()), count), 2 if soft else 1)


# Others ---------------------------------------------------------------------------------------------------------------------


@importer("BITCAST")
def bitcast(call: TFLiteCall) -> None:
    to = call.out().dtype
    if to is None or to.bytes != call.value(0).dtype.bytes:
        raise Fault("unsupported-operator", "between types of different size it is not supported")
    call.give(call.emit(BitCast(to), call.value(0)))


@importer("BROADCAST_ARGS")
def broadcast_args(call: TFLiteCall) -> None:
    shapes = [tuple(int(n) for n in call.known(n, "shape").reshape(-1)) for n in (0, 1)]
    try:
        call.give(constant(np.array(broadcast_shapes(*shapes), (call.out().dtype or DType.I32).numpy)))
    except ValueError as error:
        raise Fault("shape-mismatch", str(error)) from None


@importer("BUCKETIZE")
def bucketize(call: TFLiteCall) -> None:
    """How many borders are not above a number."""
    x, borders = call.value(0), call.options.BoundariesAsNumpy()
    table = constant(np.asarray(borders, np.float32).reshape(-1))
    wide = x if x.dtype is DType.F32 else call.emit(Cast(DType.F32), x)
    reached = call.emit(GreaterEqual(), call.emit(Reshape((*x.shape, 1)), wide), table)
    call.give(call.emit(Reduce("sum", (x.type.rank,), False), call.emit(Cast(DType.I32), reached)))


@importer("SPARSE_TO_DENSE")
def sparse_to_dense(call: TFLiteCall) -> None:
    places, values, usual = call.value(0), call.value(2), call.value(3)
    shape = tuple(int(n) for n in call.known(1, "shape").reshape(-1))
    if min(shape, default=1) < 0 or math.prod(shape) > LARGEST or usual.data is None:
        raise Fault("bad-attribute", f"a result of {list(shape)} is not valid")
    count = places.shape[0] if places.type.rank else 1
    at = call.emit(Reshape((count, places.type.elements // max(count, 1))), places)
    rows = values if values.type.elements == count else call.emit(Gather(0), values, constant(np.zeros(count, np.int64)))
    start = constant(np.full(shape, usual.data.reshape(-1)[0], usual.dtype.numpy))
    call.give(call.emit(ScatterNd(), start, at, call.emit(Reshape((count,)), rows)))


@importer("FAKE_QUANT")
def fake_quant(call: TFLiteCall) -> None:
    """Rounded to the numbers that integers would have, and floats all the time."""
    o = call.options
    low, high = np.float32(o.Min()), np.float32(o.Max())
    least, most = 0.0, float(2 ** o.NumBits() - 1)
    if o.NarrowRange():
        raise Fault("unsupported-operator", "a narrow range is for weights, and LiteRT does not run it", "convert the model again")
    if not low < high or o.NumBits() < 2:
        raise Fault("bad-attribute", f"a range from {low} to {high} in {o.NumBits()} bits is not valid")
    step = np.float32((high - low) / np.float32(most - least))
    zero = np.float32(least) - low / step
    nudged = np.float32(least if zero < least else most if zero > most else np.floor(zero + np.float32(0.5)))
    bottom, top = (np.float32(least) - nudged) * step, (np.float32(most) - nudged) * step
    inside = call.emit(Clip(float(bottom), float(top)), call.value(0))
    steps = call.emit(Mul(), call.emit(Sub(), inside, constant(np.asarray(bottom))), constant(np.asarray(np.float32(1) / step)))
    rounded = call.emit(Floor(), call.emit(Add(), steps, constant(np.asarray(0.5, np.float32))))
    call.give(call.emit(Add(), call.emit(Mul(), rounded, constant(np.asarray(step))), constant(np.asarray(bottom))))
