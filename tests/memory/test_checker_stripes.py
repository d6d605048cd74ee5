"""The checker's walk of a stripe against memory byte by byte: one thing of a sound stripe is changed, and both say the same."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from intaglio.errors import OurFault
from intaglio.ir.choices import Choices
from intaglio.ir.graph import Graph, Value
from intaglio.ir.stripes import Action, Stripe, StripeEnd, StripeSpec
from intaglio.ir.text import parse_network
from intaglio.kernels import lower
from intaglio.kernels.program import Program
from intaglio.memory import check_stripes, place
from intaglio.memory.checker import check
from intaglio.ops.rows import NoRows, access_of, need, row_bytes
from intaglio.targets.target import find_target
from support.integer_graphs import IntegerNet
from support.ir_text import graph_of
from support.placing import at, move, move_scratch, move_slot

FLOATS = """
    input x: f32[1,7,2,2] NHWC
    input s: f32[2]
    input t: f32[1,1,1,2] NHWC
    a: f32[1,7,2,2] NHWC = max_pool(x, kernel=(3,3), pads=(1,1,1,1), layout=NHWC)
    m: f32[1,7,2,2] NHWC = mul(a, s)
    b: f32[1,7,2,2] NHWC = add(m, t)
    c: f32[1,4,2,2] NHWC = max_pool(b, kernel=(3,3), strides=(2,1), pads=(1,1,1,1), layout=NHWC)
    output c
    output b
