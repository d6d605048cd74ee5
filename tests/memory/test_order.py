"""The order of layers: one that works, never worse than the given one, and the best where everything can be tried."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio.errors import OurFault
from intaglio.ir.graph import Graph
from intaglio.ir.verify import verify
from intaglio.kernels import lower
from intaglio.memory import place
from intaglio.memory.lifetimes import find_storage
from intaglio.memory.order import flow_of, reorder
from intaglio.memory.planner import lower_bound
from intaglio.memory.schedule import Flow, Room, Task, best_order, peak_of
from intaglio.ops.evaluate import evaluate_graph
from intaglio.passes import Context, optimise
from intaglio.run.machine import Machine
from support.examples import examples
from support.ir_text import TARGET, graph_of, random_array
from support.kernel_running import TARGETS
from support.placing import memory_text, read_again
from support.random_graphs import graphs


def random_flow(rng: random.Random, count: int) -> Flow:
    """Every task makes a room, or a part of one that an earlier task has begun; some rooms are kept, two are there at the start."""
    needs = [0] * count
    sizes, written, touched = [rng.randrange(1, 9) for _ in range(2)], [0, 0], [0, 0]
    over: list[tuple[tuple[int, int], ...]] = []
    for n in range(count):
        read = [r for r in rng.sample(range(len(sizes)), min(len(sizes), rng.randrange(1, 4))) if rng.random() < 0.8]
        for r in read:
            needs[n] |= written[r] & ~(1 << n)
            touched[r] |= 1 << n
        shared = [r for r in range(2, len(sizes)) if touched[r] == written[r] and r not in read]
        if shared and rng.random() < 0.2:
            made = rng.choice(shared)
            written[made] |= 1 << n
            touched[made] |= 1 << n
            over.append(())
            continue
        sizes.append(rng.randrange(1, 9))
        written.append(1 << n)
        touched.append(1 << n)
        same = [(r, len(sizes) - 1) for r in read if sizes[r] == sizes[-1] and r > 1]
        over.append(tuple(same) if rng.random() < 0.5 else ())
    rooms = [Room(s, t, w, n < 2, rng.random() < 0.1) for n, (s, t, w) in enumerate(zip(sizes, touched, written, strict=True))]
    uses = [tuple(r for r, room in enumerate(rooms) if room.touched >> n & 1) for n in range(count)]
    tasks = [Task(needs[n], uses[n], rng.choice([0, 0, 3]), over[n]) for n in range(count)]
    return Flow(tuple(tasks), tuple(rooms))


def every_order(flow: Flow, done: tuple[int, ...] = ()) -> list[list[int]]:
    if len(done) == len(flow.tasks):
        return [list(done)]
    have = sum(1 << n for n in done)
    ready = [n for n, task in enumerate(flow.tasks) if not have >> n & 1 and not task.needs & ~have]
    return [order for n in ready for order in every_order(flow, (*done, n))]


def works(flow: Flow, order: list[int]) -> bool:
    have = 0
    for n in order:
        if flow.tasks[n].needs & ~have:
            return False
        have |= 1 << n
    return sorted(order) == list(range(len(flow.tasks)))


@settings(deadline=None, max_examples=examples(300))
@given(st.randoms(use_true_random=False), st.integers(1, 7))
def test_the_order_is_as_good_as_trying_every_one(rng: random.Random, count: int) -> None:
    flow = random_flow(rng, count)
    order = best_order(flow)
    assert works(flow, order)
    assert peak_of(flow, order) == min(peak_of(flow, other) for other in every_order(flow))


@settings(deadline=None, max_examples=examples(50))
@given(st.randoms(use_true_random=False), st.integers(20, 60), st.sampled_from([0, 2000]))
def test_a_large_order_works_and_is_never_worse_than_the_given_one(rng: random.Random, count: int, work: int) -> None:
    flow = random_flow(rng, count)
    order = best_order(flow, work)
    assert works(flow, order)
    assert peak_of(flow, order) <= peak_of(flow, list(range(count)))
    assert order == best_order(flow, work)


@pytest.mark.slow
def test_several_hundred_layers_take_a_second_or_two() -> None:
    flow = random_flow(random.Random(7), 500)
    start = time.process_time()
    order = best_order(flow)
    assert time.process_time() - start < 6  # a slow machine
    assert works(flow, order)


def bound(graph: Graph, isa: str, *, order: bool) -> int:
    program = lower(graph, TARGETS[isa])
    if order:
        program = reorder(program, TARGETS[isa])
    return lower_bound(find_storage(program, TARGETS[isa].alignment).buffers, TARGETS[isa].alignment)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(14))
def test_the_peak_of_the_search_is_that_of_the_buffers(graph: Graph) -> None:
    target = TARGETS["scalar"]
    program = lower(optimise(graph, Context(target)), target)
    for slots in (False, True):
        storage = find_storage(program, target.alignment, slots=slots)
        flow = flow_of(program, target, slots=slots)
        layers = len(program.layers)
        read = {v for layer in program.layers for v in layer.node.operands()}
        read |= {n.inputs[0] for n in program.choices.views(program.graph) if n.inputs[0] is not None}
        idle = [("input", n) for n, v in enumerate(program.graph.inputs) if v not in read]
        # An input that nobody reads, and what is copied to an output at the end, do not depend on the order.
        buffers = [replace(b, last=min(b.last, layers - 1)) for b in storage.buffers if b.first < layers and b.slot not in idle]
        assert peak_of(flow, list(range(layers))) == lower_bound(buffers, target.alignment)


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(12))
def test_a_program_in_another_order_gives_what_the_graph_gives(graph: Graph) -> None:
    target = TARGETS["scalar"]
    graph = optimise(graph, Context(target))
    before = bound(graph, "scalar", order=False)
    program = lower(graph, target)
    given = program
    program = reorder(program, target)
    moved = program is not given
    verify(program.graph)
    assert [layer.name for layer in given.layers] == [layer.name for layer in lower(graph, target).layers]  # it is left as it was
    after = lower_bound(find_storage(program, target.alignment).buffers, target.alignment)
    assert after < before if moved else after == before
    program.placement = place(program, target)
    inputs = {v.name: random_array(v.name, v.dtype, v.shape) for v in graph.inputs}
    inputs |= {s.input.name: np.zeros(s.input.shape, s.input.dtype.numpy) for s in graph.states}
    wanted, got = evaluate_graph(graph, inputs, keep=True), Machine(program).run(inputs)
    for out in graph.outputs:
        exact = wanted[out.name] if out.data is None else out.data
        np.testing.assert_allclose(got[out.name], exact, rtol=0, atol=1e-4 * float(np.abs(exact).max(initial=1.0)))


TWO_ARMS = """
    input x: f32[64,64]
    const w: f32[64,64] ...
    const u: f32[64,64] ...
    a: f32[64,64] = matmul(x, w)
    b: f32[64,64] = matmul(x, u)
    f: f32[4096] = reshape(a, shape=(4096))
    c: f32[1] = reduce(f, kind="max", axes=(0))
    g: f32[4096] = reshape(b, shape=(4096))
    d: f32[1] = reduce(g, kind="max", axes=(0))
    y: f32[1] = add(c, d)
    output y
