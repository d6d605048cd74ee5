"""The checker shares no code with the planner: it finds every fault planted into a sound plan."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from intaglio.errors import OurFault
from intaglio.ir.graph import Address, Value
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.checker import check
from support.ir_text import TARGET, graph_of

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
    place(program, TARGET)
    return program, {v.name: v for v in program.graph.values()}


def test_a_sound_plan_passes() -> None:
    program, values = placed()
    check(program)
    assert values["v"].address == values["b"].address
    assert program.layers[5].scratch_offset >= 0


def _at(value: Value) -> int:
    assert value.address is not None
    return value.address.offset


def _move(program: Program, value: Value, to: int) -> None:
    value.address = Address("arena", to)


def _scratch_on(program: Program, value: Value) -> None:
    layer = next(n for n in program.layers if n.scratch_offset >= 0)
    layer.scratch_offset = _at(value)


FAULTS: dict[str, tuple[Callable[[Program, dict[str, Value]], None], str]] = {
    "one that is still read": (lambda p, v: _move(p, v["b"], _at(v["a"])), "writes over what it reads"),
    "one that is read later": (lambda p, v: _move(p, v["c"], _at(v["a"])), "reads `a`, whose memory was given away"),
    "one that overlaps by a byte": (lambda p, v: _move(p, v["d"], _at(v["a"]) + 255), "memory was given away"),
    "one behind the end": (lambda p, v: _move(p, v["t"], p.arena_bytes - 64), "lies outside of the arena"),
    "one before the start": (lambda p, v: _move(p, v["t"], -64), "lies outside of the arena"),
    "an arena that is too small": (lambda p, v: setattr(p, "arena_bytes", 1024), "lies outside of the arena"),
    "one in the state": (lambda p, v: _move(p, v["a"], 0), "`a` lies in the state"),
    "scratch over an operand": (lambda p, v: _scratch_on(p, v["t"]), "memory was given away"),
    "scratch over the output": (lambda p, v: _move(p, v["m"], p.layers[5].scratch_offset), "scratch and output overlap"),
    "scratch outside": (lambda p, v: setattr(p.layers[5], "scratch_offset", p.arena_bytes), "outside of the arena"),
    "the next state overwritten": (lambda p, v: _drop_after(p, v), "the next state `n` is overwritten"),
}


def _drop_after(program: Program, values: dict[str, Value]) -> None:
    """The sum that is the output goes over the next state, by a kernel that may."""
    values["y"].address = values["n"].address
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
    values["d"].address = values["b"].address
    values["c"].address = Address("arena", _at(values["t"]))
    layer.kernel.in_place = False
    with pytest.raises(OurFault, match="writes over what it reads"):
        check(program)


def test_in_place_is_only_for_all_of_the_operand() -> None:
    program, values = placed()
    values["d"].address = Address("arena", _at(values["b"]) + 64)
    with pytest.raises(OurFault, match=r"writes over what it reads|memory was given away"):
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
    place(program, TARGET)
    values = {v.name: v for v in program.graph.values()}
    assert values["b"].address == values["k"].address == Address("state", 0)


def test_a_state_that_is_read_later_is_not_overwritten() -> None:
    program = lower(graph_of(ROLLED.replace("exp(b)", "add(b, k)")), TARGET)
    place(program, TARGET)
    values = {v.name: v for v in program.graph.values()}
    assert values["b"].address != values["k"].address
    values["b"].address = values["k"].address
    with pytest.raises(OurFault, match="writes into the state"):
        check(program)
