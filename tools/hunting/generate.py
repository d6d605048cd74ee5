"""Valid models at random: windows, products, moves, norms, functions, quantised islands, dimensions of 0 and 1, broadcasts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from hunting.recipe import Recipe, Step, Type
from intaglio.ir.graph import Array

F = np.float32
MOST_ELEMENTS = 600
SHAPES: tuple[tuple[int, ...], ...] = (
    (1, 3, 6, 6), (2, 4, 5, 3), (1, 8, 4, 4), (1, 1, 7, 1), (1, 16, 8, 8), (2, 3, 1, 5), (1, 2, 9), (3, 5), (1, 1), (2, 3, 4), (7,),
    (),     (1, 5, 1, 1), (0, 3), (2, 0, 4), (1, 4, 12, 12), (4, 17), (1, 33),
)  # fmt: skip


class Maker:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.inputs = [Type(self.rng.choice(SHAPES))]
        if self.rng.random() < 0.2:
            self.inputs.append(self.inputs[0] if self.rng.random() < 0.5 else Type(self.rng.choice(SHAPES)))
        self.steps: list[Step] = []

    def type(self, value: int) -> Type:
        return self.inputs[value] if value < len(self.inputs) else self.steps[value - len(self.inputs)].type

    def add(
        self, op: str, operands: tuple[int | Array | None, ...], shape: tuple[int, ...], kind: str = "f", **attributes: object
    ) -> int:
        self.steps.append(Step(op, operands, Type(shape, kind), attributes))
        return len(self.inputs) + len(self.steps) - 1

    def const(self, *shape: int) -> Array:
        made = self.numbers.standard_normal(shape)
        if self.rng.random() < 0.15:
            made = np.round(made)  # zeros, ones, whole numbers: passes look for them
        return np.asarray(made, F)

    def same(self, value: int) -> int:
        """Another value of the same type, if there is one."""
        every = range(len(self.inputs) + len(self.steps))
        return self.rng.choice([v for v in every if self.type(v) == self.type(value)])


Grow = Callable[[Maker, int], int]


def _conv(m: Maker, x: int) -> int:
    n, c, *space = m.type(x).shape
    kernel = [m.rng.choice([k for k in (1, 2, 3, 3, 5) if k <= s + 1]) for s in space]
    strides, dilations = [m.rng.choice((1, 1, 2)) for _ in space], [m.rng.choice((1, 1, 1, 2)) for _ in space]
    pads = [m.rng.choice((0, k // 2, 1)) for k in kernel] + [m.rng.choice((0, k // 2)) for k in kernel]
    out = _out(space, kernel, strides, dilations, pads)
    if min(out) < 1:
        return _one(m, x)
    group = m.rng.choice([1, 1, 1, c] + ([2] if c % 2 == 0 else []))
    outs = group * m.rng.choice((1, 1, 2)) if group > 1 else m.rng.choice((1, 3, 4, 8, 17))
    bias = m.const(outs) if m.rng.random() < 0.6 else None
    return m.add("Conv", (x, m.const(outs, c // group, *kernel), bias), (n, outs, *out), kernel_shape=kernel, strides=strides,
                 dilations=dilations, pads=pads, group=group)  # fmt: skip


def _out(space: list[int], kernel: list[int], strides: list[int], dilations: list[int], pads: list[int]) -> list[int]:
    half = len(space)
    rooms = [space[i] + pads[i] + pads[half + i] - (kernel[i] - 1) * dilations[i] for i in range(half)]
    return [(room - 1) // stride + 1 if room > 0 else 0 for room, stride in zip(rooms, strides, strict=True)]


def _transposed(m: Maker, x: int) -> int:
    n, c, *space = m.type(x).shape
    kernel, strides = [m.rng.choice((1, 2, 3)) for _ in space], [m.rng.choice((1, 2)) for _ in space]
    out = [(s - 1) * t + k for s, t, k in zip(space, strides, kernel, strict=True)]
    outs = m.rng.choice((1, 3))
    return m.add("ConvTranspose", (x, m.const(c, outs, *kernel)), (n, outs, *out), kernel_shape=kernel, strides=strides)


def _pool(m: Maker, x: int) -> int:
    n, c, *space = m.type(x).shape
    if m.rng.random() < 0.2:
        return m.add("GlobalAveragePool", (x,), (n, c, *[1] * len(space)))
    kernel = [m.rng.choice([k for k in (1, 2, 3) if k <= s]) for s in space]
    strides, ones = [m.rng.choice((1, 2)) for _ in space], [1] * len(space)
    pads = [m.rng.choice((0, k // 2)) for k in kernel] + [m.rng.choice((0, k // 2)) for k in kernel]
    more: dict[str, Any] = {}
    op = m.rng.choice(("MaxPool", "AveragePool"))
    if op == "AveragePool":
        more["count_include_pad"] = m.rng.choice((0, 1))
    return m.add(
        op, (x,), (n, c, *_out(space, kernel, strides, ones, pads)), kernel_shape=kernel, strides=strides, pads=pads, **more
    )


def _matmul(m: Maker, x: int) -> int:
    *rows, depth = m.type(x).shape
    columns = m.rng.choice((1, 3, 8, 19))
    if len(rows) == 1 and m.rng.random() < 0.5:
        turned = m.rng.random() < 0.5
        w = m.const(*((columns, depth) if turned else (depth, columns)))
        return m.add(
            "Gemm",
            (x, w, m.const(columns) if m.rng.random() < 0.7 else None),
            (*rows, columns),
            transB=int(turned),
            alpha=m.rng.choice((1.0, 0.5)),
        )
    if len(rows) >= 2 and m.rng.random() < 0.3:
        axes = [*range(len(rows) - 1), len(rows), len(rows) - 1]
        other = m.add("Transpose", (m.same(x),), (*rows[:-1], depth, rows[-1]), perm=axes)
        return m.add("MatMul", (x, other), (*rows, rows[-1]))
    return m.add("MatMul", (x, m.const(depth, columns)), (*rows, columns))


def _one(m: Maker, x: int) -> int:
    shape = m.type(x).shape
    op = m.rng.choice(
        (
            "Relu",
            "Relu",
            "Sigmoid",
            "Tanh",
            "HardSwish",
            "LeakyRelu",
            "Neg",
            "Abs",
            "Clip",
            "HardSigmoid",
            "Elu",
            "Softplus",
            "Identity",
        )
    )
    if op == "Clip":
        low = m.rng.choice((-1.0, 0.0))
        return m.add(op, (x, np.asarray(low, F), np.asarray(m.rng.choice((1.0, 6.0)), F)), shape)
    more: dict[str, Any] = {"alpha": m.rng.choice((0.1, 0.3))} if op == "LeakyRelu" else {}
    return m.add(op, (x,), shape, **more)


def _two(m: Maker, x: int) -> int:
    return m.add(m.rng.choice(("Add", "Add", "Sub", "Mul", "Max", "Min")), (x, m.same(x)), m.type(x).shape)


def _constant(m: Maker, x: int) -> int:
    """With a constant that is broadcast, or broadcasts."""
    shape = m.type(x).shape
    kinds = [(), (1,) * len(shape), shape[-1:], tuple(d if m.rng.random() < 0.5 else 1 for d in shape), shape]
    if len(shape) > 2:
        kinds.append((shape[1], *[1] * (len(shape) - 2)))
    pair: list[int | Array | None] = [x, m.const(*m.rng.choice(kinds))]
    op = m.rng.choice(("Add", "Mul", "Sub", "Max", "Div"))
    if op == "Div":
        pair[1] = np.asarray(np.abs(np.asarray(pair[1])) + F(0.5), F)
    else:
        m.rng.shuffle(pair)
    return m.add(op, tuple(pair), shape)


def _norm(m: Maker, x: int) -> int:
    shape = m.type(x).shape
    axis = m.rng.randrange(len(shape))
    match m.rng.randrange(5):
        case 0:
            return m.add("Softmax", (x,), shape, axis=m.rng.choice((axis, -1)))
        case 1 if shape[-1] > 1:
            extra = m.const(shape[-1]) if m.rng.random() < 0.5 else None
            return m.add("LayerNormalization", (x, m.const(shape[-1]), extra), shape, axis=-1)
        case 2 if len(shape) > 1:
            c = shape[1]
            parts = (m.const(c), m.const(c), m.const(c), np.asarray(np.abs(m.const(c)) + F(0.1), F))
            return m.add("BatchNormalization", (x, *parts), shape)
        case _:
            keep = m.rng.choice((0, 1))
            left = tuple(1 if a == axis else d for a, d in enumerate(shape) if keep or a != axis)
            op = m.rng.choice(("ReduceMean", "ReduceSum", "ReduceMax"))
            return m.add(op, (x, np.array([axis])), left, keepdims=keep)


def _move(m: Maker, x: int) -> int:
    shape = m.type(x).shape
    rank = len(shape)
    match m.rng.randrange(9):
        case 0:
            perm = m.rng.sample(range(rank), rank)
            return m.add("Transpose", (x,), tuple(shape[a] for a in perm), perm=perm)
        case 1 if math.prod(shape):
            n = math.prod(shape)
            first = m.rng.choice([d for d in range(1, n + 1) if n % d == 0])
            new = m.rng.choice([(n,), (first, n // first), (1, first, n // first, 1), (1, n // first, first)])
            return m.add("Reshape", (x, np.array(new)), new)
        case 2:
            at = m.rng.randrange(rank + 1)
            return m.add("Unsqueeze", (x, np.array([at])), (*shape[:at], 1, *shape[at:]))
        case 3:
            axis = m.rng.randrange(rank)
            d = shape[axis]
            if d > 1 and m.rng.random() < 0.3:  # backwards
                return m.add("Slice", (x, np.array([d - 1]), np.array([-d - 1]), np.array([axis]), np.array([-1])), shape)
            start, step = m.rng.randrange(d + 1), m.rng.choice((1, 1, 2))
            size = len(range(start, d, step))
            return m.add(
                "Slice",
                (x, np.array([start]), np.array([d]), np.array([axis]), np.array([step])),
                (*shape[:axis], size, *shape[axis + 1 :]),
            )
        case 4:
            axis = m.rng.randrange(rank)
            count = m.rng.choice((2, 2, 3))
            return m.add(
                "Concat",
                tuple(m.same(x) for _ in range(count)),
                (*shape[:axis], count * shape[axis], *shape[axis + 1 :]),
                axis=axis,
            )
        case 5:
            pads = [m.rng.choice((0, 0, 1, 2)) for _ in range(2 * rank)]
            mode = m.rng.choice(("constant", "constant", "edge")) if min(shape) > 0 else "constant"
            value = np.asarray(m.rng.choice((0.0, 0.0, 1.5)), F)
            return m.add("Pad", (x, np.array(pads), value if mode == "constant" else None),
                         tuple(d + pads[a] + pads[rank + a] for a, d in enumerate(shape)), mode=mode)  # fmt: skip
        case 6:
            new = tuple(m.rng.choice((1, 2, 3)) if d == 1 else d for d in shape)
            return m.add("Expand", (x, np.array(new)), new)
        case 7:
            axis = m.rng.randrange(rank)
            if shape[axis]:
                places = np.array([m.rng.randrange(-shape[axis], shape[axis]) for _ in range(m.rng.choice((1, 2, 4)))])
                return m.add("Gather", (x, places), (*shape[:axis], len(places), *shape[axis + 1 :]), axis=axis)
            return _one(m, x)
        case _:
            repeats = [m.rng.choice((1, 1, 2)) for _ in shape]
            return m.add("Tile", (x, np.array(repeats)), tuple(d * r for d, r in zip(shape, repeats, strict=True)))


def _pair(m: Maker, x: int) -> int:
    """To eight bits and back: islands between such pairs are computed in integers."""
    kind, shape = m.rng.choice("bbu"), m.type(x).shape
    scale, zero = (
        np.asarray(m.rng.choice((0.02, 0.05, 0.1)), F),
        np.asarray(m.rng.choice((0, 3, 100 if kind == "u" else -5)), np.int8 if kind == "b" else np.uint8),
    )
    q = m.add("QuantizeLinear", (x, scale, zero), shape, kind)
    return m.add("DequantizeLinear", (q, scale, zero), shape)


def _quantised(m: Maker, x: int) -> int:
    """A whole quantised layer: pairs around a product with eight-bit weights."""
    x = _pair(m, x)
    shape = m.type(x).shape
    c = shape[1] if len(shape) == 4 else shape[-1]
    outs = m.rng.choice((1, 4, 9))
    per = m.rng.random() < 0.5 and len(shape) == 4
    scale = np.asarray(np.abs(m.numbers.standard_normal(outs)) * 0.01 + 0.005, F) if per else np.asarray(0.01, F)
    zero = np.zeros(outs if per else (), np.int8)
    dims = (outs, c, *[m.rng.choice((1, 3)) if s >= 2 else 1 for s in shape[2:]]) if len(shape) == 4 else (c, outs)
    stored = m.numbers.integers(-127, 128, dims).astype(np.int8)
    axis: dict[str, Any] = {"axis": 0} if per else {}
    w = m.add("DequantizeLinear", (stored, scale, zero), dims, **axis)
    if len(shape) == 4:
        pads = [k // 2 for k in dims[2:]] * 2
        y = m.add("Conv", (x, w), (shape[0], outs, *shape[2:]), kernel_shape=list(dims[2:]), pads=pads)
    else:
        y = m.add("MatMul", (x, w), (*shape[:-1], outs))
    return _pair(m, _relu(m, y) if m.rng.random() < 0.5 else y)


def _relu(m: Maker, x: int) -> int:
    return m.add("Relu", (x,), m.type(x).shape)


def _choices(m: Maker, x: int) -> list[Grow]:
    shape = m.type(x).shape
    found: list[Grow] = [_one, _one, _two, _constant, _constant]
    if shape:
        found += [_move, _move]
    if shape and min(shape) > 0:
        found += [_norm, _pair]
        if len(shape) >= 2:
            found += [_matmul, _quantised] if len(shape) in (2, 4) else [_matmul]
        if len(shape) in (3, 4):
            found += [_conv, _conv, _conv, _pool, _transposed]
    return found


def generate(seed: int) -> Recipe:
    m = Maker(seed)
    values = list(range(len(m.inputs)))
    for _ in range(m.rng.randrange(1, 9)):
        before, x = len(m.steps), m.rng.choice((values[-1], values[-1], m.rng.choice(values)))
        made = m.rng.choice(_choices(m, x))(m, x)
        if math.prod(m.type(made).shape) > MOST_ELEMENTS or len(m.type(made).shape) > 5:
            del m.steps[before:]
        else:
            values.append(made)
    if not m.steps:
        values.append(_relu(m, 0))
    last = values[-1]
    outputs = [last, *(v for v in values[len(m.inputs) : -1] if m.rng.random() < 0.15)]
    return Recipe(tuple(m.inputs), tuple(m.steps), tuple(dict.fromkeys(outputs))).pruned()
