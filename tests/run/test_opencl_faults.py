"""The program cache of a package for OpenCL devices cannot hurt: no crash, no wrong output, no lost entry.

Every start is a process of its own, with PoCL. A few cases run always, the whole table with `make test-all`.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from intaglio.run.opencl import loader
from intaglio.run.opencl.cache_file import Program, Record, dump, parse
from intaglio.run.opencl.cache_store import update_cache
from intaglio.run.toolchains import pip_zig
from support.building import needs_gcc
from support.opencl_fault_cases import Case, check_file, damaged_files, files
from support.opencl_fault_drivers import drivers
from support.opencl_fault_places import around
from support.opencl_faults import COUNTS, PROGRAMS, Bench, World, expected, make_world
from support.pocl import needs_pocl
from support.strict import CLANG, GCC

CASES = [*files(), *around(), *drivers()]
KILLS = 50
QUICK_KILLS = (2, 18, 34, 48)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    base = tmp_path_factory.getbasetemp()
    return make_world((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "opencl-faults")


@pytest.fixture
def bench(world: World, tmp_path: Path) -> Bench:
    return Bench(world, tmp_path / "cache")


def sometimes(always: bool) -> list[pytest.MarkDecorator]:
    return [] if always else [pytest.mark.slow]


def test_the_table_is_long_and_names_are_told_apart() -> None:
    assert len(CASES) >= 200 and len({case.name for case in CASES}) == len(CASES)
    assert 20 <= len([case for case in CASES if case.quick]) <= 35


@needs_pocl
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=sometimes(case.quick)) for case in CASES])
def test_a_fault_in_the_cache_hurts_nobody(case: Case, bench: Bench) -> None:
    case.check(bench)


# Killed


def warming(bench: Bench, variables: Mapping[str, str], cache: Path | None = None) -> subprocess.Popen[str]:
    line, environment = bench.command("--warm", cache=cache), bench.environment(variables)
    return subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def there(world: World, number: int) -> tuple[Record, ...]:
    """What is in the cache before: nothing, others' programs, or also ours, untested."""
    return ((), world.others, (*world.others, *world.programs))[number]


@pytest.fixture(scope="module")
def seconds(world: World, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, bool], float]:
    """How long `--warm` takes; `cold`: with a driver that has never seen the kernels."""

    @cache
    def measured(number: int, cold: bool) -> float:
        bench = Bench(world, tmp_path_factory.mktemp("measure") / "cache")
        bench.write(*there(world, number))
        start = time.monotonic()
        assert warming(bench, {"POCL_CACHE_DIR": str(bench.folder)} if cold else {}).wait() == 0
        return time.monotonic() - start

    return measured


def is_killed_and_heals(bench: Bench, process: subprocess.Popen[str], before: Sequence[Record]) -> None:
    process.communicate(timeout=100)
    assert process.returncode in (0, -signal.SIGKILL)
    if bench.cache.exists():
        bench.is_whole()
    first = bench.start()
    assert first.right, first
    bench.heals()
    bench.has_ours()
    bench.kept(parse(dump(before)))


