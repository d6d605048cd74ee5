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
from intaglio.kernels.choice import can_use, has_choice
from intaglio.options.request import Request
from intaglio.run.tuning.database import Database, default_file, here, read_database, read_default
from intaglio.run.tuning.layers import layer_text
from intaglio.stages.watch import Watch
from intaglio.targets.target import Target

OFF = Path("off")


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


def with_tuned(graph: Graph, asked: Choices, tuning: Tuning) -> tuple[Choices, frozenset[str]]:
    """The fastest kernel that was measured and that applies, for each layer whose kernel nobody has chosen; and for which."""
    chosen = asked.kernels if asked.target == tuning.target.name else {}
    found = {}
    for node in graph.nodes:
        if chosen.get(node.output.name):
            continue
        ranked = sorted(tuning.times(node).items(), key=lambda item: (item[1], item[0]))
        best = next((using for using, _ in ranked if can_use(node, tuning.target, using)), None)
        if best is not None:
            found[node.output.name] = best
    if not found:
        return asked, frozenset()
    return Choices(tuning.target.name, {**chosen, **found}, asked.stripes), frozenset(found)
