"""The application of a package at work on OpenCL devices of this machine: programs for its NAME.clbin, tuning, times of a start.

It runs in a process of its own: a driver that crashes does not take ours down, and a start is a real one. Programs go to a copy of
NAME.clbin in a folder that nobody else can write, and into the package when they are complete.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import ToolError, UserError
from intaglio.run.opencl.answers import Device
from intaglio.run.opencl.devices import find_device
from intaglio.run.opencl.library import StartReport
from intaglio.run.opencl.loader import find_loader

Note = Callable[[str], None]
MOST_SECONDS = 4 * 3600  # tuning a large network on a slow device
RUNS = 20  # of `--profile`, in the application


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Microseconds of the layers in order, and of transfers."""

    layers: tuple[float, ...]
    transfers: float

    @property
    def total(self) -> float:
        return sum(self.layers) + self.transfers


@dataclass(frozen=True, slots=True)
class Tuned:
    """One device, before and after."""

    device: Device
    before: LayerTimes
    after: LayerTimes
    chosen: tuple[str, ...]  # what the application says of each layer


def fill_cache(folder: Path, name: str, which: str, note: Note) -> None:
    """Every program for that device goes into NAME.clbin of the package."""
    device = find_device(which)
    with _copied(folder, name) as cache:
        _run(folder, name, device, note, "--warm", "--cache", str(cache), "--shipped", "none")


def tune(folder: Path, name: str, which: str | None, note: Note, limit_ms: float | None = None) -> Tuned:
    """Kernels and work-group sizes are searched on that device, and kept in NAME.clbin of the package with its programs."""
    device = find_device(which)
    limit = () if limit_ms is None else ("--limit-kernel-time", str(limit_ms))
    with _copied(folder, name) as cache:
        where = ("--cache", str(cache), "--shipped", "none", *limit)
        before = _times(_run(folder, name, device, note, "--profile", *where))
        chosen: list[str] = []

        def hear(text: str) -> None:
            chosen.append(text.removeprefix("tuned ")) if text.startswith("tuned ") else note(text)

        _run(folder, name, device, hear, "--tune", "--warm", *where)
        after = _times(_run(folder, name, device, note, "--profile", *where))
    return Tuned(device, before, after, tuple(chosen))


def start_times(folder: Path, name: str, device: Device, note: Note) -> tuple[StartReport, StartReport]:
    """A start without any cache, the driver's own included, and one with the cache that the first has filled."""
    with tempfile.TemporaryDirectory(prefix="intaglio-start-") as place:
        cache = Path(place) / f"{name}.clbin"
        reports = []
        for n in range(2):
            own = {"POCL_CACHE_DIR": f"{place}/driver-{n}", "CUDA_CACHE_DISABLE": "1", "NEO_CACHE_PERSISTENT": "0"}
            words = ("--benchmark", "1", "--cache-report", "--cache", str(cache), "--shipped", "none", "--cache-check", "never")
            reports.append(_report(_run(folder, name, device, note, *words, extra=own)))
    return reports[0], reports[1]


@contextmanager
def _copied(folder: Path, name: str) -> Iterator[Path]:
    """NAME.clbin of the package as a file of its own, which replaces it at the end."""
    kept = folder / f"{name}.clbin"
    with tempfile.TemporaryDirectory(prefix="intaglio-opencl-") as place:
        cache = Path(place) / kept.name
        if kept.is_file():
            shutil.copyfile(kept, cache)
        yield cache
        if cache.is_file():
            fresh = kept.with_name(f".{kept.name}-{os.getpid()}")
            try:
                shutil.copyfile(cache, fresh)
                fresh.replace(kept)
            finally:
                fresh.unlink(missing_ok=True)


def _run(folder: Path, name: str, device: Device, note: Note, *words: str, extra: Mapping[str, str] | None = None) -> str:
    """What it prints; its warnings are notes, a failure is an error of ours."""
    program = (folder / "bin" / name).resolve()
    if not program.is_file():
        what = f"the package has no application `bin/{name}`"
        raise UserError("not-built", what, where=str(folder), hint="compile the model again")
    environment = {**find_loader().child_environment(), **(extra or {})}
    command = [str(program), *words, "--device", device.place]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, stdin=subprocess.DEVNULL, timeout=MOST_SECONDS, text=True,
            errors="replace",
        )  # fmt: skip
    except OSError as error:
        raise ToolError("cannot-run", f"cannot start `bin/{name}`: {error.strerror}", where=str(program)) from None
    except subprocess.TimeoutExpired:
        raise ToolError("device-failed", f"`bin/{name}` did not end within {MOST_SECONDS // 3600} hours") from None
    if done.returncode in (-signal.SIGINT, -signal.SIGTERM):
        raise KeyboardInterrupt
    if done.returncode < 0:
        text = f"the driver of `{device.name}` took `bin/{name}` down ({signal.Signals(-done.returncode).name})"
        raise ToolError("opencl-crashed", text, hint="another device (`--device`), or another version of the driver")
    if done.returncode != 0:
        said, _, hint = done.stderr.partition("\n\nhint: ")
        lines = [line.strip() for line in said.splitlines() if line.strip()]
        text = "; ".join(lines).removeprefix("error: ") or f"exit code {done.returncode}"
        raise ToolError("device-failed", f"on `{device.name}`: {text}", hint=hint.strip())
    for line in done.stderr.splitlines():
        if line.strip():
            note(line.removeprefix(f"{name}: "))
    return done.stdout


def _times(text: str) -> LayerTimes:
    rows = [(float(us), what) for us, what in re.findall(r"^ *([0-9.]+) us  (.*)$", text, re.M)]
    if not rows or rows[-1][1] != "transfers":
        raise ToolError("device-failed", "the application told no times", hint="compile the model again")
    return LayerTimes(tuple(us for us, _ in rows[:-1]), rows[-1][0])


def _report(text: str) -> StartReport:
    line = next((line for line in text.splitlines() if line.startswith("programs ")), "")
    numbers = [float(n) for n in re.findall(r"[0-9.]+", line)]
    if len(numbers) != 12:
        raise ToolError("device-failed", "the application told nothing of its start", hint="compile the model again")
    programs, process, writable, shipped, source, refused, tests, saved, tuned = map(int, numbers[:9])
    init, build, first = numbers[9:]
    return StartReport(programs, process, writable, shipped, source, refused, init, build, first, tests, saved, bool(tuned))
