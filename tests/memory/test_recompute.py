"""Cheap tensors made twice: equal results, a lower peak, and no more work than is allowed."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio.ir.graph import Array, Graph
from intaglio.ir.types import DType, TensorType
from intaglio.ir.verify import verify
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.lifetimes import find_storage
from intaglio.memory.order import reorder
from intaglio.memory.planner import lower_bound
from intaglio.memory.recompute import recompute
from intaglio.ops.activation import Tanh
from intaglio.ops.binary import Add, Max
from intaglio.ops.evaluate import evaluate_graph
from intaglio.ops.move import Expand, Reshape
from intaglio.ops.reduce import Reduce
from intaglio.ops.unary import Abs, Neg
from intaglio.passes.clean import dead_code
from intaglio.passes.context import Context
from intaglio.run.machine import Machine
from support.examples import examples
from support.ir_text import TARGET, graph_of, random_array
from support.kernel_running import TARGETS
from support.placing import memory_text, read_again

PLAIN = TARGETS["scalar"]


def peak(program: Program) -> int:
    storage = find_storage(program, PLAIN.alignment)
    return storage.state_bytes + lower_bound(storage.buffers, PLAIN.alignment)


BROADCAST = """
    input x: f32[1,16]
    const w: f32[16,64] ...
    const u: f32[64,16] ...
    r: f32[1,16] = matmul(x, w2)
    a: f32[16,16] = expand(r, shape=(16,16))
    b: f32[16,64] = matmul(a, w)
    v: f32[64,16] = reshape(b, shape=(64,16))
    t: f32[16,64] = transpose(v, perm=(1,0))
    c: f32[16,16] = matmul(t, u)
    y: f32[16,16] = mul(c, a)
    output y
