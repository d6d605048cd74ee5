"""Give regions of the graph to accelerators, where that is cheaper in all.

    a: i8[1,8,8,16] = qconv(x, w1, ...)          a: i8[1,8,8,16] = qconv(x, w1, ...) on npu.0
    b: i8[1,8,8,16] = qadd(a, x, ...)       ->   b: i8[1,8,8,16] = qadd(a, x, ...) on npu.0
    y: i8[1,8,8,16] = qsoftmax(b)                y: i8[1,8,8,16] = qsoftmax(b)

Plug-ins claim what their patterns match; `partition` chooses by cost, launches and transfers included. Nodes under a guard, and
those that a file has already given away, stay where they are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from intaglio.errors import UserError, quoted
from intaglio.ir.graph import Graph, Node
from intaglio.ir.offload import Offload, flat_nodes, gather
from intaglio.passes.context import Context
from intaglio.passes.offload.costs import core_cycles, region_cycles
from intaglio.passes.offload.fused import chains
from intaglio.passes.offload.match import Claim, Flow, Refusal, claims
from intaglio.passes.offload.overlap import Task, best_order, makespan, needs_of
from intaglio.passes.offload.partition import Candidate, choose
from intaglio.targets.accelerator import Cost
from intaglio.targets.plugins import Plugin, find_accelerator
from intaglio.targets.target import Target

FORCED = 1e18  # what the core costs where it must not


@dataclass(frozen=True, slots=True)
class Sent:
    """A region that an accelerator computes. Cycles are of the core's clock."""

    place: str
    patterns: tuple[str, ...]
    layers: tuple[str, ...]
    ops: tuple[str, ...]
    macs: int
    cost: Cost
    cycles: float
    core_cycles: float


@dataclass(frozen=True, slots=True)
class Kept:
    """A node that the core computes, and why."""

    layer: str
    op: str
    cycles: float
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Offloaded:
    """What went where and why, for `--explain`."""

    sent: tuple[Sent, ...]
    kept: tuple[Kept, ...]
    cycles: float  # one after the other
    core_cycles: float  # if the core did it all
    overlapped_cycles: float  # with the core at work beside accelerators
    proven: bool
    seconds: float

    def as_json(self) -> dict[str, object]:
        return {
            "cycles": self.overlapped_cycles,
            "core_cycles": self.core_cycles,
            "proven": self.proven,
            "seconds": round(self.seconds, 3),
            "regions": [
                {
                    "place": s.place,
                    "layers": list(s.layers),
                    "ops": list(s.ops),
                    "patterns": list(s.patterns),
                    "cycles": s.cost.cycles,
                    "transfer_cycles": s.cost.transfer_cycles,
                    "launch_cycles": s.cost.launch_cycles,
                    "bytes": s.cost.bytes,
                    "core_cycles": s.core_cycles,
                }
                for s in self.sent
            ],
            "core": [{"layer": k.layer, "op": k.op, "cycles": k.cycles, "reasons": list(k.reasons)} for k in self.kept],
        }


def offload(graph: Graph, context: Context) -> Graph:
    """Regions of the graph go to accelerators, where that is cheaper in all.

        a = qconv(x, w1)              a = qconv(x, w1) on npu.0
        y = qsoftmax(a)       ->      y = qsoftmax(a)

    Skipped for nodes under a guard, and for those that a file has already given away."""
    plugins, only = context.accelerators, context.accelerator_only
    context.report(give_away(graph, context.target, plugins, clock_mhz=context.clock_mhz, only=only))
    return graph


def give_away(
    graph: Graph, target: Target, plugins: Sequence[Plugin], *, clock_mhz: float | None = None, only: frozenset[str] = frozenset()
) -> Offloaded:
    """`only`: these operators go to an accelerator wherever one takes them, whatever it costs; no others do."""
    begun = time.perf_counter()
    flow = Flow.of(graph)
    found: list[Claim] = []
    refused: list[Refusal] = []
    for plugin in plugins:
        if (reason := plugin.supports(target)) is not None:
            hint = f"`intaglio accelerators` describes {quoted(plugin.name)}"
            raise UserError("unsupported-accelerator", f"{quoted(plugin.name)} is not for `{target.name}`: {reason}", hint=hint)
        more, reasons = claims(flow, plugin)
        found += more
        refused += reasons
    core = [core_cycles(node, target) for node in graph.nodes]
    if only:
        found = [c for c in found if all(node.op.NAME in only for node in c.region.nodes)]
        _need_all(graph, only, found, refused)
    costs = [claim.plugin.cost(claim.region, target) for claim in found]
    cycles = [region_cycles(cost, c.plugin.facts.clock_mhz, clock_mhz) for cost, c in zip(costs, found, strict=True)]
    covered = 0
    for claim in found:
        covered |= claim.nodes
    forced = covered if only else 0
    asked = [FORCED if forced >> n & 1 else cost for n, cost in enumerate(core)]
    alone, every = list(core), chains(flow, core, target)
    together = [chain for chain in every if not chain.nodes & forced]
    candidates = [Candidate(c.nodes, cost, n) for n, (c, cost) in enumerate(zip(found, cycles, strict=True))]
    candidates += [Candidate(chain.nodes, chain.cost, len(found) + n) for n, chain in enumerate(together)]
    choice = choose(asked, flow.needs, candidates)
    for key in (c.key - len(found) for c in choice.regions):
        for n, cost in together[key].cycles.items() if key >= 0 else ():
            core[n] = cost
    chosen = sorted((c.key for c in choice.regions if c.key < len(found)), key=lambda key: found[key].nodes & -found[key].nodes)
    taken = 0
    for key in chosen:
        taken |= found[key].nodes
    kept = _kept(graph, flow, core, taken, found, cycles, refused, only)
    places: dict[Node, tuple[str, int]] = {}
    sent = []
    for number, key in enumerate(chosen):
        claim = found[key]
        places |= dict.fromkeys(claim.region.nodes, (claim.plugin.name, number))
        sent.append(_sent(claim, number, costs[key], cycles[key], sum(core[flow.place[n]] for n in claim.region.nodes)))
    gather(graph, places)
    overlapped = _overlap(graph, plugins, {s.place: s for s in sent}, {node: core[n] for node, n in flow.place.items()})
    total = sum(s.cycles for s in sent) + sum(k.cycles for k in kept)
    without = choose(alone, flow.needs, [Candidate(c.nodes, c.cost, n) for n, c in enumerate(every)]).cost
    return Offloaded(tuple(sent), kept, total, without, overlapped, choice.proven, time.perf_counter() - begun)


