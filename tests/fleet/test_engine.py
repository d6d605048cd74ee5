"""The engine of a fleet with pieces that crash, hang and fail; and its store, with several writers."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from intaglio.errors import ToolError, UserError
from intaglio.fleet.changes import read_run
from intaglio.fleet.crews import Crew, DaskCrew, LocalCrew, _gone, check_crew
from intaglio.fleet.pieces import Piece, Result, told
from intaglio.fleet.run import Finished, run_fleet
from intaglio.fleet.store import Store
from intaglio.fleet.work import is_same, keep
from intaglio.fleet.worker import _Room, sweep
from intaglio.project.fleet import FleetPlan
from support.fleet_work import piece

TESTS = str(Path(__file__).parents[1])


@pytest.fixture(autouse=True)
def workers_find_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", TESTS)


class Fleet:
    """Runs of these pieces on one store."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.store, self.patch, self.started = Store(folder / "store"), patch, 0
        self.plan = FleetPlan((), ("compile",), False, folder, 2, 1.0, ())

    def __call__(self, pieces: Sequence[Piece], crew: Crew | None = None, *, again: bool = False) -> Finished:
        self.patch.setattr("intaglio.fleet.run.pieces_of", lambda _: list(pieces))

        def start() -> Crew:
            self.started += 1
            return crew or LocalCrew(2)

        return run_fleet(self.plan, "f.toml", self.store, start, lambda _: None, again=again)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    made = Fleet(tmp_path, monkeypatch)
    yield made
    made.store.close()


def test_whatever_a_job_does_to_its_process_the_others_go_on(fleet: Fleet, tmp_path: Path) -> None:
    pieces = [piece("fine", f"m{n}") for n in range(6)]
    pieces += [piece("crash", "c"), piece("hang", "h"), piece("wrong", "w"), piece("raises", "r")]
    pieces += [piece("crash_once", "o", tmp_path / "o"), piece("full_once", "f", tmp_path / "f")]
    fleet.plan = FleetPlan((), ("compile",), False, tmp_path, 1, 2.0, ())
    done = fleet(pieces)
    states = {row.model: (row.state, row.reason) for row in done.rows}
    assert all(states[f"m{n}"] == ("ok", "") for n in range(6)) and states["o"] == states["f"] == ("ok", "")
    assert states["c"][0] == "crashed" and "process ended" in states["c"][1]
    assert states["h"] == ("timeout", "it took longer than 2 s")
    assert states["w"] == ("failed", "unsupported-operator: no kernel") and states["r"] == ("failed", "ValueError: a bug")
    assert done.progress.retried == 4
    again = fleet([one for one in pieces if one.jobs[0].model not in "ch"])
    assert again.progress.known == again.progress.total and fleet.started == 1  # failures of a model stay as they are
    assert fleet([piece("wrong", "w")], again=True).progress.known == 0


def test_what_is_recorded_is_not_done_again(fleet: Fleet, tmp_path: Path) -> None:
    pieces = [piece("counted", f"m{n}", tmp_path / f"n{n}") for n in range(5)]
    first = fleet(pieces[:3])
    second = fleet(pieces)
    assert (first.progress.known, second.progress.known, second.before) == (0, 3, first.run)
    assert [(tmp_path / f"n{n}").read_text() for n in range(5)] == ["x"] * 5


def test_a_run_that_was_cut_short_is_taken_up(fleet: Fleet) -> None:
    jobs = [one.jobs[0] for one in (piece("fine", "a"), piece("fine", "b"))]
    run = fleet.store.begin("f.toml", jobs)
    assert fleet.store.begin("f.toml", jobs) == run
    assert fleet.store.begin("f.toml", jobs[:1]) == run + 1


def test_the_limit_of_time_is_that_of_a_job() -> None:
    several = replace(piece("fine", "a"), boards=("x", "y", "z"))
    assert (piece("fine", "a").limit_s(900), several.limit_s(900)) == (900, 2700)


