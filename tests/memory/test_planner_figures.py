"""The planner against every order of few buffers, and its figures for many: a change that makes plans larger is noticed."""

from __future__ import annotations

import itertools
import random

import pytest

from intaglio.memory.lifetimes import Buffer
from intaglio.memory.planner import Plan, lower_bound, place_buffers, shared_bytes, sharing


def instance(seed: int, count: int, layers: int, longest: int) -> list[Buffer]:
    rng = random.Random(seed)
    made = []
    for n in range(count):
        first = rng.randrange(layers)
        made.append(Buffer(f"b{n}", rng.choice([1, 30, 64, 100, 256, 700, 1024]), first, first + rng.randrange(longest)))
    return made


def meet(a: Buffer, b: Buffer) -> bool:
    return a.first <= b.last and b.first <= a.last


def least_height(buffers: list[Buffer], step: int) -> int:
    """Some order, each buffer as low as it gets, is the best plan: that by the offsets of a best plan."""
    sizes = {b.name: -(-b.bytes // step) * step for b in buffers}
    best = sum(sizes.values())
    for order in itertools.permutations(buffers):
        at: dict[str, int] = {}
        for b in order:
            taken = sorted((at[o.name], at[o.name] + sizes[o.name]) for o in order if o.name in at and meet(b, o))
            place = 0
            for low, high in taken:
                if low >= place + sizes[b.name]:
                    break
                place = max(place, high)
            at[b.name] = place
        best = min(best, max(at[b.name] + sizes[b.name] for b in buffers))
    return best


@pytest.mark.parametrize("seed", range(25))
def test_plans_of_few_buffers_are_the_best_there_are(seed: int) -> None:
    step = (1, 16, 64)[seed % 3]
    buffers = instance(seed, 6, 5, 4)
    plan, least = place_buffers(buffers, step), least_height(instance(seed, 6, 5, 4), step)
    assert plan == Plan(least, least) and plan.optimal
    assert max(b.offset + -(-b.bytes // step) * step for b in buffers) == least
    assert lower_bound(buffers, step) <= least <= place_buffers(instance(seed, 6, 5, 4), step, search=False).bytes


# By (seed, buffers, layers, longest life): the height without and with search, and the bound that is proven.
FIGURES = {
    (11, 50, 60, 30): (5552, 5472, 5472),
    (21, 30, 25, 30): (8528, 8464, 8464),
    (48, 80, 25, 9): (9056, 9024, 9024),
    (49, 30, 25, 30): (4736, 4592, 4592),
    (51, 30, 60, 9): (2384, 2304, 2304),
    (59, 30, 10, 30): (6176, 6144, 6144),
    (69, 80, 10, 4): (6704, 6608, 6608),
    (129, 80, 60, 20): (6752, 6496, 6496),
    (142, 80, 60, 30): (10080, 10032, 10032),
    (166, 30, 60, 30): (4512, 4384, 4384),
    (193, 80, 25, 9): (8256, 7680, 7680),
}


@pytest.mark.parametrize("case", FIGURES)
def test_figures_of_plans(case: tuple[int, int, int, int]) -> None:
    """A plan that is lower is welcome: write its figure here."""
    quick, searched = place_buffers(instance(*case), 16, search=False), place_buffers(instance(*case), 16)
    assert (quick.bytes, searched.bytes, searched.bound) == FIGURES[case]


@pytest.mark.parametrize(
    ("low", "high", "distance", "shared"),
    [(64, 64, 0, 64), (64, 64, 16, 48), (64, 64, 64, 0), (64, 64, 80, 0), (32, 64, 0, 32), (64, 32, 16, 32), (64, 32, 48, 16),
     (60, 60, 10, 64)],
)  # fmt: skip
def test_what_two_buffers_share(low: int, high: int, distance: int, shared: int) -> None:
    """Sizes and distances in steps of 16: a distance of 10 is none that a bound can count on."""
    assert shared_bytes(Buffer("a", low, 0, 1), Buffer("b", high, 1, 2), distance, 16) == shared


def test_a_result_over_its_operand_makes_a_layer_smaller() -> None:
    a, b, c = Buffer("a", 64, 0, 1), Buffer("b", 64, 1, 2), Buffer("c", 32, 1, 1)
    assert lower_bound([a, b, c], 16) == 160
    assert sharing({(b, a): 16}, 16) == {1: 48} and lower_bound([a, b, c], 16, {(b, a): 16}) == 112
    assert sharing({(b, a): 16, (c, a): 0}, 16) == {1: 48}  # of two results of one operand, one lies over it
    assert sharing({(b, a): 16, (a, c): 0, (c, b): 0}, 16) == {1: 80}


def test_the_distance_is_kept_in_both_directions() -> None:
    for turned in (False, True):
        a, b = Buffer("a", 64, 0, 1), Buffer("b", 64, 1, 2)
        lower, upper = (b, a) if turned else (a, b)
        plan = place_buffers([a, b], 16, apart={(lower, upper): 20})
        assert plan.bytes == 96 and upper.offset - lower.offset == 32


def test_what_is_pinned_stays_and_others_go_around() -> None:
    fixed, free = Buffer("fixed", 64, 0, 3, pinned=True, offset=64), [Buffer(f"f{n}", 64, 0, 3) for n in range(2)]
    plan = place_buffers([fixed, *free], 16)
    assert fixed.offset == 64 and sorted(b.offset for b in free) == [0, 128] and plan.bytes == 192 and plan.bound == 192


def test_what_is_pinned_to_the_start_stays_there() -> None:
    fixed, free = Buffer("fixed", 16, 0, 3, pinned=True, offset=0), Buffer("free", 64, 0, 3)
    assert place_buffers([free, fixed], 16) == Plan(80, 80) and (fixed.offset, free.offset) == (0, 16)


def test_a_pinned_buffer_far_above_is_the_goal_of_the_search() -> None:
    fixed, free = Buffer("fixed", 16, 0, 0, pinned=True, offset=1024), Buffer("free", 16, 0, 0)
    assert place_buffers([fixed, free], 16) == Plan(1040, 32) and free.offset == 0