def _need_all(graph: Graph, only: frozenset[str], found: list[Claim], refused: list[Refusal]) -> None:
    """Each operator that is asked for is one that the model has and an accelerator takes."""
    there = {node.op.NAME for node in graph.nodes}
    for name in sorted(only):
        if name not in there:
            known = ", ".join(f"`{n}`" for n in sorted(there))
            raise UserError("bad-option", f"the model has no operator {quoted(name)}", hint=f"it has {known}")
        if not any(name == node.op.NAME for claim in found for node in claim.region.nodes):
            why = next((r.reason for r in refused if name == r.node.op.NAME), "no region has only these operators")
            hint = "`--explain` without `--accelerator-only` shows what an accelerator takes"
            raise UserError("not-taken", f"no accelerator takes {quoted(name)}: {why}", hint=hint)


def _sent(claim: Claim, number: int, cost: Cost, cycles: float, core: float) -> Sent:
    nodes = claim.region.nodes
    layers = tuple(dict.fromkeys(n.source or n.output.name for n in nodes))
    place = f"{claim.plugin.name}.{number}"
    return Sent(place, claim.region.patterns, layers, tuple(n.op.NAME for n in nodes), claim.region.macs, cost, cycles, core)


def _kept(
    graph: Graph, flow: Flow, core: list[float], taken: int, found: list[Claim], cycles: list[float], refused: list[Refusal],
    only: frozenset[str],
) -> tuple[Kept, ...]:  # fmt: skip
    rows = []
    for n, node in enumerate(graph.nodes):
        if taken >> n & 1 or isinstance(node.op, Offload):
            continue
        reasons = [f"{r.accelerator}: {r.reason}" for r in refused if r.node is node]
        if only and node.op.NAME not in only:
            reasons = ["`--accelerator-only` does not name it"]
        elif offers := [(cost, c) for c, cost in zip(found, cycles, strict=True) if c.nodes >> n & 1]:
            cost, claim = min(offers, key=lambda offer: offer[0] / offer[1].nodes.bit_count())
            reasons = [f"{claim.plugin.name}: the core is cheaper, {core[n]:,.0f} cycles against {cost:,.0f}"]
        rows.append(Kept(node.source or node.output.name, node.op.NAME, core[n], tuple(reasons)))
    return tuple(rows)


def _overlap(graph: Graph, plugins: Sequence[Plugin], sent: dict[str, Sent], core: dict[Node, float]) -> float:
    """Put the nodes in an order in which core and accelerators work at once; how long that takes."""
    beside = {plugin.name for plugin in plugins if plugin.facts.overlaps}
    tasks = []
    for node in graph.nodes:
        region = sent.get(node.op.place) if isinstance(node.op, Offload) else None
        if region is None or not isinstance(node.op, Offload):
            tasks.append(Task(core.get(node, 0.0)))
        elif node.op.accelerator in beside:
            launch = min(region.cost.launch_cycles, region.cycles)
            tasks.append(Task(launch, region.cycles - launch, node.op.accelerator))
        else:
            tasks.append(Task(region.cycles))
    needs = needs_of(graph.nodes)
    order = best_order(tasks, needs)
    graph.nodes = [graph.nodes[n] for n in order]
    return makespan(order, tasks, needs)


def check_given(graph: Graph) -> None:
    """Regions of an IR file, which a person may have edited: does the accelerator take each of them?"""
    given = [node.op for node in graph.nodes if isinstance(node.op, Offload)]
    flow = Flow.of(replace(graph, nodes=flat_nodes(graph.nodes)))
    for name in sorted({op.accelerator for op in given}):
        found, refused = claims(flow, find_accelerator(name))
        masks = {claim.nodes for claim in found}
        for op in given:
            if op.accelerator == name and flow.mask(op.body) not in masks:
                why = next((r.reason for r in refused if r.node in op.body), "")
                several = "together these are not one of its regions: give them different numbers after `on`"
                what = f"{quoted(name)} does not take {_listed(op)}: {why or several}"
                raise UserError("not-taken", what, where=graph.where(op.body[0].output.name), hint=f"remove `on {op.place}`")


def _listed(op: Offload) -> str:
    return ", ".join(f"`{node.output.name}` ({node.op.NAME})" for node in op.body)