def test_a_run_that_lives_is_not_taken_up(tmp_path: Path) -> None:
    jobs = piece("fine", "a").jobs
    first, second = Store(tmp_path / "store"), Store(tmp_path / "store")
    run = first.begin("f.toml", jobs)
    assert second.begin("f.toml", jobs) == run + 1
    assert first.claim([jobs[0].key]) == (set(), set())
    assert second.claim([jobs[0].key]) == (set(), {jobs[0].key})
    first.close()  # as if it was killed
    assert second.claim([jobs[0].key]) == (set(), set())
    third = Store(tmp_path / "store")
    assert third.begin("other.toml", jobs) == run + 2 and third.begin("f.toml", jobs) == run
    second.close()
    third.close()


def test_two_runs_at_once_share_the_work(fleet: Fleet, tmp_path: Path) -> None:
    pieces = [piece("counted", f"m{n}", tmp_path / f"n{n}") for n in range(12)]
    fleet.patch.setattr("intaglio.fleet.run.pieces_of", lambda _: list(pieces))
    fleet.patch.setattr("intaglio.fleet.run.WAIT_S", 0.01)
    found: list[Finished] = []

    def run() -> None:
        store = Store(tmp_path / "store")
        found.append(run_fleet(fleet.plan, "f.toml", store, lambda: LocalCrew(1), lambda _: None))
        store.close()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(tmp_path / f"n{n}").read_text() for n in range(12)] == ["x"] * 12
    assert sorted(one.run for one in found) == [1, 2] and all({r.state for r in one.rows} == {"ok"} for one in found)
    assert sum(one.progress.total - one.progress.known - one.progress.elsewhere for one in found) == 12


def test_the_run_before_is_of_the_same_file(fleet: Fleet, tmp_path: Path) -> None:
    a, b = [piece("fine", "a")], [piece("fine", "b")]
    fleet.patch.setattr("intaglio.fleet.run.pieces_of", lambda plan: a if plan.quick else b)
    other = replace(fleet.plan, quick=True)
    befores = []
    for plan, name in ((fleet.plan, "b.toml"), (other, "a.toml")) * 2:
        befores.append(run_fleet(plan, name, fleet.store, lambda: LocalCrew(1), lambda _: None).before)
    assert befores == [None, None, 1, 2]
    assert [row.model for row in read_run(tmp_path / "store@b.toml")] == ["b"]
    assert [row.model for row in read_run(tmp_path / "store")] == ["a"]


