"""Firmware on Unicorn, which is QEMU's translator as a library: exact, and counted per basic block.

Memories of the board are mapped as they are: flash is read only, and whatever lies outside of them is a fault. Peripherals
there are none but those that are attached; the private bus of a Cortex-M (FPU enable, system control) is plain memory.
"""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

from intaglio.errors import IntaglioError, OurFault, ToolError, install_hint
from intaglio.run.board_cycles import survey_of, watched_memories
from intaglio.run.emulator.bit_manipulation import result_of
from intaglio.run.emulator.core import BOOT_BYTES, Stops, fault, memory_of, reach, roomy
from intaglio.run.emulator.counting import (
    OUT_OF_BYTES,
    Counter,
    Counts,
    NativeBus,
    NativeCounter,
    PythonCounter,
    native_library,
)
from intaglio.run.emulator.image import Image
from intaglio.run.emulator.machines import runs_on_qemu
from intaglio.run.emulator.traced import Traced
from intaglio.run.emulator.tracer import Tracer
from intaglio.targets.accelerator import Device
from intaglio.targets.board import Board
from intaglio.targets.memories import NOWHERE

PAGE = 4096
PRIVATE_BUS = (0xE0000000, 0x100000)
RISCV_ILLEGAL = 2
BREAKPOINT = 7
SYS_WRITEC, SYS_READC, SYS_EXIT, APPLICATION_EXIT = 0x03, 0x07, 0x18, 0x20026
NOWHERE_TO_RETURN = 0xFFFFFFFE
CONSOLE_BYTES = 1 << 62  # of code: firmware that talks to a person may run as long as it likes
UNDEFINED = "runs an instruction that this core does not have"
ARM_MODELS = {  # Unicorn has no M0+: for programs it is an M0
    "cortex-m0+": "M0", "cortex-m3": "M3", "cortex-m4": "M4", "cortex-m7": "M7", "cortex-m33": "M33",
}  # fmt: skip


class Host(Protocol):
    """Who is at the other end of semihosting."""

    def read(self) -> bytes:
        """The next byte; none at the end."""

    def write(self, data: bytes) -> None: ...


