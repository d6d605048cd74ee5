"""Models in little RAM: what stripes, rows that are fed and streams need, and the instructions that they cost.

    make bench-memory                                    writes benchmarks/MEMORY.md, ends with 1 when a figure is missed
    .venv/bin/python benchmarks/memory.py VWW sww        only these

RAM is that of the firmware: arena with inputs and outputs, variables, and the stack that the linked program can need. Instructions
are those of an emulated Cortex-M4F, exact and the same on every machine, over those of the plan without a limit. Results of
two samples are compared with TFLite's reference kernels; MobileNetV2 with the numpy references of its integers, the wake word
with our own package on windows. The arena of face detection is planned, not built. Models are those of ../shared/models, and a
MobileNetV2 that a script makes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

import intaglio
from intaglio.run.package import Package
from intaglio.stages import Device, Request, Watch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from make_mobilenet_model import mobilenet  # noqa: E402

BUILD = ROOT / "build" / "bench-memory"
SHARED = ROOT.parent / "shared" / "models"
TARGET = "cortex-m4f"
KB = 1000
MOST_INSTRUCTIONS = 1.4
HEAD = "| figure | reached | at most | instructions | over the fastest plan | results | s |"


@dataclass(frozen=True)
class Row:
    """One figure: what was reached and the most it may be."""

    label: str
    reached: str
    limit: str
    ok: bool
    instructions: str = ""
    ratio: str = ""
    results: str = ""
    seconds: float = 0.0

    def text(self) -> str:
        cells = [self.label, self.reached, self.limit, self.instructions, self.ratio, self.results, f"{self.seconds:.0f}"]
        return "| " + " | ".join(cells) + " |"


@dataclass(frozen=True)
class Limited:
    """A model in so much RAM."""

    label: str
    model: str
    ram: int
    fed: bool = False
    peers: str = ""


LIMITED = (
    Limited("VWW, input inside", "mlperf_vww_int8", 42 * KB, peers="TFLM 102 KB, TinyEngine 61 KB"),
    Limited("VWW, rows fed", "mlperf_vww_int8", 16 * KB, fed=True, peers="TFLM 102 KB, TinyEngine 61 KB"),
    Limited("person detection", "tflm_person_detect_int8", 26 * KB),
    Limited("KWS", "mlperf_kws_int8", 12 * KB, peers="TFLM 24 KB"),
    Limited("IC", "mlperf_ic_int8", 28 * KB, peers="TFLM 56 KB"),
)


def entry(model: str) -> dict[str, str]:
    found: list[dict[str, str]] = json.loads((SHARED / "manifest.json").read_text())
    return next(e for e in found if e["id"] == model)


def compiled(path: Path, name: str, **words: object) -> Package:
    return intaglio.compile(path, output=BUILD / name, target=TARGET, force=True, **words)  # type: ignore[arg-type]


def instructions(package: Package) -> int:
    return package.profile().total.instructions or 0


def ram_of(package: Package) -> int:
    info = package.manifest.firmware
    assert info is not None
    return info.ram_bytes


def differences(package: Package, model: str, samples: int = 2) -> tuple[str, bool]:
    """From TFLite's reference kernels."""
    data = np.load(SHARED / entry(model)["ref"])
    got = next(iter(package.run_steps({"in0": data["in0"][:samples]}).values()))
    wrong = int((got.reshape(samples, -1) != data["out0"][:samples].reshape(samples, -1)).sum())
    return f"{wrong} of {got.size} differ", wrong == 0


def limited(case: Limited) -> Row:
    start = time.perf_counter()
    path = SHARED / entry(case.model)["file"]
    fastest = instructions(compiled(path, case.model))
    package = compiled(path, f"{case.model}_{case.ram}", ram=case.ram, feed_rows=case.fed)
    ram, count = ram_of(package), instructions(package)
    told, right = differences(package, case.model)
    ok = right and ram <= case.ram and count <= MOST_INSTRUCTIONS * fastest
    label = case.label + (f" ({case.peers})" if case.peers else "")
    seconds = time.perf_counter() - start
    return Row(label, f"{ram:,}", f"{case.ram:,}", ok, f"{count:,}", f"{count / fastest:.3f}", told, seconds)


