"""Graphs within the graph: branches, loops, and what only says how to compute.

cond(c, then, else)          known: the branch that is taken; else both, each under a guard, and `select` between their results
while_loop(cond, body)       known and of few turns: written out; else it stays a loop
scan(body), map_impl(body)   few rows: written out; else a loop over the rows, also where their number has a range
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from intaglio.errors import ModelError
from intaglio.frontends.building import cast, concat, part, reshape, unsqueeze
from intaglio.frontends.loops import Limit, Turn, run_loop
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.frontends.onnx.names import identifier
from intaglio.frontends.torch.call import Answer, Item, TorchCall, row
from intaglio.frontends.torch.program import GraphRecord, Ref
from intaglio.ir.graph import Value
from intaglio.ir.sizes import Size, Undecided
from intaglio.ir.types import DType
from intaglio.ops.base import BadOperator
from intaglio.ops.control import Select
from intaglio.ops.index import Gather
from intaglio.ops.unary import LogicalNot

UNROLLED = 64  # turns
MOST_TURNS = 4096  # that are written out where a loop is refused
AGAIN = "export the model again"
WRAPPERS = ("wrap_with_set_grad_enabled", "wrap_with_autocast", "hints_wrapper", "wrap", "strict_mode", "checkpoint")
T = TypeVar("T")


@row(*WRAPPERS, namespace="higher_order")
def wrapped(call: TorchCall) -> Answer:
    """Only says how to compute: the body in place of the call."""
    if call.op == "wrap_with_autocast" and list(call.arguments.values())[2:3] == [True]:
        raise unsupported("`autocast` chooses element types at run time", "export with `.run_decompositions()`, or without it")
    (body, *_), rest = _graphs(call, 1)
    operands = [item for given in rest for item in (given if isinstance(given, list) else [given])]
    return _inlined(call, body, operands[-len(body.inputs) :] if body.inputs else [])


def _graphs(call: TorchCall, count: int) -> tuple[list[GraphRecord], list[Item]]:
    """The bodies of a call, and the arguments after them."""
    items = list(call.arguments.values())
    places = [n for n, item in enumerate(items) if isinstance(item, GraphRecord)]
    if len(places) < count:
        raise Fault("bad-graph", f"`{call.op}` has {len(places)} bodies, needs {count}", AGAIN)
    return [items[n] for n in places[:count]], items[places[count - 1] + 1 :]


def _inlined(call: TorchCall, body: GraphRecord, given: Sequence[Item]) -> list[Item]:
    from intaglio.frontends.torch.walk import Scope, Storage, Tensor

    if len(given) != len(body.inputs):
        raise Fault("bad-graph", f"a body takes {len(body.inputs)} inputs, got {len(given)}")
    scope = Scope()
    for name, value in zip(body.inputs, given, strict=True):
        scope.items[name] = Tensor(Storage(value), (), value) if isinstance(value, Value) else value
    return call.walk.run(body, scope, nested=True)


def _tensors(call: TorchCall, body: GraphRecord, given: Sequence[Item], count: int | None = None) -> list[Value]:
    """What a body makes of these."""
    made = [_value(call, item) for item in _inlined(call, body, given)]
    if count is not None and len(made) != count:
        raise Fault("bad-graph", f"a body of `{call.op}` gives {len(made)} results, needs {count}", AGAIN)
    return made


def _value(call: TorchCall, item: Item) -> Value:
    if isinstance(item, (bool, int, float)) and not isinstance(item, Size):
        return call.constant(np.asarray(item))
    if not isinstance(item, Value):
        raise unsupported(f"`{call.op}` with what is not a tensor is not supported")
    return item


def _list(call: TorchCall, items: list[Item], n: int) -> list[Item]:
    found = items[n] if n < len(items) else []
    if not isinstance(found, list):
        raise Fault("bad-graph", f"`{call.op}` has no list of operands", AGAIN)
    return found


@row("cond", namespace="higher_order")
def cond(call: TorchCall) -> Answer:
    graphs, rest = _graphs(call, 2)
    test, operands = next(iter(call.arguments.values())), _list(call, rest, 0)
    if isinstance(test, Value) and test.data is not None:
        test = bool(test.data.reshape(-1)[0])
    if not isinstance(test, Value):
        return _inlined(call, graphs[0 if test else 1], operands)
    walk, outer = call.walk, call.walk.when
    test = cast(call, reshape(call, test, ()), DType.BOOL)
    made: list[list[Item]] = []
    for graph, flag in zip(graphs, (test, call.emit(LogicalNot(), test)), strict=True):
        try:
            walk.when = _both_hold(call, outer, flag)
            made.append(_inlined(call, graph, operands))
        finally:
            walk.when = outer
    if len(made[0]) != len(made[1]):
        raise Fault("bad-graph", "the branches of `cond` give different numbers of results", AGAIN)
    return [_chosen(call, test, a, b) for a, b in zip(*made, strict=True)]


def _both_hold(call: TorchCall, outer: Value | None, flag: Value) -> Value:
    """Where the outer one is false, the inner may be garbage, and `select` does not look at it."""
    if outer is None:
        return flag
    call.walk.when = None
    return call.emit(Select(), outer, flag, call.constant(np.asarray(False)))


def _chosen(call: TorchCall, test: Value, yes: Item, no: Item) -> Item:
    if not isinstance(yes, Value) or not isinstance(no, Value):
        if yes == no:
            return yes
        raise unsupported("the branches of `cond` give different numbers, and its condition depends on data")
    if len(yes.shape) != len(no.shape) or yes.dtype is not no.dtype:
        raise unsupported(f"the branches of `cond` give {yes.type} and {no.type}")
    stem = identifier(next((o for o in call.record.outputs if isinstance(o, str)), call.record.name), "cond")
    return call.walk.selected(test, yes, no, lambda number, word, *ends: call.walk.as_size(f"{stem}_{word}", number, *ends))


class _AsLoop(Exception):
    """How often it runs depends on data, or is much."""


def _unless_refused(call: TorchCall, first: Callable[[], T], second: Callable[[], T]) -> T:
    """The first way; where the model cannot be imported like that, the second."""
    mark = call.walk.mark()
    try:
        return first()
    except (ModelError, Fault, BadOperator, Undecided):
        call.walk.go_back(mark)
    return second()


@row("while_loop", namespace="higher_order")
def while_loop(call: TorchCall) -> Answer:
    (test, body), rest = _graphs(call, 2)
    given, others = [_value(call, item) for item in _list(call, rest, 0)], _list(call, rest, 1)
    mark, known = call.walk.mark(), False
    try:
        return _written_out(call, test, body, given, others, UNROLLED)
    except _AsLoop as reason:
        call.walk.go_back(mark)
        known = bool(reason.args)
    if known:
        return _unless_refused(
            call, lambda: _in_turns(call, test, body, given, others),
            lambda: _written_out(call, test, body, given, others, MOST_TURNS),
        )  # fmt: skip
    return _in_turns(call, test, body, given, others)


def _asked(call: TorchCall, test: GraphRecord, values: Sequence[Item]) -> Value:
    (answer,) = _tensors(call, test, values, 1)
    if answer.dtype is not DType.BOOL or answer.type.elements != 1:
        raise Fault("bad-graph", "the condition of `while_loop` is not one bool", AGAIN)
    return reshape(call, answer, ())


def _written_out(
    call: TorchCall, test: GraphRecord, body: GraphRecord, values: list[Value], others: list[Item], most: int
) -> list[Value]:
    for _ in range(most):
        answer = _asked(call, test, [*values, *others])
        if answer.data is None:
            raise _AsLoop
        if not bool(answer.data):
            return values
        values = _tensors(call, body, [*values, *others], len(values))
    if most < MOST_TURNS:
        raise _AsLoop("its turns are known")
    raise Fault("too-large", f"the loop runs more than {MOST_TURNS} times")


def _in_turns(
    call: TorchCall, test: GraphRecord, body: GraphRecord, given: list[Value], others: list[Item]
) -> list[Value]:
    """The body once. What it only hands on is not carried."""
    moving = [n for n in range(len(given)) if not _hands_on(body, n)]

    def whole(carried: Sequence[Value]) -> list[Value]:
        values = list(given)
        for n, value in zip(moving, carried, strict=True):
            values[n] = value
        return values

    def turn(_: Value, carried: list[Value]) -> Turn:
        after = _tensors(call, body, [*whole(carried), *others], len(given))
        return Turn(_asked(call, test, [*after, *others]), [after[n] for n in moving])

    condition = _asked(call, test, [*given, *others])
    made, _ = run_loop(call.walk, "loop", Limit(), condition, [given[n] for n in moving], turn)
    return whole(made)


def _hands_on(body: GraphRecord, n: int) -> bool:
    """A body may not return its inputs, so that it clones what stays the same."""
    source = {r.outputs[0]: next(iter(r.arguments.values()), None) for r in body.calls if ".clone." in r.target and r.outputs}
    found: object = body.outputs[n] if n < len(body.outputs) else None
    for _ in range(len(source) + 1):
        found = source.get(found.name, found) if isinstance(found, Ref) else found
    return isinstance(found, Ref) and found.name == body.inputs[n]


@row("scan", "map_impl", namespace="higher_order")
def scan(call: TorchCall) -> Answer:
    (body,), rest = _graphs(call, 1)
    first = [] if call.op == "map_impl" else [_value(call, item) for item in _list(call, rest, 0)]
    rest = rest if call.op == "map_impl" else rest[1:]
    rows, others = [_value(call, item) for item in _list(call, rest, 0)], _list(call, rest, 1)
    if not rows or any(not v.shape or v.shape[0] != rows[0].shape[0] for v in rows):
        raise Fault("bad-graph", f"`{call.op}` goes along tensors of different lengths", AGAIN)
    count = rows[0].shape[0]
    results = len(body.outputs) - len(first)
    if results < 0 or (not isinstance(count, Size) and count == 0):
        raise unsupported(f"`{call.op}` over no rows is not supported")

    def one_by_one() -> list[Value]:
        carried, made = first, [[] for _ in range(results)]  # type: list[Value], list[list[Value]]
        for n in range(count):
            now = [reshape(call, part(call, v, 0, n, 1), v.shape[1:]) for v in rows]
            after = _tensors(call, body, [*carried, *now, *others])
            carried = after[: len(first)]
            for place, value in zip(made, after[len(first) :], strict=True):
                place.append(unsqueeze(call, value, 0))
        return [*carried, *(concat(call, values, 0) for values in made)]

    def turn(number: Value, carried: list[Value]) -> Turn:
        now = [call.emit(Gather(0), v, number) for v in rows]
        after = _tensors(call, body, [*carried, *now, *others])
        return Turn(None, after[: len(first)], after[len(first) :])

    def in_turns() -> list[Value]:
        made, collected = run_loop(call.walk, call.op, Limit(count), None, first, turn)
        return [*made, *collected]

    if isinstance(count, Size) or count > MOST_TURNS:
        return in_turns()
    return one_by_one() if count <= UNROLLED else _unless_refused(call, in_turns, one_by_one)
