"""The layers of a model, measured one after the other: those that are estimated to take longest first.

Ways to compute a layer are timed in turn, in rounds; the least time of each counts, since noise only adds. What is far behind after
a few rounds is not timed again. Each layer is stored when it is done, so a search that was interrupted goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from intaglio.errors import AnswerIsNo
from intaglio.ir.graph import Graph, Node
from intaglio.kernels.choice import Way, has_choice, usual_way, ways_to_measure
from intaglio.run.toolchains import Toolchain
from intaglio.run.tuning.database import Place, Times, add_records, here, read_if_there
from intaglio.run.tuning.layers import layer_text
from intaglio.run.tuning.trial import Trial, built, on_one_core
from intaglio.targets.target import Target

FAR = {3: 3.0, 12: 1.6, 24: 1.25}  # after so many rounds, ways that take so many times the best are not timed again
CLOCK_US = 0.3  # that reading the clock may take
LEAST_ROUNDS, MOST_ROUNDS = 30, 120  # other processes disturb several rounds in a row
LEAST_US = 0.01
LAYER_SECONDS = 2.0  # then the rounds of a layer end


@dataclass(frozen=True, slots=True)
class Shape:
    """Layers of one shape, with the ways to compute them; the first layer stands for all."""

    text: str
    nodes: tuple[Node, ...]
    ways: tuple[Way, ...]
    usual: str  # what is used without measuring


@dataclass(frozen=True, slots=True)
class Measured:
    shape: Shape
    times: Times  # empty: it could not be measured, `problem` says why
    new: bool  # measured now, not taken from the database
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Step:
    """What is reported before each layer."""

    number: int
    total: int
    shape: Shape
    seconds_left: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """`again`: records that are there do not count. `time_limit`: seconds after which no other layer is started."""

    database: Path
    target: Target
    toolchain: Toolchain
    again: bool = False
    time_limit: float | None = None
    started: float = field(default_factory=time.monotonic)

    @property
    def place(self) -> Place:
        return here(self.target)

    @property
    def used_up(self) -> bool:
        return self.time_limit is not None and time.monotonic() - self.started >= self.time_limit


def shapes_of(graph: Graph, target: Target) -> list[Shape]:
    """Those of which there is more than one way, the longest first."""
    nodes: dict[str, list[Node]] = {}
    for node in filter(has_choice, graph.nodes):
        nodes.setdefault(layer_text(node), []).append(node)
    firsts = {text: same[0] for text, same in nodes.items()}
    found = [
        Shape(text, tuple(nodes[text]), tuple(ways_to_measure(node, target)), usual_way(node, target))
        for text, node in firsts.items()
    ]
    several = [shape for shape in found if len(shape.ways) > 1]
    return sorted(several, key=lambda shape: (-shape.ways[0].estimate_us * len(shape.nodes), shape.text))


def search(shapes: list[Shape], plan: Plan, report: Callable[[Step], None]) -> list[Measured]:
    """Those that were measured now or before; others were left out when the time was used up."""
    known = read_if_there(plan.database)
    there = {s.text: known.times(plan.place, s.text) for s in shapes}
    if plan.again:
        there = {}
    found = [Measured(shape, there[shape.text], new=False) for shape in shapes if _is_complete(shape, there.get(shape.text, {}))]
    done = {measured.shape.text for measured in found}
    waiting = [shape for shape in shapes if shape.text not in done]
    start = time.monotonic()
    for number, shape in enumerate(waiting):
        if plan.used_up:
            break
        each = (time.monotonic() - start) / number if number else None
        left = None if each is None else each * (len(waiting) - number)
        report(Step(len(done) + number + 1, len(shapes), shape, left))
        found.append(_measured(shape, plan))
    return found


def _is_complete(shape: Shape, times: Times) -> bool:
    """Are there times of the way that is estimated to be best, and of another one? Others may be new, or differ by version."""
    return is_complete_by(shape.ways[0].using, times)


def is_complete_by(best: str, times: Times) -> bool:
    return best in times and len(times) > 1


def _measured(shape: Shape, plan: Plan) -> Measured:
    try:
        times = measure(shape, plan.target, plan.toolchain)
    except AnswerIsNo as error:  # random data that the layer refuses
        return Measured(shape, {}, new=True, problem=error.message)
    add_records(plan.database, plan.place, shape.text, times)
    return Measured(shape, times, new=True)


def measure(shape: Shape, target: Target, toolchain: Toolchain) -> dict[str, float]:
    ways = [way.using for way in shape.ways]
    with built(shape.nodes[0], ways, target, toolchain) as trial, on_one_core(target):
        return time_ways(trial)


def time_ways(trial: Trial, seconds: float = LAYER_SECONDS) -> dict[str, float]:
    """Microseconds of each way: the least of several rounds."""
    least = [float("inf")] * len(trial.ways)
    alive = list(range(len(trial.ways)))
    end = time.monotonic() + seconds
    for number in range(MOST_ROUNDS):
        for way in alive if number % 2 else reversed(alive):  # what comes before a way is not always the same
            least[way] = min(least[way], trial.time_us(way))
        far = FAR.get(number + 1, float("inf"))
        alive = [way for way in alive if least[way] <= far * min(least) + CLOCK_US]
        if number + 1 >= LEAST_ROUNDS and (len(alive) == 1 or time.monotonic() > end):
            break
    # A database has hundredths of a microsecond: the layers of a digit are faster than that on some processors.
    return {using: max(round(time_us, 2), LEAST_US) for using, time_us in zip(trial.ways, least, strict=True)}
