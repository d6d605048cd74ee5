"""The memory stage: every value gets its address.

The arena starts with the state (what outlives a run), then comes what lives for some layers. Addresses that an edited IR file
gives are kept when all of them are there, rows of a plan (`--import-plan`) always; the checker has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from intaglio.ir.graph import Value
from intaglio.ir.placement import ARENA, Address, Placement, arena_in
from intaglio.ir.program import K, Program
from intaglio.memory.checker import check
from intaglio.memory.given import keep_given
from intaglio.memory.lifetimes import Buffer, align, find_storage
from intaglio.memory.plan_file import PlanFile, pin
from intaglio.memory.planner import place_buffers
from intaglio.memory.regions import Room, scratch_places, slot_places, spread
from intaglio.targets import Target


def place(
    program: Program[K], target: Target, *, slots: bool = False, pinned: PlanFile | None = None, rooms: Sequence[Room] = (),
    search: bool = True,
) -> Placement:  # fmt: skip
    """Addresses for everything; those that the program has are kept if they can work. `slots`: the arena has room for inputs and
    outputs too. `rooms`: the memories for it, where there are several. Without `search`, offsets are the best of a few
    orders at once."""
    if pinned is None and program.has_addresses:
        return keep_given(program, target, slots=slots, rooms=rooms)
    storage = find_storage(program, target.alignment, slots=slots)
    base = storage.state_bytes
    if pinned is not None:
        regions = [ARENA, *(arena_in(room.memory) for room in rooms)]
        pin(storage.buffers, pinned, base, target.alignment, regions, storage.apart)
    plan = place_buffers(storage.buffers, target.alignment, search=search, apart=storage.apart)
    arenas = spread(program, storage, rooms, target.alignment, plan.bytes)
    addresses: dict[Value, Address] = {}
    for buffer in storage.buffers:
        buffer.offset += base if buffer.region == ARENA else 0
        for value in buffer.values:
            at = buffer.offset + buffer.parts.get(value, 0)
            addresses[value] = Address(buffer.region, at, storage.strides.get(value, 0))
    addresses |= storage.outside
    for node in program.graph.nodes:  # values without bytes live nowhere in particular
        for out in node.outputs:
            if out not in addresses or (not out.type.bytes and out not in storage.outside):
                addresses[out] = Address(ARENA, base)
    found = Placement(
        addresses,
        scratch_places(program, storage),
        slot_places(storage),
        arenas,
        sum(a.bytes for a in arenas) or align(base + plan.bytes, target.alignment),
        base + plan.bound,
        storage.in_place,
    )
    check(replace(program, placement=found))
    return found


def placed(
    program: Program[K], target: Target, *, slots: bool = False, pinned: PlanFile | None = None, rooms: Sequence[Room] = (),
    search: bool = True,
) -> Program[K]:  # fmt: skip
    """The program with the placement that `place` finds for it."""
    found = place(program, target, slots=slots, pinned=pinned, rooms=rooms, search=search)
    return replace(program, placement=found)


def placed_buffers(program: Program[K], target: Target) -> list[Buffer]:
    """The buffers of a program that has its addresses, with their offsets from the start of the arena."""
    slots, placement = program.has_slots, program.placement
    buffers = find_storage(program, target.alignment, slots=slots).buffers
    if not all(_together(b, placement) for b in buffers):  # addresses by a person, who did without in-place
        buffers = find_storage(program, target.alignment, in_place=False, slots=slots).buffers
    for buffer in buffers:
        if buffer.slot is not None:
            address = placement.slots[buffer.slot]
        elif buffer.scratch_of >= 0:
            address = placement.scratch[program.layers[buffer.scratch_of].name]
        else:
            address = placement.addresses[buffer.values[0]]  # of a whole: parts come behind it
        buffer.offset, buffer.region = address.offset, address.region
    return buffers


def _together(buffer: Buffer, placement: Placement) -> bool:
    starts = {(at.region, at.offset - buffer.parts.get(v, 0)) for v in buffer.values if (at := placement.of(v)) is not None}
    return len(starts) <= 1
