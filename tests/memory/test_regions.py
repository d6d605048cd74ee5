"""Arenas in several memories: never above the size of one, aligned, no overlap, the busiest buffers in the fastest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio.errors import ModelError, OurFault, UserError
from intaglio.ir.graph import Graph
from intaglio.ir.placement import ARENA, NOWHERE, Arena, arena_in
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.checker import check
from intaglio.memory.lifetimes import Buffer, Storage, align
from intaglio.memory.place import placed_buffers
from intaglio.memory.plan_file import plan_text, read_plan
from intaglio.memory.planner import place_buffers
from intaglio.memory.regions import Room, rooms_of, spread
from intaglio.targets.memories import Memory
from intaglio.targets.target import find_target
from support.examples import examples
from support.ir_text import graph_of
from support.placing import at, memory_text, move, read_again, region_of
from support.random_graphs import graphs

TARGET = find_target("cortex-m4f")
_CHAIN = """
    input x: f32[1,64]
    input z: f32[1,64]
    const w: f32[64,64] ...
    a: f32[1,64] = exp(x)
    b: f32[1,64] = matmul(a, w)
    c: f32[1,64] = add(b, z)
    d: f32[1,64] = matmul(c, w)
    y: f32[1,64] = add(d, a)
    output y
"""


def placed(graph: Graph, *sizes: int, slots: bool = True) -> Program:
    program = lower(graph, TARGET)
    program.placement = place(program, TARGET, slots=slots, rooms=[Room(f"m{n}", size) for n, size in enumerate(sizes)])
    return program


def test_what_fits_into_the_fastest_is_there_alone() -> None:
    program = placed(graph_of(_CHAIN), 4096, 65536)
    assert program.arenas == (Arena(ARENA, program.arena_bytes, "m0"),)
    assert {str(address.region) for address in program.placement.addresses.values()} == {"arena", "input", "output"}


def test_where_no_buffer_fits_into_the_fastest_the_next_has_them_all() -> None:
    program = placed(graph_of(_CHAIN), 128, 65536)
    assert [(a.region, a.memory) for a in program.arenas] == [(ARENA, "m1")]


def test_buffers_spill() -> None:
    alone = placed(graph_of(_CHAIN), 65536)
    program = placed(graph_of(_CHAIN), 512, 512)
    assert alone.arena_bytes > 512 and [(a.region, a.memory) for a in program.arenas] == [(ARENA, "m0"), (arena_in("m1"), "m1")]
    assert all(a.bytes <= 512 for a in program.arenas)
    assert program.arena_bytes == sum(a.bytes for a in program.arenas) >= program.lower_bound_bytes
    regions = {b.region for b in placed_buffers(program, TARGET)}
    assert regions == {ARENA, arena_in("m1")}


def test_the_text_says_the_region_and_is_read_again() -> None:
    program = placed(graph_of(_CHAIN), 256, 512, slots=False)
    text = memory_text(program)
    assert "@arena:m1+0" in text
    kept = read_again(text, program, TARGET)
    assert memory_text(kept) == text
    kept.placement = place(kept, TARGET, rooms=[Room("m0", 256), Room("m1", 512)])
    assert memory_text(kept) == text and kept.arenas == program.arenas


def test_a_region_that_is_not_there_is_told() -> None:
    program = placed(graph_of(_CHAIN), 256, 512, slots=False)
    again = read_again(memory_text(program).replace("@arena:m1", "@arena:attic"), program, TARGET)
    with pytest.raises(ModelError, match="its place is in the arena, or in `arena:m0`, `arena:m1`"):
        place(again, TARGET, rooms=[Room("m0", 256), Room("m1", 512)])


def test_nothing_is_spread_where_it_does_not_fit() -> None:
    program = placed(graph_of(_CHAIN), 256, 256)
    assert program.arenas == () and program.arena_bytes == placed(graph_of(_CHAIN), 65536).arena_bytes


def test_the_checker_knows_memories_apart() -> None:
    program = placed(graph_of(_CHAIN), 512, 512)
    check(program)
    smaller = tuple(replace(a, bytes=a.bytes - TARGET.alignment) for a in program.arenas)
    program.placement = replace(program.placement, arenas=smaller)
    with pytest.raises(OurFault, match="lies outside of the arena"):
        check(program)


def test_the_checker_finds_a_region_that_is_not_there_and_one_that_is_shared() -> None:
    program = placed(graph_of(_CHAIN), 256, 512, slots=False)
    value = next(v for v in program.graph.values() if region_of(program, v) == "arena:m1")
    move(program, value, at("arena:attic", 0))
    with pytest.raises(OurFault, match="there is no region `arena:attic`"):
        check(program)
    others = [v for v in program.graph.values() if region_of(program, v) == "arena" and v is not value]
    move(program, value, program.placement.addresses[others[0]])
    with pytest.raises(OurFault, match=r"given away|writes over|shares memory"):
        check(program)


def test_the_busiest_stay_in_the_fast_memory() -> None:
    """Of two buffers of a size, the one that a matrix product reads."""
    text = """
        input x: f32[1,64]
        const w: f32[64,64] ...
        a: f32[1,64] = exp(x)
        h: f32[1,64] = exp(a)
        b: f32[1,64] = matmul(h, w)
        c: f32[1,64] = exp(b)
        d: f32[1,64] = add(c, a)
        y: f32[1,64] = exp(d)
        output y
    """
    program = placed(graph_of(text), 512, 4096, slots=False)
    found = {v.name: region_of(program, v) for v in program.graph.values()}
    assert (found["a"], found["h"], found["b"]) == ("arena:m1", "arena", "arena")


def test_the_memory_of_the_variables_keeps_some_bytes() -> None:
    main = Memory("main", "ram", 0, 4096)
    fast = Memory("fast", "ram", 1 << 16, 1024, bytes_per_cycle=8, holds=("arena",))
    assert rooms_of([main, fast], main, 1000) == (Room("fast", 1024), Room("main", 3096))
    assert rooms_of([main], main, 1000) == ()


lifetimes = st.tuples(st.integers(1, 3000), st.integers(0, 12), st.integers(0, 12))


@settings(max_examples=examples(150), deadline=None)
@given(
    st.lists(lifetimes, min_size=1, max_size=14),
    st.lists(st.integers(64, 6000), min_size=1, max_size=4),
    st.sampled_from([0, 64, 512]),
)
def test_no_plan_is_above_a_memory_and_none_overlaps(rows: list[tuple[int, int, int]], sizes: list[int], state: int) -> None:
    program = lower(graph_of(_CHAIN), TARGET)
    buffers = [Buffer(f"b{n}", size, min(a, b), max(a, b)) for n, (size, a, b) in enumerate(rows)]
    plan = place_buffers(buffers, 16)
    before = [b.offset for b in buffers]
    rooms = [Room(f"m{n}", size) for n, size in enumerate(sizes)]
    arenas = spread(program, Storage(buffers, {}, state, {}), rooms, 16, plan.bytes)
    if not arenas:
        assert [b.offset for b in buffers] == before and all(b.region == ARENA for b in buffers)
        assert align(state + plan.bytes, 16) > max(sizes)
        return
    limits = {room.memory: room.bytes for room in rooms}
    of = {a.region: a for a in arenas}
    assert arenas[0].region == ARENA and len(of) == len(arenas)
    assert all(a.bytes <= limits[a.memory] for a in arenas)
    for n, one in enumerate(buffers):
        base = state if one.region == ARENA else 0
        assert one.offset % 16 == 0 and base + one.offset + one.bytes <= of[one.region].bytes
        for other in buffers[:n]:
            apart = one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset
            assert one.region != other.region or not one.meets(other) or apart


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs(), st.integers(0, 2000), st.integers(0, 2000))
def test_any_graph_has_a_sound_plan_in_two_memories(graph: Graph, fast: int, slow: int) -> None:
    program = placed(graph, fast, slow)  # checked inside
    assert all(a.bytes <= size for a in program.arenas for n, size in enumerate((fast, slow)) if a.memory == f"m{n}")


def test_a_plan_of_several_memories_is_written_and_kept(tmp_path: Path) -> None:
    program = placed(graph_of(_CHAIN), 512, 512)
    text = plan_text(placed_buffers(program, TARGET))
    assert text.startswith("buffer,bytes,first,last,offset,pinned,region\n") and ",arena:m1\n" in text
    (tmp_path / "plan.csv").write_text(text.replace(",0,arena", ",1,arena"))
    again = lower(graph_of(_CHAIN), TARGET)
    rooms = [Room("m0", 512), Room("m1", 512)]
    again.placement = place(again, TARGET, slots=True, pinned=read_plan(tmp_path / "plan.csv"), rooms=rooms)
    assert plan_text(placed_buffers(again, TARGET)) == text and again.arenas == program.arenas
    (tmp_path / "plan.csv").write_text("buffer,offset,region\nb,0,arena:attic\n")
    with pytest.raises(UserError, match="unknown region `arena:attic` for `b`; regions: `arena`, `arena:m0`, `arena:m1`"):
        place(lower(graph_of(_CHAIN), TARGET), TARGET, slots=True, pinned=read_plan(tmp_path / "plan.csv"), rooms=rooms)
    (tmp_path / "plan.csv").write_text("buffer,offset,region\nb,64000,arena:m1\n")
    with pytest.raises(UserError, match="no plan has room for all buffers with `b` in `arena:m1`"):
        place(lower(graph_of(_CHAIN), TARGET), TARGET, slots=True, pinned=read_plan(tmp_path / "plan.csv"), rooms=rooms)


def test_a_second_plan_forgets_the_first() -> None:
    program = placed(graph_of(_CHAIN), 512, 512)
    assert arena_in("m1") in {b.region for b in placed_buffers(program, TARGET)}
    program.placement = NOWHERE
    program.placement = place(program, TARGET, slots=True, rooms=[Room("m0", 65536), Room("m1", 512)])
    assert {address.region for address in program.placement.slots.values()} == {ARENA}
    assert [a.memory for a in program.arenas] == ["m0"]
