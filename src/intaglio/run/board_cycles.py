"""Cycles of a board from those of its core: a factor, and what the core waits for memories, by cause.

    core                 4,758,579    cycles of the core with zero wait states, times the factor of the board
    art_data data          438,268    fills of the cache of data, simulated on the addresses of the loads
    cycles               5,196,847    4,988,973 to 5,404,721

A board that describes its caches or has a factor (`targets/bus.py`) is estimated so. Others keep zero wait states; their interval
says what the wait states may add. `docs/reference/cycle-estimate.md` has the formulas and the measurements behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from intaglio.run.emulator.counting import Counts, Traffic, Watched
from intaglio.targets.board import Board
from intaglio.targets.bus import Cache
from intaglio.targets.memories import Memory

ZERO_WAITS = "zero wait states"
# Without a measurement. The 28 results of the page needed 0.92 to 1.13 times the cycles of the core, before waits for memories.
LEAST_FACTOR, MOST_FACTOR = 0.9, 1.15
MOST_STALLS = 1.5  # times those of a cache whose costs of a miss are those of the manual


@dataclass(frozen=True, slots=True)
class Stall:
    """Cycles that the core waits. `count`: how often, of what `cause` names."""

    cause: str
    cycles: int
    count: int


@dataclass(frozen=True, slots=True)
class Sum:
    """`cycles_low` and `cycles_high` are None where nothing is said of a board."""

    instructions: int
    cycles: int
    cycles_low: int | None = None
    cycles_high: int | None = None
    stalls: tuple[Stall, ...] = ()
    vectors: int = 0  # instructions of 128 bits


@dataclass(frozen=True, slots=True)
class BoardCycles:
    """`board`: the one that is estimated, or None. Without a description of it, each taken branch and each load from flash waits
    `wait_states`; code in a row is fetched ahead."""

    wait_states: int = 0
    board: Board | None = None
    watched: tuple[Watched, ...] = ()

    @property
    def described(self) -> bool:
        return self.board is not None and is_described(self.board)

    @property
    def words(self) -> str:
        """Which waits for memories are in the cycles."""
        if self.board is not None and self.described:
            return f"with the memories of {self.board.name}"
        return f"{self.wait_states} wait states of flash" if self.wait_states else ZERO_WAITS

    @property
    def basis(self) -> str:
        """What the interval rests on, in one line; nothing where there is none."""
        if self.board is None:
            return ""
        timing = self.board.timing
        if timing.error_percent:
            return f"+-{timing.error_percent:g} %: {timing.source}"
        if self.described:
            return "caches as documented, not compared with a measurement: a wide interval"
        return f"{self.board.wait_states} wait states and nothing else is known: a wide interval"

    def waits_for_code(self, address: int) -> bool:
        """Is the code at this address in flash? Where nothing is known of memories, all of it is."""
        flash = [memory for memory in self.watched if memory.flash]
        return not flash or any(memory.address <= address < memory.address + memory.bytes for memory in flash)

    def sum(self, instructions: int, core: int, taken: int, counts: Counts) -> Sum:
        """`core`: cycles with zero wait states; `taken`: branches."""
        if self.board is None:
            stalls = self._plain(self.wait_states, taken, counts)
            return Sum(instructions, core + _total(stalls) + counts.stalls, stalls=_with_devices(stalls, counts))
        if not self.described:
            stalls = self._plain(self.wait_states, taken, counts)
            most = self._plain(max(self.wait_states, self.board.wait_states), taken, counts)
        else:
            stalls = self._caches(self.board, counts) + self._memories(self.board, taken, counts)
            most = tuple(Stall(s.cause, round(s.cycles * MOST_STALLS), s.count) for s in stalls)
        factor, error = self.board.timing.factor, self.board.timing.error_percent / 100
        cycles = round(core * factor) + _total(stalls) + counts.stalls
        low, high = round(cycles * (1 - error)), round(cycles * (1 + error))
        if not error or not self.described:
            low, high = round(core * LEAST_FACTOR) + counts.stalls, round(core * MOST_FACTOR) + _total(most) + counts.stalls
        return Sum(instructions, cycles, min(low, cycles), max(high, cycles), _with_devices(stalls, counts))

    def _plain(self, wait_states: int, taken: int, counts: Counts) -> tuple[Stall, ...]:
        loads = sum(n for memory, n in zip(self.watched, counts.traffic.accesses, strict=False) if memory.flash)
        if not wait_states:
            return ()
        return (Stall("branches", taken * wait_states, taken), Stall("loads from flash", loads * wait_states, loads))

    def _caches(self, board: Board, counts: Counts) -> tuple[Stall, ...]:
        found = []
        for number, cache in enumerate(board.caches):
            each = board.wait_states if cache.miss_cycles < 0 else cache.miss_cycles
            for what, misses in (("data", counts.traffic.data_misses), ("code", counts.traffic.code_misses)):
                if cache.holds(what) and number < len(misses):
                    found.append(Stall(f"{cache.name} {what}", round(misses[number] * each), misses[number]))
        return tuple(found)

    def _memories(self, board: Board, taken: int, counts: Counts) -> tuple[Stall, ...]:
        """What is not behind a cache."""
        found = []
        code = board.main("flash")
        for memory, accesses, size in zip(self.watched, counts.traffic.accesses, counts.traffic.bytes, strict=False):
            own = next((m for m in board.memories if m.name == memory.name), code)
            if memory.data_cache is None:
                found.append(Stall(memory.name, round(_waits(board, own, accesses, size)), accesses))
            if memory.code_cache is None and own == code and board.wait_states:
                found.append(Stall("branches", taken * board.wait_states, taken))
        return tuple(found)


def _waits(board: Board, memory: Memory, accesses: int, size_bytes: int) -> float:
    """`latency` and `bytes_per_cycle` of a memory that has them; otherwise the wait states of the board's flash."""
    own = accesses * memory.latency + max(0.0, size_bytes / memory.bytes_per_cycle - accesses)
    return accesses * board.wait_states if memory.kind == "flash" and not memory.latency else own


