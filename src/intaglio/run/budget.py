"""The ladder under a limit: rungs that cost nothing are always used, the others only until the arena fits.

    arena 55,360 -> 36,736 bytes by stripes: layers 0 to 7, a row at a time (about 1 % more instructions)

Order of layers, offsets, in-place and views come first and are free. Then come stripes, which cost calls and moved rows, then
tensors that are made twice. What the application, stack and variables need is not the arena's: `reserve`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from intaglio.errors import UserError
from intaglio.kernels.program import Program
from intaglio.kernels.stripes.build import AXIS
from intaglio.memory.ladder import Rung
from intaglio.ops.rows import NoRows, access_of
from intaglio.run.squeeze import Squeeze, Squeezed
from intaglio.targets.target import Target

RESERVE_BYTES = 320  # stack and variables of small firmware, before they are known


@dataclass(frozen=True, slots=True)
class Budget:
    """What the arena may be, and whether rows of the input are fed."""

    bytes: int | None
    fed: bool = False


@dataclass(frozen=True, slots=True)
class Climbed:
    """The program after the rungs that were needed, these rungs, and the least arena that is known."""

    program: Program
    rungs: tuple[Rung, ...] = ()
    least: int | None = None


def climb(program: Program, target: Target, budget: Budget, *, slots: bool, note: Callable[[str], None]) -> Climbed:
    """Of a program that is placed, by every rung that is free."""
    if not budget.fed and (budget.bytes is None or program.arena_bytes <= budget.bytes):
        return Climbed(program)
    whole, work = program.arena_bytes, instructions(program, target)
    squeeze = Squeeze(program, target, slots, budget.fed, work)
    found = squeeze.within(budget.bytes) if budget.bytes is not None else None
    if found is None:
        found = squeeze.smallest()
        if found is None and budget.fed:
            raise no_rows_to_feed(program)
        if found is None or (not budget.fed and found.arena_bytes >= whole):
            return Climbed(squeeze.without(), least=whole)
    ratio = 1 + found.extra / max(work, 1)
    note(told(found, whole, ratio))
    return Climbed(found.program, (Rung("stripes", found.arena_bytes, ratio),), found.arena_bytes)


def no_rows_to_feed(program: Program) -> UserError:
    """Why rows of the input cannot come one by one."""
    graph = program.graph
    states = {s.input for s in graph.states}
    given = [v for v in graph.inputs if v not in states]
    reason, where = "", ""
    if len(given) != 1:
        reason = f"it has {len(given)} inputs"
    for n, layer in enumerate(program.layers if not reason else []):
        if given[0] not in layer.node.operands():
            continue
        where = f"layer {n}, {layer.node.op.NAME}: {layer.node.source or layer.name}"
        try:
            access_of(layer.node, AXIS)
            reason = "what it makes is needed as a whole" if n == 0 else "a layer comes before it that needs no rows"
        except NoRows as error:
            reason = str(error)
        break
    hint = (
        "the input has to be [1, rows, ...] and go into a convolution, a pooling or an elementwise layer; leave `--feed-rows` out"
    )
    return UserError(
        "no-rows", f"rows cannot be fed to `{graph.name}`: {reason or 'nothing reads its input'}", where=where, hint=hint
    )


def instructions(program: Program, target: Target) -> float:
    """About how many a run takes."""
    floats = sum(layer.macs for layer in program.layers if layer.node.output.dtype.is_float)
    integers = sum(layer.macs for layer in program.layers) - floats
    return floats * (target.cycles_per_mac_float or 2.0) + integers * (target.cycles_per_mac_int or 1.5)


def told(found: Squeezed, whole: int, ratio: float) -> str:
    parts = []
    for stripe in found.program.stripes:
        rows = "a row" if stripe.spec.rows == 1 else f"{stripe.spec.rows} rows"
        layers = f"layer {stripe.first}" if stripe.first == stripe.last else f"layers {stripe.first} to {stripe.last}"
        parts.append(f"{layers}, {rows} at a time")
    more = f"about {100 * (ratio - 1):.1f} % more instructions"
    return f"stripes make the arena {found.arena_bytes:,} bytes instead of {whole:,} ({more}): {'; '.join(parts)}"
