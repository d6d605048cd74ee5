"""Does `intaglio fit` say what is built and profiled? For every model and board: the row of its table against the package.

    .venv/bin/python benchmarks/fit.py                   writes benchmarks/FIT.md
    .venv/bin/python benchmarks/fit.py --only kws        models whose name has this, printed only

`fit` builds one firmware per core and runs it once; here each board has its own package, built and emulated by itself. The figures
of `fit --quick`, which builds nothing, are held against the same packages. Models are those of ../shared/models and the demo.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import intaglio
from intaglio.errors import IntaglioError
from intaglio.options.request import Request
from intaglio.run.emulator.measure import run_if_possible
from intaglio.survey.boards import figures_by_core
from intaglio.survey.figures import EMULATED, Figures, within
from intaglio.targets.board import find_board
from intaglio.targets.deployment import Deployment

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "models"
MODELS = (
    "mlperf_kws_int8", "mlperf_vww_int8", "mlperf_ic_int8", "mlperf_ad_int8", "mlperf_sww_int8", "mlperf_kws_f32", "mlperf_ad_f32",
    "wand5_int8", "wand5_f32", "tflm_hello_world_int8", "tflm_hello_world_f32", "tflm_micro_speech_int8", "tflm_person_detect_int8",
    "mkws_int8_tfl", "mww_vad", "ort_mnist", "tflm_mnist_lstm_int8", "tract_qlstm",
)  # fmt: skip
BOARDS = (
    "rp2040", "nucleo-f207zg", "nucleo-wl55jc1", "stm32f4-discovery", "nucleo-l476rg", "rp2350", "nucleo-h743zi", "mps3-an547",
    "esp32-c3", "ch32v307v-evt",
)  # fmt: skip
SHOWN = ("rp2040", "stm32f4-discovery", "nucleo-h743zi")
FLASH_LIMIT, TIME_LIMIT = 5.0, 15.0  # per cent


@dataclass(frozen=True)
class Row:
    """One model on one board. Times are None where there is no emulator for the core."""

    model: str
    board: str
    flash: int
    built_flash: int
    quick_flash: int
    ms: float | None
    profiled_ms: float | None
    quick_ms: float | None

    @property
    def flash_error(self) -> float:
        return 100 * (self.flash / self.built_flash - 1)

    @property
    def time_error(self) -> float | None:
        return None if self.ms is None or self.profiled_ms is None else 100 * (self.ms / self.profiled_ms - 1)

    @property
    def quick_flash_error(self) -> float:
        return 100 * (self.quick_flash / self.built_flash - 1)

    @property
    def quick_ratio(self) -> float | None:
        return None if self.quick_ms is None or not self.profiled_ms else self.quick_ms / self.profiled_ms


def measure(name: str, path: Path) -> list[Row]:
    cores = sorted({find_board(board).core for board in BOARDS})
    request = Request(path, Path())
    figures, guesses = (figures_by_core(request, cores, quick=quick) for quick in (False, True))
    found = []
    for board in BOARDS:
        core = find_board(board).core
        fit, guess = figures[core], guesses[core]
        row = None if fit is None or guess is None else _row(name, path, board, fit, guess)
        if row is not None:
            found.append(row)
            print(row, file=sys.stderr)
    return found


def _row(name: str, path: Path, board: str, fit: Figures, guess: Figures) -> Row | None:
    """None where the model does not fit as it is: then `compile` makes another program of it, or none."""
    on = Deployment(find_board(board))
    needs = fit.needs_on(on)
    if not within(needs, on):
        return None
    with tempfile.TemporaryDirectory() as folder:
        try:
            package = intaglio.compile(path, board=board, output=Path(folder) / "p")
        except IntaglioError as error:
            print(f"{name} on {board}: {error}", file=sys.stderr)
            return None
        run = run_if_possible(package) if fit.time == EMULATED else None
        firmware = package.manifest.firmware
    assert firmware is not None
    ms = fit.time_ms(on.board) if fit.time == EMULATED else None
    quick_flash = sum(guess.needs_on(on).flash.values())
    profiled = None if run is None else run.time_ms
    return Row(name, board, sum(needs.flash.values()), firmware.flash_bytes, quick_flash, ms, profiled, guess.time_ms(on.board))


def page(rows: list[Row]) -> str:
    worst_flash = max(abs(row.flash_error) for row in rows)
    worst_time = max((abs(e) for row in rows if (e := row.time_error) is not None), default=0.0)
    quick_flash = [row.quick_flash_error for row in rows]
    ratios = sorted(r for row in rows if (r := row.quick_ratio) is not None)
    models = len({row.model for row in rows})
    middle = f"half of them {ratios[len(ratios) // 4]:.2f} to {ratios[3 * len(ratios) // 4]:.2f}" if ratios else "no emulator"
    lines = [
        "# `fit` against what is built",
        "",
        f"`.venv/bin/python benchmarks/fit.py`, {len(rows)} packages: {models} models on {len(BOARDS)} boards",
        f"({', '.join(BOARDS)}), where they fit.",
        "Flash is that of the linked firmware, time that of one emulated run, as `profile` has them. A core",
        "that has no emulator on this machine (a Cortex-M55 without QEMU) has no time here, and an estimated one in `fit`.",
        "",
        f"- `fit`: flash within {worst_flash:.2f} % (limit {FLASH_LIMIT:g} %), time within {worst_time:.2f} % (limit",
        f"  {TIME_LIMIT:g} %).",
        f"- `fit --quick`, which builds nothing: flash off by {min(quick_flash):.0f} to {max(quick_flash):+.0f} %, time by a "
        "factor",
        f"  of {min(ratios, default=1):.2f} to {max(ratios, default=1):.2f} ({middle}).",
        "",
        "| model | packages | flash, largest error | time, largest error | quick: flash | quick: time |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for model in dict.fromkeys(row.model for row in rows):
        own = [row for row in rows if row.model == model]
        times = [abs(e) for row in own if (e := row.time_error) is not None]
        quick = [r for row in own if (r := row.quick_ratio) is not None]
        cells = [
            model, str(len(own)), f"{max(abs(r.flash_error) for r in own):.2f} %", f"{max(times):.2f} %" if times else "-",
            f"{max((r.quick_flash_error for r in own), key=abs):+.0f} %",
            f"x {min(quick):.2f} to {max(quick):.2f}" if quick else "-",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "| model | board | flash, fit | built | ms, fit | profiled |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    for row in rows:
        if row.board in SHOWN:
            times_of = ["-" if ms is None else f"{ms:.3f}" for ms in (row.ms, row.profiled_ms)]
            lines.append(f"| {row.model} | {row.board} | {row.flash:,} | {row.built_flash:,} | {' | '.join(times_of)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of a model's name")
    arguments = parser.parse_args()
    paths = {"digits": ROOT / "src" / "intaglio" / "demo_data" / "digits.onnx"}
    if (SHARED / "manifest.json").exists():
        entries = {entry["id"]: SHARED / entry["file"] for entry in json.loads((SHARED / "manifest.json").read_text())}
        paths |= {name: entries[name] for name in MODELS if name in entries}
    rows = [row for name, path in paths.items() if arguments.only in name for row in measure(name, path)]
    if not rows:
        print(f"skipped: no model is named like {arguments.only!r}", file=sys.stderr)
        return
    text = page(rows)
    print(text)
    if not arguments.only and len(paths) > 1:
        (ROOT / "benchmarks" / "FIT.md").write_text(text, encoding="utf-8")
    over = [r for r in rows if abs(r.flash_error) > FLASH_LIMIT or abs(r.time_error or 0) > TIME_LIMIT]
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
