"""Operators that run other subgraphs: a loop is unrolled, a branch on data becomes two guarded ones.

WHILE(cond, body)    the condition must be known when the model is compiled: the body is written out once per round
IF(c, then, else)    known: the branch that is taken; else both, each under a guard, and `select` between their results
"""

from __future__ import annotations

from intaglio.frontends.onnx.faults import Fault
from intaglio.frontends.tflite.walk import TFLiteCall, importer
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import LogicalAnd
from intaglio.ops.control import Select
from intaglio.ops.move import Reshape
from intaglio.ops.unary import LogicalNot

MOST_ROUNDS = 1024
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


@importer("WHILE")
def while_(call: TFLiteCall) -> None:
    o, values = call.options, _operands(call)
    for _ in range(MOST_ROUNDS):
        answer = run_subgraph(call, o.CondSubgraphIndex(), values)
        if len(answer) != 1 or answer[0].data is None:
            raise Fault("unsupported-operator", "how often the loop runs depends on data", _OUTSIDE)
        if not bool(answer[0].data.reshape(-1)[0]):
            _give_all(call, values)
            return
        values = run_subgraph(call, o.BodySubgraphIndex(), values)
    raise Fault("unsupported-operator", f"the loop runs more than {MOST_ROUNDS} times", _OUTSIDE)


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
