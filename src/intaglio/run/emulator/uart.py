"""The UART of a board and the cycle counter of its core, on the bus of an emulated core; and a pseudo-terminal as the line.

    firmware  <->  registers of the UART  <->  /dev/pts/N  <->  whoever opens it, as a serial port

Bytes that nobody reads are lost, as on a wire. Cycles are those of the cost model: estimates.
"""

from __future__ import annotations

import os
import select
import threading
import tty

from intaglio.run.emulator.core import Core
from intaglio.run.emulator.peripherals import CoreBus
from intaglio.targets.uart import Uart

PAGE = 4096
WAIT_SECONDS = 0.02  # in a second look at a status that has nothing new: the core spins, this machine need not
TRACE_UNIT = 0xE0001000  # of a Cortex-M: DWT
DWT_CTRL, DWT_CYCCNT = 0x000, 0x004
CYCCNTENA = 1


class Terminal:
    """The other end is `path`. It stays open when those who opened it leave."""

    def __init__(self) -> None:
        self._own, self._other = os.openpty()
        tty.setraw(self._other)
        os.set_blocking(self._own, False)
        self.path = os.ttyname(self._other)
        self._waiting = bytearray()
        self._closed = threading.Event()

    def ready(self, wait_seconds: float) -> bool:
        """Is there a byte, or will there be?"""
        if not self._waiting and not self._closed.is_set() and select.select([self._own], [], [], wait_seconds)[0]:
            self._waiting += os.read(self._own, PAGE)
        return bool(self._waiting)

    def read(self) -> int:
        return self._waiting.pop(0) if self._waiting else 0

    def write(self, byte: int) -> None:
        try:
            os.write(self._own, bytes([byte]))
        except BlockingIOError:
            return  # nobody reads

    def hang_up(self) -> None:
        """From another thread: who waits for a byte waits no longer."""
        self._closed.set()

    def close(self) -> None:
        self.hang_up()
        for end in (self._own, self._other):
            os.close(end)


class UartDevice:
    """Whole pages around the registers of the table; all others keep what is written to them."""

    bytes = PAGE

    def __init__(self, uart: Uart, line: Terminal) -> None:
        self.address = uart.address // PAGE * PAGE
        self._base, self._registers, self._line = uart.address % PAGE, uart.registers, line
        self._kept: dict[int, int] = {}
        self._sent = False  # since the status was cleared
        self._looked = False  # at the status, and nothing else since

    def load(self, offset: int, size_bytes: int) -> int:
        r, at = self._registers, offset - self._base
        if at == r.rx_data:
            self._looked = False
            return self._line.read()
        if at not in (r.rx_status, r.tx_status):
            return self._kept.get(at, 0)
        value = 0
        if at == r.rx_status:
            if self._line.ready(WAIT_SECONDS if self._looked else 0.0) == r.rx_set:
                value |= r.rx_mask
            self._looked = True
        if at == r.tx_status and r.tx_set and (self._sent or not r.tx_after):
            value |= r.tx_mask
        return value

    def store(self, offset: int, size_bytes: int, value: int) -> None:
        r, at = self._registers, offset - self._base
        if at == r.tx_data:
            self._line.write(value & 0xFF)
            self._sent, self._looked = True, False
        elif at == r.tx_status and r.tx_after:
            self._sent = bool(value)
        else:
            self._kept[at] = value


class TraceUnit:
    """DWT: its counter of cycles, which counts from 0 once it is on."""

    address, bytes = TRACE_UNIT, PAGE

    def __init__(self, core: Core, kind: str) -> None:
        self._bus = CoreBus(core, kind)
        self._kept: dict[int, int] = {}
        self._start: int | None = None

    def load(self, offset: int, size_bytes: int) -> int:
        if offset == DWT_CYCCNT:
            return 0 if self._start is None else (self._bus.now() - self._start) & 0xFFFFFFFF
        return self._kept.get(offset, 0)

    def store(self, offset: int, size_bytes: int, value: int) -> None:
        self._kept[offset] = value
        if offset == DWT_CTRL and value & CYCCNTENA and self._start is None:
            self._start = self._bus.now()
