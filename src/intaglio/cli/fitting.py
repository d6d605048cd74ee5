"""`intaglio fit`: whether a model fits, why, and where else it would.

With a board or a target it answers for that, and then for every known board. Without, it answers for all microcontrollers:
`fit_survey`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from intaglio.cli.fit_answer import Answer, How, Offer, answer_json, peak_name, picture
from intaglio.cli.fit_screen import print_answer
from intaglio.cli.fit_survey import survey
from intaglio.cli.terminal import note, note_loops, on_terminal, print_json, progress_bar
from intaglio.errors import AnswerIsNo, UserError
from intaglio.fitting.fit import STACK_BYTES, Fit, fit_of, fits
from intaglio.fitting.limits import chances_of, check_limits, has_floats
from intaglio.ir.operator import BadOperator
from intaglio.ir.sizes import Undecided
from intaglio.memory.ladder import Rung
from intaglio.memory.picture import draw
from intaglio.options.entries import entry_words, has_lists
from intaglio.options.reading import request_of_words
from intaglio.options.request import Request
from intaglio.package.folder import check_kind, write_text
from intaglio.pipeline import Planned, least_rungs, plan_request
from intaglio.stages.watch import Watch
from intaglio.survey.boards import OnBoard, cores_of, figures_by_core, on_boards
from intaglio.survey.figures import (
    BUILT,
    EMULATED,
    ESTIMATED,
    MOST_CYCLES,
    NO_RAM,
    Figures,
    alone,
    built_figures,
    planned_figures,
    quantised_once,
)  # fmt: skip
from intaglio.survey.means import Finder


def fit_model(model: Path, options: Mapping[str, object], how: How) -> int:
    """Of a list of sizes: each by itself. Entry points share one arena, so that the largest counts."""
    if not has_lists(options):
        return _fit_one(request_of_words(model, Path(), options), how)
    if how.plot is not None:
        raise UserError("bad-option", "`--plot` draws one size", hint="give one size, or omit `--plot`")
    told: dict[str, object] = {}
    codes = []
    for name, (path, words) in entry_words([model], options, []).items():
        if not how.json:
            print(f"{name}:")
        one = replace(how, tell=lambda answer, name=name: told.update({name: answer}))  # type: ignore[misc]
        codes.append(_fit_one(request_of_words(path, Path(), words), one))
    if how.json:
        print_json({"fits": not any(codes), "entries": told})
    return max(codes)


def _fit_one(request: Request, how: How) -> int:
    if how.plot is not None:
        check_kind(how.plot, "a picture", (b"<svg",))
    if request.target is None and request.board is None:
        return survey(request, how)
    heard: list[str] = []

    def hear(text: str) -> None:  # a model is planned more than once
        if text not in heard:
            heard.append(text)
            note(f"note: {text}")

    with progress_bar("planning") as progress:
        answer = _answer(request, Watch(note=hear, progress=progress), how)
    if how.plot is not None:
        write_text(how.plot, draw(picture(answer.made, answer.fit)))
    if how.json:
        how.tell(answer_json(answer))
    else:
        print_answer(answer)
    note_loops(node.op.NAME for node in answer.figures.planned.program.graph.nodes)
    if how.plot is not None:
        note(f"picture: {how.plot}")
    if answer.refusal:
        note(answer.refusal)
    return 0 if answer.enough else 1


def _answer(request: Request, watch: Watch, how: How) -> Answer:
    plain = plan_request(replace(request, feed_rows=False), watch, climbing=False)
    fit = fit_of(plain.program, plain.target, plain.deployment)
    figures = _planned(request, watch, plain, fit) if how.quick or not plain.target.bare else None
    if figures is None:
        figures = built_figures(request, watch, climbing=True, typical=True)
    made = figures.planned
    if made.rungs:
        fit = replace(fit_of(made.program, made.target, made.deployment), rungs=(*fit.rungs, *made.rungs))
    fit = replace(fit, needs=figures.needs)
    enough = figures.refusal is None and fits(fit.needs, made.deployment.ram_bytes, made.deployment.flash_bytes)
    with ExitStack() as stack:
        boards = _boards(stack.enter_context(quantised_once(request)), figures, how, stack)
    small = _smallest(request, fit)
    beside = tuple(_beside(request, rung) for rung in small) if figures.sizes == BUILT else ()
    refusal = "" if enough else _refusal(request, figures, fit)
    return Answer(figures, fit, enough, refusal, boards, small, beside, _offer(request, figures))


def _beside(request: Request, rung: Rung) -> int:
    """RAM beside the arena, in the smallest stripes."""
    asked = replace(request, ram=NO_RAM, feed_rows=rung.fed)
    needs = built_figures(asked, Watch(), climbing=True, most_cycles=-1.0, hopeless=True).needs
    return needs.io + needs.static + (needs.stack or 0)


def _offer(request: Request, figures: Figures) -> Offer | None:
    """What integers would need: made from ranges of random inputs, which do not matter for sizes and times."""
    made = figures.planned
    if request.scheme is not None or not made.target.bare or not has_floats(made.program.graph):
        return None
    asked = replace(request, quantize="int8", feed_rows=False, ram=None, flash=None)
    built = figures.sizes == BUILT
    try:
        if built:
            whole = request.memory is None  # else what is made without limits need not fit the memories, and cannot run
            most = MOST_CYCLES if figures.time == EMULATED and whole else -1.0
            found = built_figures(asked, Watch(), climbing=False, most_cycles=most)
        else:
            found = planned_figures(plan_request(asked, Watch(), climbing=False))
    except (UserError, AnswerIsNo, Undecided, BadOperator):  # the rest of the answer stands without it
        return None
    ratio = None if not figures.cycles or found.cycles is None or found.time != figures.time else found.cycles / figures.cycles
    return Offer("int8 (--quantize)", sum(found.needs.ram.values()), sum(found.needs.flash.values()), ratio, built)


def _planned(request: Request, watch: Watch, plain: Planned, fit: Fit) -> Figures:
    if request.feed_rows or not fits(fit.needs, plain.deployment.ram_bytes, plain.deployment.flash_bytes):
        return planned_figures(plan_request(request, watch, STACK_BYTES))
    return planned_figures(plain)


def _boards(request: Request, figures: Figures, how: How, stack: ExitStack) -> tuple[OnBoard, ...]:
    made = figures.planned
    reused = {}
    same = made.target.bare and not made.rungs and not made.program.arenas and request == _as_alone(request)  # the same program
    if same and (figures.time == ESTIMATED or figures.on_boards):  # but the cycles of one board are not those of others
        reused[made.target.name] = figures
    cores = figures_by_core(request, [c for c in cores_of() if c not in reused], quick=how.quick, say=on_terminal) | reused
    main = made.target.name if made.target.name in cores else next(iter(cores))
    whole = replace(request, ram=None, flash=None)  # limits are the boards' own
    found = on_boards(whole, cores, Finder(whole, cores, main, stack))
    asked = made.deployment.board
    return tuple(
        replace(on, needs=figures.needs, time_ms=figures.time_ms(on.board), sizes=figures.sizes, time=figures.time)
        if asked is not None and on.board == asked and figures.refusal is None
        else on
        for on in found
    )


def _as_alone(request: Request) -> Request:
    """Nothing but the board and its limits was asked for."""
    told = alone(request, request.target or "")
    return replace(
        told, target=request.target, board=request.board, ram=request.ram, flash=request.flash, memory=request.memory
    )


def _refusal(request: Request, figures: Figures, fit: Fit) -> str:
    made = figures.planned
    no = figures.refusal
    if no is None:
        try:
            chances = chances_of(made.program, quantised=request.in_integers)
            check_limits(made.program.graph.name, fit.needs, made.deployment, chances)
            return ""
        except AnswerIsNo as error:
            no = error
    bound = f"the lower bound of the arena is {fit.arena_bound_bytes:,} bytes, set by layer `{peak_name(made, fit)}`"
    if figures.sizes == ESTIMATED and not fit.needs.on_device:
        bound += "; the stack is an estimate, `compile` measures it"
    return f"{no}\n\n{bound}"


def _smallest(request: Request, fit: Fit) -> tuple[Rung, ...]:
    """What the ladder could still do."""
    used = min(r.arena_bytes for r in fit.rungs)
    names = {r.name for r in fit.rungs}
    rungs = least_rungs(request)
    return tuple(replace(r, name=f"more {r.name}" if r.name in names else r.name) for r in rungs if r.arena_bytes < used)
