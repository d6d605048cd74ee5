"""Ways to make a model fit, each by itself: what it would need with them, planned and not built.

    stripes            layers a few rows at a time; compile does it by itself under a limit
    --feed-rows        rows of the input one by one
    --stream AXIS      one frame at a time
    --weights read     weights in a memory without addresses
    --quantize int8    of a float model; ranges do not matter for its size
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from intaglio.cli.fit_figures import BUILT, Figures, alone, quantised_once, within
from intaglio.errors import AnswerIsNo, UserError
from intaglio.fitting.budget import smallest
from intaglio.fitting.fit import needs_of_program, needs_on_board
from intaglio.fitting.limits import Needs, has_floats
from intaglio.options.request import Request
from intaglio.pipeline import Planned, plan_request
from intaglio.stages.watch import Watch
from intaglio.targets.deployment import Deployment

AS_IT_IS, STRIPES, FEED_ROWS = "as it is", "stripes", "--feed-rows"
STREAM, READ, INT8 = "--stream", "--weights read", "--quantize int8"
NAMES = (AS_IT_IS, STRIPES, FEED_ROWS, STREAM, READ, INT8)
SHORT = {STRIPES: "stripes", FEED_ROWS: "rows", STREAM: "stream", READ: "read", INT8: "int8"}
_OF_LADDER = {"stripes": STRIPES, "stripes, rows fed": FEED_ROWS}


@dataclass(frozen=True, slots=True)
class Means:
    """`words`: the options that ask for it; `needs`: without a board."""

    name: str
    words: str
    planned: Planned
    needs: Needs
    arena_only: bool = False  # the program as it is, with another arena
    as_built: bool = False

    def fits(self, deployment: Deployment) -> bool:
        if self.arena_only:  # in one memory
            return within(self.needs, deployment)
        built = self.needs if self.as_built else None
        return within(needs_on_board(self.planned.program, self.planned.target, deployment, built), deployment)


class Finder:
    """The means on each core, found when they are first asked for: a model that fits as it is needs none.

    Stripes are searched for on `main` alone; other cores have as much less of an arena as that one has."""

    def __init__(self, request: Request, cores: Mapping[str, Figures | None], main: str, stack: ExitStack) -> None:
        self._request, self._cores, self._main, self._stack = request, cores, main, stack
        self._known: dict[str, tuple[Means, ...]] = {}
        self._integers: list[Request] | None = None  # none: it cannot be quantised

    def of(self, core: str) -> tuple[Means, ...]:
        """All that can be done for the model on this core, first as it is."""
        if core not in self._known:
            figures = self._cores.get(core)
            self._known[core] = () if figures is None else tuple(self._found(figures))
        return self._known[core]

    def _found(self, figures: Figures) -> Iterator[Means]:
        planned, needs = figures.planned, figures.needs
        as_built = figures.sizes == BUILT
        yield Means(AS_IT_IS, "", planned, needs, as_built=as_built)
        yield from self._striped(figures)
        asked = alone(self._request, planned.target.name)
        yield from _streamed(asked, planned)
        if (read := _planned(replace(asked, weights="read"))) is not None:
            less = needs_of_program(read.program, read.deployment)
            less = replace(less, code=needs.code, stack=needs.stack, static=needs.static) if as_built else less
            yield Means(READ, READ, read, less)
        for request in self._quantised():
            if (made := _planned(alone(request, planned.target.name))) is not None:
                yield Means(INT8, INT8, made, needs_of_program(made.program, made.deployment))

    def _striped(self, figures: Figures) -> Iterator[Means]:
        core, needs = figures.planned.target.name, figures.needs
        if core != self._main:
            less = {m.name: needs.arena + m.needs.arena for m in self.of(self._main) if m.arena_only}
            whole = next((m.needs.arena for m in self.of(self._main)), 0)
            rows = [(name, arena - whole) for name, arena in less.items()]
        else:
            program = figures.planned.program
            found = smallest(program, figures.planned.target, slots=program.has_slots)
            rows = [(_OF_LADDER[rung.name], rung.arena_bytes) for rung in found]
        for name, arena in rows:
            smaller = replace(needs, arena=min(needs.arena, arena), elsewhere=())
            yield Means(name, "" if name == STRIPES else name, figures.planned, smaller, arena_only=True)

    def _quantised(self) -> list[Request]:
        if self._integers is None:
            main, self._integers = self._cores[self._main], []
            if self._request.quantize is None and main is not None and has_floats(main.planned.program.graph):
                asked = replace(alone(self._request, self._main), quantize="int8")
                try:
                    self._integers.append(self._stack.enter_context(quantised_once(asked)))
                except UserError:  # it has nothing that integers could compute
                    return self._integers
        return self._integers


def _streamed(request: Request, planned: Planned) -> Iterator[Means]:
    graph = planned.program.graph
    if request.stream is not None or not graph.inputs or graph.states:
        return
    for axis in range(1, graph.inputs[0].type.rank):
        made = _planned(replace(request, stream=axis))
        if made is not None and made.program.arena_bytes < planned.program.arena_bytes:
            yield Means(STREAM, f"{STREAM} {axis}", made, needs_of_program(made.program, made.deployment))
            return


def _planned(request: Request) -> Planned | None:
    """None where it cannot be done."""
    try:
        return plan_request(request, Watch(), climbing=False)
    except (UserError, AnswerIsNo):
        return None
