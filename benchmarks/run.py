"""Speed against the best runtime of every model: one thread, pinned, all runtimes in turn within one run.

    make bench                                       all models, writes benchmarks/RESULTS.md
    make bench ONLY='resnet|vit'                     those whose names match; the table is printed
    .venv/bin/python benchmarks/run.py --help        the rest

Absolute times say little on a shared machine: a round measures every runtime once, and there are several. A ratio is the median of
the best peer divided by ours. Interrupted, it prints the rows that are done. Models and conversions are kept in build/bench.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).with_name("speed")))
import node_names
from figures import Row, error_of, median_of_rounds
from peak import Peak, processor
from peers import LABELS, OURS, PEERS
from peers.base import Missing, Work
from report import Machine, report
from worker import Worker
from works import Planned, model_file, planned

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "bench"
SHARED = ROOT.parent / "shared" / "models"
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PROFILED = ("openvino", "onnxruntime", "mnn")  # peers with times per layer
TOLERANCE = {"float": 1e-2, "mixed": 0.1, "int8": 1.0}  # shares of the largest output; integers are rounded differently by all
HOPELESS = 4.0  # a peer this much slower than the fastest is measured once


class Bench:
    """The runtimes, each in its process, and the settings of a run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
        core = max(self.cores)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {core})
        self.rounds, self.seconds, self.cpu_time = options.rounds, options.seconds, options.cpu_time
        self.profiles = not options.without_layers
        self.workers = {name: Worker(name, core) for name in (OURS, *options.peers)}
        self.peak = Peak(BUILD)

    def stop(self) -> None:
        for worker in self.workers.values():
            worker.stop()
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.cores)

    def row(self, work: Work) -> Row:
        row = Row(work.name, work.kind)
        outputs: dict[str, list[np.ndarray]] = {}
        for name, worker in self.workers.items():
            try:
                outputs[name] = worker.load(work)
            except Missing as reason:
                row.missing[name] = str(reason)
        if OURS not in outputs:
            row.failure = row.missing.pop(OURS, "no result")
        self._compare(row, work, outputs)
        self._time(row, list(outputs))
        self._profile(row, work)
        return row

    def _compare(self, row: Row, work: Work, outputs: dict[str, list[np.ndarray]]) -> None:
        reference = work.expected or next((outputs[name] for name in PEERS if name in outputs), [])
        errors = {name: error_of(got, reference) for name, got in outputs.items()}
        row.error = errors.pop(OURS, math.nan)
        row.errors = errors
        row.wrong = frozenset(name for name, error in errors.items() if not error <= TOLERANCE[work.kind])

    def _time(self, row: Row, names: list[str]) -> None:
        rounds: dict[str, list[float]] = {name: [] for name in names}
        peaks: list[float] = []
        for number in range(self.rounds):
            peaks.append(self.peak.macs_per_ms())
            fastest = min((min(times) for times in rounds.values() if times), default=math.inf)
            for name in list(names):
                if number and min(rounds[name]) > HOPELESS * fastest and name != OURS:
                    continue
                try:
                    measured = self.workers[name].round(self.seconds)
                except Missing as reason:
                    row.missing[name] = str(reason)
                    names.remove(name)
                    rounds.pop(name)
                    continue
                rounds[name].append(measured.cpu_ms if self.cpu_time else measured.wall_ms)
        medians = median_of_rounds(rounds)
        row.ms = medians.pop(OURS, math.nan)
        row.peers = medians
        row.peak = float(np.median(peaks))

    def _profile(self, row: Row, work: Work) -> None:
        """Ours always: it has the multiply-adds. A peer's where it wins or nearly does."""
        try:
            row.layers = self.workers[OURS].layers() if not row.failure else []
            row.macs = sum(layer.macs for layer in row.layers)
            known = node_names.of_file(work.file("onnx"))
            row.layers = node_names.renamed(row.layers, known)
            for peer in PROFILED:
                if self.profiles and peer in row.peers and row.peers[peer] < 1.05 * row.ms:
                    row.profiles[peer] = node_names.renamed(self.workers[peer].layers(), known)
        except Missing as reason:
            row.missing.setdefault("profile", str(reason))


