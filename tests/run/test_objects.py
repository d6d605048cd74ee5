"""The cache of compiled objects: the same inputs are compiled once, other inputs are compiled, and damage does no harm."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from intaglio.run.build import BuildOptions, Runner, build_project
from intaglio.run.objects import FOLDER, SIZE, Inputs, ObjectCache, inputs_of, object_cache
from intaglio.run.package import Package
from intaglio.run.toolchains import find_toolchain
from intaglio.targets.target import find_target
from support.building import needs_gcc, square_of_sum, write_sources
from support.firmware_running import firmware
from support.programs import add_then_square

GCC = ("-std=c99", "-Iinclude")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ObjectCache:
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    found = object_cache()
    assert found is not None
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write_sources(add_then_square(), tmp_path / "project")


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sources in the order in which a compiler is started for them."""
    seen: list[str] = []
    attempt = Runner.attempt

    def noted(self: Runner, command: tuple[str, ...]) -> str | None:
        seen.extend(word for before, word in pairwise(command) if before == "-c")
        return attempt(self, command)

    monkeypatch.setattr(Runner, "attempt", noted)
    return seen


def build(project: Path, *cflags: str) -> Package:
    build_project(project, "tiny", find_target("host"), find_toolchain("gcc"), BuildOptions(cflags=cflags))
    return Package.load(project)


@needs_gcc
def test_the_second_build_compiles_nothing(cache: ObjectCache, project: Path, compiled: list[str]) -> None:
    build(project)
    libraries = [path.read_bytes() for path in sorted((project / "lib").iterdir())]
    first, compiled[:] = list(compiled), []
    build(project)
    assert "src/tiny_kernels_0.c" in first and "src/app/main.c" in first
    assert compiled == []
    assert [path.read_bytes() for path in sorted((project / "lib").iterdir())] == libraries


@needs_gcc
def test_a_changed_header_compiles_what_includes_it(cache: ObjectCache, project: Path, compiled: list[str]) -> None:
    build(project)
    header = project / "src" / "app" / "npy.h"
    header.write_text(header.read_text() + "/* more */\n")
    compiled.clear()
    build(project)
    assert set(compiled) == {"src/app/main.c", "src/app/npy.c"}


@needs_gcc
def test_a_changed_source_and_other_flags_compile(cache: ObjectCache, project: Path, compiled: list[str]) -> None:
    build(project)
    kernels = project / "src" / "tiny_kernels_0.c"
    kernels.write_text(kernels.read_text().replace(" * ", " + "))
    compiled.clear()
    package = build(project)
    assert "src/tiny_kernels_0.c" in compiled
    x = np.ones((1, 8), np.float32)
    assert not np.array_equal(package.run({"in0": x})["the/output:0"], square_of_sum(x))  # a sum is no square
    compiled.clear()
    build(project, "-DMORE")
    assert "src/tiny.c" in compiled and "src/app/npy.c" in compiled


@needs_gcc
def test_a_source_that_fails_fails_again(cache: ObjectCache, project: Path) -> None:
    from intaglio.errors import IntaglioError

    (project / "src" / "more.c").write_text("int more(void) { return nothing; }\n")
    for _ in range(2):
        with pytest.raises(IntaglioError, match="nothing"):
            build(project)


@needs_gcc
def test_damaged_entries_are_made_again(cache: ObjectCache, project: Path, compiled: list[str]) -> None:
    build(project)
    whole = {path: path.read_bytes() for path in cache.entries()}
    for path in whole:
        path.write_bytes(whole[path][:-1] + b"?")
    compiled.clear()
    x = np.ones((1, 8), np.float32)
    assert np.array_equal(build(project).run({"in0": x})["the/output:0"], square_of_sum(x))
    assert "src/tiny_kernels_0.c" in compiled and {path: path.read_bytes() for path in cache.entries()} == whole


