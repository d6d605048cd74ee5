"""Search over options of one model for one place: what can be had for how much RAM, flash, time and accuracy.

Every point is a package that was built, run (on the emulated core, for a board) and measured; it is in the store under its key, so
a point that was known before costs nothing. Optuna says which points to look at next. What does not build, or does not fit, is a
point without figures.

    quantize    as it is, int8, int16x8, weights, fp16; int8 with layers kept wide (`max_error`); for boards int4 and palette.
                Without data: as it is
    optimize    balanced, size, speed
    ram         no limit, or a part of what it needs as it is: layers are computed in stripes
    feed_rows   rows of the picture one by one
    stream      one frame at a time, where the axis is given
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from intaglio.errors import IntaglioError, ToolError, install_hint
from intaglio.fitting.fit import needs_of_program
from intaglio.fitting.limits import has_floats
from intaglio.fleet.crews import Crew
from intaglio.fleet.jobs import piece_of
from intaglio.fleet.pieces import OK, Result
from intaglio.fleet.store import Store
from intaglio.ir.sizes import most
from intaglio.options.request import Request
from intaglio.pipeline import plan_request
from intaglio.project.fleet import Cell
from intaglio.quantize.settings import NARROW_SCHEMES
from intaglio.quantize.settings import SCHEMES as INTEGERS
from intaglio.report.budgets import check_limit
from intaglio.run.accuracy import read_labels, samples_with_labels, share_of
from intaglio.run.calibration import read_samples
from intaglio.run.package import Package
from intaglio.stages.watch import Watch

AS_IT_IS = "as it is"
SCHEMES = (AS_IT_IS, "int8", "int8, error 5 %", "int8, error 1 %", "int16x8", "weights", "fp16")
LEVELS = ("balanced", "size", "speed")
STRIPES = ("no limit", "75 %", "50 %", "35 %")
FIGURES = ("ram", "flash", "time", "accuracy")
SEED = 7
Choice = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Point:
    choice: tuple[tuple[str, str], ...]
    figures: Mapping[str, float]
    package: str = ""
    reason: str = ""

    @property
    def words(self) -> str:
        """What makes it differ from the model as it is."""
        usual = {"quantize": AS_IT_IS, "optimize": LEVELS[0], "ram": STRIPES[0], "feed_rows": "no", "stream": "no"}
        told = [f"{key} {value}" for key, value in self.choice if usual[key] != value]
        return ", ".join(told) or AS_IT_IS


@dataclass(frozen=True, slots=True)
class Space:
    """What may be chosen; `whole_ram`: what the model as it is needs."""

    request: Request
    place: str
    board: bool
    choices: Mapping[str, tuple[str, ...]]
    whole_ram: int

    def request_of(self, choice: Choice) -> Request:
        made = replace(self.request, optimize=choice["optimize"], feed_rows=choice.get("feed_rows") == "yes")
        scheme, _, wide = choice["quantize"].partition(", error ")
        if scheme in (*INTEGERS, "weights"):
            made = replace(made, quantize=scheme, max_error=float(wide.split()[0]) / 100 if wide else None)
        elif scheme == "fp16":
            made = replace(made, weights="fp16")
        if scheme not in INTEGERS:
            made = replace(made, calibrate=None, labels=None)
        if choice["ram"] != STRIPES[0]:
            limit = self.whole_ram * int(choice["ram"].split()[0]) // 100
            made = replace(made, ram=min(limit, self.request.ram or limit))
        return made if choice.get("stream") != "no" else replace(made, stream=None)


def space_of(request: Request, place: str, *, board: bool) -> Space:
    """`request` has data to calibrate with and labels, if accuracy is to be measured."""
    plain = replace(request, calibrate=None, labels=None, ram=None, flash=None, stream=None)
    planned = plan_request(plain, Watch(), climbing=False)
    graph = planned.program.graph
    known = (*SCHEMES, *NARROW_SCHEMES) if board else SCHEMES
    schemes = known if request.calibrate is not None and has_floats(graph) else known[:1]
    choices: dict[str, tuple[str, ...]] = {"quantize": schemes, "optimize": LEVELS, "ram": STRIPES if board else STRIPES[:1]}
    picture = board and bool(graph.inputs) and graph.inputs[0].type.rank == 4
    choices["feed_rows"] = ("no", "yes") if picture else ("no",)
    choices["stream"] = ("no", "yes") if request.stream is not None else ("no",)
    if request.stream is not None:  # fail now if the axis cannot be streamed, not at every point
        plan_request(replace(plain, stream=request.stream), Watch(), climbing=False)
    needs = needs_of_program(planned.program, planned.deployment)
    if isinstance(calibrate := request.calibrate, Path):  # wrong data is refused here too, before anything is built
        labels, first = None if request.labels is None else read_labels(request.labels), graph.outputs[0]
        output = (first.origin or first.name, most(first.type.elements))
        samples_with_labels(graph, lambda graph: read_samples(calibrate, graph), labels, output)
    return Space(request, place, board, choices, sum(needs.ram.values()))


def search(space: Space, store: Store, crew: Crew, trials: int, at_once: int, heard: Callable[[int, Point], None]) -> list[Point]:
    """All points that were looked at, in order."""
    optuna = _optuna()
    store.forget_lost()
    accuracy, shares = space.request.labels is not None, dict[str, float]()
    directions = ["minimize"] * 3 + (["maximize"] if accuracy else [])
    study = optuna.create_study(directions=directions, sampler=optuna.samplers.NSGAIISampler(seed=SEED, population_size=16))
    for corner in _corners(space):
        study.enqueue_trial(corner)
    seen: dict[tuple[tuple[str, str], ...], Point] = {}
    asked, possible = 0, math.prod(len(values) for values in space.choices.values())
    while asked < 4 * trials and len(seen) < min(trials, possible):
        batch = []
        for _ in range(min(at_once, trials - len(seen))):
            trial = study.ask()
            asked += 1
            chosen = {key: trial.suggest_categorical(key, list(values)) for key, values in space.choices.items()}
            batch.append((trial, tuple(chosen.items())))
        fresh = list(dict.fromkeys(choice for _, choice in batch if choice not in seen))
        for choice, measured in zip(fresh, _measured(space, store, crew, fresh), strict=True):
            point = seen[choice] = _with_accuracy(space, store, measured, shares) if accuracy else measured
            heard(len(seen), point)
        for trial, choice in batch:
            _tell(study, trial, seen[choice], accuracy)
    return list(seen.values())


def _corners(space: Space) -> list[dict[str, str]]:
    """First of all: the usual choices."""
    plain = {key: values[0] for key, values in space.choices.items()}
    found = [plain]
    for key, value in (("quantize", "int8"), ("optimize", "size"), ("optimize", "speed"), ("ram", "50 %")):
        if value in space.choices[key]:
            found.append({**plain, key: value})
    if "int8" in space.choices["quantize"]:
        found += [{**plain, "quantize": "int8", "optimize": level} for level in LEVELS[1:]]
    return found


def _measured(space: Space, store: Store, crew: Crew, choices: Sequence[tuple[tuple[str, str], ...]]) -> list[Point]:
    cells = [Cell(space.request.model.stem, _name(c), space.place, space.board, space.request_of(dict(c))) for c in choices]
    pieces = [piece_of(cell, ("compile", "profile"), store.folder) for cell in cells]
    done = store.done(job.key for piece in pieces for job in piece.jobs)
    for piece, outcome in crew.perform([p for p in pieces if not all(j.key in done for j in p.jobs)], 3600.0):
        results = outcome if not isinstance(outcome, str) else [Result(job.key, outcome) for job in piece.jobs]
        store.record(piece.jobs, results, 1)
    points = []
    for choice, piece in zip(choices, pieces, strict=True):
        rows = [store.result(job.key) for job in piece.jobs]
        figures = {k: float(v) for row in rows for k, v in row.figures.items() if k in FIGURES and isinstance(v, (int, float))}
        whole = all(row.state == OK for row in rows)
        reason = next((row.reason or row.state for row in rows if row.state != OK), "")
        points.append(Point(choice, figures if whole else {}, rows[0].package, reason))
    return points


def _name(choice: Sequence[tuple[str, str]]) -> str:
    return "/".join(value for _, value in choice)


def _tell(study: Any, trial: Any, point: Point, accuracy: bool) -> None:
    optuna = _optuna()
    keys = FIGURES if accuracy else FIGURES[:3]
    if all(key in point.figures for key in keys):
        study.tell(trial, [point.figures[key] for key in keys])
    else:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)


def _with_accuracy(space: Space, store: Store, point: Point, shares: dict[str, float]) -> Point:
    """Compiles measure it where they quantise by data. Other packages are run here: one for each scheme, as memory and speed change
    no result."""
    scheme, calibrate, labels = dict(point.choice)["quantize"], space.request.calibrate, space.request.labels
    if not point.figures or "accuracy" in point.figures or not isinstance(calibrate, Path) or labels is None:
        return point
    if scheme not in shares:
        package = Package(store.package(point.package))
        try:
            shares[scheme] = share_of(package, lambda graph: read_samples(calibrate, graph), read_labels(labels))
        except IntaglioError as error:
            return replace(point, figures={}, reason=error.message)
    return replace(point, figures={**point.figures, "accuracy": shares[scheme]})


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ToolError("missing-extra", "this needs `optuna`", hint=f"install it: {install_hint('search')}") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def front(points: Sequence[Point]) -> list[Point]:
    """Points that no other is as good as in everything and better in something; by time."""
    whole = [p for p in points if p.figures]
    best = [p for p in whole if not any(_beats(other, p) for other in whole)]
    unique = {tuple(sorted(p.figures.items())): p for p in reversed(best)}
    return sorted(unique.values(), key=lambda p: (p.figures.get("time", 0.0), p.figures.get("ram", 0.0)))


def _beats(a: Point, b: Point) -> bool:
    keys = [key for key in FIGURES if key in a.figures or key in b.figures]
    pairs = [(_cost(a, key), _cost(b, key)) for key in keys]
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)


def _cost(point: Point, key: str) -> float:
    """Less is better; an accuracy that was not measured is the worst."""
    if key == "accuracy":
        return -point.figures.get(key, 0.0)
    return point.figures.get(key, float("inf"))


def within(point: Point, budget: Mapping[str, float]) -> bool:
    found = point.figures
    return bool(found) and all(key in found and check_limit(key, found[key], limit) for key, limit in budget.items())


def nearest(points: Sequence[Point], budget: Mapping[str, float]) -> Point | None:
    """Of those outside of the budget, the one that exceeds it by the least share in all."""

    def excess(point: Point) -> float:
        total = 0.0
        for key, limit in budget.items():
            value = point.figures.get(key)
            if value is None:
                return float("inf")
            over = (limit - value) if key == "accuracy" else (value - limit)
            total += max(0.0, over) / max(limit, 1e-9)
        return total

    whole = [p for p in points if p.figures]
    return min(whole, key=excess, default=None)


__all__ = ["Point", "Space", "front", "nearest", "search", "space_of", "within"]
