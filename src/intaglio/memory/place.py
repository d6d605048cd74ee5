"""The memory stage: every value gets its address.

The arena starts with the state (what outlives a run), then comes what lives for some layers. Addresses that an edited IR file
gives are kept when all of them are there; the checker has the last word.
"""

from __future__ import annotations

from intaglio.ir.graph import Address
from intaglio.ir.program import K, Program
from intaglio.memory.checker import check
from intaglio.memory.given import keep_given
from intaglio.memory.lifetimes import align, find_storage
from intaglio.memory.planner import lower_bound, place_buffers
from intaglio.targets import Target


def place(program: Program[K], target: Target, *, slots: bool = False) -> None:
    """Addresses for everything; those of an edited IR file are kept if they can work. `slots`: the arena has room for inputs and
    outputs too."""
    if keep_given(program, target, slots=slots):
        return
    storage = find_storage(program, target.alignment, slots=slots)
    top = place_buffers(storage.buffers, target.alignment)
    base = storage.state_bytes
    for buffer in storage.buffers:
        if buffer.scratch_of >= 0:
            program.layers[buffer.scratch_of].scratch_offset = base + buffer.offset
        if buffer.slot is not None:
            program.slots[buffer.slot] = base + buffer.offset
        for value in buffer.values:
            value.address = Address("arena", base + buffer.offset)
    for value, (region, at) in storage.outside.items():
        value.address = Address(region, at)
    for node in program.graph.nodes:  # values without bytes live nowhere in particular
        for out in node.outputs:
            if out.address is None:
                out.address = Address("arena", base)
    program.arena_bytes = align(base + top, target.alignment)
    program.lower_bound_bytes = base + lower_bound(storage.buffers, target.alignment)
    program.in_place = storage.in_place
    program.graph.stage = "memory"
    check(program)
