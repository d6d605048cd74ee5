"""`while` of StableHLO, which is what `scan`, `fori_loop` and `while_loop` become, updates of parts, which collect their rows, and
branches.

A loop of few turns that are known is written out; any other stays a loop (`frontends/loops.py`).
"""

from __future__ import annotations

import numpy as np

from intaglio.frontends.building import cast, expand, reshape
from intaglio.frontends.jax.walk import JaxCall, row
from intaglio.frontends.loops import Limit, Turn, run_loop
from intaglio.ir.graph import Value
from intaglio.ir.types import DType
from intaglio.ops.binary import Equal, Less, LogicalAnd, Max, Min, Sub, Where
from intaglio.ops.control import Select
from intaglio.ops.index import Gather
from intaglio.ops.unary import LogicalNot

UNROLLED = 16  # turns


@row("while")
def while_(call: JaxCall) -> list[Value]:
    walk = call.walk

    def asked(values: list[Value]) -> Value:
        return walk.block(call.body(0), values, call.outside)[0]

    def after(values: list[Value]) -> list[Value]:
        return walk.block(call.body(1), values, call.outside)

    mark, values = walk.emitter.mark(), call.operands
    for _ in range(UNROLLED + 1):
        again = asked(values)
        if again.data is None:
            break
        if not bool(again.data.reshape(-1)[0]):
            return values
        values = after(values)
    walk.emitter.go_back(mark)

    def turn(_: Value, carried: list[Value]) -> Turn:
        made = after(carried)
        return Turn(asked(made), made)

    made, _ = run_loop(walk.emitter, "loop", Limit(), asked(call.operands), call.operands, turn)
    return list(made)


@row("case")
def case(call: JaxCall) -> list[Value]:
    """`cond` and `switch`: all branches are computed, and one is taken; a number that none has takes the last."""
    branches = [call.walk.block(region.blocks[0], [], call.outside) for region in call.operation.regions]
    made, index = branches[-1], reshape(call, call.operands[0], ())
    for n, branch in enumerate(branches[:-1]):
        mine = call.emit(Equal(), index, call.like(n, index))
        made = [call.emit(Select(), mine, a, b) for a, b in zip(branch, made, strict=True)]
    return made


@row("dynamic_update_slice")
def dynamic_update_slice(call: JaxCall) -> list[Value]:
    """Along each axis the rows that the update has, put where they belong, and which those are."""
    x, update, *starts = call.operands
    inside: Value | None = None
    for axis, start in enumerate(starts):
        size, most = update.shape[axis], x.shape[axis] - update.shape[axis]
        if most == 0:
            continue
        wide = cast(call, reshape(call, start, (1,)), DType.I64)
        first = call.emit(Min(), call.emit(Max(), wide, call.like(0, wide)), call.like(most, wide))
        places = call.emit(Sub(), call.constant(np.arange(x.shape[axis], dtype=np.int64)), first)
        below = call.emit(Less(), places, call.like(0, places))
        mine = call.emit(LogicalAnd(), call.emit(LogicalNot(), below), call.emit(Less(), places, call.like(size, places)))
        mine = reshape(call, mine, [size_ if n == axis else 1 for n, size_ in enumerate(x.shape)])
        inside = mine if inside is None else call.emit(LogicalAnd(), inside, mine)
        near = call.emit(Min(), call.emit(Max(), places, call.like(0, places)), call.like(size - 1, places))
        update = call.emit(Gather(axis), update, near)
    return [update if inside is None else call.emit(Where(), expand(call, inside, x.shape), update, x)]
