from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

pytest.register_assert_rewrite("support")

from support.commands import DIGITS, Intaglio  # noqa: E402
from support.outside import outside, plugin_site  # noqa: E402, F401 (fixtures)

OBJECTS, TUNING = "INTAGLIO_OBJECT_CACHE", "INTAGLIO_TUNING"
_made: list[str] = []


def pytest_configure(config: pytest.Config) -> None:
    """One cache of objects for a run of the tests and all its processes: many packages share sources. It starts empty: every
    source is compiled at least once. What was measured on this machine does not count."""
    os.environ[TUNING] = "/nonexistent/tuning.txt"
    if OBJECTS not in os.environ and not hasattr(config, "workerinput"):
        _made.append(tempfile.mkdtemp(prefix="intaglio-objects-"))
        os.environ[OBJECTS] = _made[0]


def pytest_unconfigure() -> None:
    for folder in _made:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def intaglio(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Intaglio:
    return Intaglio(capsys, monkeypatch)


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's network, compiled once."""
    from intaglio import compile

    return compile(DIGITS, output=tmp_path_factory.mktemp("digits") / "package").folder
