"""The checker shares no code with the planner: it finds every fault planted into a sound plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from intaglio.errors import OurFault
from intaglio.ir.graph import Value
from intaglio.ir.program import ValueArg
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.checker import check
from intaglio.memory.share import share_parts
from support.ir_text import TARGET, graph_of
from support.placing import at, move, move_scratch, move_slot, offset_of

TEXT = """
    input x: f32[1,64]
    input h: f32[1,64]
    const w: f32[64,64] ...
    const u: f32[64,64] ...
    state h = n
    a: f32[1,64] = matmul(x, w)
    b: f32[1,64] = matmul(a, u)
    c: f32[1,64] = transpose(b, perm=(0,1))
    v: f32[64] = reshape(b, shape=(64))
    d: f32[64] = exp(v)
    t: f32[64,64] = einsum(d, d, equation="i,j->ij")
    m: f32[1,64] = matmul(a, t)
    n: f32[1,64] = add(h, m)
    y: f32[1,64] = add(c, n)
    output y
"""


def placed() -> tuple[Program, dict[str, Value]]:
    program = lower(graph_of(TEXT), TARGET)
    program.placement = place(program, TARGET)
    return program, {v.name: v for v in program.graph.values()}


def test_a_sound_plan_passes() -> None:
    program, values = placed()
    check(program)
    assert program.placement.of(values["v"]) == program.placement.of(values["b"])
    assert program.layers[5].name in program.placement.scratch


def _move(program: Program, value: Value, to: int) -> None:
    move(program, value, at("arena", to))


def _scratch(program: Program) -> int:
    return program.placement.scratch[program.layers[5].name].offset


def _move_scratch(program: Program, to: int) -> None:
    move_scratch(program, program.layers[5].name, at("arena", to))


def _shrink(program: Program, arena_bytes: int) -> None:
    program.placement = replace(program.placement, arena_bytes=arena_bytes)


FAULTS: dict[str, tuple[Callable[[Program, dict[str, Value]], None], str]] = {
    "one that is still read": (lambda p, v: _move(p, v["b"], offset_of(p, v["a"])), "writes over what it reads"),
    "one that is read later": (lambda p, v: _move(p, v["c"], offset_of(p, v["a"])), "reads `a`, whose memory was given away"),
    "one that overlaps by a byte": (lambda p, v: _move(p, v["d"], offset_of(p, v["a"]) + 255), "memory was given away"),
    "one behind the end": (lambda p, v: _move(p, v["t"], p.arena_bytes - 64), "lies outside of the arena"),
    "one before the start": (lambda p, v: _move(p, v["t"], -64), "lies outside of the arena"),
    "an arena that is too small": (lambda p, v: _shrink(p, 1024), "lies outside of the arena"),
    "one in the state": (lambda p, v: _move(p, v["a"], 0), "`a` lies in the state"),
    "scratch over an operand": (lambda p, v: _move_scratch(p, offset_of(p, v["t"])), "memory was given away"),
    "scratch over the output": (lambda p, v: _move(p, v["m"], _scratch(p)), "scratch and output overlap"),
    "scratch outside": (lambda p, v: _move_scratch(p, p.arena_bytes), "outside of the arena"),
    "the next state overwritten": (lambda p, v: _drop_after(p, v), "the next state `n` is overwritten"),
}


def _drop_after(program: Program, values: dict[str, Value]) -> None:
    """The sum that is the output goes over the next state, by a kernel that may."""
    move(program, values["y"], program.placement.addresses[values["n"]])
    program.layers[-1].kernel.in_place = True


@pytest.mark.parametrize("name", FAULTS)
def test_the_checker_finds(name: str) -> None:
    program, values = placed()
    plant, message = FAULTS[name]
    plant(program, values)
    with pytest.raises(OurFault, match=message):
        check(program)


def test_in_place_is_only_for_kernels_that_can() -> None:
    program, values = placed()
    layer = next(n for n in program.layers if n.node.output.name == "d")
    move(program, values["d"], program.placement.addresses[values["b"]])
    _move(program, values["c"], offset_of(program, values["t"]))
    layer.kernel.in_place = False
    with pytest.raises(OurFault, match="writes over what it reads"):
        check(program)


def test_in_place_is_only_for_all_of_the_operand() -> None:
    program, values = placed()
    _move(program, values["d"], offset_of(program, values["b"]) + 64)
    with pytest.raises(OurFault, match=r"writes over what it reads|memory was given away"):
        check(program)


def test_a_kernel_writes_over_no_other_argument_than_its_own() -> None:
    program, values = placed()
    layer = next(each for each in program.layers if each.node.output.name == "n")
    assert [a.value.name for a in layer.arguments if isinstance(a, ValueArg)] == ["h", "m", "n"]
    move(program, values["n"], program.placement.addresses[values["m"]])
    layer.kernel.in_place, layer.kernel.over = True, 1
    check(program)
    layer.kernel.over = 0
    with pytest.raises(OurFault, match="`n` writes over what it reads: `m`"):
        check(program)


ROLLED = """
    input x: f32[1,1,4]
    input k: f32[1,3,4]
    state k = b
    b: f32[1,3,4] = roll(k, x, axis=1)
    y: f32[1,3,4] = exp(b)
    output y
