"""Small graphs for an accelerator's patterns: odd shapes, strides, padding, channels that do not divide, extremes of quantisation.

For each operator there is a maker with variants. A pattern of several operators is made from its leaves to its root: each maker
takes the operands that the pattern has made, and makes the others itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.operator import BadOperator, Op
from intaglio.ir.types import DType, Layout, TensorType
from intaglio.ops.activation import Elu, Gelu, HardSwish, Relu, Sigmoid, Silu, Tanh
from intaglio.ops.binary import Add, Div, Max, Min, Mul, Sub
from intaglio.ops.conv import Conv
from intaglio.ops.fixed_point import quantize_multiplier
from intaglio.ops.matmul import MatMul
from intaglio.ops.pool import AveragePool, MaxPool
from intaglio.ops.quantised import Lookup, QAdd, QConv, QMatMul, QMul, sum_factors
from intaglio.ops.quantised_rows import QAveragePool, QSoftmax
from intaglio.targets.accelerator import Is, Pattern


@dataclass(frozen=True, slots=True)
class Case:
    name: str  # `conv: 3x3, stride 2, 5 to 17 channels`
    pattern: str
    graph: Graph


@dataclass(slots=True)
class Bench:
    """A graph under construction; `salt` is the number of the variant."""

    graph: Graph
    rng: np.random.Generator
    salt: int = 0
    said: list[str] = field(default_factory=list)

    def image(self, dtype: DType, shape: tuple[int, ...], layout: Layout = Layout.NONE) -> Value:
        value = Value(self.graph.new_name("x"), TensorType(dtype, shape, layout))
        self.graph.inputs.append(value)
        return value

    def bytes_of(self, shape: tuple[int, ...], low: int = -128, high: int = 127) -> Value:
        return self.graph.constant("w", self.rng.integers(low, high + 1, shape).astype(np.int8))

    def floats(self, *shape: int) -> Value:
        return self.graph.constant("w", self.rng.normal(0, 0.5, shape).astype(np.float32))

    def constant(self, dtype: DType, shape: tuple[int, ...]) -> Value:
        return self.bytes_of(shape) if dtype is DType.I8 else self.floats(*shape)

    def add(self, op: Op, inputs: list[Value | None]) -> Value:
        types = op.infer(*[None if v is None else v.type for v in inputs])
        outputs = [self.graph.value("y", t) for t in types]
        self.graph.nodes.append(Node(op, inputs, outputs, f"/{op.NAME}_{len(self.graph.nodes)}"))
        return outputs[0]


Maker = Callable[[Bench, list["Value | None"]], Value]



@dataclass(frozen=True, slots=True)
class Window:
    rows: int
    columns: int
    channels: int
    outputs: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int, int, int]
    dilations: tuple[int, int]

    def __str__(self) -> str:
        return f"{self.kernel[0]}x{self.kernel[1]}, strides {self.strides}, pads {self.pads}"


@dataclass(frozen=True, slots=True)
class Extreme:
    """How results are quantised. `spread`: about what the factors are."""

    x_zero: int
    y_zero: int
    low: int
    high: int
    spread: float


# Prime sizes, 1x1, kernels higher than wide, one pixel.
WINDOWS = (
    Window(8, 8, 8, 16, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    Window(7, 5, 3, 17, (3, 3), (2, 2), (0, 1, 1, 0), (1, 1)),
    Window(6, 6, 16, 16, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    Window(5, 9, 1, 5, (5, 3), (1, 2), (2, 1, 2, 1), (1, 1)),
    Window(9, 9, 4, 8, (3, 3), (1, 1), (2, 2, 2, 2), (2, 2)),
    Window(1, 1, 33, 7, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
    Window(13, 3, 10, 4, (4, 1), (3, 1), (0, 0, 3, 0), (1, 1)),
    Window(20, 20, 24, 40, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
    Window(3, 3, 2, 2, (2, 2), (1, 1), (1, 1, 0, 0), (1, 1)),
)
# Zero points at the ends, clamps that leave nothing, factors of 1 and more, and almost none.
EXTREMES = (
    Extreme(0, 0, -128, 127, 0.003),
    Extreme(-128, 127, -128, 127, 0.002),
    Extreme(127, -128, -128, 127, 0.01),
    Extreme(5, -3, -3, 40, 0.004),
    Extreme(-7, 0, 0, 0, 0.02),
    Extreme(3, 9, -128, 127, 1.7),
    Extreme(0, -128, -128, 127, 0.0000001),
)


def _factors(bench: Bench, count: int, spread: float) -> tuple[Value, Value]:
    pairs = [quantize_multiplier(float(spread * s)) for s in bench.rng.uniform(0.3, 2.0, count)]
    return (
        bench.graph.constant("m", np.asarray([p[0] for p in pairs], np.int32)),
        bench.graph.constant("s", np.asarray([p[1] for p in pairs], np.int32)),
    )


def _extreme(bench: Bench) -> Extreme:
    return EXTREMES[bench.salt % len(EXTREMES)]


def _window(bench: Bench, given: Value | None, dtype: DType, layout: Layout) -> tuple[Value, Window]:
    """The image and the window of this variant."""
    w = WINDOWS[bench.salt % len(WINDOWS)]
    shape = (1, w.rows, w.columns, w.channels) if layout is Layout.NHWC else (1, w.channels, w.rows, w.columns)
    return given if given is not None else bench.image(dtype, shape, layout), w


def qconv(bench: Bench, given: list[Value | None]) -> Value:
    x, w = _window(bench, given[0] if given else None, DType.I8, Layout.NHWC)
    channels = x.shape[3]
    depthwise = (bench.salt // len(WINDOWS)) % 2 == 1
    group, made = (channels, channels) if depthwise else (1, w.outputs)
    e = _extreme(bench)
    scaling = "once" if bench.salt % 5 == 4 else "twice"
    multiplier, shift = _factors(bench, made, e.spread)
    bias = None if bench.salt % 4 == 3 else bench.graph.constant("b", bench.rng.integers(-3000, 3000, made).astype(np.int32))
    op = QConv(w.strides, w.pads, w.dilations, group, e.x_zero, 0, e.y_zero, e.low, e.high, scaling=scaling)
    said = f"{'depthwise ' if depthwise else ''}{w}, {channels} to {made} channels"
    bench.said.append(f"{said}, zero points {e.x_zero} and {e.y_zero}, limits {e.low} to {e.high}, {scaling}")
    return bench.add(op, [x, bench.bytes_of((made, channels // group, *w.kernel)), bias, multiplier, shift])


def qmatmul(bench: Bench, given: list[Value | None]) -> Value:
    rows, depth, outs = ((1, 64, 10), (3, 17, 5), (1, 1, 1), (4, 100, 33), (2, 16, 16), (1, 257, 3))[bench.salt % 6]
    x = given[0] if given and given[0] is not None else bench.image(DType.I8, (rows, depth))
    depth = x.shape[-1]
    turned = bench.salt % 2 == 0
    e = _extreme(bench)
    multiplier, shift = _factors(bench, outs, e.spread)
    bias = bench.graph.constant("b", bench.rng.integers(-3000, 3000, outs).astype(np.int32))
    scaling = ("once", "twice")[bench.salt % 2]
    op = QMatMul(turned, e.x_zero, 0, e.y_zero, e.low, e.high, scaling=scaling)
    bench.said.append(f"{list(x.shape)} by {depth}x{outs}{', transposed' if turned else ''}, zero points {e.x_zero} and {e.y_zero}")
    return bench.add(op, [x, bench.bytes_of((outs, depth) if turned else (depth, outs)), bias, multiplier, shift])


def _pair(bench: Bench, given: list[Value | None], dtype: DType) -> tuple[Value, Value]:
    shapes = ((1, 8, 8, 16), (1, 3, 5, 7), (1, 64), (2, 3), (1, 1, 1, 1), (100,))
    known = next((v for v in given if v is not None), None)
    shape = known.shape if known is not None else shapes[bench.salt % len(shapes)]
    layout = Layout.NHWC if len(shape) == 4 and known is None else Layout.NONE
    sides = [given[i] if len(given) > i else None for i in range(2)]
    kind = "" if known is not None else {6: "twice the same", 7: "and a constant", 8: "a constant first"}.get(bench.salt, "")
    made = [v if v is not None else bench.image(dtype, shape, layout) for v in sides]
    if kind:
        bench.graph.inputs.remove(made[0 if bench.salt == 8 else 1])
        other = made[0] if bench.salt == 6 else bench.constant(dtype, shape)
        made = [other, made[1]] if bench.salt == 8 else [made[0], other]
    bench.said.append(f"{list(made[0].shape)} and {list(made[1].shape)}{', ' + kind if kind else ''}")
    return made[0], made[1]


def qadd(bench: Bench, given: list[Value | None]) -> Value:
    a, b = _pair(bench, given, DType.I8)
    e = _extreme(bench)
    scales = ((0.02, 0.03, 0.04), (0.5, 0.001, 0.5), (0.01, 0.01, 0.0101), (1.0, 2.0, 0.1))[bench.salt % 4]
    left, right, lift, whole = sum_factors(*scales, DType.I8)
    subtract = bench.salt % 3 == 2
    op = QAdd(e.x_zero, *left, -e.x_zero // 2, *right, lift, subtract, *whole, e.y_zero, e.low, e.high)
    return bench.add(op, [a, b])


def qmul(bench: Bench, given: list[Value | None]) -> Value:
    a, b = _pair(bench, given, DType.I8)
    e = _extreme(bench)
    return bench.add(QMul(e.x_zero, -e.x_zero // 2, *quantize_multiplier(e.spread), e.y_zero, e.low, e.high), [a, b])


def conv(bench: Bench, given: list[Value | None]) -> Value:
    layout = Layout.NHWC if bench.salt % 2 == 0 else Layout.NCHW
    x, w = _window(bench, given[0] if given else None, DType.F32, layout)
    layout = x.type.layout if x.type.layout is not Layout.NONE else layout
    channels = x.shape[3] if layout is Layout.NHWC else x.shape[1]
    group, made = (channels, channels) if (bench.salt // len(WINDOWS)) % 2 else (1, w.outputs)
    op = Conv(w.strides, w.pads, w.dilations, group, layout)
    bench.said.append(f"{layout.value}, {w}, {channels} to {made} channels")
    return bench.add(op, [x, bench.floats(made, channels // group, *w.kernel), bench.floats(made) if bench.salt % 3 else None])


def matmul(bench: Bench, given: list[Value | None]) -> Value:
    rows, depth, outs = ((1, 64, 10), (3, 17, 5), (1, 1, 1), (16, 16, 16), (5, 7, 33))[bench.salt % 5]
    x = given[0] if given and given[0] is not None else bench.image(DType.F32, (rows, depth))
    bench.said.append(f"{list(x.shape)} by {x.shape[-1]}x{outs}")
    return bench.add(MatMul(), [x, bench.floats(x.shape[-1], outs), bench.floats(outs)])


def _pool(kind: Callable[[Window, tuple[int, ...]], Op], dtype: DType) -> Maker:
    def make(bench: Bench, given: list[Value | None]) -> Value:
        x, w = _window(bench, given[0] if given else None, dtype, Layout.NHWC)
        pads = tuple(min(p, k - 1) for p, k in zip(w.pads, (*w.kernel, *w.kernel), strict=True))
        bench.said.append(f"{w.kernel[0]}x{w.kernel[1]}, strides {w.strides}, pads {pads}, {x.shape[3]} channels")
        return bench.add(kind(w, pads), [x])

    return make


def _unary(op: Op, dtype: DType = DType.F32) -> Maker:
    def make(bench: Bench, given: list[Value | None]) -> Value:
        shape = ((1, 8, 8, 16), (1, 3, 5, 7), (1, 64), (3,), (1, 1))[bench.salt % 5]
        x = given[0] if given and given[0] is not None else bench.image(dtype, shape)
        bench.said.append(str(list(x.shape)))
        return bench.add(op, [x])

    return make


def _binary(op: Op) -> Maker:
    def make(bench: Bench, given: list[Value | None]) -> Value:
        a, b = _pair(bench, given, DType.F32)
        return bench.add(op, [a, b])

    return make


def lookup(bench: Bench, given: list[Value | None]) -> Value:
    x = given[0] if given and given[0] is not None else bench.image(DType.I8, ((1, 4, 4, 8), (1, 33))[bench.salt % 2])
    bench.said.append(str(list(x.shape)))
    return bench.add(Lookup(), [x, bench.bytes_of((256,))])


MAKERS: dict[type[Op], Maker] = {
    QConv: qconv,
    QMatMul: qmatmul,
    QAdd: qadd,
    QMul: qmul,
    QAveragePool: _pool(lambda w, pads: QAveragePool(w.kernel, w.strides, pads), DType.I8),
    QSoftmax: _unary(QSoftmax(0.05), DType.I8),
    Lookup: lookup,
    Conv: conv,
    MatMul: matmul,
    MaxPool: _pool(lambda w, pads: MaxPool(w.kernel, w.strides, pads, (1, 1), Layout.NHWC), DType.I8),
    AveragePool: _pool(lambda w, pads: AveragePool(w.kernel, w.strides, pads, (1, 1), Layout.NHWC), DType.F32),
    Add: _binary(Add()),
    Sub: _binary(Sub()),
    Mul: _binary(Mul()),
    Div: _binary(Div()),
    Max: _binary(Max()),
    Min: _binary(Min()),
    **{type(op): _unary(op) for op in (Relu(), Sigmoid(), Tanh(), Silu(), HardSwish(), Elu(), Gelu())},
}
VARIANTS = 18  # of each: every window plain and depthwise


def cases(pattern: Pattern, variants: int = VARIANTS) -> Iterator[Case]:
    """Every variant that can be made; none where an operator of the pattern has no maker."""
    for choice in _choices(pattern.root):
        for salt in range(variants):
            bench = Bench(Graph("case"), np.random.default_rng(salt), salt)
            try:
                out = _made(bench, choice)
            except (BadOperator, ValueError, AssertionError, IndexError):
                continue  # a window that is larger than what an operator before it left
            bench.graph.outputs.append(out)
            bench.graph.output_names.append(out.name)
            yield Case(f"{pattern.name}: {'; '.join(bench.said)}", pattern.name, bench.graph)


def unmade(pattern: Pattern) -> list[str]:
    """Operators of the pattern for which there are no cases."""
    found = [op.NAME for op in _kinds(pattern.root) if op not in MAKERS]
    for operand in pattern.root.operands:
        found += unmade(Pattern(pattern.name, operand)) if operand is not None else []
    return found


def _kinds(root: Is) -> tuple[type[Op], ...]:
    return root.op if isinstance(root.op, tuple) else (root.op,)


def _choices(root: Is) -> Iterator[Is]:
    """One operator where the pattern allows several."""
    for kind in _kinds(root):
        if kind not in MAKERS:
            continue
        operands = [None if o is None else next(_choices(o), None) for o in root.operands]
        if all((made is None) == (asked is None) for made, asked in zip(operands, root.operands, strict=True)):
            yield Is(kind, tuple(operands))


def _made(bench: Bench, root: Is) -> Value:
    given = [None if operand is None else _made(bench, operand) for operand in root.operands]
    return MAKERS[_kinds(root)[0]](bench, given)
