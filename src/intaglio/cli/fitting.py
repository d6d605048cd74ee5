"""`intaglio fit`: one screen that says whether a model fits, why, and where else it would."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from intaglio.cli.terminal import PAGE, note, print_json, print_table, proven_text
from intaglio.errors import AnswerIsNo, UserError
from intaglio.fitting.budget import smallest
from intaglio.fitting.fit import STACK_BYTES, Fit, fit_of, fits, needs_on_board, time_ms
from intaglio.fitting.limits import Needs, chances_of, check_limits, has_floats
from intaglio.memory.ladder import Rung
from intaglio.memory.picture import Picture, draw
from intaglio.options.reading import request_of_words
from intaglio.options.request import Request
from intaglio.package.folder import write_text
from intaglio.pipeline import Planned, plan_request
from intaglio.stages.watch import Watch
from intaglio.targets.board import Board, all_boards

_SHOWN = 6  # tensors alive at the peak


@dataclass(frozen=True, slots=True)
class OnBoard:
    """A model on a board; `needs` is None where its core has no kernel for some layer."""

    board: Board
    needs: Needs | None
    time_ms: float | None
    small: Rung | None = None  # the least that the ladder can do, on the core that was asked about

    @property
    def whole(self) -> bool:
        """By what costs nothing."""
        return self.needs is not None and fits(self.needs, self.board.ram_bytes, self.board.flash_bytes)

    @property
    def fits(self) -> bool:
        if self.whole or self.needs is None or self.small is None:
            return self.whole
        less = replace(self.needs, arena=min(self.needs.arena, self.small.arena_bytes), elsewhere=())
        return fits(less, self.board.ram_bytes, self.board.flash_bytes)

    def told(self) -> str:
        """`yes`, or what is missing: `RAM 12,345 too many`."""
        if self.needs is None:
            return "not supported"
        if self.fits and not self.whole and self.small is not None:
            return f"yes, {self.small.name}"
        parts = (("RAM", self.needs.main_ram, self.board.ram_bytes), ("flash", self.needs.flash, self.board.flash_bytes))
        over = [f"{kind} {sum(n.values()) - limit:,} too many" for kind, n, limit in parts if sum(n.values()) > limit]
        return ", ".join(over) or "yes"


def fit_model(model: Path, options: Mapping[str, object], plot: Path | None, json: bool) -> int:
    request = request_of_words(model, Path(), options)
    hear = Watch(note=lambda text: note(f"note: {text}"))
    made = _planned(replace(request, feed_rows=False), hear)
    fit = fit_of(made.program, made.target, made.deployment)
    boards = _on_boards(request, made)
    if request.feed_rows or not fits(fit.needs, made.deployment.ram_bytes, made.deployment.flash_bytes):
        made = plan_request(request, hear, STACK_BYTES)
        fit = replace(fit_of(made.program, made.target, made.deployment), rungs=(*fit.rungs, *made.rungs))
    if plot is not None:
        write_text(plot, draw(_picture(made, fit)))
    enough = fits(fit.needs, made.deployment.ram_bytes, made.deployment.flash_bytes)
    answer = Answer(made, fit, [], enough)
    text = None if enough else _refusal(answer)
    answer.small = _smallest(request, fit)
    answer.boards = [replace(on, small=answer.least) for on in boards]
    if json:
        print_json(_json(answer))
    else:
        _print(answer)
    if plot is not None:
        note(f"picture: {plot}")
    if text is not None:
        note(text)
    return 0 if enough else 1


@dataclass(slots=True)
class Answer:
    """What is printed. `small`: rungs that are there beside those that the plan uses."""

    made: Planned
    fit: Fit
    boards: list[OnBoard]
    enough: bool
    small: tuple[Rung, ...] = ()

    @property
    def rungs(self) -> tuple[Rung, ...]:
        return (*self.fit.rungs, *self.small)

    @property
    def least(self) -> Rung:
        """Without what is only offered."""
        return min((r for r in self.rungs if "~" not in r.name), key=lambda r: r.arena_bytes)


def _refusal(answer: Answer) -> str:
    made, fit = answer.made, answer.fit
    try:
        check_limits(made.program.graph.name, fit.needs, made.deployment, chances_of(made.program))
    except AnswerIsNo as no:
        bound = f"the lower bound of the arena is {fit.arena_bound_bytes:,} bytes, set by layer `{_peak_name(made, fit)}`"
        if not fit.needs.on_device:
            bound += "; the stack is an estimate, `compile` measures it"
        return f"{no}\n\n{bound}"
    return ""


def _smallest(request: Request, fit: Fit) -> tuple[Rung, ...]:
    """What the ladder could still do, on a plan of its own; int8 is offered where there are floats."""
    made = _planned(replace(request, feed_rows=False, ram=None), Watch())
    program, target = made.program, made.target
    floats = has_floats(program.graph)
    rungs = smallest(program, target, slots=program.has_slots)
    used = min(r.arena_bytes for r in fit.rungs)
    least = min([program.arena_bytes, *(r.arena_bytes for r in rungs)])
    names = {r.name for r in fit.rungs}
    rungs = [replace(r, name=f"more {r.name}" if r.name in names else r.name) for r in rungs if r.arena_bytes < used]
    if floats and target.cycles_per_mac_float:
        rungs.append(Rung("int8 (--quantize), ~", -(-least // 4), target.cycles_per_mac_int / target.cycles_per_mac_float))
    return tuple(rungs)


def _planned(request: Request, watch: Watch) -> Planned:
    return plan_request(request, watch, climbing=False)


def _on_boards(request: Request, made: Planned) -> list[OnBoard]:
    """The model planned for the core of every board, whose kernels may need other working memory."""
    cores: dict[str, Planned | None] = {made.target.name: made}
    found = []
    for board in all_boards().values():
        if board.core not in cores:
            asked = Request(
                request.model, request.output, board.core, dims=request.dims, shapes=request.shapes, stream=request.stream
            )
            cores[board.core] = _on_core(asked)
        if (on := cores[board.core]) is None:
            found.append(OnBoard(board, None, None))
        else:
            found.append(OnBoard(board, needs_on_board(on.program, on.target, board), time_ms(on.program, on.target, board)))
    return found


def _on_core(request: Request) -> Planned | None:
    """None when the model is not supported there."""
    try:
        return _planned(request, Watch())
    except UserError:
        return None


def _peak_name(made: Planned, fit: Fit) -> str | None:
    if fit.peak is None:
        return None
    layers = made.program.layers
    return layers[min(fit.peak.layer, len(layers) - 1)].name if layers else None


def _json(answer: Answer) -> dict[str, object]:
    made, fit, boards, enough = answer.made, answer.fit, answer.boards, answer.enough
    needs, least = fit.needs, answer.least
    return {
        "fits": enough,
        "target": made.target.name,
        "ram_bytes": fit.ram_bytes,
        "flash_bytes": fit.flash_bytes,
        "lower_bound_bytes": fit.lower_bound_bytes,
        "optimal": fit.optimal,
        "peak_layer": _peak_name(made, fit),
        "peak_tensors": [{"name": b.name, "bytes": b.bytes} for b in fit.peak.alive] if fit.peak else [],
        "ladder": [
            {"rung": r.name, "ram_bytes": fit.ram_with(r.arena_bytes), "flash_bytes": fit.flash_bytes, "cost_ratio": r.cost_ratio}
            for r in answer.rungs
        ],
        "smallest": {"rung": least.name, "ram_bytes": fit.ram_with(least.arena_bytes), "cost_ratio": least.cost_ratio},
        "stripes": [str(spec) for spec in made.program.choices.stripes],
        "boards": [{"name": b.board.name, "fits": b.fits, "time_ms": b.time_ms} for b in boards],
        "parts": {
            "arena_bytes": needs.arena,
            "arenas": [{"memory": a.memory, "bytes": a.bytes} for a in made.program.arenas],
            "io_bytes": needs.io,
            "weight_bytes": needs.weights,
            "code_bytes_estimate": needs.code,
            "stack_bytes_estimate": needs.stack,
        },
    }


def _print(answer: Answer) -> None:
    made, fit, boards = answer.made, answer.fit, answer.boards
    needs, program = fit.needs, made.program
    io = "inputs and outputs inside" if program.has_slots else f"inputs and outputs {needs.io:,}"
    print(f"{program.graph.name} on {_place(made)}; ~ marks an estimate")
    print()
    proven = (
        proven_text(needs.arena, fit.arena_bound_bytes) if len(program.arenas) < 2 else f"{needs.arena:,} bytes in several memories"
    )
    if needs.on_device:
        print(f"device {fit.ram_bytes:>12,} bytes   buffers {proven}; {io}; weights {needs.weights:,}")
    else:
        print(f"RAM    {fit.ram_bytes:>12,} bytes   arena {proven}; {io}; stack ~{needs.stack:,}")
    for arena in program.arenas:
        print(f"       {arena.bytes:>12,} bytes   of the arena in {arena.memory}")
    print(f"flash  {fit.flash_bytes:>12,} bytes   weights {needs.weights:,}; code ~{needs.code:,}")
    for memory, size in needs.weights_elsewhere:
        print(f"       {size:>12,} bytes   of weights {f'in {memory}' if memory else 'in a file, read at run time'}")
    if fit.peak is not None:
        alive = ", ".join(f"{b.name} {b.bytes:,}" for b in fit.peak.alive[:_SHOWN])
        more = f" and {len(fit.peak.alive) - _SHOWN} more" if len(fit.peak.alive) > _SHOWN else ""
        state = f", state {fit.state_bytes:,}" if fit.state_bytes else ""
        print(f"peak   {fit.state_bytes + fit.peak.bytes:>12,} bytes   live in layer {fit.peak.layer}, {_peak_name(made, fit)}:")
        over = "; results share memory with operands" if sum(b.bytes for b in fit.peak.alive) > fit.peak.bytes else ""
        print(textwrap.fill(f"{alive}{more}{state}{over}", PAGE, initial_indent=" " * 28, subsequent_indent=" " * 28))
    least = answer.least
    cost = f", about {100 * (least.cost_ratio - 1):.1f} % more instructions" if least.cost_ratio > 1 else ""
    print(f"least  {fit.ram_with(least.arena_bytes):>12,} bytes   the smallest RAM found by the ladder: {least.name}{cost}")
    print()
    before = fit.rungs[0].arena_bytes
    rows = []
    for rung in answer.rungs:
        rows.append([rung.name, f"{fit.ram_with(rung.arena_bytes):,}", f"{before - rung.arena_bytes:,}", f"{rung.cost_ratio:.2f}"])
        before = rung.arena_bytes
    print_table(["ladder", ">RAM", ">gained", ">time"], rows)
    print()
    print_table(["board", "core", ">RAM", ">flash", ">time ~ms", "fits"], [_row(b) for b in boards])


def _row(on: OnBoard) -> list[str]:
    time = "" if on.time_ms is None or on.needs is None else f"{on.time_ms:,.1f}" if on.time_ms >= 0.1 else "< 0.1"
    return [on.board.name, on.board.core, f"{on.board.ram_bytes:,}", f"{on.board.flash_bytes:,}", time, on.told()]


def _place(made: Planned) -> str:
    board = made.deployment.board
    return f"{made.target.name}, {board.name}" if board and board.name else made.target.name


def _picture(made: Planned, fit: Fit) -> Picture:
    program = made.program
    arena = proven_text(program.arena_bytes, program.lower_bound_bytes)
    sizes = program.placement.arena_sizes()
    starts = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))  # arenas one above the other
    for buffer in fit.buffers:
        buffer.offset += starts[buffer.region]
    arena += "".join(f", {a.bytes:,} of it in {a.memory}" for a in program.arenas)
    return Picture(
        title=f"{program.graph.name} on {_place(made)}",
        subtitle=f"arena {arena}; {len(fit.buffers)} buffers over {len(program.layers)} layers",
        layers=[layer.name for layer in program.layers],
        buffers=list(fit.buffers),
        arena_bytes=program.arena_bytes,
        state_bytes=fit.state_bytes,
        peak=fit.peak,
    )
