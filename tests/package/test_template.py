"""A network template in the hands of a user."""

from __future__ import annotations

from pathlib import Path

import pytest

from intaglio.errors import UserError
from intaglio.package.template import export_template, template_names
from support.building import write_sources
from support.programs import add_then_square


@pytest.fixture
def template(tmp_path: Path) -> Path:
    export_template("posix", tmp_path / "mine")
    return tmp_path / "mine"


def test_there_is_one_for_each_interface() -> None:
    assert template_names() == ["baremetal", "opencl", "posix", "wasm"]


def test_an_edited_template_is_used(template: Path, tmp_path: Path) -> None:
    (template / "src" / "NAME_extra.c.j2").write_text("int {{ name }}_layers(void) { return {{ layers|length }}; }\n")
    folder = write_sources(add_then_square(), tmp_path / "p", template)
    assert (folder / "src" / "tiny_extra.c").read_text() == "int tiny_layers(void) { return 2; }\n"


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("line one\n{% for %}\n", "Expected"),
        ("line one\n{{ nothing }}\n", "'nothing' is undefined"),
        ("line one\n{{ layers[0].nothing }}\n", "has no attribute 'nothing'"),
        ("line one\n{{ 1 / 0 }}\n", "division by zero"),
        ("line one\n{{ name.__class__.__mro__ }}\n", "unsafe"),
        ("line one\n{% include '../../secret' %}\n", "secret"),
    ],
)
def test_a_mistake_is_shown_with_file_and_line(template: Path, tmp_path: Path, broken: str, says: str) -> None:
    (template / "src" / "NAME.c.j2").write_text(broken)
    with pytest.raises(UserError, match=r"error\[template\]") as caught:
        write_sources(add_then_square(), tmp_path / "p", template)
    assert says in caught.value.message
    assert caught.value.where.endswith("src/NAME.c.j2, line 2")


def test_a_template_without_its_header_is_refused(template: Path, tmp_path: Path) -> None:
    (template / "include" / "NAME.h.j2").unlink()
    with pytest.raises(UserError, match=r"has no `include/NAME.h.j2`"):
        write_sources(add_then_square(), tmp_path / "p", template)


def test_export_does_not_write_over_anything(template: Path) -> None:
    with pytest.raises(UserError, match="not an empty folder"):
        export_template("posix", template)
