"""What the engine of a fleet costs for each job: jobs that do nothing, by processes of this machine and by workers of Dask.

    make bench-fleet
    .venv/bin/python benchmarks/fleet.py --jobs 2000 --workers 2,4,8
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path
from unittest import mock

from intaglio.fleet.crews import Crew, DaskCrew, LocalCrew
from intaglio.fleet.pieces import Job, Piece
from intaglio.fleet.run import run_fleet
from intaglio.fleet.store import Store
from intaglio.options.request import Request
from intaglio.project.fleet import FleetPlan


def pieces(count: int) -> list[Piece]:
    request = Request(Path("none"), Path("none"))
    return [
        Piece("intaglio.fleet.work:nothing", (Job(f"{n:064x}", "fit", f"model{n}", "", "board"),), request) for n in range(count)
    ]


def measured(count: int, crew: Crew, warm: int) -> tuple[float, float, float]:
    """Milliseconds a job: of the first run, when workers are there and have imported what they need, by the clock and by the
    processor time of this process (with Dask's scheduler in it); and of the same run again."""
    with tempfile.TemporaryDirectory() as place:
        plan = FleetPlan((), ("fit",), True, Path(place), 2, 600.0, ())
        list(crew.perform(pieces(warm), 600.0))
        store, times, spent = Store(Path(place)), [], []
        with mock.patch("intaglio.fleet.run.pieces_of", return_value=pieces(count)):
            for _ in range(2):
                start, busy = time.perf_counter(), time.process_time()
                done = run_fleet(plan, "f.toml", store, lambda: crew, lambda _: None)
                times.append((time.perf_counter() - start) * 1000 / count)
                spent.append((time.process_time() - busy) * 1000 / count)
                assert all(row.state == "ok" for row in done.rows)
        store.close()
    return times[0], spent[0], times[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--workers", default="2,4,8")
    words = parser.parse_args()
    print(f"{words.jobs} jobs that do nothing, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print("| workers | ms a job, clock | ms a job, processor | ms a job, known |\n| --- | ---: | ---: | ---: |")
    counts = [int(n) for n in words.workers.split(",")]
    for count in counts:
        first, spent, again = measured(words.jobs, LocalCrew(count), 4 * count)
        print(f"| {count} processes | {first:.2f} | {spent:.2f} | {again:.3f} |", flush=True)
    from distributed import Client, LocalCluster

    for count in counts:
        cluster = LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=None)
        first, spent, again = measured(words.jobs, DaskCrew(Client(cluster), cluster), 4 * count)
        print(f"| {count} workers of Dask's LocalCluster | {first:.2f} | {spent:.2f} | {again:.3f} |", flush=True)


if __name__ == "__main__":
    main()
