"""How often each basic block ran, and how often the branch at its end was taken; with `Watched` memories, how often they were
accessed and what was missing in the caches before them.

The counter is called at every block, millions of times: `counter.c` does it, compiled once into the cache folder. Where that
is not possible a Python function does the same, twenty times slower.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np

from intaglio.run.emulator.native import compiled
from intaglio.targets.bus import Cache

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
class Watched:
    """A memory that the core may have to wait for, and its caches by their place in the board's list."""

    name: str
    address: int
    bytes: int
    flash: bool = True
    writes: bool = False  # are counted as well
    data_cache: int | None = None
    code_cache: int | None = None
    moved: int = 0  # bytes by which the caches see it elsewhere


@dataclass(frozen=True, slots=True)
class Traffic:
    """Loads (and stores, where they matter) of each watched memory; fills of each cache."""

    accesses: tuple[int, ...] = ()
    bytes: tuple[int, ...] = ()
    data_misses: tuple[int, ...] = ()
    code_misses: tuple[int, ...] = ()

    def plus(self, other: Traffic, sign: int = 1) -> Traffic:
        """Of the same memories; nothing was counted yet where there are none."""

        def added(ours: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(a + sign * b for a, b in zip_longest(ours, theirs, fillvalue=0))

        return Traffic(
            added(self.accesses, other.accesses),
            added(self.bytes, other.bytes),
            added(self.data_misses, other.data_misses),
            added(self.code_misses, other.code_misses),
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """What ran between two moments. `traffic` only of memories that are watched."""

    blocks: Mapping[BasicBlock, Times] = field(default_factory=dict)
    traffic: Traffic = Traffic()
    stalls: int = 0  # cycles in which the core waited for a device

    def plus(self, other: Counts) -> Counts:
        both = dict(self.blocks)
        for block, more in other.blocks.items():
            have = both.get(block, Times())
            both[block] = Times(have.ran + more.ran, have.taken + more.taken)
        return Counts(both, self.traffic.plus(other.traffic), self.stalls + other.stalls)

    def since(self, earlier: Counts) -> Counts:
        changed = {}
        for block, now in self.blocks.items():
            then = earlier.blocks.get(block, Times())
            if now != then:
                changed[block] = Times(now.ran - then.ran, now.taken - then.taken)
        return Counts(changed, self.traffic.plus(earlier.traffic, -1), self.stalls - earlier.stalls)


class CacheState(ctypes.Structure):
    """`cache` of counter.c."""

    _fields_ = (
        ("line_shift", ctypes.c_uint32),
        ("fill_shift", ctypes.c_uint32),
        ("set_mask", ctypes.c_uint32),
        ("ways", ctypes.c_uint32),
        ("prefetch", ctypes.c_uint32),
        ("clock", ctypes.c_uint32),
        ("tags", ctypes.c_void_p),
        ("ages", ctypes.c_void_p),
        ("filled", ctypes.c_void_p),
        ("misses", ctypes.c_uint64 * 2),
    )


class RegionState(ctypes.Structure):
    """`region` of counter.c."""

    _fields_ = (
        ("first", ctypes.c_uint32),
        ("last", ctypes.c_uint32),
        ("moved", ctypes.c_uint32),
        ("data", ctypes.c_void_p),
        ("code", ctypes.c_void_p),
        ("accesses", ctypes.c_uint64),
        ("bytes", ctypes.c_uint64),
    )


class State(ctypes.Structure):
    """`counter` of counter.c."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("mask", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("bytes_left", ctypes.c_uint64),
        ("regions", ctypes.c_void_p),
        ("region_count", ctypes.c_uint64),
        ("last", ctypes.c_void_p),
        ("stop", ctypes.c_void_p),
        ("stopped", ctypes.c_uint64),
    )


class NativeBus:
    """Watched memories and their caches, in the memory of this process for counter.c."""

    def __init__(self, watched: Sequence[Watched], caches: Sequence[Cache]) -> None:
        self.watched, self.caches = watched, caches
        self._tables = [np.zeros(2 * cache.lines, "<u8") for cache in caches]  # tags, ages; then a word of bits for each line
        self._caches = (CacheState * max(1, len(caches)))()
        for state, cache, table in zip(self._caches, caches, self._tables, strict=False):
            ways, fill = cache.ways or cache.lines, cache.fill_bytes or cache.line_bytes
            state.line_shift, state.fill_shift = cache.line_bytes.bit_length() - 1, fill.bit_length() - 1
            state.set_mask, state.ways, state.prefetch = cache.lines // ways - 1, ways, int(cache.prefetch)
            state.filled = table.ctypes.data
            state.tags = table.ctypes.data + 8 * cache.lines
            state.ages = table.ctypes.data + 12 * cache.lines
        self.regions = (RegionState * max(1, len(watched)))()
        for region, memory in zip(self.regions, watched, strict=False):
            region.first, region.last = memory.address, memory.address + memory.bytes - 1
            region.moved = memory.moved & 0xFFFFFFFF
            region.data, region.code = self._at(memory.data_cache), self._at(memory.code_cache)
        self.count, self._cache_count = len(watched), len(caches)

    def _at(self, index: int | None) -> int | None:
        return None if index is None else ctypes.addressof(self._caches[index])

    def traffic(self) -> Traffic:
        regions, caches = self.regions[: self.count], self._caches[: self._cache_count]
        return Traffic(
            tuple(int(r.accesses) for r in regions),
            tuple(int(r.bytes) for r in regions),
            tuple(int(c.misses[0]) for c in caches),
            tuple(int(c.misses[1]) for c in caches),
        )


class NativeCounter:
    """`block` and `access` are C functions: the first gets `user`, the second its region. `stop` is the C function that ends the
    emulation."""

    def __init__(self, library: ctypes.CDLL, code_bytes: int, stop: int, bus: NativeBus) -> None:
        count = LEAST_ROWS
        while count < code_bytes:  # a block is at least two bytes: the table is never more than half full
            count *= 2
        self._rows = np.zeros(count, ROW)
        self._bus = bus
        self._state = State(rows=self._rows.ctypes.data, mask=count - 1, stop=stop)
        if any(region.code for region in bus.regions):
            self._state.regions, self._state.region_count = ctypes.addressof(bus.regions), bus.count
        self.block = ctypes.cast(library.count_block, ctypes.c_void_p)
        self.access = ctypes.cast(library.count_access, ctypes.c_void_p)
        self.user = ctypes.addressof(self._state)

    def region(self, index: int) -> int:
        return ctypes.addressof(self._bus.regions[index])

    def start(self, limit_bytes: int) -> None:
        """Code of at most `limit_bytes` may run from now on."""
        self.go_on(limit_bytes)
        self._state.last = None

    def go_on(self, limit_bytes: int) -> None:
        """The same, from where it stopped."""
        self._state.bytes_left = limit_bytes
        self._state.stopped = 0

    @property
    def stopped(self) -> int:
        return int(self._state.stopped)

    def counts(self) -> Counts:
        used = self._rows[self._rows["size"] != 0]
        return Counts({BasicBlock(a, s): Times(n, t) for a, s, n, t in used.tolist()}, self._bus.traffic())


class PythonCache:
    """As `look` in counter.c."""

    def __init__(self, cache: Cache) -> None:
        self._ways = cache.ways or cache.lines
        self._line_bytes, self.fill_bytes = cache.line_bytes, cache.fill_bytes or cache.line_bytes
        self._sets: list[dict[int, set[int]]] = [{} for _ in range(cache.lines // self._ways)]  # the oldest line is the first
        self.prefetch = cache.prefetch
        self.data_misses = self.code_misses = 0

    def missing(self, address: int) -> bool:
        line, fill = address // self._line_bytes, address // self.fill_bytes
        lines = self._sets[line % len(self._sets)]
        filled = lines.pop(line, set())
        if len(lines) == self._ways:
            del lines[next(iter(lines))]
        lines[line] = filled | {fill}
        return fill not in filled


class PythonCounter:
    """The same, as callbacks for Python's bindings."""

    def __init__(self, watched: Sequence[Watched] = (), caches: Sequence[Cache] = ()) -> None:
        self._ran: dict[tuple[int, int], int] = {}
        self._taken: dict[tuple[int, int], int] = {}
        self._last: tuple[int, int] | None = None
        self._left = 0
        self._watched, self._caches = watched, [PythonCache(cache) for cache in caches]
        self._accesses, self._bytes = [0] * len(watched), [0] * len(watched)
        self.stopped = 0

    def start(self, limit_bytes: int) -> None:
        self.go_on(limit_bytes)
        self._last = None

    def go_on(self, limit_bytes: int) -> None:
        self._left, self.stopped = limit_bytes, 0

    def on_block(self, engine: object, address: int, size: int, _: object) -> None:
        if self._left < size:
            self.stopped = OUT_OF_BYTES
            engine.emu_stop()  # type: ignore[attr-defined]
            return
        self._left -= size
        key = (address, size)
        self._ran[key] = self._ran.get(key, 0) + 1
        jumped = self._last is None or sum(self._last) != address
        if self._last is not None and jumped:
            self._taken[self._last] = self._taken.get(self._last, 0) + 1
        self._fetch(address, size, jumped)
        self._last = key

    def _fetch(self, address: int, size: int, jumped: bool) -> None:
        for memory in self._watched:
            if memory.code_cache is not None and memory.address <= address < memory.address + memory.bytes:
                cache = self._caches[memory.code_cache]
                for at in range(address // cache.fill_bytes * cache.fill_bytes, address + size, cache.fill_bytes):
                    first = jumped and at <= address
                    cache.code_misses += cache.missing(at + memory.moved) and (first or not cache.prefetch)

    def on_access(self, engine: object, kind: int, address: int, size: int, value: int, index: int) -> None:
        self._accesses[index] += 1
        self._bytes[index] += size
        if (number := self._watched[index].data_cache) is not None:
            cache, address = self._caches[number], address + self._watched[index].moved
            for at in dict.fromkeys(a // cache.fill_bytes * cache.fill_bytes for a in (address, address + size - 1)):
                cache.data_misses += cache.missing(at)

    def counts(self) -> Counts:
        fills = [(c.data_misses, c.code_misses) for c in self._caches]
        traffic = Traffic(tuple(self._accesses), tuple(self._bytes), tuple(d for d, _ in fills), tuple(c for _, c in fills))
        return Counts({BasicBlock(*key): Times(n, self._taken.get(key, 0)) for key, n in self._ran.items()}, traffic)


Counter = NativeCounter | PythonCounter


@functools.cache
def native_library() -> ctypes.CDLL | None:
    """`counter.c` as a library of this machine; None where there is none."""
    path = compiled("counter.c")
    try:
        return None if path is None else ctypes.CDLL(str(path))
    except OSError:
        return None
