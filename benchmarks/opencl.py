"""OpenCL on this machine: how fast its kernels are beside our C, and what the program cache saves at a start.

    make bench-opencl                                    writes benchmarks/OPENCL.md, ends with 1 when a figure is missed
    .venv/bin/python benchmarks/opencl.py resnet18       only these
    .venv/bin/python benchmarks/opencl.py --tune         with packages that were tuned before

Speed: packages of one model for `host` (C, one core) and for `opencl` (all cores, PoCL where there is no GPU), measured in turn
within one run; what counts is the median over the rounds of the ratio. Starts: the package's application as a process of its own,
from its start to its end with one result, without any cached program and with all of them, in turn. The driver's own cache is a
fresh folder each time, so that it does not help.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import intaglio
from intaglio.run.opencl.application import tune
from intaglio.run.opencl.devices import find_device
from intaglio.run.opencl.loader import find_loader
from intaglio.run.package import Package
from intaglio.run.timing import stored_inputs
from models import MODELS

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "bench-opencl"
SHARED = ROOT.parent / "shared" / "models" / "models"
SPEED = ("mobilenetv2", "resnet18")
STARTS = ("fastestdet", "ppocr_cls")
LEAST_SPEED, LEAST_START = 0.5, 10.0
ROUNDS, ROUND_SECONDS = 9, 0.5
START_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Figure:
    what: str
    reached: float
    wanted: float
    c: float  # milliseconds: our C, or a cold start
    cl: float  # OpenCL, or a warm start
    more: str

    @property
    def ok(self) -> bool:
        return self.reached >= self.wanted


def speed(name: str, *, tuned: bool) -> Figure:
    path = BUILD / "models" / f"{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(MODELS[name]().SerializeToString())
    host = intaglio.compile(path, output=BUILD / f"{name}-host", force=True)
    device = compiled(path, f"{name}-opencl", tuned=tuned)
    calls = [call_of(host), call_of(device)]
    error = difference(host, device)
    for call in calls:
        call()
    rounds = [[one_round(call) for call in calls] for _ in range(ROUNDS)]
    ratio = statistics.median(c / cl for c, cl in rounds)
    info = device.manifest.opencl
    assert info is not None
    more = f"{info.device_layers} of {len(device.manifest.layers)} layers on the device, differs by {error:.1e} of the range"
    least = [min(times) for times in zip(*rounds, strict=True)]
    return Figure(f"{name}: speed of OpenCL over our C", ratio, LEAST_SPEED, least[0], least[1], more)


def compiled(path: Path, folder: str, *, tuned: bool) -> Package:
    package = intaglio.compile(path, output=BUILD / folder, target="opencl", shapes=shapes_of(path), force=True)
    if tuned:
        found = tune(package.folder, package.name, None, lambda text: print(text, file=sys.stderr))
        print(f"tuned {package.name}: {found.before.total / 1e3:.1f} ms, then {found.after.total / 1e3:.1f} ms", file=sys.stderr)
    return package


def shapes_of(path: Path) -> dict[str, tuple[int, ...]]:
    """Of the stored samples, for models that leave shapes open."""
    table = SHARED.parent / "manifest.json"
    entries = json.loads(table.read_text(encoding="utf-8")) if path.parent == SHARED and table.is_file() else []
    for entry in entries:
        if entry["id"] == path.stem:
            data = np.load(SHARED.parent / entry["ref"])
            return {f"in{n}": tuple(data[f"in{n}"].shape[1:]) for n in range(len(entry["inputs"]))}
    return {}


def call_of(package: Package) -> Callable[[], None]:
    inputs = stored_inputs(package)
    outputs = [np.empty(info.shape, info.type.dtype.numpy) for info in package.manifest.outputs]
    library = package.library
    return lambda: library.run_into(inputs, outputs)


def difference(a: Package, b: Package) -> float:
    inputs = stored_inputs(a)
    pairs = zip(a.library.run(inputs), b.library.run(inputs), strict=True)
    return max(float(np.max(np.abs(x - y)) / max(np.max(np.abs(x)), 1e-9)) for x, y in pairs)


def one_round(call: Callable[[], None]) -> float:
    times: list[float] = []
    end = time.perf_counter() + ROUND_SECONDS
    while len(times) < 2 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def start(name: str, *, tuned: bool) -> Figure:
    """Of the application, with the test vectors of the package as inputs."""
    package = compiled(SHARED / f"{name}.onnx", name, tuned=tuned)
    with tempfile.TemporaryDirectory(prefix="intaglio-bench-") as place:
        cache = Path(place) / "warm.clbin"
        started(package, place, "--warm", "--cache", str(cache))
        rounds = []
        for _ in range(START_ROUNDS):
            inputs = sorted(map(str, (package.folder / "test").glob("in*.npy")))
            cold = started(package, place, *inputs, "--cache", "none")
            warm = started(package, place, *inputs, "--cache", str(cache))
            rounds.append((cold, warm))
    ratio = statistics.median(cold / warm for cold, warm in rounds)
    kernels = (package.folder / "opencl" / f"{package.name}.cl").read_text(encoding="ascii").count("__kernel")
    least = [min(times) for times in zip(*rounds, strict=True)]
    return Figure(f"{name}: start to first result, cold over warm", ratio, LEAST_START, least[0], least[1], f"{kernels} kernels")


def started(package: Package, place: str, *words: str) -> float:
    with tempfile.TemporaryDirectory(dir=place) as own:
        environment = {**find_loader().child_environment(), "POCL_CACHE_DIR": own, "CUDA_CACHE_DISABLE": "1"}
        command = [str(package.folder / "bin" / package.name), *words, "--shipped", "none"]
        begin = time.perf_counter()
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        return (time.perf_counter() - begin) * 1e3


def report(figures: list[Figure], *, tuned: bool) -> str:
    device = find_device()
    lines = [
        "# OpenCL",
        "",
        f"`make bench-opencl` on {device.name} ({device.kind}, {device.platform_name} {device.driver_version}), "
        f"{device.compute_units} compute units" + (", tuned." if tuned else ", without tuning."),
        "",
        "Speed: one model as C on one core and on the OpenCL device, measured in turn; the ratio is C's time divided by",
        f"OpenCL's, the median of {ROUNDS} rounds. Starts: the application runs as a process of its own and computes one result,",
        f"without cached programs (cold) and with all of them (warm). The ratio is the median of {START_ROUNDS} rounds; times are",
        "the least. The driver's own cache is a fresh folder each time.",
        "",
        "| figure | ratio | at least | ms, C or cold | ms, OpenCL or warm | |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    lines += [f"| {f.what} | {f.reached:.2f} | {f.wanted:g} | {f.c:,.1f} | {f.cl:,.1f} | {f.more} |" for f in figures]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help=f"of {', '.join((*SPEED, *STARTS))}")
    parser.add_argument("--tune", action="store_true", help="tune packages before they are measured")
    options = parser.parse_args()
    os.environ["INTAGLIO_OPENCL_CACHE"] = "none"
    figures: list[Figure] = []
    for name in [n for n in (*SPEED, *STARTS) if not options.models or n in options.models]:
        if name in STARTS and not (SHARED / f"{name}.onnx").is_file():
            print(f"{name}: ../shared/models is not there", file=sys.stderr)
            continue
        figures.append(speed(name, tuned=options.tune) if name in SPEED else start(name, tuned=options.tune))
        f = figures[-1]
        times = f"{f.c:,.1f} ms, {f.cl:,.1f} ms"
        print(f"{f.what}: {f.reached:.2f} (at least {f.wanted:g}); {times}; {f.more}", file=sys.stderr, flush=True)
    if not options.models:
        (ROOT / "benchmarks" / "OPENCL.md").write_text(report(figures, tuned=options.tune), encoding="utf-8")
    sys.exit(0 if all(f.ok for f in figures) else 1)


if __name__ == "__main__":
    main()
