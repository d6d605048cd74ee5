"""Firmware for two cores: two engines on the same memory, a few hundred instructions of one, then of the other.

Core 1 is started as on an RP2040: words in the FIFO between the cores. A core that waits for an event lets the other one go on.

How long a layer takes is the longer of its parts, without the time in which a core waits: `counts` tells what one core ran that did
the longer part of every layer. While both compute, no core may touch a byte that the other writes: every access is compared, on
cores without conditional instructions. On others, Unicorn loses its way when a hook is called in the middle of such a block; there
the check of the memory plan and equal results have to do.
"""

from __future__ import annotations

import ctypes
import random
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from intaglio.errors import OurFault
from intaglio.run.emulator.core import fault
from intaglio.run.emulator.counting import OUT_OF_BYTES, BasicBlock, Counter, Counts, NativeBus, Times, native_library
from intaglio.run.emulator.image import Image
from intaglio.run.emulator.unicorn_core import PAGE, Span, UnicornCore, _engine, handles_of, native_hook
from intaglio.targets.board import Board

WFE = b"\x20\xbf"
TURN = (600, 6000)  # bytes of code that a core runs at a time, at least and at most
FIFO_STATUS, FIFO_WRITE, FIFO_READ = 0x50, 0x54, 0x58
MOST_TURNS = 100  # until the second core, once started, waits for work
HAND_OVER_BYTES = 20  # of NAME_cores


