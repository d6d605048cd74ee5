"""One page about a search: its Pareto front as pictures and as a table."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from intaglio.fleet.search import Point, within

UNITS = {"ram": "RAM, bytes", "flash": "flash, bytes", "time": "time, ms", "accuracy": "accuracy"}
WIDTH, HEIGHT, EDGE, BELOW = 460, 280, 72, 44
FRONT, LIMIT = "seagreen", "crimson"


def search_page(title: str, points: Sequence[Point], best: Sequence[Point], budget: Mapping[str, float], packages: Path) -> str:
    """`packages`: the folder that has them, in the order of their digests."""
    css = (files("intaglio.report") / "page" / "page.css").read_text(encoding="utf-8")
    keys = [key for key in UNITS if any(key in p.figures for p in points)]
    pairs = [(a, b) for n, a in enumerate(keys) for b in keys[n + 1 :]]
    pictures = [picture(points, best, a, b, budget) for a, b in pairs]
    body = "".join([_legend(budget), *pictures, *_table(best, keys, budget, packages), *_failed(points)])
    name = escape(title)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{name}</title>'
    head += f'<meta name="color-scheme" content="light dark"><style>{css} main {{ padding: 1rem; }}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head><body><main><h1>{name}</h1>{body}</main></body></html>\n'


def _legend(budget: Mapping[str, float]) -> str:
    told = [(f'<circle cx="7" cy="7" r="5" fill="{FRONT}" stroke="currentColor"/>', "on the front, with its number in the table")]
    told.append(('<circle cx="7" cy="7" r="5" fill="none" stroke="currentColor"/>', "another point beats it"))
    if budget:
        told.append((f'<line x1="7" x2="7" y1="0" y2="14" stroke="{LIMIT}" stroke-dasharray="4 3"/>', "budget"))
    parts = [f'<svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true">{mark}</svg> {words}' for mark, words in told]
    return f"<p>{'; '.join(parts)}.</p>"


def plain(value: float) -> str:
    """A number without an exponent: four digits, or all of a whole one."""
    if isinstance(value, int) or value == 0 or abs(value) >= 1000:
        return f"{value:,.0f}"
    decimals = 3 - math.floor(math.log10(abs(value)))
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".") if decimals <= 9 else f"{value:.1e}"


def _told(key: str, value: float) -> str:
    return f"{100 * value:.2f} %" if key == "accuracy" else plain(value)


def ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers between them."""
    step = 10.0 ** math.floor(math.log10(high - low))
    step = next(step * part for part in (0.2, 0.25, 0.5, 1.0, 2.0) if (high - low) / (step * part) < 6)
    return [step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def picture(points: Sequence[Point], best: Sequence[Point], a: str, b: str, budget: Mapping[str, float]) -> str:
    """Every point; those of the front are filled. Lines are budgets."""
    shown = [p for p in points if a in p.figures and b in p.figures]
    if not shown:
        return ""
    right, bottom = WIDTH - 8, HEIGHT - BELOW
    across, up = _scale([p.figures[a] for p in shown], budget.get(a)), _scale([p.figures[b] for p in shown], budget.get(b))
    frame = f'x="{EDGE}" y="8" width="{right - EDGE}" height="{bottom - 8}"'
    parts = [f'<rect {frame} fill="none" stroke="currentColor" opacity=".4"/>']
    if a in budget:
        at = _at(budget[a], across, True)
        parts.append(f'<line x1="{at}" x2="{at}" y1="8" y2="{bottom}" stroke="{LIMIT}" stroke-dasharray="4 3"/>')
    if b in budget:
        at = _at(budget[b], up, False)
        parts.append(f'<line y1="{at}" y2="{at}" x1="{EDGE}" x2="{right}" stroke="{LIMIT}" stroke-dasharray="4 3"/>')
    for p in shown:
        x, y = _at(p.figures[a], across, True), _at(p.figures[b], up, False)
        fill = FRONT if p in best else "none"
        told = f"{p.words}: {UNITS[a]} {_told(a, p.figures[a])}, {UNITS[b]} {_told(b, p.figures[b])}"
        parts.append(f'<circle cx="{x}" cy="{y}" r="5" fill="{fill}" stroke="currentColor"><title>{escape(told)}</title></circle>')
        if p in best:
            number = f'<text x="{x + 7}" y="{y - 6}" font-size="10">{best.index(p) + 1}</text>'
            parts.append(number)
    for value in _ticks(a, across):
        x = _at(value, across, True)
        parts.append(f'<line x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 4}" stroke="currentColor"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle" font-size="10">{_told(a, _clean(value))}</text>')
    for value in _ticks(b, up):
        y = _at(value, up, False)
        parts.append(f'<line x1="{EDGE - 4}" x2="{EDGE}" y1="{y}" y2="{y}" stroke="currentColor"/>')
        parts.append(f'<text x="{EDGE - 7}" y="{y + 3}" text-anchor="end" font-size="10">{_told(b, _clean(value))}</text>')
    middle = HEIGHT / 2
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">{UNITS[a]}</text>')
    parts.append(f'<text x="12" y="{middle}" text-anchor="middle" transform="rotate(-90 12 {middle})">{UNITS[b]}</text>')
    about = f'role="img" aria-label="{UNITS[b]} by {UNITS[a]}" style="font: 12px sans-serif; fill: currentColor"'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" {about}>{"".join(parts)}</svg>'


def _ticks(key: str, scale: tuple[float, float]) -> list[float]:
    return [value for value in ticks(*scale) if value >= 0 and (key != "accuracy" or value <= 1)]


def _clean(value: float) -> float:
    """0.30000000000000004 is 0.3."""
    return float(f"{value:.6g}")


def _scale(values: Sequence[float], limit: float | None) -> tuple[float, float]:
    told = [*values, *([] if limit is None else [limit])]
    low, high = min(told), max(told)
    room = 0.05 * (high - low or abs(high) or 1.0)
    return low - room, high + room


def _at(value: float, scale: tuple[float, float], across: bool) -> float:
    share = (value - scale[0]) / (scale[1] - scale[0])
    place = EDGE + share * (WIDTH - EDGE - 8) if across else HEIGHT - BELOW - share * (HEIGHT - BELOW - 8)
    return round(place, 1)


def _table(best: Sequence[Point], keys: Sequence[str], budget: Mapping[str, float], packages: Path) -> Iterator[str]:
    yield "<h2>Pareto front</h2><table><thead><tr><th>point</th><th>options</th>"
    yield "".join(f"<th>{UNITS[key]}</th>" for key in keys)
    yield ("<th>within the budget</th>" if budget else "") + "<th>package</th></tr></thead><tbody>"
    for n, p in enumerate(best, 1):
        yield f"<tr><td>{n}</td><td>{escape(p.words)}</td>"
        yield "".join(f"<td>{_told(key, p.figures[key])}</td>" if key in p.figures else "<td>-</td>" for key in keys)
        yield f"<td>{'yes' if within(p, budget) else 'no'}</td>" if budget else ""
        yield f"<td><code>{escape(str(packages / p.package[:2] / p.package)) if p.package else ''}</code></td></tr>"
    yield "</tbody></table>"


def _failed(points: Sequence[Point]) -> Iterator[str]:
    lost = [p for p in points if not p.figures]
    if lost:
        yield "<h2>Not possible</h2><ul>" + "".join(f"<li>{escape(p.words)}: {escape(p.reason)}</li>" for p in lost) + "</ul>"


__all__ = ["UNITS", "plain", "search_page", "ticks"]
