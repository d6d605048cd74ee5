"""One HTML file for a package with several entry points: a table of them, and below it the page of the one that is chosen.

The pages are those of the entry points themselves, each in a frame of its own, so that the file still opens from disk."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from intaglio.package.entries import FOLDER, Entries
from intaglio.report.budgets import Checked, check_budgets, check_figure
from intaglio.report.code import code_of
from intaglio.report.facts import Facts, Figure
from intaglio.report.gather import Wanted, gather
from intaglio.report.page import page
from intaglio.run.package import Package

_STYLE = """
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: #1d1d1f; background: #fff; }
header { padding: 1rem 1.5rem; } h1 { font-size: 1.3rem; margin: 0 0 .5rem; }
table { border-collapse: collapse; } th, td { padding: .15rem 1rem .15rem 0; text-align: left; } td.n, th.n { text-align: right; }
a[aria-current] { font-weight: bold; text-decoration: none; color: inherit; }
iframe { display: block; width: 100%; height: calc(100vh - 3rem); border: 0; border-top: 1px solid #ccc; }
iframe[hidden] { display: none; }
@media (prefers-color-scheme: dark) { body { background: #1b1b1d; color: #eee; } a { color: #8ab4f8; } }
"""
_SCRIPT = """
const frames = [...document.querySelectorAll("iframe")], links = [...document.querySelectorAll("td a")];
function choose() {
  const name = decodeURIComponent(location.hash.slice(1)) || frames[0].dataset.entry;
  frames.forEach((frame) => { frame.hidden = frame.dataset.entry !== name; });
  links.forEach((link) => link.toggleAttribute("aria-current", link.textContent === name));
}
addEventListener("hashchange", choose);
choose();
"""


@dataclass(frozen=True, slots=True)
class Looked:
    """At all entry points: facts and budgets of each, and budgets of the program that has all of them, under no name."""

    facts: dict[str, Facts]
    checked: dict[str, tuple[Checked, ...]]
    page: str = ""

    def broken(self) -> tuple[str, ...]:
        """A line for each budget that does not hold."""
        rows = ((name, one) for name, found in self.checked.items() for one in found if not one.ok)
        return tuple(f"`{name}`: {one.text}" if name else one.text for name, one in rows)


def look_at_whole(
    whole: Entries, folder: Path, limits: dict[str, float], wanted: Wanted, say: Callable[[str, str], None], *, paged: bool
) -> Looked:
    """Budgets hold for each entry point by itself; RAM and flash also for a program with all of them."""
    facts: dict[str, Facts] = {}
    checked: dict[str, tuple[Checked, ...]] = {}
    pages: dict[str, str] = {}
    for row in whole.entries:
        place = folder / FOLDER / row.name
        facts[row.name] = gather(place, wanted, lambda what, name=row.name: say(what, name))  # type: ignore[misc]
        checked[row.name] = check_budgets(limits, facts[row.name])
        if paged:
            code, no_assembly = code_of(Package(place))
            pages[row.name] = page(facts[row.name], code, no_assembly, checked[row.name], None)
    if whole.firmware is not None:
        sizes = {"ram": whole.firmware.ram_bytes, "flash": whole.firmware.flash_bytes}
        rows = [(key, limits[key], Figure(key, key, size, "bytes", "")) for key, size in sizes.items() if key in limits]
        checked[""] = tuple(check_figure(*row) for row in rows)
    return Looked(facts, checked, whole_page(whole, pages) if paged else "")


def whole_page(whole: Entries, pages: Mapping[str, str]) -> str:
    """`pages`: by entry point."""
    rows = [
        f'<tr><td><a href="#{html.escape(row.name)}">{html.escape(row.name)}</a></td><td>{html.escape(row.model)}</td>'
        f'<td class="n">{row.arena_bytes:,}</td><td class="n">{row.weight_bytes:,}</td><td class="n">{row.state_bytes:,}</td>'
        f"<td><code>{html.escape(row.prefix)}_run</code></td></tr>"
        for row in whole.entries
    ]
    frames = [
        f'<iframe data-entry="{html.escape(name)}" title="{html.escape(name)}" srcdoc="{html.escape(text)}"></iframe>'
        for name, text in pages.items()
    ]
    title = html.escape(f"{whole.name} for {whole.target}")
    shared = f"{whole.weight_bytes:,} bytes of weights ({whole.separate_weight_bytes:,} if nothing were shared)"
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<header>\n<h1>{title}</h1>",
            f"<p>{len(whole.entries)} entry points: one arena of {whole.arena_bytes:,} bytes, {shared}.</p>",
            '<table><tr><th>entry point<th>model<th class="n">arena<th class="n">weights<th class="n">state<th>in C</tr>',
            *rows,
            "</table>\n</header>",
            *frames,
            f"<script>{_SCRIPT}</script>\n</body>\n</html>\n",
        ]
    )