def mobile() -> Row:
    """Random weights; calibrated on random pictures, which is no matter here."""
    start = time.perf_counter()
    path, limit = BUILD / "mobilenet_v2.onnx", 64 * KB
    BUILD.mkdir(parents=True, exist_ok=True)
    onnx.save(mobilenet(0.35, 144, 1000), str(path))
    quick = {"quantize": "int8", "integer_io": True, "ranges": "minmax", "sensitivity": False}
    fastest = instructions(compiled(path, "mobilenet", **quick))
    package = compiled(path, "mobilenet_64", ram=limit, feed_rows=True, **quick)
    ram, count, right = ram_of(package), instructions(package), package.validate().ok
    return Row(
        "MobileNetV2 0.35, 144x144, rows fed", f"{ram:,}", f"{limit:,}", right and ram <= limit, f"{count:,}",
        f"{count / fastest:.3f}", "0 differ" if right else "WRONG", time.perf_counter() - start,
    )  # fmt: skip


def face() -> Row:
    """Float: the least arena with stripes, of that without any."""
    from intaglio.pipeline import Lowered, plan_model

    start = time.perf_counter()
    path = SHARED / entry("mp_face_det_short")["file"]
    sizes = []
    for ram in (None, 1):
        made = plan_model(Request(path, Path(), TARGET, Device(ram=ram), {}, {}, stop_after="memory"), Watch())
        assert isinstance(made, Lowered)
        sizes.append(made.program.arena_bytes)
    whole, least = sizes
    return Row(
        f"face detection (float): arena with stripes {least:,}, without {whole:,}", f"{least / whole:.3f}", "0.500",
        2 * least <= whole,
        seconds=time.perf_counter() - start,
    )  # fmt: skip


def wake_word() -> Row:
    """Frames of the recordings, one by one; every window of the first two recordings against the model on that window."""
    start = time.perf_counter()
    path = SHARED / entry("mlperf_sww_int8")["file"]
    window, package = compiled(path, "sww"), compiled(path, "sww_stream", stream=1)
    frame, whole = instructions(package), instructions(window)
    frames = np.load(SHARED / "data" / "sww_calib.npz")["specs"].reshape(-1, 1, 1, 1, 40)[:60]
    data = np.clip(np.round(frames / 0.003701042616739869) - 128, -128, 127).astype(np.int8)
    got = next(iter(package.run_steps({"in0": data}).values()))[29:]
    windows = np.stack([data[n : n + 30].reshape(1, 30, 1, 40) for n in range(31)])
    want = next(iter(window.run_steps({"in0": windows}).values()))
    wrong = int((got != want).sum())
    return Row(
        f"wake word, instructions of a frame over those of a window; RAM {ram_of(package):,}, of the window {ram_of(window):,}",
        f"{frame / whole:.3f}", "0.100", frame <= 0.1 * whole and wrong == 0, f"{frame:,}", f"{frame / whole:.3f}",
        f"{wrong} of {got.size} differ", time.perf_counter() - start,
    )  # fmt: skip


def figures() -> dict[str, Callable[[], Row]]:
    made: dict[str, Callable[[], Row]] = {case.label: (lambda case=case: limited(case)) for case in LIMITED}  # type: ignore[misc]
    return {**made, "MobileNetV2": mobile, "face": face, "sww": wake_word}


def write(rows: list[Row]) -> None:
    about = (__doc__ or "").split("\n\n")[2].strip()
    table = [HEAD, "|" + " --- |" + " ---: |" * 4 + " --- | ---: |", *(row.text() for row in rows)]
    said = "`make bench-memory`; `reached` is RAM in bytes where nothing else is said:"
    text = "\n".join(["# Models in little RAM", "", about, "", said, "", *table])
    (ROOT / "benchmarks" / "MEMORY.md").write_text(text + "\n", encoding="utf-8")


def main() -> int:
    asked = sys.argv[1:]
    if not SHARED.is_dir():
        print("the shared models are not there: nothing to measure", file=sys.stderr)
        return 0
    rows = []
    print(HEAD)
    for name, measure in figures().items():
        if asked and not any(name.startswith(word) for word in asked):
            continue
        try:
            rows.append(measure())
        except intaglio.IntaglioError as error:
            rows.append(Row(name, error.message, "", ok=False))
        print(rows[-1].text(), "" if rows[-1].ok else "MISSED", flush=True)
    if not asked:
        write(rows)
    missed = [row.label for row in rows if not row.ok]
    for label in missed:
        print(f"missed: {label}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
