"""Files that several processes change: one at a time, and each change in one step.

    PATH.lock          held (flock) by who writes
    PATH.tmp.PID       what is being written; renamed when it is complete and on disk
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from intaglio.errors import ToolError, quoted

try:
    import fcntl
except ImportError:  # Windows: no lock; the replacement is atomic there too
    fcntl = None  # type: ignore[assignment]

LOCK_SECONDS = 10.0


@contextlib.contextmanager
def locked(path: Path, seconds: float = LOCK_SECONDS) -> Iterator[None]:
    lock = path.with_name(f"{path.name}.lock")
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0), 0o600)
    except OSError as error:
        raise ToolError("cannot-write", f"{quoted(str(lock), 200)} cannot be created: {error.strerror}") from error
    try:
        end = time.monotonic() + seconds
        while fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() >= end:
                    hint = "another process writes to the file; try again later"
                    raise ToolError("cache-busy", f"{quoted(str(lock), 200)} is held for {seconds:g} s", hint=hint) from error
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def replace_file(path: Path, data: bytes) -> None:
    """In one step: readers see the old file or the new one."""
    fresh = path.with_name(f"{path.name}.tmp.{os.getpid()}")
    try:
        for left in path.parent.glob(f"{_literal(path.name)}.tmp.*"):  # under the lock: whoever made it has died
            left.unlink(missing_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
            with os.fdopen(os.open(fresh, flags, mode), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(fresh, path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        if os.name == "posix":
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
    except OSError as error:
        hint = "it was not changed; check the free space and the permissions of its folder"
        raise ToolError("cannot-write", f"{quoted(str(path), 200)} cannot be written: {error.strerror}", hint=hint) from error


def _literal(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
