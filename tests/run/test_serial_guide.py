"""The guide for a first board: its commands run, with emulated boards behind the ports that it names, and its C compiles."""

from __future__ import annotations

import re
import shlex
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from intaglio.run.package import Package
from support.commands import DIGITS, Intaglio
from support.serial_board import answering

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "board.md"


@pytest.mark.slow
def test_the_guide_for_a_first_board(intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("unicorn")
    text = PAGE.read_text(encoding="utf-8")
    (code,) = re.findall(r"```c\n(.*?)```", text, re.S)
    shown = re.findall(r"^    (\.venv/bin/intaglio .*)$", text, re.M)
    assert len(shown) == 13
    monkeypatch.chdir(tmp_path)
    for line in shown:
        words = shlex.split(line.split("    #")[0].replace("src/intaglio/demo_data/", f"{DIGITS.parent}/"))[1:]
        if words[0] == "emulate":
            continue  # it does not end: `answering` does the same
        if words[0] == "firmware":
            Path(words[1], "firmware", "board.c").write_text(code)
        folder = tmp_path / "emulated" / Path(words[1])
        with answering(Package.load(folder)) if "--serial" in words else nullcontext("") as port:
            said = intaglio(*(port if word.startswith("/dev/") else word for word in words))
        assert said.code == 0, f"{line}\n{said.err}"
        if words[0] == "compile":
            made = words[words.index("-o") + 1]
            shutil.copytree(made, tmp_path / "emulated" / made)  # the emulator has no clocks and pins to set up
    assert "estimated on my desk" in Path("build/rehearsal.html").read_text()
