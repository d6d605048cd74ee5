"""Integer models against LiteRT (XNNPACK) and OpenVINO, interleaved on one core: the integer part of `make bench`.

    .venv/bin/python benchmarks/run.py --integers        this part alone; replaces its section of benchmarks/RESULTS.md

LiteRT comes with the development tools; OpenVINO is installed once into build/bench/openvino and left out where that fails.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from peers import Call, Work, ours

MODELS = ("mlperf_ad_int8", "mlperf_sww_int8", "mlperf_kws_int8", "mlperf_vww_int8", "mlperf_ic_int8", "coral_mbv1_025_u8")
PEERS = {"litert": "LiteRT", "openvino": "OpenVINO"}
HEADING = "## Integer models"
ROUNDS = 15
ROUND_SECONDS = 0.12


@dataclass
class Result:
    name: str
    medians: dict[str, float] = field(default_factory=dict)  # ms
    minima: dict[str, float] = field(default_factory=dict)
    ratio: dict[str, float] = field(default_factory=dict)  # peer's time over ours
    least: dict[str, float] = field(default_factory=dict)  # the same of the minima
    missing: dict[str, str] = field(default_factory=dict)


def works(shared: Path) -> list[Work]:
    if not (shared / "manifest.json").exists():
        return []
    entries = {e["id"]: e for e in json.loads((shared / "manifest.json").read_text())}
    found = []
    for name in MODELS:
        entry = entries[name]
        data = np.load(shared / entry["ref"])
        arrays = [np.ascontiguousarray(data[f"in{i}"][0]) for i in range(len(entry["inputs"]))]
        found.append(Work(name, shared / entry["file"], arrays))
    return found


def litert(work: Work) -> Call:
    """With its default delegate, XNNPACK, on one thread."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=str(work.path), num_threads=1)
    interpreter.allocate_tensors()
    for detail, array in zip(interpreter.get_input_details(), work.inputs, strict=True):
        interpreter.set_tensor(detail["index"], array.reshape(detail["shape"]))
    invoke: Call = interpreter.invoke
    return invoke


def openvino(work: Work) -> Call:
    import openvino as ov

    core = ov.Core()
    model = core.read_model(str(work.path))
    model.reshape({i: list(array.shape) for i, array in enumerate(work.inputs)})
    compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY"})
    request = compiled.create_infer_request()
    for i, array in enumerate(work.inputs):
        request.set_input_tensor(i, ov.Tensor(array))
    infer: Call = request.infer
    return infer


def install_openvino(folder: Path) -> None:
    """Into a folder of its own, so that it does not become a dependency."""
    if not (folder / "openvino").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), "openvino"]
        subprocess.run(command, check=False, capture_output=True)
    sys.path.append(str(folder))


def measure(work: Work, build: Path) -> Result:
    result = Result(work.name)
    call, outputs = ours(work, build / "packages" / work.name)  # the second keeps the arrays of the first alive
    calls: dict[str, Call] = {"intaglio": call}
    makers: dict[str, Callable[[Work], Call]] = {"litert": litert, "openvino": openvino}
    for name, make in makers.items():
        try:
            calls[name] = make(work)
            calls[name]()
        except Exception as error:
            calls.pop(name, None)
            result.missing[name] = str(error).strip().replace("\n", " ")[:100]
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            times = _times(call)
            rounds[name].append(statistics.median(times))
            result.minima[name] = min(result.minima.get(name, math.inf), min(times))
    for name, times in rounds.items():
        result.medians[name] = statistics.median(times)
        if name != "intaglio":
            result.ratio[name] = statistics.median(p / o for p, o in zip(times, rounds["intaglio"], strict=True))
            result.least[name] = result.minima[name] / result.minima["intaglio"]
    outputs()
    return result


def _times(call: Call) -> list[float]:
    """Calls of one round, in ms."""
    times: list[float] = []
    end = time.perf_counter() + ROUND_SECONDS
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def section(results: list[Result]) -> str:
    lines = [
        HEADING,
        "",
        f"One core, one thread, batch 1, {ROUNDS} interleaved rounds: median ms (least). A ratio is the peer's time divided by",
        "ours, by medians and by minima. Intaglio matches TFLite's reference kernels bit for bit; the peers do not.",
        "",
        "| model | Intaglio | " + " | ".join(f"{label} | ratio | of minima" for label in PEERS.values()) + " |",
        "| --- |" + " ---: |" * (1 + 3 * len(PEERS)),
    ]
    for r in results:
        cells = [r.name, f"{r.medians['intaglio']:.4f} ({r.minima['intaglio']:.4f})"]
        for peer in PEERS:
            if peer in r.ratio:
                cells += [f"{r.medians[peer]:.4f} ({r.minima[peer]:.4f})", f"{r.ratio[peer]:.2f}", f"{r.least[peer]:.2f}"]
            else:
                cells += ["-", "-", "-"]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for peer, label in PEERS.items():
        measured = [r for r in results if peer in r.ratio]
        if measured:
            low = min(measured, key=lambda r: r.ratio[peer])
            mean = math.exp(sum(math.log(r.ratio[peer]) for r in measured) / len(measured))
            worst = f"lowest {low.ratio[peer]:.2f} ({low.name})"
            lines.append(f"Geometric mean against {label}: **{mean:.2f}** over {len(measured)} models, {worst}.")
    reasons = [f"- {r.name}, {PEERS[peer]}: {why}" for r in results for peer, why in r.missing.items()]
    return "\n".join([*lines, *(["", "Reasons for missing figures:", "", *reasons] if reasons else [])]) + "\n"


def run(shared: Path, build: Path) -> list[Result]:
    install_openvino(build / "openvino")
    results = []
    for work in works(shared):
        result = measure(work, build)
        results.append(result)
        ratios = "  ".join(f"{peer} {ratio:.2f}" for peer, ratio in result.ratio.items())
        print(f"{work.name:26s} {result.medians['intaglio']:9.4f} ms  {ratios}", file=sys.stderr, flush=True)
    return results


def with_section(text: str, results: list[Result]) -> str:
    """The report with this part in place of the old one, at its end."""
    return text.split(f"\n{HEADING}")[0].rstrip("\n") + "\n" + ("\n" + section(results) if results else "")
