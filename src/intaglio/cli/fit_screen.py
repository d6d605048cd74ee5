"""What `intaglio fit` prints: needs, peak, ladder, boards; within 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from intaglio.cli.fit_answer import Answer, peak_name, place_name
from intaglio.cli.terminal import PAGE, ms_text, print_table, proven_text
from intaglio.fitting.fit import Fit
from intaglio.fitting.limits import Needs
from intaglio.survey.boards import OnBoard
from intaglio.survey.figures import BUILT, EMULATED, ESTIMATED, Figures

_SHOWN = 6  # tensors alive at the peak
_INDENT = " " * 28
ESTIMATES = "~ marks an estimate\n(flash may be off by a half, the time of most models by a factor of 2)"  # benchmarks/FIT.md


def print_answer(answer: Answer) -> None:
    made, fit, figures = answer.made, answer.fit, answer.figures
    print(f"{made.program.graph.name} on {place_name(made)}: {source_of(figures)}")
    print()
    _print_needs(fit.needs, figures, fit)
    print_time(figures)
    _print_peak(answer)
    least = answer.least
    cost = f", about {100 * (least.cost_ratio - 1):.1f} % more work (estimated)" if least.cost_ratio > 1 else ""
    fed = "--feed-rows " if least.fed else ""
    ask = f"; ask for it with `{fed}--ram {answer.least_limit}`" if least in answer.small and made.target.bare else ""
    line("least", answer.ram_of(least), f"the smallest RAM found by the ladder: {least.name}{cost}{ask}")
    print()
    before = answer.ram_of(fit.rungs[0])
    rows = []
    for rung in answer.rungs:
        now = answer.ram_of(rung)
        rows.append([rung.name, f"{now:,}", f"{before - now:,}", f"{rung.cost_ratio:.2f}"])
        before = now
    if (offer := answer.offer) is not None:
        about = "" if offer.built else "~"
        ratio = "" if offer.cost_ratio is None else f"{about}{offer.cost_ratio:.2f}"
        rows.append([f"instead: {offer.name}", f"{about}{offer.ram_bytes:,}", f"{fit.ram_bytes - offer.ram_bytes:,}", ratio])
    print_table(["ladder", ">RAM", ">gained", ">time"], rows)
    print()
    print_boards(answer.boards)


ABOUT_TIME = {EMULATED: "estimated on an emulated core", ESTIMATED: "estimated by multiply-adds"}


def source_of(figures: Figures) -> str:
    """Where figures come from."""
    if figures.sizes == BUILT:
        return "sizes as built, cycles estimated"
    return ESTIMATES


def line(label: str, size: int, text: str, unit: str = "bytes") -> None:
    start = f"{label:<6} {size:>12,} {unit}".ljust(len(_INDENT))
    print(textwrap.fill(text, PAGE, initial_indent=start, subsequent_indent=_INDENT))


def _print_needs(needs: Needs, figures: Figures, fit: Fit) -> None:
    program = figures.planned.program
    io = "inputs and outputs inside" if program.has_slots else f"inputs and outputs {needs.io:,}"
    proven = (
        proven_text(needs.arena, fit.arena_bound_bytes) if len(program.arenas) < 2 else f"{needs.arena:,} bytes in several memories"
    )
    about = "" if figures.sizes == BUILT else "~"
    if needs.on_device:
        line("device", fit.ram_bytes, f"buffers {proven}; {io}; weights {needs.weights:,}")
    else:
        static = f"variables {needs.static:,}; " if needs.static else ""
        line("RAM", fit.ram_bytes, f"arena {proven}; {io}; {static}stack {about}{needs.stack or 0:,}")
    for arena in program.arenas:
        line("", arena.bytes, f"of the arena in {arena.memory}")
    line("flash", fit.flash_bytes, f"weights {needs.weights:,}; code {about}{needs.code or 0:,}")
    for memory, size in needs.weights_elsewhere:
        line("", size, f"of weights {f'in {memory}' if memory else 'in a file, read at run time'}")


def print_time(figures: Figures) -> None:
    if figures.cycles is None:
        return
    board = figures.planned.deployment.board
    ms = figures.time_ms(board)
    at = f"; {ms_text(ms)} ms at {board.clock_mhz:g} MHz" if ms is not None and board is not None else ""
    count = f"; {figures.instructions:,} instructions, exact" if figures.instructions is not None else ""
    line("time", round(figures.cycles), f"{ABOUT_TIME[figures.time]}, {figures.waits}{at}{count}", "cycles")
    if (half := figures.typical) is not None:
        sizes = ", ".join(f"{name}={n}" for name, n in half.sizes.items())
        part = f"{100 * half.cycles / figures.cycles:.0f} % of the largest; {half.instructions:,} instructions, exact"
        line("middle", half.cycles, f"typical: at {sizes}, the middle of the range; {part}", "cycles")


def _print_peak(answer: Answer) -> None:
    made, fit = answer.made, answer.fit
    if fit.peak is None:
        return
    alive = ", ".join(f"{b.name} {b.bytes:,}" for b in fit.peak.alive[:_SHOWN])
    more = f" and {len(fit.peak.alive) - _SHOWN} more" if len(fit.peak.alive) > _SHOWN else ""
    state = f", state {fit.state_bytes:,}" if fit.state_bytes else ""
    line("peak", fit.state_bytes + fit.peak.bytes, f"live in layer {fit.peak.layer}, {peak_name(made, fit)}:")
    over = "; results share memory with operands" if sum(b.bytes for b in fit.peak.alive) > fit.peak.bytes else ""
    print(textwrap.fill(f"{alive}{more}{state}{over}", PAGE, initial_indent=_INDENT, subsequent_indent=_INDENT))


def print_boards(boards: Sequence[OnBoard]) -> None:
    """Needs are those of the model. A time with ~ is an estimate."""
    print_table(["board", "core", ">RAM", ">flash", ">ms", "fits"], [_row(b) for b in boards])


def _row(on: OnBoard) -> list[str]:
    if on.needs is None:
        return [on.board.name, on.board.core, "", "", "", on.told()]
    time = "" if on.time_ms is None else ("" if on.time == EMULATED else "~") + _short_ms(on.time_ms)
    about = "" if on.sizes == BUILT else "~"
    ram, flash = sum(on.needs.ram.values()), sum(on.needs.flash.values())
    return [on.board.name, on.board.core, f"{about}{ram:,}", f"{about}{flash:,}", time, on.told()]


def _short_ms(ms: float) -> str:
    return f"{ms:,.0f}" if ms >= 1000 else f"{ms:.1f}" if ms >= 10 else f"{ms:.3f}"
