"""Offsets: what lives at the same time never shares a byte, and little is wasted."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio.memory import planner
from intaglio.memory.lifetimes import Buffer
from intaglio.memory.planner import lower_bound, place_buffers

LIVES = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(0, 20), st.integers(0, 6)), min_size=0, max_size=25
)  # bytes, first layer, layers it lives on


def buffers(lives: list[tuple[int, int, int]]) -> list[Buffer]:
    return [Buffer(f"b{n}", size, first, first + more) for n, (size, first, more) in enumerate(lives)]


@settings(deadline=None)
@given(LIVES, st.sampled_from([1, 16, 64]))
def test_buffers_alive_together_never_overlap_and_are_aligned(lives: list[tuple[int, int, int]], alignment: int) -> None:
    placed = buffers(lives)
    top = place_buffers(placed, alignment).bytes
    for a, b in itertools.combinations(placed, 2):
        if a.first <= b.last and b.first <= a.last:
            assert a.offset + a.bytes <= b.offset or b.offset + b.bytes <= a.offset
    assert all(b.offset >= 0 and b.offset % alignment == 0 and b.offset + b.bytes <= top for b in placed)
    assert top >= lower_bound(placed, alignment)


@settings(deadline=None)
@given(LIVES)
def test_the_same_lifetimes_give_the_same_plan(lives: list[tuple[int, int, int]]) -> None:
    first, second = buffers(lives), buffers(lives)
    assert place_buffers(first, 64) == place_buffers(second, 64)
    assert [b.offset for b in first] == [b.offset for b in second]


def test_the_lower_bound_is_the_busiest_layer() -> None:
    assert lower_bound(buffers([(100, 0, 1), (50, 1, 1), (70, 2, 0)]), 1) == 150


def test_a_chain_of_layers_takes_two_places() -> None:
    placed = buffers([(64, n, 1) for n in range(10)])
    assert place_buffers(placed, 64).bytes == 128


def test_a_gap_between_two_long_lives_is_filled() -> None:
    """The first goes, the two others stay: the late small one fits where it was."""
    assert place_buffers(buffers([(128, 0, 1), (64, 0, 5), (64, 1, 4), (128, 2, 1)]), 64).bytes == 256


def test_nothing_needs_nothing() -> None:
    assert place_buffers([], 64).bytes == 0


def test_buffers_meet_where_both_are_alive() -> None:
    early, late = Buffer("early", 1, 0, 2), Buffer("late", 1, 2, 5)
    assert early.meets(late) and late.meets(early) and early.meets(early)
    behind = Buffer("behind", 1, 3, 3)
    assert not early.meets(behind) and not behind.meets(early)


def test_the_exact_search_finds_what_no_order_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """And proves it, in steps of the alignment."""
    monkeypatch.setattr(planner._Packing, "climb", lambda self, starts, goal: starts[0])
    lives = [(80, 5, 1), (32, 4, 2), (16, 1, 4), (32, 3, 2), (96, 2, 1), (32, 0, 4), (80, 3, 3)]
    assert place_buffers(buffers(lives), 16, search=False).bytes == 272
    assert place_buffers(buffers(lives), 16) == planner.Plan(256, 256)
