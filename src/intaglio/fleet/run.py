"""One run of a fleet: what is missing is performed, recorded as it comes in, and tried again where a process was lost.

Another run on the same store may be at work. Before a piece is handed out, its jobs are looked up and claimed: what has a result
now is not done again, and what the other run works on is waited for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from intaglio.fleet.crews import Crew, Outcome
from intaglio.fleet.jobs import missing, pieces_of
from intaglio.fleet.pieces import ANSWERS, FAILED, Piece, Result
from intaglio.fleet.store import Row, Store
from intaglio.fleet.summary import Budget, budgets_of
from intaglio.fleet.worker import LATE
from intaglio.project.fleet import FleetPlan

WAIT_S = 0.5


@dataclass
class Progress:
    """`done` of `total` jobs have a result; `known`: they had one before this run; `elsewhere`: another run made it meanwhile."""

    total: int
    known: int
    done: int = 0
    elsewhere: int = 0
    states: Counter[str] = field(default_factory=Counter)
    retried: int = 0


@dataclass(frozen=True, slots=True)
class Finished:
    run: int
    before: int | None  # the run before it
    rows: tuple[Row, ...]
    old: tuple[Row, ...]
    progress: Progress
    budgets: tuple[Budget, ...]


def run_fleet(
    plan: FleetPlan, file: str, store: Store, crew: Callable[[], Crew], heard: Callable[[Progress], None], *, again: bool = False
) -> Finished:
    """`crew` is asked for when there is something to do. `again`: failures too are tried once more."""
    pieces = pieces_of(plan)
    jobs = [job for piece in pieces for job in piece.jobs]
    store.forget_lost()
    before = store.runs(file)
    run = store.begin(file, jobs)
    done = store.done(job.key for job in jobs)
    if again:
        failed = store.failed(done)
        store.forget(failed)
        done -= failed
    progress = Progress(len(jobs), len(done), len(done))
    left = missing(pieces, done)
    if left:
        workers = crew()
        try:
            _perform(plan, store, workers, left, progress, heard)
        finally:
            workers.close()
    store.end(run)
    rows = tuple(store.rows(run))
    last = next((r for r in reversed(before) if r != run), None)
    old = tuple(store.rows(last)) if last is not None else ()
    return Finished(run, last, rows, old, progress, budgets_of(rows, plan.budget))


def _perform(
    plan: FleetPlan, store: Store, crew: Crew, pieces: list[Piece], progress: Progress, heard: Callable[[Progress], None]
) -> None:
    attempts: Counter[str] = Counter()
    while pieces:
        again: list[Piece] = []
        worked = False
        for piece, outcome in crew.perform(_claimed(store, pieces, again, progress, crew.at_once), plan.timeout_s):
            worked = True
            attempts[piece.key] += 1
            results = _results(piece, outcome, plan.timeout_s)
            troubled = [one for one in results if one.state not in (*ANSWERS, FAILED)]
            if troubled and attempts[piece.key] <= plan.retries:
                progress.retried += 1
                again.append(piece)
                continue
            store.record(piece.jobs, results, attempts[piece.key])
            progress.done += len(results)
            progress.states.update(one.state for one in results)
            heard(progress)
        heard(progress)
        if not worked:
            time.sleep(WAIT_S)  # all that is left is with another run
        pieces = again


def _claimed(store: Store, pieces: Iterable[Piece], later: list[Piece], progress: Progress, at_once: int) -> Iterator[Piece]:
    """When they are about to start: without what is done by now, or being done by another run, which goes to `later`."""
    rest = iter(pieces)
    while part := list(islice(rest, at_once)):
        keys = [job.key for piece in part for job in piece.jobs]
        done, busy = store.claim(keys)
        progress.done += len(done)
        progress.elsewhere += len(done)
        later.extend(missing(part, set(keys) - busy))
        yield from missing(part, done | busy)


def _results(piece: Piece, outcome: Outcome, timeout_s: float) -> list[Result]:
    if not isinstance(outcome, str):
        return outcome
    late = f"it took longer than {piece.limit_s(timeout_s):g} s"
    reason = late if outcome == LATE else "its process ended; run it alone to see why"
    return [Result(job.key, outcome, reason) for job in piece.jobs]


__all__ = ["Finished", "Progress", "run_fleet"]
