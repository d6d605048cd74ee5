"""Small random graphs, for properties that every graph must have."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
from hypothesis import strategies as st

from intaglio.ir.graph import Graph, State, Value
from intaglio.ir.types import DType, TensorType
from intaglio.ops.activation import Clip, Relu, Sigmoid, Tanh
from intaglio.ops.base import Op
from intaglio.ops.binary import Add, Max, Min, Mul, Pow, Sub
from intaglio.ops.control import Copy, Select
from intaglio.ops.conv import Conv, ConvTranspose
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Concat, Expand, Pad, Reshape, Slice, Transpose
from intaglio.ops.norm import BatchNorm, LayerNorm
from intaglio.ops.pool import AveragePool, MaxPool
from intaglio.ops.reduce import Reduce, Softmax
from intaglio.ops.unary import Abs, Neg, Sin

F = np.float32
Grow = Callable[["_Maker", Value], Value]


class _Maker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.graph = Graph("random")
        self.numbers = np.random.default_rng(rng.randrange(1000))
        self.guard: Value | None = None

    def const(self, *shape: int) -> Value:
        return self.graph.constant("k", self.numbers.standard_normal(shape).astype(F))

    def add(self, op: Op, *inputs: Value | None) -> Value:
        return self.graph.add(op, list(inputs), "v", f"/{op.NAME}", when=self.guard)


def _same(maker: _Maker, x: Value) -> Value:
    """Another value of the shape of x, or x."""
    guarded = {o for n in maker.graph.nodes if n.when is not maker.guard for o in n.outputs}
    made = [*maker.graph.inputs, *[o for n in maker.graph.nodes for o in n.outputs]]
    fit = [v for v in made if v.type == x.type and v not in guarded]
    return maker.rng.choice([x, *fit])


def _window(maker: _Maker, x: Value, make: Callable[[], Value]) -> Value:
    return make() if x.type.rank == 4 and min(x.shape[2:]) >= 2 else maker.add(Relu(), x)


def _conv(maker: _Maker, x: Value) -> Value:
    rng = maker.rng

    def make() -> Value:
        c = x.shape[1]
        group = c if rng.random() < 0.3 else 1
        out = c if group > 1 else rng.choice([1, 3, 8])
        kernel = rng.choice([1, 2, 3])
        weights = maker.const(out, c // group, kernel, kernel)
        op = Conv((rng.choice([1, 2]),) * 2, (kernel // 2,) * 4, (1, 1), group)
        return maker.add(op, x, weights, maker.const(out) if rng.random() < 0.5 else None)

    return _window(maker, x, make)


def _pool(maker: _Maker, x: Value) -> Value:
    kind = maker.rng.choice([MaxPool, AveragePool])
    return _window(maker, x, lambda: maker.add(kind((2, 2), (maker.rng.choice([1, 2]),) * 2), x))


def _conv_transpose(maker: _Maker, x: Value) -> Value:
    op = ConvTranspose((maker.rng.choice([1, 2]),) * 2, (maker.rng.choice([0, 1]),) * 4)
    return _window(maker, x, lambda: maker.add(op, x, maker.const(x.shape[1], 2, 3, 3)))


def _matmul(maker: _Maker, x: Value) -> Value:
    if x.type.rank < 2:
        return maker.add(Neg(), x)
    out = maker.rng.choice([1, 3, 9])
    turned = maker.rng.random() < 0.5
    weights = maker.const(*((out, x.shape[-1]) if turned else (x.shape[-1], out)))
    return maker.add(MatMul(transpose_b=turned), x, weights, maker.const(out) if maker.rng.random() < 0.5 else None)


def _transpose(maker: _Maker, x: Value) -> Value:
    axes = list(range(x.type.rank))
    maker.rng.shuffle(axes)
    return maker.add(Transpose(tuple(axes)), x)


def _reshape(maker: _Maker, x: Value) -> Value:
    n = x.type.elements
    first = maker.rng.choice([d for d in range(1, n + 1) if n % d == 0])
    second = maker.rng.choice([d for d in range(1, n // first + 1) if (n // first) % d == 0])
    shape = maker.rng.choice([(n,), (first, n // first), (1, first, second, n // first // second), (first, 1, n // first)])
    return maker.add(Reshape(shape), x)


def _scaled(maker: _Maker, x: Value) -> Value:
    channels = (x.shape[1], *[1] * (x.type.rank - 2)) if x.type.rank > 1 else ()
    shape = maker.rng.choice([(), (1,) * x.type.rank, x.shape[-1:], channels])
    op = maker.rng.choice([Add(), Sub(), Mul(), Max()])
    pair = [x, maker.const(*shape)]
    maker.rng.shuffle(pair)
    return maker.add(op, *pair)


def _batch_norm(maker: _Maker, x: Value) -> Value:
    if x.type.rank < 2:
        return maker.add(Abs(), x)
    params = [maker.graph.constant("p", np.abs(maker.numbers.standard_normal(x.shape[1])).astype(F) + F(0.5)) for _ in range(4)]
    return maker.add(BatchNorm(), x, *params)


def _norm(maker: _Maker, x: Value) -> Value:
    axis = maker.rng.randrange(x.type.rank)
    top = Reduce("max", (axis,), x.type.rank == 1)
    return maker.add(maker.rng.choice([Softmax(axis), LayerNorm(axis), Reduce("mean", (axis,)), top]), x)


def _pad(maker: _Maker, x: Value) -> Value:
    pads = [0] * (2 * x.type.rank)
    for n in range(x.type.rank):
        pads[n], pads[n + x.type.rank] = maker.rng.choice([(0, 0), (1, 0), (1, 1)])
    return maker.add(Pad(tuple(pads), maker.rng.choice(["constant", "edge"])), x)


def _slice(maker: _Maker, x: Value) -> Value:
    shape = tuple(maker.rng.choice([d, max(1, d - 1)]) for d in x.shape)
    return maker.add(Slice((0,) * x.type.rank, (1,) * x.type.rank, shape), x)


def _concat(maker: _Maker, x: Value) -> Value:
    return maker.add(Concat(maker.rng.randrange(x.type.rank)), x, _same(maker, x))


def _two(maker: _Maker, x: Value) -> Value:
    op = maker.rng.choice([Add(), Sub(), Mul(), Max(), Min()])
    return maker.add(op, x, _same(maker, x))


def _one(maker: _Maker, x: Value) -> Value:
    smooth = [Relu(), Tanh(), Neg(), Sigmoid(), Sin()]
    return maker.add(maker.rng.choice([*smooth, Clip(-1.0, 1.0), Clip(0.0), Copy()]), x)


def _silu(maker: _Maker, x: Value) -> Value:
    return maker.add(Mul(), x, maker.add(Sigmoid(), x))


def _power(maker: _Maker, x: Value) -> Value:
    bounded = maker.add(Sigmoid(), x)
    exponent = maker.graph.constant("e", np.asarray(maker.rng.choice([0.5, 1.0, 2.0, 3.0, -1.0]), F))
    return maker.add(Pow(), bounded, exponent)


def _guarded(maker: _Maker, x: Value) -> Value:
    if maker.guard is not None:
        return maker.add(Neg(), x)
    condition = maker.graph.inputs[1]
    maker.guard = condition
    inside = maker.add(Tanh(), maker.rng.choice(_SIMPLE)(maker, x)) if maker.rng.random() < 0.5 else maker.add(Tanh(), x)
    maker.guard = None
    if inside.type != x.type:
        other = maker.add(Expand(inside.shape), maker.const(*[1] * inside.type.rank))
        return maker.add(Select(), condition, inside, other)
    return maker.add(Select(), condition, inside, x)


_SIMPLE: list[Grow] = [_one, _two, _scaled, _transpose, _reshape, _silu]
GROW: list[Grow] = [
    *_SIMPLE, *_SIMPLE, _conv, _conv, _pool, _conv_transpose, _matmul, _batch_norm, _norm, _pad, _slice, _concat, _power, _guarded,
]  # fmt: skip


def make_graph(rng: random.Random, steps: int) -> Graph:
    """Inputs: a tensor, a condition, and sometimes a state."""
    maker = _Maker(rng)
    graph = maker.graph
    shape = rng.choice([(1, 3, 4, 5), (2, 4, 3, 3), (3, 5), (2, 3, 4), (1, 8, 6, 6), (7,)])
    graph.inputs = [graph.value("x", TensorType(DType.F32, shape), "the input"), graph.value("c", TensorType(DType.BOOL, ()))]
    values = [graph.inputs[0]]
    for _ in range(steps):
        x = rng.choice([values[-1], values[-1], rng.choice(values)])
        made = rng.choice(GROW)(maker, x)
        if made.type.elements <= 400:
            values.append(made)
    outputs = list(dict.fromkeys([values[-1], *(v for v in values[1:] if rng.random() < 0.15)]))
    graph.outputs = [v if v is not graph.inputs[0] else maker.add(Copy(), v) for v in outputs]
    if rng.random() < 0.3:
        fed = graph.value("h", graph.outputs[0].type, "state")
        graph.inputs.append(fed)
        following = maker.add(Add(), fed, graph.outputs[0])
        graph.states.append(State(fed, following))
        if rng.random() < 0.5:
            graph.outputs.append(following)
    used = {v for n in graph.nodes for v in n.outputs}
    assert all(o in used for o in graph.outputs)
    graph.output_names = [f"out {v.name}" if rng.random() < 0.5 else v.name for v in graph.outputs]
    return graph


def graphs(steps: int = 8) -> st.SearchStrategy[Graph]:
    return st.builds(make_graph, st.randoms(use_true_random=False), st.integers(1, steps))


__all__ = ["graphs", "make_graph"]