"""


def test_an_arm_is_finished_before_the_next_begins() -> None:
    program = lower(graph_of(TWO_ARMS), TARGET)
    program = reorder(program, TARGET)
    assert [n.output.name for n in program.graph.nodes] == ["a", "f", "c", "b", "g", "d", "y"]
    assert [n.name for n in program.layers] == ["a", "c", "b", "d", "y"]
    program.placement = place(program, TARGET)
    assert program.arena_bytes == 64 * 64 * 4 + 2 * 64


def test_a_chain_is_left_alone() -> None:
    program = lower(graph_of("\n".join([
        "input x: f32[8,8]", "const w: f32[8,8] ...", "a: f32[8,8] = matmul(x, w)", "b: f32[8,8] = exp(a)", "output b",
    ])), TARGET)  # fmt: skip
    assert reorder(program, TARGET) is program


def test_an_order_that_comes_with_addresses_is_kept() -> None:
    program = lower(graph_of(TWO_ARMS), TARGET)
    program.placement = place(program, TARGET)
    text = memory_text(program)
    again = read_again(text, program, TARGET)
    assert reorder(again, TARGET) is again
    again.placement = place(again, TARGET)
    assert memory_text(again) == text


def test_guarded_layers_stay_in_the_order_they_had() -> None:
    program = lower(graph_of("""
        input x: f32[64]
        input c: bool[]
        a: f32[64] = exp(x) when c
        b: f32[64] = sin(x) when c
        m: f32[64] = cos(x)
        n: f32[64] = exp(m)
        y: f32[64] = select(c, a, n)
        z: f32[64] = select(c, b, n)
        output y
        output z
    """), TARGET)  # fmt: skip
    program = reorder(program, TARGET)
    names = [n.name for n in program.layers]
    assert names.index("a") < names.index("b")


SIZED = """
    size n = 3..600 of as_size
    input b: bool[]
    input x: f32[3]
    const few: i64[] = 3
    const many: i64[] = 600
    const r: f32[200,3] ...
    not_b: bool[] = logical_not(b)
    short: f32[3] = relu(x) when b
    wide: f32[200,3] = mul(x, r) when not_b
    long: f32[600] = reshape(wide, shape=(600)) when not_b
    {first}
    {second}
    {third}
    output y
"""
FOUND = ("chosen: i64[] = select(b, few, many)", "as_size: i64[] = as_size(chosen, count={n}, low=3, high=600)")
USED = "y: f32[n<=600] = select_sized(b, short, long, shape=({n}))"


def test_a_size_is_found_before_it_is_used() -> None:
    """Nothing reads the value itself: it is in the shape of the result."""
    graph = graph_of(SIZED.replace("{first}", FOUND[0]).replace("{second}", FOUND[1]).replace("{third}", USED))
    needs = flow_of(lower(graph, TARGET), TARGET).tasks
    program = lower(graph, TARGET)
    names = [layer.name for layer in program.layers]
    assert needs[names.index("y")].needs >> names.index("as_size") & 1
    late = replace(program, layers=[*(n for n in program.layers if n.name != "as_size"), program.layers[names.index("as_size")]])
    with pytest.raises(OurFault, match=r"layer . `y` has the size `as_size`, which is found after it"):
        place(late, TARGET)


def test_a_graph_that_uses_a_size_too_early_is_refused() -> None:
    with pytest.raises(OurFault, match=r"`as_size` is a size of .*, and is found after it"):
        graph_of(SIZED.replace("{first}", USED).replace("{second}", FOUND[0]).replace("{third}", FOUND[1]))


@pytest.mark.parametrize("seed", range(3))
def test_the_same_flow_gets_the_same_order(seed: int) -> None:
    flow = random_flow(random.Random(seed), 40)
    assert best_order(flow) == best_order(flow)
