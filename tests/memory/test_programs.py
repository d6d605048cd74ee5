"""Whole programs in their arena: addresses, in-place kernels, views, guards and states give what the references give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from intaglio.frontends.onnx import load
from intaglio.ir.graph import Graph
from intaglio.kernels import lower
from intaglio.memory import place
from intaglio.memory.checker import check
from intaglio.memory.place import placed, placed_buffers
from intaglio.memory.share import share_parts
from intaglio.ops.evaluate import evaluate_graph
from intaglio.passes import Context, optimise
from intaglio.run.machine import Machine
from intaglio.targets.target import host_target
from support.examples import examples
from support.ir_text import TARGET, graph_of, random_array
from support.kernel_running import TARGETS
from support.placing import at, move
from support.random_graphs import graphs
from support.shared import ONNX, SHARED, needs_shared, shapes_of


@pytest.mark.parametrize("isa", ["avx2", "scalar"])
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(10))
def test_a_program_in_its_arena_gives_what_the_graph_gives(isa: str, graph: Graph) -> None:
    graph = optimise(graph, Context(TARGETS[isa]))
    program = lower(graph, TARGETS[isa])
    program.placement = place(program, TARGETS[isa])
    machine = Machine(program)
    inputs = {v.name: random_array(v.name, v.dtype, v.shape) for v in graph.inputs}
    inputs |= {s.input.name: np.zeros(s.input.shape, s.input.dtype.numpy) for s in graph.states}
    for _ in range(2):  # the second step starts from the state of the first
        wanted = evaluate_graph(graph, inputs, keep=True)
        got = machine.run(inputs)
        for out in graph.outputs:
            exact = wanted[out.name] if out.data is None else out.data
            scale = float(np.abs(exact).max(initial=1.0))
            np.testing.assert_allclose(got[out.name], exact, rtol=0, atol=1e-4 * scale)
        inputs |= {s.input.name: wanted[s.output.name] for s in graph.states}


def test_an_elementwise_chain_reuses_the_memory_of_its_operand() -> None:
    graph = graph_of("""
        input x: f32[8,64]
        const w: f32[64,64] ...
        a: f32[8,64] = matmul(x, w)
        b: f32[8,64] = exp(a)
        y: f32[64,8] = transpose(b, perm=(1,0))
        output y
    """)
    program = lower(graph, TARGET)
    program.placement = place(program, TARGET)
    assert program.placement.in_place == {"b": "a"}
    assert program.arena_bytes == 8 * 64 * 4


def test_an_operand_that_is_read_later_keeps_its_memory() -> None:
    graph = graph_of("""
        input x: f32[8,64]
        const w: f32[64,64] ...
        a: f32[8,64] = matmul(x, w)
        b: f32[8,64] = exp(a)
        c: f32[8,64] = mul(a, b)
        y: f32[64,8] = transpose(c, perm=(1,0))
        output y
    """)
    program = lower(graph, TARGET)
    program.placement = place(program, TARGET)
    assert "b" not in program.placement.in_place
    assert program.arena_bytes == 2 * 8 * 64 * 4


def test_an_operand_that_is_broadcast_is_not_overwritten() -> None:
    graph = graph_of("""
        input x: f32[8,64]
        const w: f32[64,64] ...
        a: f32[8,64] = matmul(x, w)
        r: f32[8,1] = reduce(a, axes=(1))
        s: f32[1,64] = reduce(a, axes=(0))
        b: f32[8,64] = mul(r, s)
        y: f32[64,8] = transpose(b, perm=(1,0))
        output y
    """)
    program = lower(graph, TARGET)
    program.placement = place(program, TARGET)
    assert program.placement.in_place == {}


@needs_shared
@pytest.mark.parametrize("entry", ONNX, ids=[m["id"] for m in ONNX])
def test_the_arena_of_a_real_model_is_at_most_2_percent_above_the_lower_bound(entry: dict[str, Any]) -> None:
    shapes = shapes_of(entry)
    graph, _ = load(SHARED / entry["file"], shapes=shapes)
    target = host_target()
    program = lower(optimise(graph, Context(target)), target)
    program.placement = place(program, target)
    assert program.lower_bound_bytes <= program.arena_bytes <= 1.02 * program.lower_bound_bytes


PARTS = """
    input x: f32[1,4,16]
    const w: f32[16,16] ...
    const u: f32[16,16] ...
    a: f32[1,4,16] = matmul(x, w)
    b: f32[1,4,16] = matmul(x, u)
    c: f32[1,8,16] = concat(a, b, axis=1)
    e: f32[1,8,16] = exp(c)
    t: f32[16,16] = einsum(e, e, equation="bij,bik->jk")
    y: f32[1,8,16] = matmul(e, t)
    output y
"""


def test_buffers_of_a_placed_program_lie_where_its_values_do() -> None:
    """Parts of a whole, one in place of another, working memory, and room for inputs and outputs."""
    program, _ = share_parts(lower(graph_of(PARTS), TARGET), TARGET, slots=True)
    program.placement = placement = place(program, TARGET, slots=True)
    buffers = placed_buffers(program, TARGET)
    of = {value.name: buffer for buffer in buffers for value in buffer.values}
    assert of["a"] is of["b"] is of["c"] is of["e"] and len({placement.of(v) for v in of["c"].values if v.name != "b"}) == 1
    for buffer in buffers:
        places = [placement.addresses[v].offset - buffer.parts.get(v, 0) for v in buffer.values]
        places += [placement.slots[buffer.slot].offset] if buffer.slot is not None else []
        if buffer.scratch_of >= 0:
            places.append(placement.scratch[program.layers[buffer.scratch_of].name].offset)
        assert set(places) == {buffer.offset}, buffer.name
    assert {b.slot for b in buffers} == {None, ("input", 0), ("output", 0)} and any(b.scratch_of >= 0 for b in buffers)
    assert max(b.offset + b.bytes for b in buffers) <= program.arena_bytes


def test_inputs_and_outputs_are_the_caller_s_unless_they_are_asked_for() -> None:
    program = lower(graph_of(PARTS), TARGET)
    assert placed(program, TARGET).placement == place(program, TARGET)
    assert not placed(program, TARGET).placement.slots and placed(program, TARGET, slots=True).placement.slots


FIRST = """
    input x: f32[4,16]
    input z: f32[16,16]
    const w: f32[16,16] ...
    a: f32[4,16] = matmul(x, z)
    b: f32[4,16] = exp(a)
    y: f32[4,16] = matmul(b, w)
    output y
"""


def test_buffers_of_addresses_by_a_person_who_did_without_in_place() -> None:
    """The first layer has working memory; `b` is not where `a` is, though its kernel may work in place."""
    program = lower(graph_of(FIRST), TARGET)
    program.placement = place(program, TARGET)
    a, b = (next(v for v in program.graph.values() if v.name == name) for name in "ab")
    buffers = placed_buffers(program, TARGET)
    assert [{v.name for v in buffer.values} for buffer in buffers if buffer.values] == [{"a", "b"}]
    (scratch,) = (buffer for buffer in buffers if buffer.scratch_of == 0)
    assert scratch.offset == program.placement.scratch[program.layers[0].name].offset
    apart = program.arena_bytes
    program.placement = replace(program.placement, arena_bytes=2 * apart)
    move(program, b, at("arena", apart))
    check(program)
    found = {v.name: buffer for buffer in placed_buffers(program, TARGET) for v in buffer.values}
    assert found["a"] is not found["b"] and found["b"].offset == apart
    assert found["a"].offset == program.placement.addresses[a].offset
