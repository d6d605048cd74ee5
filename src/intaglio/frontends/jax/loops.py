"""`while` of StableHLO, which is what `scan`, `fori_loop` and `while_loop` become, updates of parts, which collect their rows, and
branches.

A loop of few turns that are known is written out; any other stays a loop (`frontends/loops.py`).
"""

from __future__ import annotations

from intaglio.frontends import stablehlo_places
from intaglio.frontends.building import reshape
from intaglio.frontends.jax.walk import JaxCall, row
from intaglio.frontends.loops import Limit, Turn, run_loop
from intaglio.ir.graph import Value
from intaglio.ops.binary import Equal
from intaglio.ops.control import Select

UNROLLED = 16  # turns


@row("while")
def while_(call: JaxCall) -> list[Value]:
    walk = call.walk

    def asked(values: list[Value]) -> Value:
        (again,) = walk.block(call.body(0), values, call.outside)
        assert isinstance(again, Value)
        return again

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


@row("if")
def if_(call: JaxCall) -> list[Value]:
    """Both branches are computed, and one is taken."""
    yes, no = (call.walk.block(region.blocks[0], [], call.outside) for region in call.operation.regions)
    condition = reshape(call, call.operands[0], ())
    return [call.emit(Select(), condition, a, b) for a, b in zip(yes, no, strict=True)]


@row("dynamic_update_slice")
def dynamic_update_slice(call: JaxCall) -> list[Value]:
    x, update, *starts = call.operands
    return [stablehlo_places.dynamic_update_slice(call, x, update, starts)]
