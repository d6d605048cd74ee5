"""MLPerf Tiny on boards: cycles by the boards' model of caches and wait states, beside what others published for the same core.

`mcu.py` calls this. Published cycles are clock / throughput of MLPerf Tiny result files (v0.5 to v1.3). Energy is computed: what
was published for a board, times our cycles, divided by the cycles of the software that it was published with.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

import intaglio
from intaglio.cli.cycles import BEATS
from intaglio.errors import ToolError
from intaglio.run.timing import Total
from models import ic02

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "bench-mcu" / "boards"
MODELS = {label: f"mlperf_{label.lower()}_int8" for label in ("KWS", "VWW", "IC", "AD", "SWW")} | {"IC02": "ic02"}
STREAMED = ("SWW",)  # a step is one frame
OWN = {"IC02": ic02}  # made here: the published file is not among the models
TITLES = {"SWW": "SWW, a frame", "IC02": "IC02, random weights"}
MILLION = 1e6


@dataclass(frozen=True)
class Published:
    """In M cycles, or uJ; where there is none, the model is missing."""

    who: str
    figures: dict[str, float]


@dataclass(frozen=True)
class Place:
    title: str
    board: str  # a name, or a file beside this one
    goals: dict[str, float] = field(default_factory=dict)  # M cycles
    published: tuple[Published, ...] = ()
    energy: tuple[Published, Published] | None = None  # uJ, and the cycles that go with them
    own: bool = True  # models that are made here too: they take minutes


def four(kws: float, vww: float, ic: float, ad: float, sww: float | None = None) -> dict[str, float]:
    found = {"KWS": kws, "VWW": vww, "IC": ic, "AD": ad}
    return found if sww is None else {**found, "SWW": sww}


ST_M4 = Published("ST v1.2 (SWW v1.3, with features)", four(5.185, 10.67, 19.82, 0.631, 2.15))
ST_M33 = Published("ST v1.2 (SWW v1.3, with features)", four(4.64, 9.48, 17.52, 0.514, 1.86))
PLACES = (
    Place(
        "Cortex-M4F, NUCLEO-L4R5ZI, single-bank flash", "nucleo-l4r5zi-single-bank.toml", four(4.8, 8.9, 19.6, 0.47),
        (
            ST_M4,
            Published("Plumerai v1.1", four(5.73, 11.85, 20.1, 0.486)),
            Published("Bosch v1.2", four(7.22, 21.66, 21.66, 0.70)),
            Published("microTVM + CMSIS-NN v1.0", four(12.0, 36.1, 46.7, 1.03)),
            Published("TFLM reference v0.5", four(21.8, 72.1, 84.5, 1.21)),
        ),
        (Published("ST v1.3, STM32L4R5", four(1431, 3030, 5496, 160)), ST_M4),
    ),
    Place("Cortex-M4F, NUCLEO-L4R5ZI, two banks (as delivered)", "nucleo-l4r5zi", own=False),
    Place(
        "Cortex-M33, NUCLEO-U575ZI-Q", "nucleo-u575zi", four(4.1, 8.3, 16.5, 0.48),
        (ST_M33, Published("Plumerai", {"IC": 16.69}), Published("Bosch v1.2", four(6.17, 19.17, 19.29, 0.495))),
        (Published("v1.3, STM32U385", four(245, 519, 966, 31.8)), ST_M33),
    ),
    Place(
        "Cortex-M7, NUCLEO-H7A3ZI-Q", "nucleo-h7a3zi-q", four(2.8, 5.9, 11.2, 0.29),
        (Published("ST v1.2 (SWW v1.3, with features)", four(3.17, 6.67, 11.44, 0.343, 1.19)),
         Published("Bosch v1.2", four(4.11, 12.25, 12.84, 0.303))),
    ),
    Place(
        "Cortex-M0+, NUCLEO-G0B1RE", "nucleo-g0b1re", four(29, 52, 95, 2.55),
        (Published("Bosch v1.2", four(30.4, 90.5, 97.4, 2.62)),),
    ),
    Place(
        "Cortex-M55, MPS3 AN547 (simulated by QEMU, without caches)", "mps3-an547", {},
        (Published("TFLM v1.2 on a Cortex-M85", four(1.66, 6.43, 4.07, 0.255)),),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Measured:
    total: Total
    in_ram: Total | None  # with `--weights ram`
    seconds: float
    right: bool


def path_of(label: str, shared: Path) -> Path:
    """Of a model of others, or of one that is made here."""
    if label not in OWN:
        return shared
    BUILD.mkdir(parents=True, exist_ok=True)
    path = BUILD / f"{MODELS[label]}.onnx"
    onnx.save(OWN[label](), path)
    return path


def measure_own(place: Place, label: str, path: Path) -> Measured | None:
    """A float model of random weights: quantised by random pictures, compared with its own integers."""
    board = str(HERE / place.board) if place.board.endswith(".toml") else place.board
    pictures = np.random.default_rng(0).standard_normal((8, 1, 3, 32, 32)).astype(np.float32)
    start = time.perf_counter()
    package = intaglio.compile(
        path, output=BUILD / Path(place.board).stem / label, board=board, quantize="int8", calibrate={"x": pictures},
        integer_io=True, force=True,
    )  # fmt: skip
    seconds = time.perf_counter() - start
    try:
        return Measured(package.profile().total, None, seconds, package.validate().ok)
    except ToolError:
        return None


def measure(place: Place, label: str, path: Path) -> Measured | None:
    """None where this machine cannot emulate the core."""
    if label in OWN:
        return measure_own(place, label, path)
    board = str(HERE / place.board) if place.board.endswith(".toml") else place.board
    folder = BUILD / Path(place.board).stem / label
    stream = 1 if label in STREAMED else None
    start = time.perf_counter()
    package = intaglio.compile(path, output=folder, board=board, stream=stream, force=True)
    seconds = time.perf_counter() - start
    try:
        total = package.profile().total
        right = package.validate().ok
    except ToolError:
        return None
    moved = intaglio.compile(path, output=folder.with_name(f"{label}_ram"), board=board, stream=stream, weights="ram", force=True)
    in_ram = moved.profile().total if moved.manifest.memory.weights_ram else None
    return Measured(total, in_ram, seconds, right and (in_ram is None or moved.validate().ok))


def _million(cycles: float | None) -> str:
    return "-" if cycles is None else f"{cycles:.3f}" if cycles < 1 else f"{cycles:.2f}"


def _cycles(total: Total | None) -> float | None:
    return None if total is None or total.cycles is None else total.cycles / MILLION


def _beats(total: Total) -> float | None:
    return None if total.vector_instructions is None else BEATS * total.vector_instructions / MILLION


def _interval(total: Total) -> str:
    low, high = total.cycles_low, total.cycles_high
    return "-" if low is None or high is None else f"{_million(low / MILLION)} to {_million(high / MILLION)}"


def _best(place: Place, label: str) -> float | None:
    return min((p.figures[label] for p in place.published if label in p.figures), default=None)


def rows(place: Place, found: dict[str, Measured]) -> list[list[str]]:
    totals = {label: m.total for label, m in found.items()}
    cycles = {label: _cycles(total) for label, total in totals.items()}
    table = [
        ["", *(TITLES.get(label, label) for label in found)],
        ["instructions", *(f"{t.instructions or 0:,}" for t in totals.values())],
        ["**cycles, M, estimated**", *(f"**{_million(c)}**" for c in cycles.values())],
        ["interval", *(_interval(t) for t in totals.values())],
        ["beats of vectors, M, estimated", *(_million(_beats(t)) for t in totals.values())],
        ["goal", *(_million(place.goals.get(label)) for label in found)],
        ["cycles with `--weights ram`, M", *(_million(_cycles(m.in_ram)) for m in found.values())],
        *([f"published: {p.who}, M", *(_million(p.figures.get(label)) for label in found)] for p in place.published),
        ["best published / ours", *("-" if label in STREAMED else _ratio(_best(place, label), cycles[label]) for label in found)],
        ["RAM", *(f"{t.ram_bytes:,}" for t in totals.values())],
        ["RAM with `--weights ram`", *("-" if m.in_ram is None else f"{m.in_ram.ram_bytes:,}" for m in found.values())],
        ["flash", *(f"{t.flash_bytes or 0:,}" for t in totals.values())],
        ["compile and build, s, objects may be cached", *(f"{m.seconds:.1f}" for m in found.values())],
    ]  # fmt: skip
    if place.energy is not None:
        microjoule = place.energy[0]
        table.append([f"energy, uJ, published: {microjoule.who}", *(_whole(microjoule.figures.get(label)) for label in found)])
        table.append(["energy, uJ, computed from it", *(_whole(_energy(place, label, cycles[label])) for label in found)])
    return [row for row in table if set(row[1:]) != {"-"}]


def _energy(place: Place, label: str, cycles: float | None) -> float | None:
    assert place.energy is not None
    microjoule, of = place.energy
    known = label in microjoule.figures and label in of.figures and cycles is not None
    return microjoule.figures[label] * (cycles or 0.0) / of.figures[label] if known else None


def _ratio(published: float | None, ours: float | None) -> str:
    return "-" if published is None or not ours else f"{published / ours:.2f}"


def _whole(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}" if number >= 100 else f"{number:.1f}"


def misses(place: Place, found: dict[str, Measured]) -> list[str]:
    over = []
    for label, m in found.items():
        cycles, goal = _cycles(m.total), place.goals.get(label)
        if goal is not None and (cycles or 0.0) > goal:
            over.append(f"{label} on {place.title}: {_million(cycles)} M cycles > {_million(goal)} M")
        if not m.right:
            over.append(f"{label} on {place.title}: differs from the reference")
    return over
