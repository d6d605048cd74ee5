"""The cheapest choice of regions: against every choice there is."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio.passes.offload.partition import Candidate, choose
from support.examples import examples


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[float], list[int], list[Candidate]]:
    """A graph of up to twelve nodes, and regions of it that are whole: with no way out and back in."""
    count = draw(st.integers(1, 12))
    needs = [draw(st.integers(0, (1 << n) - 1)) & draw(st.integers(0, (1 << n) - 1)) for n in range(count)]
    core = [float(draw(st.integers(0, 20))) for _ in range(count)]
    masks = draw(st.lists(st.integers(1, (1 << count) - 1), max_size=8))
    found = []
    for key, mask in enumerate(masks):
        small = mask & draw(st.integers(0, (1 << count) - 1))
        if small and convex(small, needs):
            found.append(Candidate(small, float(draw(st.integers(0, 25))), key))
    return core, needs, found


def convex(mask: int, needs: list[int]) -> bool:
    before = ancestors(needs)
    above = 0
    for n in range(len(needs)):
        above |= before[n] if mask >> n & 1 else 0
    return not any(above >> n & 1 and not mask >> n & 1 and before[n] & mask for n in range(len(needs)))


def ancestors(needs: list[int]) -> list[int]:
    before: list[int] = []
    for wanted in needs:
        mask = wanted
        for n, other in enumerate(before):
            mask |= other if wanted >> n & 1 else 0
        before.append(mask)
    return before


def ordered(needs: list[int], regions: list[Candidate]) -> bool:
    """Can regions and nodes be done one after the other?"""
    groups = [r.nodes for r in regions]
    taken = sum(groups)
    groups += [1 << n for n in range(len(needs)) if not taken >> n & 1]
    done = 0
    while groups:
        ready = [g for g in groups if not any(g >> n & 1 and needs[n] & ~(done | g) for n in range(len(needs)))]
        if not ready:
            return False
        done |= sum(ready)
        groups = [g for g in groups if g not in ready]
    return True


def cheapest(core: list[float], needs: list[int], candidates: list[Candidate]) -> float:
    best = sum(core)
    for choice in range(1 << len(candidates)):
        chosen = [c for n, c in enumerate(candidates) if choice >> n & 1]
        taken = 0
        for c in chosen:
            if taken & c.nodes:
                break
            taken |= c.nodes
        else:
            cost = sum(c.cost for c in chosen) + sum(x for n, x in enumerate(core) if not taken >> n & 1)
            if cost < best and ordered(needs, chosen):
                best = cost
    return best


@given(problems())
@settings(max_examples=examples(300), deadline=None)
def test_nothing_is_cheaper(problem: tuple[list[float], list[int], list[Candidate]]) -> None:
    core, needs, candidates = problem
    choice = choose(core, needs, candidates)
    assert choice.proven
    assert choice.cost == cheapest(core, needs, candidates)
    assert ordered(needs, list(choice.regions))
    taken = sum(c.nodes for c in choice.regions)
    assert choice.cost == sum(c.cost for c in choice.regions) + sum(x for n, x in enumerate(core) if not taken >> n & 1)


def test_two_regions_that_wait_for_each_other_are_not_both_taken() -> None:
    """0 -> 1 and 2 -> 3, with {0, 3} and {1, 2}: each is whole, together they are a circle."""
    needs = [0, 1, 0, 4]
    choice = choose([10.0] * 4, needs, [Candidate(0b1001, 1.0, 0), Candidate(0b0110, 2.0, 1)])
    assert [c.key for c in choice.regions] == [0]
    assert choice.cost == 21.0


def test_a_long_chain_with_every_interval_is_quick() -> None:
    count = 300
    needs = [0 if n == 0 else 1 << n - 1 for n in range(count)]
    spans = [(start, size) for start in range(count) for size in range(1, 9) if start + size <= count]
    regions = [Candidate((1 << size) - 1 << start, 10.0 + size, start) for start, size in spans]
    choice = choose([5.0] * count, needs, regions)
    assert choice.proven
    assert choice.cost == sum(10 + size for size in [8] * 37 + [4])