class UnicornCore:
    def __init__(
        self, image: Image, board: Board, core: str, *, watch: bool = False, native: bool = True, boards: Sequence[Board] = ()
    ) -> None:
        """`watch`: count accesses to memories that the core may have to wait for, and simulate their caches; those of `boards`,
        if there are any."""
        unicorn = need_unicorn(or_qemu=runs_on_qemu(board, core))
        self.about = f"Unicorn {unicorn.__version__}"
        self.image, self.board = image, roomy(board, image)
        self._unicorn = unicorn
        self._trouble: IntaglioError | None = None
        self._stalls = 0
        self._host: Host | None = None
        self._ended: int | None = None
        self._engine = _engine(unicorn, image, core)
        self._core = core
        self._registers = _registers(unicorn, image.riscv)
        self._map()
        survey = survey_of(self.board.main("flash"), boards) if boards else None
        watched = survey.watched if survey else watched_memories(self.board) if watch else ()
        bus = NativeBus(watched, survey.caches if survey else self.board.caches)
        self._counter = self._count(self._engine, bus, native)
        self._hook(self._engine)
        self._prepare(bus, native)
        self._main = image.address("main")
        self._boot()

    def _hook(self, engine: Any) -> None:
        engine.hook_add(self._unicorn.UC_HOOK_MEM_INVALID, self._invalid)
        engine.hook_add(self._unicorn.UC_HOOK_INTR, self._exception)

    def _prepare(self, bus: NativeBus, native: bool) -> None:
        """What else there has to be before it boots."""

    # Memory -----------------------------------------------------------------------------------------------------------

    def _map(self) -> None:
        u = self._unicorn
        code = u.UC_PROT_READ | u.UC_PROT_EXEC
        spans = [
            Span(m.address, m.bytes, code if m.kind == "flash" else code | u.UC_PROT_WRITE)
            for m in self.board.memories
            if m.address < NOWHERE
        ]
        if not self.image.riscv:
            spans.append(Span(*PRIVATE_BUS, u.UC_PROT_READ | u.UC_PROT_WRITE))
        for part in self.image.parts:  # weights may be flashed outside of the memories that the board tells of
            if memory_of(self.board, part.address) is None:
                spans.append(Span(part.address, len(part.data), code))
        for span in _disjoint(spans):
            self._map_span(span)
        for part in self.image.parts:
            self._engine.mem_write(part.address, part.data)

    def _map_span(self, span: Span) -> None:
        self._engine.mem_map(span.first, span.end - span.first, span.allowed)

    def read(self, address: int, size_bytes: int) -> bytes:
        return bytes(self._engine.mem_read(address, size_bytes)) if size_bytes else b""

    def write(self, address: int, data: bytes) -> None:
        if data:
            self._engine.mem_write(address, data)

    # Running ----------------------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        """From reset to `main`."""
        start = self.image.entry
        if not self.image.riscv:
            table = self.board.main("flash").address
            stack, reset = (int.from_bytes(self.read(table + 4 * i, 4), "little") for i in range(2))
            self._engine.reg_write(self._registers["sp"], stack)
            start = reset & ~1
        self._go(start, BOOT_BYTES)

    def call(self, function: str, limit_bytes: int, stops: Stops = {}) -> int:  # noqa: B006 (never written)
        u, stack = self._unicorn, self.stack_pointer()
        self._engine.reg_write(self._registers["link"], self._main | (0 if self.image.riscv else 1))
        hooks = [
            self._engine.hook_add(u.UC_HOOK_CODE, lambda *_, act=act: act(), None, address, address)
            for address, act in stops.items()
        ]
        if hooks:
            self._engine.ctl_flush_tb()  # code that has run before is translated again, with the hooks in it
        try:
            self._go(self.image.address(function), limit_bytes)
        finally:
            for hook in hooks:
                self._engine.hook_del(hook)
        if self.stack_pointer() != stack:
            raise fault(self, f"does not give back its stack after `{function}`", self._main)
        return self._signed(self._registers["result"])

    def _go(self, address: int, limit_bytes: int, leave: int | None = None) -> None:
        """Until `main` is reached: at boot from its caller, later as the return address of what is called. With `leave`: until that
        address, or the end that the firmware makes itself."""
        self._trouble = None
        self._counter.start(limit_bytes)
        try:
            self._emulate(address if self.image.riscv else address | 1, self._main if leave is None else leave)
        except self._unicorn.UcError as error:
            if self._trouble is None:
                invalid = error.errno == self._unicorn.UC_ERR_INSN_INVALID
                self._trouble = fault(self, UNDEFINED if invalid else f"stopped: {error}", self._pc())
        if self._trouble is not None:
            raise self._trouble
        if self._counter.stopped == OUT_OF_BYTES:
            raise fault(self, f"does not end: more than {limit_bytes // 4:,} instructions", self._pc())
        if self._counter.stopped or (leave is None and self._pc() != self._main):
            raise fault(self, "stopped for no known reason", self._pc())

    def _emulate(self, start: int, end: int) -> None:
        """In a thread of its own: Python hears of Ctrl-C only when its main thread is not inside of native code."""
        with ThreadPoolExecutor(max_workers=1) as pool:
            running = pool.submit(self._run, start, end)
            try:
                running.result()
            except BaseException:
                if not running.done():
                    self._engine.emu_stop()
                raise

    def _run(self, start: int, end: int) -> None:
        self._engine.emu_start(start, end)

    def trace_memory(self, traced: Traced, layers: frozenset[int]) -> None:
        """From now on. Slow: Python hears of every instruction. `layers`: addresses of their functions."""
        from unicorn import arm_const

        def register(name: str) -> int:
            return int(self._engine.reg_read(getattr(arm_const, f"UC_ARM_REG_{name.upper()}")))

        tracer = Tracer(traced, self, register, layers)
        self._engine.hook_add(self._unicorn.UC_HOOK_CODE, lambda _, address, size, __: tracer.step(address, size))
        self._engine.ctl_flush_tb()

    def argument(self, index: int) -> int:
        return self._signed(self._registers[f"argument{index}"])

    def stack_pointer(self) -> int:
        return int(self._engine.reg_read(self._registers["sp"]))

    def _pc(self) -> int:
        return int(self._engine.reg_read(self._registers["pc"]))

    def _signed(self, register: int) -> int:
        value = int(self._engine.reg_read(register)) & 0xFFFFFFFF
        return value - (1 << 32) if value >> 31 else value

    # What goes wrong --------------------------------------------------------------------------------------------------

    def _invalid(self, _: object, access: int, address: int, size: int, value: int, __: object) -> bool:
        u = self._unicorn
        verbs = {
            u.UC_MEM_WRITE_UNMAPPED: "writes to", u.UC_MEM_WRITE_PROT: "writes to",
            u.UC_MEM_FETCH_UNMAPPED: "jumps to", u.UC_MEM_FETCH_PROT: "jumps to",
        }  # fmt: skip
        verb = verbs.get(access, "reads from")
        caller = int(self._engine.reg_read(self._registers["link"])) & ~1
        what = f"{verb} {address:#010x}, {reach(self.board, address)}"
        self._trouble = fault(self, what, caller if verb == "jumps to" else self._pc())
        return False

    def serve(self, host: Host, limit_bytes: int = CONSOLE_BYTES) -> int:
        """Run `main`, with `host` at the other end of semihosting, until the firmware ends itself; what it says of its success."""
        self._host, self._ended = host, None
        try:
            self._go(self._main, limit_bytes, leave=NOWHERE_TO_RETURN)
        finally:
            self._host = None
        return self._ended if self._ended is not None else 1

    def _semihosting(self, engine: Any) -> bool:
        """`bkpt 0xab`: the operation is in r0, its argument in r1, the answer goes to r0."""
        pc = self._pc()
        if self._host is None or self.image.riscv or self.read(pc & ~1, 2) != b"\xab\xbe":
            return False
        operation, argument = (self.argument(i) & 0xFFFFFFFF for i in range(2))
        if operation == SYS_EXIT:
            self._ended = 0 if argument == APPLICATION_EXIT else 1
            engine.emu_stop()
        elif operation == SYS_WRITEC:
            self._host.write(self.read(argument, 1))
        elif operation == SYS_READC:
            got = self._host.read()
            self._engine.reg_write(self._registers["result"], got[0] if got else 0xFFFFFFFF)
        self._engine.reg_write(self._registers["pc"], (pc + 2) | 1)
        return True

    def _exception(self, engine: Any, number: int, _: object) -> None:
        if number == BREAKPOINT and self._semihosting(engine):
            return
        if self.image.riscv and number == RISCV_ILLEGAL and (self._manipulates_bits() or self._skip_register()):
            return
        if self._trouble is None:
            undefined = self.image.riscv and number == RISCV_ILLEGAL
            self._trouble = fault(self, UNDEFINED if undefined else f"raises exception {number} of the processor", self._pc())
        engine.emu_stop()

    def _manipulates_bits(self) -> bool:
        """An instruction of a core that Unicorn has less of."""
        from unicorn import riscv_const

        if self._core != "hazard3":
            return False
        word = int.from_bytes(self.read(self._pc() - 4, 4), "little")  # Unicorn is past it
        found = result_of(word, lambda n: int(self._engine.reg_read(riscv_const.UC_RISCV_REG_X0 + n)) if n else 0)
        if found is not None and found[0]:
            self._engine.reg_write(riscv_const.UC_RISCV_REG_X0 + found[0], found[1])
        return found is not None

    def _skip_register(self) -> bool:
        """A counter of the board's own, which Unicorn does not have, reads as 0."""
        board = self.board
        word = int.from_bytes(self.read(self._pc() - 4, 4), "little")  # Unicorn is past it
        if word & 0x7F != 0x73 or word >> 20 not in {board.cycle_csr, board.cycle_event_csr, board.cycle_enable_csr} - {0}:
            return False
        from unicorn import riscv_const

        if to := word >> 7 & 31:
            self._engine.reg_write(riscv_const.UC_RISCV_REG_X0 + to, 0)
        return True

    # Counting ---------------------------------------------------------------------------------------------------------

    def _count(self, engine: Any, bus: NativeBus, native: bool) -> Counter:
        u, watched = self._unicorn, bus.watched
        kinds = [u.UC_HOOK_MEM_READ | (u.UC_HOOK_MEM_WRITE if memory.writes else 0) for memory in watched]
        library = native_library() if native else None
        handles = handles_of(engine) if library is not None else None
        if library is None or handles is None:
            slow = PythonCounter(watched, bus.caches)
            engine.hook_add(u.UC_HOOK_BLOCK, slow.on_block)
            for index, (memory, kind) in enumerate(zip(watched, kinds, strict=True)):
                engine.hook_add(kind, slow.on_access, index, memory.address, memory.address + memory.bytes - 1)
            return slow
        stop = ctypes.cast(handles[0].uc_emu_stop, ctypes.c_void_p).value or 0
        counter = NativeCounter(library, self.image.code_bytes, stop, bus)
        wanted = [(u.UC_HOOK_BLOCK, counter.block, counter.user, 1, 0)]
        for index, (memory, kind) in enumerate(zip(watched, kinds, strict=True)):
            wanted.append((kind, counter.access, counter.region(index), memory.address, memory.address + memory.bytes - 1))
        for kind, function, to, first, last in wanted:
            native_hook(handles, kind, function, to, first, last)
        return counter

    def counts(self) -> Counts:
        return replace(self._counter.counts(), stalls=self._stalls)

    # Devices ----------------------------------------------------------------------------------------------------------

    def attach(self, device: Device) -> None:
        def load(_: object, offset: int, size: int, __: object) -> int:
            try:
                return device.load(offset, size)
            except IntaglioError as error:
                return self._gone_wrong(error)

        def store(_: object, offset: int, size: int, value: int, __: object) -> None:
            try:
                device.store(offset, size, value)
            except IntaglioError as error:
                self._gone_wrong(error)

        if memory_of(self.board, device.address) is not None or device.address % PAGE or device.bytes % PAGE:
            what = f"the registers of a device cannot be at {device.address:#010x}: there is memory, or it is no whole page"
            raise ToolError("plugin-garbage", what, hint="give whole pages of 4096 bytes where the board has nothing")
        if not self.image.riscv and PRIVATE_BUS[0] <= device.address < sum(PRIVATE_BUS):
            self._engine.mem_unmap(device.address, device.bytes)
        self._engine.mmio_map(device.address, device.bytes, load, None, store, None)

    def _gone_wrong(self, error: IntaglioError) -> int:
        self._trouble = self._trouble or error
        self._engine.emu_stop()
        return 0

    def answer_for(self, function: str, value: Callable[[], int]) -> None:
        """From now on the function returns `value` at once, instead of running."""

        def returned(*_: object) -> None:
            self._engine.reg_write(self._registers["result"], value() & 0xFFFFFFFF)
            self._engine.reg_write(self._registers["pc"], int(self._engine.reg_read(self._registers["link"])))

        address = self.image.address(function)
        self._engine.hook_add(self._unicorn.UC_HOOK_CODE, returned, None, address, address)
        self._engine.ctl_flush_tb()

    def stall(self, cycles: int) -> None:
        self._stalls += max(0, cycles)

    def stop(self) -> None:
        """From another thread: `serve` returns."""
        self._engine.emu_stop()

    def close(self) -> None:
        self._engine = None


