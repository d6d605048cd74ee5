"""Lists and tables fit 80 columns, and nothing that a person may have to type is cut."""

from __future__ import annotations

import pytest

from intaglio.passes import PASSES
from intaglio.targets.board import all_boards
from intaglio.targets.target import all_targets
from support.commands import Intaglio

NAMES = {"passes": [p.name for p in PASSES], "targets": list(all_targets()), "boards": list(all_boards()), "ops": ["Conv", "conv("]}


@pytest.mark.parametrize("command", NAMES)
def test_a_list_fits_80_columns(intaglio: Intaglio, command: str) -> None:
    said = intaglio(command)
    assert said.code == 0
    assert max(map(len, said.out.splitlines())) <= 80
    assert all(name in said.out for name in NAMES[command])
    assert "…" not in said.out
