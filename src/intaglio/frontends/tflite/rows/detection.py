"""TFLite_Detection_PostProcess, the custom operator that SSD models end with: boxes from anchors, the best that do not overlap."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.frontends.building import expand
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import TFLiteCall, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, Div, Greater, GreaterEqual, Max, Min, Mul, Sub, Where
from intaglio.ops.convert import Cast, Dequantize
from intaglio.ops.detection import SelectBoxes
from intaglio.ops.index import Gather, GatherElements
from intaglio.ops.move import Concat, Pad, Reshape, Slice, Transpose
from intaglio.ops.reduce import ArgReduce, Reduce, TopK
from intaglio.ops.unary import Exp


def _real(call: TFLiteCall, i: int) -> Value:
    x = call.value(i)
    if x.dtype is DType.F32:
        return x
    scale, zero = call.quant(call.tensor(i))
    return call.emit(Dequantize(), x, constant(np.asarray(scale, np.float32)), constant(np.asarray(zero, np.int32)))


def _column(call: TFLiteCall, x: Value, n: int) -> Value:
    return call.emit(Slice((0, n), (1, 1), (x.shape[0], 1)), x)


def _boxes(call: TFLiteCall, fields: dict[str, Any]) -> Value:
    """Corners (y0, x0, y1, x1) of offsets from anchors (y, x, h, w)."""
    offsets, anchors = _real(call, 0), _real(call, 2)
    count = anchors.shape[0]
    flat = call.emit(Reshape((count, offsets.shape[-1])), offsets)
    corners: dict[str, Value] = {}
    for axis, (centre, size) in {"y": (0, 2), "x": (1, 3)}.items():
        scale = constant(np.asarray(1.0 / float(fields[f"{axis}_scale"]), np.float32))
        stretch = constant(np.asarray(1.0 / float(fields[f"{'hw'[axis == 'x']}_scale"]), np.float32))
        length, middle = _column(call, anchors, size), _column(call, anchors, centre)
        at = call.emit(Add(), call.emit(Mul(), call.emit(Mul(), _column(call, flat, centre), scale), length), middle)
        grown = call.emit(Exp(), call.emit(Mul(), _column(call, flat, size), stretch))
        half = call.emit(Mul(), call.emit(Mul(), grown, constant(np.asarray(0.5, np.float32))), length)
        corners[axis + "0"], corners[axis + "1"] = call.emit(Sub(), at, half), call.emit(Add(), at, half)
    return call.emit(Concat(1), corners["y0"], corners["x0"], corners["y1"], corners["x1"])


@importer("CUSTOM TFLite_Detection_PostProcess")
def detection(call: TFLiteCall) -> None:
    fields = {"use_regular_nms": False, **call.fields()}
    classes, most, each = (int(fields[name]) for name in ("num_classes", "max_detections", "max_classes_per_detection"))
    scores = _real(call, 1)
    if call.value(0).type.rank != 3 or scores.type.rank != 3 or scores.shape[0] != 1 or not 1 <= classes <= scores.shape[2]:
        raise Fault(
            "shape-mismatch", f"boxes of {list(call.value(0).shape)} and scores of {list(scores.shape)} do not fit together"
        )
    if each < 1 or most < 1:
        raise Fault("bad-attribute", f"{most} detections of {each} classes are not possible", "the file is damaged")
    boxes = _boxes(call, fields)
    first = scores.shape[2] - classes  # the background, where there is one
    named = call.emit(Slice((0, 0, first), (1, 1, 1), (1, scores.shape[1], classes)), scores)
    rows = call.emit(Reshape((scores.shape[1], classes)), named)
    if fields["use_regular_nms"]:
        _class_by_class(call, fields, boxes, rows)
    else:
        _best_classes(call, fields, boxes, rows)


def _best_classes(call: TFLiteCall, fields: dict[str, Any], boxes: Value, rows: Value) -> None:
    """Boxes by their best class, and as many classes of each as are asked for."""
    most, each = int(fields["max_detections"]), int(fields["max_classes_per_detection"])
    if each == 1:
        best, kind = call.emit(Reduce("max", (1,), False), rows), call.emit(ArgReduce("max", 1, False), rows)
    else:
        kept = min(each, rows.shape[1])
        values, kinds = call.emit_all(TopK(kept), rows)
        best = call.emit(Reshape((rows.shape[0],)), call.emit(Slice((0, 0), (1, 1), (rows.shape[0], 1)), values))
    op = SelectBoxes(most, float(fields["nms_score_threshold"]), float(fields["nms_iou_threshold"]))
    indices, count = call.emit_all(op, boxes, best)
    nothing = constant(np.asarray(0, np.int32))
    taken, safe = call.emit(GreaterEqual(), indices, nothing), call.emit(Max(), indices, nothing)
    zero = constant(np.asarray(0.0, np.float32))

    def picked(values: Value, width: int) -> Value:
        found = call.emit(Gather(0), values, safe)
        shown = call.emit(Reshape((most, 1)), taken) if width > 1 else taken
        return call.emit(Reshape((1, most, width) if width > 1 else (1, most)), call.emit(Where(), shown, found, zero))

    if each == 1:
        call.give(picked(boxes, 4), 0)
        call.give(picked(call.emit(Cast(DType.F32), kind), 1), 1)
        call.give(picked(best, 1), 2)
    else:
        wide = call.emit(Reshape((1, most, 1, 4)), picked(boxes, 4))
        call.give(call.emit(Reshape((1, most * each, 4)), expand(call, wide, (1, most, each, 4))), 0)
        for n, value in ((1, call.emit(Cast(DType.F32), kinds)), (2, values)):
            found = call.emit(Reshape((1, most, kept)), picked(value, kept))
            padded = call.emit(Pad((0, 0, 0, 0, 0, each - kept)), found) if each > kept else found
            call.give(call.emit(Reshape((1, most * each)), padded), n)
    call.give(call.emit(Cast(DType.F32), count), 3)


def _class_by_class(call: TFLiteCall, fields: dict[str, Any], boxes: Value, rows: Value) -> None:
    """The best boxes of each class, then the best of all: equal ones in the order of the classes."""
    most, classes = int(fields["max_detections"]), rows.shape[1]
    places = min(int(fields.get("detections_per_class", 100)), most)
    if places < 1:
        raise Fault("bad-attribute", f"{places} detections of a class are not possible", "the file is damaged")
    tables = call.emit(Transpose((1, 0)), rows)
    op = SelectBoxes(places, float(fields["nms_score_threshold"]), float(fields["nms_iou_threshold"]))
    indices, counts = call.emit_all(op, boxes, tables)
    nothing, none = constant(np.asarray(0, np.int32)), constant(np.asarray(-np.inf, np.float32))
    safe = call.emit(Cast(DType.I64), call.emit(Max(), indices, nothing))
    worth = call.emit(Where(), call.emit(GreaterEqual(), indices, nothing), call.emit(GatherElements(1), tables, safe), none)
    kept = min(most, classes * places)
    values, at = call.emit_all(TopK(kept), call.emit(Reshape((classes * places,)), worth))
    taken, zero = call.emit(Greater(), values, none), constant(np.asarray(0.0, np.float32))
    box = call.emit(Gather(0), call.emit(Reshape((classes * places,)), safe), at)
    corners = call.emit(Where(), call.emit(Reshape((kept, 1)), taken), call.emit(Gather(0), boxes, box), zero)
    kind = call.emit(Cast(DType.F32), call.emit(Div(), at, call.like(places, at)))

    def shown(value: Value, *more: int) -> Value:
        longer = call.emit(Pad((*[0] * value.type.rank, most - kept, *[0] * len(more))), value) if most > kept else value
        return call.emit(Reshape((1, most, *more)), longer)

    call.give(shown(corners, 4), 0)
    call.give(shown(call.emit(Where(), taken, kind, zero)), 1)
    call.give(shown(call.emit(Where(), taken, values, zero)), 2)
    total = call.emit(Reduce("sum", (0,), True), counts)
    call.give(call.emit(Cast(DType.F32), call.emit(Min(), total, call.like(most, total))), 3)
