"""Which memory each buffer goes to, where a device has several for the arena.

    dtcm  16 KB, fast      a  b  d       @arena+0, ...            the buffers with the most traffic per byte
    sram  64 KB, slow      c  e          @arena:sram+0, ...       what does not fit beside them

If all of it fits into the fastest memory, that has it and there is one arena, as ever. Otherwise memories are filled from the
fastest on, in order of traffic: what layers read and write, each weighted by the layer's multiply-adds per byte, divided by the
buffer's size. A second attempt fills by size, the largest first, because heat alone may leave a large one without room. The state,
which has to stay together, is at the start of the first arena.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Value
from intaglio.ir.placement import ARENA, Address, Arena, Region, Slot, arena_in
from intaglio.ir.program import K, Program
from intaglio.memory.lifetimes import Buffer, Storage, align
from intaglio.memory.planner import lower_bound, place_buffers
from intaglio.targets.memories import Memory, fastest_first

Apart = Mapping[tuple[Buffer, Buffer], int]  # buffers that may overlap: how far apart they are at least


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of a memory that an arena may take."""

    memory: str
    bytes: int


def rooms_of(memories: Sequence[Memory], main: Memory | None, reserved_bytes: int) -> tuple[Room, ...]:
    """The fastest first. `reserved_bytes` of the main memory are for the stack, variables, inputs and outputs. Nothing when there
    is but the main memory: its limit is checked once all that is in it is known."""
    if not memories or (len(memories) == 1 and main is not None and memories[0].name == main.name):
        return ()
    rooms = []
    for memory in fastest_first(memories, "arena"):
        used = reserved_bytes if main is not None and memory.name == main.name else 0
        rooms.append(Room(memory.name, max(0, memory.bytes - used)))
    return tuple(rooms)


def spread(program: Program[K], storage: Storage, rooms: Sequence[Room], alignment: int, plan_bytes: int) -> tuple[Arena, ...]:
    """Region and offset of every buffer. `plan_bytes`: what one arena needs, which has been placed already. Nothing when the
    buffers do not fit into these memories: then they stay as they are."""
    if not rooms:
        return ()
    base = storage.state_bytes
    whole = align(base + plan_bytes, alignment)
    elsewhere = [b for b in storage.buffers if b.pinned and b.region != ARENA]
    if whole <= rooms[0].bytes and not elsewhere:
        return (Arena(ARENA, whole, rooms[0].memory),)
    hot = traffic(program, storage)
    orders: list[Callable[[Buffer], tuple[float, ...]]] = [
        lambda b: (-hot[b] / max(1, b.bytes), -b.bytes, b.first, b.scratch_of),
        lambda b: (-b.bytes, -hot[b], b.first, b.scratch_of),
    ]
    alone = [b.offset for b in storage.buffers]
    packing = _Packing(alignment, storage.apart)
    for order in orders:
        found = _fill(sorted(storage.buffers, key=order), rooms, packing, base)
        if found is not None:
            return _named(found, rooms, packing, base)
    for buffer, offset in zip(storage.buffers, alone, strict=True):
        buffer.offset = offset
    if elsewhere:
        what = f"no plan has room for all buffers with {quoted(elsewhere[0].name)} in `{elsewhere[0].region}`"
        raise UserError("bad-plan", what, hint="fix the place of fewer buffers, or choose other places")
    return tuple(Arena(ARENA, whole, room.memory) for room in rooms if whole <= room.bytes)[:1]


@dataclass(frozen=True, slots=True)
class _Packing:
    alignment: int
    apart: Apart

    def place(self, buffers: list[Buffer], *, search: bool) -> int:
        return place_buffers(buffers, self.alignment, search=search, apart=self._within(buffers)).bytes

    def fits(self, buffers: list[Buffer], limit: int) -> bool:
        if lower_bound(buffers, self.alignment, self._within(buffers)) > limit:
            return False
        return self.place(buffers, search=False) <= limit

    def _within(self, buffers: list[Buffer]) -> Apart:
        if not self.apart:
            return {}
        known = set(buffers)
        return {pair: distance for pair, distance in self.apart.items() if known.issuperset(pair)}

    def packed(self, taken: list[Buffer], more: list[Buffer], limit: int) -> list[Buffer]:
        """As many as go in, in this order. Many at a time, and half as many where they do not fit together."""
        more = [b for b in more if align(b.bytes, self.alignment) <= limit]
        if not more or self.fits([*taken, *more], limit):
            return [*taken, *more]
        if len(more) == 1:
            return taken
        half = len(more) // 2
        return self.packed(self.packed(taken, more[:half], limit), more[half:], limit)


