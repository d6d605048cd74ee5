"""uvicorn's HTTP connections with a limit on how long, and how large, the head of a request may be: uvicorn waits for ever.

`timeout_keep_alive` of uvicorn covers connections that are silent after an answer; the body has its own limit in `rest.py`."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES = 64 << 10


class LimitedConnection(HttpToolsProtocol):
    head_s = 10.0

    _late: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._start_head()

    def _start_head(self) -> None:
        self._in_head, self._head_bytes = True, 0
        if self._late is None:
            self._late = self.loop.call_later(self.head_s, self._close_late)

    def _end_head(self) -> None:
        self._in_head = False
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _close_late(self) -> None:
        self._late = None
        if not self.transport.is_closing():
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and self._head_bytes > len(data):  # not in one piece with a body
                self._end_head()
                self.transport.close()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)


def connection_with(head_s: float) -> type[LimitedConnection]:
    return type("Connection", (LimitedConnection,), {"head_s": head_s})


__all__ = ["connection_with"]
