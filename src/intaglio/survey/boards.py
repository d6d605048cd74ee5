"""A model on every known board: one firmware per core is built and run, then its figures are held against each board."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from intaglio.errors import AnswerIsNo
from intaglio.fitting.limits import Needs, ShortOfRam, check_limits
from intaglio.ir.text import print_graph
from intaglio.kernels.c_printer import print_kernel
from intaglio.kernels.program import Program
from intaglio.options.request import Request
from intaglio.pipeline import plan_request
from intaglio.stages.watch import Watch
from intaglio.survey.figures import BUILT, ESTIMATED, MOST_CYCLES, Figures, built_figures, on_core, within
from intaglio.survey.means import AS_IT_IS, SHORT, Finder, Means
from intaglio.targets.board import Board, all_boards
from intaglio.targets.deployment import Deployment
from intaglio.targets.target import all_targets


@dataclass(frozen=True, slots=True)
class OnBoard:
    """A model on a board; `needs` is None where its core has no kernel for some layer."""

    board: Board
    needs: Needs | None
    time_ms: float | None = None
    sizes: str = ESTIMATED
    time: str = ESTIMATED
    means: tuple[str, ...] = ()  # each of them makes it fit; as it is comes first
    limits: tuple[int | None, int | None] = (None, None)  # of RAM and flash

    @property
    def whole(self) -> bool:
        """By what costs nothing."""
        return AS_IT_IS in self.means

    @property
    def fits(self) -> bool:
        """By what `compile` does by itself."""
        return self.whole or "stripes" in self.means

    def told(self) -> str:
        """`yes`, `with int8`, or what is missing: `no, RAM +12,345`."""
        if self.needs is None:
            return "not supported"
        if self.whole:
            return "yes"
        if self.means:
            return "with " + ", ".join(SHORT[name] for name in self.means)
        parts = zip(("RAM", "flash"), (self.needs.main_ram, self.needs.flash), self.limits, strict=True)
        over = [f"{kind} +{sum(n.values()) - limit:,}" for kind, n, limit in parts if limit is not None and sum(n.values()) > limit]
        return f"no, {', '.join(over)}"

    def as_json(self) -> dict[str, object]:
        needs = self.needs
        return {
            "name": self.board.name,
            "fits": self.fits,
            "time_ms": self.time_ms,
            "core": self.board.core,
            "ram_bytes": None if needs is None else sum(needs.ram.values()),
            "flash_bytes": None if needs is None else sum(needs.flash.values()),
            "means": list(self.means),
            "from": {"sizes": self.sizes, "time": self.time},
        }


def cores_of() -> list[str]:
    """Of known boards, in the order of `intaglio targets`."""
    there = {board.core for board in all_boards().values()}
    return [name for name in all_targets() if name in there]


def main_core() -> str:
    """The core that most boards have; the first of these by name."""
    counts = Counter(board.core for board in all_boards().values())
    return min(counts, key=lambda core: (-counts[core], core))


def figures_by_core(
    request: Request, cores: list[str], *, quick: bool, say: Callable[[str], None] = lambda _: None
) -> dict[str, Figures | None]:
    """As it is, on each core. Built in turn: compilers and emulators use what the machine has."""
    found: dict[str, Figures | None] = {}
    for n, core in enumerate(cores):
        if not quick:
            say(f"building for {core} ({n + 1} of {len(cores)})")
        found[core] = on_core(request, core, quick=quick)
    return found


def on_boards(
    request: Request, cores: Mapping[str, Figures | None], finder: Finder, *, every: bool = False
) -> list[OnBoard]:
    """`every`: means are looked for where they are not needed, too."""
    return [on_board(request, board, cores.get(board.core), finder, every=every) for board in all_boards().values()]


def on_board(request: Request, board: Board, figures: Figures | None, finder: Finder, *, every: bool = False) -> OnBoard:
    if figures is None:
        return OnBoard(board, None)
    on = Deployment(board, ram=request.ram, flash=request.flash)
    needs = figures.needs_on(on)
    means = (AS_IT_IS,) if not every and within(needs, on) else that_fit(finder.of(board.core), on)
    limits = (on.ram_bytes, on.flash_bytes)
    return OnBoard(board, needs, figures.time_ms(board), figures.sizes, figures.time, means, limits)


@dataclass(frozen=True, slots=True)
class AsCompiled:
    """What `compile` would make for a board. `refusal`: why it does not fit, in the words of `compile`."""

    ram: int
    flash: int
    time_ms: float | None
    figures: Figures
    refusal: str = ""


def as_compiled(request: Request, board: Board, core: Figures) -> AsCompiled:
    """`request` is for the board; `core` was built for its core alone. A program that is the same for both is not built again: its
    firmware has the same size, and differs in addresses alone. It is another where the board has several memories, where its
    limits make stripes necessary, and where options speak of memories or weigh the wait states of flash."""
    if request.quantize is None and core.sizes == BUILT:  # else `core` has other names: its cycles differ a little
        planned = plan_request(request, Watch())
        try:
            if _text(planned.program) == _text(core.planned.program):
                check_limits(planned.program.graph.name, core.needs, planned.deployment)
                return _compiled(core, board)
        except ShortOfRam:
            pass  # stripes may help
        except AnswerIsNo as no:
            return _compiled(core, board, no)
    made = built_figures(request, Watch(), climbing=True, most_cycles=MOST_CYCLES, refused_runs=False)
    compiled = _compiled(made, board, made.refusal)
    return compiled if made.refusal is None else replace(compiled, time_ms=core.time_ms(board))


def _compiled(made: Figures, board: Board, refusal: AnswerIsNo | None = None) -> AsCompiled:
    ram, flash = made.totals or (sum(made.needs.ram.values()), sum(made.needs.flash.values()))
    return AsCompiled(ram, flash, made.time_ms(board), made, "" if refusal is None else f"{refusal.slug}: {refusal.message}")


def _text(program: Program) -> str:
    """All that a firmware is made from."""
    kernels = "".join(print_kernel(kernel) for kernel in program.kernels)
    places = [(constant.name, constant.memory) for constant in program.constants]
    about = (places, program.placement.arenas, program.placement.arena_bytes, sorted(map(str, program.placement.scratch.values())))
    return f"{print_graph(program.graph, program.choices, program.placement)}{kernels}{about}"


def that_fit(means: Iterable[Means], on: Deployment) -> tuple[str, ...]:
    return tuple(m.name for m in means if m.fits(on))