def _fill(buffers: list[Buffer], rooms: Sequence[Room], packing: _Packing, base: int) -> dict[str, list[Buffer]] | None:
    """Buffers by memory; None when some are left over."""
    home = next((room for room in rooms if room.bytes >= base), None)
    if home is None:
        return None
    found: dict[str, list[Buffer]] = {}
    rest = buffers
    for room in rooms:
        limit = room.bytes - (base if room is home else 0)
        first = [b for b in rest if b.pinned and b.region == (ARENA if room is home else arena_in(room.memory))]
        if first and not packing.fits(first, limit):
            return None
        taken = packing.packed(first, [b for b in rest if not b.pinned], limit)
        found[room.memory] = taken
        gone = set(map(id, taken))
        rest = [b for b in rest if id(b) not in gone]
    return None if rest else found


def _named(found: Mapping[str, list[Buffer]], rooms: Sequence[Room], packing: _Packing, base: int) -> tuple[Arena, ...]:
    home = next(room.memory for room in rooms if room.bytes >= base)
    used = [room.memory for room in rooms if found[room.memory] or (base and room.memory == home)]
    used.sort(key=lambda memory: base > 0 and memory != home)  # the state is in the first
    arenas = []
    for n, memory in enumerate(used):
        region = ARENA if n == 0 else arena_in(memory)
        top = packing.place(found[memory], search=True)
        for buffer in found[memory]:
            buffer.region = region
        arenas.append(Arena(region, align((base if n == 0 else 0) + top, packing.alignment), memory))
    return tuple(arenas)


def scratch_places(program: Program[K], storage: Storage) -> dict[str, Address]:
    """The working memory of layers, by their names, where buffers have offsets from the start of their arena."""
    own = [b for b in storage.buffers if b.scratch_of >= 0]
    return {program.layers[b.scratch_of].name: Address(b.region, b.offset) for b in own}


def slot_places(storage: Storage) -> dict[Slot, Address]:
    return {b.slot: Address(b.region, b.offset) for b in storage.buffers if b.slot is not None}


def given_arenas(storage: Storage, rooms: Sequence[Room], alignment: int) -> tuple[Arena, ...]:
    """The arenas of buffers that have their places. `arena` is the fastest memory that no other region names and that suffices."""
    if not rooms:
        return ()
    tops: dict[Region, int] = {ARENA: storage.state_bytes}
    for buffer in storage.buffers:
        tops[buffer.region] = max(tops.get(buffer.region, 0), buffer.offset + buffer.bytes)
    free = [room for room in rooms if arena_in(room.memory) not in tops]
    home = next((room for room in free if room.bytes >= tops[ARENA]), free[0] if free else rooms[0])
    named = [Arena(arena_in(r.memory), align(tops[arena_in(r.memory)], alignment), r.memory) for r in rooms if r not in free]
    return (Arena(ARENA, align(tops[ARENA], alignment), home.memory), *named)


def traffic(program: Program[K], storage: Storage) -> dict[Buffer, float]:
    """Bytes that layers read and write of each buffer, each times the layer's multiply-adds per byte."""
    home: dict[Value, Buffer] = {value: buffer for buffer in storage.buffers for value in buffer.values}
    slots = {buffer.slot: buffer for buffer in storage.buffers if buffer.slot is not None}
    for value, address in storage.outside.items():
        if address.slot in slots:
            home[value] = slots[address.slot]
    scratch = {buffer.scratch_of: buffer for buffer in storage.buffers if buffer.scratch_of >= 0}
    total: dict[Buffer, float] = dict.fromkeys(storage.buffers, 0.0)
    for index, layer in enumerate(program.layers):
        touched = [v for v in [*layer.node.operands(), *layer.node.outputs] if not v.is_const]
        moved = sum(v.type.bytes for v in touched) + layer.scratch_bytes
        weight = max(1.0, layer.macs / max(1, moved))
        for value in touched:
            if value in home:
                total[home[value]] += weight * value.type.bytes
        if index in scratch:
            total[scratch[index]] += 2 * weight * layer.scratch_bytes
    return total
