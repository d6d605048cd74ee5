"""Small programs made by hand, so that packaging is tested without the stages before it."""

from __future__ import annotations

import numpy as np

from intaglio.ir.graph import Graph, Node, State, Value
from intaglio.ir.placement import ARENA, INPUT, OUTPUT, STATE, Address, Placement
from intaglio.ir.types import DType, TensorType
from intaglio.kernels.builder import Builder
from intaglio.kernels.loop import INDEX_OUT_OF_RANGE, Buffer, Kernel, Load, type_of
from intaglio.kernels.program import Constant, ConstantArg, Layer, Program, ValueArg
from intaglio.ops.activation import Relu
from intaglio.ops.binary import Add

F32 = DType.F32


def _loop(name: str, elements: int, reads: list[str], op: str, *, fallible: bool = False) -> Kernel:
    """y[i] = a[i] op b[i]."""
    buffers = [Buffer(r, F32) for r in reads]
    out = Buffer("y", F32, const=False)
    k = Builder()
    with k.loop("i", 0, elements) as i:
        operands = [Load(b, i, type_of(F32)) for b in buffers]
        value = operands[0] + operands[1] if op == "add" else operands[0] * operands[0]
        if fallible:
            with k.when(operands[0].compare("lt", 0.0)):
                k.fail(INDEX_OUT_OF_RANGE)
        k.store(out, i, value)
    return Kernel(name, (*buffers, out), k.body(), f"{op} of {elements}", fallible=k.fallible, name=name)


def add_then_square(name: str = "tiny", source: str = "/add", *, fallible: bool = False, weights: int = 8) -> Program:
    """y = (x + w)^2, with w in the weights and the sum in the arena."""
    type = TensorType(F32, (1, weights))
    graph = Graph(name, output_names=["the/output:0"])
    x, w, a, y = (graph.value(n, type) for n in ("x", "w", "a", "y"))
    x.origin, a.origin = "the input", "sum"
    w.data = np.linspace(0, 1, weights, dtype=np.float32).reshape(1, weights)
    places = {x: Address(INPUT, 0), a: Address(ARENA, 0), y: Address(OUTPUT, 0)}
    graph.inputs, graph.outputs = [x], [y]
    graph.nodes = [Node(Add(), [x, w], [a], source), Node(Relu(), [a], [y], "/square")]
    add = _loop(f"{name}_add", weights, ["x", "w"], "add", fallible=fallible)
    square = _loop(f"{name}_square", weights, ["x"], "square")
    layers = [
        Layer("add", graph.nodes[0], add, (ValueArg(x), ConstantArg("w"), ValueArg(a)), macs=weights),
        Layer("square", graph.nodes[1], square, (ValueArg(a), ValueArg(y)), macs=weights),
    ]
    placement = Placement(places, arena_bytes=4 * weights)
    return Program(graph, layers, [add, square], [Constant("w", w.data, F32)], "scalar", placement=placement)


def running_sum() -> Program:
    """h = h + x; the state is also the output."""
    type = TensorType(F32, (2,))
    graph = Graph("running", output_names=["h_out"])
    x, h, y = (graph.value(n, type, n) for n in ("x", "h", "y"))
    places = {x: Address(INPUT, 0), h: Address(STATE, 0), y: Address(OUTPUT, 0)}
    graph.inputs, graph.outputs, graph.states = [x, h], [y], [State(h, y)]
    graph.nodes = [Node(Add(), [h, x], [y], "/sum")]
    add = _loop("running_add", 2, ["h", "x"], "add")
    layer = Layer("sum", graph.nodes[0], add, (ValueArg(h), ValueArg(x), ValueArg(y)), macs=2)
    return Program(graph, [layer], [add], [], "scalar", placement=Placement(places, arena_bytes=64))


def constant_output() -> Program:
    """An input handed through twice, and a constant: nothing to compute."""
    type = TensorType(F32, (3,))
    graph = Graph("through", output_names=["a", "b", "c"])
    x = graph.value("x", type, "x")
    c = Value("c", type, "c", np.array([1, 2, 3], np.float32))
    graph.inputs, graph.outputs = [x], [x, x, c]
    return Program(graph, [], [], [], "scalar", placement=Placement({x: Address(INPUT, 0)}))
