"""`intaglio compile` of several entry points: several models, or several sizes of one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from intaglio.cli.reporting import check_place, look_at_entries, tell_looked
from intaglio.cli.terminal import bytes_text, note, print_json, progress_bar, say
from intaglio.errors import counted, quoted
from intaglio.options.entries import entry_words
from intaglio.options.reading import request_of_words
from intaglio.package.entries import Entries, read_entries
from intaglio.pipeline import compile_entry_requests
from intaglio.report.budgets import read_budgets
from intaglio.report.gather import Wanted
from intaglio.stages.watch import Watch


def compile_entry_words(
    models: list[Path], output: Path, json: bool, words: Mapping[str, object], named: list[str],
    report: Path | None = None, budget: Path | None = None,
) -> int:  # fmt: skip
    """Exit code 1: a budget is broken."""
    if report is not None:
        check_place(report)
    limits = {} if budget is None else read_budgets(budget)
    requests = {
        entry: request_of_words(model, output, own) for entry, (model, own) in entry_words(models, words, named).items()
    }
    name, force = words.get("name"), bool(words.get("force"))
    with progress_bar() as progress:
        current: list[bool] = []
        watch = Watch(
            note=lambda text: note(text if text.startswith("warning:") else f"note: {text}"), progress=progress,
            current=lambda: current.append(True),
        )  # fmt: skip
        compile_entry_requests(requests, output, watch, name=str(name) if name else None, force=force)
    whole = read_entries(output)
    assert whole is not None
    _tell(whole, output, words, json=json, current=bool(current))
    if report is None and not limits:
        return 0
    return tell_looked(look_at_entries(whole, output, report, limits, Wanted()), None if json else report)


def _tell(whole: Entries, output: Path, words: Mapping[str, object], *, json: bool, current: bool) -> None:
    if json:
        rows = {row.name: {"arena_bytes": row.arena_bytes, "weight_bytes": row.weight_bytes} for row in whole.entries}
        told = {"package": str(output), "name": whole.name, "target": whole.target, "arena_bytes": whole.arena_bytes}
        print_json({**told, "weight_bytes": whole.weight_bytes, "entries": rows})
        return
    if current:
        print(f"`{whole.name}` for {whole.target} is up to date, nothing was compiled; `--force` compiles it again")
        print(f"package: {output}")
        return
    names = ", ".join(quoted(row.name) for row in whole.entries)
    say(
        f"compiled `{whole.name}` for {whole.target}: {counted(len(whole.entries), 'entry point')} ({names}), weights "
        f"{bytes_text(whole.weight_bytes)} ({bytes_text(whole.separate_weight_bytes)} if nothing were shared), arena "
        f"{whole.arena_bytes:,} bytes"
    )
    if whole.firmware is not None:
        program = whole.firmware
        stack = "an unbounded stack" if program.stack_bytes is None else f"stack {program.stack_bytes:,}"
        say(f"all in one program: flash {program.flash_bytes:,} bytes, RAM {program.ram_bytes:,} bytes, {stack} of it")
    print(f"package: {output}")
    if words.get("archive"):
        print(f"archive: {output}.{words.get('archive_format') or 'tar.gz'}")
