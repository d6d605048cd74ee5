"""The answer of `intaglio fit` for one core or board: as an object, and as a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from intaglio.cli.terminal import print_json, proven_text
from intaglio.fitting.fit import Fit
from intaglio.memory.ladder import Rung
from intaglio.memory.picture import Picture
from intaglio.pipeline import Planned
from intaglio.run.firmware import STACK_ALIGNMENT
from intaglio.survey.boards import OnBoard
from intaglio.survey.figures import Figures


@dataclass(frozen=True, slots=True)
class How:
    """How the question is asked: a picture beside the answer, only estimates, an object instead of text."""

    plot: Path | None
    quick: bool
    json: bool
    tell: Callable[[object], None] = print_json  # who takes the object


@dataclass(frozen=True, slots=True)
class Offer:
    """Another model in its place: of integers. `cost_ratio`: its time beside that of the plan, if both are known alike."""

    name: str
    ram_bytes: int
    flash_bytes: int
    cost_ratio: float | None
    built: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What is printed. `small`: rungs that are there beside those that the plan uses, and `beside` what RAM each has beside the
    arena, where that was built; `refusal`: why it does not fit."""

    figures: Figures
    fit: Fit
    enough: bool
    refusal: str
    boards: tuple[OnBoard, ...]
    small: tuple[Rung, ...] = ()
    beside: tuple[int, ...] = ()
    offer: Offer | None = None

    def ram_of(self, rung: Rung) -> int:
        """Stripes need more stack than the plan as it is."""
        if not self.beside or rung not in self.small:
            return self.fit.ram_with(rung.arena_bytes)
        return rung.arena_bytes + self.beside[self.small.index(rung)]

    @property
    def made(self) -> Planned:
        return self.figures.planned

    @property
    def rungs(self) -> tuple[Rung, ...]:
        return (*self.fit.rungs, *self.small)

    @property
    def least(self) -> Rung:
        return min(self.rungs, key=lambda r: r.arena_bytes)

    @property
    def least_limit(self) -> int:
        """What `--ram` has to allow for it: the stack starts at an aligned address."""
        ram = self.ram_of(self.least)
        return -(-ram // STACK_ALIGNMENT) * STACK_ALIGNMENT if self.made.target.bare else ram


def peak_name(made: Planned, fit: Fit) -> str | None:
    if fit.peak is None:
        return None
    layers = made.program.layers
    return layers[min(fit.peak.layer, len(layers) - 1)].name if layers else None


def answer_json(answer: Answer) -> dict[str, object]:
    made, fit, figures = answer.made, answer.fit, answer.figures
    needs, least = fit.needs, answer.least
    return {
        "fits": answer.enough,
        "target": made.target.name,
        "ram_bytes": fit.ram_bytes,
        "flash_bytes": fit.flash_bytes,
        "lower_bound_bytes": fit.lower_bound_bytes,
        "optimal": fit.optimal,
        "peak_layer": peak_name(made, fit),
        "peak_tensors": [{"name": b.name, "bytes": b.bytes} for b in fit.peak.alive] if fit.peak else [],
        "ladder": [
            *({"rung": r.name, "ram_bytes": answer.ram_of(r), "flash_bytes": fit.flash_bytes, "cost_ratio": r.cost_ratio}
              for r in answer.rungs),
            *({"rung": o.name, "ram_bytes": o.ram_bytes, "flash_bytes": o.flash_bytes, "cost_ratio": o.cost_ratio}
              for o in (answer.offer,) if o is not None),
        ],
        "smallest": {
            "rung": least.name, "ram_bytes": answer.ram_of(least), "ram_limit_bytes": answer.least_limit,
            "cost_ratio": least.cost_ratio,
        },
        "stripes": [str(spec) for spec in made.program.choices.stripes],
        "cycles": figures.cycles,
        "instructions": figures.instructions,
        **({} if (typical := figures.typical) is None else {
            "typical": {"sizes": dict(typical.sizes), "cycles": typical.cycles, "instructions": typical.instructions},
        }),
        "time_ms": figures.time_ms(made.deployment.board),
        "from": {"sizes": figures.sizes, "time": figures.time},
        "boards": [on.as_json() for on in answer.boards],
        "parts": {
            "arena_bytes": needs.arena,
            "arenas": [{"memory": a.memory, "bytes": a.bytes} for a in made.program.arenas],
            "io_bytes": needs.io,
            "weight_bytes": needs.weights,
            "code_bytes": needs.code,
            "stack_bytes": needs.stack,
            "variable_bytes": needs.static,
            "code_bytes_estimate": needs.code,  # the names of before anything was built
            "stack_bytes_estimate": needs.stack,
        },
    }


def place_name(made: Planned) -> str:
    board = made.deployment.board
    return f"{made.target.name}, {board.name}" if board and board.name else made.target.name


def picture(made: Planned, fit: Fit) -> Picture:
    program = made.program
    arena = proven_text(program.arena_bytes, program.lower_bound_bytes)
    sizes = program.placement.arena_sizes()
    starts = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))  # arenas one above the other
    for buffer in fit.buffers:
        buffer.offset += starts[buffer.region]
    arena += "".join(f", {a.bytes:,} of it in {a.memory}" for a in program.arenas)
    return Picture(
        title=f"{program.graph.name} on {place_name(made)}",
        subtitle=f"arena {arena}; {len(fit.buffers)} buffers over {len(program.layers)} layers",
        layers=[layer.name for layer in program.layers],
        buffers=list(fit.buffers),
        arena_bytes=program.arena_bytes,
        state_bytes=fit.state_bytes,
        peak=fit.peak,
    )
