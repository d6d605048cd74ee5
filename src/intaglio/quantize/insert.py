"""A float graph with Quantize and Dequantize around its layers: what `absorb` turns into integers, and what can be evaluated."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, State, Value
from intaglio.ir.types import DType, Quant, TensorType
from intaglio.ops.conv import Conv
from intaglio.ops.convert import Dequantize, Quantize
from intaglio.ops.matmul import MatMul
from intaglio.ops.reduce import Softmax
from intaglio.quantize.layers import Scheme, is_real, keeps_grid
from intaglio.quantize.narrow import four_bits, of_a_palette
from intaglio.quantize.ranges import grid
from intaglio.quantize.statistics import Statistics

INT8, INT16, FLOAT, INT4, PALETTE = "i8", "i16", "f32", "i4", "p4"
NARROW = (INT4, PALETTE)  # of the weights; activations have 8 bits


@dataclass(slots=True)
class Plan:
    """How each layer is stored, and on which grid each tensor lies."""

    default: str = INT8
    stored: dict[str, str] = field(default_factory=dict)  # by the name of a layer's result; else the default
    method: str = "minmax"
    biases: dict[str, Array] = field(default_factory=dict)  # corrected ones, by the name of a layer's result

    def of(self, node: Node) -> str:
        return self.stored.get(node.output.name, self.default)


@dataclass(frozen=True, slots=True)
class Grids:
    """Scale, zero point and type of the tensors that are stored as integers, by name."""

    of: dict[str, tuple[np.float32, int, DType]]


def choose_grids(scheme: Scheme, plan: Plan, statistics: Statistics) -> Grids:
    """One grid per group; a group is 16 bits wide where one of its layers asks for it, and floats where nobody wants integers."""
    made = scheme.producers()
    readers = scheme.graph.readers()
    layers = set(scheme.layers)
    chosen: dict[str, tuple[np.float32, int, DType]] = {}
    for members in scheme.members().values():
        near = {made[v] for v in members if v in made} | {r for v in members for r in readers.get(v, [])}
        kinds = [plan.of(n) for n in near if n in layers] + [plan.of(n) for v in members for n in _behind(v, scheme, made)]
        if not kinds or all(k == FLOAT for k in kinds):
            continue
        dtype = DType.I16 if INT16 in kinds else DType.I8
        fixed = _fixed_grid(members, made, dtype)
        if fixed is None:
            seen = [statistics.tensors[v.name] for v in members if v.name in statistics.tensors]
            ranges = [t.range_by(plan.method, dtype) for t in seen]
            if not ranges:
                continue
            fixed = grid(min(r[0] for r in ranges), max(r[1] for r in ranges), dtype)
        for value in members:
            chosen[value.name] = (*fixed, dtype)
    return Grids(chosen)


def _behind(value: Value, scheme: Scheme, made: dict[Value, Node]) -> list[Node]:
    """Layers whose result is fused into what makes this value."""
    node = made.get(value)
    return [made[v] for v in node.inputs if v in scheme.fused and v is not None] if node is not None else []


def _fixed_grid(members: list[Value], made: dict[Value, Node], dtype: DType) -> tuple[np.float32, int] | None:
    """Probabilities lie between 0 and 1, whatever the calibration data showed."""
    makers = [made.get(v) for v in members]
    origins = [node for node in makers if node is None or not keeps_grid(node)]
    if dtype is DType.I8 and len(origins) == 1 and origins[0] is not None and isinstance(origins[0].op, Softmax):
        return np.float32(1 / 256), -128
    return None


def clone(graph: Graph) -> tuple[Graph, dict[Value, Value]]:
    """A copy whose nodes can be changed; constants share their data."""
    new: dict[Value, Value] = {}

    def twin(value: Value) -> Value:
        if value not in new:
            new[value] = replace(value)
        return new[value]

    copy = Graph(graph.name, [twin(v) for v in graph.inputs])
    for node in graph.nodes:
        inputs = [None if v is None else twin(v) for v in node.inputs]
        when = None if node.when is None else twin(node.when)
        copy.nodes.append(Node(node.op, inputs, [twin(v) for v in node.outputs], node.source, when))
    copy.outputs = [twin(v) for v in graph.outputs]
    copy.states = [State(twin(s.input), twin(s.output), s.fill) for s in graph.states]
    copy.names, copy.output_names = set(graph.names), list(graph.output_names)
    copy.bounds, copy.counts = graph.bounds, {name: twin(value) for name, value in graph.counts.items()}
    return copy, new


def with_quantisation(scheme: Scheme, plan: Plan, grids: Grids, *, integer_io: bool = False) -> Graph:
    """The graph with every stored tensor quantised and dequantised, and the weights of quantised layers as integers."""
    graph, new = clone(scheme.graph)
    layers = {new[n.output]: plan.of(n) for n in scheme.layers}
    inputs = set(graph.inputs)
    nodes: list[Node] = []
    real: dict[Value, Value] = {}
    for value in graph.inputs:
        if value.name in grids.of:
            real[value] = _through(graph, nodes, value, grids, "", as_input=integer_io)
    for node in graph.nodes:
        node.inputs = [real.get(v, v) if v is not None else None for v in node.inputs]
        kind = layers.get(node.output)
        if kind is not None and kind != FLOAT and isinstance(node.op, Conv | MatMul):
            _integer_weights(graph, nodes, node, plan, grids)
        nodes.append(node)
        for value in node.outputs:
            if value.name in grids.of and value not in inputs:
                real[value] = _through(graph, nodes, value, grids, node.source)
    graph.nodes = nodes
    graph.outputs = [_output(graph, v, real, integer_io) for v in graph.outputs]
    for state in graph.states:
        state.output = real.get(state.output, state.output)
    return graph


def _output(graph: Graph, value: Value, real: dict[Value, Value], integer_io: bool) -> Value:
    if value not in real:
        return value
    out = real[value]
    if integer_io:
        made = graph.producers()[out]
        assert made.inputs[0] is not None
        out = made.inputs[0]
    out.origin = value.origin
    return out


def _through(graph: Graph, nodes: list[Node], value: Value, grids: Grids, source: str, *, as_input: bool = False) -> Value:
    """quantize, dequantize. As an input of integers, the value itself becomes one."""
    scale, zero, dtype = grids.of[value.name]
    parameters: list[Value | None] = [
        graph.constant(f"{value.name}_scale", np.asarray(scale, np.float32)),
        graph.constant(f"{value.name}_zero", np.asarray(zero, dtype.numpy)),
    ]
    info = np.iinfo(dtype.numpy)
    kind = TensorType(dtype, value.shape, value.type.layout, Quant((float(scale),), (zero,)))
    if as_input:
        stored = value
        stored.type = kind
    else:
        stored = graph.value(f"{value.name}_q", kind)
        nodes.append(Node(Quantize(dtype, int(info.min), int(info.max)), [value, *parameters], [stored], source))
    out = graph.value(f"{value.name}_r", TensorType(DType.F32, value.shape, value.type.layout))
    nodes.append(Node(Dequantize(DType.F32), [stored, *parameters], [out], source))
    return out


def _integer_weights(graph: Graph, nodes: list[Node], node: Node, plan: Plan, grids: Grids) -> None:
    """Symmetric weights, a scale per output channel (or column)."""
    bias = plan.biases.get(node.output.name)
    if bias is not None:
        node.inputs = [*node.inputs[:2], graph.constant(f"{node.output.name}_bias", bias), *node.inputs[3:]]
    weights = node.inputs[1]
    if weights is None or weights.data is None:
        return
    added = node.inputs[2].data if len(node.inputs) > 2 and node.inputs[2] is not None else None
    stored, scale = quantised_weights(node, weights.data, plan.of(node), added, _step_of(node.inputs[0], grids))
    parameters: list[Value | None] = [
        graph.constant(f"{weights.name}_q", stored),
        graph.constant(f"{weights.name}_scale", scale),
        graph.constant(f"{weights.name}_zero", np.asarray(0, np.int8)),
    ]
    out = graph.value(f"{weights.name}_r", TensorType(DType.F32, weights.shape))
    nodes.append(Node(Dequantize(DType.F32), parameters, [out], node.source))
    node.inputs = [node.inputs[0], out, *node.inputs[2:]]


def _step_of(value: Value | None, grids: Grids) -> float | None:
    """The step of a dequantised tensor."""
    known = grids.of.get(value.name.removesuffix("_r")) if value is not None else None
    return None if known is None else float(known[0])


def quantised_weights(
    node: Node, weights: Array, kind: str = INT8, bias: Array | None = None, step: float | None = None
) -> tuple[Array, Array]:
    """(integers, scales that broadcast against them). Scales are large enough to tell the bias in 30 bits of the sum's step."""
    if isinstance(node.op, Conv):
        axes = tuple(range(1, weights.ndim))
    elif weights.ndim == 2:
        assert isinstance(node.op, MatMul)
        axes = (1,) if node.op.transpose_b else (0,)
    else:
        axes = tuple(range(weights.ndim))
    most = np.abs(weights).max(axis=axes, keepdims=True)
    floor = float(most.max()) * 1e-6  # a channel of zeros still needs a step in which its bias can be expressed
    most = np.maximum(most, floor if floor > 0 else 1.0)
    scale = four_bits(weights, most, axes) if kind == INT4 else (most / 127.0).astype(np.float32)
    if bias is not None and step is not None and bias.size == scale.size:
        scale = np.maximum(scale, (np.abs(bias) / (step * 2.0**29)).astype(np.float32).reshape(scale.shape))
    largest = 7 if kind == INT4 else 127
    stored = np.clip(np.rint(weights / scale), -largest, largest).astype(np.int8)
    if kind == PALETTE:
        stored = of_a_palette(stored)
    return stored, scale.reshape(()) if scale.size == 1 else scale


def stored_tensors(scheme: Scheme) -> set[Value]:
    return {v for v in scheme.group_of if is_real(v)}
