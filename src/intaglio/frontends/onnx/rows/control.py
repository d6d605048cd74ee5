"""If. A constant condition takes its branch; a condition that is data takes both, flat, each under its guard."""

from __future__ import annotations

from typing import Any

import numpy as np

from intaglio.errors import ModelError, printable, quoted
from intaglio.frontends.building import reshape
from intaglio.frontends.onnx.call import Answer, Item, Items, OnnxCall, Unknown, importer
from intaglio.frontends.onnx.faults import Fault, unsupported
from intaglio.ir.graph import Value
from intaglio.ops.base import BadOperator
from intaglio.ops.control import AssertTrue, Select
from intaglio.ops.unary import LogicalNot


@importer("If")
def if_row(call: OnnxCall) -> Answer:
    condition = call.value(0)
    if condition.type.elements != 1:
        raise Fault("shape-mismatch", f"the condition of `If` has the shape {list(condition.shape)}; it must have one element")
    if condition.data is not None:
        taken = bool(condition.data.reshape(-1)[0])
        return branch(call, call.graph("then_branch" if taken else "else_branch"))
    return _both(call, reshape(call, condition, ()))


def branch(call: OnnxCall, graph: Any) -> list[Item | None]:
    if len(graph.output) < call.outputs:
        raise Fault("bad-graph", f"a branch of `If` has {len(graph.output)} results, needs {call.outputs}")
    scope = call.walk.open_scope(graph, call.scope, call.scope.opsets)
    scope.reference = call.scope.reference
    return list(call.walk.run_graph(graph, scope))


def guard(call: OnnxCall, outer: Value | None, condition: Value) -> Value:
    """Both hold. Computed without a guard of its own; where the outer one is false, the inner may be garbage, and
    `select` does not look at it."""
    if outer is None:
        return condition
    walk = call.walk
    walk.when = None
    joined = call.emit(Select(), outer, condition, call.constant(np.asarray(False)))
    walk.when = outer
    return joined


def _both(call: OnnxCall, condition: Value) -> Answer:
    walk, outer = call.walk, call.walk.when
    inverse = call.emit(LogicalNot(), condition)
    results: list[list[Item | None] | None] = []
    guards: list[Value | None] = []
    failures: list[str] = []
    for name, flag in (("then_branch", condition), ("else_branch", inverse)):
        mark, depth = walk.mark(), walk.depth
        collecting, walk.collect = walk.collect, False
        try:
            walk.when = guard(call, outer, flag)
            guards.append(walk.when)
            results.append(branch(call, call.graph(name)))
        except (ModelError, Fault, BadOperator) as error:
            walk.go_back(mark)
            walk.depth = depth
            results.append(None)
            failures.append(error.message if isinstance(error, ModelError) else error.reason)
        finally:
            walk.when, walk.collect = outer, collecting
    then, other = results
    if then is None and other is None:
        raise unsupported(f"neither branch can be compiled for these shapes: {failures[0]}")
    if then is not None and other is not None:
        then, other = _single_numbers(call, then, other, guards)
    if then is not None and other is not None and not _joinable(then, other):
        failures.append("the branches have results of different shapes")
        if _declared_rank_fits(call, other) and not _declared_rank_fits(call, then):
            then = None
        else:
            other = None
    if then is None or other is None:
        return _only(call, then, other, condition, inverse, failures[0])
    return [_joined(call, condition, a, b) for a, b in zip(then, other, strict=True)]


def _only(
    call: OnnxCall, then: list[Item | None] | None, other: list[Item | None] | None, condition: Value, inverse: Value,
    reason: str,
) -> Answer:  # fmt: skip
    """One branch remains; taking the other one at run time is an error there, never a wrong result."""
    walk = call.walk
    kept, flag = (then, condition) if then is not None else (other, inverse)
    left = "else" if then is not None else "then"
    source = quoted(walk.source)
    walk.notes.append(f"the {left}-branch of {source} is omitted ({reason}); a run that takes it fails")
    message = f"the {left}-branch of {printable(walk.source, 80)} was left out at compile time"
    walk.emit(AssertTrue(message), [flag])
    return _ungated(call, kept or [], flag)


def _ungated(call: OnnxCall, kept: list[Item | None], flag: Value) -> list[Item | None]:
    """The branch that remains is no longer conditional: its nodes run under the guard around the `If`."""
    outer = call.walk.when
    stale = [n for n in call.walk.nodes if n.when is flag]
    if outer is None:
        for node in stale:
            node.when = None
    return kept


def _single_numbers(
    call: OnnxCall, then: list[Item | None], other: list[Item | None], guards: list[Value | None]
) -> tuple[list[Item | None], list[Item | None]]:
    """Single numbers of different ranks, [] and [1], which some exporters mix, get the lower rank of the two."""
    sides, outer = [list(then), list(other)], call.walk.when
    for n, (x, y) in enumerate(zip(then, other, strict=False)):
        if not isinstance(x, Value) or not isinstance(y, Value) or not x.type.elements == y.type.elements == 1:
            continue
        if len(x.shape) != len(y.shape):
            shape = min(x.shape, y.shape, key=len)
            for side, value, when in zip(sides, (x, y), guards, strict=True):
                call.walk.when = when
                side[n] = reshape(call, value, shape)
            call.walk.when = outer
    return sides[0], sides[1]


def _joinable(a: list[Item | None], b: list[Item | None]) -> bool:
    """Dimensions may differ: the result is as large as that of the branch that was taken."""
    return len(a) == len(b) and all(
        not (isinstance(x, Value) and isinstance(y, Value)) or (x.dtype is y.dtype and len(x.shape) == len(y.shape))
        for x, y in zip(a, b, strict=True)
    )


def _declared_rank_fits(call: OnnxCall, results: list[Item | None]) -> bool:
    """Whether the ranks are those that the model declares for the results of this node."""
    declared = {v.name: v for v in [*call.walk.model.graph.value_info, *call.walk.model.graph.output]}
    for name, item in zip(call.walk.origins, results, strict=False):
        info = declared.get(name)
        if info is None or not isinstance(item, Value) or not info.type.tensor_type.HasField("shape"):
            continue
        if len(info.type.tensor_type.shape.dim) != len(item.shape):
            return False
    return True


def _joined(call: OnnxCall, condition: Value, a: Item | None, b: Item | None) -> Item | None:
    if a is b:
        return a
    if isinstance(a, Unknown) or isinstance(b, Unknown):
        return Unknown()
    if isinstance(a, Items) and isinstance(b, Items) and len(a.values) == len(b.values):
        members = [_joined(call, condition, x, y) for x, y in zip(a.values, b.values, strict=True)]
        return Items([member for member in members if member is not None], a.dtype)
    if not isinstance(a, Value) or not isinstance(b, Value):
        raise unsupported("the branches of `If` give sequences or optionals, and its condition depends on data")
    return call.walk.selected(condition, a, b, call.size)
