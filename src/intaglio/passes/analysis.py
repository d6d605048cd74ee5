"""What each node costs: multiply-accumulates, bytes moved, and the time a roofline gives.

    time = max(2 * MACs / peak arithmetic, bytes / memory bandwidth)

Bytes count every operand and result once, weights included; caches make real traffic smaller. It is an estimate for comparing
nodes, not a promise."""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.ir.choices import Choices
from intaglio.ir.graph import Graph
from intaglio.ir.offload import Offload
from intaglio.targets import Target


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    op: str
    macs: int
    bytes_moved: int
    estimate_us: float
    bound: str  # compute or memory


def analyse(graph: Graph, target: Target, choices: Choices) -> list[Row]:
    rows = []
    for node in graph.nodes:
        types = [None if v is None else v.type for v in node.inputs]
        macs = node.op.macs(types, node.output.type)
        if node.op.NAME == "reshape" or choices.is_view(node):
            moved = 0
        else:
            moved = sum(t.bytes for t in types if t is not None) + sum(o.type.bytes for o in node.outputs)
        compute_us = 2 * macs / (target.gflops * 1e3)
        memory_us = moved / (target.gbytes_per_s * 1e3)
        bound = "compute" if compute_us > memory_us else "memory"
        if isinstance(node.op, Offload):  # its plug-in knows; `--explain` has a table of its own for these
            rows.append(Row(node.source or node.output.name, node.op.place, macs, moved, 0.0, "accelerator"))
            continue
        rows.append(Row(node.source or node.output.name, node.op.NAME, macs, moved, max(compute_us, memory_us), bound))
    return rows
