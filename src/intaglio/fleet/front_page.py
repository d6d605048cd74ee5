"""One page about a search: its Pareto front as pictures and as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files

from intaglio.fleet.search import Point, within

UNITS = {"ram": "RAM, bytes", "flash": "flash, bytes", "time": "time, ms", "accuracy": "accuracy"}
WIDTH, HEIGHT, EDGE = 420, 280, 48


def search_page(title: str, points: Sequence[Point], best: Sequence[Point], budget: Mapping[str, float]) -> str:
    css = (files("intaglio.report") / "page" / "page.css").read_text(encoding="utf-8")
    keys = [key for key in UNITS if any(key in p.figures for p in points)]
    pairs = [(a, b) for n, a in enumerate(keys) for b in keys[n + 1 :]]
    pictures = [picture(points, best, a, b, budget) for a, b in pairs]
    body = "".join([*pictures, *_table(best, keys, budget), *_failed(points)])
    name = escape(title)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{name}</title>'
    head += f'<meta name="color-scheme" content="light dark"><style>{css} main {{ padding: 1rem; }}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body><main><h1>{name}</h1>{body}</main></body></html>\n'


def picture(points: Sequence[Point], best: Sequence[Point], a: str, b: str, budget: Mapping[str, float]) -> str:
    """Every point; those of the front are filled. Lines are budgets."""
    shown = [p for p in points if a in p.figures and b in p.figures]
    if not shown:
        return ""
    right, bottom = WIDTH - 8, HEIGHT - EDGE
    across, up = _scale([p.figures[a] for p in shown], budget.get(a)), _scale([p.figures[b] for p in shown], budget.get(b))
    frame = f'x="{EDGE}" y="8" width="{right - EDGE}" height="{bottom - 8}"'
    parts = [f'<rect {frame} fill="none" stroke="currentColor" opacity=".4"/>']
    if a in budget:
        at = _at(budget[a], across, True)
        parts.append(f'<line x1="{at}" x2="{at}" y1="8" y2="{bottom}" stroke="crimson" stroke-dasharray="4 3"/>')
    if b in budget:
        at = _at(budget[b], up, False)
        parts.append(f'<line y1="{at}" y2="{at}" x1="{EDGE}" x2="{right}" stroke="crimson" stroke-dasharray="4 3"/>')
    for p in shown:
        x, y = _at(p.figures[a], across, True), _at(p.figures[b], up, False)
        fill = "seagreen" if p in best else "none"
        told = f"{p.words}: {UNITS[a]} {p.figures[a]:,.4g}, {UNITS[b]} {p.figures[b]:,.4g}"
        parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{fill}" stroke="currentColor"><title>{escape(told)}</title></circle>')
    middle = HEIGHT / 2
    names = [f"{UNITS[key]}: {low:,.4g} … {high:,.4g}" for key, (low, high) in ((a, across), (b, up))]
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">{names[0]}</text>')
    parts.append(f'<text x="14" y="{middle}" text-anchor="middle" transform="rotate(-90 14 {middle})">{names[1]}</text>')
    about = f'role="img" aria-label="{UNITS[b]} by {UNITS[a]}" style="font: 12px sans-serif; fill: currentColor"'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" {about}>{"".join(parts)}</svg>'


def _scale(values: Sequence[float], limit: float | None) -> tuple[float, float]:
    told = [*values, *([] if limit is None else [limit])]
    low, high = min(told), max(told)
    room = 0.05 * (high - low or abs(high) or 1.0)
    return low - room, high + room


def _at(value: float, scale: tuple[float, float], across: bool) -> float:
    share = (value - scale[0]) / (scale[1] - scale[0])
    place = EDGE + share * (WIDTH - EDGE - 8) if across else HEIGHT - EDGE - share * (HEIGHT - EDGE - 8)
    return round(place, 1)


def _table(best: Sequence[Point], keys: Sequence[str], budget: Mapping[str, float]) -> Iterator[str]:
    yield "<h2>Pareto front</h2><table><thead><tr><th>options</th>" + "".join(f"<th>{UNITS[key]}</th>" for key in keys)
    yield "<th>within the budget</th></tr></thead><tbody>"
    for p in best:
        yield f"<tr><td>{escape(p.words)}</td>"
        yield "".join(f"<td>{p.figures[key]:,.5g}</td>" if key in p.figures else "<td>-</td>" for key in keys)
        yield f"<td>{'yes' if within(p, budget) else 'no'}</td></tr>"
    yield "</tbody></table>"


def _failed(points: Sequence[Point]) -> Iterator[str]:
    lost = [p for p in points if not p.figures]
    if lost:
        yield "<h2>Not possible</h2><ul>" + "".join(f"<li>{escape(p.words)}: {escape(p.reason)}</li>" for p in lost) + "</ul>"


__all__ = ["search_page"]
