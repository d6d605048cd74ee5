"""`--no-source` and `--no-ir`: what a package does not have, and what still works."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.commands import DIGITS, Intaglio


def test_the_summary_says_what_is_inside(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p")
    assert "inside, for `validate`: the trained model and its IR" in said.out
    assert (tmp_path / "p" / "ir" / "source.onnx").is_file()


@pytest.mark.parametrize("word", ["--no-source", "--no-ir"])
def test_one_of_both_is_enough_to_validate(word: str, intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", word)
    assert said.code == 0
    names = {path.name for path in (tmp_path / "p" / "ir").iterdir()}
    assert names == ({"digits.ig", "digits.safetensors"} if word == "--no-source" else {"source.onnx"})
    assert intaglio("validate", tmp_path / "p").code == 0
    assert intaglio("profile", tmp_path / "p").code == 0
    assert "is up to date" in intaglio("compile", DIGITS, "-o", tmp_path / "p", word).out


def test_without_both_there_is_nothing_to_compare_with(intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", DIGITS, "-o", tmp_path / "p", "--no-source", "--no-ir")
    assert said.code == 0 and "inside" not in said.err and not (tmp_path / "p" / "ir").exists()
    assert intaglio("profile", tmp_path / "p").code == 0
    said = intaglio("validate", tmp_path / "p")
    assert said.code == 2 and "error[no-reference]" in said.err and "hint: " in said.err
    assert intaglio("report", tmp_path / "p", "-o", tmp_path / "r.html").code == 0
