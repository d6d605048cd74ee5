"""A model over a window, frame by frame: the same numbers as the model on every window."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intaglio.errors import UserError
from intaglio.ir.graph import Graph, Node, State, Value
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.ir.verify import verify
from intaglio.ops.activation import Clip, Tanh
from intaglio.ops.binary import Add, Max
from intaglio.ops.conv import Conv
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Reshape, Slice, Transpose
from intaglio.ops.pool import AveragePool, MaxPool
from intaglio.ops.quantised import QConv
from intaglio.ops.quantised_recurrent import QLstm
from intaglio.ops.quantised_rows import QAveragePool
from intaglio.ops.recurrent import Gru, Lstm, Recurrent, Rnn
from intaglio.ops.reduce import Reduce
from intaglio.passes.stream import stream_along
from support.commands import Intaglio
from support.examples import examples
from support.integer_graphs import IntegerNet
from support.ir_text import graph_of
from support.onnx_models import model, node, saved, value
from support.streams import assert_equals_windows, assert_goes_on

QUICK = settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
F = np.float32


# Random networks --------------------------------------------------------------------------------------------------------------


class Net:
    """Grows a network whose time is one of the two axes of images. Nothing is padded along it."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.integers = rng.random() < 0.5
        self.nhwc = self.integers or rng.random() < 0.5
        self.place = rng.randrange(2)  # rows or columns are time
        frames, across, channels = rng.randint(6, 20), rng.randint(1, 4), rng.choice([1, 2, 4])
        sides = (frames, across) if self.place == 0 else (across, frames)
        self.numbers = np.random.default_rng(seed)
        if self.integers:
            self.net = IntegerNet(seed, *sides, channels)
            self.graph, self.x = self.net.graph, self.net.input
            return
        self.graph = Graph("net")
        shape = (1, *sides, channels) if self.nhwc else (1, channels, *sides)
        self.x = self.graph.value("x", TensorType(DType.F32, shape, Layout.NHWC if self.nhwc else Layout.NCHW))
        self.graph.inputs.append(self.x)

    @property
    def axis(self) -> int:
        return self.place + (1 if self.nhwc else 2)

    def frames(self, x: Value) -> int:
        return x.shape[self.axis]

    def pair(self, along: int, across: int) -> tuple[int, int]:
        return (along, across) if self.place == 0 else (across, along)

    def conv(self, x: Value, size: int, stride: int, dilation: int, depthwise: bool, added: Value | None = None) -> Value:
        rng = self.rng
        channels = x.shape[3 if self.nhwc else 1]
        across = x.shape[(1 if self.nhwc else 2) + 1 - self.place]
        wide = rng.choice([1, 2]) if across > 1 else 1
        pads = tuple(self.pair(0, wide // 2)) + tuple(self.pair(0, (wide - 1) // 2))
        strides, dilations, kernel = self.pair(stride, 1), self.pair(dilation, 1), self.pair(size, wide)
        group, outs = (channels, channels) if depthwise else (1, rng.choice([1, 2, 4]))
        weights = self.numbers.integers(-127, 128, (outs, channels // group, *kernel))
        graph = self.graph
        if not self.integers:
            w = graph.constant("w", (weights / 64 / np.sqrt(weights[0].size)).astype(F))
            op = Conv(strides, pads, dilations, group, layout=Layout.NHWC if self.nhwc else Layout.NCHW)
            bias = graph.constant("b", self.numbers.standard_normal(outs).astype(F))
            return graph.add(op, [x, w, bias], "c", "/conv")
        w = graph.constant("w", weights.astype(np.int8))
        factors = self.net.numbers.integers(2**30, 2**31 - 1, outs).astype(np.int32)
        shifts = np.full(outs, -8 - int(np.log2(weights[0].size) // 2), np.int32)
        given = [x, w, graph.constant("b", self.numbers.integers(-2000, 2000, outs).astype(np.int32))]
        given += [graph.constant("m", factors), graph.constant("s", shifts)]
        qop = QConv(strides, pads, dilations, group, x_zero=rng.randint(-128, 127), y_zero=rng.randint(-60, 60))
        return graph.add(qop, [*given], "c", "/conv")

    def pool(self, x: Value, size: int, stride: int) -> Value:
        mean = self.rng.random() < 0.5
        window = (self.pair(size, 1), self.pair(stride, 1), (0, 0, 0, 0))
        if self.integers and mean:
            return self.graph.add(QAveragePool(*window), [x], "p", "/pool")
        kind = AveragePool if mean else MaxPool
        return self.graph.add(kind(*window, (1, 1), Layout.NHWC if self.nhwc else Layout.NCHW), [x], "p", "/pool")

    def cropped(self, x: Value, first: int, count: int) -> Value:
        shape = (*x.shape[: self.axis], count, *x.shape[self.axis + 1 :])
        starts = tuple(first if n == self.axis else 0 for n in range(4))
        return self.graph.add(Slice(starts, (1, 1, 1, 1), shape), [x], "cut", "/cut")

    def block(self, x: Value) -> Value:
        """A depthwise layer and the sum with a part of what it read."""
        size = self.rng.randint(1, min(4, self.frames(x)))
        y = self.conv(x, size, 1, 1, depthwise=True)
        if y.shape[:3] != (*x.shape[: self.axis], self.frames(y), *x.shape[self.axis + 1 :])[:3]:
            return y
        part = self.cropped(x, self.rng.randint(0, size - 1), self.frames(y))
        if part.shape != y.shape:
            return y
        return self.net.sum(y, part) if self.integers else self.graph.add(Add(), [y, part], "s", "/sum")

    def grow(self, x: Value) -> Value:
        rng, have = self.rng, self.frames(x)
        what = rng.choice(["conv", "conv", "depthwise", "pool", "block", "one"])
        if what == "one":
            op = Clip(-20.0, 30.0) if not self.integers else Max()
            more = [] if not self.integers else [self.graph.constant("k", np.asarray(rng.randint(-30, 0), np.int8))]
            return self.graph.add(op, [x, *more], "e", "/one")
        if what == "block":
            return self.block(x)
        size, stride = rng.choice([1, 2, 3, 5]), rng.choice([1, 1, 1, 2, 3])
        dilation = rng.choice([1, 1, 2]) if what != "pool" else 1
        if (size - 1) * dilation + 1 > have:
            return x
        return self.pool(x, size, stride) if what == "pool" else self.conv(x, size, stride, dilation, what == "depthwise")

    def tail(self, x: Value) -> Value:
        graph, kind = self.graph, self.rng.choice(["none", "none", "mean", "dense", "top"])
        if kind == "dense":
            flat = graph.add(Reshape((1, x.type.elements)), [x], "flat", "/flat")
            if self.integers:
                return graph.add(Max(), [flat, graph.constant("k", np.asarray(-20, np.int8))], "d", "/dense")
            w = graph.constant("w", self.numbers.standard_normal((x.type.elements, 3)).astype(F))
            return graph.add(MatMul(), [flat, w], "d", "/dense")
        if kind == "mean" and not self.integers:
            return graph.add(Reduce("mean", (self.axis,), self.rng.random() < 0.5), [x], "m", "/mean")
        if kind == "mean":
            return self.pool(x, self.frames(x), self.frames(x))
        if kind == "top":
            return graph.add(Reduce("max", (3 if self.nhwc else 1,), self.rng.random() < 0.5), [x], "m", "/top")
        return x

    def finish(self, outputs: list[Value]) -> Graph:
        self.graph.outputs = outputs
        self.graph.output_names = [v.name for v in outputs]
        verify(self.graph)
        return self.graph


def random_net(seed: int) -> tuple[Graph, int]:
    net = Net(seed)
    x = net.conv(net.x, net.rng.randint(1, 3), 1, 1, depthwise=False)
    middle = x
    for n in range(net.rng.randint(1, 5)):
        x = net.grow(x)
        middle = x if n == 0 else middle
    y = net.tail(x)
    both = net.rng.random() < 0.2 and middle is not y
    return net.finish([y, middle] if both else [y]), net.axis


@QUICK
@given(st.integers(0, 10**6))
def test_every_step_is_the_model_on_its_window(seed: int) -> None:
    graph, axis = random_net(seed)
    assert_equals_windows(graph, axis, seed)


def test_a_window_that_becomes_one_row_takes_frames_one_by_one() -> None:
    """The stride of a pool over the whole window is not seen, so it makes no step of 8 frames."""
    graph = graph_of("""
        input x: f32[1,8,2,3] NHWC
        y: f32[1,1,2,3] NHWC = average_pool(x, kernel=(8, 1), strides=(8, 1), layout=NHWC)
        output y
    """)
    assert assert_equals_windows(graph, 1).hop == 1


def test_the_step_graph_keeps_the_frames_that_are_still_needed() -> None:
    graph = graph_of("""
        input x: f32[1,8,1,3] NHWC
        const w: f32[2,3,3,1] ...
        y: f32[1,6,1,2] NHWC = conv(x, w, layout=NHWC)
        output y
    """)
    made = assert_equals_windows(graph, 1)
    assert [s.input.name for s in made.graph.states] == ["x_kept"]
    assert made.graph.inputs[0].shape == (1, 1, 1, 3) and made.graph.outputs[0].shape == (1, 1, 1, 2)
    assert (made.hop, made.warmup, made.whole) == (1, 8, "")


# Layers that go on ------------------------------------------------------------------------------------------------------------

CAUSAL = """
    input x: f32[1,12,1,3] NHWC
    const w: f32[4,3,3,1] ...
    const v: f32[4,1,3,1] ...
    a: f32[1,12,1,4] NHWC = conv(x, w, pads=(2, 0, 0, 0), layout=NHWC)
    r: f32[1,12,1,4] NHWC = relu(a)
    y: f32[1,12,1,4] NHWC = conv(r, v, pads=(4, 0, 0, 0), dilations=(2, 1), group=4, layout=NHWC)
    output y
"""


def test_causal_layers_equal_the_whole_sequence() -> None:
    made = assert_goes_on(graph_of(CAUSAL), 1)
    assert made.hop == 1 and len(made.goes_on) == 2


def test_causal_layers_of_integers_are_padded_with_their_zero_point() -> None:
    net = IntegerNet(5, 12, 1, 4)
    a = net.conv(net.input, kernel=1, stride=1, pads=(0, 0, 0, 0), outs=4)
    graph = net.graph
    w = graph.constant("w", np.random.default_rng(1).integers(-127, 128, (4, 4, 3, 1)).astype(np.int8))
    rest = [graph.constant(n, np.full(4, v, np.int32)) for n, v in (("b", 50), ("m", 2**30), ("s", -7))]
    op = QConv((1, 1), (2, 0, 0, 0), (1, 1), 1, x_zero=-77, y_zero=3)
    assert_goes_on(net.finish(graph.add(op, [a, w, *rest], "y", "/causal")), 1)


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_a_causal_layer_behind_one_that_needs_frames_waits_for_its_first_row(stride: int) -> None:
    """What comes out before is not padding, and is not in the model."""
    rows = (12 - 4) // stride + 1
    graph = graph_of(f"""
        input x: f32[1,12,1,3] NHWC
        const w: f32[4,3,4,1] ...
        const v: f32[4,4,3,1] ...
        a: f32[1,{rows},1,4] NHWC = conv(x, w, strides=({stride}, 1), layout=NHWC)
        y: f32[1,{rows},1,4] NHWC = conv(a, v, pads=(2, 0, 0, 0), layout=NHWC)
        output y
    """)
    assert assert_goes_on(graph, 1).hop == stride


def recurrent(
    kind: type[Recurrent],
    *,
    batch_first: bool = False,
    direction: str = "forward",
    front: int = 1,
    start: float = 0.0,
    carried: bool = False,
) -> Graph:
    """[a convolution of `front` frames], a RNN over 10 steps, and a dense layer on what it ends with."""
    rng = np.random.default_rng(3)
    graph, hidden, gates = Graph("rnn"), 4, kind.GATES
    x = graph.value("x", TensorType(DType.F32, (1, 3, 10)))
    graph.inputs.append(x)
    sides = 2 if direction == "bidirectional" else 1
    weights = graph.constant("front", rng.standard_normal((3, 3, front)).astype(F))
    y = graph.add(Conv((1,), (0, 0), (1,), 1), [x, weights], "c", "/front") if front else x
    turned = graph.add(Transpose((0, 2, 1) if batch_first else (2, 0, 1)), [y], "t", "/turn")
    names = {1: ("Tanh",), 2: ("Sigmoid", "Tanh"), 3: ("Sigmoid", "Tanh", "Tanh")}[kind.FUNCTIONS] * sides
    zeros = (0.0,) * len(names)
    op = kind(hidden, direction, names, zeros, zeros, layout_batch_first=batch_first)
    shapes = ((sides, gates * hidden, 3), (sides, gates * hidden, hidden), (sides, 2 * gates * hidden))
    given: list[Value | None] = [turned, *[graph.constant("w", rng.standard_normal(s).astype(F)) for s in shapes], None]
    state = (1, sides, hidden) if batch_first else (sides, 1, hidden)
    starts = [graph.constant("start", np.full(state, start, F)) for _ in range(kind.STATES)]
    if carried:  # as TFLite has it: variables that outlive a run, without the axis of directions
        kept = [graph.value("kept", TensorType(DType.F32, (1, hidden))) for _ in range(kind.STATES)]
        graph.inputs += kept
        starts = [graph.add(Reshape(state), [v], "start", "/start") for v in kept]
    given += starts
    types = op.infer(*[None if v is None else v.type for v in given])
    outs = [graph.value("r", t) for t in types]
    graph.nodes.append(Node(op, given, outs, "/rnn"))
    if carried:
        ends = [graph.add(Reshape((1, hidden)), [v], "last", "/last") for v in outs[1:]]
        graph.states = [State(v, last, start) for v, last in zip(kept, ends, strict=True)]
    graph.outputs = [outs[0], graph.add(Tanh(), [outs[1]], "end", "/end")]
    graph.output_names = [v.name for v in graph.outputs]
    verify(graph)
    return graph


@pytest.mark.parametrize("front", [1, 4])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", [Lstm, Gru, Rnn])
def test_a_rnn_goes_on(kind: type[Recurrent], batch_first: bool, front: int) -> None:
    """Behind a convolution that needs four frames it starts with the fourth."""
    made = assert_goes_on(recurrent(kind, batch_first=batch_first, front=front, start=0.25), 2)
    assert made.goes_on == ("/rnn",) and made.hop == 1


@pytest.mark.parametrize("front", [1, 4])
@pytest.mark.parametrize("kind", [Lstm, Gru])
def test_a_rnn_with_a_state_of_its_own_keeps_that(kind: type[Recurrent], front: int) -> None:
    graph = recurrent(kind, front=front, start=0.25, carried=True)
    made = assert_goes_on(graph, 2)
    assert {s.input.name for s in graph.states} <= {s.input.name for s in made.graph.states}
    assert not [s for s in made.graph.states if s.input.name.endswith("_state")]


def test_a_lstm_of_integers_goes_on() -> None:
    rng = np.random.default_rng(2)
    graph, hidden = Graph("qlstm"), 3
    x = graph.value("x", TensorType(DType.I8, (1, 7, 2)))
    kept = [graph.value("h", TensorType(DType.I8, (1, hidden))), graph.value("c", TensorType(DType.I16, (1, hidden)))]
    graph.inputs = [x, *kept]
    shapes = (((12, 2), np.int8), ((12, hidden), np.int8), ((12,), np.int32), ((12,), np.int32))
    weights = [graph.constant("w", rng.integers(-100, 100, s).astype(t)) for s, t in shapes]
    op = QLstm((2**30,) * 4, (-4,) * 4, (2**30,) * 4, (-4,) * 4, 2**30, -6, -3)
    given: list[Value | None] = [x, *weights, *kept]
    outs = [graph.value("y", t) for t in op.infer(*[v.type for v in given if v is not None])]
    graph.nodes.append(Node(op, given, outs, "/qlstm"))
    graph.states = [State(v, out, fill) for v, out, fill in zip(kept, outs[1:], (-3.0, 0.0), strict=True)]
    graph.outputs, graph.output_names = outs[:1], ["y"]
    assert assert_goes_on(graph, 1).hop == 1


# What cannot ------------------------------------------------------------------------------------------------------------------


def padded(pads: str, tail: str = "output y") -> str:
    return f"""
        input x: f32[1,8,1,3] NHWC
        const w: f32[3,3,3,1] ...
        y: f32[1,8,1,3] NHWC = conv(x, w, pads={pads}, layout=NHWC)  # /same
        {tail}
    """


@pytest.mark.parametrize(
    ("graph", "axis", "why"),
    [
        (graph_of(padded("(1, 0, 1, 0)")), 1, "`conv` /same: it pads the axis with 1 frames before and 1 after the window"),
        (graph_of(padded("(1, 0, 1, 0)")), 3, "the axis is the batch or the channels"),
        (graph_of(padded("(1, 0, 1, 0)")), 4, "has 4 axes, so it has no axis 4"),
        (graph_of("input x: f32[1,4]\ninput z: f32[1,4]\ny: f32[1,4] = add(x, z)\noutput y"), 1, "has 2 inputs; a stream has one"),
        (recurrent(Lstm, direction="bidirectional", front=0), 2, "`lstm` /rnn: it is bidirectional: it needs"),
    ],
)  # fmt: skip
def test_what_cannot_be_streamed_says_why(graph: Graph, axis: int, why: str) -> None:
    with pytest.raises(UserError) as told:
        stream_along(graph, axis)
    assert told.value.slug == "bad-stream" and why in str(told.value) and told.value.hint


def test_a_layer_that_needs_the_whole_window_is_named() -> None:
    graph = graph_of("""
        input x: f32[1,8,1,3] NHWC
        const w: f32[3,3,3,1] ...
        a: f32[1,6,1,3] NHWC = conv(x, w, layout=NHWC)  # /valid
        y: f32[1,6,1,3] NHWC = conv(a, w, pads=(1, 0, 1, 0), layout=NHWC)  # /same
        output y
    """)
    made = assert_equals_windows(graph, 1)
    assert made.whole == "`conv` /same: it pads the axis with 1 frames before and 1 after the window"
    assert [s.input.name for s in made.graph.states] == ["x_kept", "a_kept"]


def test_the_whole_window_of_what_remembers_more_is_no_window() -> None:
    mean = "m: f32[1,1,1,4] NHWC = reduce(y, kind=mean, axes=(1), keepdims=true)\n    output m"
    graph = graph_of(CAUSAL.replace("output y", mean))
    with pytest.raises(UserError, match="needs the whole window of `y`, which keeps more than that"):
        stream_along(graph, 1)


def test_a_layer_that_goes_on_needs_whole_steps() -> None:
    graph = graph_of("""
        input x: f32[1,9,1,3] NHWC
        const w: f32[3,3,2,1] ...
        const v: f32[3,3,3,1] ...
        a: f32[1,4,1,3] NHWC = conv(x, w, strides=(2, 1), layout=NHWC)
        y: f32[1,4,1,3] NHWC = conv(a, v, pads=(2, 0, 0, 0), layout=NHWC)
        output y
    """)
    with pytest.raises(UserError, match="a step takes 2 frames, and 9 frames are not"):
        stream_along(graph, 1)


# As a command -----------------------------------------------------------------------------------------------------------------


def convolution(folder: Path, pads: tuple[int, int]) -> Path:
    w = np.random.default_rng(1).standard_normal((2, 3, 3)).astype(F)
    return saved(model([node("Conv", "x w", "y", pads=list(pads))], [value("x", [1, 3, 8])], constants={"w": w}), folder)


@pytest.mark.parametrize(("pads", "axis", "why"), [((1, 1), "2", "with 1 frames before and 1 after"), ((0, 0), "7", "axis 7")])
def test_the_command_refuses_with_a_hint(pads: tuple[int, int], axis: str, why: str, intaglio: Intaglio, tmp_path: Path) -> None:
    said = intaglio("compile", convolution(tmp_path, pads), "--stream", axis, "-o", tmp_path / "out")
    assert said.code == 2
    assert "error[bad-stream]" in said.err and why in said.err and "hint: " in said.err
    assert not (tmp_path / "out").exists()


def test_an_ir_file_past_optimise_is_too_late(intaglio: Intaglio, tmp_path: Path) -> None:
    path = convolution(tmp_path, (0, 0))
    for stage, code in (("optimise", 2), ("import", 0)):
        assert intaglio("compile", path, "-o", tmp_path / f"{stage}.ig", "--stop-after", stage).code == 0
        said = intaglio("compile", tmp_path / f"{stage}.ig", "--stream", "2", "-o", tmp_path / "out", "--stop-after", "memory")
        assert said.code == code
        assert ("is already past the stage `optimise`" in said.err) == (code == 2)


@pytest.mark.parametrize("pads", [(0, 0), (2, 0)])
def test_a_package_is_compared_with_the_model(pads: tuple[int, int], intaglio: Intaglio, tmp_path: Path) -> None:
    assert intaglio("compile", convolution(tmp_path, pads), "--stream", "2", "-o", tmp_path / "out").code == 0
    said = intaglio("validate", tmp_path / "out")
    assert said.code == 0 and "on each window" in said.out + said.err


def test_a_package_that_waits_for_its_first_row_is_compared_with_the_model(intaglio: Intaglio, tmp_path: Path) -> None:
    """A convolution without padding, then a causal one and a GRU."""
    rng = np.random.default_rng(1)
    shapes = {"w": (4, 3, 3), "v": (4, 4, 3), "g": (1, 9, 4), "r": (1, 9, 3)}
    nodes = [
        node("Conv", "x w", "a"),
        node("Conv", "a v", "b", pads=[2, 0]),
        node("Transpose", "b", "t", perm=[2, 0, 1]),
        node("GRU", "t g r", "y h", hidden_size=3),
    ]
    constants = {name: rng.standard_normal(shape).astype(F) for name, shape in shapes.items()}
    path = saved(model(nodes, [value("x", [1, 3, 8])], [value("y", None)], constants), tmp_path)
    assert intaglio("compile", path, "--stream", "2", "-o", tmp_path / "out").code == 0
    said = intaglio("validate", tmp_path / "out", "--json")
    assert said.code == 0 and said.json["ok"] and said.json["samples"] == 6, "two frames are needed for the first row"
