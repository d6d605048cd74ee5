"""The ladder under a limit: rungs that cost nothing are always used, the others only until the arena fits.

    stripes make the arena 36,736 bytes instead of 55,360 (about 0.7 % more work, estimated; code of 24
    kernels instead of 8): layers 0 to 7, a row at a time

Order of layers, offsets, in-place and views come first and are free. Then come stripes, which cost calls and moved rows, then
tensors that are made twice. What the application, stack and variables need is not the arena's: `reserve`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from intaglio.errors import UserError
from intaglio.fitting.squeeze import Squeeze, Squeezed
from intaglio.ir.placement import NOWHERE
from intaglio.kernels.program import Program
from intaglio.kernels.stripes.build import AXIS
from intaglio.memory import placed
from intaglio.memory.ladder import Rung
from intaglio.memory.order import reorder
from intaglio.memory.recompute import Again, recompute
from intaglio.ops.rows import NoRows, access_of
from intaglio.targets.target import Target

INSTRUCTIONS_PER_BYTE, INSTRUCTIONS_PER_MAC = 1.0, 1.5
RESERVE_BYTES = 320  # stack and variables of small firmware, before they are known


@dataclass(frozen=True, slots=True)
class Budget:
    """What the arena may be, and whether rows of the input are fed."""

    bytes: int | None
    fed: bool = False


@dataclass(frozen=True, slots=True)
class Climbed:
    """The program after the rungs that were needed, and these rungs."""

    program: Program
    rungs: tuple[Rung, ...] = ()
    reached: bool = True  # the budget


def climb(program: Program, target: Target, budget: Budget, *, slots: bool, note: Callable[[str], None]) -> Climbed:
    """Of a program that is placed, by every rung that is free. What does not fit in the end is as small as it gets."""
    if not budget.fed and (budget.bytes is None or program.arena_bytes <= budget.bytes):
        return Climbed(program)
    if target.device:  # its kernels make whole tensors
        return Climbed(program, reached=False)
    whole, work = program.arena_bytes, instructions(program, target)
    squeeze = Squeeze(program, target, slots, budget.fed, work)
    found = squeeze.within(budget.bytes) if budget.bytes is not None else None
    rungs: list[Rung] = []
    extra = 0.0
    if found is None and budget.bytes is not None:
        program, again = _made_again(squeeze.without(), target, budget.bytes, slots=slots)
        if again:
            extra = sum(INSTRUCTIONS_PER_BYTE * a.bytes_moved + INSTRUCTIONS_PER_MAC * a.macs for a in again)
            rungs.append(Rung("made again", program.arena_bytes, 1 + extra / max(work, 1)))
            names = ", ".join(f"`{a.value}`" for a in again[:4]) + (" ..." if len(again) > 4 else "")
            note(f"computing tensors twice reduces the arena from {whole:,} to {program.arena_bytes:,} bytes: {names}")
            if program.arena_bytes <= budget.bytes and not budget.fed:
                return Climbed(program, tuple(rungs))
            squeeze = Squeeze(program, target, slots, budget.fed, work)
            found = squeeze.within(budget.bytes)
    before, kernels = program.arena_bytes, len(program.kernels)
    if found is None:
        found = squeeze.fed_alone() if budget.bytes is None else squeeze.smallest()
        if found is None and budget.fed:
            raise no_rows_to_feed(program)
        if found is None or (not budget.fed and found.arena_bytes >= before):
            return Climbed(squeeze.without(), tuple(rungs), reached=False)
    ratio = 1 + (found.extra + extra) / max(work, 1)
    note(told(found, before, ratio, kernels))
    reached = budget.bytes is None or found.arena_bytes <= budget.bytes
    name = "stripes, rows fed" if budget.fed else "stripes"
    return Climbed(found.program, (*rungs, Rung(name, found.arena_bytes, ratio)), reached)


def _made_again(program: Program, target: Target, budget: int, *, slots: bool) -> tuple[Program, list[Again]]:
    """Cheap tensors made twice, placed anew."""
    program, again = recompute(replace(program, placement=NOWHERE), target, budget, slots=slots)
    if again:
        program = reorder(program, target, slots=slots)
    return placed(program, target, slots=slots), again


def no_rows_to_feed(program: Program) -> UserError:
    """Why rows of the input cannot come one by one."""
    graph = program.graph
    states = {s.input for s in graph.states}
    given = [v for v in graph.inputs if v not in states]
    reason, where = "", ""
    if len(given) != 1:
        reason = f"it has {len(given)} inputs"
    views = [node for node in program.choices.views(graph) if not reason and given[0] in node.operands()]
    if views:
        reason = f"it is first reshaped to {list(views[0].output.shape)}, which has other rows"
    for n, layer in enumerate(program.layers if not reason else []):
        if given[0] not in layer.node.operands():
            continue
        where = f"layer {n}, {layer.node.op.NAME}: {layer.node.source or layer.name}"
        try:
            access_of(layer.node, AXIS)
            reason = "its result is needed as a whole" if n == 0 else "an earlier layer does not work on rows"
        except NoRows as error:
            reason = str(error)
        break
    hint = (
        "omit `--feed-rows`; it needs an input [1, rows, ...] that goes into a convolution, a pooling or an elementwise layer"
    )
    return UserError(
        "no-rows", f"`{graph.name}` cannot take rows of its input: {reason or 'no layer reads it'}", where=where, hint=hint
    )


def instructions(program: Program, target: Target) -> float:
    """About how many a run takes."""
    floats = sum(layer.macs for layer in program.layers if layer.node.output.dtype.is_float)
    integers = sum(layer.macs for layer in program.layers) - floats
    return floats * (target.cycles_per_mac_float or 2.0) + integers * (target.cycles_per_mac_int or 1.5)


def told(found: Squeezed, whole: int, ratio: float, kernels: int) -> str:
    """Rows at the borders have kernels of their own, and so has each number of rows that may be left of a range."""
    parts = []
    for stripe in found.program.stripes:
        rows = "a row" if stripe.spec.rows == 1 else f"{stripe.spec.rows} rows"
        layers = f"layer {stripe.first}" if stripe.first == stripe.last else f"layers {stripe.first} to {stripe.last}"
        parts.append(f"{layers}, {rows} at a time")
    more = f"about {100 * (ratio - 1):.1f} % more work, estimated"
    if len(found.program.kernels) > kernels:
        more += f"; code of {len(found.program.kernels)} kernels instead of {kernels}"
    return f"stripes make the arena {found.arena_bytes:,} bytes instead of {whole:,} ({more}): {'; '.join(parts)}"