def need_unicorn(*, or_qemu: bool) -> Any:
    try:
        import unicorn
    except (ImportError, OSError) as error:
        hint = f"{install_hint('emulator')} installs it"
        if or_qemu:
            hint += "; or use `--emulator qemu` if qemu-system-arm is installed"
        raise ToolError("no-emulator", f"Unicorn is needed to emulate a core: {error}", hint=hint) from None
    return unicorn


def _engine(unicorn: Any, image: Image, core: str) -> Any:
    if image.riscv:
        return unicorn.Uc(unicorn.UC_ARCH_RISCV, unicorn.UC_MODE_RISCV32)
    if core not in ARM_MODELS:
        hint = "use `--emulator qemu` with qemu-system-arm for the cortex-m55"
        raise ToolError("no-emulator", f"Unicorn does not support `{core}`", hint=hint)
    from unicorn import arm_const

    # With UC_MODE_MCLASS the model is ignored and becomes an M33.
    model = getattr(arm_const, f"UC_CPU_ARM_CORTEX_{ARM_MODELS[core]}")
    return unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB, model)


def _registers(unicorn: Any, riscv: bool) -> dict[str, int]:
    from unicorn import arm_const, riscv_const

    if riscv:
        names = {"pc": "PC", "sp": "SP", "link": "RA", "result": "A0"} | {f"argument{i}": f"A{i}" for i in range(3)}
        return {key: getattr(riscv_const, f"UC_RISCV_REG_{name}") for key, name in names.items()}
    names = {"pc": "PC", "sp": "SP", "link": "LR", "result": "R0"} | {f"argument{i}": f"R{i}" for i in range(3)}
    return {key: getattr(arm_const, f"UC_ARM_REG_{name}") for key, name in names.items()}