""".replace("    const u:", "    const w2: f32[16,16] ...\n    const u:")


def test_a_broadcast_is_made_again_for_its_late_reader() -> None:
    program = lower(graph_of(BROADCAST), PLAIN)
    before = peak(program)
    given, layers = program, list(program.layers)
    program, made = recompute(program, PLAIN, before - 1)
    assert given.layers == layers and peak(given) == before  # it is left as it was
    assert [(m.value, m.layer, m.reader) for m in made] == [("a", "a_again", "y")]
    assert made[0].bytes_gained == before - peak(program) == 16 * 16 * 4 - 64
    assert made[0].bytes_moved == 16 * 4 + 16 * 16 * 4
    assert [layer.name for layer in program.layers] == ["r", "a", "b", "t", "c", "a_again", "y"]
    verify(program.graph)


def test_nothing_is_made_again_within_the_budget() -> None:
    program = lower(graph_of(BROADCAST), PLAIN)
    assert recompute(program, PLAIN, peak(program)) == (program, [])
    assert [layer.name for layer in program.layers] == ["r", "a", "b", "t", "c", "y"]


def test_what_it_is_made_from_is_made_again_too() -> None:
    program = lower(graph_of(BROADCAST), PLAIN)
    data = results(program.graph)
    program, made = recompute(program, PLAIN, 0)
    assert [(m.value, m.reader) for m in made] == [("a", "y"), ("r", "a_again")]
    assert_right(program, *data)


def test_what_is_dear_is_kept() -> None:
    program = lower(graph_of(BROADCAST), PLAIN)
    assert recompute(program, PLAIN, 0, most_extra=0.001) == (program, [])


def test_a_view_is_made_again_with_its_source() -> None:
    text = BROADCAST.replace("    c: f32", "    f: f32[256] = reshape(a, shape=(256))\n    c: f32").replace(
        "    y: f32[16,16] = mul(c, a)", "    d: f32[256] = reshape(c, shape=(256))\n    y: f32[256] = mul(d, f)"
    )
    program = lower(graph_of(text), PLAIN)
    data = results(program.graph)
    program, made = recompute(program, PLAIN, peak(program) - 1)
    assert [m.value for m in made] == ["a"]
    verify(program.graph)
    names = [node.output.name for node in program.graph.nodes]
    assert names == ["r", "a", "b", "v", "t", "c", "d", "a_again", "f_again", "y"]
    assert_right(program, *data)


def test_a_program_with_addresses_is_left_alone() -> None:
    program = lower(graph_of(BROADCAST), TARGET)
    program.placement = place(program, TARGET)
    assert recompute(program, TARGET, 0) == (program, [])


def test_the_text_of_what_is_made_again_is_read_again() -> None:
    program = lower(graph_of(BROADCAST), PLAIN)
    program, _ = recompute(program, PLAIN, 0)
    program.placement = place(program, PLAIN)
    text = memory_text(program)
    again = read_again(text, program, PLAIN)
    again.placement = place(again, PLAIN)
    assert memory_text(again) == text
    assert again.arena_bytes == program.arena_bytes


def results(graph: Graph) -> tuple[dict[str, Array], dict[str, Array]]:
    """Inputs, and what they give."""
    inputs = {v.name: random_array(v.name, v.dtype, v.shape) for v in graph.inputs}
    return inputs, evaluate_graph(graph, inputs)


def assert_right(program: Program, inputs: dict[str, Array], wanted: dict[str, Array]) -> None:
    program.placement = place(program, PLAIN)
    got = Machine(program).run(inputs)
    for out in program.graph.outputs:
        exact = wanted[out.name]
        np.testing.assert_allclose(got[out.name], exact, rtol=0, atol=1e-4 * float(np.abs(exact).max(initial=1.0)))


def tower(rng: random.Random, steps: int) -> Graph:
    """Rows that are repeated into squares, squares that are reduced to rows, and what was made long ago is read again."""
    graph = Graph("tower")
    graph.inputs = [graph.value("x", TensorType(DType.F32, (1, 16)))]
    values = [graph.add(Neg(), [graph.inputs[0]], "r")]
    for _ in range(steps):
        x = rng.choice([values[-1], values[-1], rng.choice(values)])
        same = [v for v in values if v.shape == x.shape]
        match rng.choice(["one", "two", "two", "view", "wide", "wide"]):
            case "wide" if x.shape == (1, 16):
                made = graph.add(Expand((16, 16)), [x], "e")
            case "wide":
                flat = graph.add(Reshape((16, 16)), [x], "f") if x.shape == (256,) else x
                made = graph.add(Reduce("max", (0,)), [flat], "m")
            case "view" if x.shape == (16, 16):
                made = graph.add(Reshape((256,)), [x], "v")
            case "one":
                made = graph.add(rng.choice([Neg(), Abs(), Tanh()]), [x], "o")
            case _:
                made = graph.add(rng.choice([Add(), Max()]), [x, rng.choice(same)], "t")
        values.append(made)
    graph.outputs = [values[-1]]
    graph.output_names = [values[-1].name]
    return dead_code(graph, Context(PLAIN))


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(st.randoms(use_true_random=False), st.integers(6, 30))
def test_results_are_equal_and_the_peak_is_lower(rng: random.Random, steps: int) -> None:
    graph = tower(rng, steps)
    data = results(graph)
    program = lower(graph, PLAIN)
    before, layers = peak(program), list(program.layers)
    program, made = recompute(program, PLAIN, 0, most_extra=2.0)
    verify(program.graph)
    if not made:
        assert program.layers == layers
        return
    assert peak(program) == before - sum(m.bytes_gained for m in made) < before
    assert_right(program, *data)


def test_such_towers_do_have_something_to_make_again() -> None:
    """The property above is not empty."""
    found = sum(bool(recompute(lower(tower(random.Random(n), 25), PLAIN), PLAIN, 0, most_extra=2.0)[1]) for n in range(40))
    assert found >= 5


@pytest.mark.parametrize("slots", [False, True])
def test_the_order_afterwards_keeps_what_was_gained(slots: bool) -> None:
    program = lower(graph_of(BROADCAST), PLAIN)
    program, _ = recompute(program, PLAIN, 0, slots=slots)
    after = peak(program)
    program = reorder(program, PLAIN, slots=slots)
    assert peak(program) <= after
