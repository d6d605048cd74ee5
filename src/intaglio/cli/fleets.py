"""`intaglio fleet`: the jobs of a project file, with progress, a table at the end, and a page."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from intaglio.cli.reporting import check_export, check_place
from intaglio.cli.terminal import console, note, print_json, print_table
from intaglio.errors import UserError, counted
from intaglio.fleet.changes import RowChange, changes_of, export_run, summary_of
from intaglio.fleet.crews import Crew, LocalCrew, check_crew, connect, start_cluster
from intaglio.fleet.page import fleet_page
from intaglio.fleet.pieces import ANSWERS, NO, NOT_EMULATED, OK
from intaglio.fleet.run import Finished, Progress, run_fleet
from intaglio.fleet.store import Row, Store
from intaglio.fleet.summary import shortened, unanswered, where
from intaglio.package.folder import write_text
from intaglio.project.file import read_project

EVERY_S = 5.0  # a line of progress, where there is no terminal
SHOWN = 20
LEAST_MADE = 10  # jobs, before there is an estimate
DOES_NOT_FIT = "does-not-fit: "


@dataclass(frozen=True, slots=True)
class FleetWords:
    """What the command line says."""

    overrides: Sequence[str]
    jobs: int | None
    scheduler: str | None
    cluster: str | None
    again: bool
    report: Path | None
    export: Path | None
    json: bool


def fleet_words(file: Path, words: FleetWords) -> int:
    """Exit code 2: a job has no answer; 1: a budget is not met, or a package is wrong. That a model does not fit is an answer."""
    project = read_project(file, words.overrides, fleet=True)
    plan = project.fleet
    if plan is None:
        raise UserError("bad-project", f"`{file.name}` has no `[fleet]`", hint="see docs/guides/fleet.md")
    check_crew(words.scheduler, words.cluster)
    if words.report is not None:
        check_place(words.report)
    if words.export is not None:
        check_export(words.export)
    store = Store(plan.store)
    count = words.jobs or os.cpu_count() or 1

    def crew() -> Crew:
        if words.scheduler is not None:
            return connect(words.scheduler, note)
        if words.cluster is not None:
            return start_cluster(words.cluster, plan.clusters.get(words.cluster, {}), count, plan.store / "logs", note)
        return LocalCrew(count)

    start = time.perf_counter()
    try:
        with _told(count) as heard:
            done = run_fleet(plan, file.name, store, crew, heard, again=words.again)
    finally:
        store.close()
    changes = changes_of(done.old, done.rows) if done.before is not None else []
    before = f"run {done.before}" if done.before is not None else ""
    if words.report is not None:
        write_text(words.report, fleet_page(f"{file.name}, run {done.run}", done.rows, changes, before, done.budgets))
    if words.export is not None:
        export_run(words.export, done.rows)
    _say(done, changes, time.perf_counter() - start, words)
    return _code(done)


def _code(done: Finished) -> int:
    if unanswered(done.rows):
        return 2
    return 1 if _wrong(done) else 0


def _wrong(done: Finished) -> list[str]:
    """What makes the exit code 1."""
    found = [f"{counted(n, 'budget')} not met" for n in [sum(not budget.ok for budget in done.budgets)] if n]
    for row in done.rows:
        if row.kind != "fit" and row.state == NO and not row.reason.startswith(DOES_NOT_FIT):
            found.append(f"{where(row)}: {' '.join(row.reason.split())}")
    return found


@contextmanager
def _told(at_once: int) -> Iterator[Callable[[Progress], None]]:
    start, said = time.monotonic(), [time.monotonic()]

    def words(progress: Progress) -> str:
        made, left = progress.done - progress.known, progress.total - progress.done
        bad = sum(n for state, n in progress.states.items() if state not in ANSWERS)
        rest = ""
        if left and left <= at_once:
            rest = f", the last {'one runs' if left == 1 else f'{left} run'}"  # how long is not known
        elif left and (made >= LEAST_MADE or 4 * made >= left):
            rest = f", about {_span((time.monotonic() - start) / made * left)} left"
        return f"{progress.done:,} of {progress.total:,} jobs, {bad:,} without an answer{rest}"

    if sys.stderr.isatty():
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        with Bar(BarColumn(), TextColumn("{task.description}"), console=console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=None)
            yield lambda progress: bar.update(task, description=words(progress), completed=progress.done, total=progress.total)
        return

    def line(progress: Progress) -> None:
        if time.monotonic() - said[0] >= EVERY_S:
            said[0] = time.monotonic()
            note(words(progress))

    yield line


def _span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _say(done: Finished, changes: Sequence[RowChange], seconds: float, words: FleetWords) -> None:
    p = done.progress
    if words.json:
        rows = [asdict(row) for row in done.rows]
        told: dict[str, object] = {"run": done.run, "before": done.before, "known": p.known, "elsewhere": p.elsewhere}
        told |= {"seconds": seconds, "budgets": _budgets(done)}
        told |= {"changes": [asdict(c) for c in changes if not c.first], "first": [asdict(c) for c in changes if c.first]}
        print_json({**told, "results": rows})
        return
    beside = any(row.state == NOT_EMULATED for row in done.rows)
    heads = ["job", ">yes", ">no", *([">not emulated"] if beside else []), ">without an answer"]
    print_table(heads, [_row(kind, done.rows, beside) for kind in _kinds(done.rows)])
    new = p.total - p.known - p.elsewhere
    other = f", {p.elsewhere:,} by another run meanwhile" if p.elsewhere else ""
    print(f"run {done.run}: {counted(p.total, 'job')}, {new:,} done now, {p.known:,} known before{other}, {seconds:.1f} s")
    for what, path in (("report", words.report), ("figures", words.export)):
        if path is not None:
            print(f"{what}: {path}")
    full = "`--json` has all of them" if words.report is None else "the report has all of them"
    shortened([cause.text for cause in unanswered(done.rows)], SHOWN, note, "cause", full)
    for budget in done.budgets:
        note(f"{'budget met' if budget.ok else 'over budget' if budget.held else 'budget not checked'}: {budget.text}")
        shortened([one.text for one in budget.broken], SHOWN, note, "result", full)
    if done.before is not None:
        note(f"since run {done.before}: {summary_of(changes)}")
    if not unanswered(done.rows):
        shortened([f"exit code 1: {text}" for text in _wrong(done)], SHOWN, note, "reason", full)
    lines = [f"worse: {c.where}: {c.what} {c.before} -> {c.after} ({c.change})" for c in changes if c.worse]
    shortened(lines, SHOWN, note, "change", full)


def _budgets(done: Finished) -> list[dict[str, object]]:
    return [
        {"key": b.key, "limit": b.limit, "ok": b.ok, "checked": len(b.held), "broken": [one.text for one in b.broken]}
        for b in done.budgets
    ]


def _kinds(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.kind for row in rows))


def _row(kind: str, rows: Sequence[Row], beside: bool) -> list[str]:
    own = [row.state for row in rows if row.kind == kind]
    counts = [own.count(OK), own.count(NO), *([own.count(NOT_EMULATED)] if beside else [])]
    return [kind, *(f"{n:,}" for n in (*counts, sum(state not in ANSWERS for state in own)))]


__all__ = ["FleetWords", "fleet_words"]
