"""`intaglio report` and `intaglio compare`: a page to look at, differences to read, budgets that hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from intaglio.cli.terminal import ending, note, print_json, print_table
from intaglio.errors import UserError, counted, quoted
from intaglio.fleet.changes import EXPORT_BEGINS, GONE, RowChange, changes_of, read_run, summary_of
from intaglio.fleet.summary import shortened
from intaglio.package.entries import FOLDER, Entries, read_entries
from intaglio.package.folder import check_kind, check_parents, write_text
from intaglio.package.manifest import read_manifest
from intaglio.report.budgets import Checked, Rule, check_budgets, read_budgets, read_rule
from intaglio.report.code import code_of
from intaglio.report.differences import Difference, LayerChange, difference
from intaglio.report.facts import Facts
from intaglio.report.gather import Wanted, gather
from intaglio.report.page import page
from intaglio.report.whole import Looked, look_at_whole
from intaglio.run.package import Package

SHOWN_LAYERS = 20
SHOWN_LOST = 20  # jobs


def write_report(
    folder: Path, other: Path | None, output: Path | None, budget: Path | None, wanted: Wanted, *, json: bool = False
) -> int:
    """The page of one package, or of one beside an earlier one. Exit code 1: a budget is broken."""
    path = output or Path(f"{folder.resolve().name}.html")
    check_place(path)
    if (whole := read_entries(folder)) is not None:
        return _report_entries(whole, folder, other, path, budget, wanted, json=json)
    limits = {} if budget is None else read_budgets(budget)
    facts = gather(folder, wanted, lambda what: note(f"{what} {folder.name} ..."))
    before = None if other is None else gather(other, wanted, lambda what: note(f"{what} {other.name} ..."))
    checked = check_budgets(limits, facts)
    _write(path, folder, facts, checked, None if before is None else difference(before, facts, (str(other), str(folder))))
    if json:
        print_json({**asdict(facts), "budgets": [asdict(c) for c in checked], "report": str(path)})
    else:
        _tell(path, facts)
    return tell_budgets(checked)


def _report_entries(
    whole: Entries, folder: Path, other: Path | None, path: Path, budget: Path | None, wanted: Wanted, *, json: bool
) -> int:
    """One page for all entry points."""
    if other is not None:
        first = whole.entries[0].name
        hint = f"compare those of one entry point: `intaglio report A/{FOLDER}/{first} B/{FOLDER}/{first}`"
        raise UserError("which-entry", f"{quoted(str(folder), 200)} has several entry points", hint=hint)
    limits = {} if budget is None else read_budgets(budget)
    looked = look_at_entries(whole, folder, path, limits, wanted)
    if json:
        told = {name: {**asdict(facts), "budgets": _rows(looked, name)} for name, facts in looked.facts.items()}
        print_json({"entries": told, "budgets": _rows(looked, ""), "report": str(path)})
    return tell_looked(looked, path if not json else None)


def _rows(looked: Looked, name: str) -> list[dict[str, object]]:
    return [asdict(one) for one in looked.checked.get(name, ())]


def look_at_entries(whole: Entries, folder: Path, path: Path | None, limits: dict[str, float], wanted: Wanted) -> Looked:
    looked = look_at_whole(whole, folder, limits, wanted, lambda what, name: note(f"{what} {name} ..."), paged=path is not None)
    if path is not None:
        write_text(path, looked.page)
    return looked


def tell_looked(looked: Looked, path: Path | None) -> int:
    """The page, where there is one to tell, and the budgets that do not hold."""
    if path is not None:
        for text in dict.fromkeys(text for facts in looked.facts.values() for text in facts.notes):
            note(f"note: {text}")
        print(f"report: {path} ({path.stat().st_size:,} bytes)")
    for text in looked.broken():
        note(f"over budget: {text}")
    count = sum(map(len, looked.checked.values()))
    if count and not looked.broken():
        note(f"within all {count} budgets" if count > 1 else "within its budget")
    return 1 if looked.broken() else 0


def look_at(folder: Path, path: Path | None, limits: dict[str, float]) -> int:
    """After a compile: the page, and the budgets."""
    facts = gather(folder, Wanted(), lambda what: note(f"{what} {folder.name} ..."))
    checked = check_budgets(limits, facts)
    if path is not None:
        _write(path, folder, facts, checked, None)
        _tell(path, facts)
    return tell_budgets(checked)


def _write(path: Path, folder: Path, facts: Facts, checked: tuple[Checked, ...], change: Difference | None) -> None:
    code, no_assembly = code_of(Package(folder))
    write_text(path, page(facts, code, no_assembly, checked, change))


def _tell(path: Path, facts: Facts) -> None:
    for text in facts.notes:
        note(f"note: {text}")
    print(f"report: {path} ({path.stat().st_size:,} bytes)")


def check_place(path: Path) -> None:
    """Before anything is measured: a page replaces a page, nothing else."""
    _check_file(path, "the name of an HTML file")
    check_kind(path, "a page", (b"<!doctype html", b"<!DOCTYPE html", b"<!DOCTYPE HTML"))


def check_export(path: Path) -> None:
    """The same for the figures of a fleet."""
    _check_file(path, "the name of a JSON file")
    check_kind(path, "a file of figures", (EXPORT_BEGINS,))


def _check_file(path: Path, wanted: str) -> None:
    if path.is_dir():
        raise UserError("output-exists", f"{quoted(str(path), 200)} is a folder", hint=f"give {wanted}")
    if not path.exists() or path.is_file():  # else a pipe or a device
        check_parents(path, "use a file in a folder that can be written")


def tell_budgets(checked: Sequence[Checked]) -> int:
    """A line for each that is broken."""
    broken = [c for c in checked if not c.ok]
    for one in broken:
        note(f"over budget: {one.text}")
    if checked and not broken:
        note(f"within all {len(checked)} budgets" if len(checked) > 1 else "within its budget")
    return 1 if broken else 0


def compare_packages(
    before: Path, after: Path, fail_if: Sequence[str], budget: Path | None, wanted: Wanted, *, json: bool, markdown: bool
) -> int:
    """Exit code 1: a rule or a budget is broken."""
    rules = [read_rule(text) for text in fail_if]
    limits = {} if budget is None else read_budgets(budget)
    wholes = [read_entries(folder) for folder in (before, after)]
    if wholes[0] is not None and wholes[1] is not None:
        return _compare_entries((before, wholes[0]), (after, wholes[1]), rules, limits, wanted, json=json, markdown=markdown)
    for folder in (before, after):
        read_manifest(folder)  # before one of them is measured
    told: dict[str, object] = {}
    code = _compared(before, after, rules, limits, wanted, told, markdown=markdown, json=json)
    if json:
        print_json(told)
    return code


def _compare_entries(
    before: tuple[Path, Entries], after: tuple[Path, Entries], rules: Sequence[Rule], limits: dict[str, float], wanted: Wanted,
    *, json: bool, markdown: bool,
) -> int:  # fmt: skip
    """Each entry point that both have; those that one has alone are named. Rules and budgets hold for each."""
    names = [[row.name for row in whole.entries] for _, whole in (before, after)]
    found: dict[str, object] = {}
    codes = [0]
    for name in names[1]:
        if name in names[0]:
            if not json:
                print(f"## {name}" if markdown else f"{name}:")
            told: dict[str, object] = {}
            old, new = (folder / FOLDER / name for folder, _ in (before, after))
            codes.append(_compared(old, new, rules, limits, wanted, told, markdown=markdown, json=json))
            found[name] = told
    gone, added = [n for n in names[0] if n not in names[1]], [n for n in names[1] if n not in names[0]]
    sizes = {key: [getattr(whole, key) for _, whole in (before, after)] for key in ("arena_bytes", "weight_bytes")}
    if json:
        print_json({"entries": found, "gone": gone, "new": added, **sizes})
    else:
        for text, listed in (("gone", gone), ("new", added)):
            if listed:
                print(f"{text}: {', '.join(map(quoted, listed))}")
        words = {"arena_bytes": "arena", "weight_bytes": "weights"}
        print("; ".join(f"{words[key]} of all: {a:,} -> {b:,} bytes" for key, (a, b) in sizes.items()))
    return max(codes)


def _compared(
    before: Path, after: Path, rules: Sequence[Rule], limits: dict[str, float], wanted: Wanted, told: dict[str, object],
    *, json: bool, markdown: bool,
) -> int:  # fmt: skip
    """One package beside another; as `told` for JSON."""
    old = gather(before, wanted, lambda what: note(f"{what} {before.name} ..."))
    new = gather(after, wanted, lambda what: note(f"{what} {after.name} ..."))
    made = difference(old, new, (str(before), str(after)))
    changes = {change.key: change for change in made.figures}
    unknown = [rule for rule in rules if rule.key not in changes or not rule.can_tell(changes[rule.key])]
    broken = [rule for rule in rules if rule not in unknown and rule.broken(changes[rule.key])]
    checked = check_budgets(limits, new)
    if json:
        lines = [rule.text for rule in (*broken, *unknown)]
        told.update({**asdict(made), "budgets": [asdict(c) for c in checked], "broken": lines})
    elif markdown:
        print(_markdown(made, [*broken, *unknown], checked, new))
    else:
        _print(made)
    for rule in unknown:
        note(f"broken rule: `{rule.text}`: the {rule.key} of both packages is not known here")
    for rule in broken:
        change = changes[rule.key]
        note(f"broken rule: `{rule.text}`: {change.label} {change.before_text} -> {change.after_text} ({change.change_text})")
    return max(tell_budgets(checked), 1 if broken or unknown else 0)


def compare_runs(before: Path, after: Path, fail_if: Sequence[str], *, json: bool, markdown: bool) -> int:
    """Two runs of a fleet. A rule holds for every job that both have; exit code 1: one is broken or says nothing of any job, or a
    job that had an answer has none."""
    rules = [read_rule(text) for text in fail_if]
    changes = changes_of(read_run(before), read_run(after), every=True)
    told_of = [c for c in changes if c.figure is None or c.worse or c.better]
    shown, first = [c for c in told_of if not c.first], [c for c in told_of if c.first]
    found = [(rule, c) for rule in rules for c in changes if c.figure is not None and c.figure.key == rule.key]
    broken = [(rule, c) for rule, c in found if c.figure is not None and rule.can_tell(c.figure) and rule.broken(c.figure)]
    unknown = [rule for rule in rules if not any(r is rule and c.figure is not None and rule.can_tell(c.figure) for r, c in found)]
    lost = [c for c in changes if c.lost]
    if json:
        told = [rule.text for rule in dict.fromkeys([*(rule for rule, _ in broken), *unknown])]
        lists = {"changes": [asdict(c) for c in shown], "first": [asdict(c) for c in first], "broken": told}
        print_json({"before": str(before), "after": str(after), **lists})
    else:
        _print_runs(shown, markdown=markdown)
        if told_of:
            print(summary_of(told_of))
    for rule, c in broken:
        note(f"broken rule: `{rule.text}`: {c.where}: {c.what} {c.before} -> {c.after} ({c.change})")
    for rule in unknown:
        note(f"broken rule: `{rule.text}`: no job in both runs has the figure {quoted(rule.key)}")
    lines = [f"no answer any more: {c.where}: {c.before} -> {c.after} ({c.change})" for c in lost]
    shortened(lines, SHOWN_LOST, note, "job", "`--json` has all of them")
    return 1 if broken or unknown or lost else 0


def _print_runs(changes: Sequence[RowChange], *, markdown: bool) -> None:
    gone: Counter[str] = Counter()
    head = ["model", "place", "job", "figure", "before", "now", "change"]
    if not markdown and sum(c.change == GONE for c in changes) > SHOWN_LOST:  # a line for each would hide the rest
        gone = Counter(f"{c.model} {c.variant}".strip() for c in changes if c.change == GONE)
        changes = [c for c in changes if c.change != GONE]
        for model, count in gone.items():
            print(f"{model}: {counted(count, 'job')} gone")
    rows = [[f"{c.model} {c.variant}".strip(), c.place, c.kind, c.what, c.before, c.after, c.change] for c in changes]
    if not rows:
        print("no other result changed" if gone else "no result changed")
    elif markdown:
        print("\n".join([f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}", *(f"| {' | '.join(row)} |" for row in rows)]))
    else:
        for row, c in zip(rows, changes, strict=True):
            print(f"{row[0]} on {row[1]}, {row[2]}: {row[3]} {row[4]} -> {row[5]} ({row[6]}{', worse' if c.worse else ''})")


def _print(made: Difference) -> None:
    print(f"before  {made.before}\nnow     {made.after}")
    rows = [[f.label, f.before_text, f.after_text, f.change_text + (" worse" if f.worse else "")] for f in made.figures]
    print_table(["figure", ">before", ">now", ">change"], rows)
    if made.layers:
        print_table(["layer", "what", "before", "now"], [_row(change) for change in made.layers[:SHOWN_LAYERS]])
        if len(made.layers) > SHOWN_LAYERS:
            print(f"... and {len(made.layers) - SHOWN_LAYERS} changes more; `--json` has all of them")
    else:
        print("no layer changed")


def _row(change: LayerChange) -> list[str]:
    return [ending(change.layer, 24), change.what, change.before, change.after]


def _markdown(made: Difference, broken: Sequence[Rule], checked: Sequence[Checked], facts: Facts) -> str:
    """For a comment under a change."""
    lines = [f"### Intaglio: `{facts.name}` for {facts.board or facts.target}", ""]
    lines += ["| figure | before | now | change |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {f.label} | {f.before_text} | {f.after_text} | {f.change_text}{' ⚠' if f.worse else ''} |" for f in made.figures]
    if broken or any(not c.ok for c in checked):
        lines += ["", *(f"- ❌ `{rule.text}`" for rule in broken), *(f"- ❌ {c.text}" for c in checked if not c.ok)]
    if made.layers:
        lines += ["", f"<details><summary>{len(made.layers)} changes of layers</summary>", ""]
        lines += ["| layer | what | before | now |", "| --- | --- | --- | --- |"]
        lines += [f"| `{c.layer}` | {c.what} | {c.before} | {c.after} |" for c in made.layers[:100]]
        lines += ["", "</details>"]
    return "\n".join(lines)


__all__ = ["check_place", "compare_packages", "compare_runs", "look_at", "tell_budgets", "write_report"]
