"""What every emulator offers, and what is said when firmware goes astray."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from intaglio.errors import OurFault
from intaglio.run.emulator.counting import Counts
from intaglio.run.emulator.image import Image
from intaglio.run.firmware import ROOM_BYTES
from intaglio.targets.accelerator import Device
from intaglio.targets.board import Board, Memory

Stops = Mapping[int, Callable[[], None]]  # address of a function: what to do when it is called
STACK_TOP = "__stack_top"
PAINT = 0xA5A5A5A5
PAINTED_BYTES = 1 << 18  # of the memory below the stack pointer, at most
BOOT_BYTES = 1 << 30  # of code, before `main` is reached


class Core(Protocol):
    """A core that has booted: it stands at `main`, and functions of the firmware can be called."""

    about: str  # "Unicorn 2.1.4"
    image: Image
    board: Board

    def read(self, address: int, size_bytes: int) -> bytes: ...
    def write(self, address: int, data: bytes) -> None: ...

    def call(self, function: str, limit_bytes: int, stops: Stops = {}) -> int:  # noqa: B006 (never written)
        """Returns what the function returns. More than `limit_bytes` of code are a runaway."""

    def argument(self, index: int) -> int:
        """Of the function that was just called."""

    def stack_pointer(self) -> int: ...
    def counts(self) -> Counts | None: ...

    def attach(self, device: Device) -> None:
        """Registers of an accelerator, in the address space from now on."""

    def stall(self, cycles: int) -> None:
        """The core waits for a device, in the access that it makes now."""

    def close(self) -> None: ...


def fault(core: Core, what: str, pc: int) -> OurFault:
    """`kws.elf` stopped on the emulated cortex-m4f: it writes to 0x00000100, which is read only; in `conv_3+0x1a`"""
    place = f"in `{core.image.where(pc)}` at {pc:#010x}"
    hint = "this is a bug in Intaglio, unless the C of the package was edited: please send the package"
    return OurFault("firmware-fault", f"`{core.image.path.name}` {what}", where=place, hint=hint)


def reach(board: Board, address: int) -> str:
    """Which memory an address is in: `flash (read only)`, `no memory of the board`."""
    for memory in board.memories:
        if memory.address <= address < memory.address + memory.bytes:
            return f"`{memory.name}`" + (", which is read only" if memory.kind == "flash" else "")
    return "where there is no memory"


class Stack:
    """Painted before firmware runs; what is not paint any more was used."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._top = core.stack_pointer()
        below = [end for end in core.image.ends if end <= self._top]
        base = memory_of(core.board, self._top - 1)
        floor = max([base.address if base else 0, *(e for e in below if base is None or e >= base.address)])
        self._floor = max(-(-floor // 4) * 4, self._top - PAINTED_BYTES)
        size = (self._top - self._floor) // 4
        core.write(self._floor, np.full(size, PAINT, "<u4").tobytes())

    def used_bytes(self) -> int:
        words = np.frombuffer(self._core.read(self._floor, (self._top - self._floor) // 4 * 4), "<u4")
        touched = np.flatnonzero(words != PAINT)
        return 0 if not len(touched) else self._top - (self._floor + 4 * int(touched[0]))


def roomy(board: Board, image: Image) -> Board:
    """Firmware with the hook, or too large for its board, is linked as if memory were no limit: then there is as much."""
    if memory_of(board, image.address(STACK_TOP) - 1):
        return board
    main = (board.main("flash"), board.main("ram"))
    return replace(board, memories=tuple(replace(m, bytes=ROOM_BYTES) if m in main else m for m in board.memories))


def memory_of(board: Board, address: int) -> Memory | None:
    return next((m for m in board.memories if m.address <= address < m.address + m.bytes), None)
