"""What is between a core and its memories, as `[[cache]]` and `[timing]` tables of a board's file; estimates of cycles use it.

[[cache]]
name = "art_data"
kind = "data"                     # of data, of code, or both
memories = ["flash"]              # read through it; every flash by default
lines = 8
line_bytes = 32
ways = 8                          # lines that one address can be in; all by default
fill_bytes = 8                    # read at once when something is missing; a whole line by default
miss_cycles = 3.8                 # that the core waits for one fill; the wait states of the board by default
prefetch = false                  # code in a row is fetched ahead: only the target of a branch can miss
source = "ST RM0432, 3.3.4"

[timing]
factor = 1.1                      # cycles of this board per cycle of the estimate for its core, without waits for memories
error_percent = 4                 # how far the estimate was off at most, where it was compared with measurements
source = "..."
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from intaglio.targets.memories import Memory, check_fields

KINDS = ("data", "code", "both")


@dataclass(frozen=True, slots=True)
class Cache:
    name: str
    kind: str
    lines: int
    line_bytes: int
    memories: tuple[str, ...] = ()  # (): every flash
    ways: int = 0  # 0: an address can be in any line
    fill_bytes: int = 0  # 0: a whole line
    miss_cycles: float = -1.0  # negative: the wait states of the board
    prefetch: bool = False
    source: str = ""

    def serves(self, memory: Memory) -> bool:
        return memory.name in self.memories if self.memories else memory.kind == "flash" and memory.mapped

    def holds(self, what: str) -> bool:
        """`data` or `code`."""
        return self.kind in (what, "both")


@dataclass(frozen=True, slots=True)
class Timing:
    factor: float = 1.0
    error_percent: float = 0.0  # 0: no measurement is known
    source: str = ""


NOT_MEASURED = Timing()


def cache_of_table(table: dict[str, object]) -> Cache:
    """ValueError names the field that is at fault."""
    row = dict(table)
    check_fields(row, list(fields(Cache)), "a cache: ")
    names = row.pop("memories", [])
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError("a cache: `memories` is not a list of names")
    return Cache(memories=tuple(names), **row)  # type: ignore[arg-type]  # checked above


def timing_of_table(table: dict[str, object]) -> Timing:
    check_fields(table, list(fields(Timing)), "`[timing]`: ")
    return Timing(**table)  # type: ignore[arg-type]  # checked above


def bus_fault(caches: Sequence[Cache], timing: Timing, memories: Sequence[Memory]) -> str:
    """Why there can be no such caches, or nothing."""
    names = [cache.name for cache in caches]
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        return f"two caches have the name `{twice[0]}`"
    for cache in caches:
        if fault := _fault(cache, memories):
            return fault
    for memory in memories:
        for what in ("data", "code"):
            if len([c for c in caches if c.holds(what) and c.serves(memory)]) > 1:
                return f"two caches hold {what} of `{memory.name}`"
    if not 0.1 <= timing.factor <= 10 or not 0 <= timing.error_percent <= 100:
        return "`[timing]` needs a `factor` from 0.1 to 10 and an `error_percent` from 0 to 100"
    return ""


def _fault(cache: Cache, memories: Sequence[Memory]) -> str:
    name, fill, ways = cache.name, cache.fill_bytes or cache.line_bytes, cache.ways or cache.lines
    if not name.isidentifier() or not name.isascii() or len(name) > 40:
        return "a cache needs a `name` of letters"
    if cache.kind not in KINDS:
        return f"`kind` of the cache `{name}` must be one of {', '.join(KINDS)}"
    if not 1 <= cache.lines <= 1 << 16 or not _power(cache.line_bytes) or not 4 <= cache.line_bytes <= 256:
        return f"the cache `{name}` needs 1 to 65536 `lines`, and `line_bytes` that are a power of two from 4 to 256"
    if not _power(fill) or not 4 <= fill <= cache.line_bytes:
        return f"`fill_bytes` of the cache `{name}` must be a power of two from 4 to its `line_bytes`"
    if not 1 <= ways <= 256 or cache.lines % ways or not _power(cache.lines // ways):
        return f"`ways` of the cache `{name}` must divide its `lines` into a power of two of sets, and be at most 256"
    if cache.miss_cycles > 1000:
        return f"`miss_cycles` of the cache `{name}` must be at most 1000"
    if unknown := sorted(set(cache.memories) - {m.name for m in memories}):
        return f"the cache `{name}` names `{unknown[0]}`, which is not a memory of the board"
    return ""


def _power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
