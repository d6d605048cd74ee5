"""`intaglio accelerators`, `intaglio accelerators test NAME` and `intaglio new-accelerator NAME`."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from importlib import resources
from pathlib import Path

from intaglio.cli.terminal import bytes_text, note, print_json, print_table, progress_bar
from intaglio.errors import IntaglioError, UserError, quoted
from intaglio.ir.names import is_clean
from intaglio.package.folder import fresh_folder


def list_accelerators(json: bool) -> None:
    """A plug-in that cannot be loaded is listed with the reason."""
    from intaglio.targets.plugins import find_accelerator, installed

    rows: list[dict[str, object]] = []
    for name in installed():
        try:
            plugin = find_accelerator(name)
        except IntaglioError as error:
            rows.append({"name": name, "error": error.message})
            continue
        facts = plugin.facts
        rows.append(
            {
                "name": name,
                "from": plugin.origin,
                "about": facts.about,
                "patterns": [p.name for p in plugin.patterns],
                "memories": {pad.name: pad.bytes for pad in facts.memories},
                "alignment": facts.alignment,
                "clock_mhz": facts.clock_mhz,
                "merges": facts.merges,
                "overlaps": facts.overlaps,
            }
        )
    if json:
        print_json({"accelerators": rows})
        return
    if not rows:
        note("no accelerator is installed; `intaglio new-accelerator NAME` writes one")
        return
    table = []
    for row in rows:
        patterns, memories = row.get("patterns"), row.get("memories")
        own = ", ".join(f"{k} {bytes_text(v)}" for k, v in memories.items()) if isinstance(memories, dict) else ""
        shown = ", ".join(patterns) if isinstance(patterns, list) else ""
        about = str(row.get("about", row.get("error", "")))
        table.append([str(row["name"]), str(row.get("from", "cannot be loaded")), f"{about}; {own}" if own else about])
        table.append(["", "", f"takes {shown}" if shown else ""])
    print_table(["accelerator", "from", "description"], [row for row in table if any(row)])


def test_accelerator(name: str, *, cc: str | None, json: bool) -> int:
    """0 where everything holds, 1 where something does not."""
    from intaglio.conformance import Result, check_accelerator
    from intaglio.targets.plugins import find_accelerator

    plugin = find_accelerator(name)
    results: list[Result] = []
    with progress_bar("checking") as progress:
        for result in check_accelerator(plugin, cc=cc):
            results.append(result)
            if progress is not None:
                progress(result.check, len(results), len(results) + 1)
    bad = [r for r in results if r.problem is not None]
    if json:
        told = [{"check": r.check, "case": r.case, "problem": r.problem, "refused": r.refused} for r in results]
        print_json({"accelerator": name, "ok": not bad, "results": told})
        return 1 if bad else 0
    table = []
    for check in dict.fromkeys(r.check for r in results):
        rows = [r for r in results if r.check == check]
        held = sum(r.problem is None and r.refused is None for r in rows)
        refused_here, failed = sum(r.refused is not None for r in rows), sum(r.problem is not None for r in rows)
        table.append([check, str(held), str(refused_here), str(failed)])
    print_table(["check", ">held", ">refused", ">failed"], table)
    refused = Counter(r.refused for r in results if r.refused is not None)
    for reason, count in refused.most_common(12):
        note(f"refused {count}: {reason}")
    for r in bad[:20]:
        note(f"failed, {r.check}: {r.case}: {r.problem}")
    note(f"{name} ({plugin.origin}): " + (f"{len(bad)} of {len(results)} checks failed" if bad else "all checks passed"))
    return 1 if bad else 0


def new_accelerator(name: str, output: Path | None, *, force: bool) -> Path:
    """A plug-in that works, with its tests, in a folder of its name."""
    if not is_clean(name) or len(name) > 30 or name != name.lower():
        hint = "use lower-case letters, digits and `_`: it names a Python package and C functions"
        raise UserError("bad-name", f"{quoted(name)} cannot be the name of an accelerator", hint=hint)
    if name in sys.stdlib_module_names or (importlib.util.find_spec(name) is not None and not _is_accelerator(name)):
        hint = "choose another name: it names a Python package too"
        raise UserError("bad-name", f"the Python module {quoted(name)} already exists", hint=hint)
    folder = output or Path(name)
    if folder.exists():
        if not force:
            hint = "`--force` replaces the files of the skeleton"
            raise UserError("exists", f"{quoted(str(folder))} already exists", hint=hint)
    else:
        with fresh_folder(folder, force=False):
            pass
    skeleton = resources.files("intaglio.cli").joinpath("skeleton")
    for entry in sorted(skeleton.iterdir(), key=lambda e: e.name):
        if not entry.name.endswith(".txt"):
            continue
        path = folder / _place(entry.name.removesuffix(".txt"), name)
        path.parent.mkdir(parents=True, exist_ok=True)
        title = "".join(part.capitalize() for part in name.split("_"))
        text = entry.read_text(encoding="utf-8").replace("MY_ACCELERATOR", name.upper()).replace("MyAccelerator", title)
        path.write_text(text.replace("my_accelerator", name), encoding="utf-8")
    (folder / "src" / name / "py.typed").touch()
    return folder


def _is_accelerator(name: str) -> bool:
    """One that was written and installed before."""
    from intaglio.targets.plugins import installed

    return name in installed()


def _place(file: str, name: str) -> Path:
    """`plugin.py` is the package, C files lie beside it, tests in their folder."""
    package = Path("src") / name
    if file == "plugin.py":
        return package / "__init__.py"
    if file.endswith((".c", ".h")):
        return package / file.replace("my_accelerator", name)
    if file.startswith("test_"):
        return Path("tests") / file.replace("my_accelerator", name)
    return Path(file)
