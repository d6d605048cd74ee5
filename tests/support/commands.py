"""Call `intaglio` as a user does, in this process."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from intaglio.cli import terminal
from intaglio.cli.main import main

DIGITS = Path(str(resources.files("intaglio") / "demo_data" / "digits.onnx"))
DIGITS_DATA = DIGITS.with_suffix(".npz")


@dataclass(frozen=True, slots=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Intaglio:
    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, *words: str | Path) -> Said:
        self._monkeypatch.setattr(sys, "argv", ["intaglio", *map(str, words)])
        self._monkeypatch.setattr(terminal, "_printed", [])  # as in a process of its own
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = self._capsys.readouterr()
        assert "Traceback" not in said.err
        return Said(int(str(ended.value.code)), said.out, said.err)