def test_workers_that_are_killed_lose_nothing(fleet: Fleet) -> None:
    fleet.plan = FleetPlan((), ("compile",), False, Path(), 50, 60.0, ())
    crew = LocalCrew(2)
    pieces = [piece("slow", f"m{n}") for n in range(10)]
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.5):
            for worker in list(crew._workers)[:1]:
                os.kill(worker.process.pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        done = fleet(pieces, crew)
    finally:
        ended.set()
        killer.join()
    assert {row.state for row in done.rows} == {"ok"} and len(done.rows) == 10 and done.progress.retried > 0


WRITER = """
import sys
from pathlib import Path
from intaglio.fleet.store import Store
from intaglio.fleet.work import is_same, keep
from intaglio.fleet.worker import _Room, sweep
from intaglio.fleet.pieces import Result
from support.fleet_work import piece
store, who = Store(Path(sys.argv[1])), sys.argv[2]
new = 0
for n in range(60):
    one = piece("fine", f"m{n}")
    new += store.record(one.jobs, [Result(one.key, "ok", who)], 1)
print(new)
"""


@pytest.mark.slow
def test_several_writers_record_each_result_once(tmp_path: Path) -> None:
    words = [sys.executable, "-c", WRITER, str(tmp_path / "store")]
    writers = [subprocess.Popen([*words, who], stdout=subprocess.PIPE, text=True) for who in "abc"]
    new = [int(writer.communicate(timeout=120)[0]) for writer in writers]
    store = Store(tmp_path / "store", create=False)
    assert sum(new) == 60 == len(store.table())
    store.close()


def test_runs_keep_what_they_found_when_a_later_one_finds_something_else(tmp_path: Path) -> None:
    store, one = Store(tmp_path / "store"), piece("fine", "m")
    for state, ram in (("failed", 0), ("lost", 1), ("ok", 2)):
        run = store.begin("f.toml", one.jobs)
        store.forget(store.failed([one.key for one in one.jobs]))
        store.record(one.jobs, [Result(job.key, state, figures={"ram": ram}) for job in one.jobs], 1)
        store.end(run)
    assert [(r.state, r.figures["ram"]) for run in store.runs() for r in store.rows(run)] == [("failed", 0), ("lost", 1), ("ok", 2)]
    run = store.begin("f.toml", [*one.jobs, *piece("fine", "other").jobs])
    store.end(run)
    assert [row.state for row in store.rows(run)] == ["ok", ""]
    other = piece("fine", "other")
    run = store.begin("f.toml", other.jobs)
    store.record(other.jobs, [Result(job.key, "ok") for job in other.jobs], 1)
    store.end(run)
    assert [row.state for row in store.rows(run - 1)] == ["ok", ""], "it was not run then"
    store.close()


def test_the_reason_of_a_full_disk_is_one_line() -> None:
    several = [(f"a{n}", f"b{n}", f"[Errno 28] No space left on device: 'a{n}' -> 'b{n}'") for n in range(99)]
    for error in (OSError(errno.ENOSPC, "No space left on device"), shutil.Error(several)):
        assert told(error) == ("trouble", "disk-full: there is no space left, in the store or for temporary files")
    assert told(ToolError("no-compiler", "there is none", hint="get one")) == ("trouble", "no-compiler: there is none")
    assert len(told(ValueError("x" * 9000))[1]) < 500
    assert told(UserError("no-emulator", "QEMU has no machine", hint="none")) == ("not emulated", "QEMU has no machine")


def test_temporary_files_of_a_job_that_is_killed_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    crew = LocalCrew(1)
    assert [outcome for _, outcome in crew.perform([piece("litter", "a", tmp_path / "where")], 1.0)] == ["timeout"]
    crew.close()
    folder = Path((tmp_path / "where").read_text())
    assert folder.is_relative_to(tmp_path) and not folder.parent.exists()
    room = _Room()
    (room.folder / "x").touch()
    sweep.cache_clear()
    sweep()
    assert (room.folder / "x").exists(), "its process lives"
    os.close(room._lock)  # as if it was killed
    sweep.cache_clear()
    sweep()
    assert not room.folder.exists()


def test_a_package_that_was_changed_in_the_store_is_put_there_again(tmp_path: Path) -> None:
    made = tmp_path / "made"
    (made / "src").mkdir(parents=True)
    (made / "manifest.json").write_text("{}")
    (made / "src" / "a.c").write_text("int a;")
    digest = keep(made, tmp_path / "packages")
    place = tmp_path / "packages" / digest[:2] / digest
    (place / "src" / "a.c").write_text("junk")
    (place / "more").touch()
    assert keep(made, tmp_path / "packages") == digest and is_same(made, place)
    assert [p.name for p in place.parent.iterdir()] == [digest]


def test_what_is_said_of_a_scheduler() -> None:
    gone = _gone("perform_guarded-aff9 cancelled for reason: scheduler-connection-lost.\nClient lost the connection")
    assert gone.message == "the Dask scheduler has gone: the connection is lost" and _gone("").message.endswith("no answer")
    with pytest.raises(UserError, match="not the address"):
        check_crew("foo", None)
    check_crew("tcp://head:8786", None)


def test_a_run_without_workers_says_what_it_waits_for() -> None:
    class Alone:
        scheduler = SimpleNamespace(address="tcp://head:8786")

        def scheduler_info(self, n_workers: int) -> dict[str, dict[str, str]]:
            return {"workers": {}}

    said: list[str] = []
    ended = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        ended.set()

    DaskCrew(Alone(), say=say)._watch(ended)
    assert said == ["waiting for a worker of tcp://head:8786"]


def test_a_store_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    folder, one = tmp_path / "store", piece("fine", "m")
    folder.mkdir()
    old = sqlite3.connect(folder / "results.sqlite")
    first = "".join(f"{name} TEXT, " for name in ("kind", "model", "variant", "place", "state", "reason", "figures", "package"))
    old.executescript(
        f"CREATE TABLE results (key TEXT PRIMARY KEY, {first} attempts INTEGER, seconds REAL);"
        "CREATE TABLE runs (id INTEGER PRIMARY KEY, started REAL NOT NULL, ended REAL, file TEXT NOT NULL);"
        "CREATE TABLE rows (run INTEGER, kind TEXT, model TEXT, variant TEXT, place TEXT, key TEXT);"
        f"INSERT INTO results VALUES ('{one.jobs[0].key}', 'compile', 'm', '', 'here', 'failed', '', '{{}}', '', 1, 1.0);"
        f"INSERT INTO runs VALUES (1, 1.0, 2.0, 'f'); INSERT INTO rows VALUES (1, 'compile', 'm', '', 'here', '{one.jobs[0].key}');"
        "PRAGMA user_version=1;"
    )
    old.close()
    store = Store(folder, create=False)
    store.begin("f.toml", one.jobs)
    store.forget([one.jobs[0].key])
    store.record(one.jobs, [Result(one.jobs[0].key, "ok")], 1)
    assert [row.state for row in store.rows(1)] == ["failed"] and [row.state for row in store.rows(2)] == ["ok"]
    store.close()


def test_a_full_disk_is_told_and_the_table_is_whole(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    store._open.execute(f"PRAGMA max_page_count={store._open.execute('PRAGMA page_count').fetchone()[0] + 3}")
    recorded = 0
    with pytest.raises(ToolError) as caught:  # noqa: PT012 (one of them, whichever it is)
        for n in range(1000):
            one = piece("fine", f"m{n}")
            store.record(one.jobs, [Result(one.key, "ok", "x" * 200)], 1)
            recorded += 1
    assert caught.value.slug == "disk-full" and "goes on where this one stopped" in caught.value.hint
    store.close()
    again = Store(tmp_path / "store")
    assert len(again.table()) == recorded > 0
    one = piece("fine", "other")
    assert again.record(one.jobs, [Result(one.key, "ok")], 1) == 1
    again.close()


def test_workers_of_dask(fleet: Fleet, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra `fleet` is not installed")
    fleet.plan = FleetPlan((), ("compile",), False, tmp_path, 1, 5.0, ())
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        crew = DaskCrew(distributed.Client(cluster))
        done = fleet([piece("fine", "a"), piece("crash", "c"), piece("crash_once", "o", tmp_path / "o")], crew)
    assert {row.model: row.state for row in done.rows} == {"a": "ok", "c": "crashed", "o": "ok"}


@pytest.mark.slow
def test_a_scheduler_that_goes_is_told_and_the_next_run_goes_on(fleet: Fleet) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra `fleet` is not installed")
    pieces = [piece("slow", f"m{n}") for n in range(30)]
    cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    client = distributed.Client(cluster, timeout=5)

    def close() -> None:
        time.sleep(4)
        cluster.close()

    closing = threading.Thread(target=close)
    closing.start()
    with pytest.raises(ToolError) as caught:
        fleet(pieces, DaskCrew(client))
    closing.join()
    assert caught.value.slug == "no-scheduler"
    assert {row.state for row in fleet(pieces).rows} == {"ok"}


@pytest.mark.slow
def test_kills_at_random_times_leave_the_table_of_an_undisturbed_run() -> None:
    script = Path(TESTS).parent / "scripts" / "fleet_kills.py"
    done = subprocess.run([sys.executable, script, "--kills", "15", "--models", "2"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "every table equal" in done.stdout, done.stderr
