"""Random graphs of little but concats, slices and reshapes: what can share memory."""

from __future__ import annotations

import random

from intaglio.ir.graph import Graph, State, Value
from intaglio.ir.types import DType, TensorType
from intaglio.ir.verify import verify
from intaglio.ops.binary import Add, Max
from intaglio.ops.move import Concat, Reshape, Slice, Transpose
from intaglio.ops.unary import Abs, Neg


def tangle(rng: random.Random, steps: int, inner: float = 0.2) -> Graph:
    """`inner`: how often the axis is any, and not the outermost one that has more than one element."""
    graph = Graph("tangle")
    dtype = rng.choice([DType.F32, DType.I8, DType.I64])
    shape = rng.choice([(4,), (2, 4), (1, 4, 4), (1, 1, 8)])
    graph.inputs = [graph.value("x", TensorType(dtype, shape)), graph.value("h", TensorType(dtype, shape))]
    values: list[Value] = list(graph.inputs)
    for _ in range(steps):
        x = rng.choice([*values[-3:], rng.choice(values)])
        axis = next((n for n, d in enumerate(x.shape) if d != 1), 0) if rng.random() >= inner else rng.randrange(x.type.rank)
        same = [v for v in values if v.type.rank == x.type.rank and all(
            a == b for n, (a, b) in enumerate(zip(v.shape, x.shape, strict=True)) if n != axis
        )]  # fmt: skip
        match rng.choice(["concat", "concat", "slice", "slice", "reshape", "one", "one", "two", "turn"]):
            case "concat":
                others = [rng.choice(same) for _ in range(rng.randrange(1, 3))]
                made = graph.add(Concat(axis), [x, *others], "c")
            case "slice":
                count = rng.randrange(1, x.shape[axis] + 1)
                start = rng.randrange(x.shape[axis] - count + 1)
                starts = tuple(start if n == axis else 0 for n in range(x.type.rank))
                sizes = tuple(count if n == axis else d for n, d in enumerate(x.shape))
                made = graph.add(Slice(starts, (1,) * x.type.rank, sizes), [x], "s")
            case "reshape":
                made = graph.add(Reshape(rng.choice([(x.type.elements,), (1, *x.shape[::-1]), (x.type.elements, 1)])), [x], "r")
            case "two":
                equal = [v for v in values if v.shape == x.shape]
                made = graph.add(rng.choice([Add(), Max()]), [x, rng.choice(equal)], "t")
            case "turn":
                made = graph.add(Transpose(tuple(range(x.type.rank))[::-1]), [x], "u")
            case _:
                made = graph.add(rng.choice([Neg(), Abs()]), [x], "o")
        if made.type.elements <= 200 and made.type.rank <= 4:
            values.append(made)
    own = [v for v in values if v not in graph.inputs] or [graph.add(Neg(), [graph.inputs[0]], "o")]
    graph.outputs = list(dict.fromkeys([own[-1], *(v for v in own if rng.random() < 0.1)]))
    graph.output_names = [v.name for v in graph.outputs]
    follow = [v for v in own if v.type == graph.inputs[1].type]
    if follow and rng.random() < 0.6:
        graph.states = [State(graph.inputs[1], rng.choice(follow))]
    verify(graph)
    return graph


def dense(rng: random.Random, steps: int) -> Graph:
    """Rows of all kinds of widths, concatenated again and again: operands of several results, results of results."""
    graph = Graph("dense")
    dtype = rng.choice([DType.F32, DType.I8, DType.I64])
    lead = rng.choice([(6,), (2, 3), (1, 3, 2)])
    graph.inputs = [graph.value("x", TensorType(dtype, (*lead, rng.choice([4, 8, 12]))))]
    values: list[Value] = [graph.add(Neg(), [graph.inputs[0]], "o")]
    for _ in range(steps):
        x = rng.choice([*values[-3:], rng.choice(values)])
        match rng.choice(["concat", "concat", "concat", "slice", "reshape", "one", "one", "two"]):
            case "concat":
                rows = [v for v in values if v.shape[:-1] == x.shape[:-1]]
                made = graph.add(Concat(x.type.rank - 1), rng.sample(rows, min(len(rows), rng.randrange(2, 5))), "c")
            case "slice":
                width = rng.choice([n for n in (4, 8, 12, 16) if n <= x.shape[-1]] or [x.shape[-1]])
                starts = (*(0 for _ in x.shape[1:]), rng.randrange(x.shape[-1] - width + 1))
                made = graph.add(Slice(starts, (1,) * x.type.rank, (*x.shape[:-1], width)), [x], "s")
            case "reshape":
                width = x.type.elements // 6
                made = graph.add(Reshape(rng.choice([(6, width), (2, 3, width), (3, 2 * width)])), [x], "r")
            case "two":
                made = graph.add(rng.choice([Add(), Max()]), [x, rng.choice([v for v in values if v.shape == x.shape])], "t")
            case _:
                made = graph.add(rng.choice([Neg(), Abs()]), [x], "o")
        if made.type.elements <= 600:
            values.append(made)
    graph.outputs = list(dict.fromkeys([values[-1], *(v for v in values if rng.random() < 0.1)]))
    graph.output_names = [v.name for v in graph.outputs]
    verify(graph)
    return graph
