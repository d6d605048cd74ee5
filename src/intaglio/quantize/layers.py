"""Which operators get integers, and which tensors share one grid.

A *layer* is a node with arithmetic (a convolution, a product, a sum, a table). A *group* is a set of tensors on one grid: what only
moves numbers leaves them on the grid they came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from intaglio.errors import counted, quoted
from intaglio.ir.graph import Graph, Node, Value
from intaglio.ir.loops import loops_of
from intaglio.ir.types import DType
from intaglio.ops.activation import Clip, Relu
from intaglio.ops.base import Elementwise
from intaglio.ops.binary import Add, Mul, Sub
from intaglio.ops.conv import Conv
from intaglio.ops.index import Gather
from intaglio.ops.matmul import MatMul
from intaglio.ops.move import Concat, Expand, Pad, Reshape, Slice, Tile, Transpose
from intaglio.ops.pool import AveragePool, MaxPool
from intaglio.ops.reduce import Reduce, Softmax
from intaglio.ops.resize import Resize

_PRODUCTS = (Conv, MatMul)
FEW_WEIGHTS = 256
_SAME_GRID = (Reshape, Transpose, Slice, Expand, Tile, MaxPool, AveragePool, Pad, Concat)


def keeps_grid(node: Node) -> bool:
    """Its result lies on the grid of its operands."""
    op = node.op
    if isinstance(op, Pad):
        return op.mode != "constant" or op.value == 0.0
    if isinstance(op, Resize):
        return op.mode == "nearest"
    if isinstance(op, Reduce):
        return op.kind in ("max", "min")
    if isinstance(op, Gather):
        return node.inputs[0] is not None and node.inputs[0].data is None
    return isinstance(op, _SAME_GRID)


def is_real(value: Value | None) -> bool:
    return value is not None and value.data is None and value.dtype is DType.F32


@dataclass(slots=True)
class Scheme:
    """The tensors of a graph in groups, with what must not be quantised left out."""

    graph: Graph
    layers: list[Node] = field(default_factory=list)
    group_of: dict[Value, Value] = field(default_factory=dict)  # tensor: the tensor that stands for its group
    fused: set[Value] = field(default_factory=set)  # inside of a layer: never stored

    def root(self, value: Value) -> Value:
        while self.group_of[value] is not value:
            self.group_of[value] = self.group_of[self.group_of[value]]
            value = self.group_of[value]
        return value

    def join(self, a: Value, b: Value) -> None:
        self.group_of[self.root(a)] = self.root(b)

    def members(self) -> dict[Value, list[Value]]:
        groups: dict[Value, list[Value]] = {}
        for value in self.group_of:
            groups.setdefault(self.root(value), []).append(value)
        return groups

    def producers(self) -> dict[Value, Node]:
        return self.graph.producers()


def many_weights(node: Node) -> bool:
    """Enough of them to be worth fewer bits. Depthwise layers have few, and need them all."""
    weights = node.inputs[1] if isinstance(node.op, _PRODUCTS) else None
    if weights is None or weights.data is None or weights.type.elements < FEW_WEIGHTS:
        return False
    return not (isinstance(node.op, Conv) and node.op.group > 1 and weights.shape[1] == 1)


def in_loops(graph: Graph) -> set[Node]:
    """What is computed in turns. It stays in floats: rounding errors would add up, and calibration sees the last turn alone."""
    return {node for loop in loops_of(graph.nodes) for node in graph.nodes[loop.start : loop.end + 1]}


def loops_in_floats(graph: Graph) -> list[str]:
    """Loops with layers that would have an integer form elsewhere, for the account."""
    found = []
    for loop in loops_of(graph.nodes):
        count = sum(_has_integers(node) and not keeps_grid(node) for node in graph.nodes[loop.start + 1 : loop.end])
        if count:
            name = quoted(layer_name(graph.nodes[loop.end]))
            found.append(f"{counted(count, 'layer')} in the loop {name} {'stays' if count == 1 else 'stay'} in floating point")
    return found


def layer_name(node: Node) -> str:
    return node.source or node.output.origin or node.output.name


def matches(node: Node, pattern: str) -> bool:
    names = {node.source, node.output.origin, node.output.name}
    return any(fnmatchcase(name, pattern) or name == pattern for name in names if name)


def scheme_of(graph: Graph) -> Scheme:
    """All layers that have an integer form, and the tensors between them."""
    found = Scheme(graph)
    readers = graph.readers()
    outputs = set(graph.outputs) | {s.output for s in graph.states}
    inside = in_loops(graph)
    known = [node for node in graph.nodes if node.when is None and node not in inside and _has_integers(node)]
    touched: set[Value] = set()
    for node in known:
        touched.update(v for v in (*node.inputs, *node.outputs) if v is not None and is_real(v))
    for node in graph.nodes:
        for value in node.outputs:
            if value in touched:
                found.group_of[value] = value
    for value in graph.inputs:
        if value in touched:
            found.group_of[value] = value
    _mark_fused(found, known, readers, outputs)
    for node in known:
        if keeps_grid(node):
            for value in _reals(node):
                if value in found.group_of and node.output in found.group_of:
                    found.join(value, node.output)
        elif not any(v in found.fused and isinstance(node.op, (Relu, Clip)) for v in node.inputs):
            found.layers.append(node)
    return found


def _reals(node: Node) -> Iterator[Value]:
    return (v for v in node.inputs if v is not None and is_real(v))


def _has_integers(node: Node) -> bool:
    """Has this operator an integer form, or only numbers to move?"""
    if len(node.outputs) != 1 or node.output.dtype is not DType.F32 or not any(True for _ in _reals(node)):
        return False
    op = node.op
    match op:
        case Conv():
            weights = node.inputs[1]
            return weights is not None and weights.data is not None and weights.type.rank == 4 and not op.epilogue
        case MatMul():
            return not op.epilogue and not op.transpose_a and all(v is None or v.data is not None for v in node.inputs[2:])
        case Reduce(kind="mean"):
            return True
        case Softmax():
            return True
        case Add() | Sub() | Mul():
            return True
        case _ if keeps_grid(node):
            return True
        case Elementwise():
            return _one_variable(node)
    return False


def _one_variable(node: Node) -> bool:
    """A function of one tensor and single numbers: a table."""
    reals = {v for v in node.inputs if v is not None and v.data is None}
    return len(reals) == 1 and all(v is None or v.data is None or v.type.elements == 1 for v in node.inputs)


def _mark_fused(found: Scheme, known: list[Node], readers: dict[Value, list[Node]], outputs: set[Value]) -> None:
    """Tensors that an integer form never stores: before a clipping activation, and inside of a table."""
    members = set(known)
    tables = _table_roots(known)
    for node in known:
        value = node.output
        later = readers.get(value, [])
        if value in outputs or not later or any(r not in members for r in later) or value not in found.group_of:
            continue
        clipped = len(later) == 1 and isinstance(later[0].op, (Relu, Clip)) and not keeps_grid(node)
        inside = value in tables and all(tables.get(r.output) is tables[value] for r in later)
        if (clipped and (isinstance(node.op, (*_PRODUCTS, Add, Sub, Mul)) or _is_mean(node))) or inside:
            found.fused.add(value)
    for value in found.fused:
        found.group_of.pop(value, None)


def _is_mean(node: Node) -> bool:
    return isinstance(node.op, Reduce) and node.op.kind == "mean"


def _table_roots(known: list[Node]) -> dict[Value, Value]:
    """For values that are a function of one tensor alone: that tensor."""
    roots: dict[Value, Value] = {}
    for node in known:
        if not isinstance(node.op, Elementwise):
            continue
        sources = {roots.get(v, v) for v in node.inputs if v is not None and v.data is None}
        single = all(v is None or v.data is None or v.type.elements == 1 for v in node.inputs)
        if len(sources) == 1 and single and (source := next(iter(sources))).shape == node.output.shape:
            roots[node.output] = source
    return roots
