"""Lists of tensors, as converters lower them: one tensor with a row for each item. To set an item, the rows before it, the item and
the rows behind it are joined:

    head = SLICE(list, [0, 0], [i, -1])
    tail = SLICE(list, [i + 1, 0], [-1, -1])
    CONCATENATION(head, item, tail)            ->  the list, with the item in row i

The sizes of head and tail depend on data, that of the result does not. Nothing else reads them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import TFLiteCall, constant
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Add, Equal
from intaglio.ops.control import AssertTrue
from intaglio.ops.convert import Cast
from intaglio.ops.index import ScatterNd
from intaglio.ops.move import Reshape, Slice

_FORM = "the parts that it joins have sizes that depend on data, and are not those of a list with one item set"


@dataclass(frozen=True, slots=True)
class Cut:
    """Rows of a list whose number depends on data."""

    whole: Value
    begin: Value
    size: Value


def cut(call: TFLiteCall) -> None:
    """To be joined again."""
    x = call.value(0)
    some = Value("", x.type, call.out().name)
    call.walk.cuts[some] = Cut(x, call.value(1), call.value(2))
    call.keep(some)


def joins_cuts(call: TFLiteCall) -> bool:
    return any(call.values.get(index) in call.walk.cuts for index in call.operator.inputs)


def set_item(call: TFLiteCall) -> None:
    parts = [call.values[index] for index in call.operator.inputs]
    if len(parts) != 3 or parts[1] in call.walk.cuts or not {parts[0], parts[2]} <= call.walk.cuts.keys():
        raise Fault("unsupported-operator", _FORM)
    head, tail, item = call.walk.cuts[parts[0]], call.walk.cuts[parts[2]], parts[1]
    fits = head.whole is tail.whole and call.options.Axis() == 0 and item.shape == (1, *head.whole.shape[1:])
    starts = head.begin.data is not None and not head.begin.data.any()
    ends = tail.size.data is not None and bool((tail.size.data[:1] == -1).all())
    if not fits or not starts or not ends or head.size.data is not None or tail.begin.data is not None:
        raise Fault("unsupported-operator", _FORM)
    row, following = _first(call, head.size), _first(call, tail.begin)
    one = constant(np.asarray([1], np.int64))
    same = call.emit(Equal(), call.emit(Add(), row, one), following)
    call.emit(AssertTrue("an item of a list does not lie between its neighbours"), call.emit(Reshape(()), same))
    call.give(call.emit(ScatterNd(), head.whole, call.emit(Reshape((1, 1)), row), item))


def _first(call: TFLiteCall, vector: Value) -> Value:
    wide = vector if vector.dtype is DType.I64 else call.emit(Cast(DType.I64), vector)
    return call.emit(Slice((0,), (1,), (1,)), wide) if wide.shape != (1,) else wide
