"""`intaglio dossier`: evidence about a package, as a folder with one page."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from intaglio.cli.terminal import note, print_json
from intaglio.dossier.coverage import percent
from intaglio.dossier.facts import Dossier, Wanted, gather
from intaglio.dossier.write import as_json, write_dossier
from intaglio.errors import ToolError, UserError, quoted
from intaglio.package.folder import check_output

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def dossier_words(package: Path, output: Path | None, wanted: Wanted, pdf: bool, json: bool) -> int:
    folder = output or Path(f"{package.name or package.resolve().name}-dossier")
    if folder.is_dir() and any(folder.iterdir()):
        what = f"the output folder {quoted(str(folder), 200)} exists and is not empty"
        raise UserError("output-exists", what, hint="remove it, or use another folder with `-o`")
    check_output(folder, force=False)
    browser = _browser() if pdf else ""
    made = gather(package, wanted, note)
    write_dossier(made, folder)
    if pdf:
        _print(browser, folder)
    if json:
        print_json(as_json(made))
    else:
        _summary(made, folder)
    wrong = _wrong(made)
    if wrong:
        note(f"exit code 1: {'; '.join(wrong)}")
    return 1 if wrong else 0


def _wrong(d: Dossier) -> list[str]:
    """What a reader of the dossier has to know first."""
    found = [] if d.memory.ok else ["the memory map is not proven"]
    if not d.whole:
        found.append("files differ from the manifest (`intaglio verify` lists them)")
    if d.validation is not None and not d.validation.ok:
        found.append("the package does not agree with its reference")
    return found + ([f"coverage: {d.coverage.reason}"] if d.coverage.failed else [])


def _browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        hint = "install Chromium, or print `index.html` to a file with any browser"
        raise ToolError("no-browser", "`--pdf` needs Chromium, which is not installed", hint=hint)
    return found


def _print(browser: str, folder: Path) -> None:
    page, target = (folder / "index.html").resolve(), (folder / "dossier.pdf").resolve()
    words = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={target}"]
    done = subprocess.run([*words, page.as_uri()], check=False, capture_output=True, text=True, timeout=120)
    if done.returncode or not target.is_file():
        raise ToolError("no-browser", f"the browser did not print the page: {done.stderr[-200:]}", hint="omit `--pdf`")


def _summary(d: Dossier, folder: Path) -> None:
    t = d.timing
    print(f"memory: {'proven disjoint' if d.memory.ok else 'NOT proven'}")
    bad = [k.function for k in d.kernels if not k.facts.sound]
    print(f"loops: {'all bounded, all indices checked' if not bad else 'not shown for ' + ', '.join(bad)}")
    if t.total is not None and t.above is not None:
        above = f"the bound is {100 * t.above:.1f} % above"
        print(f"time: at most {t.total:,} cycles; {t.observed:,} observed on {t.inputs:,} inputs ({above})")
    else:
        print(f"time: no bound: {t.reason or next((b.reason for b in t.layers if b.cycles is None), '')}")
    c = d.coverage
    shares = f"{percent(c.statement_share)} of statements, {percent(c.branch_share)} of branches"
    print(f"coverage: {c.reason or shares}")
    print(f"dossier: {folder / 'index.html'}")
