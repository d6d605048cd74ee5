"""Either all of a package, or none of it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from intaglio.errors import ToolError, UserError
from intaglio.package.folder import fresh_folder


def manifest(name: str) -> str:
    return json.dumps({"format": 1, "name": name, "target": "host", "intaglio": "0.1.0", "files": {}})


def write(output: Path, name: str = "new", *, force: bool = False) -> None:
    with fresh_folder(output, force=force) as folder:
        (folder / "manifest.json").write_text(manifest(name))


def test_parents_are_created(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b")
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["b"]


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write(tmp_path / "out")
    assert (tmp_path / "out" / "manifest.json").read_text() == manifest("new")


def test_force_replaces_a_package_whole(tmp_path: Path) -> None:
    write(tmp_path / "out", "old")
    (tmp_path / "out" / "build").mkdir()
    (tmp_path / "out" / "build" / "m.o").write_text("x")
    write(tmp_path / "out", "new", force=True)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["manifest.json"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_force_leaves_a_folder_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    with pytest.raises(UserError, match="is not a package"):
        write(tmp_path, force=True)
    assert (tmp_path / "precious").exists()


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(UserError, match="symbolic link"):
        write(tmp_path / "link", force=True)
    assert not any((tmp_path / "real").iterdir())


@pytest.mark.parametrize(
    ("code", "slug"), [(errno.ENOSPC, "disk-full"), (errno.EACCES, "cannot-write"), (errno.EROFS, "cannot-write")]
)
def test_a_failure_leaves_nothing_and_keeps_the_old_package(tmp_path: Path, code: int, slug: str) -> None:
    write(tmp_path / "out", "old")

    def fail() -> None:
        with fresh_folder(tmp_path / "out", force=True) as folder:
            (folder / "manifest.json").write_text("half")
            raise OSError(code, os.strerror(code))

    with pytest.raises(ToolError) as caught:
        fail()
    assert caught.value.slug == slug
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "manifest.json").read_text() == manifest("old")


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), fresh_folder(tmp_path / "out", force=False):
        raise KeyboardInterrupt
    assert not any(tmp_path.iterdir())
