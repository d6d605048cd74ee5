"""The checker's part for weights that are read into the arena against memory byte by byte: they are moved to the ends of everything
else there, and both say the same of the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from intaglio.errors import OurFault
from intaglio.ir.graph import Value
from intaglio.ir.placement import STATE
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.checker import check
from intaglio.memory.share import share_parts
from intaglio.memory.weights_read import plan_reads
from intaglio.targets.target import find_target
from support.ir_text import graph_of
from support.placing import at, move_scratch, move_slot

TARGET = find_target("cortex-m4f")
TEXT = """
    input x: f32[1,4]
    input h: f32[1,4]
    const w: f32[4,4] ...
    const u: f32[4,4] ...
    const k: f32[4,4] ...
    state h = n
    e: f32[1,4] = exp(x)
    b: f32[1,4] = exp(h)
    a: f32[1,4] = matmul(e, w)
    v: f32[4] = reshape(a, shape=(4))
    z: f32[2,2] = reshape(v, shape=(2,2))
    c: f32[1,4] = matmul(b, u)
    p: f32[1,4] = neg(c)
    q: f32[1,4] = exp(e)
    g: f32[2,4] = concat(p, q, axis=0)
    t: f32[4,4] = einsum(g, g, equation="bi,bj->ij")
    m: f32[1,4] = matmul(b, t)
    o: f32[1,4] = matmul(e, k)
    s: f32[2,2] = exp(z)
    r: f32[1,4] = reshape(s, shape=(1,4))
    n: f32[1,4] = add(h, r)
    y: f32[1,4] = add(o, m)
    output y
    output b
    output o
"""


def placed() -> Program:
    graph = graph_of(TEXT)
    graph.weights = "read"
    program, _ = share_parts(lower(graph, TARGET), TARGET, slots=True)
    program.placement = place(program, TARGET, slots=True)
    end, (name,) = program.arena_bytes, program.placement.scratch
    program.placement = replace(program.placement, arena_bytes=end + 1024)
    move_scratch(program, name, at("arena", end + 512))  # where nothing else is
    move_slot(program, ("output", 1), at("arena", end + 256))
    return program


class Bytes:
    """What each byte of the arena holds. Weights may arrive at any time from the first layer of their read on."""

    def __init__(self, program: Program) -> None:
        self.program, self.placement = program, program.placement
        self.holds: dict[int, object] = {}
        self.parts = {node.output: node.operands() for node in program.choices.views(program.graph)}

    def place_of(self, value: Value) -> range | None:
        address, graph = self.placement.of(value), self.program.graph
        if value in graph.outputs:
            address = self.placement.slots["output", graph.outputs.index(value)]
        elif ("input", graph.inputs.index(value) if value in graph.inputs else -1) in self.placement.slots:
            address = self.placement.slots["input", graph.inputs.index(value)]
        if address is None or address.region == STATE:
            return None
        return range(address.offset, address.offset + value.type.bytes)

    def there(self, value: Value) -> bool:
        if value in self.parts:
            return all(self.there(part) for part in self.parts[value])
        return value.is_const or (place := self.place_of(value)) is None or all(self.holds.get(n) is value for n in place)

    def is_sound(self) -> bool:
        program, graph = self.program, self.program.graph
        reads = [(read, self.placement.slots[read.slot].offset) for read in plan_reads(program)]
        spans = {read.slot: range(start, start + read.bytes) for read, start in reads}
        state = range(max(s.input.type.bytes for s in graph.states))
        if any(span.start < state.stop or span.stop > program.arena_bytes for span in spans.values()):
            return False
        for value in graph.inputs:
            self.holds |= dict.fromkeys(self.place_of(value) or (), value)
        for index, layer in enumerate(program.layers):
            for read, _ in reads:
                if read.first == index:
                    self.holds |= dict.fromkeys(spans[read.slot], read.slot)
            if layer.scratch_bytes:
                start = self.placement.scratch[layer.name].offset
                self.holds |= dict.fromkeys(range(start, start + layer.scratch_bytes), "scratch")
            if not all(self.there(value) for value in layer.node.operands()):
                return False
            self.holds |= dict.fromkeys(self.place_of(layer.node.output) or (), layer.node.output)
            arriving = [spans[read.slot] for read, _ in reads if read.first <= index <= read.last]
            if any(self.holds[n] not in spans or n not in spans[self.holds[n]] for span in arriving for n in span):  # type: ignore[index]
                return False
            if sum(len(span) for span in arriving) != len({n for span in arriving for n in span}):
                return False
        return all(self.there(value) for value in (*graph.outputs, *(s.output for s in graph.states)))


def passes(program: Program) -> bool:
    try:
        check(program)
    except OurFault:
        return False
    return True


def test_views_and_working_memory_are_among_what_weights_could_lie_on() -> None:
    program = placed()
    assert len(plan_reads(program)) == 3 and any(layer.scratch_bytes for layer in program.layers)
    assert {node.output.name for node in program.choices.views(program.graph)} >= {"v", "z", "g", "r"}


@pytest.mark.parametrize("number", range(3))
def test_weights_at_the_ends_of_everything_else(number: int) -> None:
    program = placed()
    read = plan_reads(program)[number]
    before, verdicts = program.placement, []
    assert Bytes(program).is_sound() and passes(program)
    ends = {program.arena_bytes, 0}
    for value in program.graph.values():
        if (span := Bytes(program).place_of(value)) is not None:
            ends |= {span.start, span.stop}
    for other in plan_reads(program):
        start = before.slots[other.slot].offset
        ends |= {start, start + other.bytes}
    for layer in program.layers:
        if layer.scratch_bytes:
            start = before.scratch[layer.name].offset
            ends |= {start, start + layer.scratch_bytes}
    for to in sorted({end - shift + more for end in ends for shift in (0, read.bytes) for more in (-1, 0, 1)}):
        program.placement = before
        move_slot(program, read.slot, at("arena", to))
        verdicts.append(Bytes(program).is_sound())
        assert passes(program) == verdicts[-1], to
    assert True in verdicts and False in verdicts
