"""What `--safety` adds to a package: checksums of the weights, guards around arenas, single steps, slots of weights.

    crc        NAME_check() compares the weights with CRC-32s in the code
    canary     guards before and behind every arena; a layer that overruns them is named by the error code
    step       NAME_step() runs one layer at a time
    golden     NAME_golden() compares every layer with what it has to give (`package/golden.py`)
    slots      weights can be replaced in the field (`package/slots.py`)
    steady     floats without an FPU take the same time for zeros (`firmware/libc/soft_float.c`)

Without the option nothing of this is written.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from intaglio.fitting.weights import Weights
from intaglio.ir.placement import Address, Kind
from intaglio.kernels.program import Constant, Program
from intaglio.package.calls import Stretch
from intaglio.package.weights import block_name, write_block

WORDS = ("crc", "canary", "step", "slots", "encrypted", "golden", "steady")
GUARD_BYTES = 64  # a multiple of every alignment of ours
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Block:
    """Weights in one memory: the C array, its bytes, and their CRC-32."""

    array: str
    bytes: int
    crc: int


@dataclass(frozen=True, slots=True)
class Safety:
    """What templates know of it."""

    crc: bool = False
    canary: bool = False
    step: bool = False
    slots: bool = False
    encrypted: bool = False
    golden: bool = False
    steady: bool = False
    golden_test: Mapping[str, object] = field(default_factory=dict)
    blocks: tuple[Block, ...] = ()
    steps: tuple[tuple[Stretch, ...], ...] = ()
    guard_bytes: int = GUARD_BYTES
    weights_alignment: int = 1


NONE = Safety()


def safety_of(words: Iterable[str], program: Program, weights: Weights, blocks: Iterable[Stretch]) -> Safety:
    given = frozenset(words)
    if not given:
        return NONE
    crcs = _checksums(program.constants, weights, program.graph.name) if "crc" in given or "slots" in given else ()
    steps = steps_of(blocks) if "step" in given else ()
    crc, canary, step, slots, encrypted, golden, steady = (word in given for word in WORDS)
    flags = Safety(crc, canary, step, slots, encrypted, golden, steady)
    return replace(flags, blocks=crcs, steps=steps, weights_alignment=weights.alignment)


class _Checksum:
    """A file of which the CRC-32 alone is kept."""

    def __init__(self) -> None:
        self.crc = 0

    def write(self, data: bytes | memoryview, /) -> int:
        self.crc = zlib.crc32(data, self.crc)
        return len(data)


def _checksums(constants: list[Constant], weights: Weights, name: str) -> tuple[Block, ...]:
    """Of what is mapped; the file of weights that are read has its own (`NAME_weights_check`)."""
    if weights.read:
        return ()
    found = []
    for memory, block in (("", weights), *weights.apart):
        inside = [c for c in constants if c.memory == memory]
        if inside:
            checksum = _Checksum()
            write_block(inside, block, checksum)
            found.append(Block(block_name(name, memory), block.size_bytes, checksum.crc))
    return tuple(found)


def steps_of(blocks: Iterable[Stretch]) -> tuple[tuple[Stretch, ...], ...]:
    """One layer each. A stripe, or a loop with its body, is one step; what has to come before a layer belongs to its step."""
    steps: list[tuple[Stretch, ...]] = []
    waiting: list[Stretch] = []
    depth = 0
    for block in blocks:
        depth += sum(line.rstrip().endswith("{") for line in block.before) - sum(line.strip() == "}" for line in block.before)
        if depth or not (block.calls or block.stripe):
            waiting.append(block)
            if depth == 0 and any(line.strip() == "}" for line in block.before):  # the end of a loop
                steps.append(tuple(waiting))
                waiting = []
            continue
        for part in _each(block):
            steps.append((*waiting, part))
            waiting = []
    if waiting and steps:
        steps[-1] = (*steps[-1], *waiting)
        waiting = []
    return (*steps, *([tuple(waiting)] if waiting else []))


def _each(block: Stretch) -> list[Stretch]:
    if len(block.calls) < 2:
        return [block]
    first, *rest = block.calls
    return [replace(block, calls=(first,)), *(replace(block, calls=(call,), before=()) for call in rest)]


def with_guards(program: Program) -> Program:
    """The same plan, with room for guards: everything moves up by one, and arenas end with another."""
    place = program.placement

    def moved(table: Mapping[T, Address]) -> dict[T, Address]:
        return {
            key: replace(at, offset=at.offset + GUARD_BYTES) if at.region.kind in (Kind.ARENA, Kind.STATE) else at
            for key, at in table.items()
        }

    guarded = replace(
        place,
        addresses=moved(place.addresses),
        scratch=moved(place.scratch),
        slots=moved(place.slots),
        arenas=tuple(replace(arena, bytes=arena.bytes + 2 * GUARD_BYTES) for arena in place.arenas),
        arena_bytes=place.arena_bytes + 2 * GUARD_BYTES * max(1, len(place.arenas)),
        lower_bound_bytes=place.lower_bound_bytes + 2 * GUARD_BYTES * max(1, len(place.arenas)),
    )
    return replace(program, placement=guarded)


def layout_digest(name: str, source_folder: Path) -> bytes:
    """Of the code that reads the weights, without comments: weights of the same layout work with the same code."""
    digest = hashlib.sha256()
    files = [source_folder / f"{name}.c", *source_folder.glob(f"{name}_kernels*"), source_folder / f"{name}_helpers.h"]
    for path in sorted([*files, source_folder / f"{name}_weights.h"]):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + _COMMENT.sub("", path.read_text(encoding="utf-8")).encode() + b"\0")
    return digest.digest()
