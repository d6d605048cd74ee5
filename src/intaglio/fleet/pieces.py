"""Jobs, the pieces that they are done in, and results. What this imports is little: a worker starts with it.

    ok              done; the figures say what it costs
    no              the answer is no: it does not fit, it does not validate
    not emulated    no emulator has a machine with this core: nothing can be run here, and nothing is wrong
    failed          the model or the request is at fault: it would fail again
    trouble         the machine is: a full disk, no memory. It is tried again; so is what crashed or took too long
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from intaglio.errors import AnswerIsNo, IntaglioError, ToolError, UserError, printable
from intaglio.options.request import Request

OK, NO, NOT_EMULATED, FAILED, TROUBLE = "ok", "no", "not emulated", "failed", "trouble"
ANSWERS = (OK, NO, NOT_EMULATED)
MOST_REASON = 400  # letters
Value = float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class Job:
    """One row of the table."""

    key: str
    kind: str
    model: str
    variant: str
    place: str

    @property
    def name(self) -> tuple[str, str, str, str]:
        return self.kind, self.model, self.variant, self.place


@dataclass(frozen=True, slots=True)
class Piece:
    """`work` is a function `module:name`, called with the piece; `boards`: of its jobs, in their order, for `fit`."""

    work: str
    jobs: tuple[Job, ...]
    request: Request
    sha256: str = ""
    boards: tuple[str, ...] = ()
    quick: bool = False
    packages: str = ""  # folder of the store

    @property
    def key(self) -> str:
        return self.jobs[0].key

    def limit_s(self, of_job: float) -> float:
        """A model may have to be built for each of the boards."""
        return of_job * max(1, len(self.boards))


@dataclass(frozen=True, slots=True)
class Result:
    key: str
    state: str
    reason: str = ""
    figures: Mapping[str, Value] = field(default_factory=dict)
    package: str = ""
    seconds: float = 0.0


def perform(piece: Piece) -> list[Result]:
    """Whatever `work` names; with its errors as results."""
    start = time.perf_counter()
    module, _, name = piece.work.partition(":")
    try:
        function: Callable[[Piece], list[Result]] = getattr(__import__(module, fromlist=[name]), name)
        found = function(piece)
    except Exception as error:
        state, reason = told(error)
        found = [Result(job.key, state, reason) for job in piece.jobs]
    spent = (time.perf_counter() - start) / max(1, len(found))
    return [one if one.seconds else replace(one, seconds=spent) for one in found]


def told(error: Exception) -> tuple[str, str]:
    if isinstance(error, AnswerIsNo):
        return NO, f"{error.slug}: {error.message}"
    if isinstance(error, ToolError):
        return TROUBLE, f"{error.slug}: {error.message}"
    if isinstance(error, OSError) and "No space left on device" in str(error):  # of one file, or of a folder that is copied
        return TROUBLE, "disk-full: there is no space left, in the store or for temporary files"
    if isinstance(error, (MemoryError, OSError)):
        return TROUBLE, f"{type(error).__name__}: {printable(str(error), MOST_REASON)}"
    if isinstance(error, UserError) and error.slug == "no-emulator":
        return NOT_EMULATED, error.message
    if isinstance(error, IntaglioError):
        return FAILED, f"{error.slug}: {error.message}"
    return FAILED, f"{type(error).__name__}: {printable(str(error), MOST_REASON)}"


__all__ = ["ANSWERS", "FAILED", "NO", "NOT_EMULATED", "OK", "TROUBLE", "Job", "Piece", "Result", "Value", "perform", "told"]
