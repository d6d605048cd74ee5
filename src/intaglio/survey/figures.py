"""What a model needs of a core or a board, for `intaglio fit`: as built and emulated, the same as `compile` and `profile` say. With
`--quick`, and on hosts: as planned.

    sizes   built: linked firmware; estimated: arena and weights are exact, code and stack are guesses
    time    emulated: one run of that firmware, its cycles by the table of costs; estimated: multiply-adds times a factor
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from intaglio.errors import AnswerIsNo, UserError
from intaglio.fitting.fit import estimated_cycles, fits, needs_of_program, needs_on_board
from intaglio.fitting.limits import Needs
from intaglio.options.request import Request
from intaglio.package.needs import needs_of
from intaglio.package.vectors import sizes_at
from intaglio.pipeline import Planned, build_request, compile_request, plan_request
from intaglio.run.board_cycles import ZERO_WAITS, is_described
from intaglio.run.package import Package
from intaglio.stages.watch import Watch
from intaglio.targets.board import Board, all_boards
from intaglio.targets.deployment import Deployment

BUILT, EMULATED, ESTIMATED = "built", "emulated", "estimated"
TYPICAL_SHARE = 0.5  # of a range
NO_RAM = 1  # a limit, in bytes
_STAY = {"target", "board", "stream", "weights"}
# of the float model, or files beside the package
_GO = {"labels", "max_error", "export_plan", "dump_ir", "sign", "archive", "library_only"}
MOST_CYCLES = 4e9  # by the estimate: half a minute of emulation for each core of the table; the core asked for has no limit


@dataclass(frozen=True, slots=True)
class Typical:
    """A run in the middle of the ranges."""

    sizes: Mapping[str, int]
    cycles: int
    instructions: int


@dataclass(frozen=True, slots=True)
class Figures:
    """`sizes` and `time` say where the figures come from; `refusal`: why it does not fit, in the words of `compile`."""

    planned: Planned
    needs: Needs
    cycles: float | None
    instructions: int | None = None
    sizes: str = ESTIMATED
    time: str = ESTIMATED
    refusal: AnswerIsNo | None = None
    waits: str = ZERO_WAITS  # of memories, that are in `cycles`
    on_boards: Mapping[str, int] = field(default_factory=dict)  # cycles with the memories of boards that describe them
    typical: Typical | None = None  # where sizes have a range; everything else is for the largest
    totals: tuple[int, int] | None = None  # RAM and flash of the firmware, as `compile` prints them

    def time_ms(self, board: Board | None) -> float | None:
        """Of the cycles that `profile` has."""
        if self.cycles is None or board is None or not board.clock_mhz:
            return None
        return self.on_boards.get(board.name, self.cycles) / board.clock_mhz / 1000

    def needs_on(self, deployment: Deployment) -> Needs:
        """On a board, of what was made for its core alone."""
        built = self.needs if self.sizes == BUILT else None
        return needs_on_board(self.planned.program, self.planned.target, deployment, built)


def planned_figures(planned: Planned) -> Figures:
    needs = needs_of_program(planned.program, planned.deployment)
    return Figures(planned, needs, estimated_cycles(planned.program, planned.target))


def built_figures(
    request: Request,
    watch: Watch,
    *,
    climbing: bool,
    most_cycles: float = float("inf"),
    hopeless: bool = False,
    typical: bool = False,
    refused_runs: bool = True,
) -> Figures:
    """What `compile` would make of it. Without `climbing` nothing is slower than it has to be, and no limit counts. `hopeless`: the
    limit is `NO_RAM`, to get the smallest arena, and no refusal is wanted. What does not fit is run too, with `refused_runs`."""
    with tempfile.TemporaryDirectory(prefix="intaglio-fit-") as place:
        placed = replace(request, output=Path(place) / "package")
        made = build_request(placed, watch, climbing=climbing, hopeless=hopeless)
        manifest, planned = made.package.manifest, made.planned
        needs = needs_of(manifest, manifest.firmware, planned.deployment)
        firmware = manifest.firmware
        totals = None if firmware is None else (firmware.ram_bytes, firmware.flash_bytes)
        found = replace(planned_figures(planned), needs=needs, sizes=BUILT, refusal=made.refusal, totals=totals)
        if (found.cycles is not None and found.cycles > most_cycles) or not (refused_runs or made.refusal is None):
            return found
        found = _emulated(found, made.package)
        return replace(found, typical=_typical(made.package)) if typical and found.time == EMULATED else found


def _emulated(figures: Figures, package: Package) -> Figures:
    """As they are where there is no emulator, or none for this core."""
    from intaglio.run.emulator.measure import run_if_possible

    board = figures.planned.deployment.board
    alone = board is not None and not board.name
    alike = [b for b in all_boards().values() if alone and b.core == figures.planned.target.name and is_described(b)]
    run = run_if_possible(package, boards=tuple(alike))
    if run is None or run.sum is None:
        return figures
    others = {name: found.cycles for name, found in run.on_boards.items()}
    emulated = replace(figures, cycles=run.sum.cycles, instructions=run.sum.instructions, time=EMULATED)
    return replace(emulated, waits=run.timing.words, on_boards=others)


def _typical(package: Package) -> Typical | None:
    from intaglio.run.emulator.measure import run_if_possible

    sizes = sizes_at(package.manifest.given, TYPICAL_SHARE)
    run = run_if_possible(package.at(sizes)) if sizes else None
    return None if run is None or run.sum is None else Typical(sizes, run.sum.cycles, run.sum.instructions)


def on_core(request: Request, core: str, *, quick: bool) -> Figures | None:
    """As it is, without a board and limits; None where the core has no kernel for some layer."""
    asked = alone(request, core)
    try:
        if quick:
            return planned_figures(plan_request(asked, Watch(), climbing=False))
        return built_figures(asked, Watch(), climbing=False, most_cycles=MOST_CYCLES)
    except UserError:
        return None


def alone(request: Request, core: str) -> Request:
    """For a core, without anything that is said of memories and of chips that others do not have."""
    bare = replace(request, target=core, board=None, ram=None, flash=None, memory=None, feed_rows=False)
    return replace(bare, weights="mapped", accelerators=(), accelerator_only=frozenset())


@contextmanager
def quantised_once(request: Request) -> Iterator[Request]:
    """The model as integers, in a file: it is quantised once for all cores."""
    if request.quantize is None:
        yield request
        return
    with tempfile.TemporaryDirectory(prefix="intaglio-fit-") as place:
        path = Path(place) / f"{request.model.stem}.ig"
        alike = alone(request, request.target or "cortex-m4f")
        compile_request(replace(alike, output=path, stop_after="import"), Watch())
        yield _without_quantising(request, path)


def _without_quantising(request: Request, model: Path) -> Request:
    """With everything that is asked of the stages after those that the file has been through."""
    plain = Request(model, request.output)
    done = ("import", "quantise")
    kept = {f.name for f in fields(request) if f.metadata and (f.metadata["stage"] not in done or f.name in _STAY)} - _GO
    made = replace(plain, **{name: getattr(request, name) for name in kept})
    return replace(made, name=request.name or request.model.stem)


def within(needs: Needs, deployment: Deployment) -> bool:
    return fits(needs, deployment.ram_bytes, deployment.flash_bytes)
