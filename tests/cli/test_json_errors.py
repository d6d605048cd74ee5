"""With `--json`, stdout is one object in every case; and small things that one types."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from intaglio.version import __version__
from support.commands import DIGITS, Intaglio


@pytest.mark.parametrize(
    ("words", "slug", "code"),
    [
        (("compile", DIGITS, "--target", "cortexm4", "-o", "x", "--json"), "unknown-target", 2),
        (("fit", DIGITS, "--bogus", "--json"), "usage", 2),
    ],
)
def test_an_error_is_an_object(words: tuple[str | Path, ...], slug: str, code: int, intaglio: Intaglio) -> None:
    said = intaglio(*words)
    told = said.json["error"]
    assert said.code == code == told["exit_code"] and told["slug"] == slug and told["hint"]
    assert f"error[{slug}]" in said.err


def test_an_answer_that_is_no_stays_one_object(tmp_path: Path, intaglio: Intaglio) -> None:
    said = intaglio("compile", DIGITS, "--target", "cortex-m4f", "--ram", "64", "-o", tmp_path / "p", "--json")
    assert said.code == 1 and said.json["fits"] is False


def test_the_process_itself_says_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "intaglio", "fit", DIGITS, "--bogus", "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and json.loads(done.stdout)["error"]["slug"] == "usage"


def test_the_version(intaglio: Intaglio) -> None:
    assert intaglio("--version").out.strip() == __version__


def test_the_nearest_target_is_named(intaglio: Intaglio, tmp_path: Path) -> None:
    assert "did you mean `cortex-m4f`?" in intaglio("compile", DIGITS, "--target", "cortex-m4ff", "-o", tmp_path / "p").err
