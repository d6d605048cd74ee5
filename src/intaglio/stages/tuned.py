"""Kernels that `intaglio tune` has measured, for the layers of a graph.

Without `--tuning`, a compile for this machine (`--target host`, or none) uses the database in the user's cache folder. A target
that is named gives the same package everywhere, so it uses a database only if that is named too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from intaglio.errors import UserError
from intaglio.ir.choices import Choices
from intaglio.ir.graph import Graph, Node
from intaglio.kernels.choice import can_use, has_choice, usual_way
from intaglio.options.request import Request
from intaglio.run.tuning.database import Database, default_file, here, read_database, read_default
from intaglio.run.tuning.layers import layer_text
from intaglio.stages.watch import Watch
from intaglio.targets.target import Target

OFF = Path("off")
NOISE, NOISE_US, MUCH = 1.02, 0.1, float("inf")


@dataclass(frozen=True, slots=True)
class Tuning:
    """`named`: the user gave the file. Then times of other processors count too, where there are none of this one."""

    file: Path
    database: Database
    target: Target
    named: bool

    def times(self, node: Node) -> Mapping[str, float]:
        if not has_choice(node):
            return {}
        place, layer = here(self.target), layer_text(node)
        return self.database.times(place, layer) or (self.database.elsewhere(place, layer) if self.named else {})

    def measured_us(self, node: Node, using: str) -> float | None:
        """Of the kernel that a layer has. Kernels without parameters to choose are known by their names."""
        times = self.times(node)
        return times.get(using, times.get(using.partition("(")[0]))


def implicit_file(request: Request) -> Path | None:
    """The database that is read though nobody named it, if there is one."""
    here = request.tuning is None and request.board is None and request.target in (None, "host") and request.model.suffix != ".ig"
    return default_file() if here and default_file().is_file() else None


def tuning_of(request: Request, target: Target, watch: Watch) -> Tuning | None:
    if target.bare or target.device or target.wasm or request.tuning == OFF:
        return None
    if request.tuning is not None:
        return Tuning(request.tuning, read_database(request.tuning), target, named=True)
    if implicit_file(request) is None:
        return None
    try:
        found = read_default()
    except UserError as error:
        watch.note(f"warning: the kernel times of this machine are not used: {error.message}")
        return None
    return None if found is None else Tuning(*found, target, named=False)


def fastest(node: Node, tuning: Tuning) -> str:
    """The fastest kernel that was measured and that applies; the usual one where the difference may be noise; or nothing."""
    times, target = tuning.times(node), tuning.target
    ranked = sorted((time, using) for using, time in times.items() if can_use(node, target, using))
    if not ranked:
        return ""
    usual = usual_way(node, target)
    return usual if times.get(usual, MUCH) <= NOISE * ranked[0][0] + NOISE_US else ranked[0][1]


def with_tuned(graph: Graph, asked: Choices, tuning: Tuning) -> tuple[Choices, frozenset[str]]:
    """The fastest kernel for each layer that was measured and whose kernel nobody has chosen; and for which layers."""
    chosen = asked.kernels if asked.target == tuning.target.name else {}
    waiting = [node for node in graph.nodes if not chosen.get(node.output.name)]
    found = {node.output.name: using for node in waiting if (using := fastest(node, tuning))}
    if not found:
        return asked, frozenset()
    return Choices(tuning.target.name, {**chosen, **found}, asked.stripes), frozenset(found)
