"""Two runs of a fleet beside each other: by model, variant, place and job. For the page, and for `intaglio compare`.

A run is what a store has of it (`STORE`, `STORE@3` for its third, `STORE@f.toml` for the last of that project file), or a file that
`intaglio fleet --export F.json` wrote: figures to keep in a repository."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from intaglio.errors import UserError, counted, quoted
from intaglio.fleet.pieces import NO, NOT_EMULATED, OK
from intaglio.fleet.store import FILE, Row, Store
from intaglio.package.folder import write_text
from intaglio.report.differences import FigureChange, compare_figures
from intaglio.report.facts import EMULATED, MEASURED, Figure

EXPORTED = "intaglio-fleet 1"
EXPORT_BEGINS = b'{"format": "intaglio-fleet '
FIGURES = {
    "ram": "RAM", "flash": "flash", "arena": "arena", "weights": "weights", "instructions": "instructions", "cycles": "cycles",
    "time": "time", "error": "error", "accuracy": "accuracy", "macs": "multiply-adds", "mismatches": "elements that differ",
}  # fmt: skip
NEW, GONE, FIRST = "new", "gone", "first answer"
_RANK = {OK: 0, NO: 1, NOT_EMULATED: 1}


@dataclass(frozen=True, slots=True)
class RowChange:
    kind: str
    model: str
    variant: str
    place: str
    what: str  # a figure, or `state`
    before: str
    after: str
    change: str
    worse: bool
    better: bool
    figure: FigureChange | None = None

    @property
    def first(self) -> bool:
        """There was no answer before: nothing to compare with."""
        return self.change == FIRST or (self.what == "job" and self.change == NEW)

    @property
    def lost(self) -> bool:
        """There was an answer, and there is none, or a worse one."""
        return self.worse if self.what == "state" else self.what == "job" and self.change == GONE and self.before in _RANK

    @property
    def where(self) -> str:
        return f"{f'{self.model} {self.variant}'.strip()} on {self.place}, {self.kind}"


def changes_of(before: Sequence[Row], after: Sequence[Row], *, every: bool = False) -> list[RowChange]:
    """`every`: also figures that are the same. A job without an answer in one of the runs has no figures to compare."""
    old, new = ({row.name: row for row in rows} for rows in (before, after))
    found: list[RowChange] = []
    for name in dict.fromkeys([*new, *old]):
        a, b = old.get(name), new.get(name)
        if a is None or b is None:
            found.append(RowChange(*name, "job", _state(a), _state(b), NEW if a is None else GONE, False, False))
            continue
        if a.state not in _RANK:
            if b.state in _RANK:
                found.append(RowChange(*name, "state", _state(a), _state(b), FIRST, False, False))
            continue
        if a.state != b.state:
            worse = _RANK.get(b.state, 2) > _RANK[a.state]
            found.append(RowChange(*name, "state", _state(a), _state(b), b.reason or b.state, worse, not worse))
        if b.state not in _RANK:
            continue
        found += [RowChange(*name, c.label, c.before_text, c.after_text, c.change_text, c.worse, c.better, c)
                  for c in _figures(a, b) if every or c.worse or c.better or c.before is None or c.after is None]  # fmt: skip
    return found


def summary_of(changes: Sequence[RowChange]) -> str:
    """`3 changes, 1 for the worse; 2 jobs with a first answer; 4 new jobs`"""
    real = [c for c in changes if not c.first and c.change != GONE]
    worse = sum(c.worse for c in real)
    told = [f"{counted(len(real), 'change')}, {worse:,} for the worse"]
    told += [f"{counted(n, 'job')} with a first answer"] if (n := sum(c.change == FIRST for c in changes)) else []
    told += [f"{counted(n, 'new job')}"] if (n := sum(c.first and c.change == NEW for c in changes)) else []
    told += [f"{counted(n, 'job')} gone"] if (n := sum(c.change == GONE and c.what == "job" for c in changes)) else []
    return "; ".join(told)


def _state(row: Row | None) -> str:
    return "-" if row is None else row.state or "not run"


def _figures(before: Row, after: Row) -> list[FigureChange]:
    made = []
    for key, label in FIGURES.items():
        pair = [_figure(row, key, label) for row in (before, after)]
        if any(one is not None for one in pair):
            made.append(compare_figures(*pair))
    return made


def _figure(row: Row, key: str, label: str) -> Figure | None:
    value = row.figures.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    unit = "ms" if key == "time" else "bytes" if key in ("ram", "flash", "arena", "weights") else ""
    measured = key == "time" and row.kind == "profile" and row.figures.get("instructions") is None
    return Figure(key, label, float(value), unit, MEASURED if measured else EMULATED)


# Runs that are somewhere ----------------------------------------------------------------------------------------------


def is_run(path: Path) -> bool:
    """Is this a run of a fleet, for `compare`?"""
    folder, _ = _parts(path)
    return (folder / FILE).is_file() or (path.suffix == ".json" and path.is_file())


def _parts(path: Path) -> tuple[Path, str]:
    """The store, and which of its runs: a number, the name of a project file, or nothing."""
    found = re.fullmatch(r"(.+)@(\d+|[^/@]+\.toml)", str(path))
    return (Path(found[1]), found[2]) if found is not None and not path.exists() else (path, "")


def read_run(path: Path) -> list[Row]:
    folder, wanted = _parts(path)
    if path.is_file():
        return _imported(path)
    store = Store(folder, create=False)
    try:
        with store.reading():
            runs = store.runs(wanted if wanted.endswith(".toml") else None)
            if wanted.isdigit():
                runs = [run for run in runs if run == int(wanted)]
            if not runs:
                what = f"{quoted(str(folder), 200)} has no run{f' {wanted}' if wanted else ''} that came to its end"
                known = f"runs: {', '.join(map(str, store.runs())) or 'none'}; of {', '.join(store.files()) or 'no file'}"
                raise UserError("no-run", what, hint=f"{known}; the last one is meant by default")
            return store.rows(runs[-1])
    finally:
        store.close()


def export_run(path: Path, rows: Sequence[Row]) -> None:
    """Sorted, a result in a line: a change of it is a line of a patch. Without what differs from machine to machine."""
    lines = []
    for row in sorted(rows, key=lambda row: row.name):
        told = {**asdict(row), "figures": {k: v for k, v in row.figures.items() if v is not None}}
        told.pop("package")
        if row.kind == "profile" and row.figures.get("instructions") is None:
            told["figures"] = {k: v for k, v in row.figures.items() if v is not None and k != "time"}
        lines.append(json.dumps(told, sort_keys=True))
    write_text(path, f'{{"format": "{EXPORTED}", "results": [\n' + ",\n".join(lines) + "\n]}\n")


def _row(number: int, told: object) -> Row:
    kinds = {"kind": str, "model": str, "variant": str, "place": str, "state": str, "reason": str, "figures": dict}
    if not isinstance(told, dict):
        raise ValueError(f"result {number} is not a table")
    for key, kind in kinds.items():
        if not isinstance(told.get(key), kind):
            raise ValueError(f"result {number} has no `{key}`")
    return Row(*(told[key] for key in kinds))


def _imported(path: Path) -> list[Row]:
    hint = "`intaglio fleet FILE --export F.json` writes one"
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(told, dict) or told.get("format") != EXPORTED:
            raise ValueError(f"it does not begin with `\"format\": \"{EXPORTED}\"`")
        return [_row(n, row) for n, row in enumerate(told.get("results", ()), 1)]
    except OSError as error:
        raise UserError("no-such-file", f"cannot read {quoted(str(path), 200)}: {error.strerror}", hint=hint) from None
    except (ValueError, TypeError) as error:
        raise UserError("bad-run", f"{quoted(path.name)} has no results of a fleet: {error}", hint=hint) from None


__all__ = ["EXPORT_BEGINS", "GONE", "RowChange", "changes_of", "export_run", "is_run", "read_run", "summary_of"]
