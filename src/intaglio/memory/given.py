"""Addresses that an IR file gives: kept when they are sound, an error when they are not.

    h: f32[1,8] @arena+64 = relu(x) using chain       the arena, where the person who edited it wants `h`

Working memory of layers, and room for inputs and outputs, have no line in the text; they are put into what is free. A value
without an address, or a file that was written before the memory stage, means that everything is planned anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from intaglio.errors import ModelError, OurFault, quoted
from intaglio.ir.graph import Value
from intaglio.ir.placement import ARENA, Address, Placement, Region, arena_in
from intaglio.ir.program import K, Program
from intaglio.memory.checker import check
from intaglio.memory.lifetimes import Buffer, Storage, align, find_storage
from intaglio.memory.planner import lower_bound
from intaglio.memory.regions import Room, given_arenas, scratch_places, slot_places
from intaglio.targets import Target

HINT = "delete the addresses (`@arena+...`) to plan them again"


def keep_given(program: Program[K], target: Target, *, slots: bool = False, rooms: Sequence[Room] = ()) -> Placement:
    """Of a program that has all addresses. Raises ModelError where one of them cannot work."""
    storage = find_storage(program, target.alignment, in_place=False, slots=slots)
    addresses = _in_their_regions(program, storage, target.alignment, [arena_in(room.memory) for room in rooms])
    _place_scratch(storage, target.alignment, rooms)
    tops = [b.offset + b.bytes for b in storage.buffers]
    arenas = given_arenas(storage, rooms, target.alignment)
    best = find_storage(program, target.alignment, slots=slots)
    found = Placement(
        addresses,
        scratch_places(program, storage),
        slot_places(storage),
        arenas,
        sum(a.bytes for a in arenas) or align(max([storage.state_bytes, *tops]), target.alignment),
        storage.state_bytes + lower_bound(best.buffers, target.alignment, best.apart),
        _shared(program, addresses),
    )
    try:
        check(replace(program, placement=found))
    except OurFault as fault:
        raise ModelError("bad-address", fault.message, where=program.graph.file, hint=HINT) from None
    return found


def _in_their_regions(program: Program[K], storage: Storage, alignment: int, others: list[Region]) -> dict[Value, Address]:
    """The addresses, once each is known to be one that its value can have."""
    given = dict(program.placement.addresses)
    most = storage.state_bytes + sum(align(b.bytes, alignment) for b in storage.buffers)
    for value, address in storage.outside.items():
        if given.get(value) != address:
            raise _fault(program, value, f"its place is `{address}`")
    for buffer in storage.buffers:
        if not buffer.values:
            continue
        first = buffer.values[0]
        start = given[first]
        for value in buffer.values:
            at, place = buffer.parts.get(value, 0), given[value]
            if place.region not in (ARENA, *others):
                known = f", or in {', '.join(f'`{region}`' for region in others)}" if others else ""
                raise _fault(program, value, f"its place is in the arena{known}")
            if place.region != start.region:
                raise _fault(program, value, f"it is a view of {quoted(first.name)}, which has another address")
            buffer.region = place.region
            if (place.offset - at) % alignment:
                raise _fault(program, value, f"offsets are multiples of {alignment}")
            if place.offset - at + buffer.bytes > most:
                raise _fault(program, value, f"no plan of this network needs more than {most} bytes")
            if place.offset - at != start.offset:
                raise _fault(program, value, f"it is a view of {quoted(first.name)}, which has another address")
            if place.stride != (stride := storage.strides.get(value, 0)):
                raise _fault(program, value, f"its rows are {stride} bytes apart" if stride else "it lies in one piece")
            buffer.offset = place.offset - at
    for node in program.graph.nodes:  # values without bytes live nowhere in particular
        for out in node.outputs:
            if not out.type.bytes and out not in storage.outside:
                given[out] = Address(ARENA, storage.state_bytes)
    return given


def _place_scratch(storage: Storage, alignment: int, rooms: Sequence[Room]) -> None:
    """In the first arena; in another one that has room, where that one has not."""
    home = given_arenas(storage, rooms, alignment)
    limits = {ARENA: next((r.bytes for r in rooms if home and r.memory == home[0].memory), 0)}
    limits |= {arena_in(r.memory): r.bytes for r in rooms if home and r.memory != home[0].memory}
    for buffer in sorted(storage.buffers, key=lambda b: (-b.bytes, b.first)):
        if buffer.values:
            continue
        places = [(region, _gap(storage, buffer, region, alignment)) for region in limits]
        fitting = [place for place in places if place[1] + buffer.bytes <= limits[place[0]]]
        buffer.region, buffer.offset = (fitting or places)[0]


def _gap(storage: Storage, buffer: Buffer, region: Region, alignment: int) -> int:
    at = storage.state_bytes if region == ARENA else 0
    alive = [b for b in storage.buffers if b.offset >= 0 and b.region == region and b.meets(buffer)]
    apart = storage.apart
    taken = [(b.offset - apart.get((buffer, b), buffer.bytes), b.offset + apart.get((b, buffer), b.bytes)) for b in alive]
    for low, high in sorted(taken):
        if low >= at:
            break
        at = max(at, align(high, alignment))
    return at


def _shared(program: Program[K], addresses: Mapping[Value, Address]) -> dict[str, str]:
    """Outputs that take over the memory of an operand."""
    shared: dict[str, str] = {}
    for layer in program.layers:
        for out in layer.node.outputs:
            for value in layer.node.operands():
                if not value.is_const and addresses.get(value) == addresses.get(out) and out.type.bytes:
                    shared[out.name] = value.name
    return shared


def _fault(program: Program[K], value: Value, why: str) -> ModelError:
    text = f"{quoted(value.name)} cannot be at `{program.placement.of(value)}`: {why}"
    return ModelError("bad-address", text, where=program.graph.where(value.name), hint=HINT)
