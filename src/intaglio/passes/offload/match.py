"""Where an accelerator's patterns are in a graph, and why it does not take what they match.

A match is a tree of nodes that ends in the pattern's root; results inside of it are read by nobody else. Neighbouring matches
become larger regions where the accelerator can do that (`facts.merges`): connected, and with no way out and back in.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.types import Layout
from intaglio.targets.accelerator import Is, Pattern, Region
from intaglio.targets.plugins import Plugin

MOST_REGIONS = 4000  # of one accelerator


@dataclass(frozen=True, slots=True)
class Refusal:
    node: Node
    accelerator: str
    reason: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A region that an accelerator would take, as a mask over `graph.nodes` too."""

    plugin: Plugin
    region: Region
    nodes: int


@dataclass(slots=True)
class Flow:
    """The graph in masks: what each node needs, directly and through others."""

    graph: Graph
    place: dict[Node, int] = field(default_factory=dict)
    needs: list[int] = field(default_factory=list)
    before: list[int] = field(default_factory=list)  # all that must be done before
    made: dict[Value, Node] = field(default_factory=dict)
    readers: dict[Value, list[Node]] = field(default_factory=dict)
    ends: set[Value] = field(default_factory=set)

    @staticmethod
    def of(graph: Graph) -> Flow:
        flow = Flow(graph, {node: n for n, node in enumerate(graph.nodes)}, made=graph.producers(), readers=graph.readers())
        flow.ends = {*graph.outputs, *(s.output for s in graph.states)}
        for node in graph.nodes:
            needs = before = 0
            for value in node.operands():
                if (maker := flow.made.get(value)) is not None:
                    n = flow.place[maker]
                    needs |= 1 << n
                    before |= 1 << n | flow.before[n]
            flow.needs.append(needs)
            flow.before.append(before)
        return flow

    def mask(self, nodes: Iterable[Node]) -> int:
        return sum(1 << self.place[node] for node in nodes)

    def region(self, nodes: Iterable[Node], patterns: tuple[str, ...]) -> Region:
        """The region of these nodes: what it reads, what others read of it."""
        body = tuple(sorted(nodes, key=self.place.__getitem__))
        inside = {v for node in body for v in node.outputs}
        members = set(body)
        read = list(dict.fromkeys(v for node in body for v in node.operands() if v not in inside))
        outputs = [
            v for node in body for v in node.outputs
            if v in self.ends or any(r not in members for r in self.readers.get(v, []))
        ]  # fmt: skip
        return Region(
            body, tuple(v for v in read if not v.is_const), tuple(outputs), tuple(v for v in read if v.is_const), patterns
        )

    def convex(self, nodes: Iterable[Node], mask: int) -> bool:
        """Nothing outside needs a part of it and is needed by another part."""
        around = 0
        for node in nodes:
            around |= self.before[self.place[node]]
        around &= ~mask
        while around:
            low = around & -around
            if self.before[low.bit_length() - 1] & mask:
                return False
            around ^= low
        return True


def claims(flow: Flow, plugin: Plugin) -> tuple[list[Claim], list[Refusal]]:
    """Every region that the accelerator takes, single matches first; and why not, for each node that is in none."""
    found: dict[int, Claim] = {}
    refused: dict[Node, str] = {}
    for node in flow.graph.nodes:
        for pattern in plugin.patterns:
            nodes = _matched(flow, pattern.root, node)
            if nodes is None:
                continue
            region = flow.region(nodes, (pattern.name,))
            reason = _reason(plugin, pattern, region)
            if reason is not None:
                refused.setdefault(node, f"{pattern.name}: {reason}")
                continue
            mask = flow.mask(nodes)
            found.setdefault(mask, Claim(plugin, region, mask))
    merged = _merged(flow, plugin, list(found.values())) if plugin.facts.merges > 1 else []
    taken = 0
    for mask in found:
        taken |= mask
    reasons = []
    for node in flow.graph.nodes:
        if not taken >> flow.place[node] & 1:
            reasons.append(Refusal(node, plugin.name, refused.get(node, f"it has no pattern for `{node.op.NAME}`")))
    return [*found.values(), *merged], reasons


def _matched(flow: Flow, pattern: Is, node: Node) -> list[Node] | None:
    kinds = pattern.op if isinstance(pattern.op, tuple) else (pattern.op,)
    if not isinstance(node.op, kinds):
        return None
    found = [node]
    for value, wanted in zip(node.inputs, pattern.operands, strict=False):
        if wanted is None:
            continue
        maker = None if value is None else flow.made.get(value)
        if maker is None or value in flow.ends or any(r is not node for o in maker.outputs for r in flow.readers.get(o, [])):
            return None
        below = _matched(flow, wanted, maker)
        if below is None:
            return None
        found += [n for n in below if n not in found]
    return found if len(pattern.operands) <= len(node.inputs) else None


def _reason(plugin: Plugin, pattern: Pattern, region: Region) -> str | None:
    if any(node.when is not None for node in region.nodes):
        return "it runs only under a condition"
    for value in (*region.inputs, *region.outputs):
        layout = value.type.layout
        if layout is not Layout.NONE and layout not in plugin.facts.layouts:
            return f"`{value.name}` is {layout.value}, it takes {' or '.join(x.value for x in plugin.facts.layouts if x.value)}"
    if not region.outputs:
        return "nothing reads its result"
    return plugin.check(pattern, region)


def _merged(flow: Flow, plugin: Plugin, units: list[Claim]) -> list[Claim]:
    """Connected unions of up to `merges` matches, largest last; what the accelerator does not accept is not grown further."""
    neighbours = _neighbours(flow, units)
    found: dict[int, Claim] = {}
    level: dict[frozenset[int], int] = {frozenset([n]): unit.nodes for n, unit in enumerate(units)}
    for _ in range(plugin.facts.merges - 1):
        grown: dict[frozenset[int], int] = {}
        for members, mask in level.items():
            for other in {o for m in members for o in neighbours[m]} - members:
                both = members | {other}
                union = mask | units[other].nodes
                if both in grown or units[other].nodes & mask or len(found) >= MOST_REGIONS:
                    continue
                parts = [units[m] for m in sorted(both)]
                nodes = [n for part in parts for n in part.region.nodes]
                if not flow.convex(nodes, union):
                    grown[both] = union  # it may be whole again with one more
                    continue
                region = flow.region(nodes, tuple(p for part in parts for p in part.region.patterns))
                if plugin.accepts(region) is None:
                    grown[both] = union
                    found.setdefault(union, Claim(plugin, region, union))
        level = grown
    return list(found.values())


def _neighbours(flow: Flow, units: list[Claim]) -> list[set[int]]:
    owners: dict[Node, list[int]] = {}
    for n, unit in enumerate(units):
        for node in unit.region.nodes:
            owners.setdefault(node, []).append(n)
    found: list[set[int]] = [set() for _ in units]
    for n, unit in enumerate(units):
        for value in unit.region.inputs:
            for other in owners.get(flow.made[value], []) if value in flow.made else []:
                if other != n:
                    found[n].add(other)
                    found[other].add(n)
    return found
