"""`intaglio tune` over the workers of a Dask scheduler: each layer is measured on one of them, pinned to a core of its own.

Workers of one processor share the layers; workers of another processor measure all layers again, for themselves. What a worker
measures is recorded under the processor that it found itself, so times of different processors are never mixed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from intaglio.errors import AnswerIsNo, ToolError, UserError, quoted
from intaglio.fleet.pieces import NO, OK, Job, Piece, Result
from intaglio.fleet.slots import Slot, shared, told_by
from intaglio.options.request import Request
from intaglio.pipeline import graph_to_lower
from intaglio.run.toolchains import find_toolchain
from intaglio.run.tuning.database import Place, add_records, here, read_if_there
from intaglio.run.tuning.search import Shape, is_complete_by, measure, shapes_of
from intaglio.stages.watch import Watch
from intaglio.targets.target import Target, runs_here

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, slots=True)
class Tuned:
    processor: str
    shapes: int
    new: int
    known: int
    problems: tuple[str, ...]


# On a worker ----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4)
def _lowered(request_key: str, digest: str) -> tuple[Target, dict[str, Shape]]:
    model = graph_to_lower(_requests[request_key], Watch())
    if not runs_here(model.target):
        raise UserError("bad-option", f"this worker cannot run code for `{model.target.name}`")
    return model.target, {shape.text: shape for shape in shapes_of(model.graph, model.target)}


_requests: dict[str, Request] = {}


def _shapes(piece: Piece) -> tuple[Target, dict[str, Shape]]:
    key = repr(piece.request)
    _requests[key] = piece.request
    return _lowered(key, piece.sha256)


def list_shapes(piece: Piece) -> list[Result]:
    """Layers that this worker would measure, one in a line, with the way that must be known."""
    target, shapes = _shapes(piece)
    lines = [f"{shape.ways[0].using}\t{text}" for text, shape in shapes.items()]
    return [Result(piece.key, OK, "\n".join(lines), package=str(here(target)))]


def measure_layer(piece: Piece) -> list[Result]:
    text, core = piece.boards
    target, shapes = _shapes(piece)
    os.sched_setaffinity(0, {int(core)})
    try:
        times = measure(shapes[text], target, find_toolchain(piece.request.cc, target.arch))
    except AnswerIsNo as error:
        return [Result(piece.key, NO, error.message, package=str(here(target)))]
    return [Result(piece.key, OK, figures=dict(times), package=str(here(target)))]


# Where `tune` runs ----------------------------------------------------------------------------------------------------


def slots_of(client: Client, wanted: str | None) -> dict[str, list[Slot]]:
    """By processor: one for each core of a machine at most, whatever number of workers it has."""
    told = told_by(client)
    used: dict[str, int] = {}
    found: dict[str, list[Slot]] = {}
    for address, (processor, machine, cores) in sorted(told.items()):
        n = used.get(machine, 0)
        if n < len(cores) and (wanted is None or wanted.lower() in processor.lower()):
            used[machine] = n + 1
            found.setdefault(processor, []).append(Slot(address, processor, cores[n], machine))
    if not found:
        known = ", ".join(sorted({quoted(processor) for processor, _, _ in told.values()})) or "none"
        what = "no worker has this processor" if wanted else "the scheduler has no workers"
        raise ToolError("no-workers", what, hint=f"processors of the workers: {known}")
    return found


def tune_remotely(
    client: Client, request: Request, file: Path, slots: Sequence[Slot], say: Callable[[str], None], *, again: bool
) -> Tuned:
    """One processor: all of its workers at once, one layer at a time on each."""
    request = replace(request, model=request.model.absolute(), tuning=None)
    first = _asked(client, slots, _piece("list_shapes", request, ()))
    shapes = {text: using for using, text in (line.split("\t") for line in first.reason.splitlines())}
    place = _place(first.package, slots[0])
    known = read_if_there(file)
    left = [text for text, using in shapes.items() if again or not is_complete_by(using, known.times(place, text))]
    old, new, problems = len(shapes) - len(left), 0, []

    def piece(slot: Slot, text: str) -> Piece:
        return _piece("measure_layer", request, (text, str(slot.core)))

    for slot, text, result in shared(client, slots, left, piece, say):
        if result.state == OK:
            times = {using: float(us) for using, us in result.figures.items() if isinstance(us, (int, float))}
            add_records(file, _place(result.package, slot), text, times)
            new += 1
            say(f"{new} of {len(shapes) - old} layers, on core {slot.core} of {slot.address}")
        else:
            problems.append(f"{text}: {result.reason}")
    return Tuned(slots[0].processor, len(shapes), new, old, tuple(problems))


def _asked(client: Client, slots: Sequence[Slot], piece: Piece) -> Result:
    """By the first worker that lives to answer."""
    ((_, _, result),) = shared(client, slots, [piece.key], lambda slot, text: piece, lambda text: None)
    if result.state != OK:
        hint = "workers need the same Intaglio, and the model under the same path"
        raise ToolError("worker-failed", f"a worker of {quoted(slots[0].processor)} cannot measure: {result.reason}", hint=hint)
    return result


def _place(text: str, slot: Slot) -> Place:
    processor, target, threads = (part.split(" ", 1)[1] for part in text.split(" | "))
    if processor != slot.processor:
        raise ToolError("worker-failed", f"a worker of {quoted(slot.processor)} measured on {quoted(processor)}")
    return Place(processor, target, int(threads))


def _piece(work: str, request: Request, about: tuple[str, ...]) -> Piece:
    from intaglio.fleet.jobs import model_digest

    job = Job("/".join((work, *about)), "tune", request.model.name, "", "")
    return Piece(f"intaglio.fleet.tuning:{work}", (job,), request, model_digest(request.model), about)


__all__ = ["Tuned", "slots_of", "tune_remotely"]
