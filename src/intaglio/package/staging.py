"""Folders that are written beside an output, and what a killed process has left of them.

    .out-k3v9x2ab.lock     held (flock) while a process writes; it says that the folders of its name are ours
    .out-k3v9x2ab          what becomes the output
    .out-k3v9x2ab-old      what `--force` replaces, for the moment in which both are there

A process that was killed holds no lock any more: whoever writes the same output next removes what it left. If it was killed between
the two renames of `--force`, the package from before is put back.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, and nothing is removed
    fcntl = None  # type: ignore[assignment]

MARK = b"intaglio writes the folders of this name\n"
MOST_NAME = 40


@contextmanager
def staging_folder(output: Path) -> Iterator[Path]:
    """A fresh folder beside the output; gone at the end, if it was not renamed."""
    handle, name = tempfile.mkstemp(prefix=f".{output.name[:MOST_NAME]}-", suffix=".lock", dir=output.parent)
    lock = Path(name)
    folder = lock.with_suffix("")
    try:
        if _locked(handle):
            os.write(handle, MARK)
        os.mkdir(folder, 0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        lock.unlink(missing_ok=True)
        os.close(handle)


def old_folder(staging: Path) -> Path:
    """For what is replaced."""
    made = staging.with_name(f"{staging.name}-old")
    os.mkdir(made, 0o700)
    return made


def _locked(handle: int) -> bool:
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held by its writer, or a file system without locks
        return False
    return True


def remove_left(output: Path) -> None:
    """What a killed process left. What is not ours, or in use, stays. So does what cannot be removed."""
    own = re.compile(re.escape(f".{output.name[:MOST_NAME]}-") + r"[a-z0-9_]{8}\.lock")
    try:
        names = [name for name in os.listdir(output.parent) if own.fullmatch(name)]
    except OSError:
        return
    for name in sorted(names):
        lock = output.parent / name
        try:
            handle = os.open(lock, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            continue
        try:
            if _locked(handle) and os.read(handle, len(MARK) + 1) == MARK:
                _clear(lock.with_suffix(""), output)
                lock.unlink(missing_ok=True)
        except OSError:
            continue
        finally:
            os.close(handle)


def _clear(folder: Path, output: Path) -> None:
    old = folder.with_name(f"{folder.name}-old")
    if (old / "package").is_dir() and not output.exists():
        os.rename(old / "package", output)
    for left in (folder, old):
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