@pytest.mark.parametrize(("name", "value"), [(FOLDER, "off"), (SIZE, "0")])
def test_it_can_be_switched_off(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    assert object_cache() is None


def test_weights_that_the_assembler_reads_are_not_kept(tmp_path: Path) -> None:
    project = write_sources(add_then_square(weights=3000), tmp_path / "project")
    assert inputs_of(project, "src/tiny_weights.S", replace(find_toolchain(), kind="gcc"), GCC, ()) is None


@needs_gcc
def test_a_folder_that_cannot_be_written_does_no_harm(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(FOLDER, str(tmp_path / "file" / "cache"))
    assert build(project).folder == project


def test_a_folder_that_others_can_write_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER, str(tmp_path / "open"))
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert object_cache() is None


@pytest.mark.slow
def test_firmware_keeps_its_stack_usage(cache: ObjectCache, tmp_path: Path, compiled: list[str]) -> None:
    from support.commands import DIGITS

    first = firmware(DIGITS, tmp_path / "a", name="net")
    assert "firmware/startup.c" in compiled
    compiled.clear()
    again = firmware(DIGITS, tmp_path / "b", name="net")
    assert compiled == [] and again.manifest.files == first.manifest.files
    assert first.manifest.firmware is not None and first.manifest.firmware == again.manifest.firmware
    assert first.manifest.firmware.stack_bytes


# The store itself


def stored(cache: ObjectCache, folder: Path, key: str, body: bytes, outside: Path | None = None) -> Path:
    made, listed = folder / "x.c.o", folder / "x.c.d"
    made.write_bytes(body)
    listed.write_text(f"x.o: src/x.c {outside or ''} \\\n include/x.h\n")
    cache.store(Inputs(key, frozenset({"src/x.c", "include/x.h"})), made, listed)
    made.unlink()
    return made


def test_a_changed_header_of_the_system_is_seen(cache: ObjectCache, tmp_path: Path) -> None:
    header = tmp_path / "a system.h"
    header.write_text("1")
    made = stored(cache, tmp_path, "ab" * 32, b"object", Path(str(header).replace(" ", "\\ ")))
    assert cache.fetch("ab" * 32, made) and made.read_bytes() == b"object"
    header.write_text("12")
    assert not cache.fetch("ab" * 32, made)


@pytest.mark.parametrize("harm", [lambda b: b"?" + b[1:], lambda b: b[: len(b) // 2], lambda _: b"", lambda b: b + b"?"])
def test_an_entry_with_any_other_byte_is_removed(harm: Callable[[bytes], bytes], cache: ObjectCache, tmp_path: Path) -> None:
    made = stored(cache, tmp_path, "ab" * 32, b"object")
    [entry] = cache.entries()
    entry.write_bytes(harm(entry.read_bytes()))
    assert not cache.fetch("ab" * 32, made) and not made.exists() and list(cache.entries()) == []


def test_a_file_that_the_key_does_not_cover_is_not_kept(cache: ObjectCache, tmp_path: Path) -> None:
    made = stored(cache, tmp_path, "ab" * 32, b"object", Path("src/unseen.h"))
    assert not cache.fetch("ab" * 32, made)


def test_the_least_recently_used_go_first(cache: ObjectCache, tmp_path: Path) -> None:
    small = replace(cache, limit_bytes=16 * 4096)
    keys = ["a" + digit * 63 for digit in "0123456789"]
    for key in keys:
        made = stored(small, tmp_path, key, bytes(900))
        assert small.fetch(keys[0], made)  # used all the time
    there = {path.name for path in small.entries()}
    assert keys[0] in there and keys[-1] in there and keys[1] not in there
    assert sum(path.stat().st_size for path in small.entries()) <= 4096
    stored(small, tmp_path, keys[1], bytes(3000))
    assert keys[1] not in {path.name for path in small.entries()}  # too large for its share


def test_readers_and_writers_at_once(cache: ObjectCache, tmp_path: Path) -> None:
    bodies, wrong = [bytes([n]) * 5000 for n in range(8)], []

    def work(number: int) -> None:
        folder = tmp_path / str(number)
        folder.mkdir()
        for _ in range(20):
            made = stored(cache, folder, "ab" * 32, bodies[number])
            if not cache.fetch("ab" * 32, made) or made.read_bytes() not in bodies:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and len(list(cache.entries())) == 1


FLAGS = ["-march=native", "-g", "-include", "-fprofile-use=x", "-Wp,-imacros,x", "-fplugin=x", "@more", "--coverage", "-save-temps"]


@pytest.mark.parametrize("flag", FLAGS)
def test_flags_that_read_or_name_files_keep_nothing(flag: str, project: Path) -> None:
    gcc = replace(find_toolchain(), kind="gcc")
    assert inputs_of(project, "src/tiny.c", gcc, (*GCC, "-O3"), ("-O3",)) is not None
    assert inputs_of(project, "src/tiny.c", gcc, (*GCC, flag), (flag,)) is None


def test_the_key_covers_compiler_flags_and_headers(project: Path) -> None:
    gcc = replace(find_toolchain(), kind="gcc")

    def key(toolchain: object = gcc, flags: tuple[str, ...] = GCC) -> str:
        found = inputs_of(project, "src/tiny.c", gcc if toolchain is gcc else replace(gcc, version="other"), flags, ())
        assert found is not None
        return found.key

    first = key()
    assert key() == first and key("other") != first and key(flags=(*GCC, "-O2")) != first
    header = project / "include" / "tiny.h"
    header.write_text(header.read_text() + "\n")
    assert key() != first


def test_what_the_texts_do_not_name_is_not_in_the_key(project: Path) -> None:
    gcc = replace(find_toolchain(), kind="gcc")

    def key(*flags: str) -> str:
        found = inputs_of(project, "src/tiny.c", gcc, (*GCC, *flags), ())
        assert found is not None
        return found.key

    first = key()
    assert key("-Isrc/other") == key("-DOTHER_HOOK") == key("-DOTHER_SERIAL") == first
    assert key("-DTINY_HOOK") != first and key("-DNDEBUG") != first and key("-DOTHER_HOOK=1") != first
    (project / "src" / "other").mkdir()
    (project / "src" / "other" / "tiny.h").write_text("int other;\n")
    assert key("-Isrc/other") != first
