"""The numbers of the hardware: sizes, commands, and how long they take. `c/example_npu_model.c` is the same in C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

MAGIC = 0x5055504E
SCRATCHPAD_BYTES = 32768
BANK_BYTES = 1024
LANES = 16
WORDS = 16
PARAMETER_BYTES = 12 * LANES  # of 16 channels: biases, multipliers, shifts
LOAD, STORE, FILL, CONV, DEPTHWISE, ADD = range(1, 7)
CONSTANTS, FIRST, SECOND, OUTPUT = range(4)  # what an address of the memory counts from
REGISTERS = 0x5A000000

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Command:
    """One entry of the list: its words, which engine does it, what it touches of the scratchpad, and its cycles."""

    words: tuple[int, ...]
    reads: tuple[tuple[int, int], ...]  # where, bytes
    writes: tuple[tuple[int, int], ...]
    cycles: int

    @property
    def on_array(self) -> bool:
        return self.words[0] in (CONV, DEPTHWISE, ADD)

    @property
    def moved_bytes(self) -> int:
        """Over the bus."""
        return self.words[4] * self.words[6] * self.words[8] if self.words[0] in (LOAD, STORE) else 0


def packed(*numbers: int) -> int:
    """Up to four bytes in a word."""
    return sum((n & 255) << 8 * i for i, n in enumerate(numbers))


@dataclass(frozen=True, slots=True)
class Block:
    """Runs of bytes: how many, how far apart in memory (stride) and in the scratchpad (pitch)."""

    size: int
    rows: int = 1
    row_stride: int = 0
    row_pitch: int = 0
    planes: int = 1
    plane_stride: int = 0
    plane_pitch: int = 0


def transfer(kind: int, base: int, offset: int, pad: int, block: Block) -> Command:
    b = block
    span = ((pad, (b.planes - 1) * b.plane_pitch + (b.rows - 1) * b.row_pitch + b.size),)
    cycles = 24 + b.planes * b.rows * (1 + (b.size + 7) // 8)
    words = (kind, base, offset, pad, b.planes, b.plane_stride, b.rows, b.row_stride, b.size, b.plane_pitch, b.row_pitch)
    return Command(words, () if kind == LOAD else span, span if kind == LOAD else (), cycles)


def fill(pad: int, size: int, value: int) -> Command:
    return Command((FILL, pad, size, value & 255), (), ((pad, size),), 4 + -(-size // LANES))


def schedule(commands: Sequence[Command]) -> int:
    """Cycles of the whole list: each engine in order, and each bank of the scratchpad one thing at a time."""
    ready = [0] * (SCRATCHPAD_BYTES // BANK_BYTES)
    unused = list(ready)
    engine = [0, 0]
    end = 0
    for command in commands:
        start = engine[command.on_array]
        for at, size in command.reads:
            start = max([start, *ready[_banks(at, size)]])
        for at, size in command.writes:
            start = max([start, *ready[_banks(at, size)], *unused[_banks(at, size)]])
        stop = start + command.cycles
        engine[command.on_array] = stop
        for spans, when in ((command.reads, unused), (command.writes, ready)):
            for at, size in spans:
                for bank in range(*_banks(at, size).indices(len(ready))):
                    when[bank] = max(when[bank], stop)
        end = max(end, stop)
    return end


def _banks(at: int, size: int) -> slice:
    return slice(at // BANK_BYTES, -(-(at + size) // BANK_BYTES) if size else at // BANK_BYTES)


def encode(commands: Sequence[Command]) -> Words:
    """The list as the NPU reads it."""
    table = np.zeros((len(commands), WORDS), np.uint32)
    for row, command in zip(table, commands, strict=True):
        row[: len(command.words)] = [w & 0xFFFFFFFF for w in command.words]
    return np.concatenate([np.asarray([MAGIC, len(commands)], np.uint32), table.reshape(-1)])
