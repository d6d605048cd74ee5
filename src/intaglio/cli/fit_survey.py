"""`intaglio fit` without a board and a target: the cores and boards on which a model fits, as it is and by each means.

`--ram` and `--flash` are limits on every core; on a board, its own memories are limits too. This machine is no microcontroller,
so it is never the answer."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from intaglio.cli.fit_answer import Answer, How, answer_json, picture
from intaglio.cli.fit_screen import ESTIMATES, print_boards
from intaglio.cli.terminal import bytes_text, note, note_loops, on_terminal, print_table
from intaglio.errors import UserError, counted
from intaglio.fitting.fit import fit_of
from intaglio.memory.picture import draw
from intaglio.options.request import Request
from intaglio.package.folder import write_text
from intaglio.pipeline import plan_request
from intaglio.stages.watch import Watch
from intaglio.survey.boards import OnBoard, cores_of, figures_by_core, main_core, on_boards, that_fit
from intaglio.survey.figures import BUILT, EMULATED, Figures, alone, quantised_once
from intaglio.survey.means import AS_IT_IS, NAMES, Finder, Means
from intaglio.targets.deployment import Deployment


@dataclass(frozen=True, slots=True)
class OnCore:
    """A model on a core; `means`: each makes it fit within the limits that were given."""

    core: str
    figures: Figures | None
    means: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        found, needs = self.figures, None if self.figures is None else self.figures.needs
        return {
            "name": self.core,
            "fits": self.fits,
            "ram_bytes": None if needs is None else sum(needs.ram.values()),
            "flash_bytes": None if needs is None else sum(needs.flash.values()),
            "cycles": None if found is None else found.cycles,
            "instructions": None if found is None else found.instructions,
            "means": list(self.means),
            "from": None if found is None else {"sizes": found.sizes, "time": found.time},
        }

    @property
    def fits(self) -> bool:
        """By what `compile` does by itself."""
        return AS_IT_IS in self.means or "stripes" in self.means


@dataclass(frozen=True, slots=True)
class Survey:
    """`main` is the core that most boards have: means are shown for it."""

    name: str
    main: str
    cores: tuple[OnCore, ...]
    boards: tuple[OnBoard, ...]
    means: tuple[Means, ...]

    @property
    def fits(self) -> bool:
        return any(on.fits for on in self.cores)


def survey(request: Request, how: How) -> int:
    main = main_core()
    planned = plan_request(alone(request, main), Watch(note=lambda text: note(f"note: {text}")), climbing=False)
    if request.feed_rows or request.weights != "mapped" or request.memory is not None:
        what = "`--feed-rows`, `--weights` and `--memory` need a board or a target"
        hint = "add `--board` or `--target`; without them, `fit` tells what `--feed-rows` and `--weights read` gain"
        raise UserError("bad-option", what, hint=hint)
    with ExitStack() as stack:
        once = stack.enter_context(quantised_once(request))
        cores = figures_by_core(once, cores_of(), quick=how.quick, say=on_terminal)
        found = _survey(once, planned.program.graph.name, main, cores, stack)
    figures = cores[main]
    if how.plot is not None and figures is not None:
        made = figures.planned
        write_text(how.plot, draw(picture(made, fit_of(made.program, made.target, made.deployment))))
    how.tell(_json(found, request, cores)) if how.json else _print(found, request)
    note_loops(node.op.NAME for node in planned.program.graph.nodes)
    if how.plot is not None:
        note(f"picture: {how.plot}")
    if not found.fits:
        helped = sorted({name for on in found.cores for name in on.means}, key=NAMES.index)
        help_ = f"; it would with {', '.join(f'`{name}`' for name in helped)}" if helped else ""
        note(f"`{found.name}` fits no core within {_limits(request)}{help_}")
    return 0 if found.fits else 1


def _survey(request: Request, name: str, main: str, cores: dict[str, Figures | None], stack: ExitStack) -> Survey:
    finder = Finder(request, cores, main, stack)
    on_cores = []
    for core, figures in cores.items():
        means: tuple[str, ...] = ()
        if figures is not None:
            board = figures.planned.deployment.board
            on = Deployment(board, ram=request.ram, flash=request.flash)
            means = that_fit(finder.of(core), on)
        on_cores.append(OnCore(core, figures, means))
    return Survey(name, main, tuple(on_cores), tuple(on_boards(request, cores, finder, every=True)), finder.of(main))


def _limits(request: Request) -> str:
    told = [f"{size:,} bytes of {kind}" for kind, size in (("RAM", request.ram), ("flash", request.flash)) if size is not None]
    return " and ".join(told)


def _print(found: Survey, request: Request) -> None:
    limits = _limits(request)
    estimated = any(on.figures is not None and (on.figures.sizes, on.figures.time) != (BUILT, EMULATED) for on in found.cores)
    print(f"{found.name} on microcontrollers{',' if limits else ''}")
    print(f"within {limits}") if limits else None
    quick = not any(on.figures is not None and on.figures.sizes == BUILT for on in found.cores)
    built = "sizes as built, cycles estimated on an emulated core, zero wait states" + ("; ~ is rougher" if estimated else "")
    print(ESTIMATES if quick else built)
    print()
    rows = [_core_row(on) for on in found.cores]
    print_table(["core", ">RAM", ">flash", ">cycles", "fits" if limits else ""], rows)
    print()
    print_table([f"means, on {found.main}", ">RAM", ">flash", ">cores", ">boards"], _means_rows(found))
    print()
    there = [on for on in found.boards if on.means]
    print_boards(there or found.boards)
    missing = [on for on in found.boards if not on.means]
    if there and missing:
        print(f"{counted(len(missing), 'board')} of {len(found.boards)} too small by all means; `--json` has them")


def _core_row(on: OnCore) -> list[str]:
    if on.figures is None:
        return [on.core, "", "", "", "not supported"]
    needs, cycles = on.figures.needs, on.figures.cycles
    about = "" if on.figures.sizes == BUILT else "~"
    time = "" if cycles is None else f"{'' if on.figures.time == EMULATED else '~'}{cycles:,.0f}"
    told = "yes" if AS_IT_IS in on.means else f"with {', '.join(on.means)}" if on.means else "no"
    return [on.core, f"{about}{sum(needs.ram.values()):,}", f"{about}{sum(needs.flash.values()):,}", time, told]


def _means_rows(found: Survey) -> list[list[str]]:
    rows = []
    for one in found.means:
        needs, about = one.needs, "" if one.built else "~"
        cores = sum(one.name in on.means for on in found.cores)
        boards = sum(one.name in on.means for on in found.boards)
        flash = f"{about}{sum(needs.flash.values()):,}"
        beside = sum(size for _, size in needs.weights_elsewhere)
        flash += f" + {bytes_text(beside)}" if beside else ""
        name = one.words or one.name
        rows.append([name, f"{about}{sum(needs.ram.values()):,}", flash, str(cores), str(boards)])
    return rows


def _json(found: Survey, request: Request, cores: dict[str, Figures | None]) -> dict[str, object]:
    """The keys of an answer for one core are those of `main`, which is `target`."""
    figures = cores[found.main]
    whole: dict[str, object] = {"fits": found.fits, "target": None}
    if figures is not None:
        made = figures.planned
        fit = replace(fit_of(made.program, made.target, made.deployment), needs=figures.needs)
        whole = answer_json(Answer(figures, fit, found.fits, "", found.boards))
    rows: Sequence[dict[str, object]] = [_means_json(one) for one in found.means]
    return {**whole, "limits": {"ram_bytes": request.ram, "flash_bytes": request.flash},
            "cores": [on.as_json() for on in found.cores], "means": rows}  # fmt: skip


def _means_json(one: Means) -> dict[str, object]:
    return {
        "name": one.name,
        "options": one.words,
        "ram_bytes": sum(one.needs.ram.values()),
        "flash_bytes": sum(one.needs.flash.values()),
        "read_bytes": sum(size for _, size in one.needs.weights_elsewhere),
        "from": BUILT if one.built else "estimated",
    }