"""


def with_working_memory() -> Graph:
    net = IntegerNet(7, 6, 2, 4)
    a = net.conv(net.input, kernel=3, stride=1, pads=(1, 1, 1, 1), outs=4)
    return net.finish(net.conv(net.conv(a, kernel=3, stride=2, pads=(1, 1, 1, 1)), kernel=1, stride=1, pads=(0, 0, 0, 0), outs=4))


def striped(name: str, slots: bool = True) -> Program:
    """All of its layers are one stripe. `slots`: inputs and outputs have room in the arena."""
    what, way = name.split(", ")
    text = FLOATS.replace("input s", "const s").replace("input t", "const t") if way == "fed" else FLOATS
    text = re.sub(r"(const .*?)( NHWC)?$", r"\1 ...", text, flags=re.M)
    graph, target = (graph_of(text), "generic") if what == "floats" else (with_working_memory(), "cortex-m4f")
    names = [node.output.name for node in graph.nodes]
    rows = 2 if way == "two rows" else 1
    spec = StripeSpec(names[0], names[-1], rows, way == "up", way == "fed")
    program = lower(graph, find_target(target), Choices(stripes=(spec,)))
    program.placement = place(program, find_target(target), slots=slots)
    assert len(program.stripes) == 1
    return program


class Bytes:
    """What each byte of the arena holds: a byte of a value, or nothing that is known."""

    def __init__(self, program: Program) -> None:
        self.program, self.stripe = program, program.stripes[0]
        self.holds = np.full(program.arena_bytes, -1, np.int64)
        self.number = {value: n for n, value in enumerate(program.graph.values())}

    def where(self, value: Value) -> int | None:
        graph, placement = self.program.graph, self.program.placement
        if value in graph.inputs:
            return placement.slots["input", graph.inputs.index(value)].offset
        address = placement.of(value)
        if address is not None and address.region.kind.name == "OUTPUT":
            address = placement.slots["output", address.offset]
        return None if address is None else address.offset

    def bytes_of(self, value: Value, first: int, count: int) -> np.ndarray[Any, Any]:
        return self.number[value] * 10**6 + np.arange(first, first + count)

    def inside(self, start: int, count: int) -> bool:
        return start >= 0 and start + count <= len(self.holds)

    def has(self, start: int, value: Value, first: int, count: int) -> bool:
        return self.inside(start, count) and np.array_equal(self.holds[start : start + count], self.bytes_of(value, first, count))

    def is_sound(self) -> bool:
        for value in self.program.graph.inputs:
            start = self.where(value)
            assert start is not None
            if not self.inside(start, value.type.bytes):
                return False
            there = self.holds[start : start + value.type.bytes]
            there[:] = self.bytes_of(value, 0, value.type.bytes)
        done = [0] * len(self.program.layers)
        times = [0] * len(self.program.layers)
        for number in self.stripe.order:
            action = self.stripe.actions[number]
            if not self.step(action, done[action.layer], times[action.layer]):
                return False
            done[action.layer] += action.rows[self.program.layers[action.layer].node.output].count
            times[action.layer] += 1
        made = [layer.node.output for layer in self.program.layers]
        if done != [value.shape[1] for value in made]:
            return False
        whole = [(self.where(v), v) for v in made if v not in self.stripe.windows]
        return self.slots_are_apart() and all(start is not None and self.has(start, v, 0, v.type.bytes) for start, v in whole)

    def slots_are_apart(self) -> bool:
        graph = self.program.graph
        taken: list[int] = []
        for value in graph.outputs:
            start = self.where(value)
            assert start is not None
            taken += range(start, start + value.type.bytes)
        return len(taken) == len(set(taken))

    def step(self, action: Any, first: int, time: int) -> bool:
        layer = self.program.layers[action.layer]
        node, result = layer.node, layer.node.output
        made, size, rows = action.rows[result], row_bytes(result, 1), result.shape[1]
        start, window = self.where(result), self.stripe.windows.get(result)
        assert start is not None
        if first + made.count > rows:
            return False
        if action.roll and not self.roll(result, start, action.roll):
            return False
        row = rows - first - made.count if self.stripe.spec.up else first
        used: set[int] = set()
        if layer.scratch_bytes:
            scratch = self.program.placement.scratch[layer.name].offset
            if not self.inside(scratch, layer.scratch_bytes):
                return False
            self.holds[scratch : scratch + layer.scratch_bytes] = -1
            used |= {*range(scratch, scratch + layer.scratch_bytes)}
        for value, access in zip(node.inputs, access_of(node, 1), strict=True):
            if value is None or value.is_const:
                continue
            source = self.where(value)
            assert source is not None
            low, count = 0, value.type.bytes
            if access is not None:
                read, each = action.rows[value], row_bytes(value, 1)
                try:
                    wanted = need(access, row, made.count, value.shape[1])
                except NoRows:
                    return False
                if (wanted.high - wanted.low, wanted.top, wanted.bottom) != (read.count, read.top, read.bottom):
                    return False
                low, count, source = wanted.low * each, read.count * each, source + read.at + read.step * time
            if not self.has(source, value, low, count):
                return False
            used |= {*range(source, source + count)}
        to, count = made.at + made.step * time, made.count * size
        if window is not None and not 0 <= to <= window.bytes - count:
            return False
        if not self.inside(start + to, count) or used & {*range(start + to, start + to + count)}:
            return False
        self.holds[start + to : start + to + count] = self.bytes_of(result, row * size, count)
        return True

    def roll(self, value: Value, start: int, by: int) -> bool:
        """Its rows move within its window, and are lost where they leave it."""
        count = self.stripe.windows[value].bytes
        if not self.inside(start, count):
            return False
        window = self.holds[start : start + count]
        before = np.where(window // 10**6 == self.number[value], window, -1)
        window[:] = -1
        by = max(-count, min(by, count)) * (1 if self.stripe.spec.up else -1)
        if by > 0:
            window[by:] = before[: count - by]
        else:
            window[: count + by] = before[-by:]
        return True


def changed_stripes(stripe: Stripe[Any, Any]) -> Iterator[tuple[object, Stripe[Any, Any]]]:
    """One number of one action, or one place in the order."""
    order, actions = stripe.order, stripe.actions
    for n in range(len(order)):
        yield ("without step", n), replace(stripe, order=order[:n] + order[n + 1 :])
        yield ("twice", n), replace(stripe, order=order[: n + 1] + order[n:])
        yield ("later", n), replace(stripe, order=order[:n] + order[n + 1 : n + 2] + order[n : n + 1] + order[n + 2 :])
    for n, action in enumerate(actions):
        others: list[tuple[tuple[object, ...], Action[Any, Any]]] = []
        for value, rows in action.rows.items():
            size = row_bytes(value, 1)
            fields = {"at": (-size, -1, 1, size), "step": (-size, size), "count": (-1, 1), "top": (-1, 1), "bottom": (-1, 1)}
            for name, moves in fields.items():
                for by in moves:
                    changed = replace(rows, **{name: getattr(rows, name) + by})
                    others.append(((value.name, name, by), replace(action, rows={**action.rows, value: changed})))
        if action.roll:
            others += [(("roll", by), replace(action, roll=by)) for by in (0, 1, action.roll - 1, action.roll + 1, 2 * action.roll)]
        for what, one in others:
            yield (n, *what), replace(stripe, actions=(*actions[:n], one, *actions[n + 1 :]))
    for value, window in stripe.windows.items():
        for by in (-1, 1):
            other = replace(window, rows=window.rows + by)
            yield (value.name, "window", by), replace(stripe, windows={**stripe.windows, value: other})


def passes(program: Program) -> bool:
    try:
        check(program)
    except OurFault:
        return False
    return True


@pytest.mark.parametrize("name", ["floats, down", "floats, up", "floats, two rows", "working memory, down", "working memory, up"])
def test_a_stripe_with_one_change(name: str) -> None:
    program = striped(name)
    (stripe,) = program.stripes
    assert Bytes(program).is_sound() and passes(program)
    verdicts = []
    for what, other in changed_stripes(stripe):
        program.stripes[0] = other
        verdicts.append(Bytes(program).is_sound())
        assert passes(program) == verdicts[-1], what
    assert True in verdicts and verdicts.count(False) > 100


@pytest.mark.parametrize("name", ["floats, down", "floats, up", "working memory, down"])
def test_a_stripe_with_one_thing_elsewhere(name: str) -> None:
    """Everything that has a place is moved to both ends of everything else, and a byte beside them."""
    program = striped(name)
    before, verdicts = program.placement, []
    values = {v.name: v for v in program.graph.values()}
    sizes: dict[tuple[str, Any], tuple[int, int]] = {}
    for value, window in program.stripes[0].windows.items():
        sizes["value", value.name] = before.addresses[value].offset, window.bytes
    for slot, address in before.slots.items():
        ends = program.graph.inputs if slot[0] == "input" else program.graph.outputs
        sizes["slot", slot] = address.offset, ends[slot[1]].type.bytes
    for layer in program.layers:
        if layer.scratch_bytes:
            sizes["scratch", layer.name] = before.scratch[layer.name].offset, layer.scratch_bytes
    for (kind, what), (_, size) in sizes.items():
        ends_of_others = {n for start, count in sizes.values() for n in (start, start + count, start - size, start + count - size)}
        for to in sorted({n + more for n in (*ends_of_others, program.arena_bytes - size) for more in (-1, 0, 1)}):
            program.placement = before
            match kind:
                case "value":
                    move(program, values[what], at("arena", to))
                case "slot":
                    move_slot(program, what, at("arena", to))
                case _:
                    move_scratch(program, what, at("arena", to))
            verdicts.append(Bytes(program).is_sound())
            assert passes(program) == verdicts[-1], (what, to)
    assert True in verdicts and False in verdicts


def test_in_memory_of_the_caller_rows_are_where_they_belong() -> None:
    """Inputs and outputs have no room in the arena: nothing is known of their bytes, but positions are."""
    program = striped("floats, down", slots=False)
    (stripe,) = program.stripes
    outside = {*program.graph.inputs, *program.graph.outputs}
    refused = 0
    for n, action in enumerate(stripe.actions):
        for value in outside & action.rows.keys():
            for name in ("at", "step"):
                rows = replace(action.rows[value], **{name: getattr(action.rows[value], name) + 16})
                other = replace(action, rows={**action.rows, value: rows})
                program.stripes[0] = replace(stripe, actions=(*stripe.actions[:n], other, *stripe.actions[n + 1 :]))
                once = sum(stripe.actions[k].layer == action.layer for k in stripe.order) == 1
                if name == "at" or not once:
                    refused += not passes(program)
                    assert name == "step" or not passes(program), (n, value.name)
    assert refused > 5
    program.stripes[0] = stripe
    check(program)


def test_the_row_that_is_wrong_is_named() -> None:
    program = striped("floats, down")
    (stripe,) = program.stripes
    outputs = [layer.node.output.name for layer in program.layers]
    last = [k for k in stripe.order if stripe.actions[k].layer == outputs.index("c")][-1]
    program.stripes[0] = replace(stripe, order=(*stripe.order, last))
    with pytest.raises(OurFault, match="a step makes 1 rows of `c`, of which 0 are not made"):
        check(program)
    program.stripes[0] = stripe
    x = program.placement.slots["input", 0]
    move_slot(program, ("output", 1), replace(x, offset=x.offset + 2 * 16))  # its first row is the third of `x`
    with pytest.raises(OurFault, match="`a` reads row 2 of `x`, which is not in memory"):
        check(program)


RANGES = """\
intaglio-ir 1
model m
{sizes}
input x: f32[1,{h},{w},4] NHWC
a: f32[1,{h},{w},4] NHWC = max_pool(x, kernel=(3,3), strides=(1,1), pads=(1,1,1,1), layout=NHWC)
b: f32[1,{h},{w},4] NHWC = max_pool(a, kernel=(3,3), strides=(1,1), pads=(1,1,1,1), layout=NHWC)
output b
"""
SIZES = {
    "some rows": ("size H = 1..6", "H<=6", "3"),
    "rows of some length": ("size W = 1..6", "4", "W<=6"),
    "some rows of some length": ("size H = 1..6\nsize W = 1..5", "H<=6", "W<=5"),
    "as many rows as columns": ("size S = 1..6", "S<=6", "S<=6"),
    "no rows, too": ("size H = 0..6", "H<=6", "3"),
}  # fmt: skip


def with_ranges(name: str, slots: bool = True) -> Program:
    sizes, h, w = SIZES[name]
    target = find_target("generic")
    graph = parse_network(RANGES.format(sizes=sizes, h=h, w=w)).graph
    program = lower(graph, target, Choices(stripes=(StripeSpec("a", "b", 1),)))
    program.placement = place(program, target, slots=slots)
    assert len(program.stripes) == 1
    return program


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_a_sound_stripe_for_a_range_of_sizes_passes(name: str, slots: bool) -> None:
    check(with_ranges(name, slots))


@pytest.mark.parametrize("name", ["some rows", "some rows of some length", "as many rows as columns"])
def test_a_smaller_number_of_rows_leaves_in_time(name: str) -> None:
    """One step later, a row was read that is not there."""
    program = with_ranges(name)
    (stripe,) = program.stripes
    good = dict(stripe.ends)
    for number, end in good.items():
        for late in range(1, len(end.order) + 1):
            stripe.ends = {**good, number: StripeEnd(end.upto + late, end.order[late:])}
            same = stripe.order[end.upto : end.upto + late] == end.order[:late]
            assert passes(program) == same, (number, late)


def test_an_end_is_not_behind_the_order() -> None:
    program = with_ranges("some rows")
    (stripe,) = program.stripes
    stripe.ends = {**stripe.ends, 6: StripeEnd(len(stripe.order), ())}
    check(program)
    stripe.ends = {**stripe.ends, 6: StripeEnd(len(stripe.order) + 1, ())}
    with pytest.raises(OurFault, match="begins behind its order"):
        check(program)


def test_rows_have_as_many_lengths_as_can_be_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many rows there are does not count."""
    program = with_ranges("some rows of some length")
    monkeypatch.setattr(check_stripes, "MOST_COMBINATIONS", 5)
    check(program)
    monkeypatch.setattr(check_stripes, "MOST_COMBINATIONS", 4)
    with pytest.raises(OurFault, match="have 5 lengths"):
        check(program)


def test_rows_that_are_fed() -> None:
    program = striped("floats, fed")
    (stripe,) = program.stripes
    taken = [n for n, k in enumerate(stripe.order) if stripe.actions[k].layer == -1]
    assert len(taken) == 7
    for n in taken:
        program.stripes[0] = replace(stripe, order=stripe.order[:n] + stripe.order[n + 1 :])
        assert not passes(program), n
