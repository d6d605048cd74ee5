"""Loop and Scan whose number of turns is known when they run, or is large: the body is imported once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from intaglio.errors import ModelError
from intaglio.frontends.building import reshape, transpose
from intaglio.frontends.loops import Changed, Limit, Turn, run_loop
from intaglio.frontends.onnx.call import Answer, Item, OnnxCall
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.names import identifier
from intaglio.frontends.onnx.rows.growing import Kept, Length, growing, kept
from intaglio.frontends.onnx.structure import reads
from intaglio.ir.graph import Value
from intaglio.ir.sizes import Size, Undecided, least, whole
from intaglio.ir.types import DType
from intaglio.ops.base import BadOperator
from intaglio.ops.binary import Sub
from intaglio.ops.index import Gather


def body(call: OnnxCall, graph: Any, values: list[Item]) -> list[Item]:
    """One turn."""
    if len(graph.input) != len(values):
        raise Fault("bad-graph", f"the body of `{call.op}` has {len(graph.input)} inputs, it is given {len(values)}")
    scope = call.walk.open_scope(graph, call.scope, call.scope.opsets)
    scope.reference = call.scope.reference
    for n, (info, value) in enumerate(zip(graph.input, values, strict=True)):
        if call.op == "Loop" and n < 2 and isinstance(value, Value) and len(info.type.tensor_type.shape.dim) == 1:
            value = reshape(call, value, (1,))  # old exporters declare the turn and the condition so, and squeeze them
        scope.tensors.pop(info.name, None)
        scope.items[info.name] = value
    return call.walk.run_graph(graph, scope)


def present(call: OnnxCall, index: int) -> Item:
    item = call.item(index)
    if item is None:
        raise Fault("bad-graph", f"operand {index} of `{call.op}` is missing")
    return item


def unless_refused(call: OnnxCall, first: Callable[[], Answer], second: Callable[[], Answer]) -> Answer:
    """The first way; where the model cannot be imported like that, the second."""
    walk = call.walk
    mark, depth, collecting = walk.mark(), walk.depth, walk.collect
    walk.collect = False
    try:
        return first()
    except (ModelError, Fault, BadOperator, Undecided):
        walk.go_back(mark)
        walk.depth = depth
    finally:
        walk.collect = collecting
    return second()


def turns_of(call: OnnxCall) -> int | Value | None:
    """The trip count: a number, a size of the caller, what is computed, or None."""
    value = call.maybe(0)
    if value is None:
        return None
    if value.type.elements != 1:
        raise Fault("shape-mismatch", f"the trip count of `Loop` has the shape {list(value.shape)}; it must have one element")
    return value if value.data is None else whole(value.data.reshape(-1)[0])


def loop_in_turns(call: OnnxCall, trips: int | Value | None) -> Answer:
    graph = call.graph("body")
    given = [present(call, i) for i in range(2, len(call.inputs))]
    scanned = len(graph.output) - 1 - len(given)
    if scanned < 0:
        raise Fault("bad-graph", "the body of `Loop` gives fewer results than it carries")
    condition = call.maybe(1)
    if condition is not None and condition.data is not None and bool(condition.data.reshape(-1)[0]):
        condition = None
    same, more = _same_in_all_turns(graph, len(given)), growing(graph, len(given))
    moving = [n for n in range(len(given)) if n not in same and n not in more]
    names_read = {name for node in graph.node for name in reads(node)}
    read = {n for n in moving if graph.input[2 + n].name in names_read}
    for n in moving:
        if not isinstance(given[n], Value):
            raise unsupported("`Loop` carries a sequence or an optional, and how often it runs is not known")

    longer: dict[int, Kept] = {}
    lengths: dict[tuple[int, int], Length] = {}  # carried behind what moves
    ends: list[bool] = []  # whether data may end the loop

    def turn(number: Value, carried: list[Value]) -> Turn:
        items = [more[n].nothing(call, item) if n in more else item for n, item in enumerate(given)]
        rooms, counts = dict(zip(moving, carried, strict=False)), dict(zip(lengths, carried[len(moving) :], strict=True))
        sizes = {key: length.now(call, counts[key], 1) for key, length in lengths.items()}
        now = {n: each.cut(call, rooms[n], sizes[each.key]) for n, each in longer.items()}
        for n, value in (rooms | now).items():
            items[n] = value
        again, *after = body(call, graph, [number, call.constant(np.asarray(True)), *items])
        appended = [more[n].row(after[n]) for n in more]
        for n, value in now.items():
            if isinstance(grown := after[n], Value):
                after[n] = longer[n].longer(call, rooms[n], counts[longer[n].key], value, grown)
        tensors = [v for v in (again, *(after[n] for n in moving), *after[len(given) :]) if isinstance(v, Value)]
        if len(tensors) != 1 + len(moving) + scanned:
            raise unsupported("`Loop` carries or collects sequences, and how often it runs is not known")
        last = tensors[0].data
        stays = last is not None and bool(last.reshape(-1)[0])
        ends[:] = [not stays]
        carried, rows = tensors[1 : 1 + len(moving)], tensors[1 + len(moving) :]
        counted = [length.longer(call, counts[key]) for key, length in lengths.items()]
        return Turn(None if stays else tensors[0], [*carried, *counted], [*rows, *appended])

    first = [item for n, item in enumerate(given) if n in moving and isinstance(item, Value)]
    names = [*call.walk.origins[len(given) :], *(call.walk.origins[n] for n in more if n < len(call.walk.origins))]
    mark, limit = call.walk.mark(), _limit(call, trips, names)
    try:
        made, rows = run_loop(call.walk, _stem(call), limit, condition, first, turn)
    except Changed as changed:
        runs = condition is None and (not isinstance(trips, int) or least(trips) > 0) and not isinstance(trips, Value)
        call.walk.go_back(mark)
        known_as = [call.walk.origins[n] for n in (moving[place] for place in changed.types) if n < len(call.walk.origins)]
        limit = _limit(call, trips, [*names, *known_as])
        for place, kind in changed.types.items():
            n = moving[place]
            if runs and n not in read:  # replaced in the first turn, and not looked at before
                first[place] = call.constant(np.zeros(kind.shape, kind.dtype.numpy), kind.dtype)
            elif (found := kept(call, graph, n, first[place], kind, limit.most(), limit.hint)) is not None:
                longer[n] = found
                lengths.setdefault(found.key, found.length)
                first[place] = found.carried(call)
            else:
                raise
        counts = [length.carried(call) for length in lengths.values()]
        made, rows = run_loop(call.walk, _stem(call), limit, condition, [*first, *counts], turn)
    results = list(given)
    for n, value in zip(moving, made, strict=False):
        results[n] = value
    known = limit.known if condition is None and ends == [False] else None
    after = {
        key: length.now(call, count, 0) if known is None else length.after(known)
        for (key, length), count in zip(lengths.items(), made[len(moving) :], strict=True)
    }
    for n, each in longer.items():
        results[n] = each.cut(call, made[moving.index(n)], after[each.key])
    for n, row in zip(more, rows[scanned:], strict=True):
        results[n] = more[n].joined(call, given[n], row)
    return [*results, *rows[:scanned]]


def _stem(call: OnnxCall) -> str:
    return identifier(call.walk.origins[0] if call.walk.origins else call.op, "loop")


def _limit(call: OnnxCall, trips: int | Value | None, collected: list[str]) -> Limit:
    """With what `--max` says about the results that are collected."""
    names = [name for name in collected if name]
    asked = [name for name in names if name in call.walk.most]
    call.walk.most_used.update(asked)
    hint = f"give the largest number of turns with `--max {names[0]}=N`" if names else ""
    return Limit(trips, min((call.walk.most[name] for name in asked), default=None), hint)


def _same_in_all_turns(graph: Any, carried: int) -> set[int]:
    """What a body only hands on."""
    source = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Identity" and node.input}
    same = set()
    for n in range(carried):
        name = graph.output[1 + n].name
        for _ in range(len(source) + 1):
            name = source.get(name, name)
        if name == graph.input[2 + n].name:
            same.add(n)
    return same


@dataclass(frozen=True, slots=True)
class Spans:
    """What `Scan` goes along, and what it collects: along which axes, and which of them from the end."""

    states: int
    inputs: list[Value]
    axes: list[int]
    backwards: list[int]
    out_axes: list[int]
    out_backwards: list[int]


def scan_in_turns(call: OnnxCall, count: int, spans: Spans) -> Answer:
    graph = call.graph("body")
    given = [call.value(i) for i in range(spans.states)]

    def place(number: Value, back: int) -> Value:
        last = call.walk.at_run_time(_number(call, count - 1)) if back else None
        return number if last is None else call.emit(Sub(), last, number)

    def turn(number: Value, carried: list[Value]) -> Turn:
        slices: list[Item] = [
            call.emit(Gather(axis), value, place(number, back))
            for value, axis, back in zip(spans.inputs, spans.axes, spans.backwards, strict=True)
        ]
        out = [v for v in body(call, graph, [*carried, *slices]) if isinstance(v, Value)]
        if len(out) != len(graph.output):
            raise unsupported("`Scan` collects sequences")
        places = [place(number, back) for back in spans.out_backwards]
        return Turn(None, out[: spans.states], out[spans.states :], places)

    made, rows = run_loop(call.walk, _stem(call), Limit(count), None, given, turn)
    turned = []
    for row, axis in zip(rows, spans.out_axes, strict=True):
        axis = call.checked_axis(axis, len(row.shape))
        order = list(range(1, len(row.shape)))
        turned.append(transpose(call, row, [*order[:axis], 0, *order[axis:]]))
    return [*made, *turned]


def _number(call: OnnxCall, number: int) -> Value:
    made = np.empty((), object)
    made[()] = number
    return call.walk.constant(made if isinstance(number, Size) else np.asarray(number, np.int64), DType.I64)
