"""The memory map of a package, and why buffers that live together do not overlap.

Two proofs that share no code: the checker of the compiler walks the layers of the program that the IR file describes, byte range by
byte range; and here all pairs of buffers in the manifest are compared: lifetimes that meet need addresses that do not. Pairs that
share memory on purpose (a result in the place of an operand, a part of a tensor) are listed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from intaglio.errors import IntaglioError
from intaglio.ir.placement import INPUT, OUTPUT, Address, Arena, Region
from intaglio.ir.text import Network
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory.checker import check
from intaglio.package.manifest import Manifest, PlaceInfo
from intaglio.targets.target import Target


@dataclass(frozen=True, slots=True)
class Shared:
    """Two buffers that live together in the same bytes, and why that is right."""

    first: str
    second: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemoryProof:
    buffers: tuple[PlaceInfo, ...]
    pairs: int  # compared
    shared: tuple[Shared, ...]
    overlapping: tuple[tuple[str, str], ...]  # without a reason: must be none
    checked: str  # what the checker of the compiler says

    @property
    def ok(self) -> bool:
        return not self.overlapping and self.checked == "sound"


def program_of(network: Network | None, manifest: Manifest, target: Target) -> Program | None:
    """As the IR file and the manifest describe it; None where it cannot be made again."""
    if network is None:
        return None
    try:
        program = lower(network.graph, target, network.choices, given=network.placement)
    except IntaglioError:
        return None
    names = {layer.index: layer.name for layer in manifest.layers}
    scratch = {
        names[layer.index]: Address(Region.of(place.region), place.offset)
        for layer in manifest.layers for place in layer.memory if place.value == "scratch"
    }  # fmt: skip
    fed = {state.input for state in network.graph.states}
    given = [n for n, value in enumerate(network.graph.inputs) if value not in fed]
    slots = {("input", n): at for n, info in zip(given, manifest.inputs, strict=False) if (at := info.arena_address)}
    slots |= {("output", n): at for n, info in enumerate(manifest.outputs) if (at := info.arena_address)}
    arenas = tuple(Arena(Region.of(a.region), a.bytes, a.memory) for a in manifest.memory.arenas)
    placed = replace(
        program.placement, arena_bytes=manifest.memory.arena_bytes, arenas=arenas,
        scratch={**scratch, **program.placement.scratch}, slots={**slots, **program.placement.slots},
    )  # fmt: skip
    return replace(program, placement=placed)


def prove(manifest: Manifest, program: Program | None) -> MemoryProof:
    buffers = tuple(place for layer in manifest.layers for place in layer.memory)
    in_place = set() if program is None else {n for n, layer in enumerate(program.layers) if layer.kernel.in_place}
    roots = {} if program is None else {v.name: r.name for v, r in program.storage_roots().items()}
    striped = set() if program is None else {v.name for stripe in program.stripes for v in stripe.windows}
    shared, overlapping, pairs = list[Shared](), list[tuple[str, str]](), 0
    for n, one in enumerate(buffers):
        for other in buffers[n + 1 :]:
            pairs += 1
            if not _meet(one, other):
                continue
            if reason := _reason(one, other, in_place, roots, striped):
                shared.append(Shared(one.value, other.value, reason))
            else:
                overlapping.append((one.value, other.value))
    return MemoryProof(buffers, pairs, tuple(shared), tuple(overlapping), _checked(program))


def bytes_of(place: PlaceInfo) -> tuple[str, int, int]:
    """The memory that a buffer is in, its first byte and the one behind its last. Each input and each output is a memory of the
    caller's: their offsets are numbers of arguments."""
    if Region.of(place.region) in (INPUT, OUTPUT):
        return f"{place.region} {place.offset}", 0, place.bytes
    return place.region, place.offset, place.offset + place.bytes


def _meet(one: PlaceInfo, other: PlaceInfo) -> bool:
    together = one.first_layer <= other.last_layer and other.first_layer <= one.last_layer
    (memory, first, end), (other_memory, other_first, other_end) = bytes_of(one), bytes_of(other)
    return together and memory == other_memory and first < other_end and other_first < end


def _reason(one: PlaceInfo, other: PlaceInfo, in_place: set[int], roots: dict[str, str], striped: set[str]) -> str:
    if roots.get(one.value, one.value) == roots.get(other.value, other.value):
        return "a part of the same tensor, or the tensor in another shape"
    later, earlier = (one, other) if one.first_layer >= other.first_layer else (other, one)
    if later.first_layer == earlier.last_layer and later.first_layer in in_place:
        return "the layer writes its result over an operand that it reads for the last time"
    if {one.value, other.value} & striped:
        return "rows of a window, in the order of the stripe"
    if one.stride_bytes or other.stride_bytes:
        return "rows side by side"
    return ""


def _checked(program: Program | None) -> str:
    if program is None:
        return "not checked: the package has no IR file, or not for this version"
    try:
        check(program)
    except IntaglioError as error:
        return error.message
    return "sound"
