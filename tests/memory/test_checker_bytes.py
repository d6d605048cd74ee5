"""The checker against memory byte by byte: a value is moved to every place in turn, and both say the same of the plan."""

from __future__ import annotations

import pytest

from intaglio.errors import OurFault
from intaglio.ir.graph import Value
from intaglio.ir.placement import ARENA, STATE
from intaglio.ir.program import ValueArg
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.checker import check
from support.ir_text import TARGET, graph_of
from support.placing import at, move, move_scratch

TEXT = """
    input x: f32[1,16]
    input h: f32[1,16]
    const w: f32[16,16] ...
    const u: f32[16,16] ...
    state h = n
    a: f32[1,16] = matmul(x, w)
    b: f32[1,16] = matmul(a, u)
    v: f32[16] = reshape(b, shape=(16))
    d: f32[16] = exp(v)
    t: f32[16,16] = einsum(d, d, equation="i,j->ij")
    m: f32[1,16] = matmul(a, t)
    n: f32[1,16] = add(h, m)
    y: f32[1,16] = add(b, n)
    output y
"""


def program_of() -> Program:
    program = lower(graph_of(TEXT), TARGET)
    program.placement = place(program, TARGET)
    return program


class Bytes:
    """What each byte of the arena holds."""

    def __init__(self, program: Program) -> None:
        self.program, self.placement = program, program.placement
        self.holds: dict[int, object] = {}
        self.state: set[int] = set()
        for state in program.graph.states:
            start = self.placement.addresses[state.input].offset
            self.state |= set(range(start, start + state.input.type.bytes))
        self.moved = {node.output: node.inputs[0] for node in program.graph.nodes if node.op.NAME == "reshape"}

    def root(self, value: Value) -> Value:
        return self.moved.get(value) or value

    def of(self, value: Value) -> range | None:
        address = self.placement.of(value)
        if address is None or address.region != ARENA:
            return None
        return range(address.offset, address.offset + value.type.bytes)

    def is_sound(self) -> bool:
        return all(self._layer(n) for n in range(len(self.program.layers))) and all(
            self._is_there(self.root(v)) for v in (*self.program.graph.outputs, *(s.output for s in self.program.graph.states))
        )

    def _fits(self, place: range) -> bool:
        return place.start >= 0 and place.stop <= self.program.arena_bytes and not self.state & set(place)

    def _is_there(self, value: Value) -> bool:
        place = self.of(value)
        return place is None or all(self.holds.get(n) is value for n in place)

    def _layer(self, index: int) -> bool:
        layer = self.program.layers[index]
        scratch = range(0)
        if layer.scratch_bytes:
            start = self.placement.scratch[layer.name].offset
            scratch = range(start, start + layer.scratch_bytes)
            if not self._fits(scratch):
                return False
            self.holds |= dict.fromkeys(scratch, "scratch")
        reads = [self.root(v) for v in layer.node.operands()]
        if not all(self._is_there(v) for v in reads):
            return False
        for out in layer.node.outputs:
            place = self.of(out)
            if place is None:
                address = self.placement.of(out)
                assert address is None or address.region != STATE
                continue
            over = [v for v in reads if (other := self.of(v)) is not None and set(other) & set(place)]
            if not self._fits(place) or set(scratch) & set(place) or (over and not self._may(index, over, place)):
                return False
            self.holds |= dict.fromkeys(place, out)
        return True

    def _may(self, index: int, over: list[Value], place: range) -> bool:
        layer = self.program.layers[index]
        if not layer.kernel.in_place or any(self.of(v) != place for v in over):
            return False
        if layer.kernel.over < 0:
            return True
        only = layer.arguments[layer.kernel.over]
        return isinstance(only, ValueArg) and over == [self.root(only.value)]


def passes(program: Program) -> bool:
    try:
        check(program)
    except OurFault:
        return False
    return True


@pytest.mark.parametrize("name", ["a", "b", "d", "t", "m", "n"])
def test_a_value_at_every_place(name: str) -> None:
    program = program_of()
    value = next(v for v in program.graph.values() if v.name == name)
    before, verdicts = program.placement, set()
    assert Bytes(program).is_sound() and passes(program)
    edges = {n + more for n in range(-64, program.arena_bytes + 64, 16) for more in (-1, 0, 1)}
    for to in sorted(edges):
        program.placement = before
        for same in (v for v in program.graph.values() if before.of(v) == before.of(value) and v.type.bytes == value.type.bytes):
            if same is value or same.name == "v":
                move(program, same, at("arena", to))
        sound = Bytes(program).is_sound()
        assert passes(program) == sound, (name, to)
        verdicts.add(sound)
    assert verdicts == {True, False}


def test_scratch_at_every_place() -> None:
    program = program_of()
    layer = next(layer for layer in program.layers if layer.scratch_bytes)
    before, verdicts = program.placement, set()
    for to in sorted({n + more for n in range(-64, program.arena_bytes + 64, 16) for more in (-1, 0, 1)}):
        program.placement = before
        move_scratch(program, layer.name, at("arena", to))
        sound = Bytes(program).is_sound()
        assert passes(program) == sound, to
        verdicts.add(sound)
    assert verdicts == {True, False}
