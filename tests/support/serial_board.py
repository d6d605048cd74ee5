"""A board to talk to: a package's firmware on the emulated core, behind a pseudo-terminal; and lines that go wrong."""

from __future__ import annotations

import os
import select
import threading
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from intaglio.run.loaded import LoadedPackage
from intaglio.run.serial.line import Line, Port, SerialOptions, SerialPort


@contextmanager
def answering(package: LoadedPackage) -> Iterator[str]:
    """The path of its port."""
    pytest.importorskip("serial")
    from intaglio.run.emulator.serving import ServingFirmware

    firmware = ServingFirmware(package)
    thread = threading.Thread(target=firmware.serve)
    thread.start()
    try:
        yield firmware.path
    finally:
        firmware.stop()
        thread.join()
        firmware.close()


@contextmanager
def nobody(said: bytes = b"") -> Iterator[str]:
    """The path of a port where nobody answers. `said`: what comes from there, whatever is sent."""
    pytest.importorskip("serial")
    own, other = os.openpty()
    tty.setraw(other)
    ended = threading.Event()

    def listen() -> None:
        while not ended.is_set():
            if select.select([own], [], [], 0.02)[0] and os.read(own, 4096):
                os.write(own, said)

    thread = threading.Thread(target=listen)
    thread.start()
    try:
        yield os.ttyname(other)
    finally:
        ended.set()
        thread.join()
        os.close(own)
        os.close(other)


Change = Callable[[int, bytes], bytes]  # how many frames were sent, or bytes received, before; what goes through: what arrives


class Damaged:
    """A port whose wire changes bytes."""

    def __init__(self, port: Port, sent: Change | None = None, received: Change | None = None) -> None:
        self._port = port
        self._sent, self._received = sent or (lambda _, data: data), received or (lambda _, data: data)
        self._writes = self._reads = 0

    def write(self, data: bytes) -> None:
        self._port.write(self._sent(self._writes, data))
        self._writes += 1

    def read(self) -> bytes:
        data = self._port.read()
        if not data:
            return data
        self._reads += len(data)
        return self._received(self._reads - len(data), data)

    def close(self) -> None:
        self._port.close()


def line_to(path: str, sent: Change | None = None, received: Change | None = None, timeout_s: float = 60.0) -> Line:
    options = SerialOptions(path, timeout_s=timeout_s)
    return Line(Damaged(SerialPort(options), sent, received), options)
