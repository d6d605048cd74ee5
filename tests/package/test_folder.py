"""Either all of a package, or none of it."""

from __future__ import annotations

import errno
import json
import os
from contextlib import suppress
from pathlib import Path

import pytest

from intaglio.errors import ToolError, UserError
from intaglio.package.folder import fresh_file, fresh_folder, write_text
from intaglio.package.staging import MARK


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


def killed(output: Path, *, replaced: bool = False) -> Path:
    """What a process leaves that was killed while it wrote: nobody holds its lock."""
    stem = output.with_name(f".{output.name}-k3v9x2ab")
    stem.with_suffix(".lock").write_bytes(MARK)
    stem.mkdir()
    (stem / "half").write_text("written")
    if replaced:
        (stem.with_name(f"{stem.name}-old") / "package").mkdir(parents=True)
        (stem.with_name(f"{stem.name}-old") / "package" / "before").write_text("whole")
    return stem


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    killed(tmp_path / "out")
    with fresh_folder(tmp_path / "out", force=False) as folder:
        (folder / "file").write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_package_that_was_moved_aside_comes_back(tmp_path: Path) -> None:
    killed(tmp_path / "out", replaced=True)
    with suppress(UserError), fresh_folder(tmp_path / "out", force=False):  # there is an output again
        raise AssertionError
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "before").read_text() == "whole"


def test_what_is_in_use_or_not_ours_stays(tmp_path: Path) -> None:
    import fcntl

    busy = killed(tmp_path / "out")
    foreign = tmp_path / ".out-somebody"  # as long as a name of ours
    foreign.mkdir()
    (tmp_path / ".out-somebody.lock").write_text("mine")
    with open(busy.with_suffix(".lock"), "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with fresh_folder(tmp_path / "out", force=False) as folder:
            (folder / "file").write_text("new")
    assert (busy / "half").is_file()
    assert foreign.is_dir()
    assert (tmp_path / ".out-somebody.lock").read_text() == "mine"


def test_two_processes_write_at_the_same_time(tmp_path: Path) -> None:
    with fresh_folder(tmp_path / "a", force=False) as first, fresh_folder(tmp_path / "a-b", force=False) as second:
        (first / "file").write_text("1")
        (second / "file").write_text("2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a-b"]


def test_a_page_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    page, link = tmp_path / "a" / "page.html", tmp_path / "link.html"
    write_text(page, "one")
    link.symlink_to(page)
    with pytest.raises(UnicodeEncodeError):  # as good as a full disk
        write_text(page, "half \ud800")
    assert page.read_text() == "one" and [p.name for p in page.parent.iterdir()] == ["page.html"]
    write_text(link, "two")
    assert link.is_symlink() and page.read_text() == "two"
    write_text(Path("/dev/null"), "nothing")
    assert Path("/dev/null").is_char_device()


def test_a_pipe_or_a_device_is_not_replaced_by_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="is a device or a pipe"), fresh_file(tmp_path / "pipe") as fresh:
        fresh.write_text("x")
    assert (tmp_path / "pipe").is_fifo() and [p.name for p in tmp_path.iterdir()] == ["pipe"]
