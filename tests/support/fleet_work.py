"""What a piece can do to its process: for tests of the crews."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

from intaglio.fleet.pieces import FAILED, OK, TROUBLE, Job, Piece, Result
from intaglio.options.request import Request


def piece(work: str, name: str, note: Path | None = None) -> Piece:
    """`note`: a file that counts how often it was performed."""
    job = Job(f"key-{work}-{name}", "compile", name, "", "here")
    packages = "" if note is None else str(note)
    return Piece(f"support.fleet_work:{work}", (job,), Request(Path("none"), Path("none")), packages=packages)


def count(one: Piece) -> int:
    with open(one.packages, "a", encoding="utf-8") as file:
        file.write("x")
    return len(Path(one.packages).read_text(encoding="utf-8"))


def fine(one: Piece) -> list[Result]:
    print("this must not disturb anybody")
    os.write(1, b"nor this")
    return [Result(job.key, OK, figures={"ram": len(job.model)}) for job in one.jobs]


def counted(one: Piece) -> list[Result]:
    count(one)
    return fine(one)


def slow(one: Piece) -> list[Result]:
    time.sleep(0.2)
    return fine(one)


def litter(one: Piece) -> list[Result]:
    """Temporary files that nobody is left to remove."""
    folder = tempfile.mkdtemp(prefix="intaglio-build-")
    Path(one.packages).write_text(folder, encoding="utf-8")
    return hang(one)


def crash(one: Piece) -> list[Result]:
    os.kill(os.getpid(), signal.SIGSEGV)
    return fine(one)


def crash_once(one: Piece) -> list[Result]:
    return crash(one) if count(one) == 1 else fine(one)


def hang(one: Piece) -> list[Result]:
    time.sleep(1000)
    return fine(one)


def full_once(one: Piece) -> list[Result]:
    return [Result(one.key, TROUBLE, "disk-full: no space")] if count(one) == 1 else fine(one)


def wrong(one: Piece) -> list[Result]:
    return [Result(one.key, FAILED, "unsupported-operator: no kernel")]


def raises(one: Piece) -> list[Result]:
    raise ValueError("a bug")