@needs_pocl
@pytest.mark.parametrize("number", [pytest.param(n, id=f"kill {n}", marks=sometimes(n in QUICK_KILLS)) for n in range(KILLS)])
def test_killed_while_it_warms(number: int, bench: Bench, seconds: Callable[[int, bool], float], tmp_path: Path) -> None:
    """Moments are spread over the time that it takes, at random within each stretch. Three in five meet a driver that has compiled
    the kernels before: it is quick, and more moments are in our own code."""
    kind, cold = (0, 1, 0, 1, 2)[number % 5], number % 5 < 2
    moment = (number // 5 + random.Random(number).random()) / (KILLS // 5) * seconds(kind, cold)
    before = there(bench.world, kind)
    if before:
        bench.write(*before)
    (tmp_path / "pocl").mkdir()
    process = warming(bench, {"POCL_CACHE_DIR": str(tmp_path / "pocl")} if cold else {})
    time.sleep(moment)
    process.send_signal(signal.SIGKILL)
    is_killed_and_heals(bench, process, before)


STEPS = 40  # more than it takes


@needs_pocl
@pytest.mark.slow
@pytest.mark.parametrize("kind", range(3))
def test_killed_at_every_step_on_disk(kind: int, world: World, tmp_path: Path) -> None:
    """Before each lock, write, rename, removal: also those that no random moment meets."""
    for step in range(1, STEPS):
        bench = Bench(world, tmp_path / f"{step}")
        before = there(world, kind)
        if before:
            bench.write(*before)
        process = warming(bench, {"LD_PRELOAD": world.environment[loader.VARIABLE], "KILL_AT": str(step)})
        is_killed_and_heals(bench, process, before)
        if process.returncode == 0:
            break
    assert 5 < step < STEPS - 1


# Several at once


@needs_pocl
@pytest.mark.parametrize(
    ("drivers", "quick"),
    [
        pytest.param(drivers, quick, id=name, marks=sometimes(quick))
        for name, drivers, quick in [
            ("two of one driver", ("", ""), True),
            ("two of two drivers", ("1", "2"), False),
            ("four of one driver", ("", "", "", ""), False),
            ("four of four drivers", ("1", "2", "3", "4"), True),
            ("eight of two drivers", ("1", "2") * 4, False),
        ]
    ],
)
def test_processes_that_warm_one_cache_lose_nothing(drivers: tuple[str, ...], quick: bool, bench: Bench, tmp_path: Path) -> None:
    for _ in range(1 if quick else 3):
        bench.write(*bench.world.others)
        benches = [Bench(bench.world, tmp_path / str(n)) for n in range(len(drivers))]
        variables = [{"DRIVER": driver} if driver else {} for driver in drivers]
        at_once = [warming(own, more, bench.cache) for own, more in zip(benches, variables, strict=True)]
        for process, own in zip(at_once, benches, strict=True):
            said, told = process.communicate(timeout=100)
            assert process.returncode == 0 and not told and COUNTS.search(said), (said, told)
            np.testing.assert_allclose(np.load(own.output), expected(), rtol=1e-5, atol=1e-6)
        records = bench.read().records
        others = {record.key for record in bench.world.others}
        programs = [record for record in records if isinstance(record.content, Program) and record.key not in others]
        assert len({record.key for record in programs}) == len(programs) == PROGRAMS * len(set(drivers))
        bench.kept(parse(dump(bench.world.others)))
        for more in variables:
            bench.heals(more)


@needs_pocl
@pytest.mark.slow
def test_a_command_of_ours_may_write_at_the_same_time(bench: Bench) -> None:
    """`intaglio cache prune` and the like, written in Python, keep to the same locks."""
    bench.write(*bench.world.others)
    for driver in ("1", "2", "3"):
        process = warming(bench, {"DRIVER": driver})
        while process.poll() is None:
            update_cache(bench.cache, lambda old: [*old.records[1:], old.records[0]])
        assert process.returncode == 0
        bench.heals({"DRIVER": driver})
    bench.kept(parse(dump(bench.world.others)))


# The C itself

FOLDERS = ("-Iinclude", "-Isrc")


def sources(world: World) -> list[str]:
    folder = world.folder / "package"
    return sorted(str(path.relative_to(folder)) for path in (folder / "src").rglob("*.c"))


@needs_pocl
@needs_gcc
def test_gcc_has_nothing_to_say_about_the_package(world: World) -> None:
    line = ["gcc", *GCC, *FOLDERS, "-O2", "-fsyntax-only", *sources(world)]
    done = subprocess.run(line, cwd=world.folder / "package", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@needs_pocl
@pytest.mark.slow
def test_zig_has_nothing_to_say_about_the_package(world: World, tmp_path: Path) -> None:
    if (zig := pip_zig()) is None:
        pytest.skip("there is no zig here")
    shutil.copytree(world.folder / "package", tmp_path / "package")
    line = [*zig.compiler, "-target", "x86_64-linux-gnu.2.17", *CLANG, *FOLDERS, "-c", *sources(world)]
    done = subprocess.run(line, cwd=tmp_path / "package", env=zig.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


SANITIZED = {"cut in second at middle", "a body that overflows", "garbage after the end", "flip first binary-size"}


@pytest.mark.slow
@needs_pocl
@needs_gcc
def test_sanitizers_find_nothing_while_a_cache_is_damaged(world: World, tmp_path: Path) -> None:
    """Drivers leak; we look at what is ours: addresses, and what C leaves undefined."""
    copy = tmp_path / "world"
    shutil.copytree(world.folder / "package", copy / "package")
    for name in ("x.npy", "good.clbin"):
        shutil.copy(world.folder / name, copy)
    flags = ("-std=c99", "-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Iinclude", "-Isrc")
    line = ["gcc", *flags, *sources(world), "-o", "bin/tiny", "-lm", "-ldl"]
    done = subprocess.run(line, cwd=copy / "package", capture_output=True, text=True)
    if done.returncode != 0 and ("cannot find" in done.stderr or "unrecognized" in done.stderr):
        pytest.skip("this gcc has no sanitizers")
    assert done.returncode == 0, done.stderr
    sanitized = World(copy, {**world.environment, "ASAN_OPTIONS": "detect_leaks=0"})
    cases = {name: data for name, data in damaged_files() if name in SANITIZED}
    assert len(cases) == len(SANITIZED)
    for name, data in cases.items():
        check_file(Bench(sanitized, tmp_path / name), data(sanitized))
