"""Memories of a device, as `[[memory]]` tables of a board's file or of a file of their own (`--memory FILE.toml`).

[[memory]]
name = "dtcm"
kind = "ram"                      # or flash, which is read only
address = 0x20000000              # not needed where an operating system decides
bytes = 131072                    # a hard limit
bytes_per_cycle = 8               # the widest access; the fastest memory is filled first
latency = 0                       # cycles before the first byte
holds = ["arena"]                 # of arena, stack, variables, code (ram), weights, code (flash); all that its kind can, by default
note = "..."                      # what has to be set up before it can be used

[[memory]]
name = "spi"
kind = "flash"
bytes = 8388608
mapped = false                    # not in the address space: weights are read from it (`--weights read`)
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from itertools import pairwise
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.ir.names import is_clean

HOLDS = {"ram": ("arena", "stack", "variables", "code"), "flash": ("code", "weights")}
NOWHERE = 1 << 32  # the address of a memory that has none: no 32-bit address lies in it
_NAME = re.compile(r"[A-Za-z_]\w{0,39}", re.ASCII)
_HINT = (
    "each `[[memory]]` needs `name`, `kind`, `bytes` and, without an operating system, `address`; optional: `bytes_per_cycle`, "
    "`latency`, `holds`, `mapped`, `note`"
)


@dataclass(frozen=True, slots=True)
class Memory:
    """`kind` is flash or ram. What holds variables, or code, first of its kind is where these go."""

    name: str
    kind: str
    address: int
    bytes: int
    bytes_per_cycle: float = 4.0
    latency: int = 0
    holds: tuple[str, ...] = field(default=())  # (): whatever its kind can
    mapped: bool = True
    note: str = ""

    def may_hold(self, what: str) -> bool:
        able = HOLDS.get(self.kind, ())
        return what in (self.holds or able) and what in able and (self.mapped or what == "weights")

    @property
    def cycles_per_word(self) -> float:
        """What a 32-bit access costs: the order in which memories are filled."""
        return self.latency + 4 / self.bytes_per_cycle

    @property
    def end(self) -> int:
        return self.address + self.bytes


def main_memory(memories: Sequence[Memory], kind: str) -> Memory | None:
    """Where stack and variables are (ram), or the code (flash)."""
    wanted = ("stack", "variables") if kind == "ram" else ("code",)
    return next((m for m in memories if m.kind == kind and all(m.may_hold(w) for w in wanted)), None)


def fastest_first(memories: Sequence[Memory], what: str) -> list[Memory]:
    """Those that may hold it; of equally fast ones, in the order of the file."""
    return sorted((m for m in memories if m.may_hold(what)), key=lambda m: m.cycles_per_word)


def memory_of_table(table: dict[str, object], *, addresses: bool = True) -> Memory:
    """ValueError names the field that is at fault."""
    row = dict(table)
    if addresses and row.get("address") == NOWHERE:
        raise ValueError("a memory: `address` is not within 32 bits")
    if not addresses or row.get("mapped") is False:
        row.setdefault("address", NOWHERE)
    check_fields(row, list(fields(Memory)), "a memory: ")
    holds = row.pop("holds", [])
    if not isinstance(holds, list | tuple) or not all(isinstance(word, str) for word in holds):
        raise ValueError("a memory: `holds` is not a list of words")
    return Memory(holds=tuple(holds), **row)  # type: ignore[arg-type]  # checked above


_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "str": ("text", (str,)), "int": ("an integer", (int,)), "float": ("a number", (int, float)),
    "bool": ("true or false", (bool,)),
}  # fmt: skip


def check_fields(table: dict[str, object], known: list[Field[object]], whose: str) -> None:
    for wanted in known:
        if wanted.name not in table:
            if wanted.default is MISSING:
                raise ValueError(f"{whose}`{wanted.name}` is missing")
            continue
        if str(wanted.type) not in _KINDS:
            continue
        word, types = _KINDS[str(wanted.type)]
        value = table[wanted.name]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ValueError(f"{whose}`{wanted.name}` is not {word}")
    if unknown := sorted(set(table) - {wanted.name for wanted in known}):
        raise ValueError(f"{whose}unknown field {quoted(unknown[0])}")


def fault_of(memories: Sequence[Memory]) -> str:
    """Why there can be no such memories, or nothing."""
    for memory in memories:
        if memory.kind not in HOLDS or not _NAME.fullmatch(memory.name) or not is_clean(memory.name):
            return "a memory needs a `name` of letters, and flash or ram as `kind`"
        if fault := _fault(memory):
            return fault
    names = [m.name.lower() for m in memories]
    if twice := [n for i, n in enumerate(names) if n in names[:i]]:
        return f"two memories have the name `{twice[0]}`"
    ordered = sorted((m for m in memories if m.address != NOWHERE), key=lambda m: m.address)
    overlaps = [(a, b) for a, b in pairwise(ordered) if a.end > b.address]
    return f"`{overlaps[0][0].name}` and `{overlaps[0][1].name}` overlap" if overlaps else ""


def _fault(memory: Memory) -> str:
    name = memory.name
    if memory.bytes < 256 or (memory.address != NOWHERE and (memory.address < 0 or memory.end > 1 << 32)):
        return f"`{name}` is not within 32 bits of address, or has less than 256 bytes"
    if not 0 < memory.bytes_per_cycle <= 1024 or not 0 <= memory.latency <= 1_000_000:
        return f"`{name}` needs a `bytes_per_cycle` above 0 and a `latency` from 0 cycles"
    if wrong := [word for word in memory.holds if word not in HOLDS[memory.kind]]:
        able = ", ".join(f"`{w}`" for w in HOLDS[memory.kind])
        return f"`{name}` cannot hold {quoted(wrong[0])}: {memory.kind} holds {able}"
    if not memory.mapped and (memory.kind != "flash" or set(memory.holds) - {"weights"}):
        return f"`{name}` is not mapped, so it must be flash that holds only weights"
    if not all(32 <= ord(c) < 127 for c in memory.note) or len(memory.note) > 200:
        return f"the `note` of `{name}` must be a short line of ASCII"
    return ""


def read_memories(path: Path, *, addresses: bool) -> tuple[Memory, ...]:
    """A memory file. `addresses`: every memory needs one."""
    shown = quoted(str(path), 200)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        rows = table.pop("memory", None)
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            raise ValueError("it has no `[[memory]]`")
        if table:
            raise ValueError(f"unknown field {quoted(sorted(table)[0])} outside `[[memory]]`")
        memories = tuple(memory_of_table(row, addresses=addresses) for row in rows)
        fault = fault_of(memories) or _missing(memories)
    except OSError as error:
        hint = "`--memory` takes a file of `[[memory]]` tables; docs/guides/memory.md shows one"
        raise UserError("bad-memory", f"cannot read the memories {shown}: {error.strerror}", hint=hint) from None
    except (ValueError, RecursionError) as error:  # TOML and UTF-8 errors are ValueErrors
        raise UserError("bad-memory", f"{shown} does not describe memories: {error}", hint=_HINT) from None
    if fault:
        raise UserError("bad-memory", f"{shown} does not describe memories: {fault}", hint=_HINT)
    return memories


def _missing(memories: Sequence[Memory]) -> str:
    if main_memory(memories, "ram") is None:
        return "no ram holds both the stack and variables"
    if not any(m.may_hold("arena") for m in memories):
        return "no ram holds the arena"
    if main_memory(memories, "flash") is None:
        return "no flash holds code"
    return ""
