"""Small sweeps of `tools/faults.py` and `tools/mutants.py`; large ones are run by hand."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "faults.py"


def sweep(name: str, count: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(TOOL), name, "--count", str(count)]
    return subprocess.run(words, check=False, capture_output=True, text=True, timeout=900)


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "count"), [("names", 9), ("writes", 8), pytest.param("kills", 20, marks=pytest.mark.slow)])
def test_nothing_is_found(name: str, count: int) -> None:
    done = sweep(name, count)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name}: {count} tried, 0 found" in done.stdout


def test_a_name_that_gets_into_the_code_is_found(tmp_path: Path) -> None:
    faults = loaded("faults")
    for suffix, plain, odd in (
        (".c", "int v_x; /* v_x */", "int v_x; } /* x */"),
        (".json", '{"a": 1}', '{"a": 1, "b": 2}'),
        (".toml", 'a = "x"', 'a = "x"\nb = 1'),
        (".html", "<p>x</p>", "<p><script>x</p>"),
        ("", "all: x", "all: x; rm y"),
    ):
        first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
        first.write_text(plain)
        second.write_text(odd)
        assert faults.tokens(first) != faults.tokens(second), suffix
        second.write_text(plain.replace("x", "y"))
        assert faults.tokens(first) == faults.tokens(second), suffix


def test_mutants_change_what_code_does(tmp_path: Path) -> None:
    mutants = loaded("mutants")
    path = tmp_path / "m.py"
    path.write_text("def f(a: int, b: int = 3) -> bool:\n    return not a < b and a + 1 > 2\n")
    found = mutants.mutants(path, "m.py")
    assert {(m.was, m.now) for m in found} >= {("a < b", "a <= b"), ("a + 1", "a - 1"), ("1", "2"), ("3", "4")}
    for mutant in found:
        text = mutants.written(path, mutant.number)
        compile(text, "m.py", "exec")
        assert text != path.read_text()
