"""Loop and Scan. Where few turns are known they are unrolled: what stays constant from one to the next folds as it goes. Otherwise
they stay loops (`turns.py`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.frontends.building import concat, part, reshape, unsqueeze
from intaglio.frontends.loops import NO_LIMIT
from intaglio.frontends.onnx.call import Answer, Item, Items, OnnxCall, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.rows.control import guard
from intaglio.frontends.onnx.rows.turns import Spans, body, loop_in_turns, present, scan_in_turns, turns_of, unless_refused
from intaglio.frontends.onnx.tensors import dtype_of
from intaglio.ir.graph import Value
from intaglio.ir.sizes import Size
from intaglio.ops.control import Select

MAX_TRIPS = 4096
UNROLLED = 64  # turns


class _AsLoop(Exception):
    """How often it runs is not known: it has to stay a loop."""


@importer("Loop")
def loop(call: OnnxCall) -> Answer:
    trips = turns_of(call)
    if isinstance(trips, int) and not isinstance(trips, Size) and UNROLLED < trips <= MAX_TRIPS:
        return unless_refused(call, lambda: loop_in_turns(call, trips), lambda: _unrolled_if_possible(call, trips))
    if trips is not None and (isinstance(trips, (Value, Size)) or UNROLLED < trips < NO_LIMIT):
        return loop_in_turns(call, trips)
    return _unrolled_if_possible(call, None if trips is None or trips >= NO_LIMIT else trips)


def _unrolled_if_possible(call: OnnxCall, trips: int | None) -> Answer:
    mark = call.walk.mark()
    try:
        return _unrolled(call, trips)
    except _AsLoop:
        call.walk.go_back(mark)
    return loop_in_turns(call, turns_of(call))


def _unrolled(call: OnnxCall, trips: int | None) -> Answer:
    graph = call.graph("body")
    start = call.maybe(1)
    condition = start if start is not None else call.constant(np.asarray(True))
    carried: list[Item] = [present(call, i) for i in range(2, len(call.inputs))]
    scanned = len(graph.output) - 1 - len(carried)
    if scanned < 0:
        raise Fault("bad-graph", "the body of `Loop` gives fewer results than it carries")
    rows: list[list[Value]] = [[] for _ in range(scanned)]
    outer = call.walk.when
    count = 0
    while trips is None or count < trips:
        if condition.data is not None and not bool(condition.data.reshape(-1)[0]):
            break
        if count >= MAX_TRIPS or (condition.data is None and (scanned or trips is None)):
            raise _AsLoop
        flag = None if condition.data is not None else reshape(call, condition, ())
        if flag is not None:
            call.walk.when = guard(call, outer, flag)
        number = call.constant(np.asarray(count, np.int64))
        out = body(call, graph, [number, condition, *carried])
        call.walk.when = outer
        nxt = out[0]
        if not isinstance(nxt, Value) or nxt.type.elements != 1:
            raise Fault("bad-graph", "the condition of `Loop` is not one bool")
        new = out[1 : 1 + len(carried)]
        if flag is not None:
            new = [_kept(call, flag, a, b) for a, b in zip(new, carried, strict=True)]
            nxt = call.emit(Select(), flag, reshape(call, nxt, ()), call.constant(np.asarray(False)))
        carried, condition = list(new), nxt
        for row, item in zip(rows, out[1 + len(carried) :], strict=True):
            if not isinstance(item, Value):
                raise unsupported("`Loop` collects sequences")
            row.append(item)
        count += 1
    names = graph.output[1 + len(carried) :]
    return [*carried, *[_stacked(call, row, info, 0) for row, info in zip(rows, names, strict=True)]]


def _kept(call: OnnxCall, flag: Value, new: Item, old: Item) -> Item:
    if new is old:
        return new
    if not isinstance(new, Value) or not isinstance(old, Value) or new.type != old.type:
        raise _AsLoop
    return call.emit(Select(), flag, new, old)


def _stacked(call: OnnxCall, row: list[Value], info: Any, axis: int) -> Value:
    if row:
        return concat(call, [unsqueeze(call, v, axis) for v in row], axis)
    tensor = info.type.tensor_type
    dims = [d.dim_value for d in tensor.shape.dim]
    if not tensor.HasField("shape") or any(d < 0 for d in dims):
        raise unsupported("a `Loop` that never runs has a result of unknown shape")
    dtype = dtype_of(tensor.elem_type, "a result of `Loop`")
    return call.constant(np.zeros((0, *dims), dtype.numpy), dtype)


@importer("Scan")
def scan(call: OnnxCall) -> Answer:
    graph = call.graph("body")
    if call.version < 9:
        raise unsupported("`Scan` of opset 8 works on batches", "convert the model to opset 9 or newer")
    number = call.integer("num_scan_inputs")
    states = len(call.inputs) - number
    if not 0 < number <= len(call.inputs):
        raise Fault("bad-attribute", f"`Scan` over {number} of {len(call.inputs)} inputs is not valid")
    inputs = [call.value(states + i) for i in range(number)]
    axes = call.ints("scan_input_axes") or [0] * number
    backwards = call.ints("scan_input_directions") or [0] * number
    outputs = len(graph.output) - states
    out_axes = call.ints("scan_output_axes") or [0] * outputs
    out_backwards = call.ints("scan_output_directions") or [0] * outputs
    if outputs < 0 or not len(axes) == len(backwards) == number or not len(out_axes) == len(out_backwards) == outputs:
        raise Fault("bad-attribute", "the axes or directions of `Scan` do not fit its inputs and outputs")
    axes = [call.checked_axis(a, len(v.shape)) for a, v in zip(axes, inputs, strict=True)]
    lengths = {v.shape[a] for v, a in zip(inputs, axes, strict=True)}
    if len(lengths) != 1:
        raise Fault("shape-mismatch", f"`Scan` over inputs of different lengths {sorted(lengths)} is not valid")
    count = lengths.pop()
    spans = Spans(states, inputs, axes, backwards, out_axes, out_backwards)
    if isinstance(count, Size) or count > MAX_TRIPS:
        return scan_in_turns(call, count, spans)
    if count > UNROLLED:
        return unless_refused(call, lambda: scan_in_turns(call, count, spans), lambda: _scan_unrolled(call, count, spans))
    return _scan_unrolled(call, count, spans)


def _scan_unrolled(call: OnnxCall, count: int, spans: Spans) -> Answer:
    graph, states = call.graph("body"), spans.states
    carried: list[Item] = [present(call, i) for i in range(states)]
    rows: list[list[Value]] = [[] for _ in spans.out_axes]
    for step in range(count):
        slices: list[Item] = []
        for value, axis, back in zip(spans.inputs, spans.axes, spans.backwards, strict=True):
            at = count - 1 - step if back else step
            one = part(call, value, axis, at, 1)
            slices.append(reshape(call, one, value.shape[:axis] + value.shape[axis + 1 :]))
        out = body(call, graph, [*carried, *slices])
        carried = out[:states]
        for row, item in zip(rows, out[states:], strict=True):
            if not isinstance(item, Value):
                raise unsupported("`Scan` collects sequences")
            row.append(item)
    results: list[Item] = list(carried)
    for i, row in enumerate(rows):
        ordered = row[::-1] if spans.out_backwards[i] else row
        rank = len(row[0].shape) + 1 if row else 1
        results.append(_stacked(call, ordered, graph.output[states + i], call.checked_axis(spans.out_axes[i], rank)))
    return results


@importer("SequenceMap")
def sequence_map(call: OnnxCall) -> Answer:
    graph = call.graph("body")
    first = call.sequence(0)
    results: list[list[Item]] = [[] for _ in graph.output]
    for i in range(len(first.values)):
        values: list[Item] = []
        for k in range(len(call.inputs)):
            item = present(call, k)
            values.append(item.values[i] if isinstance(item, Items) else item)
        for row, out in zip(results, body(call, graph, values), strict=True):
            row.append(out)
    return [Items(row) for row in results]
