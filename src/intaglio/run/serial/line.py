"""A serial port, and one request after the other over it.

Every request waits for its answer. One that is lost or damaged is sent again: firmware does not run twice for one number. Before
that, zeros end whatever frame the other side may be in the middle of.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from intaglio.errors import OurFault, ToolError, UserError, counted, quoted
from intaglio.run.serial.protocol import ANSWER, MOST_BYTES, VERSION, Frame, Frames, Info, Request, Status, info_of

BAUD = 115200
START_SECONDS = 8.0  # boards that an opened port resets are in their boot loader for some of them
QUIET_SECONDS = 0.1
QUICK_SECONDS = 1.0  # for an answer that needs no computing, beside its bytes
TRIES, LONG_TRIES = 4, 2
READ_SECONDS = 0.02
END_BYTES = 512  # of zeros: longer than a frame of firmware with the usual chunk
MOST_ANSWER = 512  # bytes, of such firmware


@dataclass(frozen=True, slots=True)
class SerialOptions:
    """Which line, as typed. `clock_mhz`: of the core, where the firmware does not know it."""

    port: str
    baud: int = BAUD
    timeout_s: float = 60.0  # of one inference
    clock_mhz: float | None = None

    def __post_init__(self) -> None:
        if not self.port:
            raise UserError("bad-option", "`--serial` names no port", hint="for example `--serial /dev/ttyACM0`")
        if self.baud <= 0:
            raise UserError("bad-option", f"`--baud {self.baud}` is not a rate", hint="use a number such as 115200")
        if not 0 < self.timeout_s < 1e6:
            raise UserError("bad-option", f"`--timeout {self.timeout_s}` is not a time", hint="use seconds, for example 60")
        if self.clock_mhz is not None and not 0 < self.clock_mhz < 1e5:
            raise UserError("bad-option", f"`--clock {self.clock_mhz}` is not a clock", hint="use MHz, for example 120")


class Port(Protocol):
    def read(self) -> bytes:
        """What has come; it waits a moment for a first byte."""

    def write(self, data: bytes) -> None: ...
    def close(self) -> None: ...


class SerialPort:
    """A port of this machine, by pyserial."""

    def __init__(self, options: SerialOptions) -> None:
        serial = need_pyserial()
        self._port = options.port
        try:
            self._serial = serial.Serial(options.port, options.baud, timeout=READ_SECONDS, write_timeout=10, exclusive=True)
        except (OSError, ValueError) as error:  # pyserial's own is an OSError
            raise _cannot_open(options.port, error) from None

    def read(self) -> bytes:
        return self._guarded(lambda: bytes(self._serial.read(max(1, self._serial.in_waiting))))

    def write(self, data: bytes) -> None:
        self._guarded(lambda: (self._serial.write(data), b"")[1])

    def _guarded(self, action: Callable[[], bytes]) -> bytes:
        try:
            return action()
        except (OSError, TypeError) as error:  # pyserial gives a TypeError where another thread closed the port
            hint = "check the cable and whether the board has reset; another program may have opened the port"
            raise ToolError("serial-lost", f"the serial port {quoted(self._port)} is gone: {error}", hint=hint) from None

    def close(self) -> None:
        self._serial.close()


def need_pyserial() -> Any:
    try:
        import serial
    except ImportError:
        hint = "`.venv/bin/pip install -e '.[serial]'` in the checkout installs it"
        raise ToolError("no-serial", "pyserial is needed for a serial line", hint=hint) from None
    return serial


def _cannot_open(port: str, error: Exception) -> ToolError:
    from serial.tools import list_ports

    found = ", ".join(quoted(p.device) for p in sorted(list_ports.comports()))
    hint = f"ports of this machine: {found or 'none'}"
    reason = getattr(error, "strerror", None) or str(error)
    return ToolError("no-serial", f"cannot open the serial port {quoted(port)}: {reason}", hint=hint)


class Line:
    """Requests and their answers. `info`: what the firmware said first."""

    def __init__(self, port: Port, options: SerialOptions) -> None:
        self._port, self._options = port, options
        self._frames = Frames()
        self._number = 0
        self._heard = 0  # bytes, of any kind
        try:
            self.info = self._first(START_SECONDS)
        except BaseException:
            self.close()
            raise

    def ask(self, request: Request, payload: bytes = b"", seconds: float = QUICK_SECONDS) -> bytes:
        """What stands behind the status. `seconds`: what the board may compute."""
        self._number = (self._number + 1) % 256
        frame = Frame(request, self._number, payload)
        before, tries = self._heard, TRIES if seconds <= QUICK_SECONDS else LONG_TRIES
        for attempt in range(tries):
            if attempt:
                self._end_frames()
            self._port.write(frame.packed())
            answer = self._answer(frame, seconds + self._on_wire(len(payload)))
            if answer is not None and answer[0] not in (Status.DAMAGED, Status.LENGTH):
                return self._accepted(request, answer)
        raise self._no_answer(request, noisy=self._heard > before)

    def _on_wire(self, size_bytes: int) -> float:
        """Seconds, twice what these and an answer take at least: what stands before them has to go out too."""
        return 20 * (size_bytes + END_BYTES + MOST_ANSWER) / self._options.baud

    def close(self) -> None:
        self._port.close()

    def _first(self, seconds: float) -> Info:
        end = time.monotonic() + seconds
        while True:
            self._end_frames()
            frame = Frame(Request.INFO, self._number)
            self._port.write(frame.packed())
            answer = self._answer(frame, min(QUICK_SECONDS, seconds) + self._on_wire(0))
            if answer is not None and answer[0] == Status.OK:
                return self._checked(answer[1:])
            if time.monotonic() >= end:
                raise self._nobody()

    def _checked(self, data: bytes) -> Info:
        try:
            version, info = info_of(data)
        except ValueError:
            version, info = 0, None
        if info is None or version != VERSION or not 1 <= info.chunk <= MOST_BYTES - 8:
            what = f"the firmware on {quoted(self._options.port)} speaks version {version} of the protocol, not {VERSION}"
            hint = "flash firmware of a package that this version of Intaglio compiled"
            raise UserError("serial-version", what, hint=hint)
        return info

    def _answer(self, frame: Frame, seconds: float) -> bytes | None:
        """Status and data, or None where no whole answer to this frame came in time."""
        end = time.monotonic() + seconds
        while True:
            while (found := self._frames.next()) is not None:
                if found.type == frame.type + ANSWER and found.number == frame.number and found.payload:
                    return found.payload
            if time.monotonic() >= end:
                return None
            data = self._port.read()
            self._heard += len(data)
            self._frames.add(data)

    def _end_frames(self) -> None:
        """On both sides: nothing is half received any more."""
        self._port.write(bytes(END_BYTES))
        end = time.monotonic() + QUIET_SECONDS + 20 * END_BYTES / self._options.baud
        quiet = time.monotonic() + QUIET_SECONDS
        while time.monotonic() < min(end, quiet):
            data = self._port.read()
            self._heard += len(data)
            if data:
                quiet = time.monotonic() + QUIET_SECONDS
        self._frames.clear()

    def _accepted(self, request: Request, answer: bytes) -> bytes:
        if answer[0] == Status.OK:
            return answer[1:]
        said = Status(answer[0]).name.lower() if answer[0] in list(Status) else str(answer[0])
        what = f"the firmware on {quoted(self._options.port)} refuses `{request.name.lower()}`: {said}"
        raise OurFault("serial-refused", what, hint="this is a bug in Intaglio, unless the C of the package was edited")

    def _nobody(self) -> ToolError:
        port, baud = quoted(self._options.port), self._options.baud
        if self._heard:
            what = f"{port} sends {counted(self._heard, 'byte')} at {baud} baud, but no answer"
            hint = "check `--baud`, and that nothing else prints on this line; docs/guides/board.md shows firmware that answers"
            return ToolError("serial-noise", what, hint=hint)
        hint = "check the cable and `--baud`, and flash firmware that answers: docs/guides/board.md shows it"
        return ToolError("serial-silent", f"nothing answers on {port} at {baud} baud", hint=hint)

    def _no_answer(self, request: Request, *, noisy: bool) -> ToolError:
        port, word = quoted(self._options.port), request.name.lower()
        if noisy:
            hint = "check the cable, or use a lower baud rate on both sides"
            return ToolError("serial-noise", f"the line {port} damages frames: no whole answer to `{word}`", hint=hint)
        hint = "the board may have reset or stopped; if an inference takes longer, use `--timeout`"
        return ToolError("serial-silent", f"the board on {port} stopped answering: no answer to `{word}`", hint=hint)


def numbers(data: bytes, form: str) -> tuple[int, ...]:
    """An answer of fixed size."""
    if len(data) != struct.calcsize(form):
        raise OurFault("serial-refused", f"an answer has {len(data)} bytes, not {struct.calcsize(form)}")
    return struct.unpack(form, data)
