"""Layers a few rows at a time: the same numbers, less memory, and a checker that finds every step that is wrong."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio.errors import OurFault, UserError
from intaglio.fitting.squeeze import Squeeze
from intaglio.ir.choices import Choices
from intaglio.ir.graph import Array, Graph
from intaglio.ir.stripes import StripeSpec
from intaglio.ir.text import parse_network, print_graph
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import place
from intaglio.memory.checker import check
from intaglio.memory.lifetimes import find_storage
from intaglio.memory.place import placed_buffers
from intaglio.ops.evaluate import evaluate_graph
from intaglio.passes.context import Context
from intaglio.passes.residual import fuse_sum
from intaglio.run.machine import Machine
from intaglio.targets.target import Target, find_target
from support.examples import examples
from support.integer_graphs import IntegerNet, integer_net, picture
from support.kernel_running import TARGETS
from support.placing import at, memory_text, move, read_again

PLAIN, SMALL = TARGETS["scalar"], find_target("cortex-m4f")
QUICK = settings(deadline=None, max_examples=examples(15), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def striped(graph: Graph, target: Target, *specs: StripeSpec, slots: bool = True) -> Program | None:
    """None where these layers cannot be a stripe."""
    try:
        program = lower(graph, target, Choices(stripes=specs))
    except UserError:
        return None
    program.placement = place(program, target, slots=slots)
    return program


def expected(graph: Graph, x: Array) -> list[Array]:
    values = evaluate_graph(graph, {"x": x}, keep=True)
    return [values[v.name] for v in graph.outputs]


@QUICK
@given(st.integers(0, 10**6))
def test_a_striped_program_computes_the_same(seed: int) -> None:
    """Any run of layers, any number of rows, down or up, rows fed or not; memory that overlaps where that is allowed."""
    rng = random.Random(seed)
    graph = integer_net(seed, rng.randint(2, 6))
    x = picture(graph, seed)
    want = expected(graph, x)
    names = [node.output.name for node in graph.nodes]
    first = rng.randrange(len(names))
    last = rng.randrange(first, len(names))
    fed = first == 0 and rng.random() < 0.4
    spec = StripeSpec(names[first], names[last], rng.choice([1, 1, 2, 3]), not fed and rng.random() < 0.5, fed)
    target = rng.choice([PLAIN, SMALL])
    program = striped(graph, target, spec, slots=rng.random() < 0.5)
    if program is None:
        return
    check(program)
    machine = Machine(program)
    for _ in range(2):  # what a run leaves behind does not matter for the next
        got = machine.run({"x": x})
        for value, array in zip(graph.outputs, want, strict=True):
            assert np.array_equal(got[value.name], array)


@pytest.mark.slow
@QUICK
@given(st.integers(0, 10**6))
def test_the_search_stays_within_its_budget_and_computes_the_same(seed: int) -> None:
    rng = random.Random(seed)
    graph = integer_net(seed, rng.randint(4, 9))
    x = picture(graph, seed)
    want = expected(graph, x)
    target = rng.choice([PLAIN, SMALL])
    whole = lower(graph, target)
    whole.placement = place(whole, target, slots=True)
    squeeze = Squeeze(whole, target, slots=True)
    least = squeeze.smallest()
    if least is None:
        return
    budget = rng.randint(least.arena_bytes, max(least.arena_bytes, whole.arena_bytes))
    found = squeeze.within(budget)
    if found is None:  # the smallest has stripes of its own; it is a plan for every budget above it
        found = squeeze.smallest()
    assert found is not None
    check(found.program)
    assert found.arena_bytes <= max(budget, least.arena_bytes)
    for buffer in placed_buffers(found.program, target):
        assert buffer.offset % target.alignment == 0
        assert buffer.offset >= 0 and buffer.offset + buffer.bytes <= found.arena_bytes
    got = Machine(found.program).run({"x": x})
    for value, array in zip(graph.outputs, want, strict=True):
        assert np.array_equal(got[value.name], array)


def tower(*, residual: bool = False) -> Graph:
    """Four layers of 16 rows; the second half adds what the first made."""
    net = IntegerNet(7, 16, 6, 4)
    same = (1, 1, 1, 1)
    a = net.conv(net.input, kernel=3, stride=1, pads=same, outs=8)
    b = net.conv(a, kernel=3, stride=1, pads=same)
    c = net.conv(b, kernel=3, stride=1, pads=same, outs=8)
    y = net.sum(a, c) if residual else net.conv(c, kernel=3, stride=2, pads=same)
    return net.finish(y)


def test_windows_are_as_small_as_they_can_be() -> None:
    program = striped(tower(), SMALL, StripeSpec("c", "c_3", 1))
    assert program is not None
    stripe = program.stripes[0]
    assert {v.name: w.rows for v, w in stripe.windows.items()} == {"c": 3, "c_1": 3, "c_2": 3}
    assert stripe.moved_bytes > 0
    assert program.arena_bytes == 16 * 6 * 4 + 3 * 3 * 6 * 8 + 576  # the input, windows, working memory; the result is in the input


def test_a_sum_across_a_long_block_keeps_more_rows() -> None:
    net = IntegerNet(7, 16, 6, 4)
    a = x = net.conv(net.input, kernel=1, stride=1, pads=(0, 0, 0, 0), outs=4)
    for _ in range(4):
        x = net.conv(x, kernel=3, stride=1, pads=(1, 1, 1, 1))
    graph = net.finish(net.sum(a, x))
    program = striped(graph, SMALL, StripeSpec("c", graph.outputs[0].name, 1))
    assert program is not None
    rows = {v.name: w.rows for v, w in program.stripes[0].windows.items()}
    assert rows["c"] == 5, "each of the four layers is a row further when the sum reads"


def test_a_result_lies_where_its_operand_was() -> None:
    """One layer, row by row: the result starts a few rows below its operand, so both need little more than one of them."""
    net = IntegerNet(3, 32, 12, 8)  # so large that working memory is little beside it
    y = net.conv(net.conv(net.input, kernel=1, stride=1, pads=(0, 0, 0, 0), outs=8), kernel=3, stride=1, pads=(1, 1, 1, 1))
    graph = net.finish(net.pool(y, 2, 2, (0, 0, 0, 0)))
    size = 32 * 12 * 8
    for up in (False, True):
        program = striped(graph, SMALL, StripeSpec("c_1", "c_1", 1, up), slots=False)
        assert program is not None
        storage = find_storage(program, SMALL.alignment)
        assert len(storage.apart) == 1
        assert program.arena_bytes < 1.4 * size


def test_the_text_of_the_ir_keeps_stripes() -> None:
    graph = tower()
    program = striped(graph, SMALL, StripeSpec("c", "c_2", 2, up=True))
    assert program is not None
    text = memory_text(program)
    assert "stripe from c to c_2 rows=2 up" in text
    second = read_again(text, program, SMALL)
    assert memory_text(second) == text
    second.placement = place(second, SMALL, slots=True)
    assert second.arena_bytes == program.arena_bytes, "addresses of the file are kept"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("stripe from c to nowhere rows=1", "not defined"),
        ("stripe from c_2 to c rows=1", "no layers in order"),
        ("stripe from c to c_2 rows=0", "at least one row"),
        ("stripe from c to c_2 rows=1 sideways", "has no"),
    ],
)  # fmt: skip
def test_a_stripe_that_makes_no_sense_is_an_error(line: str, why: str) -> None:
    graph = tower()
    text = print_graph(graph).replace("output ", f"{line}\noutput ", 1)
    with pytest.raises(UserError, match=why):
        _lowered(text, graph)


def _lowered(text: str, graph: Graph) -> Program:
    """With the constants of a graph."""
    network = parse_network(text, {v.name: v.data for v in graph.constants() if v.data is not None})
    return lower(network.graph, SMALL, network.choices)


def test_a_search_leaves_the_program_that_it_starts_from_as_it_is() -> None:
    whole = lower(tower(), SMALL)
    whole.placement = place(whole, SMALL, slots=True)
    text = memory_text(whole)
    squeeze = Squeeze(whole, SMALL, slots=True)
    least = squeeze.smallest()
    assert least is not None and least.program.choices.stripes and least.arena_bytes < whole.arena_bytes
    assert squeeze.without().choices == whole.choices
    assert memory_text(whole) == text
    assert "stripe from" in memory_text(least.program), "and what was found before is still there"


def test_what_the_checker_accepts_is_right() -> None:
    """Whatever is changed in a sound stripe, an order, a place, a roll: it is refused, or it computes the same."""
    rng = random.Random(1)
    graph = tower(residual=True)
    x = picture(graph, 1)
    want = expected(graph, x)[0]
    program = striped(graph, SMALL, StripeSpec("c", graph.outputs[0].name, 1))
    assert program is not None
    stripe = program.stripes[0]
    refused = 0
    for _ in range(80):
        order, actions = list(stripe.order), list(stripe.actions)
        n = rng.randrange(len(actions))
        match rng.randrange(3):
            case 0:
                a, b = rng.sample(range(len(order)), 2)
                order[a], order[b] = order[b], order[a]
            case 1:
                value = rng.choice(list(actions[n].rows))
                rows = actions[n].rows[value]
                moved = replace(rows, at=rows.at + rng.choice([-48, 48, 24]))
                actions[n] = replace(actions[n], rows={**actions[n].rows, value: moved})
            case _:
                actions[n] = replace(actions[n], roll=0)
        program.stripes[0] = replace(stripe, order=tuple(order), actions=tuple(actions))
        try:
            check(program)
        except OurFault:
            refused += 1
            continue
        assert np.array_equal(Machine(program).run({"x": x})[graph.outputs[0].name], want)
    assert refused > 30
    program.stripes[0] = stripe
    check(program)
    value = next(iter(stripe.windows))
    kept = program.placement
    move(program, value, at("arena", 0))
    with pytest.raises(OurFault):
        check(program)
    program.placement = kept
    check(program)


def test_a_layer_that_reads_one_tensor_in_two_ways_is_left_whole() -> None:
    """A convolution and the sum with what it convolves, in one layer: two places in one window."""
    net = IntegerNet(3, 12, 5, 4)
    a = net.conv(net.input, kernel=3, stride=1, pads=(1, 1, 1, 1), outs=4)
    y = net.conv(a, kernel=3, stride=1, pads=(1, 1, 1, 1), outs=4)
    graph = fuse_sum(net.finish(net.sum(y, a)), Context(SMALL))
    assert [node.op.NAME for node in graph.nodes] == ["qconv", "qconv"]
    assert striped(graph, SMALL, StripeSpec("c", graph.outputs[0].name, 1)) is None
