"""A model on every known board: one firmware per core is built and run, then its figures are held against each board."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from intaglio.fitting.limits import Needs
from intaglio.options.request import Request
from intaglio.survey.figures import ESTIMATED, Figures, on_core, within
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


def that_fit(means: Iterable[Means], on: Deployment) -> tuple[str, ...]:
    return tuple(m.name for m in means if m.fits(on))
