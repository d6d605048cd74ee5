"""What `--safety` makes of a program before any C is written: steps, guards, checksums."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np

from intaglio.fitting.weights import Weights
from intaglio.ir.placement import Arena, Kind
from intaglio.ir.types import DType
from intaglio.kernels import lower
from intaglio.kernels.program import Constant, Program
from intaglio.memory import place
from intaglio.memory.regions import Room
from intaglio.package.calls import Call, Stretch
from intaglio.package.safety import GUARD_BYTES, NONE, WORDS, safety_of, steps_of, with_guards
from intaglio.targets.target import find_target
from support.ir_text import graph_of

TARGET = find_target("cortex-m4f")


def call(index: int) -> Call:
    return Call(index, "", f"layer_{index}();", False, ())


def stretch(*calls: int, before: tuple[str, ...] = (), guard: str = "") -> Stretch:
    return Stretch(guard, tuple(map(call, calls)), before=before)


def test_every_layer_is_a_step() -> None:
    assert steps_of([stretch(0)]) == ((stretch(0),),)
    assert steps_of([stretch(0, 1, 2)]) == ((stretch(0),), (stretch(1),), (stretch(2),))
    assert steps_of([stretch(0, 1), stretch(2, guard="c")]) == ((stretch(0),), (stretch(1),), (stretch(2, guard="c"),))
    assert steps_of([]) == ()


def test_what_comes_before_layers_belongs_to_the_first_of_them() -> None:
    first, second = steps_of([stretch(0, 1, before=("n = 3;",), guard="c")])
    assert first == (stretch(0, before=("n = 3;",), guard="c"),) and second == (stretch(1, guard="c"),)
    alone = stretch(before=("n = 3;",))
    assert steps_of([alone, stretch(0, 1)]) == ((alone, stretch(0)), (stretch(1),))


def test_what_comes_behind_all_layers_belongs_to_the_last() -> None:
    alone = stretch(before=("out = n;",))
    assert steps_of([stretch(0, 1), alone]) == ((stretch(0),), (stretch(1), alone))
    assert steps_of([alone]) == ((alone,),), "nothing is lost where there are no layers"


def test_a_loop_is_one_step_with_all_that_is_in_it() -> None:
    begin, inner, end, inner_end = (
        stretch(before=("while (c) {",)), stretch(1, before=("for (;;) {",)), stretch(before=("}",)), stretch(2, before=("}",)),
    )  # fmt: skip
    blocks = [stretch(0), begin, inner, inner_end, stretch(3, 4), end, stretch(5, 6)]
    assert steps_of(blocks) == ((stretch(0),), tuple(blocks[1:6]), (stretch(5),), (stretch(6),))


def a_program(*rooms: Room) -> Program:
    text = """
        input x: f32[1,64]
        input h: f32[1,64]
        const w: f32[64,64] ...
        state h = n
        a: f32[1,64] = exp(x)
        t: f32[64,64] = einsum(a, a, equation="bi,bj->ij")
        b: f32[1,64] = matmul(a, t)
        n: f32[1,64] = add(b, h)
        y: f32[1,64] = matmul(n, w)
        output y
    """
    program = lower(graph_of(text), TARGET)
    program.placement = place(program, TARGET, slots=True, rooms=rooms)
    return program


def test_guards_are_around_everything() -> None:
    program = a_program()
    before, after = program.placement, with_guards(program).placement
    assert before.scratch and before.slots and any(a.region.kind is Kind.STATE for a in before.addresses.values())
    for old, new in ((before.addresses, after.addresses), (before.scratch, after.scratch), (before.slots, after.slots)):
        assert old.keys() == new.keys()
        for key, at in old.items():
            inside = at.region.kind in (Kind.ARENA, Kind.STATE)
            assert new[key] == (replace(at, offset=at.offset + GUARD_BYTES) if inside else at)  # type: ignore[index]
    assert after.arena_bytes == before.arena_bytes + 2 * GUARD_BYTES
    assert after.lower_bound_bytes == before.lower_bound_bytes + 2 * GUARD_BYTES
    assert GUARD_BYTES % 64 == 0, "alignments stay"


def test_every_arena_has_guards_of_its_own() -> None:
    program = a_program(Room("fast", 8192), Room("slow", 65536))
    before, after = program.placement, with_guards(program).placement
    assert len(before.arenas) == 2
    assert after.arenas == tuple(Arena(a.region, a.bytes + 2 * GUARD_BYTES, a.memory) for a in before.arenas)
    assert after.arena_bytes == sum(a.bytes for a in after.arenas)
    assert after.lower_bound_bytes == before.lower_bound_bytes + 4 * GUARD_BYTES


def test_only_what_is_asked_for_is_on() -> None:
    program, blocks = a_program(), [stretch(0, 1)]
    program.constants.clear()
    weights = Weights({}, 0, alignment=16)
    assert safety_of((), program, weights, blocks) is NONE
    for word in WORDS:
        assert getattr(NONE, word) is False
        found = safety_of((word,), program, weights, blocks)
        assert [other for other in WORDS if getattr(found, other)] == [word]
        assert len(found.steps) == (2 if word == "step" else 0) and found.weights_alignment == 16


def test_checksums_are_of_the_weights_in_each_memory() -> None:
    values = np.arange(6, dtype=np.float32), np.arange(4, dtype=np.float32)
    program = a_program()
    constants = [Constant("a", values[0], DType.F32), Constant("b", values[1], DType.F32, memory="spi")]
    program.constants[:] = constants
    apart = Weights({"b": 0}, 32)
    weights = Weights({"a": 8}, 40, apart=(("spi", apart), ("empty", Weights({}, 0))))
    for word in ("crc", "slots"):
        main, other = safety_of((word,), program, weights, ()).blocks
        assert (main.bytes, main.crc) == (40, zlib.crc32(bytes(8) + values[0].tobytes() + bytes(8)))
        assert (other.bytes, other.crc) == (32, zlib.crc32(values[1].tobytes() + bytes(16)))
    assert safety_of(("crc",), program, replace(weights, read=True), ()).blocks == ()
