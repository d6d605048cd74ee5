"""What the documents name is there, and the commands that they show run."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from intaglio.run.opencl.loader import pip_drivers
from intaglio.targets.board import all_boards
from support.commands import Intaglio

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
MADE_LATER = ("build/", ".venv/", "benchmarks/RESULTS.md", "benchmarks/MCU.md")
DEMO = ROOT / "src" / "intaglio" / "demo_data" / "digits.onnx"


def test_links_of_the_pages_lead_somewhere() -> None:
    wrong = []
    for page in PAGES:
        links = re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8"))
        inside = [link for link in links if not link.startswith(("http:", "https:")) and not link.endswith("RESULTS.md")]
        wrong += [f"{page.name}: {link}" for link in inside if not (page.parent / link).exists()]
    assert wrong == []


def test_paths_that_the_pages_name_are_there() -> None:
    wrong = []
    for page in PAGES:
        paths = re.findall(r"`((?:src|tests|docs|tools|scripts|benchmarks)/[\w./-]+)`", page.read_text(encoding="utf-8"))
        named = [path for path in paths if not path.startswith(MADE_LATER)]
        wrong += [f"{page.name}: {path}" for path in named if not (ROOT / path).exists()]
    assert wrong == []


@pytest.fixture(autouse=True)
def same_environment() -> Iterator[None]:
    """A command that finds an OpenCL driver leaves variables for it, which tests of other files must not see."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


RUN = ["README.md"]
_LONG = [f"docs/guides/{name}.md" for name in ("first-model", "dossier", "emulate", "memory", "opencl", "proof", "safety", "tune")]
_LONG += [f"docs/tutorials/{name}.md" for name in ("firmware", "linux-board", "phone-gpu", "accelerator")]
LONG = [pytest.param(name, marks=pytest.mark.slow) for name in _LONG]


@pytest.fixture
def few_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    """`fit` without a board answers for a Cortex-M and a RISC-V board instead of all: each of their cores is a compilation."""
    shown = {name: all_boards()[name] for name in ("nucleo-l4r5zi", "esp32-c3")}
    monkeypatch.setattr("intaglio.survey.boards.all_boards", lambda: shown)


@pytest.mark.usefixtures("outside", "few_boards")  # `pip install ./plugins/example_npu`
@pytest.mark.parametrize("name", [*RUN, *LONG])
def test_commands_of_a_page_run_one_after_the_other(
    name: str, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = ROOT / name
    if page.name == "emulate.md":
        pytest.importorskip("unicorn")
    shown = re.findall(r"^    ((?:\.venv/bin/intaglio|build/)\S* .*)$", page.read_text(encoding="utf-8"), re.M)
    assert len(shown) > 2
    monkeypatch.chdir(tmp_path)
    for line in shown:
        command = line.split("    #")[0].strip()
        command = command.replace("src/intaglio/demo_data/", f"{DEMO.parent}/")
        words = shlex.split(command)
        if "digits-cl" in command and not pip_drivers():
            continue  # no OpenCL device: `pip install -e '.[opencl]'`
        if words[0] == ".venv/bin/intaglio":
            said = intaglio(*words[1:])
            assert said.code == 0, f"{command}\n{said.err}"
            continue
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"


def made_by(script: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(script, ROOT / "scripts" / f"{script}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_python_api_is_up_to_date() -> None:
    module = made_by("python_page")
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run `python scripts/python_page.py`"


@pytest.mark.parametrize("title", ["ONNX", "TFLite", "PyTorch", pytest.param("Keras", marks=pytest.mark.slow)])
def test_the_page_of_operators_has_the_rows_of_every_front_end(title: str) -> None:
    """Other versions of the libraries have other operators: what is supported is compared, and not what is refused."""
    module = made_by("operators_page")
    there = next(p for p in re.split(r"^## ", module.PAGE.read_text(encoding="utf-8"), flags=re.M) if p.startswith(title + "\n"))
    made = "\n".join(module.part(title, module.FRONT_ENDS[title][1]()))
    names = [re.findall(r"`[^`]+`", text.partition("**refused**")[0]) for text in (there, made)]
    assert names[0] == names[1], "run `python scripts/operators_page.py`"


def test_the_page_of_commands_has_every_command_and_option() -> None:
    """Other versions of typer break lines in other places: words are compared."""
    module = made_by("commands_page")
    there, made = module.PAGE.read_text(encoding="utf-8"), module.page()
    for pattern in (r"^## .+$", r"--[a-z][a-z-]*"):
        assert re.findall(pattern, there, re.M) == re.findall(pattern, made, re.M), "run `python scripts/commands_page.py`"


def test_every_page_is_in_the_navigation_of_the_site() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    folder = ROOT / "docs"
    pages = [p.relative_to(folder).as_posix() for p in folder.rglob("*.md")]
    decisions = (folder / "decisions" / "index.md").read_text(encoding="utf-8")
    assert sorted(listed) == sorted(p for p in pages if not p.startswith("decisions/0"))
    assert all(f"]({Path(p).name})" in decisions for p in pages if p.startswith("decisions/0"))


def test_the_pictures_of_the_concepts_are_those_that_the_script_draws() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        from concept_pictures import PICTURES
    finally:
        sys.path.pop(0)
    for name, draw in PICTURES.items():
        page = (ROOT / "docs" / "concepts" / f"{name}.md").read_text(encoding="utf-8")
        assert page.count("](" + f"{name}.svg)") == 1, name
        assert (ROOT / "docs" / "concepts" / f"{name}.svg").read_text(encoding="utf-8") == draw().svg(), name