def told(row: Row, number: int, total: int) -> str:
    """A line of progress, within 80 columns."""
    start = f"[{number}/{total}] {row.name[:24]:24s}"
    if row.failure:
        return f"{start} {row.failure}"[:80]
    best = LABELS.get(row.best, "no peer")
    flag = " !" if not row.error <= TOLERANCE[row.kind] else ""
    return f"{start} {row.ms:9.3f} ms  {row.ratio:5.2f} ({best}){flag}"[:80]


def run(bench: Bench, todo: list[Planned], machine: Machine) -> list[Row]:
    """The report so far is in build/bench after every row."""
    rows: list[Row] = []
    for number, plan in enumerate(todo, 1):
        print(f"[{number}/{len(todo)}] {plan.name} ...\r", end="", file=sys.stderr, flush=True)
        try:
            row = bench.row(plan.make())
        except KeyboardInterrupt:
            print("\ninterrupted: the rows below are done", file=sys.stderr)
            return rows
        except Exception as error:  # a model that cannot be made here is a line of the report
            row = Row(plan.name, "float", failure=f"not made: {type(error).__name__}: {error}")
        rows.append(row)
        print(f"{told(row, number, len(todo)):79s}", file=sys.stderr, flush=True)
        (BUILD / "report.md").write_text(report(rows, machine), encoding="utf-8")
    return rows


def costs() -> list[str]:
    """Start and compile times and two threads, as sections of the report."""
    import threads
    from costs import COMPILED, COMPILED_TOO, STARTED, compile_times, section, start_of

    compiled = []
    shared = SHARED / "models" / COMPILED_TOO
    for path in (*(model_file(name, BUILD) for name in COMPILED), *([shared] if shared.exists() else [])):
        print(f"compiling {path.stem} ...", file=sys.stderr, flush=True)
        compiled.append(compile_times(path, BUILD / "made" / path.stem / "compiled"))
    package = BUILD / "made" / STARTED / "package"
    scaled = []
    for name in threads.MODELS:
        print(f"two threads on {name} ...", file=sys.stderr, flush=True)
        scaled.append(threads.scaling(model_file(name, BUILD), BUILD / "made" / name))
    told = section(start_of(package, STARTED) if package.exists() else None, compiled)
    return [*told, "", *threads.section(scaled, os.cpu_count() or 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose names match this pattern; default: all")
    parser.add_argument("--peers", default=list(PEERS), type=lambda text: text.split(","), help=f"default: {','.join(PEERS)}")
    parser.add_argument("--rounds", type=int, default=9, help="default: 9")
    parser.add_argument("--seconds", type=float, default=0.15, help="of one runtime in one round; default: 0.15")
    parser.add_argument("--cpu-time", action="store_true", help="count the processor's time, for a machine that others use")
    parser.add_argument("--without-layers", action="store_true", help="no profiles of the peers")
    parser.add_argument("--costs", action="store_true", help="start, compile times and two threads; default: when all run")
    parser.add_argument("--output", type=Path, help="default: benchmarks/RESULTS.md when all models run, else the terminal")
    options = parser.parse_args()
    if unknown := sorted(set(options.peers) - set(PEERS)):
        parser.error(f"unknown runtime `{unknown[0]}`; available: {', '.join(PEERS)}")
    todo = planned(SHARED, BUILD, options.only)
    if not todo:
        parser.error(f"no model matches `{options.only}`")
    start = time.monotonic()
    machine = Machine(processor(), options.rounds, "processor time" if options.cpu_time else "time by the clock")
    bench = Bench(options)
    try:
        rows = run(bench, todo, machine)
    finally:
        bench.stop()
    whole = not options.only and len(rows) == len(todo)
    text = report(rows, machine, costs() if whole or options.costs else ())
    where = options.output or (RESULTS if whole else None)
    if where is None:
        print(text)
    else:
        where.write_text(text, encoding="utf-8")
        print(f"written: {where} ({(time.monotonic() - start) / 60:.0f} min)", file=sys.stderr)


if __name__ == "__main__":
    main()
