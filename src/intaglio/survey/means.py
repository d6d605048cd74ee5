"""Ways to make a model fit, each by itself, and what it would need with them.

On one core they are built; on the others they are planned, and code and stack differ from those as it is by as much as there.

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

from intaglio.errors import AnswerIsNo, UserError
from intaglio.fitting.fit import needs_of_program, needs_on_board
from intaglio.fitting.limits import Needs, has_floats
from intaglio.ir.operator import BadOperator
from intaglio.ir.sizes import Undecided
from intaglio.options.request import Request
from intaglio.pipeline import Planned, plan_request
from intaglio.stages.watch import Watch
from intaglio.survey.figures import BUILT, NO_RAM, Figures, alone, built_figures, planned_figures, quantised_once, within
from intaglio.targets.deployment import Deployment

AS_IT_IS, STRIPES, FEED_ROWS = "as it is", "stripes", "--feed-rows"
STREAM, READ, INT8 = "--stream", "--weights read", "--quantize int8"
SMALLER = (STRIPES, FEED_ROWS)  # the same layers, with another arena
NAMES = (AS_IT_IS, STRIPES, FEED_ROWS, STREAM, READ, INT8)
SHORT = {STRIPES: "stripes", FEED_ROWS: "rows", STREAM: "stream", READ: "read", INT8: "int8"}


@dataclass(frozen=True, slots=True)
class Means:
    """`words`: the options that ask for it; `needs`: without a board; `guess`: code, before it was built."""

    name: str
    words: str
    planned: Planned
    needs: Needs
    guess: int
    built: bool

    def fits(self, deployment: Deployment) -> bool:
        program, target = self.planned.program, self.planned.target
        on = replace(deployment, weights_read=self.name == READ)
        return within(needs_on_board(program, target, on, self.needs), on)


class Finder:
    """The means on each core, found when they are first asked for: a model that fits as it is needs none.

    Stripes are searched for on `main` alone, the core on which everything is built: others save as much of the arena."""

    def __init__(self, request: Request, cores: Mapping[str, Figures | None], main: str, stack: ExitStack) -> None:
        self._request, self._cores, self._main, self._stack = request, cores, main, stack
        self._known: dict[str, tuple[Means, ...]] = {}
        self._integers: list[Request] | None = None  # none: it cannot be quantised

    def of(self, core: str) -> tuple[Means, ...]:
        """All that can be done for the model on this core, first as it is."""
        if core not in self._known:
            figures = self._cores.get(core)
            found = [] if figures is None else list(self._found(figures))
            self._known[core] = tuple(sorted(found, key=lambda means: NAMES.index(means.name)))
        return self._known[core]

    def _found(self, figures: Figures) -> Iterator[Means]:
        planned = figures.planned
        core, first, streamed = planned.target.name, _means(AS_IT_IS, "", figures), False
        yield first
        for name, words, request in self._asked(alone(self._request, core), figures):
            if (streamed and name == STREAM) or (name in SMALLER and core != self._main):
                continue
            made = _made(request, build=figures.sizes == BUILT and core == self._main)
            if made is None or (name in (*SMALLER, STREAM) and made.needs.arena >= first.needs.arena):
                continue
            streamed = streamed or name == STREAM
            one = _means(name, words, made)
            yield one if core == self._main else self._like_main(one, first)
        if core != self._main:
            yield from self._saved(first)

    def _asked(self, asked: Request, figures: Figures) -> Iterator[tuple[str, str, Request]]:
        """Names, options, and what to compile. Without a limit that counts, stripes make the arena as small as it gets."""
        graph, limit = figures.planned.program.graph, self._request.ram
        ram = limit if limit is not None and sum(figures.needs.main_ram.values()) > limit else NO_RAM
        yield STRIPES, "", replace(asked, ram=ram)
        yield FEED_ROWS, FEED_ROWS, replace(asked, ram=ram, feed_rows=True)
        if asked.stream is None and graph.inputs and not graph.states:
            for axis in range(1, graph.inputs[0].type.rank):
                yield STREAM, f"{STREAM} {axis}", replace(asked, stream=axis)
        yield READ, READ, replace(asked, weights="read")
        for request in self._quantised():
            yield INT8, INT8, alone(request, figures.planned.target.name)

    def _like_main(self, one: Means, first: Means) -> Means:
        """Code, stack and variables that differ from those as it is by as much as on the main core."""
        there = {means.name: means for means in self.of(self._main)}
        if one.name not in there or not first.built:
            return one
        main, plain = there[one.name], there[AS_IT_IS]
        grown = (main.needs.code or 0) - (plain.needs.code or 0)
        code = (first.needs.code or 0) + grown
        if one.name == INT8:  # other kernels: as far from their guess as there
            code = round(one.guess * (main.needs.code or 0) / max(1, main.guess))
        stack = (first.needs.stack or 0) + (main.needs.stack or 0) - (plain.needs.stack or 0)
        return replace(one, needs=replace(one.needs, code=code, stack=max(0, stack), static=main.needs.static))

    def _saved(self, first: Means) -> Iterator[Means]:
        there = {means.name: means for means in self.of(self._main)}
        for name in SMALLER:
            if name in there and AS_IT_IS in there:
                less = there[AS_IT_IS].needs.arena - there[name].needs.arena
                needs = replace(first.needs, arena=max(0, first.needs.arena - less), elsewhere=())
                smaller = replace(first, name=name, words=there[name].words, planned=there[name].planned, needs=needs, built=False)
                yield self._like_main(smaller, first)

    def _quantised(self) -> list[Request]:
        if self._integers is None:
            main, self._integers = self._cores[self._main], []
            if self._request.quantize is None and main is not None and has_floats(main.planned.program.graph):
                asked = replace(alone(self._request, self._main), quantize="int8")
                try:
                    self._integers.append(self._stack.enter_context(quantised_once(asked)))
                except (UserError, Undecided, BadOperator):  # it cannot be made: the rest of the answer stands without it
                    return self._integers
        return self._integers


def _means(name: str, words: str, figures: Figures) -> Means:
    guess = needs_of_program(figures.planned.program, figures.planned.deployment).code or 0
    return Means(name, words, figures.planned, figures.needs, guess, figures.sizes == BUILT)


def _made(request: Request, *, build: bool) -> Figures | None:
    """None where it cannot be done."""
    try:
        if build:
            return built_figures(request, Watch(), climbing=True, most_cycles=-1.0, hopeless=request.ram == NO_RAM)
        return planned_figures(plan_request(request, Watch()))
    except (UserError, AnswerIsNo, Undecided):
        return None
