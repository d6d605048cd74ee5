"""Channels that are constant for every input go, and not a bit of the result changes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intaglio.ir.graph import Array, Graph, Value
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.ir.verify import verify
from intaglio.ops.activation import Relu
from intaglio.ops.base import Op
from intaglio.ops.conv import Conv
from intaglio.ops.evaluate import evaluate_graph
from intaglio.ops.fixed_point import quantize_multipliers
from intaglio.ops.move import Reshape
from intaglio.ops.pool import MaxPool
from intaglio.ops.quantised import Lookup, QAdd, QConv, QMatMul
from intaglio.ops.quantised_rows import QAveragePool, QMean, mean_factor
from intaglio.passes.clean import dead_code
from intaglio.passes.context import Context, Finding
from intaglio.passes.dead_channels import drop_dead_channels
from intaglio.stages.context import Changes
from intaglio.targets.target import host_target
from support.examples import examples
from support.ir_text import assert_unchanged, rewritten


class Maker:
    """Integer networks with channels that are zero, saturated, or read by nobody."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.graph = Graph("dead")

    def weights(self, *shape: int) -> Array:
        w = self.numbers.integers(-127, 128, shape).astype(np.int8)
        for o in range(shape[0]):
            if self.rng.random() < 0.3:
                w[o] = 0
        if shape[1] > 1:
            for i in range(shape[1]):
                if self.rng.random() < 0.2:
                    w[:, i] = 0
        return w

    def scales(self, count: int) -> tuple[Array, Array]:
        return quantize_multipliers(self.numbers.uniform(0.0005, 0.01, count))

    def bias(self, count: int) -> Array:
        b = self.numbers.integers(-2000, 2000, count).astype(np.int32)
        saturated = self.numbers.random(count) < 0.2
        return np.where(saturated, self.numbers.choice([-(10**6), 10**6], count), b).astype(np.int32)

    def add(self, op: Op, *inputs: Value | None) -> Value:
        return self.graph.add(op, list(inputs), "v", f"/{op.NAME}")

    def conv(self, x: Value, outs: int, kernel: int, *, depthwise: bool = False) -> Value:
        c = x.shape[-1]
        outs, group, depth = (c, c, 1) if depthwise else (outs, 1, c)
        pad = (kernel // 2,) * 4 if self.rng.random() < 0.7 else (0,) * 4
        low = self.rng.choice([-128, -5, 3])
        op = QConv((1, 1), pad, (1, 1), group, self.rng.choice([-128, -3]), 0, self.rng.choice([-128, -3, 4]), low, 127)
        data = [self.weights(outs, depth, kernel, kernel), self.bias(outs) if self.rng.random() < 0.8 else None, *self.scales(outs)]
        return self.add(op, x, *[None if d is None else self.graph.constant("k", d) for d in data])

    def network(self) -> Graph:
        g, rng = self.graph, self.rng
        size = rng.choice([4, 5])
        x = g.value("x", TensorType(DType.I8, (1, size, size, 3)))
        g.inputs = [x]
        y = self.conv(x, rng.choice([4, 8]), 3)
        for _ in range(rng.randrange(2, 6)):
            y = self.step(y)
        if rng.random() < 0.7:
            y = self.add(QMean((1, 2), False, 3, *mean_factor(1.1, y.shape[1] * y.shape[2]), -4), y)
        else:
            y = self.add(Reshape((1, y.type.elements)), y)
        if rng.random() < 0.8:
            k = self.graph.constant("k", self.weights(5, y.shape[-1]))
            m, s = (self.graph.constant("k", d) for d in self.scales(5))
            y = self.add(QMatMul(True, rng.choice([-128, 2])), y, k, None, m, s)
        g.outputs = [y]
        return g

    def step(self, y: Value) -> Value:
        rng = self.rng
        match rng.randrange(7):
            case 0:
                return self.conv(y, rng.choice([3, 8, 16]), 1)
            case 1 if min(y.shape[1:3]) >= 3:
                return self.conv(y, 0, 3, depthwise=True)
            case 2 if min(y.shape[1:3]) >= 2:
                return self.add(MaxPool((2, 2), (1, 1), (0, 0, 0, 0), (1, 1), Layout.NHWC), y)
            case 3 if min(y.shape[1:3]) >= 2:
                return self.add(QAveragePool((2, 2), (1, 1), (1, 0, 0, 1)), y)
            case 4:
                return self.add(Lookup(), y, self.graph.constant("k", self.numbers.integers(-128, 128, 256).astype(np.int8)))
            case 5:
                other = self.conv(y, y.shape[-1], 1)
                op = QAdd(3, 1 << 30, 0, -2, 1 << 30, 0, 20, False, 1 << 30, -18, 4)
                return self.add(op, y, other)
        return self.conv(y, rng.choice([3, 8]), 1)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 10**6))