def _total(stalls: tuple[Stall, ...]) -> int:
    return sum(stall.cycles for stall in stalls)


def _with_devices(stalls: tuple[Stall, ...], counts: Counts) -> tuple[Stall, ...]:
    return (*stalls, Stall("devices", counts.stalls, 1)) if counts.stalls else stalls


NO_WAITS = BoardCycles()


def is_described(board: Board) -> bool:
    return bool(board.caches or board.timing.source)


def cycles_of(board: Board, wait_states: int | None) -> BoardCycles:
    """`wait_states` None: the board as its file describes it, and zero wait states where it does not. A number: that many, whatever
    the board has."""
    if not board.name or wait_states is not None:
        return BoardCycles(wait_states or 0, watched=watched_memories(board) if wait_states else ())
    if not is_described(board):
        return BoardCycles(0, board, watched_memories(board) if board.wait_states else ())
    return BoardCycles(board.wait_states, board, watched_memories(board))


@dataclass(frozen=True, slots=True)
class Survey:
    """Caches of several boards, for firmware that was built for their core alone: it has one flash, which each of them sees where
    its own is. `where`: the memory of a board, and its caches, by name of the board."""

    watched: tuple[Watched, ...]
    caches: tuple[Cache, ...]
    where: Mapping[str, tuple[int, tuple[int, ...]]]

    def counts(self, board: Board, counts: Counts) -> Counts:
        """As if the board alone had been emulated."""
        memory, caches = self.where[board.name]
        seen = counts.traffic
        own = Traffic(
            (seen.accesses[memory],),
            (seen.bytes[memory],),
            tuple(seen.data_misses[n] for n in caches),
            tuple(seen.code_misses[n] for n in caches),
        )
        return replace(counts, traffic=own)


def survey_of(flash: Memory, boards: Sequence[Board]) -> Survey:
    """`flash`: of the firmware. Boards that differ in nothing are simulated once."""
    watched: list[Watched] = []
    caches: list[Cache] = []
    where: dict[str, tuple[int, tuple[int, ...]]] = {}
    known: dict[tuple[int, tuple[Cache, ...]], tuple[int, tuple[int, ...]]] = {}
    for board in boards:
        own = board.main("flash")
        moved = own.address - flash.address
        alike = tuple(replace(cache, name="", miss_cycles=0, source="") for cache in board.caches)
        key = (moved, alike)
        if key not in known:
            first = len(caches)
            caches += board.caches
            serving = [(number, cache) for number, cache in enumerate(board.caches, first) if cache.serves(own)]
            data, code = (next((n for n, c in serving if c.holds(what)), None) for what in ("data", "code"))
            known[key] = len(watched), tuple(range(first, len(caches)))
            watched.append(Watched(flash.name, flash.address, flash.bytes, data_cache=data, code_cache=code, moved=moved))
        where[board.name] = known[key]
    return Survey(tuple(watched), tuple(caches), where)


def watched_memories(board: Board) -> tuple[Watched, ...]:
    """All flash, memories that are slow, and those behind a cache."""
    found = []
    for memory in board.memories:
        serving = [(number, cache) for number, cache in enumerate(board.caches) if cache.serves(memory)]
        slow = memory.kind == "ram" and (memory.latency > 0 or memory.bytes_per_cycle < 4)
        if memory.mapped and (memory.kind == "flash" or slow or serving):
            data, code = (next((n for n, c in serving if c.holds(what)), None) for what in ("data", "code"))
            flash, writes = memory.kind == "flash", slow and data is None
            found.append(Watched(memory.name, memory.address, memory.bytes, flash, writes, data, code))
    return tuple(found)
