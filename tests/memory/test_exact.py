"""Best offsets: as low as trying everything, and what is called proven is proven."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio.memory.exact import Piece, best_offsets
from intaglio.memory.lifetimes import Buffer
from intaglio.memory.planner import lower_bound, place_buffers
from support.examples import examples

TINY = st.lists(st.builds(lambda f, n, s: Piece(f, f + n, s), st.integers(0, 5), st.integers(0, 3), st.integers(1, 6)), max_size=6)


def sound(blocks: list[Piece], offsets: list[int]) -> bool:
    return all(
        a.last < b.first or b.last < a.first or at + a.size <= to or to + b.size <= at
        for (a, at), (b, to) in itertools.combinations(zip(blocks, offsets, strict=True), 2)
    )


def least_height(blocks: list[Piece]) -> int:
    """Every order, each block as low as those before it allow."""
    best = sum(b.size for b in blocks)
    for order in itertools.permutations(blocks):
        placed: list[tuple[Piece, int]] = []
        for block in order:
            below = [at + b.size for b, at in placed if b.first <= block.last and block.first <= b.last]
            placed.append((block, max(below, default=0)))
        best = min(best, max((at + b.size for b, at in placed), default=0))
    return best


def load(blocks: list[Piece]) -> int:
    return max((sum(b.size for b in blocks if b.first <= t <= b.last) for t in range(10)), default=0)


@settings(deadline=None)
@given(TINY)
def test_the_search_is_as_good_as_trying_everything(blocks: list[Piece]) -> None:
    least = least_height(blocks)
    found = best_offsets(blocks, sum(b.size for b in blocks) + 1, load(blocks))
    assert found.bound == least
    assert found.offsets is not None
    assert sound(blocks, found.offsets)
    assert max((at + b.size for at, b in zip(found.offsets, blocks, strict=True)), default=0) == least


@settings(deadline=None)
@given(TINY)
def test_a_plan_that_is_best_already_is_proven(blocks: list[Piece]) -> None:
    least = least_height(blocks)
    found = best_offsets(blocks, least, load(blocks))
    assert (found.offsets, found.bound) == (None, least)


def test_work_that_runs_out_proves_nothing() -> None:
    blocks = [Piece(n % 7, n % 7 + n % 4, 1 + n * 5 % 11) for n in range(30)]
    assert best_offsets(blocks, 1000, load(blocks), work=40).bound == load(blocks)


@settings(deadline=None, max_examples=examples(50))
@given(TINY)
def test_the_planner_calls_a_plan_best_only_when_it_is(blocks: list[Piece]) -> None:
    buffers = [Buffer(f"b{n}", b.size, b.first, b.last) for n, b in enumerate(blocks)]
    plan = place_buffers(buffers, 1)
    assert plan.optimal
    assert plan.bytes == least_height(blocks)


@settings(deadline=None)
@given(TINY.filter(len), st.integers(0, 20))
def test_a_pinned_buffer_stays_and_the_others_go_around(blocks: list[Piece], at: int) -> None:
    buffers = [Buffer(f"b{n}", b.size, b.first, b.last) for n, b in enumerate(blocks)]
    buffers[0].offset, buffers[0].pinned = at, True
    plan = place_buffers(buffers, 1)
    assert buffers[0].offset == at
    assert sound(blocks, [b.offset for b in buffers])
    assert plan.bytes >= max(lower_bound(buffers, 1), at + blocks[0].size)


def test_the_bound_rises_where_the_busiest_layer_cannot_be_met() -> None:
    blocks = [Piece(0, 0, 4), Piece(0, 1, 3), Piece(1, 2, 2), Piece(1, 4, 2), Piece(2, 4, 2), Piece(4, 7, 3), Piece(5, 5, 4)]
    assert load(blocks) == 7
    assert least_height(blocks) == best_offsets(blocks, 9, 7).bound == 8
    assert place_buffers([Buffer("b", b.size, b.first, b.last) for b in blocks], 1).optimal