def test_the_result_stays_bit_for_bit(seed: int) -> None:
    graph, twin = Maker(seed).network(), Maker(seed).network()
    cut = dead_code(drop_dead_channels(twin, Context(host_target())), Context(host_target()))
    verify(cut)
    rng = np.random.default_rng(seed)
    for _ in range(3):
        x = rng.integers(-128, 128, graph.inputs[0].shape).astype(np.int8)
        want, got = evaluate_graph(graph, {"x": x}), evaluate_graph(cut, {"x": x})
        np.testing.assert_array_equal(got[cut.outputs[0].name], want[graph.outputs[0].name])


def weights_of(graph: Graph) -> int:
    return sum(n.inputs[1].type.elements for n in graph.nodes if isinstance(n.op, (QConv, QMatMul)) and n.inputs[1] is not None)


def test_something_goes() -> None:
    shrunk = 0
    for seed in range(40):
        graph = Maker(seed).network()
        before = weights_of(graph)
        shrunk += weights_of(dead_code(drop_dead_channels(graph, Context(host_target())), Context(host_target()))) < before
    assert shrunk > 20


def test_zero_filters_of_a_float_model_go() -> None:
    graph = Graph("f")
    x = graph.value("x", TensorType(DType.F32, (1, 4, 4, 2)))
    graph.inputs = [x]
    rng = np.random.default_rng(0)
    w = rng.standard_normal((6, 2, 3, 3)).astype(np.float32)
    w[[1, 4]] = 0
    bias = np.array([0.1, -0.5, 0.2, 0.3, 0.7, 0.1], np.float32)
    op = Conv((1, 1), (1, 1, 1, 1), (1, 1), 1, Layout.NHWC)
    a = graph.add(op, [x, graph.constant("w", w), graph.constant("b", bias)], "a")
    r = graph.add(Relu(), [a], "r")  # channel 1 is 0 now, channel 4 is 0.7
    v = graph.constant("v", rng.standard_normal((3, 6, 3, 3)).astype(np.float32))
    graph.outputs = [graph.add(op, [r, v, None], "y")]
    data = {"x": rng.standard_normal((1, 4, 4, 2)).astype(np.float32)}
    want = evaluate_graph(graph, data)[graph.outputs[0].name]
    said: list[Finding] = []
    changes = Changes()
    changes("import", graph)
    cut = drop_dead_channels(graph, Context(host_target(), report=said.append))
    changes("drop_dead_channels", cut)
    assert [(info.name, info.layers) for info in changes.found] == [("drop_dead_channels", ("a", "r"))]
    assert cut.nodes[0].output.shape[-1] == 5
    [told] = said
    assert isinstance(told, str) and told.startswith("1 of 9 channels removed: ") and "--disable-pass drop_dead_channels" in told
    np.testing.assert_allclose(evaluate_graph(cut, data)[cut.outputs[0].name], want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("keep", ["output", "state"])
def test_what_is_shown_stays(keep: str) -> None:
    """A constant channel of an output is still an output."""
    maker = Maker(3)
    g = maker.graph
    x = g.value("x", TensorType(DType.I8, (1, 4, 4, 3)))
    g.inputs = [x]
    y = maker.conv(x, 8, 1)
    g.outputs = [y]
    if keep == "state":
        from intaglio.ir.graph import State

        z = maker.conv(y, 3, 1)
        g.outputs, g.states = [z], [State(x, y)] if y.type == x.type else []
        g.outputs = [z, y]
    assert drop_dead_channels(g, Context(host_target())).nodes[0].output.shape[-1] == 8


SHOWN = """
    input x: i8[1,2,2,1]
    const w: i8[3,1,1,1] = [3, 0, 2]
    const b: i32[3] = [10, 20, -30]
    const m: i32[3] = [1073741824, 1073741824, 1073741824]
    const s: i32[3] = [0, 0, 0]
    const v: i8[1,3,1,1] = [1, 2, 4]
    const c: i32[1] = [5]
    const n: i32[1] = [1073741824]
    const t: i32[1] = [0]
    a: i8[1,2,2,3] = qconv(x, w, b, m, s)
    y: i8[1,2,2,1] = qconv(a, v, c, n, t, pads=(0,0,0,0))
    output y
    """


def test_a_constant_channel_becomes_a_part_of_the_next_bias() -> None:
    graph = rewritten(drop_dead_channels, SHOWN)
    first, second = graph.nodes
    assert first.output.shape == (1, 2, 2, 2)
    assert second.inputs[2] is not None and second.inputs[2].data is not None
    assert second.inputs[2].data.tolist() == [5 + 2 * 10]  # channel 1 is 20 / 2 for every x, times its weight


def test_padding_that_would_show_the_constant_keeps_it() -> None:
    text = SHOWN.replace("y: i8[1,2,2,1]", "y: i8[1,4,4,1]").replace("pads=(0,0,0,0)", "pads=(1,1,1,1)")
    assert_unchanged(drop_dead_channels, text)
