"""Operators that run other subgraphs: a branch on data becomes two guarded ones, a loop of few rounds that are known is unrolled.

WHILE(cond, body)    known: the body is written out once per round; else, and where there are many rounds, it stays a loop
IF(c, then, else)    known: the branch that is taken; else both, each under a guard, and `select` between their results
"""

from __future__ import annotations

from intaglio.errors import ModelError
from intaglio.frontends.emitting import Emitter
from intaglio.frontends.loops import Limit, Turn, run_loop
from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import TFLiteCall, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.base import BadOperator, Op
from intaglio.ops.binary import LogicalAnd
from intaglio.ops.control import Select
from intaglio.ops.move import Reshape
from intaglio.ops.unary import LogicalNot

MOST_ROUNDS = 1024
UNROLLED = 64  # rounds
MOST_NODES = 100_000
_OUTSIDE = "run the loop outside the model"


def run_subgraph(call: TFLiteCall, index: int, given: list[Value], guard: Value | None = None) -> list[Value]:
    """Its outputs for these inputs. Nodes that it makes run where the guard holds."""
    walk = call.walk
    if not 0 < index < len(walk.model.subgraphs):
        raise Fault("bad-graph", f"it calls subgraph {index} of {len(walk.model.subgraphs)}", "the file is damaged")
    graph = walk.model.subgraphs[index]
    if index in walk.active:
        raise Fault("bad-graph", f"subgraph {index} calls itself", "the file is damaged")
    if len(graph.inputs) != len(given):
        raise Fault("bad-graph", f"subgraph {index} takes {len(graph.inputs)} operands, got {len(given)}", "the file is damaged")
    outer = walk.guard
    walk.active.append(index)
    walk.guard = guard if guard is not None else outer
    try:
        values = walk.run(graph, dict(zip(graph.inputs, given, strict=True)))
    finally:
        walk.active.pop()
        walk.guard = outer
    missing = [i for i in graph.outputs if i not in values]
    if missing:
        raise Fault("bad-graph", f"subgraph {index} never makes its output {missing[0]}", "the file is damaged")
    if len(walk.nodes) > MOST_NODES:
        raise Fault("unsupported-operator", f"unrolled, it has more than {MOST_NODES} operators", _OUTSIDE)
    return [values[i] for i in graph.outputs]


def _operands(call: TFLiteCall, first: int = 0) -> list[Value]:
    return [call.value(n) for n in range(first, len(call.operator.inputs))]


def _give_all(call: TFLiteCall, values: list[Value]) -> None:
    if len(values) != len(call.operator.outputs):
        raise Fault("bad-graph", f"a subgraph gives {len(values)} results for {len(call.operator.outputs)}", "the file is damaged")
    for n, value in enumerate(values):
        call.keep(value, n)


class _AsLoop(Exception):
    """How often it runs depends on data, or is much."""


@importer("WHILE", "STABLEHLO_WHILE")
def while_(call: TFLiteCall) -> None:
    given, at = _operands(call), len(call.walk.nodes)
    try:
        _give_all(call, _unrolled(call, given, UNROLLED))
        return
    except _AsLoop as reason:
        known = bool(reason.args)
        del call.walk.nodes[at:]
    try:
        _give_all(call, _in_turns(call, given))
    except (Fault, BadOperator, ModelError):
        if not known:
            raise
        del call.walk.nodes[at:]
        _give_all(call, _unrolled(call, given, MOST_ROUNDS))


def _unrolled(call: TFLiteCall, values: list[Value], most: int) -> list[Value]:
    o = call.options
    for _ in range(most):
        answer = run_subgraph(call, o.CondSubgraphIndex(), values)
        if len(answer) != 1 or answer[0].data is None:
            raise _AsLoop
        if not bool(answer[0].data.reshape(-1)[0]):
            return values
        values = run_subgraph(call, o.BodySubgraphIndex(), values)
    if most < MOST_ROUNDS:
        raise _AsLoop("its rounds are known")
    raise Fault("unsupported-operator", f"the loop runs more than {MOST_ROUNDS} times", _OUTSIDE)


