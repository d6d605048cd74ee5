"""What every pass needs: new nodes in the middle of a graph, constants, and who reads what."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from intaglio.ir.graph import Array, Graph, Node, Value
from intaglio.ir.loops import has_loops, read_in_turns
from intaglio.ir.operator import Op
from intaglio.ir.types import DType


@dataclass(slots=True)
class Editor:
    """Builds the new list of nodes while a pass walks the old one."""

    graph: Graph
    nodes: list[Node] = field(default_factory=list)
    made: dict[Value, Node] = field(default_factory=dict)  # producers so far
    renamed: dict[Value, Value] = field(default_factory=dict)
    changed: bool = False

    def current(self, value: Value) -> Value:
        while value in self.renamed:
            value = self.renamed[value]
        return value

    def take(self, node: Node) -> Node:
        """The node with its operands up to date; not yet kept."""
        node.inputs = [None if v is None else self.current(v) for v in node.inputs]
        if node.when is not None:
            node.when = self.current(node.when)
        return node

    def keep(self, node: Node) -> Node:
        self.nodes.append(node)
        for out in node.outputs:
            self.made[out] = node
        return node

    def emit(self, op: Op, inputs: list[Value | None], like: Node, stem: str = "") -> Value:
        """A new node in front of what comes next, with the source and guard of `like`."""
        types = op.infer(*[None if v is None else v.type for v in inputs])
        out = self.graph.value(stem or like.output.name, types[0])
        self.keep(Node(op, inputs, [out], like.source, when=like.when))
        self.changed = True
        return out

    def replace(self, node: Node, value: Value) -> None:
        """Everybody who would read `node` reads `value` from now on. The name and origin of the model stay with the result."""
        if not value.is_const and not value.origin:
            value.origin = node.output.origin
        self.renamed[node.output] = value
        self.changed = True

    def finish(self) -> Graph:
        graph = self.graph
        graph.nodes = self.nodes
        graph.outputs = [self.current(v) for v in graph.outputs]
        for state in graph.states:
            state.output = self.current(state.output)
        return graph


def constant(graph: Graph, stem: str, data: Array, dtype: DType | None = None) -> Value:
    return graph.constant(stem, data, dtype)


def scalar_of(value: Value | None) -> float | None:
    """The number, when the value is a constant with the same number everywhere."""
    if value is None or value.data is None or value.data.size == 0 or value.dtype is DType.BF16:
        return None
    if value.data.size > 1 and (value.data.size > 4096 or not np.all(value.data == value.data.flat[0])):
        return None
    return float(value.data.flat[0])


def count_readers(graph: Graph) -> dict[Value, int]:
    """How often each value is read; being an output or a state counts too, and a loop around the reader counts as one more: what is
    computed in front of it is computed once, and stays there."""
    counts: dict[Value, int] = {}
    for node in graph.nodes:
        for value in node.operands():
            counts[value] = counts.get(value, 0) + 1
    for value in [*graph.outputs, *(s.output for s in graph.states)]:
        counts[value] = counts.get(value, 0) + 1
    for value in read_in_turns(graph) if has_loops(graph.nodes) else ():
        counts[value] += 1
    return counts
