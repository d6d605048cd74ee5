"""What is paid before and around an inference: the start of the packaged application, its memory, and the time of compiling.

Applications are started by a Python without site packages: the largest memory that the kernel reports for a process includes that
of the process which started it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

STARTS = 21
COMPILED = ("resnet50", "densenet121", "vgg11", "mobilenetv2_qdq")
COMPILED_TOO = "mlperf_vww_int8.tflite"  # where the shared models are
STARTED = "mobilenetv2"
STARTER = """
import json, os, sys, time
rows = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
    _, status, used = os.wait4(pid, 0)
    if status:
        sys.exit(1)
    rows.append(((time.perf_counter() - start) * 1e3, (used.ru_utime + used.ru_stime) * 1e3, used.ru_maxrss / 1024))
print(json.dumps(rows))
"""


@dataclass(frozen=True, slots=True)
class Start:
    """Medians, in ms: from the start of the process to its end after one result; and the largest memory of all starts."""

    wall_ms: float
    cpu_ms: float
    rss_mb: float


@dataclass(frozen=True, slots=True)
class Compiled:
    """In seconds: without the cache of objects, and with it filled."""

    name: str
    first: float
    first_used: float  # of the processor
    again: float
    again_used: float


def start_of(package: Path, name: str, starts: int = STARTS) -> Start:
    """The application reads its input, computes once and writes the result."""
    result = package / "first.bin"
    command = [str(package / "bin" / name), str(package / "test" / "in0.npy"), "--output", f"output={result}"]
    told = subprocess.run([sys.executable, "-S", "-c", STARTER, str(starts), *command], check=True, capture_output=True, text=True)
    result.unlink(missing_ok=True)
    rows = json.loads(told.stdout.splitlines()[-1])
    return Start(statistics.median(r[0] for r in rows), statistics.median(r[1] for r in rows), max(r[2] for r in rows))


def compile_times(path: Path, folder: Path) -> Compiled:
    """With the bytecode of Python at hand, as on a machine where packages were installed, into a folder that is not there yet."""
    known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = importlib.util.find_spec("intaglio")
    assert found is not None and found.origin is not None
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(Path(found.origin).parent)], check=False)

    def seconds(cache: str) -> tuple[float, float]:
        shutil.rmtree(folder / "package", ignore_errors=True)
        start, used = time.perf_counter(), _used_by_children()
        command = [sys.executable, "-m", "intaglio", "compile", str(path), "-o", str(folder / "package")]
        subprocess.run(command, check=True, capture_output=True, env={**known, "INTAGLIO_OBJECT_CACHE": cache})
        return time.perf_counter() - start, _used_by_children() - used

    cold, cold_used = seconds("off")
    seconds(str(folder / "objects"))
    return Compiled(path.stem, cold, cold_used, *seconds(str(folder / "objects")))


def _used_by_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def section(start: Start | None, compiled: list[Compiled]) -> list[str]:
    lines = ["## Start and compiling", ""]
    if start is not None:
        lines.append(
            f"Start of the packaged application of {STARTED} to the end of its first result, the median of {STARTS}: "
            f"{start.wall_ms:.1f} ms by the clock, {start.cpu_ms:.1f} ms of the processor; RSS {start.rss_mb:.1f} MB."
        )
        lines.append("")
    lines += ["| compile, s (of all cores) | without cached objects | with |", "| --- | ---: | ---: |"]
    times = [f"{c.first:.1f} ({c.first_used:.1f}) | {c.again:.1f} ({c.again_used:.1f})" for c in compiled]
    return [*lines, *(f"| {c.name} | {time} |" for c, time in zip(compiled, times, strict=True))]
