"""What importing costs, and who may import whom."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "intaglio"
# The order of docs: each may import those before it; those in one row do not import each other.
LAYERS = [
    {"errors", "version"},
    {"ir"},
    {"ops"},
    {"targets"},
    {"frontends", "passes", "kernels", "memory"},
    {"quantize"},
    {"package"},
    {"run"},
    {"report"},
    {"stages"},
    {"pipeline"},
    {"onnx_backend", "accelerator", "conformance"},
    {"cli"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def test_importing_intaglio_loads_nothing_heavy() -> None:
    code = "import sys, intaglio; print([m for m in ('numpy', 'onnx', 'typer', 'rich', 'jinja2') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def modules() -> list[Path]:
    return sorted(p for p in ROOT.rglob("*.py") if p.name not in ("__main__.py",) and p != ROOT / "__init__.py")


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_the_layer_rule(path: Path) -> None:
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    assert own in LEVEL, f"{own} has no place among the layers"
    for name in imported(path):
        if name != own:
            assert LEVEL[name] < LEVEL[own], f"{own} imports {name}"


def imported(path: Path) -> set[str]:
    """Packages of ours that a file imports when it runs; imports for the type checker alone do not count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("intaglio."):
            found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("intaglio.")}
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_small(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= 500, f"{path.name} has {lines} lines: it asks for a second room"
