"""The fault table, second part: what is around a cache's file, and who else uses it."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from intaglio.run.opencl.cache_file import DISTRUSTED, MARK, Mark, dump, parse
from support.opencl_fault_cases import DAMAGED, DIED, FOREIGN, Case
from support.opencl_faults import PROGRAMS, Bench, Started

Check = Callable[[Bench], None]
ROOT = os.geteuid() == 0


def plain() -> tuple[str, ...]:
    """Root may do everything, whatever the permissions are; without these capabilities it is a user like others."""
    if ROOT and shutil.which("setpriv") is None:
        pytest.skip("root, and there is no `setpriv`")
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner") if ROOT else ()


def does_without(started: Started, *texts: str) -> None:
    """All from source; the reason told once."""
    assert started.right and started.counts["source"] == PROGRAMS and not started.handed, started
    assert len(started.told) == 1 and all(text in started.told[0] for text in texts), started.told


# The file


def unreadable(bench: Bench) -> None:
    bench.write(*bench.world.records)
    bench.cache.chmod(0)
    before = bench.cache.stat()
    does_without(bench.start(before=plain()), "is not used", "Permission denied")
    assert bench.cache.stat() == before
    bench.cache.chmod(0o644)
    bench.heals()


def with_mode(mode: int, said: str, owner: tuple[int, int] | None = None) -> Check:
    def check(bench: Bench) -> None:
        if owner is not None and not ROOT:
            pytest.skip("only root can give files away")
        bench.write(*bench.world.records)
        data = bench.cache.read_bytes()
        if owner is not None:
            os.chown(bench.cache, *owner)
        bench.cache.chmod(mode)
        does_without(bench.start(), "is not used", said)
        assert bench.cache.read_bytes() == data

    return check


def unwritable_file(bench: Bench) -> None:
    """It is replaced, not written to: that needs the folder alone."""
    bench.write(*bench.world.others)
    bench.cache.chmod(0o400)
    first = bench.start(before=plain())
    assert first.right and not first.told and first.counts["saved"] == PROGRAMS, first
    bench.heals()
    bench.kept(parse(dump(bench.world.others)))


def instead(make: Callable[[Path], object], said: str) -> Check:
    """Something else is where the file should be; it stays."""

    def check(bench: Bench) -> None:
        make(bench.cache)
        kind = os.lstat(bench.cache).st_mode
        does_without(bench.start(), "is not used", said)
        assert os.lstat(bench.cache).st_mode == kind

    return check


def link_to_a_file(bench: Bench) -> None:
    real = bench.folder / "real"
    real.write_bytes(dump(bench.world.records))
    bench.cache.symlink_to(real)
    bench.heals()
    real.write_bytes(dump(bench.world.others))
    assert bench.start().counts["source"] == PROGRAMS
    bench.heals()
    bench.kept(parse(dump(bench.world.others)))


def link_to_nothing(bench: Bench) -> None:
    bench.cache.symlink_to(bench.folder / "nothing")
    assert bench.start().counts["saved"] == PROGRAMS
    bench.heals()


def named(name: str) -> Check:
    def check(bench: Bench) -> None:
        place = bench.folder / name
        first = bench.start(cache=place)
        assert first.right and not first.told and first.counts["saved"] == PROGRAMS
        second = bench.start(cache=place)
        assert second.right and not second.told and second.counts["writable"] == PROGRAMS

    return check


def name_too_long(bench: Bench) -> None:
    does_without(bench.start(cache=bench.folder / ("n" * 253)), "cannot be written", "too long")


# The folder


def no_folder(bench: Bench) -> None:
    named("not/yet/there/tiny.clbin")(bench)


def folder_is_a_file(bench: Bench) -> None:
    (bench.folder / "file").write_text("mine")
    does_without(bench.start(cache=bench.folder / "file" / "tiny.clbin"), "Not a directory")
    assert (bench.folder / "file").read_text() == "mine"


def folder_of_the_kernel(bench: Bench) -> None:
    does_without(bench.start(cache=Path("/proc/tiny.clbin")), "cannot be written")


def read_only_folder(bench: Bench) -> None:
    bench.folder.chmod(0o500)
    does_without(bench.start(before=plain()), "cannot be written", "Permission denied")
    assert not list(bench.folder.iterdir())


def read_only_folder_with_a_cache(bench: Bench) -> None:
    bench.write(*bench.world.records)
    bench.folder.chmod(0o500)
    first = bench.start(before=plain())
    assert first.right and not first.told and first.counts["writable"] == PROGRAMS, first


def read_only_folder_with_a_damaged_cache(bench: Bench) -> None:
    data = dump(bench.world.records)[:-300]
    bench.cache.write_bytes(data)
    bench.folder.chmod(0o500)
    first = bench.start(before=plain())
    assert first.right and len(first.told) == 2, first
    assert DAMAGED in first.told[0] and "cannot be written" in first.told[1]
    assert bench.cache.read_bytes() == data


def folder_for_everybody(bench: Bench) -> None:
    bench.write(*bench.world.records)
    bench.folder.chmod(0o777)
    does_without(bench.start(), "its folder may be written by everybody")
    bench.folder.chmod(0o1777)  # as /tmp
    bench.heals()


SMALL_DISK = """
mount -t tmpfs -o size=64k,mode=700 none "$0" || exit 77
cp "$1" "$0/tiny.clbin"; after=$2; shift 2
"$@"; code=$?
cp -r "$0/." "$after"; exit $code
"""


def full_disk(bench: Bench) -> None:
    """Room for the cache that is there, not for another one."""
    inside = bench.folder / "disk"
    inside.mkdir()
    good, after = bench.folder / "good", bench.folder / "after"
    good.write_bytes(dump(bench.world.others))
    words = ("unshare", "-m", "sh", "-c", SMALL_DISK, str(inside), str(good), str(after))
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted here")
    first = bench.start(cache=inside / "tiny.clbin", before=words)
    if first.code == 77:
        pytest.skip("no file system can be mounted here")
    does_without(first, "cannot be written", "No space left on device")
    assert (after / "tiny.clbin").read_bytes() == good.read_bytes() and not list(after.glob("*.tmp.*"))


# What is beside it


def beside(end: str, make: Callable[[Path], object]) -> Check:
    """Means nothing: everything is kept, and found again."""

    def check(bench: Bench) -> None:
        bench.write(*bench.world.others)
        make(bench.folder / f"tiny.clbin{end}")
        first = bench.start()
        assert first.right and not first.told and first.counts["saved"] == PROGRAMS, first
        bench.heals()
        bench.kept(parse(dump(bench.world.others)))

    return check


def bad_lock(make: Callable[[Path], object]) -> Check:
    def check(bench: Bench) -> None:
        bench.write(*bench.world.others)
        make(bench.folder / "tiny.clbin.lock")
        does_without(bench.start(), "cannot be written, programs are not kept")
        bench.is_whole()
        bench.kept(parse(dump(bench.world.others)))

    return check


def locked_for(seconds: float) -> Check:
    def check(bench: Bench) -> None:
        bench.write(*bench.world.others)
        with open(bench.folder / "tiny.clbin.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            timer = threading.Timer(seconds, fcntl.flock, (lock, fcntl.LOCK_UN))
            timer.start()
            first = bench.start()
            timer.cancel()
        if seconds < 10:
            assert first.right and not first.told and first.counts["saved"] == PROGRAMS, first
            bench.heals()
        else:
            does_without(first, "another process has held its lock for 10 s")
        bench.kept(parse(dump(bench.world.others)))

    return check


def a_folder_for_a_leftover(bench: Bench) -> None:
    (bench.folder / "tiny.clbin.tmp.4").mkdir()
    assert bench.start().counts["saved"] == PROGRAMS
    again = bench.start()
    assert again.right and not again.told and again.counts["writable"] == PROGRAMS


def sentinel(bench: Bench, key: bytes) -> Path:
    return bench.folder / f"tiny.clbin.loading.{key.hex()[:16]}"


def sentinel_says(text: bytes, *, died: bool) -> Check:
    def check(bench: Bench) -> None:
        bench.write(*bench.world.records)
        sentinel(bench, bench.world.programs[0].key).write_bytes(text)
        first = bench.start()
        assert first.right and first.counts["source"] == died, first
        assert [DIED in line for line in first.told] == [True] * died, first.told
        bench.heals()
        bench.has_ours()
        bench.kept(parse(dump(bench.world.others)))

    return check


def sentinel_of_the_living(bench: Bench) -> None:
    bench.write(*bench.world.records)
    path = sentinel(bench, bench.world.programs[0].key)
    path.write_bytes(b"L")
    with open(path) as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        first = bench.start()
        assert first.right and not first.told and first.counts["writable"] == PROGRAMS, first
        assert path.read_bytes() == b"L"
    path.unlink()
    bench.heals()


def sentinel_of(number: int, *, there: bool) -> Check:
    """Of a program that this process does not use: another driver's, or nobody's."""

    def check(bench: Bench) -> None:
        bench.write(*bench.world.records)
        key = bench.world.others[number].key if there else b"\xab" * 32
        sentinel(bench, key).write_bytes(b"L")
        assert bench.start().right
        bench.heals()
        bench.kept(parse(dump([record for record in bench.world.records if record.kind != MARK])))
        marks = {r.key: r.content.what for r in bench.read().records if isinstance(r.content, Mark)}
        assert marks.get(key) == (DISTRUSTED if there else None)

    return check


def another_kind_of_file(bench: Bench) -> None:
    diary = bench.folder / "diary.txt"
    diary.write_text("my diary")
    first = bench.start(cache=diary)
    assert first.right and len(first.told) == 1 and FOREIGN in first.told[0], first
    assert bench.start("--warm", cache=diary).code == 2
    assert diary.read_text() == "my diary" and len(list(bench.folder.iterdir())) <= 2


def named_otherwise(bench: Bench) -> None:
    """A file of any name is ours when it begins as ours do."""
    cache = bench.folder / "programs.bin"
    cache.write_bytes(dump(bench.world.records)[:-300])
    first = bench.start(cache=cache)
    assert first.right and len(first.told) == 1 and DAMAGED in first.told[0], first
    again = bench.start(cache=cache)
    assert again.right and not again.told and again.counts["writable"] == PROGRAMS, again


def sentinel_is_a_folder(bench: Bench) -> None:
    bench.write(*bench.world.records)
    sentinel(bench, bench.world.programs[0].key).mkdir()
    first = bench.start()
    assert first.right and not first.told and first.counts["writable"] == PROGRAMS, first


TABLE: Sequence[tuple[str, Check]] = (
    ("an unreadable file", unreadable),
    ("a file that cannot be written", unwritable_file),
    ("a file that everybody may write", with_mode(0o666, "may be written by everybody")),
    ("a file that another group may write", with_mode(0o660, "a group of others", (0, 4321))),
    ("a file of another user", with_mode(0o644, "belongs to another user", (4321, 0))),
    ("a folder instead of the file", instead(Path.mkdir, "it is a folder")),
    ("a pipe instead of the file", instead(os.mkfifo, "it is not a file")),
    ("a device instead of the file", instead(lambda path: path.symlink_to("/dev/null"), "it is not a file")),
    ("a link to itself instead of the file", instead(lambda path: path.symlink_to(path), "symbolic links")),
    ("another kind of file", another_kind_of_file),
    ("a damaged cache of another name", named_otherwise),
    ("a link to the file", link_to_a_file),
    ("a link to nothing", link_to_nothing),
    ("a name with blanks and quotes", named("a b'c\"d\n$e.clbin")),
    ("a name that is too long for a lock", name_too_long),
    ("no folder", no_folder),
    ("a file instead of the folder", folder_is_a_file),
    ("a folder of the kernel", folder_of_the_kernel),
    ("a read-only folder", read_only_folder),
    ("a read-only folder with a cache", read_only_folder_with_a_cache),
    ("a read-only folder with a damaged cache", read_only_folder_with_a_damaged_cache),
    ("a folder that everybody may write", folder_for_everybody),
    ("a full disk", full_disk),
    ("a lock file that somebody left", beside(".lock", lambda path: path.write_text("12345"))),
    ("a lock file that nobody may read", beside(".lock", lambda path: path.touch(mode=0o200) if ROOT else path.touch())),
    ("a half-written file that somebody left", beside(".tmp.12345", lambda path: path.write_bytes(b"IGCLBIN\0\1"))),
    ("a folder for a half-written file", a_folder_for_a_leftover),
    ("a folder for a lock", bad_lock(Path.mkdir)),
    ("a link for a lock", bad_lock(lambda path: path.symlink_to("elsewhere"))),
    ("a lock that is held for a moment", locked_for(0.7)),
    ("a lock that is held for ever", locked_for(60)),
    ("a sentinel of a dead process", sentinel_says(b"L", died=True)),
    ("a sentinel that says died", sentinel_says(b"D", died=True)),
    ("a sentinel of garbage", sentinel_says(b"\0\xffgarbage", died=True)),
    ("an empty sentinel", sentinel_says(b"", died=False)),
    ("a sentinel of a living process", sentinel_of_the_living),
    ("a sentinel of another device", sentinel_of(0, there=True)),
    ("a sentinel of an earlier driver", sentinel_of(2, there=True)),
    ("a sentinel of nothing", sentinel_of(0, there=False)),
    ("a folder for a sentinel", sentinel_is_a_folder),
)
QUICK = {
    "another kind of file", "a folder instead of the file", "a file that everybody may write", "a read-only folder",
    "a sentinel of a dead process",
}  # fmt: skip


def around() -> Iterator[Case]:
    for name, check in TABLE:
        yield Case(name, check, name in QUICK)
