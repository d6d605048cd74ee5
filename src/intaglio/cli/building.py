"""`intaglio build`: everything that the project file asks for, with one table at the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from intaglio.cli.terminal import note, print_json, print_table, progress_bar
from intaglio.project.build import FAILED, OVER, Outcome, build_project
from intaglio.project.file import read_project


def build_words(file: Path, names: Sequence[str], overrides: Sequence[str], jobs: int, *, force: bool, json: bool) -> int:
    """The exit code is the highest of the jobs."""
    project = read_project(file, overrides)
    count = len(project.jobs) + len(project.firmware)
    done: list[Outcome] = []
    with progress_bar("building") as progress:

        def hear(outcome: Outcome) -> None:
            done.append(outcome)
            if progress is not None:
                progress(outcome.name, len(done), count)
            elif not json:
                note(f"[{len(done)}] {outcome.name}: {outcome.state}")

        outcomes = build_project(project, names, jobs, force=force, heard=hear)
    if json:
        rows_json = [{**asdict(outcome), "files": [str(path) for path in outcome.files]} for outcome in outcomes]
        print_json({"project": str(file), "outcomes": rows_json})
    else:
        rows = [[o.name, o.target, o.state, _size(o.ram_bytes), _size(o.flash_bytes), f"{o.seconds:.1f}"] for o in outcomes]
        print_table(["package", "target", "state", ">RAM", ">flash", ">s"], rows)
        for path in (path for outcome in outcomes for path in outcome.files):
            print(f"made: {path}")
    for outcome in outcomes:
        for line in outcome.lines:
            note(f"{outcome.name}: {line}" if outcome.state in (OVER, FAILED) else line)
    return max((outcome.code for outcome in outcomes), default=0)


def _size(size: int | None) -> str:
    return "" if size is None else f"{size:,}"


__all__ = ["build_words"]
