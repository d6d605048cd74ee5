"""A package for a processor that this machine is not: an error, never an illegal instruction."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.targets import target as targets
from support.commands import Intaglio


@pytest.mark.parametrize("command", ["validate", "profile"])
def test_what_it_lacks_is_said(command: str, digits: Path, intaglio: Intaglio, monkeypatch: pytest.MonkeyPatch) -> None:
    from intaglio.package.manifest import read_manifest

    needs = targets.find_target(read_manifest(digits).target).needs
    if not needs:
        pytest.skip("the package runs on every processor of its kind")
    monkeypatch.setattr(targets, "_cpu_flags", lambda: frozenset())
    said = intaglio(command, digits)
    assert said.code == 2 and "error[cannot-run]" in said.err and needs[0] in said.err
