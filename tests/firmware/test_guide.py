"""The commands of the guide, one after the other."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from support.commands import DIGITS, Intaglio

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "microcontrollers.md"


@pytest.mark.slow
def test_commands_of_the_guide_run(intaglio: Intaglio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("unicorn")
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"^    \.venv/bin/intaglio (.*)$", GUIDE.read_text(encoding="utf-8"), re.M)
    assert len(shown) > 6
    for line in shown:
        words = shlex.split(line.split("    #")[0].replace("src/intaglio/demo_data/digits.onnx", str(DIGITS)))
        said = intaglio(*words)
        assert said.code == 0, (line, said.err)


def test_files_that_the_guide_lists_are_in_a_package(intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("compile", DIGITS, "--board", "nucleo-l4r5zi", "-o", tmp_path / "out", "--stop-after", "build").code == 0
    table = GUIDE.read_text(encoding="utf-8").split("## What is in the package")[1].split("\n\n")[1]
    paths = [path for row in table.splitlines()[2:] for path in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert len(paths) > 10
    for path in paths:
        assert (tmp_path / "out" / path).exists(), path
