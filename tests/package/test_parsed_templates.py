"""Parsed templates are kept between processes; a file that is damaged or unsafe is parsed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jinja2
import jinja2.nodes
import pytest

from intaglio.package import template
from intaglio.package.template import _environment, shipped_template

FILE = "src/NAME_static.c.j2"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("INTAGLIO_CACHE_DIR", str(tmp_path))
    _environment.cache_clear()
    yield tmp_path / "templates"
    _environment.cache_clear()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    seen: list[str | None] = []
    parse = jinja2.Environment._parse

    def noted(self: jinja2.Environment, source: str, name: str | None, filename: str | None) -> jinja2.nodes.Template:
        seen.append(name)
        return parse(self, source, name, filename)

    monkeypatch.setattr(jinja2.Environment, "_parse", noted)
    return seen


def load() -> jinja2.Template:
    """As a new process does."""
    _environment.cache_clear()
    return _environment(shipped_template("posix")).get_template(FILE)


def test_a_template_is_parsed_once(kept: Path, parsed: list[str | None]) -> None:
    load()
    load()
    assert parsed == [FILE] and len(list(kept.iterdir())) == 1


def test_a_damaged_file_is_made_again(kept: Path, parsed: list[str | None]) -> None:
    load()
    [file] = kept.iterdir()
    whole = file.read_bytes()
    for harm in (whole[:-1] + b"?", whole[:100], b""):
        file.write_bytes(harm)
        load()
        assert file.read_bytes() == whole
    assert parsed == [FILE] * 4


def test_a_file_that_others_could_have_written_is_not_used(kept: Path, parsed: list[str | None]) -> None:
    load()
    [file] = kept.iterdir()
    file.chmod(0o666)
    load()
    assert parsed == [FILE] * 2


def test_a_folder_that_cannot_be_written_does_no_harm(tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("INTAGLIO_CACHE_DIR", str(tmp_path / "file"))
    assert load().name == FILE


def test_templates_of_users_are_not_kept(tmp_path: Path, kept: Path) -> None:
    template.export_template("posix", tmp_path / "own")
    _environment((tmp_path / "own",)).get_template(FILE)
    assert not kept.exists()
