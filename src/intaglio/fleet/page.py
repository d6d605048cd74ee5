"""One page about a run of a fleet: which boards take which model, what it costs, which budgets hold, what changed since the run
before, and why jobs have no answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from intaglio.errors import counted
from intaglio.fleet.changes import RowChange, summary_of
from intaglio.fleet.front_page import UNITS, plain
from intaglio.fleet.pieces import ANSWERS, NO, NOT_EMULATED, OK
from intaglio.fleet.store import Row
from intaglio.fleet.summary import Budget, unanswered, where
from intaglio.targets.target import all_targets

MOST = 2000  # rows of a table: more are counted
MARKS = {OK: ("ok", "yes"), NO: ("no", "no"), NOT_EMULATED: ("none", "not emulated"), "": ("none", "-")}
_STYLE = """
main { max-width: none; padding: 1rem; }
td.ok { background: color-mix(in srgb, seagreen 22%, transparent); }
td.no { background: color-mix(in srgb, orange 22%, transparent); }
td.bad { background: color-mix(in srgb, crimson 30%, transparent); }
td.none { opacity: .5; }
table.fleet { border-collapse: collapse; font-size: .85rem; }
table.fleet td, table.fleet th { padding: .2rem .5rem; border: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
table.fleet th { text-align: left; font-weight: 600; }
table.fleet td { text-align: right; white-space: nowrap; }
table.fleet thead th { position: sticky; top: 0; background: Canvas; writing-mode: vertical-rl; }
table.fleet thead th:first-child { z-index: 2; }
table.fleet th:first-child { position: sticky; left: 0; z-index: 1; background: Canvas; }
div.wide { overflow: auto; max-height: 80vh; }
"""


def fleet_page(title: str, rows: Sequence[Row], changes: Sequence[RowChange], before: str, budgets: Sequence[Budget] = ()) -> str:
    css = (files("intaglio.report") / "page" / "page.css").read_text(encoding="utf-8")
    parts = [_overview(rows), _budgets(budgets), _matrix(rows), _costs(rows), _changes(changes, before), _reasons(rows)]
    body = "".join(text for part in parts for text in part)
    name = escape(title)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{name}</title>'
    head += f'<meta name="color-scheme" content="light dark"><style>{css}{_STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body><main><h1>{name}</h1>{body}</main></body></html>\n'


def _overview(rows: Sequence[Row]) -> Iterator[str]:
    models, places = {(r.model, r.variant) for r in rows}, {r.place for r in rows}
    bad = [r for r in rows if r.state not in ANSWERS]
    fits = [r for r in rows if r.kind == "fit"]
    yield f"<p>{counted(len(models), 'model')}, {counted(len(places), 'place')}, {counted(len(rows), 'result')}"
    if fits:
        yield f"; {sum(r.state == OK for r in fits):,} of {len(fits):,} pairs of model and board fit"
    yield f"; {counted(len(bad), 'job')} without an answer.</p>"


def _budgets(budgets: Sequence[Budget]) -> Iterator[str]:
    """Each with what is within it; then what is not, the worst first, and by how much."""
    if not budgets:
        return
    yield '<h2>Budgets</h2><table class="fleet"><tbody>'
    for b in budgets:
        style, word = ("ok", "met") if b.ok else ("bad", "not met") if b.held else ("no", "not checked")
        yield f'<tr><th>{escape(b.text)}</th><td class="{style}">{word}</td></tr>'
    yield "</tbody></table>"
    broken = [one for b in budgets for one in b.broken]
    if broken:
        yield '<div class="wide"><table class="fleet"><thead><tr>'
        yield "".join(f"<th>{h}</th>" for h in ("model", "place", "job", "figure", "now", "budget", "missed by")) + "</tr></thead>"
        for one in broken[:MOST]:
            value, limit, by = one.texts
            words = [_name(one.row.model, one.row.variant), one.row.place, one.row.kind, one.key, value, limit]
            yield "<tr>" + "".join(f"<th>{escape(w)}</th>" for w in words) + f'<td class="bad">{escape(by)}</td></tr>'
        yield f"</table></div>{_more(len(broken))}"


def _more(count: int) -> str:
    return f"<p>... and {count - MOST:,} more; <code>--json</code> has all of them.</p>" if count > MOST else ""


def _matrix(rows: Sequence[Row]) -> Iterator[str]:
    """Models down, places across: whether it fits, or was built and validates."""
    for kind, heading in (("fit", "Which boards take which model"), ("compile", "Built"), ("validate", "Validates")):
        own = [r for r in rows if r.kind == kind]
        if not own:
            continue
        places = list(dict.fromkeys(sorted(r.place for r in own)))
        cells = {(r.model, r.variant, r.place): r for r in own}
        yield f'<h2>{heading}</h2><div class="wide"><table class="fleet"><thead><tr><th>model</th>'
        yield "".join(f"<th>{escape(place)}</th>" for place in places) + "</tr></thead><tbody>"
        for model, variant in sorted({(r.model, r.variant) for r in own}):
            yield f"<tr><th>{escape(_name(model, variant))}</th>"
            yield "".join(_cell(cells.get((model, variant, place))) for place in places) + "</tr>"
        yield "</tbody></table></div>"


def _cell(row: Row | None) -> str:
    if row is None:
        return '<td class="none"></td>'
    style, word = MARKS.get(row.state, ("bad", row.state))
    means = row.figures.get("means")
    if row.state == OK and isinstance(means, str) and means and "as it is" not in means:
        word = means
    told = [row.reason, *(f"{key}: {_text(value)}" for key, value in row.figures.items() if value not in (None, ""))]
    costs = "".join(f"<br><small>{escape(one)}</small>" for one in _short(row))
    return f'<td class="{style}" title="{escape("; ".join(t for t in told if t))}">{escape(word)}{costs}</td>'


def _short(row: Row) -> list[str]:
    """What the model costs in this place."""
    units = {"ram": "B RAM", "flash": "B flash", "time": "ms"}
    found = {key: value for key in units if isinstance(value := row.figures.get(key), (int, float))}
    return [f"{plain(value)} {units[key]}" for key, value in found.items()]


def _costs(rows: Sequence[Row]) -> Iterator[str]:
    """What the least and the most of the boards need of each model; targets without a board each by itself."""
    yield '<h2>What it costs</h2><div class="wide"><table class="fleet"><thead><tr><th>model</th><th>job</th><th>places</th>'
    keys = [k for k in ("ram", "flash", "time", "instructions", "error", "accuracy") if any(k in r.figures for r in rows)]
    yield "".join(f"<th>{UNITS.get(key, key)}</th>" for key in keys) + "</tr></thead><tbody>"
    targets = {"host", *all_targets()}
    groups: dict[tuple[str, str, str, str], list[Row]] = {}
    for r in rows:
        groups.setdefault((r.model, r.variant, r.kind, r.place if r.place in targets else "boards"), []).append(r)
    for (model, variant, kind, place), own in sorted(groups.items()):
        yield f"<tr><th>{escape(_name(model, variant))}</th><th>{kind}</th><th>{escape(place)}</th>"
        for key in keys:
            values = [v for r in own if isinstance(v := r.figures.get(key), (int, float)) and not isinstance(v, bool)]
            ends = list(dict.fromkeys([min(values), max(values)])) if values else []
            yield f"<td>{' … '.join(map(_text, ends))}</td>"
        yield "</tr>"
    yield "</tbody></table></div>"


def _changes(changes: Sequence[RowChange], before: str) -> Iterator[str]:
    yield f"<h2>What changed since {escape(before)}</h2>" if before else "<h2>What changed</h2>"
    if not changes:
        yield f"<p>{'Nothing.' if before else 'There is no run before this one.'}</p>"
        return
    yield f"<p>{summary_of(changes)}.</p>"
    changes = [c for c in changes if not c.first]
    if not changes:
        return
    yield '<div class="wide"><table class="fleet"><thead><tr>'
    yield "".join(f"<th>{h}</th>" for h in ("model", "place", "job", "figure", "before", "now", "change")) + "</tr></thead><tbody>"
    for c in changes[:MOST]:
        style = "bad" if c.worse else "ok" if c.better else ""
        words = [_name(c.model, c.variant), c.place, c.kind, c.what, c.before, c.after]
        yield "<tr>" + "".join(f"<th>{escape(w)}</th>" for w in words) + f'<td class="{style}">{escape(c.change)}</td></tr>'
    yield f"</tbody></table></div>{_more(len(changes))}"


def _reasons(rows: Sequence[Row]) -> Iterator[str]:
    """By cause; the jobs of one are behind it."""
    causes = unanswered(rows)
    if not causes:
        return
    yield "<h2>Jobs without an answer</h2>"
    for cause in causes[:MOST]:
        told = f"{cause.state or 'not run'}: {cause.reason}"
        yield f"<details><summary>{counted(len(cause.rows), 'job')}: {escape(told)}</summary><ul>"
        for row in cause.rows[:MOST]:
            own = "" if row.reason == cause.rows[0].reason else f": {' '.join(row.reason.split())}"
            yield f"<li>{escape(where(row) + own)}</li>"
        yield f"</ul>{_more(len(cause.rows))}</details>"
    yield _more(len(causes))


def _name(model: str, variant: str) -> str:
    return f"{model} {variant}".strip()


def _text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return plain(value)


__all__ = ["fleet_page"]
