"""What the core saves by fusing: elementwise operators cost next to nothing behind a product that it computes itself.

    a = conv(x, w, b)
    y = relu(a)            together 800,000 cycles on the core, alone 780,000 and 60,000

So the choice of regions has such chains among its candidates, as if the core were an accelerator for them: where a convolution
goes elsewhere, its activation costs what it costs alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from intaglio.ir.graph import Node
from intaglio.ops.base import Elementwise
from intaglio.passes.offload.match import Flow
from intaglio.targets.target import Target

MOST_FUSED = 4  # operators behind a product
CYCLES_PER_ELEMENT = 1.5
HOST_SHARE = 0.1  # of what the operator costs alone, where vectors do it in registers


@dataclass(frozen=True, slots=True)
class Chain:
    """Nodes that the core computes in one loop, as a mask, and what each of them costs then."""

    nodes: int
    cycles: dict[int, float]

    @property
    def cost(self) -> float:
        return sum(self.cycles.values())


def chains(flow: Flow, core: list[float], target: Target) -> list[Chain]:
    found = []
    for n, node in enumerate(flow.graph.nodes):
        if not hasattr(node.op, "epilogue") and not isinstance(node.op, Elementwise):
            continue
        members, cycles = 1 << n, {n: core[n]}
        last = node
        for _ in range(MOST_FUSED):
            following = _only_reader(flow, last)
            if following is None:
                break
            place = flow.place[following]
            members |= 1 << place
            cycles = {**cycles, place: _fused_cycles(following, core[place], target)}
            if flow.convex([flow.graph.nodes[m] for m in cycles], members):
                found.append(Chain(members, cycles))
            last = following
    return found


def _only_reader(flow: Flow, node: Node) -> Node | None:
    """The elementwise operator that alone reads the result, and has its shape."""
    out = node.output
    readers = set(flow.readers.get(out, []))
    if len(node.outputs) != 1 or len(readers) != 1 or out in flow.ends:
        return None
    reader = readers.pop()
    plain = isinstance(reader.op, Elementwise) and reader.output.shape == out.shape and reader.when is node.when
    return reader if plain else None


def _fused_cycles(node: Node, alone: float, target: Target) -> float:
    """Its own operand is in a register; another one has to be read."""
    if not target.bare:
        return HOST_SHARE * alone
    operands = sum(v is not None and not v.is_const for v in node.inputs)
    return min(alone, CYCLES_PER_ELEMENT * node.output.type.elements * max(1, operands))
