"""Weights in RAM (`--weights ram`): copied from flash once, at start-up, where the RAM that is left over has room for them.

    conv1   2,304 bytes, read 256 times    ~295,000 cycles less    128 per byte: first
    dense   8,192 bytes, read once           ~4,100 cycles less    0.5 per byte: last

What a layer waits for its weights is estimated from the caches and wait states of the board: weights that a cache holds are fetched
once per inference, others as often as the kernel reads them, which is once for every four pixels. The layers that gain most per
byte come first; a layer's constants go together. Nothing else of the plan changes.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.kernels.program import Program
from intaglio.memory.lifetimes import align
from intaglio.memory.weights_read import constants_of
from intaglio.targets.board import Board

IN_RAM = "ram"  # the memory of such a constant
PIXELS = 4  # that share a read of the weights
WORD_BYTES = 4
MOST_TOLD = 3


@dataclass(frozen=True, slots=True)
class Moved:
    """A layer whose weights are in RAM, and the waits for flash that it no longer has, estimated."""

    layer: str
    bytes: int
    cycles: int


def to_ram(program: Program, board: Board | None, free_bytes: int) -> list[Moved]:
    """Set the memory of the constants that fit, best first."""
    sizes = {c.name: align(max(1, c.data.nbytes), WORD_BYTES) for c in program.constants}
    found, chosen = [], set()
    for index, layer in enumerate(program.layers):
        names = [name for name in constants_of(program, index) if name in sizes]
        size = sum(sizes[name] for name in names)
        if size:
            found.append((waits(board, size, reads_of(layer.macs, size)) / size, -index, size, layer.name, names))
    moved = []
    for per_byte, _, size, name, names in sorted(found, reverse=True):
        size = sum(sizes[n] for n in names if n not in chosen)  # what layers share is there once
        if size <= free_bytes and per_byte > 0:
            chosen |= set(names)
            free_bytes -= size
            moved.append(Moved(name, size, round(per_byte * size)))
    for constant in program.constants:
        if constant.name in chosen:
            constant.memory = IN_RAM
    return moved


def moved_line(moved: Moved) -> str:
    """For `--explain`."""
    return f"`{moved.layer}`: {moved.bytes:,} bytes of weights in RAM, about {moved.cycles:,} cycles of waits for flash less"


def moved_text(moved: list[Moved], program: Program) -> str:
    if not moved:
        return "no weights are in RAM: flash has no waits, or RAM is short"
    size, cycles = sum(m.bytes for m in moved), sum(m.cycles for m in moved)
    whose = f"{len(moved)} of {sum(bool(constants_of(program, n)) for n in range(len(program.layers)))} layers"
    most = ", ".join(f"`{m.layer}` {m.cycles:,}" for m in sorted(moved, key=lambda m: -m.cycles)[:MOST_TOLD])
    return f"the weights of {whose} are in RAM, {size:,} bytes: about {cycles:,} cycles of waits less ({most})"


def reads_of(macs: int, size_bytes: int) -> float:
    return max(1.0, macs / size_bytes / PIXELS)


def waits(board: Board | None, size_bytes: int, reads: float) -> float:
    """Cycles for reading so many bytes of the main flash so often."""
    if board is None:
        return 0.0
    flash = board.main("flash")
    cache = next((c for c in board.caches if c.kind != "code" and c.serves(flash)), None)
    if cache is None:
        return size_bytes / WORD_BYTES * reads * board.wait_states
    fill = cache.fill_bytes or cache.line_bytes
    times = 1.0 if size_bytes <= cache.lines * cache.line_bytes else reads
    return size_bytes / fill * times * (board.wait_states if cache.miss_cycles < 0 else cache.miss_cycles)
