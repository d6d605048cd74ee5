"""One HTML file with everything in it: style, script and data. It opens from disk and asks nothing of a network."""

from __future__ import annotations

import base64
import gzip
import html
import json
import re
from dataclasses import asdict
from importlib.resources import files

from intaglio.report.budgets import Checked
from intaglio.report.code import Code
from intaglio.report.differences import Difference, figure_text
from intaglio.report.facts import Facts


def page(
    facts: Facts,
    code: dict[str, Code],
    no_assembly: str = "",
    budgets: tuple[Checked, ...] = (),
    difference: Difference | None = None,
) -> str:
    folder = files("intaglio.report") / "page"
    texts = {name: (folder / f"page.{name}").read_text(encoding="utf-8") for name in ("html", "css", "js")}
    figures = [{**asdict(figure), "text": figure_text(figure)} for figure in facts.figures]
    told = {**asdict(facts), "figures": figures, "budgets": [asdict(budget) for budget in budgets], "no_assembly": no_assembly}
    parts = {
        "@TITLE@": html.escape(f"{facts.name} for {facts.board or facts.target}"),
        "@CSS@": texts["css"],
        "@JS@": texts["js"],
        "@FACTS@": script_json(told),
        "@OTHER@": script_json(None if difference is None else asdict(difference)),
        "@CODE@": _packed({name: asdict(one) for name, one in sorted(code.items())}),
    }
    return re.sub("|".join(parts), lambda mark: parts[mark[0]], texts["html"])  # once: a part may hold any text


def script_json(value: object) -> str:
    """JSON inside of a script element: nothing in it may end the element. NaN and infinity have no spelling there."""
    text = json.dumps(_finite(value), separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and value - value != 0 else value


def _packed(value: object) -> str:
    """C and assembly are most of the data and are compressed; the same input gives the same bytes."""
    return base64.b64encode(gzip.compress(json.dumps(value).encode(), mtime=0)).decode()


__all__ = ["page", "script_json"]
