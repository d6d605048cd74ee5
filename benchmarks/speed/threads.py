"""Two threads against one: packages of the same model, their applications in turn, by the clock and not pinned."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MODELS = ("resnet50", "vit_tiny", "bert")
THREADS = (1, 2)
ROUNDS = 7
RUNS = 15  # of one round


@dataclass(frozen=True, slots=True)
class Scaling:
    name: str
    ms: tuple[float, float]  # medians of the rounds, one thread and two
    failure: str = ""

    @property
    def ratio(self) -> float:
        return self.ms[0] / self.ms[1]


def median_ms(text: str) -> float:
    """From what an application prints: `15 runs: median 7300.2 us, least 7200.0 us`."""
    found = re.search(r"median ([\d.]+) us", text)
    if found is None:
        raise ValueError(f"no median in `{text.strip()}`")
    return float(found[1]) / 1e3


def scaling(path: Path, folder: Path) -> Scaling:
    packages = [folder / f"threads{count}" for count in THREADS]
    for count, package in zip(THREADS, packages, strict=True):
        command = [sys.executable, "-m", "intaglio", "compile", str(path), "-o", str(package), "--name", "net", "--force"]
        done = subprocess.run([*command, "--threads", str(count)], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return Scaling(path.stem, (0.0, 0.0), " ".join(done.stderr.split())[:100])
    rounds: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for times, package in zip(rounds, packages, strict=True):
            command = [str(package / "bin" / "net"), str(package / "test" / "in0.npy"), "--benchmark", str(RUNS)]
            times.append(median_ms(subprocess.run(command, capture_output=True, text=True, check=True).stdout))
    return Scaling(path.stem, (statistics.median(rounds[0]), statistics.median(rounds[1])))


def section(rows: list[Scaling], cores: int) -> list[str]:
    lines = ["## Two threads", "", f"Medians in ms, in turn, by the clock; this machine has {cores} cores.", ""]
    lines += ["| model | one thread | two | ratio |", "| --- | ---: | ---: | ---: |"]
    for row in rows:
        if row.failure:
            lines.append(f"| {row.name} | {row.failure} | - | - |")
        else:
            lines.append(f"| {row.name} | {row.ms[0]:.1f} | {row.ms[1]:.1f} | {row.ratio:.2f} |")
    return lines
