"""The memory stage as a whole: order of layers, views, addresses, the ladder, the places of weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from intaglio.fitting.budget import RESERVE_BYTES, Budget, Climbed, climb
from intaglio.fitting.fast_weights import moved_line, moved_text
from intaglio.fitting.fit import arena_budget, arena_rooms, place_weights, weights_to_ram
from intaglio.fitting.packed import pack_weights, packed_line, packed_text
from intaglio.fitting.side_by_side import without_copies
from intaglio.fitting.staged import stage_weights, staged_line, staged_text
from intaglio.ir.placement import NOWHERE
from intaglio.kernels.lower import Memo
from intaglio.kernels.program import Program
from intaglio.memory import placed
from intaglio.memory.checker import check
from intaglio.memory.ladder import Rung
from intaglio.memory.order import reorder
from intaglio.memory.plan_file import PlanFile
from intaglio.memory.regions import Room
from intaglio.memory.share import share_parts
from intaglio.targets.deployment import Deployment
from intaglio.targets.target import Target


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user says about memory. `reserve`: RAM for stack and variables; without `climbing`, limits are left for later."""

    slots: bool
    pinned: PlanFile | None = None
    feed_rows: bool = False
    reserve: int = RESERVE_BYTES
    climbing: bool = True
    explain: bool = False  # each layer whose weights are in RAM, or not


def plan_memory(
    program: Program, target: Target, deployment: Deployment, wishes: Wishes, note: Callable[[str], None], memo: Memo | None = None
) -> Climbed:
    """The program with its addresses, and the rungs of the ladder that its limits made necessary. `memo`: that of its kernels."""
    slots = wishes.slots
    given = bool(program.placement.addresses) or bool(program.choices.stripes)  # an IR file says it
    first = program
    program = reorder(program, target, slots=slots)
    if not target.device:
        program, _ = share_parts(program, target, slots=slots)
    if program is not first:
        program = reorder(program, target, slots=slots)
    rooms = arena_rooms(program, deployment, slots=slots)
    program = placed(program, target, slots=slots, rooms=rooms)
    if not given and not rooms and not wishes.feed_rows:
        program = _with_rows(program, target, deployment, wishes, memo)
    rungs: tuple[Rung, ...] = ()
    reached = True
    if wishes.climbing and not given:
        said: list[str] = []
        for limit in _limits(program, deployment, rooms, wishes):
            said.clear()  # of several attempts, the last counts
            climbed = climb(program, target, Budget(limit, wishes.feed_rows and not rungs), slots=slots, note=said.append)
            program, rungs, reached = climbed.program, climbed.rungs or rungs, climbed.reached
            if not rooms:
                break
            program = placed(replace(program, placement=NOWHERE), target, slots=slots, rooms=rooms)
            if program.arenas:
                break
        for text in said:
            note(text)
    if wishes.pinned is not None:  # of the plan as it is now: windows of stripes have their names too
        program = placed(program, target, slots=slots, pinned=wishes.pinned, rooms=rooms)
    if deployment.weights_packed and not given:
        program = _packed(program, target, deployment, wishes, note)
    place_weights(program, deployment)
    moved = weights_to_ram(program, deployment, wishes.reserve)
    if deployment.weights_ram:
        note(moved_text(moved, program))
        for one in moved if wishes.explain else []:
            note(moved_line(one))
    if deployment.weights_staged and not given:
        program = _staged(program, target, deployment, wishes, note)
    check(program)
    return Climbed(program, rungs, reached)


def _staged(program: Program, target: Target, deployment: Deployment, wishes: Wishes, note: Callable[[str], None]) -> Program:
    """`--weights staged`: in an arena of the same size, or as large as `--ram` lets it be."""
    budget = arena_budget(program, deployment, wishes.reserve) if deployment.ram is not None else None
    room = max(program.arena_bytes, budget or 0)
    program, rows = stage_weights(program, target, deployment.board, room, wishes.slots)
    note(staged_text(rows))
    for one in rows if wishes.explain else []:
        note(staged_line(one))
    return program


def _packed(program: Program, target: Target, deployment: Deployment, wishes: Wishes, note: Callable[[str], None]) -> Program:
    """`--weights packed`: in an arena as large as the board, or `--ram`, lets it be."""
    made, rows = pack_weights(program, target, arena_budget(program, deployment, wishes.reserve), wishes.slots)
    before, after = (sum(c.data.nbytes for c in p.constants) for p in (program, made))
    note(packed_text(rows, before, after))
    for one in rows if wishes.explain else []:
        note(packed_line(one))
    return made


def _with_rows(program: Program, target: Target, deployment: Deployment, wishes: Wishes, memo: Memo | None) -> Program:
    """Without the copies of concats. Stripes make whole tensors only: they start from a program that has the copies."""
    made = without_copies(program, target, slots=wishes.slots, memo=memo)
    if made is None:
        return program
    limit = arena_budget(made, deployment, wishes.reserve) if wishes.climbing else None
    return program if limit is not None and made.arena_bytes > limit else made


def _limits(program: Program, deployment: Deployment, rooms: Sequence[Room], wishes: Wishes) -> list[int | None]:
    """What arenas may be, to be tried in order. Of several memories: all of them together, then as little as there is."""
    if not rooms:
        asked = deployment.ram is not None or not wishes.feed_rows  # who feeds rows wants little RAM, whatever the board has
        return [arena_budget(program, deployment, wishes.reserve) if asked else None]
    if program.arenas:
        return [None] if wishes.feed_rows else []
    return [sum(room.bytes for room in rooms), max(room.bytes for room in rooms), 0]