"""


def test_a_state_that_rolls_stays_where_it_is() -> None:
    program = lower(graph_of(ROLLED), TARGET)
    program.placement = place(program, TARGET)
    values = {v.name: v for v in program.graph.values()}
    assert program.placement.of(values["b"]) == program.placement.of(values["k"]) == at("state", 0)


def test_a_state_that_is_read_later_is_not_overwritten() -> None:
    program = lower(graph_of(ROLLED.replace("exp(b)", "add(b, k)")), TARGET)
    program.placement = place(program, TARGET)
    values = {v.name: v for v in program.graph.values()}
    assert program.placement.of(values["b"]) != program.placement.of(values["k"])
    move(program, values["b"], program.placement.addresses[values["k"]])
    with pytest.raises(OurFault, match="writes into the state"):
        check(program)


LOOP = """
    input x: f32[1,64]
    const t: bool[] ...
    const o: f32[] ...
    const w: f32[64,64] ...
    a: f32[1,64] = matmul(x, w)
    c: bool[], h: f32[1,64] = loop_start(t, x)
    e: f32[1,64] = exp(h)
    b: f32[1,64] = matmul(e, w)
    g: f32[1,64] = add(b, a)
    s: f32[] = reduce(g, kind="sum", axes=(0,1), keepdims=false)
    d: bool[] = less(s, o)
    c2: bool[], k: f32[1,64] = loop_end(c, h, d, g, carried=2)
    y: f32[1,64] = neg(k)
    output y
"""


def looped() -> tuple[Program, dict[str, Value]]:
    program = lower(graph_of(LOOP), TARGET)
    program.placement = place(program, TARGET)
    check(program)
    return program, {value.name: value for value in program.graph.values()}


def test_what_a_turn_overwrites_is_missed_in_the_next() -> None:
    program, values = looped()  # `a` is read for the last time before `s` is written, but again in the next turn
    move(program, values["s"], at("arena", offset_of(program, values["a"])))
    with pytest.raises(OurFault, match="reads `a`, whose memory was given away"):
        check(program)


def test_what_a_loop_carries_stays_where_it_is() -> None:
    program, values = looped()
    move(program, values["k"], at("arena", offset_of(program, values["g"])))
    with pytest.raises(OurFault, match="`c2` writes over what it reads: `g`"):
        check(program)


def test_parts_of_an_output_lie_in_the_room_it_has_in_the_arena() -> None:
    text = """
        input x: f32[1,16]
        const w: f32[16,16] ...
        a: f32[1,16] = matmul(x, w)
        b: f32[1,16] = exp(a)
        y: f32[2,16] = concat(a, b, axis=0)
        output y
    """
    program, _ = share_parts(lower(graph_of(text), TARGET), TARGET, slots=True)
    program.placement = place(program, TARGET, slots=True)
    check(program)
    values = {v.name: v for v in program.graph.values()}
    assert str(program.placement.of(values["b"])) == "@=y+64", "a part of the output"
    move_slot(program, ("input", 0), program.placement.slots["output", 0])
    with pytest.raises(OurFault, match="`a` writes over what it reads: `x`"):
        check(program)


def test_an_output_that_is_copied_does_not_lie_on_its_source() -> None:
    """It is made in the arena, and copied at the end to the room that it has there."""
    program = lower(graph_of("input x: f32[1,64]\n z: f32[1,64] = exp(x)\n y: f32[1,64] = neg(x)\n output y\n output z"), TARGET)
    program.placement = place(program, TARGET, slots=True)
    end = program.arena_bytes
    program.placement = replace(program.placement, arena_bytes=end + 1024)
    move(program, next(v for v in program.graph.values() if v.name == "y"), at("arena", end + 256))
    for beside in (-255, -4, 4, 255):
        move_slot(program, ("output", 0), at("arena", end + 256 + beside))
        with pytest.raises(OurFault, match="the output `y` shares memory with another"):
            check(program)
    for apart in (-256, 0, 256):
        move_slot(program, ("output", 0), at("arena", end + 256 + apart))
        check(program)
