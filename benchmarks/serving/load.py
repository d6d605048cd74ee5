"""A client that costs little: prepared requests on open connections, answers checked byte for byte against what they must be."""

from __future__ import annotations

import selectors
import socket
import time
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Outcome:
    """`wrong`: answers that belong to another request; `lost`: connections that ended without one."""

    statuses: Counter[int] = field(default_factory=Counter)
    latencies_ms: list[float] = field(default_factory=list)
    wrong: int = 0
    lost: int = 0
    sent: int = 0
    seconds: float = 0.0

    @property
    def answered(self) -> int:
        return sum(self.statuses.values())

    @property
    def per_second(self) -> float:
        return self.statuses[200] / self.seconds if self.seconds else 0.0

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies_ms)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class Connection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.since, self.which, self.left = b"", 0.0, 0, memoryview(b"")

    def send(self, request: bytes, which: int) -> None:
        self.buffer, self.since, self.which = b"", time.perf_counter(), which
        self.socket.settimeout(60)
        self.socket.sendall(request)

    def receive(self) -> tuple[int, bytes] | None:
        """Status and body, when they are whole; raises ConnectionError at the end."""
        part = self.socket.recv(1 << 20)
        if not part:
            raise ConnectionError
        self.buffer += part
        head, end, body = self.buffer.partition(b"\r\n\r\n")
        if not end:
            return None
        at = head.lower().find(b"content-length: ")
        size = int(head[at + 16 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        return (int(head[9:12]), body) if len(body) >= size else None


def request(path: str, body: bytes, json_bytes: int | None = None) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: {len(body)}\r\n"
    if json_bytes is not None:
        head += f"Inference-Header-Content-Length: {json_bytes}\r\n"
    return head.encode() + b"\r\n" + body


def closed_loop(port: int, requests: list[bytes], answers: list[bytes | None], connections: int, seconds: float) -> Outcome:
    """Every connection sends its next request when it has the answer. `answers`: what the body ends with; None: not checked."""
    outcome = Outcome()
    selector = selectors.DefaultSelector()
    start = time.perf_counter()
    for n in range(connections):
        connection = Connection(port)
        selector.register(connection.socket, selectors.EVENT_READ, connection)
        connection.send(requests[n % len(requests)], n % len(requests))
        outcome.sent += 1
    open_, until = connections, start + seconds
    while open_:
        for key, _ in selector.select(60):
            connection = key.data
            try:
                found = connection.receive()
            except OSError:
                found = (0, b"")
                outcome.lost += 1
            if found is None:
                continue
            now, (status, body) = time.perf_counter(), found
            if status:
                outcome.statuses[status] += 1
                if status == 200:
                    outcome.latencies_ms.append((now - connection.since) * 1e3)
                    wanted = answers[connection.which]
                    outcome.wrong += wanted is not None and not body.endswith(wanted)
            if now > until or not status:
                selector.unregister(connection.socket)
                connection.socket.close()
                open_ -= 1
                continue
            which = (connection.which + connections) % len(requests)
            connection.send(requests[which], which)
            outcome.sent += 1
    outcome.seconds = time.perf_counter() - start
    return outcome
