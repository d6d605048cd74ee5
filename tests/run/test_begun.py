"""Objects that are compiled while other files are still being written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from intaglio.errors import IntaglioError
from intaglio.run.build import BuildOptions, Objects, build_project
from intaglio.run.toolchains import find_toolchain
from intaglio.stages.tasks import Tasks
from intaglio.targets.target import find_target

HOST = find_target("host")


def objects_of(project: Path, where: Path) -> Objects:
    (project / "src").mkdir(parents=True)
    (project / "include").mkdir()
    (project / "src" / "first.c").write_text("int second(void);\nint first(void);\nint first(void) { return second(); }\n")
    where.mkdir()
    return Objects(project, where, "pair", HOST, find_toolchain(), BuildOptions(library_only=True))


def test_sources_that_come_later_are_in_the_library(tmp_path: Path) -> None:
    project = tmp_path / "project"
    objects = objects_of(project, tmp_path / "objects")
    compiled = threading.Event()

    def write() -> None:
        assert compiled.wait(60), "what is there is compiled while this is written"
        (project / "src" / "second.c").write_text("int second(void);\nint second(void) { return 2; }\n")

    with ThreadPoolExecutor(2) as pool:
        begun: list[Future[object]] = []

        def start(do: Callable[[], object]) -> Future[object]:
            begun.append(pool.submit(do))
            if len(begun) == 2:
                begun[1].add_done_callback(lambda _: compiled.set())
            return begun[-1]

        objects.begin(start, write)
        build_project(project, "pair", HOST, find_toolchain(), BuildOptions(library_only=True), objects)
    assert b"second" in (project / "lib" / "libpair.so").read_bytes()


def test_an_error_of_the_compiler_is_raised_when_the_objects_are_needed(tmp_path: Path) -> None:
    objects = objects_of(tmp_path / "project", tmp_path / "objects")

    def write() -> None:
        (tmp_path / "project" / "src" / "second.c").write_text("this is not C\n")

    with Tasks() as tasks:
        objects.begin(tasks.start, write)
        with pytest.raises(IntaglioError, match="C compiler failed"):
            objects.finish()


def test_an_error_of_a_task_is_raised_when_its_file_is_needed() -> None:
    def fail() -> None:
        raise OSError("no room")

    with Tasks() as tasks:
        tasks.write(fail)
        with pytest.raises(OSError, match="no room"):
            tasks.written()


def test_what_has_not_begun_is_not_done() -> None:
    done: list[int] = []
    goes_on = threading.Event()

    def wait(n: int) -> None:
        assert goes_on.wait(60)
        done.append(n)

    with Tasks() as tasks:
        for n in range(100):
            tasks.write(partial(wait, n))
        threading.Timer(0.05, goes_on.set).start()
    assert len(done) < 100
