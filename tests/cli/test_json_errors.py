"""With `--json`, stdout is one object in every case; and small things that one types."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from intaglio.version import __version__
from support.commands import DIGITS, Intaglio


def said(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "intaglio", *map(str, words)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "slug", "code"),
    [
        (("compile", DIGITS, "--target", "cortexm4", "-o", "x", "--json"), "unknown-target", 2),
        (("fit", DIGITS, "--bogus", "--json"), "usage", 2),
    ],
)
def test_an_error_is_an_object(words: tuple[str | Path, ...], slug: str, code: int) -> None:
    done = said(*words)
    told = json.loads(done.stdout)["error"]
    assert done.returncode == code == told["exit_code"] and told["slug"] == slug and told["hint"]
    assert f"error[{slug}]" in done.stderr


def test_an_answer_that_is_no_stays_one_object(tmp_path: Path) -> None:
    done = said("compile", DIGITS, "--target", "cortex-m4f", "--ram", "64", "-o", tmp_path / "p", "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["fits"] is False


def test_the_version() -> None:
    assert said("--version").stdout.strip() == __version__


def test_the_nearest_target_is_named(intaglio: Intaglio, tmp_path: Path) -> None:
    assert "did you mean `cortex-m4f`?" in intaglio("compile", DIGITS, "--target", "cortex-m4ff", "-o", tmp_path / "p").err
