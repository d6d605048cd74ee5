"""How often each basic block ran, and how often the branch at its end was taken.

The counter is called at every block, millions of times: `counter.c` does it, compiled once into the cache folder. Where that
is not possible a Python function does the same, twenty times slower.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from intaglio.run.emulator.native import compiled

ROW = np.dtype([("address", "<u4"), ("size", "<u4"), ("count", "<u8"), ("taken", "<u8")])
LEAST_ROWS = 1 << 14
OUT_OF_BYTES, OUT_OF_ROWS = 1, 2


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Instructions from `address` on, always run from first to last."""

    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Times:
    ran: int = 0
    taken: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """What ran between two moments. `flash_reads` only where they were asked for."""

    blocks: Mapping[BasicBlock, Times] = field(default_factory=dict)
    flash_reads: int = 0
    stalls: int = 0  # cycles in which the core waited for a device

    def plus(self, other: Counts) -> Counts:
        both = dict(self.blocks)
        for block, more in other.blocks.items():
            have = both.get(block, Times())
            both[block] = Times(have.ran + more.ran, have.taken + more.taken)
        return Counts(both, self.flash_reads + other.flash_reads, self.stalls + other.stalls)

    def since(self, earlier: Counts) -> Counts:
        changed = {}
        for block, now in self.blocks.items():
            then = earlier.blocks.get(block, Times())
            if now != then:
                changed[block] = Times(now.ran - then.ran, now.taken - then.taken)
        return Counts(changed, self.flash_reads - earlier.flash_reads, self.stalls - earlier.stalls)


class State(ctypes.Structure):
    """`counter` of counter.c."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("mask", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("bytes_left", ctypes.c_uint64),
        ("reads", ctypes.c_uint64),
        ("last", ctypes.c_void_p),
        ("stop", ctypes.c_void_p),
        ("stopped", ctypes.c_uint64),
    )


class NativeCounter:
    """`block` and `read` are C functions that get `user`; `stop` is the C function that ends the emulation."""

    def __init__(self, library: ctypes.CDLL, code_bytes: int, stop: int) -> None:
        count = LEAST_ROWS
        while count < code_bytes:  # a block is at least two bytes: the table is never more than half full
            count *= 2
        self._rows = np.zeros(count, ROW)
        self._state = State(rows=self._rows.ctypes.data, mask=count - 1, stop=stop)
        self.block = ctypes.cast(library.count_block, ctypes.c_void_p)
        self.read = ctypes.cast(library.count_read, ctypes.c_void_p)
        self.user = ctypes.addressof(self._state)

    def start(self, limit_bytes: int) -> None:
        """Code of at most `limit_bytes` may run from now on."""
        self._state.bytes_left = limit_bytes
        self._state.stopped = 0
        self._state.last = None

    @property
    def stopped(self) -> int:
        return int(self._state.stopped)

    def counts(self) -> Counts:
        used = self._rows[self._rows["size"] != 0]
        return Counts({BasicBlock(a, s): Times(n, t) for a, s, n, t in used.tolist()}, int(self._state.reads))


class PythonCounter:
    """The same, as callbacks for Python's bindings."""

    def __init__(self) -> None:
        self._ran: dict[tuple[int, int], int] = {}
        self._taken: dict[tuple[int, int], int] = {}
        self._last: tuple[int, int] | None = None
        self._left = 0
        self._reads = 0
        self.stopped = 0

    def start(self, limit_bytes: int) -> None:
        self._left, self._last, self.stopped = limit_bytes, None, 0

    def on_block(self, engine: object, address: int, size: int, _: object) -> None:
        key = (address, size)
        self._ran[key] = self._ran.get(key, 0) + 1
        if self._last is not None and sum(self._last) != address:
            self._taken[self._last] = self._taken.get(self._last, 0) + 1
        self._last = key
        self._left -= size
        if self._left < 0:
            self.stopped = OUT_OF_BYTES
            engine.emu_stop()  # type: ignore[attr-defined]

    def on_read(self, engine: object, kind: int, address: int, size: int, value: int, _: object) -> None:
        self._reads += 1

    def counts(self) -> Counts:
        return Counts({BasicBlock(*key): Times(n, self._taken.get(key, 0)) for key, n in self._ran.items()}, self._reads)


@cache
def native_library() -> ctypes.CDLL | None:
    """`counter.c` as a library of this machine; None where there is none."""
    path = compiled("counter.c")
    try:
        return None if path is None else ctypes.CDLL(str(path))
    except OSError:
        return None
