from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite("support")

from support.commands import DIGITS, Intaglio  # noqa: E402
from support.outside import outside, plugin_site  # noqa: E402, F401 (fixtures)


@pytest.fixture
def intaglio(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Intaglio:
    return Intaglio(capsys, monkeypatch)


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's network, compiled once."""
    from intaglio import compile

    return compile(DIGITS, output=tmp_path_factory.mktemp("digits") / "package").folder
