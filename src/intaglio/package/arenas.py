"""Arenas as C sees them: one pointer as ever, or a struct with one for each memory.

    one          int net_run_in(void *arena, ...);                   arena + NET_AT_x
    several      typedef struct { void *dtcm; void *sram; } net_arenas;
                 int net_run_in(const net_arenas *arenas, ...);      NET_IN_SRAM + NET_AT_x

An arena outside of the memory of the variables is an array in a section of its own, `.bss.intaglio_dtcm`. Linker scripts of ours
put it into that memory; for others, which know nothing of it, it is a variable without first values like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from intaglio.ir.placement import ARENA, Arena, Region
from intaglio.package.c_text import is_identifier


@dataclass(frozen=True, slots=True)
class ArenaView:
    region: Region
    memory: str  # its name, or "" where nothing was said of memories
    field: str  # in the struct
    macro: str
    bytes: int
    section: str  # "": with the variables
    base: str  # C expression for where it starts, in functions that know `arena` or `arenas`


def arena_views(arenas: Sequence[Arena], arena_bytes: int, main: str, network: str) -> tuple[ArenaView, ...]:
    """`main`: the memory of the variables."""
    known = arenas or (Arena(ARENA, arena_bytes),)
    return tuple(_view(arena, main, network, several=len(known) > 1) for arena in known)


def _view(arena: Arena, main: str, network: str, *, several: bool) -> ArenaView:
    name = arena.memory or "ram"
    base = f"{network.upper()}_IN_{name.upper()}" if several else "arena"
    section = "" if arena.memory in ("", main) else section_of(arena.memory)
    field = name if is_identifier(name) else f"{name}_"
    return ArenaView(arena.region, arena.memory, field, name.upper(), arena.bytes, section, base)


def section_of(memory: str) -> str:
    """Of an arena. The name starts like that of other variables without first values: it takes no room in flash."""
    return f".bss.intaglio_{memory}"


def parameter(views: Sequence[ArenaView], name: str) -> str:
    """What functions that work in the caller's arena take."""
    return f"const {name}_arenas *arenas" if len(views) > 1 else "void *arena"