class _Emitting(Emitter):
    """The nodes of this import, for loops."""

    def __init__(self, call: TFLiteCall) -> None:
        super().__init__()
        self._call = call
        self.nodes = call.walk.nodes

    def emit(self, op: Op, operands: list[Value | None]) -> tuple[Value, ...]:
        return tuple(self._call.emit_all(op, *operands))


def _in_turns(call: TFLiteCall, given: list[Value]) -> list[Value]:
    """The body once. What it only hands on is not carried."""
    o, emitting = call.options, _Emitting(call)
    index = o.BodySubgraphIndex()
    if not 0 < index < len(call.walk.model.subgraphs):
        raise Fault("bad-graph", f"it calls subgraph {index} of {len(call.walk.model.subgraphs)}", "the file is damaged")
    graph = call.walk.model.subgraphs[index]
    ends = list(zip(graph.inputs, graph.outputs, strict=False))
    moving = [n for n in range(len(given)) if n >= len(ends) or ends[n][0] != ends[n][1]]

    def whole(carried: list[Value]) -> list[Value]:
        values = list(given)
        for n, value in zip(moving, carried, strict=True):
            values[n] = value
        return values

    def asked(values: list[Value]) -> Value:
        answer = run_subgraph(call, o.CondSubgraphIndex(), values)
        if len(answer) != 1:
            raise Fault("bad-graph", "the condition of the loop is not one bool", "the file is damaged")
        return answer[0]

    def turn(_: Value, carried: list[Value]) -> Turn:
        after = run_subgraph(call, index, whole(carried))
        return Turn(asked(after), [after[n] for n in moving])

    before = {key: variable.now for key, variable in call.walk.variables.items()}
    made, _ = run_loop(emitting, "loop", Limit(), asked(given), [given[n] for n in moving], turn)
    if any(variable.now is not before.get(key) for key, variable in call.walk.variables.items()):
        what = "a loop whose rounds depend on data changes a variable"
        raise Fault("unsupported-operator", what, "move the state out of the loop")
    return whole(made)


@importer("IF")
def if_(call: TFLiteCall) -> None:
    o, condition, given = call.options, call.value(0), _operands(call, 1)
    branches = (o.ThenSubgraphIndex(), o.ElseSubgraphIndex())
    if condition.data is not None:
        taken = bool(condition.data.reshape(-1)[0]) if condition.data.size else False
        _give_all(call, run_subgraph(call, branches[0 if taken else 1], given))
        return
    if condition.dtype is not DType.BOOL or condition.type.elements != 1:
        raise Fault("bad-tensor", "its condition is not one bool")
    yes = call.emit(Reshape(()), condition) if condition.shape else condition
    no = call.emit(LogicalNot(), yes)
    outer = call.walk.guard
    guards = [g if outer is None else call.emit(LogicalAnd(), outer, g) for g in (yes, no)]
    before = {key: variable.now for key, variable in call.walk.variables.items()}
    results = [run_subgraph(call, index, given, guard) for index, guard in zip(branches, guards, strict=True)]
    if any(variable.now is not before.get(key) for key, variable in call.walk.variables.items()):
        raise Fault("unsupported-operator", "a branch that depends on data changes a variable", "move the state out of the branch")
    if len(results[0]) != len(results[1]):
        raise Fault("bad-graph", "its branches give different numbers of results", "the file is damaged")
    joined = []
    for a, b in zip(*results, strict=True):
        if a.shape != b.shape:
            reason = f"its branches give different shapes, {list(a.shape)} and {list(b.shape)}"
            raise Fault("unsupported-operator", reason, "make the shapes of both branches equal")
        joined.append(call.emit(Select(), yes, a, b))
    _give_all(call, joined)


@importer("STABLEHLO_COMPOSITE")
def composite(call: TFLiteCall) -> None:
    """A named group of operators: what it is made of stands in a subgraph."""
    _give_all(call, run_subgraph(call, call.options.DecompositionSubgraphIndex(), _operands(call)))


@importer("CALL")
def call_(call: TFLiteCall) -> None:
    _give_all(call, run_subgraph(call, call.options.Subgraph(), _operands(call)))
