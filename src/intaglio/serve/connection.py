"""uvicorn's HTTP connections with a limit on how long a request may take to arrive, and how large its head may be: uvicorn waits
for ever. A connection that is late is closed. What is refused here, before it is a request, is counted by status.

`timeout_keep_alive` of uvicorn covers connections that are silent after an answer; `rest.py` has the limit on bodies.

A large body of known length is read from the socket straight into its buffer, and wakes the application once. uvicorn would hand
over each part with four copies, a turn of the event loop and a pause of the socket: 0.6 ms for 600 KB."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
from httptools import HttpRequestParser
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 << 10
LARGE_BYTES = 64 << 10  # uvicorn pauses a connection above this
ALIGNMENT = 64
BODY = "intaglio.body"  # of a scope: a Body, which is whole when the last message is received
TOLD = {408: b"the request was not here in time", 431: b"the head of the request is too large"}
JSON_BYTES = b"inference-header-content-length"


class Body:
    """Room for `size` bytes, of which those at `aligned` begin a cache line: tensors follow the JSON, and are used where they are.
    Memory that nothing was written to yet costs nothing, whatever length a client promises."""

    def __init__(self, size: int, aligned: int) -> None:
        room = np.empty(size + ALIGNMENT, np.uint8)
        start = -(int(room.__array_interface__["data"][0]) + aligned) % ALIGNMENT
        self.content = memoryview(room)[start : start + size]  # type: ignore[arg-type]
        self.rest = self.content  # what is not there yet

    def add(self, part: bytes) -> None:
        self.rest[: len(part)] = part
        self.rest = self.rest[len(part) :]


class Filling(asyncio.BufferedProtocol):
    """In the place of a connection until the rest of its body is there."""

    def __init__(self, connection: LimitedConnection, body: Body) -> None:
        self._connection, self._body = connection, body

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._body.rest

    def buffer_updated(self, nbytes: int) -> None:
        self._body.rest = self._body.rest[nbytes:]
        if not self._body.rest:
            self._connection.filled()

    def eof_received(self) -> None:
        self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()


class Gathering(asyncio.Transport):
    """A transport that sends what is written in one turn of the event loop at once: uvicorn writes head and body of an answer one
    after the other, and a system call costs as much as a small model."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._held: list[bytes] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return bool(self._transport.is_closing())

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def abort(self) -> None:
        self._transport.abort()

    def write(self, data: Any) -> None:
        if not self._held:
            self._loop.call_soon(self._flush)
        self._held.append(data)

    def _flush(self) -> None:
        if self._held:
            self._transport.write(self._held[0] if len(self._held) == 1 else b"".join(self._held))
            self._held.clear()

    def close(self) -> None:
        self._flush()
        self._transport.close()


class LimitedConnection(HttpToolsProtocol):
    """`arrive_s`: within which a request must be here, from its first byte to its last; also the first byte of a new connection.
    Most requests come in one piece, and need no timer."""

    arrive_s = 30.0
    most_bytes = 64 << 20
    count: Callable[[int], None] = staticmethod(lambda status: None)

    _late: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head, _waits, _begun = True, True, False
    _body: Body | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(Gathering(transport, self.loop))
        self._late = self.loop.call_later(self.arrive_s, self._close_late)

    def data_received(self, data: bytes) -> None:
        self._begun = True
        if self._in_head:
            end = data.find(b"\r\n\r\n")
            self._head_bytes += len(data) if end < 0 else end
            if self._head_bytes > HEAD_BYTES:
                self._refuse(431, b"Request Header Fields Too Large")
                return
        super().data_received(data)
        if self._waits and self._late is None:
            self._late = self.loop.call_later(self.arrive_s, self._close_late)
        if self._waits and self._body is not None and not self.pipeline and not self.transport.is_closing():
            self.transport.set_protocol(Filling(self, self._body))

    def filled(self) -> None:
        """The body is whole, without the parser: the next request has another one."""
        self.transport.set_protocol(self)
        self.parser = HttpRequestParser(self)
        self.on_message_complete()

    def _close_late(self) -> None:
        if self._begun:
            self._refuse(408, b"Request Timeout")
        self._close()

    def _refuse(self, status: int, reason: bytes) -> None:
        self.count(status)
        if not self.transport.is_closing():
            body = b'{"error":"%s"}' % TOLD[status]
            head = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
            self.transport.write(head % (status, reason, len(body)) + body)
        self._close()

    def _close(self) -> None:
        self._stop_timer()
        if not self.transport.is_closing():
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """uvicorn's, where bytes are not HTTP."""
        self.count(400)
        super().send_400_response(msg)

    def _stop_timer(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._waits, self._head_bytes = True, True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        size = self._number(b"content-length")
        self._body = Body(size, self._number(JSON_BYTES)) if LARGE_BYTES < size <= self.most_bytes else None
        if self._body is not None:
            self.scope[BODY] = self._body  # type: ignore[literal-required]
        super().on_headers_complete()

    def _number(self, name: bytes) -> int:
        for key, value in self.headers:
            if key == name:
                return int(value) if value.isdigit() and len(value) < 16 else 0
        return 0

    def on_body(self, body: bytes) -> None:
        if self._body is None:
            super().on_body(body)
        elif not self.cycle.response_complete:
            self._body.add(body)

    def on_message_complete(self) -> None:
        self._waits, self._body = False, None
        self._stop_timer()
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._waits = False
        self._stop_timer()
        super().connection_lost(exc)


def connection_with(arrive_s: float, most_bytes: int, count: Callable[[int], None]) -> type[LimitedConnection]:
    own = {"arrive_s": arrive_s, "most_bytes": most_bytes, "count": staticmethod(count)}
    return type("Connection", (LimitedConnection,), own)


__all__ = ["BODY", "Body", "connection_with"]
