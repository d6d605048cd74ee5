"""MLPerf Tiny on an emulated Cortex-M4F and on boards against the figures that the peers reach on the same work.

    make bench-mcu                                       writes benchmarks/MCU.md, boards included (mcu_boards.py)
    .venv/bin/python benchmarks/mcu.py --target cortex-m7    another core, printed only
    .venv/bin/python benchmarks/mcu.py --layers              and every layer

Instructions are exact and the same on every machine; cycles are an estimate (docs/reference/cycle-estimate.md). Models and
references are those of ../shared/models; without them there is nothing to measure.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import mcu_boards
import numpy as np
import onnx

import intaglio
from intaglio.cli.running import print_emulated
from intaglio.run.timing import Profile
from models import dscnn

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "bench-mcu"
SHARED = ROOT.parent / "shared" / "models"
TARGET = "cortex-m4f"


@dataclass(frozen=True)
class Figures:
    """Of a peer, or limits; None where there is none."""

    instructions: int
    ram: int | None = None
    flash: int | None = None
    code: int | None = None


@dataclass(frozen=True)
class Case:
    label: str
    model: str
    peer: Figures
    limit: Figures


# TFLM with CMSIS-NN, and the most that we allow ourselves.
INTEGERS = (
    Case("KWS", "mlperf_kws_int8", Figures(7_699_739, 24_232, 108_224, 54_288), Figures(3_100_000, 18_000, 50_000, 14_000)),
    Case("VWW", "mlperf_vww_int8", Figures(24_101_548, 102_120, 387_576, 54_288), Figures(5_600_000, 60_000, 66_000, 16_000)),
    Case("IC", "mlperf_ic_int8", Figures(29_870_320, 56_408, 150_588, 52_092), Figures(13_300_000, 40_000, 100_000, 14_000)),
    Case("AD", "mlperf_ad_int8", Figures(582_869, 3_600, 305_928, 28_952), Figures(315_000, 2_000, 280_000, 6_000)),
)
# The better of onnx2c and emx-onnx-cgen; RAM is onnx2c's. MLCommons' float KWS has int8 weights: ours is of the same shape.
FLOATS = (
    Case("KWS", "dscnn", Figures(15_400_000, 64_112), Figures(7_700_000)),
    Case("VWW", "mlperf_vww_f32", Figures(48_600_000, 295_024), Figures(15_994_328, code=16_384)),
    Case("IC", "mlperf_ic_f32", Figures(91_400_000, 196_720), Figures(21_008_917, code=16_384)),
    Case("AD", "mlperf_ad_f32", Figures(1_360_000, 3_080), Figures(680_000)),
)
FLOAT_TOLERANCE = 1e-4


@dataclass(frozen=True)
class Result:
    case: Case
    profile: Profile
    differences: str  # "0 of 120", or the largest relative error of floats
    right: bool
    seconds: float  # to compile and build


def measure(case: Case, target: str, entries: dict[str, dict[str, str]]) -> Result | None:
    """None where the model is not there."""
    entry = entries.get(case.model)
    path = SHARED / entry["file"] if entry else BUILD / f"{case.model}.onnx"
    if not path.is_file():
        return None
    start = time.perf_counter()
    package = intaglio.compile(path, output=BUILD / target / case.model, target=target, force=True)
    seconds = time.perf_counter() - start
    if entry is None:
        found = package.validate()
        error = max(row.max_rel for row in found.outputs)
        return Result(case, package.profile(), f"{error:.0e}", found.ok, seconds)
    data = np.load(SHARED / entry["ref"])
    results = package.run_steps({f"in{i}": data[f"in{i}"] for i in range(len(package.manifest.inputs))})
    wrong = count = 0
    error = 0.0
    for index, got in enumerate(results.values()):
        want = data[f"out{index}"].reshape(got.shape)
        count += want.size
        if want.dtype.kind == "f":
            error = max(error, float(np.abs(got - want).max() / np.abs(want).max()))
        else:
            wrong += int((got != want).sum())
    text = f"{error:.0e}" if error else f"{wrong} of {count}"
    return Result(case, package.profile(), text, wrong == 0 and error <= FLOAT_TOLERANCE, seconds)


def rows(results: list[Result], peer: str) -> list[list[str]]:
    """The table of the figures, a column per model."""
    total = [r.profile.total for r in results]
    cases = [r.case for r in results]
    table = [
        ["", *(c.label for c in cases)],
        ["MACs", *(f"{t.macs:,}" for t in total)],
        ["**instructions**", *(f"**{t.instructions or 0:,}**" for t in total)],
        ["limit", *(f"{c.limit.instructions:,}" for c in cases)],
        [peer, *(f"{c.peer.instructions:,}" for c in cases)],
        [f"{peer} / ours", *(f"{c.peer.instructions / (t.instructions or 1):.2f}" for c, t in zip(cases, total, strict=True))],
        ["instructions per MAC", *(f"{t.instructions_per_mac or 0:.2f}" for t in total)],
        ["cycles, estimated", *(f"{t.cycles or 0:,}" for t in total)],
        ["**RAM**", *(f"**{t.ram_bytes:,}**" for t in total)],
        ["arena + io + static + stack", *(f"{t.arena_bytes}+{t.io_bytes}+{t.static_bytes}+{t.stack_bytes}" for t in total)],
        ["limit", *(_or_dash(c.limit.ram) for c in cases)],
        [peer, *(_or_dash(c.peer.ram) for c in cases)],
        ["**flash**", *(f"**{t.flash_bytes or 0:,}**" for t in total)],
        ["limit", *(_or_dash(c.limit.flash) for c in cases)],
        [peer, *(_or_dash(c.peer.flash) for c in cases)],
        ["**code** without weights", *(f"**{t.code_bytes or 0:,}**" for t in total)],
        ["limit", *(_or_dash(c.limit.code) for c in cases)],
        [peer, *(_or_dash(c.peer.code) for c in cases)],
        ["differences", *(r.differences for r in results)],
        ["compile and build, s", *(f"{r.seconds:.1f}" for r in results)],
    ]
    return [row for row in table if set(row[1:]) != {"-"}]


def _or_dash(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def misses(result: Result) -> list[str]:
    """What is over its limit, or wrong."""
    t, limit = result.profile.total, result.case.limit
    have = {"instructions": t.instructions, "RAM": t.ram_bytes, "flash": t.flash_bytes, "code": t.code_bytes}
    most = {"instructions": limit.instructions, "RAM": limit.ram, "flash": limit.flash, "code": limit.code}
    over = [f"{what} {have[what]:,} > {most[what]:,}" for what in have if most[what] is not None and (have[what] or 0) > most[what]]
    return [f"{result.case.model}: {text}" for text in [*over, *([] if result.right else [f"differs: {result.differences}"])]]


def markdown(table: list[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return [lines[0], "| --- |" + " ---: |" * (len(table[0]) - 1), *lines[1:]]


def boards(entries: dict[str, dict[str, str]]) -> tuple[list[str], list[str]]:
    """The part of the page about boards, and what is over a goal there."""
    lines, over = [*BOARDS], []
    for place in mcu_boards.PLACES:
        found = {}
        for label, model in mcu_boards.MODELS.items():
            if label in mcu_boards.OWN and not place.own:
                continue
            print(f"{model} on {place.board} ...", file=sys.stderr)
            shared = SHARED / entries[model]["file"] if model in entries else SHARED
            measured = mcu_boards.measure(place, label, mcu_boards.path_of(label, shared))
            if measured is None:
                break
            found[label] = measured
        lines += ["", f"### {place.title}", ""]
        lines += markdown(mcu_boards.rows(place, found)) if found else ["Not measured: `qemu-system-arm` is not there."]
        over += mcu_boards.misses(place, found)
    return lines, over


BOARDS = (
    "## Boards", "",
    "Int8 models, packages for the board (`--board`). Cycles are estimated by the model of the board's caches and wait",
    "states ([how, and how well it fits](../docs/reference/cycle-estimate.md)); its interval is in the table. Published",
    "cycles are clock / throughput of MLPerf Tiny result files, measured on the same core or board. SWW is the streaming",
    "wake word, compiled with `--stream 1`: a step takes one frame of features; the published cycles of a frame include",
    "making the features. IC02 is the larger image classifier of MLPerf Tiny v1.3, with its layers (ResNet-8 of 40, 80 and",
    "160 channels) and random weights, quantised here, since the published file is not among the models; nobody has",
    "published results for it. The file itself (`pretrainedResnet_large_int8.tflite`, 512,024 bytes) matches LiteRT bit for",
    "bit and takes 70,193,199 instructions, 100.5 M cycles, 87,168 bytes of RAM and 462,156 of flash on the NUCLEO-L4R5ZI",
    "with single-bank flash, 57.7 M cycles on the NUCLEO-H7A3ZI-Q. Energy is computed: published energy times our cycles,",
    "divided by the cycles of the software that it was published with.",
)  # fmt: skip


def page(target: str, integers: list[Result], floats: list[Result], on_boards: tuple[list[str], list[str]] = ([], [])) -> str:
    about = next(r.profile.emulation for r in [*integers, *floats])
    lines = [
        f"# MLPerf Tiny on an emulated {target}",
        "",
        f"`make bench-mcu`, {about.emulator if about else ''}. Instructions of one inference, counted in the emulator: exact.",
        "Cycles are an estimate with zero wait states. Outputs of integer models are compared element by element with TFLite's",
        "reference kernels. Memory is in bytes.",
    ]
    for title, results, peer in (("int8", integers, "TFLM + CMSIS-NN"), ("float32", floats, "onnx2c or emx, the better")):
        if results:
            lines += ["", f"## {title}", "", *markdown(rows(results, peer))]
    over = [text for r in [*integers, *floats] for text in misses(r)] + on_boards[1]
    lines += ["", *on_boards[0]] if on_boards[0] else []
    lines += ["", *(["Over the limit:", "", *(f"- {text}" for text in over)] if over else ["Everything is within its limit."]), ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default=TARGET)
    parser.add_argument("--only", default="", help="part of a model's name")
    parser.add_argument("--layers", action="store_true", help="print every layer too")
    arguments = parser.parse_args()
    if not (SHARED / "manifest.json").exists():
        print(f"skipped: there are no models in {SHARED}", file=sys.stderr)
        return
    entries = {entry["id"]: entry for entry in json.loads((SHARED / "manifest.json").read_text())}
    BUILD.mkdir(parents=True, exist_ok=True)
    onnx.save(dscnn(), BUILD / "dscnn.onnx")
    found: list[list[Result]] = []
    for cases in (INTEGERS, FLOATS):
        found.append([])
        for case in cases:
            if arguments.only in case.model:
                print(f"{case.model} ...", file=sys.stderr)
                result = measure(case, arguments.target, entries)
                if result is not None:
                    found[-1].append(result)
                    if arguments.layers and result.profile.emulation is not None:
                        print_emulated(result.profile, result.profile.emulation)
    if not any(found):
        print(f"skipped: no model is named like {arguments.only!r}", file=sys.stderr)
        return
    whole = arguments.target == TARGET and not arguments.only
    text = page(arguments.target, found[0], found[1], boards(entries) if whole else ([], []))
    print(text)
    if whole:
        (ROOT / "benchmarks" / "MCU.md").write_text(text, encoding="utf-8")
    sys.exit(1 if any(not r.right for results in found for r in results) else 0)


if __name__ == "__main__":
    main()
