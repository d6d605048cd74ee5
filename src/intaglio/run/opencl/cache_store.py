"""A program cache on disk: read, and replaced in one step while a lock is held. A package's code in C does it with the same files.

    PATH               the cache
    PATH.lock          held (flock) by who writes
    PATH.tmp.PID       what is being written; renamed when it is complete and on disk
    PATH.loading.KEY   a binary of the cache is with the driver, for the first time; left behind by a process that died of it
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from intaglio.errors import UserError, quoted
from intaglio.run.one_writer import locked, replace_file
from intaglio.run.opencl.cache_file import CacheFile, Record, dump, parse

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LARGEST_BYTES = 1 << 30


def read_cache(path: Path) -> CacheFile:
    """Whatever its bytes are; UserError where there is no file that can be read."""
    shown = quoted(str(path), 200)
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))  # a FIFO must not hold us
        with os.fdopen(handle, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UserError("not-a-cache", f"{shown} is not a file", hint="give a .clbin file, or a package that has one")
            if status.st_size > LARGEST_BYTES:
                raise UserError("not-a-cache", f"{shown} is larger than {LARGEST_BYTES >> 20} MB, the limit of a program cache")
            return parse(file.read(), ours=path.name.endswith(".clbin"))  # after a crash there may be anything in it
    except FileNotFoundError:
        raise UserError("no-file", f"there is no {shown}", hint="`bin/NAME --warm` of a package writes it") from None
    except IsADirectoryError:
        raise UserError("not-a-cache", f"{shown} is a folder", hint="give a .clbin file, or a package that has one") from None
    except OSError as error:
        raise UserError("cannot-read", f"{shown} cannot be read: {error.strerror}") from error


def update_cache(path: Path, change: Callable[[CacheFile], Sequence[Record]]) -> CacheFile:
    """Replace the records by what `change` makes of those that are there when the lock is held. Nothing is written where nothing
    changes. A file that is not there is empty; one that is nothing of ours, by name or content, is never overwritten."""
    with locked(path):
        old = read_cache(path) if os.path.lexists(path) else CacheFile()
        if old.foreign:
            hint = "remove it, or name another; only damaged files whose name ends in `.clbin` are rewritten"
            text = f"{quoted(str(path), 200)} is another kind of file and is not changed: {old.problem}"
            raise UserError("not-a-cache", text, hint=hint)
        records = tuple(change(old))
        if records != old.records or not old.sound:
            replace_file(path, dump(records))
        return CacheFile(records)


def sentinel(path: Path, key: bytes) -> str:
    """`loading`: a living process has just given this entry to the driver. `died`: one did, and is no more. Else empty.

    There is a letter in it: L while its owner loads, D when somebody found that the owner died; none when the owner is done."""
    place = path.with_name(f"{path.name}.loading.{key.hex()[:16]}")
    try:
        handle = os.open(place, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))
    except OSError:
        return ""
    try:
        letter = os.read(handle, 1)
        if letter == b"D" or not letter:
            return "died" if letter else ""
        if fcntl is not None:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return "loading"
    finally:
        os.close(handle)
    return "died"