class TwoCores(UnicornCore):
    def __init__(
        self, image: Image, board: Board, core: str, *, watch: bool = False, native: bool = True, boards: Sequence[Board] = ()
    ) -> None:
        self._core = core
        self._memory: list[ctypes.Array[ctypes.c_char]] = []  # both engines map it: it outlives them
        self._spans: list[tuple[Span, int]] = []
        self._second: _Second | None = None
        super().__init__(image, board, core, watch=watch, native=native, boards=boards)
        for _ in range(MOST_TURNS):  # until it waits for work
            if self._second is None or not self._second.running or self._second.waits:
                break
            self._let_second(TURN[1])

    @property
    def has_no_conditions(self) -> bool:
        return self._core == "cortex-m0+"

    def _map_span(self, span: Span) -> None:
        size = span.end - span.first
        memory = ctypes.create_string_buffer(size + PAGE)
        at = -(-ctypes.addressof(memory) // PAGE) * PAGE
        self._memory.append(memory)
        self._spans.append((span, at))
        self._engine.mem_map_ptr(span.first, size, span.allowed, at)

    def _prepare(self, bus: NativeBus, native: bool) -> None:
        engine = _engine(self._unicorn, self.image, self._core)
        for span, at in self._spans:
            engine.mem_map_ptr(span.first, span.end - span.first, span.allowed, at)
        self._hook(engine)
        self._second = _Second(engine, self._count(engine, bus, native))
        self._rounds = _Rounds(self, self._engine, engine, native)
        if self.board.sio:
            fifo = _Fifo(self._second, self._registers)
            self._engine.mmio_map(self.board.sio, PAGE, fifo.load, None, fifo.store, None)

    # Running ----------------------------------------------------------------------------------------------------------

    def _run(self, start: int, end: int) -> None:
        """By turns, which are never the same length: whatever order the cores get to memory in, results are the same."""
        second, first_turn, left = self._second, random.Random(18), self._limit_bytes
        assert second is not None
        at, thumb = start & ~1, start & 1
        while left > 0:
            turn = first_turn.randint(*TURN)
            left -= turn
            self._turn(self._engine, self._counter, at | thumb, end, turn)
            at = self._pc()
            if self._counter.stopped not in (0, OUT_OF_BYTES) or self._ended_here(at, end):
                return
            self._let_second(first_turn.randint(*TURN))
            if self._trouble is not None or (race := self._rounds.race()) is not None:
                self._trouble = self._trouble or race
                return
        self._counter.go_on(0)
        self._engine.emu_start(at | thumb, end)  # which says that it is out of bytes

    def _let_second(self, turn: int) -> None:
        second = self._second
        if second is not None and second.running:
            second.waits = self._turn(second.engine, second.counter, second.at | 1, 0, turn)
            second.at = int(second.engine.reg_read(self._registers["pc"]))

    def _ended_here(self, at: int, end: int) -> bool:
        return at == end or self._trouble is not None or self._ended is not None

    def _turn(self, engine: Any, counter: Counter, start: int, end: int, turn: int) -> bool:
        """Does the core wait for an event?"""
        counter.go_on(turn)
        try:
            engine.emu_start(start, end)
        except self._unicorn.UcError as error:
            pc = int(engine.reg_read(self._registers["pc"])) & ~1
            if error.errno != self._unicorn.UC_ERR_INSN_INVALID or self.read(pc - 2, 2) != WFE:  # Unicorn is past it
                self._trouble = self._trouble or fault(self, f"stopped: {error}", pc)
                return False
            return True
        return False

    def _go(self, address: int, limit_bytes: int, leave: int | None = None) -> None:
        self._limit_bytes = limit_bytes
        super()._go(address, limit_bytes, leave)

    # Counting ---------------------------------------------------------------------------------------------------------

    def raw_counts(self) -> tuple[Counts, Counts]:
        """Of both cores; accesses to memories are those of both, and told with the first."""
        assert self._second is not None
        first, second = self._counter.counts(), self._second.counter.counts()
        return replace(first, stalls=self._stalls), Counts(second.blocks)

    def counts(self) -> Counts:
        return self._rounds.longest()

    def both(self) -> Counts:
        """What one core would run that computed both parts of every layer."""
        return self._rounds.together()

    def close(self) -> None:
        self._second = None
        super().close()


class _Second:
    """The other core: it sleeps until it is started."""

    def __init__(self, engine: Any, counter: Counter) -> None:
        self.engine, self.counter = engine, counter
        self.running, self.waits, self.at = False, False, 0

    def start(self, registers: dict[str, int], stack: int, entry: int) -> None:
        self.engine.reg_write(registers["sp"], stack)
        self.counter.start(0)
        self.running, self.at = True, entry & ~1


class _Fifo:
    """The registers by which core 0 talks to the boot ROM of core 1 (RP2040 data sheet, "Launching code on processor core 1")."""

    def __init__(self, second: _Second, registers: dict[str, int]) -> None:
        self._second, self._registers = second, registers
        self._said: list[int] = []
        self._answers: deque[int] = deque()

    def load(self, _: object, offset: int, size: int, __: object) -> int:
        if offset == FIFO_STATUS:
            return 2 | bool(self._answers)
        return self._answers.popleft() if offset == FIFO_READ and self._answers else 0

    def store(self, _: object, offset: int, size: int, value: int, __: object) -> None:
        if offset != FIFO_WRITE or self._second.running:
            return
        self._answers.append(value)
        expected = (0, 0, 1)[len(self._said) : len(self._said) + 1]
        self._said = [*self._said, value] if not expected or expected[0] == value else [0] if value == 0 else []
        if len(self._said) == 6:
            self._second.start(self._registers, self._said[4], self._said[5])


class _RoundsState(ctypes.Structure):
    """`rounds` of counter.c."""

    _fields_ = (
        ("round", ctypes.c_uint32),
        ("counts", ctypes.c_uint32 * 2),
        ("ignored", ctypes.c_uint32),
        ("ignored_last", ctypes.c_uint32),
        ("at", ctypes.c_uint32),
        ("core", ctypes.c_uint32),
        ("wrote", ctypes.c_uint32),
        ("stop", ctypes.c_void_p),
    )


class _MemoryState(ctypes.Structure):
    """`shared_memory` of counter.c."""

    _fields_ = (
        ("first", ctypes.c_uint32),
        ("last", ctypes.c_uint32),
        ("written", ctypes.c_void_p * 2),
        ("read", ctypes.c_void_p * 2),
    )


class _WatcherState(ctypes.Structure):
    """`watcher` of counter.c."""

    _fields_ = (("all", ctypes.c_void_p), ("memory", ctypes.c_void_p), ("core", ctypes.c_uint32))


class _Rounds:
    """A layer that both compute is a round: from the call of NAME_parts until core 0 waits for core 1."""

    def __init__(self, core: TwoCores, first: Any, second: Any, native: bool) -> None:
        self._core = core
        names = core.image.symbols
        self._parts, waits, tasks = (_symbol(names, word) for word in ("parts", "wait_for_core1", "wait_for_task"))
        self._waiting = [core.image.function(at) for at in (waits, tasks) if at is not None]
        self._state = _RoundsState(round=1)
        if (shared := _symbol(names, "cores")) is not None:
            self._state.ignored, self._state.ignored_last = shared, shared + HAND_OVER_BYTES - 1
        self._kept: list[object] = []
        self._before: tuple[Counts, Counts] | None = None
        self._own = Counts()  # what core 0 ran in this round
        self._more, self._beside = Counts(), Counts()  # what its parts are shorter by; all that core 1 ran
        code = core._unicorn.UC_HOOK_CODE
        for at, act in ((self._parts, self._begin), (waits, self._end)):
            if at is not None:
                first.hook_add(code, lambda *_, act=act: act(), None, at, at)
        if core.has_no_conditions and native and (library := native_library()) is not None:
            self._compare(library, (first, second))

    # Races ------------------------------------------------------------------------------------------------------------

    def _compare(self, library: ctypes.CDLL, engines: tuple[Any, Any]) -> None:
        """Every access of both engines to RAM, but for their stacks, once they are in a round."""
        u, end = self._core._unicorn, self._core.image.symbols.get("__bss_end", 0)
        function = ctypes.cast(library.check_access, ctypes.c_void_p)
        for memory in (m for m in self._core.board.memories if m.kind != "flash"):
            tables = np.zeros((4, memory.bytes), "<u4")
            state = _MemoryState(memory.address, memory.address + memory.bytes - 1)
            for core in range(2):
                state.written[core], state.read[core] = (tables[2 * core + n].ctypes.data for n in range(2))
            self._kept += [tables, state]
            for core, engine in enumerate(engines):
                handles = handles_of(engine)
                if handles is None:
                    return
                self._state.stop = ctypes.cast(handles[0].uc_emu_stop, ctypes.c_void_p).value or 0
                watcher = _WatcherState(ctypes.addressof(self._state), ctypes.addressof(state), core)
                self._kept.append(watcher)
                last = memory.address + memory.bytes - 1
                last = end - 1 if memory.address < end <= last else last
                kind = u.UC_HOOK_MEM_READ | u.UC_HOOK_MEM_WRITE
                native_hook(handles, kind, function, ctypes.addressof(watcher), memory.address, last)

    def race(self) -> OurFault | None:
        state = self._state
        if not state.core:
            return None
        verb, mine = "writes" if state.wrote else "reads", state.core - 1
        what = f"core {mine} {verb} {state.at:#010x}, which core {1 - mine} uses in the same layer"
        hint = "this is a bug in Intaglio, unless the C of the package was edited: please send the package"
        return OurFault("race", f"`{self._core.image.path.name}`: {what}", hint=hint)

    # Counting ---------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self._finish()
        self._state.round += 1
        self._state.counts[0] = self._state.counts[1] = 1
        self._before = self._core.raw_counts()

    def _end(self) -> None:
        self._state.counts[0] = 0
        if self._before is not None:
            self._own = self._core.raw_counts()[0].since(self._before[0])

    def _finish(self) -> None:
        """The round before is over: which part was longer?"""
        if self._before is None or self._state.counts[0]:
            return
        beside = self._awake(self._core.raw_counts()[1].since(self._before[1]))
        self._beside = self._beside.plus(beside)
        if _bytes(beside) > _bytes(self._own):
            self._more = self._more.plus(beside).plus(_less(self._own))
        self._before = None

    def longest(self) -> Counts:
        self._finish()
        return self._awake(self._core.raw_counts()[0]).plus(self._more)

    def together(self) -> Counts:
        self._finish()
        return self._awake(self._core.raw_counts()[0]).plus(self._beside)

    def _awake(self, counts: Counts) -> Counts:
        """Without the loops in which a core waits."""
        spans = [range(f.address, f.address + f.size_bytes) for f in self._waiting if f is not None]
        return replace(counts, blocks={b: t for b, t in counts.blocks.items() if not any(b.address in s for s in spans)})


def _bytes(counts: Counts) -> int:
    return sum(block.size_bytes * times.ran for block, times in counts.blocks.items())


def _less(counts: Counts) -> Counts:
    blocks: dict[BasicBlock, Times] = {b: Times(-t.ran, -t.taken) for b, t in counts.blocks.items()}
    return Counts(blocks)


def _symbol(names: dict[str, int], word: str) -> int | None:
    """A function or variable of the network, whatever its name; compilers may add a suffix."""
    return next((at for name, at in names.items() if re.fullmatch(rf"\w+_{word}(\.\w+)*", name)), None)
