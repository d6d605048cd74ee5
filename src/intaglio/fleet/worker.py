"""A process that performs pieces: `python -m intaglio.fleet.worker`. Pieces come in on stdin and results go out on stdout, each as
a length and a pickle. Whatever a compile prints goes nowhere.

Temporary files go to a folder of this process alone, which the other end removes: a process that is killed cannot. What is left by
a run that was killed itself is removed by the next one.

Crashes and hangs of native code end this process and no other: `Worker` is the other end, and says how it ended."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import os
import pickle
import selectors
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO

from intaglio.fleet.pieces import Piece, Result, perform

_SIZE = struct.Struct("<Q")
LOST, LATE = "crashed", "timeout"
ROOM, LOCK = "intaglio-worker-", ".lock"


class _Room:
    """A folder for temporary files, with a lock that goes with this process."""

    def __init__(self) -> None:
        sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=ROOM))
        self._lock = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.close(self._lock)


@cache
def sweep() -> None:
    """Removes folders whose process was killed; once in a process."""
    for folder in Path(tempfile.gettempdir()).glob(f"{ROOM}*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


class Worker:
    """One process. `result` is called when `stream` can be read."""

    def __init__(self) -> None:
        self._room = _Room()
        environment = {**os.environ, "INTAGLIO_FLEET_PARENT": str(os.getpid()), "TMPDIR": str(self._room.folder)}
        words = [sys.executable, "-m", "intaglio.fleet.worker"]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, start_new_session=True
        )
        self.piece: Piece | None = None
        self.since = 0.0

    @property
    def stream(self) -> BinaryIO:
        assert self.process.stdout is not None
        return self.process.stdout  # type: ignore[return-value]

    def start(self, piece: Piece) -> bool:
        """False: it has ended meanwhile."""
        self.piece, self.since = piece, time.monotonic()
        try:
            assert self.process.stdin is not None
            _write(self.process.stdin, pickle.dumps(piece))
        except OSError:
            return False
        return True

    def result(self) -> list[Result] | None:
        """None: it ended without one."""
        try:
            found = _read(self.stream)
        except OSError:
            found = None
        self.piece = None if found is not None else self.piece
        return None if found is None else list(pickle.loads(found))

    def kill(self) -> int:
        """With everything that it has started, such as compilers."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        code = self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                if stream is not None:
                    stream.close()
        self._room.remove()
        return code

    def perform(self, piece: Piece, timeout_s: float) -> list[Result] | str:
        """One piece, by whoever waits for it; LOST or LATE where there is no result, and the process is at its end then."""
        if not self.start(piece):
            return LOST
        with selectors.DefaultSelector() as selector:
            selector.register(self.stream, selectors.EVENT_READ)
            if not selector.select(timeout_s):
                return LATE
        return self.result() or LOST


def _write(stream: object, content: bytes) -> None:
    stream.write(_SIZE.pack(len(content)) + content)  # type: ignore[attr-defined]
    stream.flush()  # type: ignore[attr-defined]


def _read(stream: BinaryIO) -> bytes | None:
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack(head)
    content = stream.read(size)
    return content if len(content) == size else None


@atexit.register
def _end_idle() -> None:
    while _idle:
        _idle.pop().kill()


_idle: list[Worker] = []  # of a Dask worker, from one piece to the next; it may have several threads


def perform_guarded(piece: Piece, timeout_s: float) -> list[Result] | str:
    """In a process beside this one: a Dask worker outlives what a piece does to its process."""
    try:
        worker = _idle.pop()
    except IndexError:
        worker = Worker()
    found = worker.perform(piece, timeout_s)
    if isinstance(found, str):
        worker.kill()
    else:
        _idle.append(worker)
    return found


def _die_with_parent() -> None:
    """Linux: a run that is killed takes its workers along."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if str(os.getppid()) != os.environ.get("INTAGLIO_FLEET_PARENT", str(os.getppid())):
        os._exit(1)  # it was killed before


def main() -> None:
    _die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    given, taken = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    while (content := _read(given)) is not None:
        results: Sequence[Result] = perform(pickle.loads(content))
        _write(taken, pickle.dumps(list(results)))


if __name__ == "__main__":
    main()
