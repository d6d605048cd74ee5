"""One runtime in a process of its own, pinned to one core: it loads a model, then runs a round on request.

A runtime that crashes or hangs ends its process and no more; the next model gets a new one. While one runtime measures, the others
wait at a pipe.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import statistics
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TypeVar

import numpy as np

from figures import LayerTime
from peers import open_session
from peers.base import Missing, Session, Work

LOAD_SECONDS = 900.0
ROUND_SECONDS = 300.0
LEAST_CALLS = 3
Given = TypeVar("Given")


@dataclass(frozen=True, slots=True)
class Round:
    """Medians over the calls of a round, in ms: by the clock, and of the processor's time that the process used."""

    wall_ms: float
    cpu_ms: float


def one_round(session: Session, seconds: float) -> Round:
    wall: list[float] = []
    used: list[float] = []
    end = time.perf_counter() + seconds
    while (len(wall) < LEAST_CALLS and sum(wall) < 2 * seconds) or time.perf_counter() < end:
        start, start_used = time.perf_counter(), time.process_time()
        session.run()
        used.append(time.process_time() - start_used)
        wall.append(time.perf_counter() - start)
    return Round(statistics.median(wall) * 1e3, statistics.median(used) * 1e3)


class Worker:
    """The near end of the pipe."""

    def __init__(self, name: str, core: int) -> None:
        self.name, self.core = name, core
        self.process: multiprocessing.process.BaseProcess | None = None

    def _ask(self, request: tuple[object, ...], seconds: float, kind: type[Given]) -> Given:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, far = context.Pipe()
            self.process = context.Process(target=_serve, args=(self.name, self.core, far), daemon=False)
            self.process.start()
            far.close()
        try:
            self.pipe.send(request)
            if not self.pipe.poll(seconds):
                self.stop()
                raise Missing(f"no answer within {seconds:.0f} s")
            answer = self.pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self.process.join(5)
            code = self.process.exitcode
            self.process = None
            raise Missing(f"the process ended with code {code}") from None
        if isinstance(answer, Missing):
            raise answer
        assert isinstance(answer, kind)
        return answer

    def load(self, work: Work) -> list[np.ndarray]:
        """Its outputs."""
        return self._ask(("load", work), LOAD_SECONDS, list)

    def round(self, seconds: float) -> Round:
        return self._ask(("round", seconds), ROUND_SECONDS, Round)

    def layers(self) -> list[LayerTime]:
        return self._ask(("layers",), ROUND_SECONDS, list)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def _serve(name: str, core: int, pipe: Connection) -> None:
    """The far end: until the pipe closes."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})
    sys.stdout.flush()
    _silence()
    session: Session | None = None
    with contextlib.suppress(EOFError, KeyboardInterrupt, BrokenPipeError):
        while True:
            match pipe.recv():
                case ("load", Work() as work):
                    session = None
                    answer: object
                    try:
                        session = open_session(name, work)
                        answer = [np.array(a) for a in session.outputs()]
                    except Exception as error:
                        answer = _reason(error)
                case ("round", float(seconds)) if session is not None:
                    answer = one_round(session, seconds)
                case ("layers",) if session is not None:
                    try:
                        answer = session.layers()
                    except Exception as error:
                        answer = _reason(error)
                case other:
                    answer = Missing(f"no model is loaded for {other}")
            pipe.send(answer)


def _reason(error: Exception) -> Missing:
    if isinstance(error, ModuleNotFoundError):
        return Missing(f"not installed: no module `{error.name}`")
    text = " ".join(str(error).split())
    return Missing(text if isinstance(error, Missing) else f"{type(error).__name__}: {text}")


def _silence() -> None:
    """Runtimes write remarks to both streams, some from C."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
