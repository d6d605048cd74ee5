"""The memory stage: every value gets its address.

The arena starts with the state (what outlives a run), then comes what lives for some layers. Addresses that an edited IR file
gives are kept when all of them are there, rows of a plan (`--import-plan`) always; the checker has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence

from intaglio.ir.graph import Address
from intaglio.ir.program import K, Program
from intaglio.memory.checker import check
from intaglio.memory.given import keep_given
from intaglio.memory.lifetimes import Buffer, align, find_storage
from intaglio.memory.plan_file import PlanFile, pin
from intaglio.memory.planner import place_buffers
from intaglio.memory.regions import Room, put, region_of, spread
from intaglio.targets import Target


def place(
    program: Program[K], target: Target, *, slots: bool = False, pinned: PlanFile | None = None, rooms: Sequence[Room] = (),
    search: bool = True,
) -> None:  # fmt: skip
    """Addresses for everything; those of an edited IR file are kept if they can work. `slots`: the arena has room for inputs and
    outputs too. `rooms`: the memories for it, where there are several. Without `search`, offsets are the best of a few
    orders at once."""
    if pinned is None and keep_given(program, target, slots=slots, rooms=rooms):
        return
    storage = find_storage(program, target.alignment, slots=slots)
    base = storage.state_bytes
    if pinned is not None:
        regions = ["arena", *(region_of(room.memory) for room in rooms)]
        pin(storage.buffers, pinned, base, target.alignment, regions, storage.apart)
    plan = place_buffers(storage.buffers, target.alignment, search=search, apart=storage.apart)
    program.arenas = spread(program, storage, rooms, target.alignment, plan.bytes)
    for buffer in storage.buffers:
        at = buffer.offset + (base if buffer.region == "arena" else 0)
        put(program, buffer, at)
        for value in buffer.values:
            value.address = Address(buffer.region, at + buffer.parts.get(value, 0))
    for value, (region, at) in storage.outside.items():
        value.address = Address(region, at)
    for node in program.graph.nodes:  # values without bytes live nowhere in particular
        for out in node.outputs:
            if out.address is None or (not out.type.bytes and out not in storage.outside):
                out.address = Address("arena", base)
    program.arena_bytes = sum(a.bytes for a in program.arenas) or align(base + plan.bytes, target.alignment)
    program.lower_bound_bytes = base + plan.bound
    program.in_place = storage.in_place
    program.graph.stage = "memory"
    check(program)


def placed_buffers(program: Program[K], target: Target) -> list[Buffer]:
    """The buffers of a program that has its addresses, with their offsets from the start of the arena."""
    slots = program.has_slots
    buffers = find_storage(program, target.alignment, slots=slots).buffers
    if not all(_together(b) for b in buffers):  # addresses by a person, who did without in-place
        buffers = find_storage(program, target.alignment, in_place=False, slots=slots).buffers
    for buffer in buffers:
        if buffer.slot is not None:
            buffer.offset, buffer.region = program.slots[buffer.slot], program.slot_region(buffer.slot)
        elif buffer.scratch_of >= 0:
            layer = program.layers[buffer.scratch_of]
            buffer.offset, buffer.region = layer.scratch_offset, layer.scratch_region
        else:
            address = buffer.values[0].address
            assert address is not None
            buffer.offset, buffer.region = address.offset - buffer.parts.get(buffer.values[0], 0), address.region
    return buffers


def _together(buffer: Buffer) -> bool:
    starts = {(v.address.region, v.address.offset - buffer.parts.get(v, 0)) for v in buffer.values if v.address is not None}
    return len(starts) <= 1
