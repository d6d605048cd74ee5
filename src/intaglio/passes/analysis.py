"""What each node costs before its kernel is chosen: multiply-accumulates, bytes moved, and the time a roofline gives."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.ir.choices import Choices
from intaglio.ir.graph import Graph
from intaglio.ir.offload import Offload
from intaglio.targets import Target
from intaglio.targets.roofline import roofline


@dataclass(frozen=True, slots=True)
class Row:
    """`measured_us`: of its kernel on this processor, where a tuning database has it."""

    name: str  # of the layer, as in `profile` and in the C: that of its first result
    op: str
    macs: int
    bytes_moved: int
    estimate_us: float
    bound: str  # compute or memory
    measured_us: float | None = None


def analyse(graph: Graph, target: Target, choices: Choices) -> list[Row]:
    rows = []
    for node in graph.nodes:
        found = roofline(node, target, is_view=node.op.NAME == "reshape" or choices.is_view(node))
        op, time, bound = node.op.NAME, found.time_us, found.bound
        if isinstance(node.op, Offload):  # its plug-in knows; `--explain` has a table of its own for these
            op, time, bound = node.op.place, 0.0, "accelerator"
        rows.append(Row(node.output.name, op, found.macs, found.bytes_moved, time, bound))
    return rows
