"""Which nodes go where, at the least cost in all: an exact answer to a small problem in bit masks.

    nodes 0..n-1 in topological order, each with a cost on the core
    candidates: sets of nodes that an accelerator would take as one region, with what that costs, launch and transfers included

Every node is computed once, by the core or in one region; regions must not wait for each other in a circle. Without the last
rule the cheapest choice is a shortest path: states are sets of nodes that are done, a step does the first node that is not, in
any of the ways it can be done. Candidates that share no node are independent, so each such group is a path of its own. If the
choice has a circle, one of the regions in it has to go: each is forbidden in turn, and the cheapest choice without a circle is
the answer (best first, so it is proven).
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

MOST_STATES = 50_000  # of one group; beyond this only the cheapest are kept, and the result is not proven
MOST_TRIES = 500


@dataclass(frozen=True, slots=True)
class Candidate:
    nodes: int  # a bit mask
    cost: float
    key: int  # whose it is, for the caller


@dataclass(frozen=True, slots=True)
class Choice:
    regions: tuple[Candidate, ...]
    cost: float
    proven: bool  # nothing is cheaper


def choose(core: Sequence[float], needs: Sequence[int], candidates: Sequence[Candidate]) -> Choice:
    """`core`: cost of each node there; `needs`: for each node, the mask of the nodes whose results it reads."""
    proven = True
    queue: list[tuple[float, int, frozenset[int], tuple[Candidate, ...]]] = []
    tries = 0
    known: dict[tuple[int, ...], tuple[float, tuple[Candidate, ...], bool]] = {}

    def push(forbidden: frozenset[int]) -> None:
        nonlocal proven, tries
        cost, regions, exact = _cheapest(core, [c for n, c in enumerate(candidates) if n not in forbidden], known)
        proven = proven and exact
        tries += 1
        heapq.heappush(queue, (cost, tries, forbidden, regions))

    push(frozenset())
    place = {id(c): n for n, c in enumerate(candidates)}
    seen = {frozenset[int]()}
    while True:
        cost, _, forbidden, regions = heapq.heappop(queue)
        circle = _circle(len(core), needs, regions)
        if not circle:
            return Choice(regions, cost, proven)
        if tries > MOST_TRIES:  # one of each circle goes, whichever saves least
            least = min(circle, key=lambda c: _core_cost(core, c.nodes) - c.cost)
            proven, queue = False, []
            push(forbidden | {place[id(least)]})
            continue
        for region in circle:
            without = forbidden | {place[id(region)]}
            if without not in seen:
                seen.add(without)
                push(without)


def _core_cost(core: Sequence[float], nodes: int) -> float:
    return sum(core[n] for n in _bits(nodes))


def _bits(mask: int) -> list[int]:
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def _cheapest(
    core: Sequence[float], candidates: Sequence[Candidate], known: dict[tuple[int, ...], tuple[float, tuple[Candidate, ...], bool]]
) -> tuple[float, tuple[Candidate, ...], bool]:
    """The cheapest choice if circles did not matter. `known` has the groups that were solved before."""
    total, exact = sum(core), True
    chosen: list[Candidate] = []
    for group in _groups(candidates):
        key = tuple(sorted(id(c) for c in group))
        if key not in known:
            known[key] = _path(core, group)
        cost, regions, proven = known[key]
        total += cost - _core_cost(core, _union(group))
        chosen += regions
        exact = exact and proven
    return total, tuple(chosen), exact


def _union(group: Sequence[Candidate]) -> int:
    mask = 0
    for candidate in group:
        mask |= candidate.nodes
    return mask


def _groups(candidates: Sequence[Candidate]) -> list[list[Candidate]]:
    """Candidates that share nodes, directly or through others."""
    groups: list[tuple[int, list[Candidate]]] = []
    for candidate in candidates:
        mask, members = candidate.nodes, [candidate]
        apart = []
        for other, others in groups:
            if other & mask:
                mask |= other
                members = others + members
            else:
                apart.append((other, others))
        groups = [*apart, (mask, members)]
    return [members for _, members in groups]


def _path(core: Sequence[float], group: Sequence[Candidate]) -> tuple[float, tuple[Candidate, ...], bool]:
    """The shortest path from nothing done to all nodes of the group done."""
    every = _union(group)
    ways: dict[int, list[Candidate]] = {n: [] for n in _bits(every)}
    for candidate in group:
        for n in _bits(candidate.nodes):
            ways[n].append(candidate)
    states: dict[int, tuple[float, Candidate | None, int]] = {0: (0.0, None, 0)}  # done: cost, the last step, done before it
    exact = True
    before: dict[int, dict[int, tuple[float, Candidate | None, int]]] = {}  # by how far the path is, for the way back
    for n in _bits(every):
        here = {done: state for done, state in states.items() if not done >> n & 1}
        if len(here) > MOST_STATES:
            exact = False
            here = dict(sorted(here.items(), key=lambda item: item[1][0])[:MOST_STATES])
        states = {done: state for done, state in states.items() if done >> n & 1}
        before.setdefault(n, here)
        for done, (cost, _, _) in here.items():
            steps: list[tuple[int, float, Candidate | None]] = [(1 << n, core[n], None)]
            steps += [(c.nodes, c.cost, c) for c in ways[n] if not c.nodes & done]
            for nodes, more, way in steps:
                new = done | nodes
                if new not in states or cost + more < states[new][0]:
                    states[new] = (cost + more, way, done)
    cost = states[every][0]
    chosen: list[Candidate] = []
    made: dict[int, tuple[float, Candidate | None, int]] = {every: states[every]}
    for here in before.values():
        made |= here
    mask = every
    while mask:
        _, step, mask = made[mask]
        if step is not None:
            chosen.append(step)
    return cost, tuple(reversed(chosen)), exact


def _circle(count: int, needs: Sequence[int], regions: Sequence[Candidate]) -> list[Candidate]:
    """Regions that wait for each other; none where there is an order."""
    region_of = {n: i for i, region in enumerate(regions) for n in _bits(region.nodes)}
    group = [region_of.get(n, len(regions) + n) for n in range(count)]
    wants: dict[int, set[int]] = {}
    for n in range(count):
        wants.setdefault(group[n], set()).update(group[m] for m in _bits(needs[n]) if group[m] != group[n])
    while True:  # what waits for nothing, or for nobody in the circle, goes away
        free = [g for g, others in wants.items() if not others]
        if not free:
            break
        for g in free:
            del wants[g]
        gone = set(free)
        for others in wants.values():
            others -= gone
    if not wants:
        return []
    path = [next(iter(wants))]  # each of these waits for another of them: walk until one comes again
    while path[-1] not in path[:-1]:
        path.append(next(iter(wants[path[-1]])))
    circle = path[path.index(path[-1]) : -1]
    return [regions[g] for g in circle if g < len(regions)]
