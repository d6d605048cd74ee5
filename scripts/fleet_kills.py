"""Kill a fleet at random times, again and again, and see that its table is that of an undisturbed run.

    make fleet-kills                                          500 kills
    .venv/bin/python scripts/fleet_kills.py --kills 20 --models 2

Three kinds in turn: the run itself (SIGKILL), one of its workers, and with `--dask` the scheduler or a worker of Dask. Another run
works on the same store at the same time with `--two`, half of the times until it is killed too. After every kill of a run, what was
recorded before must still be there, unchanged; a result that is recorded is never made again. What is killed is always a process
that this script started. Intaglio's own sources must not change meanwhile: keys have their digest.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fleet_models import write_fleet

from intaglio.fleet.store import Store

Table = dict[object, tuple[object, ...]]


def table(folder: Path) -> Table:
    if not (folder / "results.sqlite").is_file():
        return {}
    store = Store(folder, create=False)
    try:
        return {row[0]: row for row in store.table()}
    finally:
        store.close()


def run(file: Path, store: str, *more: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "intaglio", "fleet", str(file), "-j", "2", "--set", f'fleet.store="{store}"', *more]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


class Scheduler:
    """A Dask scheduler with one worker, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        self.scheduler = subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_scheduler", *words], stderr=subprocess.PIPE, text=True
        )
        assert self.scheduler.stderr is not None
        self.address = ""
        for line in self.scheduler.stderr:
            found = re.search(r"tcp://127\.0\.0\.1:\d+", line)
            if found is not None:
                self.address = found[0]
                break
        self.worker = self.start_worker(folder)
        self.folder = folder

    def start_worker(self, folder: Path) -> subprocess.Popen[bytes]:
        words = [self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(folder)]
        return subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_worker", *words, "--death-timeout", "20"],
            stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    def end(self) -> None:
        for process in (self.worker, self.scheduler):
            process.kill()
            process.wait()


def disturbed(file: Path, folder: Path, kills: int, maker: random.Random, dask: bool, two: bool) -> dict[str, int]:
    """Runs until nothing is left to do; each is killed, or its worker is, at a random time. When a store is complete, the next one
    is begun."""
    done: dict[str, int] = {"run": 0, "worker": 0, "scheduler": 0, "rounds": 0}
    wanted = table(folder / "whole")
    store, seen, length = f"disturbed{done['rounds']}", Table(), 6.0
    while sum(done[kind] for kind in ("run", "worker", "scheduler")) < kills:
        kind = maker.choice(("run", "worker", "scheduler") if dask else ("run", "worker"))
        scheduler = Scheduler(folder) if kind == "scheduler" or (dask and maker.random() < 0.2) else None
        process = run(file, store, *(["--scheduler", scheduler.address] if scheduler else []))
        beside = run(file, store) if two else None
        start = time.monotonic()
        if kind == "run":
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(maker.uniform(0.2, length))
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                done["run"] += 1
        elif kind == "scheduler" and scheduler is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(maker.uniform(1, length))
            if process.poll() is None:
                maker.choice((scheduler.scheduler, scheduler.worker)).kill()
                done["scheduler"] += 1
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                process.kill()
        else:
            while process.poll() is None:
                time.sleep(maker.uniform(0.1, 1.0))
                victims = children(process.pid)
                if victims:
                    with contextlib.suppress(OSError):
                        os.kill(maker.choice(victims), signal.SIGKILL)
                        done["worker"] += 1
                if time.monotonic() - start > 20:
                    process.kill()
                    break
        process.wait()
        if beside is not None:
            if maker.random() < 0.5 and beside.poll() is None:
                beside.kill()
                done["run"] += 1
            assert beside.wait(300) in (0, -signal.SIGKILL), "the run beside ended badly"
        if scheduler is not None:
            scheduler.end()
        now = table(folder / store)
        for key, row in seen.items():
            assert row[5] not in ("ok", "no", "failed") or now.get(key) == row, f"lost or changed: {row}"
        seen = now
        if len([row for row in now.values() if row[5] in ("ok", "no", "failed")]) == len(wanted):
            assert now == wanted, "the table differs"
            done["rounds"] += 1
            store, seen = f"disturbed{done['rounds']}", {}
    assert run(file, store).wait(600) == 0
    assert table(folder / store) == wanted, "the table differs"
    done["rounds"] += 1
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--models", type=int, default=6)
    parser.add_argument("--boards", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dask", action="store_true", help="also kill a scheduler of Dask, or its worker")
    parser.add_argument("--two", action="store_true", help="another run works on the same store")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="intaglio-kills-") as place:
        folder = Path(place)
        file = write_fleet(folder, words.models, words.boards)
        more = 'quick = true\nretries = 100\njobs = ["fit", "compile"]\ntargets = ["generic"]'
        file.write_text(file.read_text().replace("quick = true", more))
        assert run(file, "whole").wait(600) == 0
        start = time.monotonic()
        done = disturbed(file, folder, words.kills, random.Random(words.seed), words.dask, words.two)
        told = ", ".join(f"{kind} {number}" for kind, number in done.items())
        print(f"kills: {told}; {len(table(folder / 'whole'))} results; every table equal; {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
