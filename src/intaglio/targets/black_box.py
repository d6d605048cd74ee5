"""What a process was doing when it died: a plug-in may take it down (a bad pointer in C), and then only its parent can say so.

The command line runs in a child where plug-ins are called; both share a page of memory, in which the child notes which plug-in it
is calling and which folder it is writing. Elsewhere nothing is noted.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager

SIZE = 4096
_page: mmap.mmap | None = None


def open_page() -> mmap.mmap:
    """Before the child is made: from now on calls are noted."""
    global _page
    _page = mmap.mmap(-1, 2 * SIZE)
    return _page


@contextmanager
def during(who: str, what: str) -> Iterator[None]:
    """This plug-in is at work; calls may be nested."""
    before = _read(0)
    _write(0, f"{who}\n{what}")
    try:
        yield
    finally:
        _write(0, before)


def writing_to(folder: str) -> None:
    """A folder that has to go if the process dies; "": none any more."""
    _write(1, folder)


def found(page: mmap.mmap) -> tuple[str, str, str]:
    """Who was called, for what, and which folder is left; empty where nothing was noted."""
    parts = [page[n * SIZE : (n + 1) * SIZE].rstrip(b"\0").decode(errors="replace") for n in range(2)]
    who, _, what = parts[0].partition("\n")
    return who, what, parts[1]


def _read(part: int) -> str:
    return "" if _page is None else _page[part * SIZE : (part + 1) * SIZE].rstrip(b"\0").decode(errors="replace")


def _write(part: int, text: str) -> None:
    if _page is not None:
        _page[part * SIZE : (part + 1) * SIZE] = text.encode()[:SIZE].ljust(SIZE, b"\0")