def native_hook(handles: tuple[Any, Any], kind: int, function: ctypes.c_void_p, to: int, first: int, last: int) -> None:
    """A C function that Unicorn calls itself."""
    shared, engine = handles
    handle, scope = ctypes.c_size_t(), (ctypes.c_uint64(first), ctypes.c_uint64(last))
    if shared.uc_hook_add(engine, ctypes.byref(handle), kind, function, ctypes.c_void_p(to), *scope) != 0:
        raise OurFault("emulator-failed", "Unicorn refuses a native hook")


def handles_of(engine: Any) -> tuple[Any, Any] | None:
    """Unicorn's own library and the engine in it, for hooks without Python; None if its bindings have changed."""
    try:
        from unicorn.unicorn_py3.unicorn import uclib

        return uclib, engine._uch
    except (ImportError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class Span:
    address: int
    bytes: int
    allowed: int

    @property
    def first(self) -> int:
        return self.address // PAGE * PAGE

    @property
    def end(self) -> int:
        return -(-(self.address + self.bytes) // PAGE) * PAGE


def _disjoint(spans: list[Span]) -> list[Span]:
    """Whole pages that do not overlap; where two spans share pages, what either allows."""
    edges = sorted({edge for span in spans for edge in (span.first, span.end)})
    found = []
    for first, end in pairwise(edges):
        over = [span.allowed for span in spans if span.first <= first and end <= span.end]
        if over:
            found.append(Span(first, end - first, functools.reduce(operator.or_, over)))
    return found
