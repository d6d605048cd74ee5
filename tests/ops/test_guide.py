"""The guide to a new operator names every place that it takes: its snippets alone make one that compiles and runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "add-an-operator.md"
SNIPPET = re.compile(r"^In `((?:src|tests)/[\w./]+)`(?:, below `([^`\n]+)`)?:\n\n```python\n(.*?)```", re.M | re.S)
EXPRESSION, FUNCTION = "src/intaglio/kernels/expressions.py", "src/intaglio/kernels/scalar_functions.py"  # one or the other
CHECKS = ("tests/support/added_operator.py", "tests/ops/test_meaning.py", "tests/kernels/test_scalar_functions.py")


@dataclass(frozen=True)
class Snippet:
    path: str
    below: str  # the beginning of a line; empty: the end of the file
    code: str

    def apply(self, root: Path) -> None:
        file = root / self.path
        lines = file.read_text(encoding="utf-8").splitlines()
        imports = [line for line in self.code.splitlines() if line.startswith("from ")]
        body = [line for line in self.code.splitlines() if line not in imports]
        places = [n for n, line in enumerate(lines) if line.startswith(self.below)] if self.below else [len(lines) - 1]
        assert len(places) == 1, f"{self.path} has {len(places)} lines that start with {self.below}"
        lines[places[0] + 1 : places[0] + 1] = body
        first = next(n for n, line in enumerate(lines) if line.startswith("from intaglio."))
        lines[first:first] = imports
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def snippets() -> list[Snippet]:
    return [Snippet(*found) for found in SNIPPET.findall(GUIDE.read_text(encoding="utf-8"))]


def test_the_guide_names_four_places() -> None:
    """A class, a row of a kernel (in one of two tables), a row in each front end, a test row."""
    places = [s.path for s in snippets() if s.path != FUNCTION]
    front_ends = [f"src/intaglio/frontends/{name}" for name in ("onnx", "tflite", "torch", "keras")]
    assert places[:2] == ["src/intaglio/ops/activation.py", EXPRESSION]
    assert [path.split("/rows/")[0] for path in places[2:-1]] == front_ends
    assert places[-1] == "tests/support/elementwise_meaning.py"


@pytest.mark.parametrize(
    "other",
    [pytest.param(FUNCTION, id="as an expression", marks=pytest.mark.slow), pytest.param(EXPRESSION, id="as a function")],
)
def test_the_snippets_of_the_guide_add_an_operator(other: str, tmp_path: Path) -> None:
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for snippet in snippets():
        if snippet.path != other:
            snippet.apply(tmp_path)
    options = ["-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "-k", "swirl or every or vectors"]
    command = [sys.executable, "-m", "pytest", *options, *CHECKS]
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[0]) > 10
