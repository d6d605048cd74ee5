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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import ToolError, UserError
from intaglio.run.opencl.answers import OpenCLDevice
from intaglio.run.opencl.cache_contents import Entry, prune
from intaglio.run.opencl.cache_file import CacheFile, Record
from intaglio.run.opencl.cache_store import update_cache
from intaglio.run.opencl.devices import find_device
from intaglio.run.opencl.library import StartReport
from intaglio.run.opencl.loader import find_loader
from intaglio.run.opencl.matching import is_of_device, is_tuning_of

Note = Callable[[str], None]
Progress = Callable[[str, int, int], None]  # what, done, of


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

    device: OpenCLDevice
    before: LayerTimes
    after: LayerTimes
    chosen: dict[int, str]  # the kernel of the layer with that number, counted among those on the device


def fill_cache(folder: Path, name: str, which: str, note: Note) -> None:
    """Every program for that device goes into NAME.clbin of the package."""
    device = find_device(which)
    with _copied(folder, name) as cache:
        _run(folder, name, device, note, "--warm", "--cache", str(cache), "--shipped", "none")


def tune(
    folder: Path, name: str, which: str | None, first: Collection[str], note: Note, limit_ms: float | None = None,
    progress: Progress | None = None,
) -> Tuned:  # fmt: skip
    """Kernels and work-group sizes are searched on that device, and kept in NAME.clbin of the package with its programs.

    `first`: the sources that a package starts with. Other programs of this device come from earlier searches, and go."""
    device = find_device(which)
    limit = () if limit_ms is None else ("--limit-kernel-time", str(limit_ms))
    with _copied(folder, name) as cache:
        where = ("--cache", str(cache), "--shipped", "none", *limit)
        before = _times(_run(folder, name, device, note, "--profile", *where))
        chosen: dict[int, str] = {}

        def hear(text: str) -> None:
            if (found := re.match(r"tuned layer (\d+) of (\d+), `.*`: `(.*)`", text)) is None:
                note(text)
                return
            chosen[int(found[1]) - 1] = found[3]
            if progress is not None:
                progress("tuning", int(found[1]), int(found[2]))

        if cache.is_file():
            update_cache(cache, lambda old: _without_search(old, device, first))
        _run(folder, name, device, hear, "--tune", "--warm", *where)
        after = _times(_run(folder, name, device, note, "--profile", *where))
    return Tuned(device, before, after, chosen)


def _without_search(cache: CacheFile, device: OpenCLDevice, first: Collection[str]) -> Sequence[Record]:
    """Without the tuning of the device, and the programs that it chose."""

    def found_earlier(entry: Entry) -> bool:
        if entry.program is not None:
            return is_of_device(entry.program, device) and entry.program.field("source") not in first
        return entry.tuning is not None and is_tuning_of(entry.tuning, device)

    return prune(cache, found_earlier)


def start_times(folder: Path, name: str, device: OpenCLDevice, note: Note) -> tuple[StartReport, StartReport]:
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


def _run(folder: Path, name: str, device: OpenCLDevice, note: Note, *words: str, extra: Mapping[str, str] | None = None) -> str:
    """What it prints; its warnings are notes, a failure is an error of ours."""
    program = (folder / "bin" / name).resolve()
    if not program.is_file():
        what = f"the package has no application `bin/{name}`"
        raise UserError("not-built", what, where=str(folder), hint="compile the model again")
    environment = {**find_loader().child_environment(), **(extra or {})}
    command = [str(program), *words, "--device", device.place]
    said: list[str] = []
    with tempfile.TemporaryFile("w+", errors="replace") as out:
        try:
            child = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, text=True, errors="replace"
            )
        except OSError as error:
            raise ToolError("cannot-run", f"cannot start `bin/{name}`: {error.strerror}", where=str(program)) from None
        with child:
            try:
                for line in child.stderr or ():
                    said.append(line.rstrip("\n"))
                    if not line.startswith(("error:", "hint:")) and line.strip():
                        note(said[-1].removeprefix(f"{name}: "))
            except BaseException:
                child.kill()
                raise
        out.seek(0)
        told = out.read()
    if child.returncode in (-signal.SIGINT, -signal.SIGTERM):
        raise KeyboardInterrupt
    if child.returncode < 0:
        text = f"the driver of `{device.name}` crashed `bin/{name}` ({signal.Signals(-child.returncode).name})"
        raise ToolError("opencl-crashed", text, hint="use another device (`--device`), or another version of the driver")
    if child.returncode != 0:
        raise _failure(said, child.returncode, device)
    return told


def _failure(said: list[str], code: int, device: OpenCLDevice) -> ToolError:
    """Of the application's own words: `error: NAME stopped: WHAT`, more about it, an empty line, `hint: ...`."""
    at = next((n for n, line in enumerate(said) if line.startswith("error:")), 0)
    lines = [line.strip() for line in said[at:] if line.strip()]
    hint = next((line.removeprefix("hint: ") for line in lines if line.startswith("hint: ")), "")
    text = "; ".join(line for line in lines if not line.startswith("hint: ")).removeprefix("error: ")
    return ToolError("device-failed", f"on `{device.name}`: {text or f'exit code {code}'}", hint=hint)


def _times(text: str) -> LayerTimes:
    rows = [(float(us), what) for us, what in re.findall(r"^ *([0-9.]+) us  (.*)$", text, re.M)]
    if not rows or rows[-1][1] != "transfers":
        raise ToolError("device-failed", "the application reported no times", hint="compile the model again")
    return LayerTimes(tuple(us for us, _ in rows[:-1]), rows[-1][0])


def _report(text: str) -> StartReport:
    line = next((line for line in text.splitlines() if line.startswith("programs ")), "")
    numbers = [float(n) for n in re.findall(r"[0-9.]+", line)]
    if len(numbers) != 12:
        raise ToolError("device-failed", "the application reported nothing about its start", hint="compile the model again")
    programs, process, writable, shipped, source, refused, tests, saved, tuned = map(int, numbers[:9])
    init, build, first = numbers[9:]
    return StartReport(programs, process, writable, shipped, source, refused, init, build, first, tests, saved, bool(tuned))
