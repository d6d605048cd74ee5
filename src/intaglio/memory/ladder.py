"""The ladder: what each way to save memory gains, and the layer at which most is alive."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

from intaglio.ir.program import K, Program
from intaglio.memory.lifetimes import Buffer, align, find_storage
from intaglio.memory.planner import Apart, place_buffers, sharing
from intaglio.targets import Target


@dataclass(frozen=True, slots=True)
class Rung:
    """The arena with this and everything before it. `cost_ratio` is the time, relative to the first rung."""

    name: str
    arena_bytes: int
    cost_ratio: float = 1.0

    @property
    def fed(self) -> bool:
        """With rows of the input one by one, which is another interface."""
        return self.name.endswith("rows fed")


@dataclass(frozen=True, slots=True)
class Peak:
    """The layer that sets the size of the arena: everything alive there, largest first."""

    layer: int
    bytes: int
    alive: tuple[Buffer, ...]


def ladder(program: Program[K], target: Target) -> tuple[Rung, ...]:
    """Of a program that has its addresses."""
    given = as_given(program)
    storage = find_storage(given, target.alignment, in_place=False, slots=program.has_slots)
    heuristic = place_buffers(storage.buffers, target.alignment, search=False)
    best = place_buffers(storage.buffers, target.alignment)
    rungs = [
        Rung("heuristic offsets", storage.state_bytes + heuristic.bytes),
        Rung("best offsets", storage.state_bytes + best.bytes),
    ]
    whole = program.arena_bytes
    if len(program.arenas) > 1:  # their sum is another matter
        together = find_storage(program, target.alignment, slots=program.has_slots)
        whole = together.state_bytes + place_buffers(together.buffers, target.alignment, search=False, apart=together.apart).bytes
    if given is program:
        return (*rungs, Rung("in-place", whole))
    storage = find_storage(given, target.alignment, slots=program.has_slots)
    in_place = place_buffers(storage.buffers, target.alignment)
    return (*rungs, Rung("in-place", storage.state_bytes + in_place.bytes), Rung("operator order, views", whole))


def as_given(program: Program[K]) -> Program[K]:
    """The layers as they came from the kernel stage: in the order of the model, and copying what views share now."""
    if not program.given_layers:
        return program
    own = [layer.node for layer in program.given_layers if program.choices.is_view(layer.node)]
    return replace(program, choices=program.choices.without(own), layers=program.given_layers)


def peak_of(buffers: list[Buffer], alignment: int, apart: Apart = MappingProxyType({})) -> Peak | None:
    """None when nothing is alive at all. `apart`: pairs that may overlap, so that both need less."""
    best: Peak | None = None
    shared = sharing(apart, alignment)
    for layer in sorted({b.first for b in buffers}):  # between starts, buffers only end
        alive = sorted((b for b in buffers if b.first <= layer <= b.last), key=lambda b: (-b.bytes, b.name))
        total = sum(align(b.bytes, alignment) for b in alive) - shared.get(layer, 0)
        if best is None or total > best.bytes:
            best = Peak(layer, total, tuple(alive))
    return best
