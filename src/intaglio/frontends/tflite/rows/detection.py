"""TFLite_Detection_PostProcess, the custom operator that SSD models end with: boxes from anchors, the best that do not overlap."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import TFLiteCall, constant, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, GreaterEqual, Max, Mul, Sub, Where
from intaglio.ops.convert import Cast, Dequantize
from intaglio.ops.detection import SelectBoxes
from intaglio.ops.index import Gather
from intaglio.ops.move import Concat, Reshape, Slice
from intaglio.ops.reduce import ArgReduce, Reduce
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
    if fields["use_regular_nms"] or int(fields["max_classes_per_detection"]) != 1:
        hint = "export it with `use_regular_nms=false` and one class per detection"
        raise Fault("unsupported-operator", "suppression per class is not supported", hint)
    classes, most = int(fields["num_classes"]), int(fields["max_detections"])
    scores = _real(call, 1)
    if call.value(0).type.rank != 3 or scores.type.rank != 3 or scores.shape[0] != 1 or not 1 <= classes <= scores.shape[2]:
        raise Fault(
            "shape-mismatch", f"boxes of {list(call.value(0).shape)} and scores of {list(scores.shape)} do not fit together"
        )
    boxes = _boxes(call, fields)
    first = scores.shape[2] - classes  # the background, where there is one
    named = call.emit(Slice((0, 0, first), (1, 1, 1), (1, scores.shape[1], classes)), scores)
    rows = call.emit(Reshape((scores.shape[1], classes)), named)
    best, kind = call.emit(Reduce("max", (1,), False), rows), call.emit(ArgReduce("max", 1, False), rows)
    op = SelectBoxes(most, float(fields["nms_score_threshold"]), float(fields["nms_iou_threshold"]))
    indices, count = call.emit_all(op, boxes, best)
    nothing = constant(np.asarray(0, np.int32))
    taken, safe = call.emit(GreaterEqual(), indices, nothing), call.emit(Max(), indices, nothing)
    zero = constant(np.asarray(0.0, np.float32))

    def picked(values: Value, width: int) -> Value:
        found = call.emit(Gather(0), values, safe)
        shown = call.emit(Reshape((most, 1)), taken) if width > 1 else taken
        return call.emit(Reshape((1, most, width) if width > 1 else (1, most)), call.emit(Where(), shown, found, zero))

    call.give(picked(boxes, 4), 0)
    call.give(picked(call.emit(Cast(DType.F32), kind), 1), 1)
    call.give(picked(best, 1), 2)
    call.give(call.emit(Cast(DType.F32), count), 3)
