"""Where values live: regions, addresses, and the plan that gives one to every value. Values beside the graph, never part of it.

    @arena+4096          the arena, 4096 bytes from its start; @arena:sram+64 is in a second one, in the memory `sram`
    @state+0             at the start of the first arena, where it outlives a run
    @input+0, @output+1  memory of the caller, by position
    @=y+64               a view: a part of `y`, which is an input or an output
    @arena+64/1024       a view: rows that start 1024 bytes apart, side by side with rows of other values
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from intaglio.ir.graph import Value

Slot = tuple[str, int]  # room in an arena that is no value's: `input` and `output` by position, `feed`, `weights` of a layer


class Kind(Enum):
    ARENA = "arena"
    STATE = "state"
    INPUT = "input"
    OUTPUT = "output"
    WEIGHTS = "weights"
    PART = "="  # of the value with that name
    UNKNOWN = "?"  # a word that a person wrote into an IR file


@dataclass(frozen=True, slots=True)
class Region:
    """`name`: the memory of a further arena, the value of a part, or the unknown word."""

    kind: Kind
    name: str = ""

    def __str__(self) -> str:
        match self.kind:
            case Kind.UNKNOWN:
                return self.name
            case Kind.PART:
                return f"={self.name}"
            case _:
                return f"{self.kind.value}:{self.name}" if self.name else self.kind.value

    @staticmethod
    def of(text: str) -> Region:
        """As it stands in files."""
        if text.startswith(Kind.PART.value):
            return Region(Kind.PART, text[1:])
        word, _, memory = text.partition(":")
        plain = {kind.value: kind for kind in (Kind.ARENA, Kind.STATE, Kind.INPUT, Kind.OUTPUT, Kind.WEIGHTS)}
        if word not in plain or (memory and word != Kind.ARENA.value):
            return Region(Kind.UNKNOWN, text)
        return Region(plain[word], memory)


ARENA, STATE, INPUT, OUTPUT = (Region(kind) for kind in (Kind.ARENA, Kind.STATE, Kind.INPUT, Kind.OUTPUT))


def arena_in(memory: str) -> Region:
    """A further arena, in this memory."""
    return Region(Kind.ARENA, memory)


def part_of(value: Value) -> Region:
    return Region(Kind.PART, value.name)


@dataclass(frozen=True, slots=True)
class Address:
    """`@arena+4096`. The offset is in bytes; of inputs and outputs it is their position. `stride`: the bytes from one row to the
    next, where rows of other values lie between them."""

    region: Region
    offset: int
    stride: int = 0

    def __str__(self) -> str:
        return f"@{self.region}+{self.offset}" + (f"/{self.stride}" if self.stride else "")

    @property
    def slot(self) -> Slot | None:
        """The room that an input or output has in an arena, where it has one."""
        return (self.region.kind.value, self.offset) if self.region in (INPUT, OUTPUT) else None


@dataclass(frozen=True, slots=True)
class Arena:
    """Working memory in one of the device's memories. The first is `arena`, others are `arena:MEMORY`."""

    region: Region
    bytes: int
    memory: str = ""  # "": where variables are


@dataclass(frozen=True, slots=True)
class Placement:
    """The address of every value, of the working memory of layers (by name) and of slots; how large the arenas are."""

    addresses: Mapping[Value, Address] = field(default_factory=lambda: MappingProxyType({}))
    scratch: Mapping[str, Address] = field(default_factory=lambda: MappingProxyType({}))
    slots: Mapping[Slot, Address] = field(default_factory=lambda: MappingProxyType({}))
    arenas: tuple[Arena, ...] = ()  # where they are, if not simply with the variables; the first has the state
    arena_bytes: int = 0
    lower_bound_bytes: int = 0
    in_place: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))  # output -> input whose memory it takes over

    def of(self, value: Value) -> Address | None:
        return self.addresses.get(value)

    def covers(self, values: Iterable[Value]) -> bool:
        """Has each of them an address?"""
        return all(value in self.addresses for value in values)

    def arena_sizes(self) -> dict[Region, int]:
        return {a.region: a.bytes for a in self.arenas} or {ARENA: self.arena_bytes}


NOWHERE = Placement()  # before the memory stage

__all__ = [
    "ARENA", "INPUT", "NOWHERE", "OUTPUT", "STATE",
    "Address", "Arena", "Kind", "Placement", "Region", "Slot", "arena_in", "part_of",
]  # fmt: skip
