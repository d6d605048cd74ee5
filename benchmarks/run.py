"""Speed against the peers, as ratios within one interleaved run on one core.

    make bench                      all models, writes benchmarks/RESULTS.md
    .venv/bin/python benchmarks/run.py --only mobilenet
    .venv/bin/python benchmarks/run.py --integers           the integer models alone, against LiteRT and OpenVINO

Absolute times say little on a shared machine: each round measures every system in turn, and what counts is the median of the
ratios per round. Models: the float ONNX ones of ../shared/models where they are, and well-known shapes with random weights.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import re
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import integers
import numpy as np
import onnx
from peers import Call, Work, emx, emx_python, onnxruntime, ours

from models import write_all

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "bench"
SHARED = ROOT.parent / "shared" / "models"
QUANTISED = re.compile("qdq|qop|qlstm")  # not float
ROUNDS = 9
ROUND_SECONDS = 0.15


@dataclass
class Result:
    name: str
    macs: int = 0
    ms: dict[str, float] = field(default_factory=dict)
    ratio: dict[str, float] = field(default_factory=dict)  # peer's time over ours
    error: float = 0.0
    missing: dict[str, str] = field(default_factory=dict)
    layers: list[tuple[str, str, int, float]] = field(default_factory=list)


def works(only: str) -> list[Work]:
    found: list[Work] = []
    if (SHARED / "manifest.json").exists():
        for entry in json.loads((SHARED / "manifest.json").read_text()):
            if entry["format"] == "onnx" and not QUANTISED.search(entry["id"]):
                data = np.load(SHARED / entry["ref"])
                arrays = [np.array(data[f"in{i}"][0]) for i in range(len(entry["inputs"]))]
                found.append(Work(entry["id"], SHARED / entry["file"], [np.asarray(a) for a in arrays]))
    random = np.random.default_rng(1)
    for path in write_all(BUILD / "models"):
        model = onnx.load(str(path))
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        found.append(Work(path.stem, path, [random.standard_normal(shape).astype(np.float32)]))
    return [w for w in found if re.search(only, w.name)]


def one_round(call: Call, seconds: float) -> float:
    """The median time of a call in ms, over as many calls as fit."""
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def measure(work: Work, with_emx: str | None) -> Result:
    import intaglio

    result = Result(work.name)
    calls: dict[str, Call] = {}
    calls["intaglio"], outputs = ours(work, BUILD / "packages" / work.name)
    try:
        calls["onnxruntime"], expected = onnxruntime(work)
        result.error = max(_error(a, b) for a, b in zip(outputs(), expected, strict=True))
    except Exception as error:  # a peer that cannot run the model is a result too
        result.missing["onnxruntime"] = str(error)[:100]
    if with_emx:
        try:
            calls["emx-onnx-cgen"] = emx(work, BUILD / "emx" / work.name, with_emx)
            calls["emx-onnx-cgen"]()
        except Exception as error:
            result.missing["emx-onnx-cgen"] = str(error).replace("\n", " ")[:100]
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            rounds[name].append(one_round(call, ROUND_SECONDS))
    for name, times in rounds.items():
        result.ms[name] = min(times)
        if name != "intaglio":
            result.ratio[name] = statistics.median(p / o for p, o in zip(times, rounds["intaglio"], strict=True))
    package = intaglio.Package.load(BUILD / "packages" / work.name)
    profile = package.profile()
    result.macs = sum(layer.macs for layer in package.manifest.layers)
    result.layers = [(row.name, row.op, row.macs, row.time_ms) for row in profile.layers]
    return result


def _error(got: np.ndarray, expected: np.ndarray) -> float:
    scale = float(np.max(np.abs(expected))) + 1e-9
    return float(np.max(np.abs(got.astype(np.float64) - expected.reshape(got.shape)))) / scale


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def report(results: list[Result]) -> str:
    lines = [
        "# Speed",
        "",
        f"`make bench` on {_processor()}, one core, one thread, float32, batch 1; least time in ms of {ROUNDS} interleaved rounds.",
        "A ratio is the peer's time divided by ours, the median over the rounds: above 1, Intaglio is faster. The machine is",
        "shared, so compare only within a row. `error` is the largest difference from ONNX Runtime divided by the largest output.",
        "",
        "| model | MMAC | Intaglio | ONNX Runtime | ratio | emx-onnx-cgen | ratio | error |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in results:
        cells = [r.name, f"{r.macs / 1e6:.1f}", f"{r.ms['intaglio']:.3f}"]
        for peer in ("onnxruntime", "emx-onnx-cgen"):
            cells += [f"{r.ms[peer]:.3f}", f"{r.ratio[peer]:.2f}"] if peer in r.ms else ["-", "-"]
        lines.append("| " + " | ".join([*cells, f"{r.error:.1e}"]) + " |")
    lines.append("")
    for peer, label in (("onnxruntime", "ONNX Runtime"), ("emx-onnx-cgen", "emx-onnx-cgen")):
        ratios = [r.ratio[peer] for r in results if peer in r.ratio]
        if ratios:
            low = min((r for r in results if peer in r.ratio), key=lambda r: r.ratio[peer])
            lines.append(
                f"Geometric mean against {label}: **{geometric_mean(ratios):.2f}** over {len(ratios)} models, "
                f"lowest {low.ratio[peer]:.2f} ({low.name})."
            )
    reasons = [f"- {r.name}, {peer}: {why}" for r in results for peer, why in r.missing.items()]
    if reasons:
        lines += ["", "Reasons for missing figures:", "", *reasons]
    lines += ["", "## Layers", "", "The layers that take the most time, as shown by `intaglio profile`."]
    for r in results:
        total = sum(t for *_, t in r.layers) or 1.0
        lines += [
            "",
            f"### {r.name}",
            "",
            "| layer | operator | MMAC | ms | % | GFLOP/s |",
            "| --- | --- | ---: | ---: | ---: | ---: |",
        ]
        for name, op, macs, ms in sorted(r.layers, key=lambda row: -row[3])[:8]:
            speed = f"{2 * macs / ms / 1e6:.1f}" if macs and ms else ""
            lines.append(f"| {_cell(name)} | {op} | {macs / 1e6:.2f} | {ms:.4f} | {100 * ms / total:.1f} | {speed} |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return re.sub(r"[|\n`]", " ", text)[:60]


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
        return re.findall(r"model name\s*: (.*)", text)[0].strip()
    except (OSError, IndexError):
        return platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=".", help="models whose name matches")
    parser.add_argument("--without-emx", action="store_true")
    parser.add_argument("--integers", action="store_true", help="the integer models alone")
    parser.add_argument("--output", type=Path, help="default: benchmarks/RESULTS.md when all models run")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    results_path = ROOT / "benchmarks" / "RESULTS.md"
    if options.integers:
        text = integers.with_section(results_path.read_text(encoding="utf-8"), integers.run(SHARED, BUILD))
        (options.output or results_path).write_text(text, encoding="utf-8")
        return
    python = None if options.without_emx else emx_python(BUILD / "emx-venv")
    results: list[Result] = []
    todo = works(options.only)
    for number, work in enumerate(todo, 1):
        result = measure(work, python)
        results.append(result)
        ratios = "  ".join(f"{peer} {ratio:.2f}" for peer, ratio in result.ratio.items())
        print(f"[{number}/{len(todo)}] {work.name:26s} {result.ms['intaglio']:9.3f} ms  {ratios}", file=sys.stderr, flush=True)
    text = report(results)
    if options.only == ".":
        text = integers.with_section(text, integers.run(SHARED, BUILD))
    where = options.output or (results_path if options.only == "." else None)
    if where is None:
        print(text)
    else:
        where.write_text(text, encoding="utf-8")
        print(f"written: {where}", file=sys.stderr)


if __name__ == "__main__":
    main()
