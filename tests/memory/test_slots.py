"""Room for inputs and outputs in the arena: only while they are needed, proven by the checker."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from intaglio.errors import OurFault
from intaglio.ir.graph import Graph
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.checker import check
from intaglio.targets.target import find_target
from support.examples import examples
from support.ir_text import graph_of
from support.placing import move_slot
from support.random_graphs import graphs

TARGET = find_target("cortex-m4f")
_CHAIN = """
    input x: f32[64]
    a: f32[64] = exp(x)
    b: f32[64] = relu(a)
    y: f32[64] = exp(b)
    output y
"""


def placed(graph: Graph, slots: bool = True) -> Program:
    program = lower(graph, TARGET)
    program.placement = place(program, TARGET, slots=slots)
    return program


def test_an_output_takes_the_memory_of_an_input_that_is_done() -> None:
    program = placed(graph_of(_CHAIN))
    assert program.placement.slots.keys() == {("input", 0), ("output", 0)}
    assert program.arena_bytes == 512  # of four tensors of 256 bytes


def test_without_slots_the_arena_is_for_layers_alone() -> None:
    program = placed(graph_of(_CHAIN), slots=False)
    assert program.placement.slots == {}
    assert program.arena_bytes == 256


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_any_graph_has_a_sound_plan(graph: Graph) -> None:
    program = placed(graph)
    given = [v for v in graph.inputs if v not in {s.input for s in graph.states}]
    assert len(program.placement.slots) == len([v for v in [*given, *graph.outputs] if v.type.bytes])


def test_a_slot_that_is_overwritten_too_early_is_found() -> None:
    program = placed(graph_of("input x: f32[8]\ninput z: f32[8]\na: f32[8] = exp(x)\ny: f32[8] = add(a, z)\noutput y"))
    check(program)
    move_slot(program, ("input", 1), program.placement.slots["input", 0])
    with pytest.raises(OurFault, match=r"given away|writes over"):
        check(program)
