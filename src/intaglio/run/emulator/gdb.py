"""The debugger's side of GDB's remote protocol, as much of it as a core needs to be driven: memory, registers, breakpoints.

    -> $m20000000,4#..      <- $78563412#..
"""

from __future__ import annotations

import socket

CHUNK_BYTES = 1024  # of memory in one packet: QEMU takes packets of 4096 characters


class Closed(Exception):
    """The other side has gone, or does not answer."""


class Debugger:
    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._kept = b""
        self._acknowledge = True
        self._sure("QStartNoAckMode")
        self._acknowledge = False
        self._sure("qXfer:features:read:target.xml:0,ffb")  # QEMU tells single registers only to who has asked what there are

    def ask(self, text: str, seconds: float = 60.0) -> str:
        self.send(text)
        return self.answer(seconds)

    def send(self, text: str) -> None:
        data = text.encode("ascii")
        try:
            self._socket.sendall(b"$" + data + f"#{sum(data) % 256:02x}".encode())
        except OSError as error:
            raise Closed(str(error)) from None

    def answer(self, seconds: float) -> str:
        """The next packet; TimeoutError when there is none in time."""
        self._socket.settimeout(seconds)
        while True:
            start, end = self._kept.find(b"$"), self._kept.find(b"#")
            if start >= 0 and end > start and len(self._kept) >= end + 3:
                body, self._kept = self._kept[start + 1 : end], self._kept[end + 3 :]
                if self._acknowledge:
                    self._socket.sendall(b"+")
                return body.decode("ascii", "replace")
            try:
                more = self._socket.recv(1 << 16)
            except TimeoutError:
                raise
            except OSError as error:
                raise Closed(str(error)) from None
            if not more:
                raise Closed("it ended")
            self._kept += more

    def interrupt(self, seconds: float) -> None:
        """It stops, wherever it is."""
        try:
            self._socket.sendall(b"\x03")
            self.answer(seconds)
        except OSError as error:
            raise Closed("it does not answer" if isinstance(error, TimeoutError) else str(error)) from None

    def close(self) -> None:
        self._socket.close()

    # What it is asked -------------------------------------------------------------------------------------------------

    def read(self, address: int, size_bytes: int) -> bytes:
        parts = []
        for start in range(0, size_bytes, CHUNK_BYTES):
            count = min(CHUNK_BYTES, size_bytes - start)
            parts.append(bytes.fromhex(self._done(f"m{address + start:x},{count:x}")))
        return b"".join(parts)

    def write(self, address: int, data: bytes) -> None:
        for start in range(0, len(data), CHUNK_BYTES):
            part = data[start : start + CHUNK_BYTES]
            self._done(f"M{address + start:x},{len(part):x}:{part.hex()}")

    def register(self, number: int) -> int:
        return int.from_bytes(bytes.fromhex(self._done(f"p{number:x}"))[:4], "little")

    def set_register(self, number: int, value: int) -> None:
        self._done(f"P{number:x}={value.to_bytes(4, 'little').hex()}")

    def stop_at(self, address: int) -> None:
        self._done(f"Z0,{address:x},2")

    def do_not_stop_at(self, address: int) -> None:
        self._done(f"z0,{address:x},2")

    def step_over(self, address: int) -> None:
        """Past a breakpoint that it stands on."""
        self.do_not_stop_at(address)
        self._sure("s")
        self.stop_at(address)

    def _done(self, text: str) -> str:
        said = self._sure(text)
        if said.startswith("E") and len(said) == 3:
            raise Closed(f"it refuses `{text[:24]}`: {said}")
        return said

    def _sure(self, text: str) -> str:
        """What is answered at once, or never."""
        try:
            return self.ask(text)
        except OSError:
            raise Closed(f"it does not answer `{text[:24]}`") from None
