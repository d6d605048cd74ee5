"""`intaglio search`: the Pareto front of RAM, flash, time and accuracy."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from intaglio.cli.reporting import check_place
from intaglio.cli.terminal import note, print_json, print_table
from intaglio.errors import AnswerIsNo, UserError, counted
from intaglio.fleet.crews import Crew, LocalCrew, check_crew, connect, start_cluster
from intaglio.fleet.front_page import search_page
from intaglio.fleet.search import Point, front, nearest, search, space_of, within
from intaglio.fleet.store import Store
from intaglio.fleet.summary import limit_text
from intaglio.options.reading import request_of_words
from intaglio.package.folder import write_text
from intaglio.run.data import read_arrays


@dataclass(frozen=True, slots=True)
class SearchWords:
    accuracy: Path | None
    least: float | None
    latency: float | None
    trials: int
    jobs: int | None
    store: Path
    scheduler: str | None
    cluster: str | None
    report: Path | None
    json: bool


def search_words(model: Path, options: Mapping[str, object], words: SearchWords) -> int:
    """Exit code 1: nothing is within the budget."""
    request = request_of_words(model, Path("package"), options)
    if request.board is None and request.target is None:
        request = replace(request, target="host")
    if words.latency is not None and not 0 < words.latency < math.inf:
        raise UserError("bad-option", f"`--latency {words.latency}` is not a time", hint="milliseconds, e.g. `--latency 20`")
    check_crew(words.scheduler, words.cluster)
    if words.report is not None:
        check_place(words.report)
    budget = _budget(request.ram, request.flash, words)
    if words.accuracy is not None:
        request = replace(request, calibrate=words.accuracy)
        if "labels" in read_arrays(words.accuracy):
            request = replace(request, labels=words.accuracy)
        elif words.least is not None:
            hint = "an array `labels` beside the inputs, an integer for each sample"
            raise UserError("wrong-input", f"`{words.accuracy.name}` has no labels to measure accuracy with", hint=hint)
        else:
            note(f"`{words.accuracy.name}` has no array `labels`: it calibrates, and accuracy is not measured")
    elif words.least is not None:
        raise UserError("bad-option", "`--least-accuracy` needs `--accuracy DATA`", hint="data with an array `labels`")
    space = space_of(replace(request, ram=None, flash=None), request.board or request.target or "", board=request.board is not None)
    count = words.jobs or os.cpu_count() or 1
    store = Store(words.store)
    crew = _crew(words, count)
    try:
        points = search(space, store, crew, words.trials, count, _heard)
    finally:
        crew.close()
        store.close()
    best = front(points)
    good = front([p for p in points if within(p, budget)]) if budget else best
    if words.report is not None:
        write_text(words.report, search_page(f"{model.name} on {space.place}", points, best, budget, words.store / "packages"))
    _say(points, best, good, budget, words, store)
    if good:
        return 0
    return _refuse(points, budget)


def _crew(words: SearchWords, count: int) -> Crew:
    if words.scheduler is not None:
        return connect(words.scheduler, note)
    return LocalCrew(count) if words.cluster is None else start_cluster(words.cluster, {}, count, words.store / "logs", note)


def _budget(ram: int | None, flash: int | None, words: SearchWords) -> dict[str, float]:
    told = {"ram": ram, "flash": flash, "time": words.latency, "accuracy": words.least}
    return {key: float(value) for key, value in told.items() if value is not None}


def _heard(number: int, point: Point) -> None:
    note(f"[{number}] {point.words}: {_figures(point) or point.reason}")


def _figures(point: Point) -> str:
    units = {"ram": "B RAM", "flash": "B flash", "time": "ms"}
    told = [f"{point.figures[k]:,.4g} {unit}" if k == "time" else f"{point.figures[k]:,.0f} {unit}"
            for k, unit in units.items() if k in point.figures]  # fmt: skip
    told += [f"accuracy {100 * point.figures['accuracy']:.2f} %"] if "accuracy" in point.figures else []
    return ", ".join(told)


def _say(
    points: list[Point], best: list[Point], good: list[Point], budget: Mapping[str, float], words: SearchWords, store: Store
) -> None:
    """The whole front, numbered as on the page; `good`: what is best within the budget."""
    if words.json:
        rows = [{**asdict(p), "choice": dict(p.choice), "options": p.words} for p in points]
        shown = [{**asdict(p), "choice": dict(p.choice), "options": p.words} for p in good or best]
        print_json({"front": shown, "points": rows, "store": str(words.store)})
        return
    accuracy = any("accuracy" in p.figures for p in best)
    heads = ["front", ">RAM", ">flash", ">ms", *([">accuracy"] if accuracy else []), *(["within the budget"] if budget else [])]
    rows_text = []
    for n, p in enumerate(best, 1):
        f = p.figures
        row = [f"point {n}", f"{f.get('ram', 0):,.0f}", f"{f.get('flash', 0):,.0f}", f"{f.get('time', 0):,.4g}"]
        row += [f"{100 * f['accuracy']:.2f} %" if "accuracy" in f else "-"] if accuracy else []
        rows_text.append([*row, *(["yes" if within(p, budget) else "no"] if budget else [])])
    print_table(heads, rows_text)
    for n, p in enumerate(best, 1):
        print(f"point {n}: {p.words}\n  {store.package(p.package)}")
    if words.report is not None:
        print(f"report: {words.report}")


def _refuse(points: list[Point], budget: Mapping[str, float]) -> int:
    near = nearest(points, budget)
    wanted = ", ".join(limit_text(key, value) for key, value in budget.items())
    if near is None:
        raise AnswerIsNo("over-budget", "no point could be built", hint="`--json` has the reason of each")
    what = f"none of {counted(len(points), 'point')} is within the budget ({wanted})"
    raise AnswerIsNo("over-budget", what, hint=f"the nearest is `{near.words}`: {_figures(near)}")


__all__ = ["SearchWords", "search_words"]
